"""`torch.fx.experimental`: names that packages import, and ask while something is traced."""

from __future__ import annotations

from typing import Any

__all__ = ["get_proxy_mode"]
__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too


def get_proxy_mode() -> Any:
    """The mode of PyTorch's tracing of operations: there is none, `fx` traces by proxies.

    >>> from adjoint.torch_api.alias.fx_names import get_proxy_mode
    >>> get_proxy_mode() is None
    True
    """
    return None
