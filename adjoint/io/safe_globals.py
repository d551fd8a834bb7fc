"""The classes and functions of the user's that a PyTorch file may name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..core.argument_repr import argument_repr
from ..core.errors import InvalidArgument, InvalidType
from .class_paths import our_object

# Never found, even if allowed: what they hold runs programs.
_FORBIDDEN_MODULES = frozenset(("sys", "os", "posix", "nt", "subprocess", "importlib", "runpy"))
_FORBIDDEN_BUILTINS = frozenset(("eval", "exec", "compile", "__import__", "getattr", "open"))

_allowed: list[Any] = []  # objects, or pairs of an object and the name that files give it


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Allow `load` to find these classes and functions where a PyTorch file names them.

    Each is the object itself or a pair `(object, "module.name")`. One of adjoint's own is found
    under PyTorch's name too: `adjoint.nn.Linear` where a file says torch.nn.modules.linear.Linear.
    A file can then make objects of these classes and set their state: allow only what you know.

    Errors: InvalidType for a pair that is not (object, str).
    Source: https://docs.pytorch.org/docs/stable/notes/serialization.html#torch.serialization.add_safe_globals

    >>> ad.serialization.add_safe_globals([ad.nn.Linear])
    >>> ad.serialization.get_safe_globals()
    [<class 'adjoint.nn.modules.linear.Linear'>]
    >>> ad.serialization.clear_safe_globals()
    """
    for entry in safe_globals:
        name_of(entry)
        if not any(_same(entry, known) for known in _allowed):
            _allowed.append(entry)


def get_safe_globals() -> list[Any]:
    """List of the objects that `add_safe_globals` allowed.

    Source: https://docs.pytorch.org/docs/stable/notes/serialization.html#torch.serialization.get_safe_globals

    >>> ad.serialization.get_safe_globals()
    []
    """
    return list(_allowed)


def clear_safe_globals() -> None:
    """Allow nothing beyond what state dicts need.

    Source: https://docs.pytorch.org/docs/stable/notes/serialization.html#torch.serialization.clear_safe_globals

    >>> ad.serialization.clear_safe_globals()
    """
    _allowed.clear()


class safe_globals:  # noqa: N801 - PyTorch's name
    """A context in which these classes and functions are allowed; see `add_safe_globals`.

    Source: https://docs.pytorch.org/docs/stable/notes/serialization.html#torch.serialization.safe_globals

    >>> with ad.serialization.safe_globals([ad.nn.Linear]):
    ...     len(ad.serialization.get_safe_globals())
    1
    >>> ad.serialization.get_safe_globals()
    []
    """

    __repr__ = argument_repr

    def __init__(self, safe_globals: Sequence[Any]) -> None:
        self.safe_globals = list(safe_globals)

    def __enter__(self) -> None:
        self._before = list(_allowed)
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc: Any) -> None:
        _allowed[:] = self._before


def name_of(entry: Any) -> str:
    """The full name under which a file finds `entry`."""
    if isinstance(entry, tuple):
        if len(entry) != 2 or not isinstance(entry[1], str):
            raise InvalidType(f"add_safe_globals: expected (object, 'module.name'), got {entry!r}")
        return entry[1]
    module, name = getattr(entry, "__module__", None), getattr(entry, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise InvalidArgument(
            f"add_safe_globals: {entry!r} has no name of its own; give (object, 'module.name')"
        )
    return f"{module}.{name}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] is b[0] and a[1] == b[1]
    return a is b


def is_forbidden(module: str, name: str) -> bool:
    """Whether no user can allow this name."""
    top = module.partition(".")[0]
    return top in _FORBIDDEN_MODULES or (module == "builtins" and name in _FORBIDDEN_BUILTINS)


def find_allowed(module: str, name: str) -> Any:
    """The allowed object that a file calls `module.name`; None where there is none."""
    if is_forbidden(module, name):
        return None
    full = f"{module}.{name}"
    for entry in _allowed:
        if name_of(entry) == full:
            return entry[0] if isinstance(entry, tuple) else entry
    ours = our_object(module, name)
    if ours is not None and any(ours is entry for entry in _allowed):
        return ours
    return None
