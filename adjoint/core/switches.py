"""Modules whose variables are switches: a misspelt one is refused, for it would do nothing."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any

from . import config
from .errors import InvalidArgument

__all__ = ["Switches", "assert_known", "guard"]


def assert_known(owner: str, names: Iterable[str], name: str, value: Any) -> None:
    """Refuse a bool, number or text for a public name that `owner` has not. Functions, classes and
    modules may be put there, as packages do that patch others; in PyTorch's place so may anything.
    """
    if name[:1] == "_" or not isinstance(value, (bool, int, float, str)):
        return
    known = set(names)
    if name in known or config.CALLED != "adjoint":
        return
    import difflib  # which costs an import that nobody else makes

    near = difflib.get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "keep what is yours elsewhere"
    raise InvalidArgument(
        f"{owner}.{name}: there is no such switch, so setting it to {value!r:.40} would do "
        f"nothing; {hint}"
    )


class Switches(types.ModuleType):
    """A module that has no other switches than those it was made with."""

    def __setattr__(self, name: str, value: Any) -> None:
        assert_known(self.__name__, dir(self), name, value)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its name, as cloudpickle (of Ray, joblib, Dask) sends plain modules that a function
        uses.
        """
        return importlib.import_module, (self.__name__,)


def guard(*modules: str) -> None:
    """Let modules of these names, which have been imported, refuse unknown switches."""
    for module in modules:
        if type(sys.modules[module]) is types.ModuleType:
            sys.modules[module].__class__ = Switches
