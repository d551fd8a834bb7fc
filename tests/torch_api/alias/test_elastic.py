"""`torch.distributed.elastic`: `record` beside PyTorch's, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HOW = ["well", "0", "4", "badly"]  # each in a fork: it is importing that takes seconds
PROGRAM = """
import os
import sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ErrorHandler, record

@record
def main(how):
    "Says how it ends."
    if how == "well":
        return 3
    if how.isdigit():
        sys.exit(int(how))
    raise ValueError(how)

assert main.__doc__ == "Says how it ends." and issubclass(ChildFailedError, Exception)
folder, *ways = sys.argv[1:]
for how in ways:
    child = os.fork()
    if not child:
        os.environ["TORCHELASTIC_ERROR_FILE"] = f"{folder}/{how}.json"
        for number, end in enumerate(("out", "err"), 1):
            os.dup2(os.open(f"{folder}/{how}.{end}", os.O_WRONLY | os.O_CREAT), number)
        print(main(how))
        break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"{folder}/{how}.code", "w") as file:
        file.write(str(status))
"""
ALIAS = "import adjoint; adjoint.as_torch()\n"


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folders in which ours, and PyTorch's, has left what it says and how it ended."""
    pytest.importorskip("torch")
    folders = []
    for start in (ALIAS, ""):
        folders.append(tmp_path_factory.mktemp("ended"))
        command = [sys.executable, "-c", start + PROGRAM, str(folders[-1]), *HOW]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folders


@pytest.mark.parametrize("how", HOW)
def test_record_writes_down_what_pytorchs_does(how, ended):
    found = []
    for folder in ended:
        file = folder / f"{how}.json"
        code, out, err = ((folder / f"{how}.{end}").read_text() for end in ("code", "out", "err"))
        said = json.loads(file.read_text()) if file.exists() else None
        if said is not None:
            more = said["message"]["extraInfo"]
            assert int(more.pop("timestamp")) > 0
            assert more.pop("py_callstack").rstrip().endswith("ValueError: badly")
        found.append((int(code), out, said, "ValueError: badly" in err))
    assert found[0] == found[1]
    assert found[0][0] == {"well": 0, "0": 0, "4": 4, "badly": 1}[how]


REFUSED = """
import adjoint
torch = adjoint.as_torch()
import torch.distributed.elastic.multiprocessing.errors as errors
assert torch.distributed.elastic.multiprocessing.errors.record is errors.record
seen = []
class Handler(errors.ErrorHandler):
    def record_exception(self, e):
        seen.append(str(e))
def fail():
    raise KeyError(1)
try:
    errors.record(fail, Handler())()
except KeyError:
    assert seen == ["1"]
for name in ("elastic.agent.server", "elastic.rendezvous", "launcher.api", "run"):
    try:
        __import__(f"torch.distributed.{name}")
    except ModuleNotFoundError as error:
        assert "adjoint run --nproc" in str(error), error
    else:
        raise AssertionError(name)
try:
    from torch.distributed.elastic.multiprocessing import start_processes
except ImportError:
    assert not hasattr(torch.distributed.elastic, "start_processes")
else:
    raise AssertionError
try:
    torch.distributed.elastic.start_processes
except adjoint.MissingName as error:
    assert "adjoint run --nproc" in str(error)
"""


def test_what_starts_processes_is_refused():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REFUSED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
