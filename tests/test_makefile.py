"""The Makefile: an install that was interrupted is mended by the next `make`.

Instead of Python there is a script, whose steps note what they do and wait to be killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# As PYTHON it makes .venv/bin/python, as that it installs. What `slow` names leaves half of it.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
log=$PWD/log
case "$*" in
*venv*) step=venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
*pip*) step=pip; touch .venv/half;;
esac
echo "$step $(test -e .venv/pip && echo 'over the one before')" >> "$log"
if [ -e slow ] && [ "$(cat slow)" = "$step" ]; then
    echo "$step waits" >> "$log"
    sleep 600
fi
[ -e fails ] && exit 1
[ -e dies ] && kill -9 $$
[ "$step" = pip ] && rm .venv/half
touch ".venv/$step"
"""


# `make test` runs these tests: what it tells the makes that it starts itself is not for these.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
ENVIRONMENT.pop("MFLAGS", None)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    python = f"PYTHON={folder / 'python'}"
    return subprocess.run(
        ["make", *arguments, python], cwd=folder, capture_output=True, text=True, timeout=600,
        env=ENVIRONMENT,
    )  # fmt: skip


@pytest.fixture
def clone(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def interrupted(clone: Path, step: str, number: int, *, whole: bool = True) -> subprocess.Popen:
    """`make`, of which this step was sent a signal: all its processes, or make alone."""
    (clone / "slow").write_text(step)
    process = subprocess.Popen(
        ["make", ".venv/.demo", f"PYTHON={clone / 'python'}"], cwd=clone, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
        # The tests may run in the background of a shell, which has SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    for _ in range(6000):
        if (clone / "log").exists() and f"{step} waits" in (clone / "log").read_text():
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"{step} was never begun")
    if whole:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait()
    (clone / "slow").unlink()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("step", ["venv", "pip"])
def test_an_interrupted_install_is_begun_anew(clone, step, number):
    interrupted(clone, step, number)
    assert not (clone / ".venv" / ".demo").exists()
    (clone / "log").unlink()
    done = make(clone, ".venv/.demo")
    assert done.returncode == 0, done.stderr
    assert "made anew" in done.stdout
    assert (clone / "log").read_text().split() == ["venv", "pip"]
    assert (clone / ".venv" / ".demo").exists()
    assert not (clone / ".venv" / "half").exists()
    assert not (clone / ".venv" / ".unfinished").exists()
    assert make(clone, ".venv/.demo").stdout == "make: '.venv/.demo' is up to date.\n"


def test_an_install_that_fails_by_itself_keeps_what_there_was(clone):
    assert make(clone, ".venv/.demo").returncode == 0
    (clone / "fails").touch()
    assert make(clone, ".venv/.docs").returncode != 0
    (clone / "fails").unlink()
    (clone / "log").unlink()
    assert make(clone, ".venv/.docs").returncode == 0
    assert (clone / "log").read_text().splitlines() == ["pip over the one before"]


def test_an_install_that_was_killed_alone_is_begun_anew(clone):
    assert make(clone, ".venv/bin/python").returncode == 0
    (clone / "dies").touch()
    assert make(clone, ".venv/.demo").returncode != 0
    (clone / "dies").unlink()
    (clone / "log").unlink()
    assert make(clone, ".venv/.demo").returncode == 0
    assert (clone / "log").read_text().split() == ["venv", "pip"]


def test_an_install_that_still_runs_is_left_alone(clone):
    process = interrupted(clone, "pip", signal.SIGKILL, whole=False)
    try:
        refused = make(clone, ".venv/.demo")
        assert refused.returncode != 0
        assert "installs into .venv: wait for it" in refused.stderr
        assert (clone / ".venv" / "half").exists()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert make(clone, ".venv/.demo").returncode == 0
