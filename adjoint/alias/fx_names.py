"""Names of modules below `torch.fx` that packages import, and use in tracing."""

from __future__ import annotations

from typing import Any

from ..absent import refused
from ..fx import GraphModule

__all__ = ["get_proxy_mode"]
__path__: list[str] = []  # `torch.fx.experimental` is a package, whose modules are this one, too

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(GraphModule):
    """None is made here."""


_copy_attr = refused("fx.graph_module", "_copy_attr", "nothing is traced symbolically here")


def get_proxy_mode() -> Any:
    """Of what traces: nothing does.

    >>> from adjoint.alias.fx_names import get_proxy_mode
    >>> get_proxy_mode() is None
    True
    """
    return None
