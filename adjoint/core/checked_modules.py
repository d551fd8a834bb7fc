"""Modules that look at what is set in them.

Of some the variables are switches: setting a misspelt one, which would do nothing, is an error. All
tell when a user replaces one of their functions (`F.gelu = mine`): our own code finds it there, as
eagerly, so what was captured before is another computation, and asks `STATE`.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any, NoReturn

from . import config
from .errors import InvalidArgument, InvalidType
from .package import NAME, OURS

__all__ = [
    "STATE", "WHAT", "CheckedModule", "Watched", "assert_known", "guard", "refuse_calls",
    "watch_modules",
]  # fmt: skip


# What users have replaced: the names of the module and of the function, and what is there now.
WHAT = "a function of adjoint"
STATE: dict[str, tuple[tuple[str, str, object], ...]] = {WHAT: ()}
_ABSENT = object()
_originals: dict[tuple[str, str], object] = {}
_imported = [True]  # whether modules were imported that nobody has looked at


class Watched(types.ModuleType):
    """A module of this library, whose functions users may replace."""

    def __setattr__(self, name: str, value: object) -> None:
        before = self.__dict__.get(name, _ABSENT)
        super().__setattr__(name, value)
        if isinstance(value, types.ModuleType):  # Python gives a package what was imported of it
            _imported[0] = True
        if not _is_ours_that_sets():
            _note(self.__name__, name, before, value)

    def __delattr__(self, name: str) -> None:
        before = self.__dict__.get(name, _ABSENT)
        super().__delattr__(name)
        _note(self.__name__, name, before, _ABSENT)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, as cloudpickle (of Ray, joblib, Dask) does with plain modules."""
        return importlib.import_module, (self.__name__,)


def _is_ours_that_sets() -> bool:
    """Whether the code that sets a name of a module is this library's."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__setattr__":  # of a derived class
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


def _note(module: str, name: str, before: object, value: object) -> None:
    """Write down that a name of a module, which was `before`, is a value now."""
    place = module, name
    if before is value or (place not in _originals and not callable(before)):
        return  # a new name, of which our code knows nothing, or a setting
    rest = tuple(each for each in STATE[WHAT] if each[:2] != place)
    if _originals.setdefault(place, before) is value:
        del _originals[place]
        STATE[WHAT] = rest
    else:
        STATE[WHAT] = (*rest, (*place, None if value is _ABSENT else value))


def watch_modules() -> None:
    """Watch all modules of this library that have been imported, but for backends, whose namespaces
    are told apart by their types.
    """
    if not _imported[0]:
        return
    _imported[0] = False
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != NAME or name.startswith(f"{NAME}.backends."):
            continue
        if type(module) is types.ModuleType:
            module.__class__ = Watched


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


class CheckedModule(Watched):
    """A module that refuses switches other than those it was made with."""

    def __setattr__(self, name: str, value: object) -> None:
        assert_known(self.__name__, dir(self), name, value)
        super().__setattr__(name, value)


class NamedAsItsClass(Watched):
    """A module that has the name of its class in small letters, and is called in place of it."""

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        place = self.__name__.removeprefix(f"{NAME}.")
        parent, _, own = place.rpartition(".")
        meant = next(each for each in vars(self) if each.lower() == own.replace("_", ""))
        raise InvalidType(f"{place}: a module, not a class; did you mean {parent}.{meant}?")


def refuse_calls(package: str, classes: Iterable[str]) -> None:
    """Make modules of a package that are named as one of its classes say so where they are
    called.
    """
    names = {each.lower() for each in classes}
    for name, module in list(sys.modules.items()):
        parent, _, own = name.rpartition(".")
        if parent == package and own not in classes and own.replace("_", "") in names:
            module.__class__ = NamedAsItsClass


def guard(*modules: str) -> None:
    """Make the already imported modules of these names refuse unknown switches."""
    for module in modules:
        if type(sys.modules[module]) is types.ModuleType:
            sys.modules[module].__class__ = CheckedModule
