"""What the native backend's tests change for the process is undone."""

from __future__ import annotations

import pytest

from adjoint.program import compute


@pytest.fixture(autouse=True)
def no_launchers_left():
    """Launchers made while a test moved the sizes from which kernels run would outlive it, and
    compute small arrays of tests to come by other kernels than those take.
    """
    yield
    compute.forget()
