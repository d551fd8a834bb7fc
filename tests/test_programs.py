"""Programs in forks of one process are programs: their own names, folder, warnings and end."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("import warnings; warnings.warn('old')", 1, "UserWarning: old"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import atexit, os; atexit.register(os._exit, 5)", 5, ""),
    ],
)
def test_what_goes_wrong_is_seen(program, status, error, programs, tmp_path):
    result = programs.run(program, tmp_path, UserWarning)
    assert result.returncode == status and error in result.stderr


def test_nothing_is_left_for_the_next_program(programs, tmp_path):
    program = "import os, adjoint; adjoint._seen = os.environ['SEEN'] = 'x'; name = os.getcwd()"
    assert programs.run(program, tmp_path, Warning).returncode == 0
    program = (
        "import os, sys, adjoint; print(hasattr(adjoint, '_seen'), os.environ['SEEN'], os.getcwd(),"
        " sys.argv, 'name' in globals(), __name__)"
    )
    result = programs.run(program, tmp_path, Warning, SEEN="y")
    assert result.stdout == f"False y {tmp_path} ['-c'] False __main__\n", result.stderr
