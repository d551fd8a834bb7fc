"""`torch.__config__`: how this was built, and what it computes with."""

from __future__ import annotations

import adjoint

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Description of the installation, as the command `adjoint info` gives it."""
    core = adjoint.extensions.state()
    return f"adjoint {adjoint.__version__}\n  - core: {core}\n"


def _cxx_flags() -> str:
    """Empty: nothing is built from C++."""
    return ""


def parallel_info() -> str:
    """Text that tells how many threads compute."""
    return (
        f"ATen/Parallel:\n\tat::get_num_threads() : {adjoint.get_num_threads()}\n"
        f"\tat::get_num_interop_threads() : {adjoint.get_num_interop_threads()}\n"
    )
