"""Programs, each in a process of its own, without the seconds that imports take: one process
imports what many of them do, and each program runs in a fork of it.

`python tests/programs.py` is that process: a line of standard input is a program to run, a line of
standard output its exit status. The fixture `programs` in `conftest.py` keeps one for all tests.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import warnings

IMPORTED = (  # the rest of what most of them import
    "adjoint", "adjoint.backends.native.lowering.kernel_execution",
    "adjoint.backends.native.onednn.eager_convolution", "adjoint.backends.native.random",
    "adjoint.compiler", "adjoint.data", "adjoint.distributed", "adjoint.optim", "adjoint.reactive",
    "adjoint.utils.data", "llvmlite.binding", "sklearn.datasets", "sklearn.model_selection", "tqdm",
)  # fmt: skip
SECONDS = 600  # after which a program is killed


class Programs:
    """The process that forks, as tests see it; it starts with the first program."""

    def __init__(self):
        self.process = None

    def run(self, program, folder, category, **environment):
        """What a program (a file, or Python code) prints in a folder, and its exit status; warnings
        of the category are errors.
        """
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        file = program if isinstance(program, pathlib.Path) else None
        with tempfile.TemporaryDirectory() as place:
            paths = [os.path.join(place, name) for name in ("out", "err")]
            request = {
                "name": str(file or "-c"), "code": file.read_text() if file else program,
                "folder": str(folder), "category": category.__name__, "paths": paths,
                "environment": {**os.environ, **environment},
            }  # fmt: skip
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
            texts = [pathlib.Path(path).read_text() for path in paths]
        return subprocess.CompletedProcess(request["name"], status, *texts)

    def close(self):
        if self.process is not None:
            self.process.communicate()


def serve():
    """Fork for each request, and return it in the fork; None where there are no more."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # what needs it is not tested here
            __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def become(request):
    """Be the program: its files, folder, environment, warnings and names."""
    signal.alarm(SECONDS)
    for number, path in enumerate((os.devnull, *request["paths"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the program's, until its end
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["name"]]
    sys.path[0] = os.path.dirname(request["name"])
    warnings.filterwarnings("error", category=getattr(builtins, request["category"]))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = request["name"]
    return compile(request["code"], request["name"], "exec"), vars(main)


if __name__ == "__main__" and (request := serve()):
    exec(*become(request))
