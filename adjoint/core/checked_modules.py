"""Modules whose variables are switches: setting a misspelt one, which would do nothing, is an
error.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any

from . import config
from .errors import InvalidArgument

__all__ = ["CheckedModule", "assert_known", "guard"]


def assert_known(owner: str, names: Iterable[str], name: str, value: object) -> None:
    """Refuse to set a bool, number or text under a public name that `owner` lacks. Functions,
    classes and modules are allowed, as packages patch others; in place of PyTorch (`as_torch`)
    anything is.
    """
    if name[:1] == "_" or not isinstance(value, (bool, int, float, str)):
        return
    existing = set(names)
    if name in existing or config.CALLED != "adjoint":
        return
    import difflib  # which costs an import that nobody else makes

    near = difflib.get_close_matches(name, existing, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "keep what is yours elsewhere"
    raise InvalidArgument(
        f"{owner}.{name}: there is no such switch, so setting it to {value!r:.40} would do "
        f"nothing; {hint}"
    )


class CheckedModule(types.ModuleType):
    """A module that refuses switches other than those it was made with."""

    def __setattr__(self, name: str, value: object) -> None:
        assert_known(self.__name__, dir(self), name, value)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, as cloudpickle (of Ray, joblib, Dask) does with plain modules."""
        return importlib.import_module, (self.__name__,)


def guard(*modules: str) -> None:
    """Make the already imported modules of these names refuse unknown switches."""
    for module in modules:
        if type(sys.modules[module]) is types.ModuleType:
            sys.modules[module].__class__ = CheckedModule
