"""What the native backend's tests change for the process is undone."""

from __future__ import annotations

import pytest

from adjoint.autograd import fusion, overwriting
from adjoint.core import dispatch_log
from adjoint.ir import compute
from adjoint.ir.program import Program
from adjoint.optim import formula


@pytest.fixture(autouse=True)
def no_launchers_left():
    """Launchers made while a test moved the sizes from which kernels run would outlive it, and
    compute small arrays of tests to come by other kernels than those take.
    """
    yield
    compute.forget()


@pytest.fixture
def falls_back():
    """For tests of what has no kernel: the slower way is no error."""


@pytest.fixture(autouse=True)
def _strictly(request):
    """A slower way where a kernel is expected fails a test."""
    if "falls_back" in request.fixturenames:
        yield
        return
    with dispatch_log.strictly():
        yield


@pytest.fixture(autouse=True)
def _verified(monkeypatch):
    """Every program that is captured, or made from another, is checked."""

    def checking(function):
        def checked(*args):
            program = function(*args)
            program.verify()
            return program

        return checked

    for module in (fusion, overwriting, formula):
        monkeypatch.setattr(module, "program_of", checking(module.program_of))
    for name in ("between", "with_inputs"):
        monkeypatch.setattr(Program, name, checking(getattr(Program, name)))
