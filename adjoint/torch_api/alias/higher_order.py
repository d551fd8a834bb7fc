"""`torch._higher_order_ops`: loops and branches on values, which are functions of adjoint's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from ...compiler.capture.associative_scan import associative_scan
from ...compiler.capture.control import cond, scan, while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]

__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too


def map(f: Callable[..., object], xs: object, *args: object) -> object:
    """`f(x, *args)` for each slice of `xs` along the first dimension, stacked.

    Source: https://github.com/pytorch/pytorch/blob/main/torch/_higher_order_ops/map.py
    """
    return scan(lambda carry, x: (carry, f(x, *args)), (), xs)[1]


class _Package(ModuleType):
    """The package, whose functions have the names of its modules: an import of one of these leaves
    the function in its place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
