"""Files that the user trusts: `load` runs what their pickles say, as Python's own pickle would."""

from __future__ import annotations

import os
import pickle
import sys
from contextvars import ContextVar
from typing import Any

from ..core.errors import CheckpointError, InvalidType
from ..core.mode import switched
from ..nn.modules.module import Module
from .class_paths import our_object
from .module_state import has_own_setstate, restore_module
from .pytorch_names import StorageType, build_any, find, is_known, modern
from .restricted_pickle import Unpickler

_trusted: ContextVar[tuple[str, ...]] = ContextVar("_trusted", default=())


def trust(path: Any) -> switched:
    """A context in which `load(path, weights_only=False)` reads any object, and so runs what the
    file says: only for files that you, or whom you trust, have written.

    Classes are imported where they are not; PyTorch's are adjoint's. Other files, and this one with
    `weights_only=True`, are read as always.

    Errors: InvalidType for anything but a path.

    >>> import argparse, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.pt")
    >>> ad.save({"day": __import__("datetime").date(2026, 11, 26)}, path)
    >>> with ad.serialization.trust(path):
    ...     ad.load(path, weights_only=False)
    {'day': datetime.date(2026, 11, 26)}
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"trust: expected a path, got {type(path).__name__}")
    return switched((*_trusted.get(), _real(path)), variable=_trusted)


def is_trusted(path: Any) -> bool:
    """Whether `load` is inside `trust(path)`."""
    return isinstance(path, (str, os.PathLike)) and _real(path) in _trusted.get()


def _real(path: Any) -> str:
    return os.path.realpath(os.fsdecode(os.fspath(path)))


class TrustedUnpickler(Unpickler):
    """The machine that calls whatever a pickle names, with the operations that objects need."""

    def _operations(self) -> dict[int, Any]:
        return {**super()._operations(), **_MORE}

    def _callable(self, target: Any) -> Any:
        return target

    def _spend(self, value: Any, level: int = 0) -> None:
        """Nothing to count: a trusted file may repeat values."""

    def _append(self, items: Any) -> None:
        target = self.stack[-1]
        target.extend(items) if hasattr(target, "extend") else [target.append(x) for x in items]

    def _set_items(self, items: list[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][key] = value

    def _new_with_names(self) -> None:
        named, arguments, kind = self._last(), self._last(), self._last()
        self.stack.append(kind.__new__(kind, *arguments, **named))


_MORE: dict[int, Any] = {
    pickle.POP[0]: lambda m: m.stack.pop() if m.stack else m._pop_mark(),
    pickle.POP_MARK[0]: lambda m: m._pop_mark(),
    pickle.DUP[0]: lambda m: m.stack.append(m.stack[-1]),
    pickle.LONG4[0]: lambda m: m.stack.append(
        int.from_bytes(m._take(m._number("<i", 4)), "little", signed=True)
    ),
    pickle.NEWOBJ_EX[0]: TrustedUnpickler._new_with_names,
}  # fmt: skip


def build_trusted(instance: Any, state: Any) -> bool:
    """Restore an object as Python's pickle does; modules with their hooks."""
    if isinstance(instance, Module) and not has_own_setstate(type(instance)):
        restore_module(instance, state, trusted=True)
        return True
    return build_any(instance, state)


def find_any(module: str, name: str) -> Any:
    """The object `module.name`, imported where it is not; our counterpart where it is PyTorch's.

    Errors: CheckpointError where there is none.
    """
    module, name = modern(module, name)
    if module == "torch" or module.startswith("torch."):
        found = our_object(module, name)
        if is_known(module, name):
            known = find(module, name)
            if isinstance(known, StorageType) or not isinstance(found, type):
                return known
        if found is None:
            raise CheckpointError(
                f"the file names {module}.{name}, for which adjoint has no counterpart"
            )
        return found
    try:
        __import__(module)
        found = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(f"the file names {module}.{name}: {error}") from error
    return found
