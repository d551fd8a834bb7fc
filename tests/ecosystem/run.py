"""PyTorch's ecosystem on adjoint, in an environment without PyTorch, beside what PyTorch gave.

python tests/ecosystem/run.py                # makes build/ecosystem, checks all packages
python tests/ecosystem/run.py timm pyro      # these, or finetune_timm, an example
python tests/ecosystem/run.py --python P ... # with an environment that is there
python tests/ecosystem/run.py record ...     # with PyTorch: writes recorded/*.json
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "ecosystem"
PACKAGES = sorted(path.stem.removeprefix("with_") for path in HERE.glob("with_*.py"))
EXAMPLES = ["finetune_timm"]  # that need one of these packages, in smoke form
TOLERANCE = 1e-4  # of numbers, beside the largest of their list; `LOOSER` has those that need more
LOOSER = {"timm:optimizers": 1e-3}  # Muon iterates in bfloat16, whose last bit is 0.4%
STOPS: dict[str, str] = {}  # and why; one that runs is to be taken out here


def environment():
    """The interpreter of an environment with the pinned packages, and without PyTorch."""
    python = BUILD / "bin" / "python"
    wanted = (HERE / "requirements.txt").read_text()
    done = BUILD / "installed.txt"
    if not done.exists() or done.read_text() != wanted:
        venv.create(BUILD, with_pip=True, clear=True)
        command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*command, "--no-deps", "-r", HERE / "requirements.txt"], check=True)
        done.write_text(wanted)
    return str(python)


def run(python, name, *, aliased):
    """What the cases of a package give."""
    start = ["-m", "adjoint", "run", "--as-torch"] if aliased else []
    done = subprocess.run(
        [python, *start, str(HERE / "one.py"), *name.split(":")],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT) if aliased else ""},
    )  # fmt: skip
    try:
        return json.loads(done.stdout.rstrip().rpartition("\n")[2]), done.stderr
    except json.JSONDecodeError:
        return {"": {"error": f"ended with {done.returncode}"}}, done.stderr


def flat(value, into=None):
    """The strings and numbers of a case."""
    into = [] if into is None else into
    if isinstance(value, dict):
        for key in sorted(value):
            flat(value[key], into)
    elif isinstance(value, list) and not all(isinstance(x, (int, float)) for x in value):
        for each in value:
            flat(each, into)
    else:
        into.append(value)
    return into


def deviation(a, b):
    """How far apart two cases are: the largest difference beside the largest number of its list."""
    one, other = flat(a), flat(b)
    if len(one) != len(other):
        return float("inf")
    worst = 0.0
    for x, y in zip(one, other, strict=True):
        if not isinstance(x, list) or not isinstance(y, list):
            x, y = [x], [y]
        if len(x) != len(y):
            return float("inf")
        numbers = [(float(u), float(v)) for u, v in zip(x, y, strict=True) if is_number(u)]
        if [u for u in x if not is_number(u)] != [v for v in y if not is_number(v)]:
            return float("inf")
        if not numbers:
            continue
        scale = max(1e-6, *(abs(v) for _, v in numbers)) if numbers else 1.0
        for u, v in numbers:
            if u != v and not (u != u and v != v):
                worst = max(worst, abs(u - v) / scale if abs(u - v) == abs(u - v) else float("inf"))
    return worst


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def check(python, name):
    """Compare a package with what was recorded; returns lines, and how many cases failed."""
    found, errors = run(python, name, aliased=True)
    package, _, chosen = name.partition(":")
    recorded = json.loads((HERE / "recorded" / f"{package}.json").read_text())
    if not chosen and set(recorded) - set(found):
        found.update({case: {"error": "did not run"} for case in set(recorded) - set(found)})
    lines, failed = [], 0
    for case, result in found.items():
        bound = LOOSER.get(f"{package}:{case}", TOLERANCE)
        if "error" in result or case not in recorded:
            said, bad = result.get("error", "is not recorded"), True
        else:
            off = deviation(result["value"], recorded[case])
            said, bad = f"{off:.1e}", not off <= bound
        why = STOPS.get(f"{package}:{case}")
        if why is not None:
            bad = not bad
            said = f"runs, but is listed to stop: {why}" if bad else f"stops: {why}"
        failed += bad
        lines.append(f"{'FAILED' if bad else 'ok':7}{package} {case}: {said}")
    return lines + ([errors] if failed else []), failed


def run_example(python, name):
    """Whether an example prints its figure; a line, and how many failed."""
    path = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [python, str(path)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ADJOINT_SMOKE": "1"},
    )  # fmt: skip
    figure = re.search(r"^Expected: (.+) at (?:least|most)", path.read_text(), re.M)[1]
    if done.returncode == 0 and re.search(rf"^{figure}: [\d.]+$", done.stdout, re.M):
        return [f"{'ok':7}example {name}"], 0
    return [f"{'FAILED':7}example {name}", done.stdout, done.stderr], 1


def record(names):
    """Write what PyTorch gives."""
    for name in names:
        found, errors = run(sys.executable, name, aliased=False)
        wrong = {case: each["error"] for case, each in found.items() if "error" in each}
        if wrong:
            raise SystemExit(f"{errors}\n{name}: {wrong}")
        package = name.partition(":")[0]
        path = HERE / "recorded" / f"{package}.json"
        before = json.loads(path.read_text()) if ":" in name and path.exists() else {}
        before.update({case: rounded(each["value"]) for case, each in found.items()})
        path.write_text(json.dumps(before, indent=0).replace(",\n", ", ") + "\n")


def rounded(value):
    """Numbers of seven digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def main(*names):
    if names[:1] == ("record",):
        return record(names[1:] or PACKAGES)
    python = None
    if names[:1] == ("--python",):
        python, names = names[1], names[2:]
    python = python or environment()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        failures = 0
        for lines, failed in pool.map(
            lambda name: (run_example if name in EXAMPLES else check)(python, name),
            names or PACKAGES + EXAMPLES,
        ):
            print(*lines, sep="\n", flush=True)
            failures += failed
    return failures


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
