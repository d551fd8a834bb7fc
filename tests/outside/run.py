"""Test suites that nobody here wrote, on adjoint without PyTorch, beside what passes with PyTorch.

OUTSIDE=/checkouts python tests/outside/run.py einops higher   # these suites, or all of them
OUTSIDE=/checkouts python tests/outside/run.py record einops   # with PyTorch: writes recorded/
python tests/outside/run.py page                               # writes docs/outside.md

OUTSIDE names a folder of checkouts, owner+name, of the repositories in suites.toml at the commits
there. A run stopped halfway goes on where it was; notes of a run lie in build/outside-notes/, and
are made anew by `--fresh`. Fails by every test that PyTorch passes and adjoint does not, unless
differences.toml has it with its reason; and by a line there that nothing needs.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "outside"
NOTES = ROOT / "build" / "outside-notes"
PAGE = ROOT / "docs" / "outside.md"
REQUIREMENTS = (HERE.parent / "ecosystem" / "requirements.txt", HERE / "requirements.txt")
LIMIT = 15 * 60  # seconds that a suite may take, each time it is run
STUCK = 240  # seconds without a note after which a process is ended: it waits for something
QUIET = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "CI": "1"}
QUIET["ADJOINT_OPTIMIZE"] = "0"  # the same bits, compiled in a third of the time


def read(name):
    return tomllib.loads((HERE / name).read_text())


def environment():
    """The interpreter of an environment with the packages, and without PyTorch."""
    wanted = "".join(path.read_text() for path in REQUIREMENTS)
    done = BUILD / "installed.txt"
    if not done.exists() or done.read_text() != wanted:
        venv.create(BUILD, with_pip=True, clear=True)
        command = [BUILD / "bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
        files = [f"--requirement={path}" for path in REQUIREMENTS]
        subprocess.run([*command, "--quiet", "--no-deps", *files], check=True)
        done.write_text(wanted)
    return str(BUILD / "bin" / "python")


def checkout(suite):
    """The folder of a suite's repository; it must be at the commit that was recorded."""
    outside = os.environ.get("OUTSIDE")
    if "repository" not in suite:
        package = BUILD.glob(f"lib/python3*/site-packages/{suite['wheel'].split()[0]}")
        return next((each.parent for each in package), HERE)  # PyTorch's is not there
    owner, name = suite["repository"].split("/")
    folder = Path(outside or "") / f"{owner}+{name}"
    if not outside or not folder.is_dir():
        raise SystemExit(
            f"there is no {folder}: git clone https://github.com/{suite['repository']} {folder}, "
            f"git checkout {suite['commit']} there, and name the folder above it by OUTSIDE="
        )
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    at = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if at != suite["commit"]:
        raise SystemExit(f"{folder} is at {at}: git checkout {suite['commit']}")
    return folder


def run(name, suite, notes, *, aliased):
    """Run what of a suite has no notes yet; whether all of it has."""
    python, folder, limit = environment(), checkout(suite), time.monotonic() + LIMIT
    paths = [str(folder / path) for path in suite.get("path", ["."])] + [str(HERE)]
    if aliased:
        start = [python, "-m", "adjoint", "run", "--as-torch", "-m", "pytest"]
        paths.append(str(ROOT))
    else:
        start = [sys.executable, "-m", "pytest"]
        paths += map(str, BUILD.glob("lib/python3*/site-packages"))
    arguments = ["-q", "-p", "watch", "-p", "no:cacheprovider", "-o", "addopts="]
    arguments += ["--continue-on-collection-errors", *suite.get("arguments", []), *suite["tests"]]
    settings = {**QUIET, "PYTHONPATH": os.pathsep.join(paths), "OUTSIDE_LOG": str(notes)}
    settings["OUTSIDE_ABSENT"] = " ".join(suite.get("absent", []))
    for _ in range(20):  # a process that crashed is followed by one that does the rest
        known = len(outcomes(notes))
        with open(notes.with_suffix(".out"), "w") as out:
            process = subprocess.Popen(
                [*start, *arguments], stdout=out, stderr=subprocess.STDOUT,
                cwd=folder / suite.get("folder", ""),
                env={**os.environ, **settings, **suite.get("environment", {})},
            )  # fmt: skip
            code = wait(process, notes, limit)
        if code in (0, 1, 5):  # all passed, some failed, none is left
            return True
        if time.monotonic() > limit:
            forget_unfinished(notes)
            return False
        if len(outcomes(notes)) == known:
            raise SystemExit(f"{name}: pytest ended with {code}: {notes.with_suffix('.out')}")
        print(f"{name}: a process ended with {code}, the next goes on", flush=True)
    return False


def wait(process, notes, limit):
    """The code a process ends with; it is ended at the limit, or where it notes nothing more."""
    begin = time.time()
    while process.poll() is None:
        time.sleep(0.2)
        last = max(begin, notes.stat().st_mtime if notes.exists() else 0)
        if time.monotonic() > limit or time.time() - last > STUCK:
            process.kill()
    return process.wait()


def forget_unfinished(notes):
    """Take out the test that was interrupted by the suite's limit: it is not one that crashed."""
    *lines, last = notes.read_text().splitlines() if notes.exists() else [""]
    if last and len(json.loads(last)) == 1:
        notes.write_text("".join(f"{line}\n" for line in lines))


