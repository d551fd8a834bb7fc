"""The core's tests on other Pythons: `python tests/pythons.py tests/autograd/test_autograd.py ...`,
on one of them with `--only 3.12` in front.

For each CPython of the list that is there (on PATH, or of pyenv) it makes a virtual environment
in build/, installs the package there, which compiles the core, and runs the tests. PyTorch is
several gigabytes for each of them, so it is not installed: ours is compared with itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.10", "3.12", "3.13")
NEEDED = ("pytest", "pytest-xdist", "hypothesis")  # what runs the tests, and what they import


def interpreter(version: str) -> str | None:
    """A Python of this version that runs; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for each in filter(None, found):
        shown = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if shown.returncode == 0 and f" {version}." in shown.stdout:
            return str(each)
    return None


def check(version: str, python: str, tests: list[str]) -> tuple[bool, str]:
    """Run the tests on a Python; whether all passed, and what was printed."""
    place = ROOT / "build" / f"python{version}"
    own = str(place / "bin" / "python")
    if not Path(own).exists():
        run(python, "-m", "venv", str(place))
    says = "import adjoint as ad; print(ad.extensions.state())"
    if run(own, "-c", says)[1].strip() != "compiled":  # not installed, or older than its sources
        pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        done, text = run(own, *pip, "--editable", ".", *NEEDED)
        state = run(own, "-c", says)[1].strip()
        if not done or state != "compiled":
            return False, f"{text}\n{state}"
    return run(own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", *tests)


def run(*command: str) -> tuple[bool, str]:
    """Whether a command succeeded, and what it printed."""
    environment = {**os.environ, "COMPARED_WITH": "itself"}  # see tests/pytorch.py
    environment["CFLAGS"] = "-O0 -g0"  # C compilers take longer than the tests
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode == 0, done.stdout


def main() -> int:
    """Run all, one after the other, each on all cores; the number of versions that failed."""
    tests, versions = sys.argv[1:], VERSIONS
    if tests[:1] == ["--only"]:
        versions, tests = (tests[1],), tests[2:]
    failed = 0
    for version in versions:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not installed")
            continue
        passed, text = check(version, python, tests)
        failed += not passed
        print(f"Python {version}: {'passed' if passed else 'failed'}\n{text}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
