"""What tests need of this machine: kernels that can be compiled and run."""

from __future__ import annotations

import pytest

from adjoint.backends import native

needs_native = pytest.mark.skipif(
    native.unusable() is not None, reason=f"native backend: {native.unusable()}"
)
# The two ways to call what a test compares, of which one needs kernels.
COMPILED_OR_NOT = [
    pytest.param(False, id="eager"), pytest.param(True, id="compiled", marks=needs_native)
]  # fmt: skip