def outcomes(notes):
    os.environ["OUTSIDE_LOG"] = str(notes)
    import watch

    return watch.notes(notes)


def nested(ids):
    """Ids by file and function: {"a.py::test": ["[x]", ...]}, with "" where there is no `[`."""
    found = {}
    for each in sorted(ids):
        function, bracket, rest = each.partition("[")
        found.setdefault(function, []).append(bracket + rest)
    return found


def recorded(name):
    """The ids that pass with PyTorch."""
    said = json.loads((HERE / "recorded" / f"{name}.json").read_text())["passed"]
    return [function + rest for function, rests in said.items() for rest in rests]


def record(name, suite):
    """Write which ids pass with PyTorch, and with which versions."""
    notes = NOTES / f"{name}.torch.jsonl"
    if not run(name, suite, notes, aliased=False):
        raise SystemExit(f"{name}: not done within {LIMIT} s; the same command goes on")
    found = outcomes(notes)
    passed = [each for each, (outcome, _) in found.items() if outcome == "passed"]
    versions = subprocess.run(
        [sys.executable, "-c", "import torch, numpy; print(torch.__version__, numpy.__version__)"],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, BUILD.glob("lib/*/site-*")))},
    ).stdout.split()  # fmt: skip
    said = {
        "commit": suite.get("commit", ""),
        "versions": dict(zip(("torch", "numpy"), versions, strict=True)),
        "others": len(found) - len(passed),  # that PyTorch fails or skips, too
        "passed": nested(passed),
    }
    text = json.dumps(said, indent=0).replace(",\n", ", ").replace("[\n", "[").replace("\n]", "]")
    (HERE / "recorded" / f"{name}.json").write_text(text.replace('], "', '],\n"') + "\n")
    print(f"{name}: {len(passed)} of {len(found)} pass with PyTorch {versions[0]}")


def listed(name, passed):
    """The differences of a suite that have a reason: {id: reason}; and patterns without an id."""
    reasons, idle = {}, []
    for pattern, reason in read("differences.toml").get(name, {}).items():
        whole = pattern.replace("[", "[[]")
        found = [each for each in passed if fnmatch.fnmatchcase(each, whole)]
        reasons.update(dict.fromkeys(found, reason))
        idle += [] if found else [pattern]
    return reasons, idle


def compare(name, passed, found):
    """Lines on what differs from the list, and how many differ."""
    reasons, idle = listed(name, passed)
    lines = [f"FAILED {name} {each}: listed, but PyTorch passes no such test" for each in idle]
    for each in passed:
        outcome, why = found.get(each, ("missing", "it was not collected"))
        if outcome != "passed" and each not in reasons:
            lines.append(f"FAILED {name} {each}: {outcome}: {why}")
        elif outcome == "passed" and each in reasons:
            lines.append(f"FAILED {name} {each}: passes, but is listed: {reasons[each]}")
    ours = sum(found.get(each, ("",))[0] == "passed" for each in passed)
    return [*lines, f"{name}: PyTorch passes {len(passed)}, adjoint {ours} of them"], len(lines)


def page():
    """The text of docs/outside.md, from what is recorded and listed."""
    rows, why = [], []
    for name, suite in read("suites.toml").items():
        passed = recorded(name)
        reasons = listed(name, passed)[0]
        meant = ("refused:", "wider:")
        refused = sum(each.startswith(meant) for each in reasons.values())
        ours, wanted = len(passed) - len(reasons), len(passed) - refused
        source = suite.get("wheel") or f"{suite['repository']} {suite['commit'][:10]}"
        cells = (name, source, len(passed), ours, refused)
        rows.append(f"| {' | '.join(map(str, cells))} | {ours / max(wanted, 1):.1%} |")
        counts = {reason: list(reasons.values()).count(reason) for reason in reasons.values()}
        why += [f"| {name} | {count} | {reason} |" for reason, count in sorted(counts.items())]
    text = (HERE / "page.md").read_text()
    return text.replace("ROWS", "\n".join(rows)).replace("REASONS", "\n".join(why))


def main(*names):
    if names == ("page",):
        return PAGE.write_text(page()) and 0
    fresh, names = "--fresh" in names, [each for each in names if each != "--fresh"]
    suites, recording = read("suites.toml"), names[:1] == ["record"]
    NOTES.mkdir(parents=True, exist_ok=True)
    failures = 0
    for name in names[recording:] or suites:
        notes = NOTES / f"{name}.{'torch' if recording else 'ours'}.jsonl"
        if fresh:
            notes.unlink(missing_ok=True)
        if recording:
            record(name, suites[name])
            continue
        begin = time.monotonic()
        whole = run(name, suites[name], notes, aliased=True)
        lines, failed = compare(name, recorded(name), outcomes(notes))
        if not whole:
            lines, failed = [f"{name}: not done; the same command goes on"], 1
        print(*lines, f"({time.monotonic() - begin:.0f} s)", sep="\n", flush=True)
        failures += failed
        if whole:
            notes.rename(notes.with_suffix(".last"))
    return min(failures, 1)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
