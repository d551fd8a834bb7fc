"""Run the examples in full, check each against its expected figure, and write the page
docs/measurements/examples.md.

Run: python examples/record_results.py [NAME ...]   (only those named: their rows are replaced)
"""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "measurements" / "examples.md"
EXPECTED = re.compile(r"^Expected: (.+) at (least|most) ([-+.\de]+)$", re.MULTILINE)
HEAD = """# Results of the examples

Each row is one full run: the figure that the program's docstring expects, and the one it reached.
`python examples/record_results.py` runs them all and writes this page; it fails where a figure is
missed. [What each program shows](../examples.md).

| example | command | seed | expected | reached | processor time |
|---|---|---|---|---|---|
"""


def examples():
    """The programs that name an expected figure."""
    return {
        path.stem: path
        for path in sorted(HERE.glob("*.py"))
        if path != Path(__file__) and EXPECTED.search(path.read_text())
    }


def figure_of(path, output):
    """The expected figure as text, the printed one, and whether it is good enough."""
    name, relation, bound = EXPECTED.findall(path.read_text())[0]
    (printed,) = re.findall(rf"^{re.escape(name)}: (\S+)$", output, re.MULTILINE)
    value, limit = float(printed), float(bound)
    good = value >= limit if relation == "least" else value <= limit
    sign = {"least": "≥", "most": "≤"}[relation]
    return f"{name} {sign} {bound}", printed, good


def row(name, path):
    begin = os.times()
    environment = {key: value for key, value in os.environ.items() if key != "ADJOINT_SMOKE"}
    result = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=environment
    )
    end = os.times()
    seconds = end.children_user + end.children_system - begin.children_user - begin.children_system
    if result.returncode:
        sys.exit(f"{name} failed:\n{result.stderr}")
    expected, reached, good = figure_of(path, result.stdout)
    print(f"{name}: {expected}, reached {reached} in {seconds:.0f} s", flush=True)
    if not good:
        sys.exit(f"{name} misses its figure")
    seed = re.search(r"(?:manual_seed\(|default_rng\(|SEED = )(\d+)", path.read_text())
    number = seed[1] if seed else "none drawn"
    command = f"`python examples/{name}.py`"
    return f"| {name} | {command} | {number} | {expected} | {reached} | {seconds:.0f} s |"


def main(names):
    rows = {}
    if names and RESULTS.exists():
        found = re.findall(r"^(\| (\w+) \| `.*)$", RESULTS.read_text(), re.MULTILINE)
        rows = {name: line for line, name in found}
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    machine = (
        f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} processors, "
        f"OPENBLAS_NUM_THREADS={threads}; times include imports."
    )
    for name, path in examples().items():
        if not names or name in names:
            rows[name] = row(name, path)
            lines = "\n".join(rows[key] for key in sorted(rows))
            RESULTS.write_text(f"{HEAD}{lines}\n\n{machine}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
