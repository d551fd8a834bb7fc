"""`torch.distributed.elastic`: `record` beside PyTorch's, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
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
print(main(sys.argv[1]))
"""
ALIAS = "import adjoint; adjoint.as_torch()\n"


@pytest.mark.parametrize("how", ["well", "0", "4", "badly"])
def test_record_writes_down_what_pytorchs_does(how, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    found = []
    for number, start in enumerate((ALIAS, "")):
        file = tmp_path / f"{number}.json"
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
        done = subprocess.run(
            [sys.executable, "-c", start + PROGRAM, how],
            capture_output=True,
            text=True,
            check=False,
        )
        said = json.loads(file.read_text()) if file.exists() else None
        if said is not None:
            more = said["message"]["extraInfo"]
            assert int(more.pop("timestamp")) > 0
            assert more.pop("py_callstack").rstrip().endswith("ValueError: badly")
        found.append((done.returncode, done.stdout, said, "ValueError: badly" in done.stderr))
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
