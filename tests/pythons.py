"""The core's tests on other Pythons: `python tests/pythons.py tests/test_autograd.py ...`.

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
NEEDED = ("pytest", "hypothesis")  # what the tests import


def interpreter(version: str) -> str | None:
    """A Python of this version that runs; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for each in filter(None, found):
        shown = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if shown.returncode == 0 and f" {version}." in shown.stdout:
            return str(each)
    return None


def check(version: str, python: str, tests: list[str]) -> int:
    """Install for a Python, and run the tests; pytest's exit status."""
    place = ROOT / "build" / f"python{version}"
    if not (place / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", place], check=True)
    own = str(place / "bin" / "python")
    pip = [own, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--editable", ".", *NEEDED], check=True, cwd=ROOT)
    says = "import adjoint as ad; print(ad.extensions.state())"
    state = subprocess.run([own, "-c", says], capture_output=True, text=True, cwd=ROOT, check=True)
    print(f"Python {version}: {state.stdout.strip()}", flush=True)
    if state.stdout.strip() != "compiled":
        return 1
    command = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "COMPARED_WITH": "itself"}  # see tests/pytorch.py
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    """Run all; the number of versions that failed."""
    failed = []
    for version in VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not installed", flush=True)
        elif check(version, python, sys.argv[1:]):
            failed.append(version)
    print("failed:", *failed or ["none"], flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
