"""Settings under PyTorch's names, handed on to PyTorch, which computes on CUDA by them.

They are kept here until PyTorch is loaded to compute: asking for a setting loads nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from ..core.checked_modules import CheckedModule

__all__ = ["Settings", "connect", "hand_on", "make_settable"]

Setter = Callable[[str, Any], object]

_given: dict[str, Any] = {}  # what the program has set, by its name in PyTorch
_tell: Setter | None = None


def hand_on(name: str, value: Any) -> None:
    """Let PyTorch know a setting, such as "backends.cudnn.benchmark", now or when it is loaded."""
    _given[name] = value
    if _tell is not None:
        _tell(name, value)


def connect(tell: Setter) -> None:
    """Set what tells PyTorch (called once, where it is loaded): `tell(name, value)`."""
    global _tell
    _tell = tell
    for name, value in _given.items():
        tell(name, value)


class Settings(CheckedModule):
    """A module whose variables named in `settings` are PyTorch's too."""

    settings: ClassVar[dict[str, frozenset[str]]] = {}  # of each module

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.settings.get(self.__name__, ()):
            hand_on(f"{self.__name__.partition('.')[2]}.{name}", value)


def make_settable(module: str, *names: str) -> None:
    """Hand on assignments to these variables of a module."""
    Settings.settings[module] = frozenset(names)
    sys.modules[module].__class__ = Settings
