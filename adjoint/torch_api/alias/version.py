"""`torch.version`: of the API that is followed, and what adjoint was built with: nothing."""

from __future__ import annotations

from .torch_version import __version__ as __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False
