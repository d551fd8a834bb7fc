"""Ops in files: the name of a class and what it is made of; nothing of it is executed.

An op is written as a tuple ("op", name, fields), in which tuples are lists. It is read by looking
its name up among the ops that there are, and its fields have to be of the types that the class
states.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import CheckpointError, InvalidType
from ..core.faces import NAME
from ..core.op import REGISTRY, Op
from ..core.spec import prod
from ..ops.shape.movement import Refit
from ..runtime.node import Item
from ..runtime.writes import ViewWrite

_SIZES = tuple[int, ...]  # of an op: sizes, steps, dimensions counted from the front
_SIGNED = frozenset(("offset", "diagonal", "shift", "decimals", "ignore", "low", "high"))
_PLAIN = frozenset((type(None), bool, int, float, complex, str, dtype, device))
_HINTS: dict[Any, Any] = {  # of ops that are no dataclasses
    Item: {"index": int},
    ViewWrite: {"ops": tuple[Op, ...]},
    Refit: {"shape": tuple[int | tuple[int, int], ...], "rank": int | None},
}


class Ops:
    """Writes and reads the ops of the registry, and `further` ones that are not in it."""

    def __init__(self, *further: type[Op]) -> None:
        self.further = {op.__name__: op for op in further}

    def written(self, op: Any, label: str) -> tuple[Any, ...]:
        """The form in which a file stores `op`.

        Errors: InvalidType, which begins with `label`, for one that no file can hold.
        """
        kind: Any = type(op)
        own = kind in self.further.values()
        name = kind.__name__ if own else f"{kind.__module__}.{kind.__qualname__}"
        hints = _hints(kind)
        fields = [getattr(op, field) for field in hints]
        has_more = not hints and vars(op).keys() - {"kept"}
        if self._kind_of(name) is not kind or op.opaque or has_more or not _suit(fields, hints):
            raise InvalidType(
                f"{label} is computed by {kind.__qualname__}, which no file can hold; compute it "
                "by operations of adjoint's, or let go of it"
            )
        return ("op", name, [self.field(each, label) for each in fields])

    def field(self, value: Any, label: str) -> Any:
        """The form in which a file stores a field of an op, or a number among inputs."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, tuple):
            return [self.field(each, label) for each in value]
        if isinstance(value, Op):
            return self.written(value, label)
        raise InvalidType(
            f"{label} is computed with a {type(value).__name__}; only numbers, text, dtypes, "
            "devices and tuples of them can be stored"
        )

    def read(self, written: Any) -> Op:
        """The op that was written.

        Errors: CheckpointError, and those of the op's class.
        """
        tag, name, fields = written
        kind = self._kind_of(name)
        if tag != "op" or kind is None or kind.opaque:
            raise CheckpointError(f"there is no op {name!r:.80}; import the module that defines it")
        values = [self.read_field(each) for each in fields]
        values += _defaults(kind, len(values))
        if not _suit(values, _hints(kind)):
            raise CheckpointError(f"{name} is not made of {values!r:.80}")
        op: Op = kind(*values)
        return op

    def read_field(self, written: Any) -> Any:
        """The field of an op that was written."""
        if type(written) is list:
            return tuple([self.read_field(each) for each in written])
        if type(written) is tuple:
            return self.read(written)
        if type(written) not in _PLAIN or (type(written) is int and written.bit_length() > 64):
            raise CheckpointError(f"{written!r:.80} is no field of an op")
        return written

    def _kind_of(self, name: Any) -> Any:
        return self.further.get(name) or REGISTRY.get(name) or _moved(name)


def _defaults(kind: type[Op], count: int) -> list[Any]:
    """Defaults of the fields behind the first `count`: those that an op has been given since a file
    was written.
    """
    if not dataclasses.is_dataclass(kind):
        return []
    later = dataclasses.fields(kind)[count:]
    return [field.default for field in later if field.default is not dataclasses.MISSING]


def _moved(name: object) -> type[Op] | None:
    """The class of an op of this package that stood in another file when a file named it.

    There is none if several ops have the name behind the last dot.
    """
    module, _, last = str(name).rpartition(".")
    if not module.startswith(f"{NAME}."):
        return None
    ours = [
        kind
        for path, kind in REGISTRY.items()
        if path.startswith(f"{NAME}.") and path.rpartition(".")[2] == last
    ]
    return ours[0] if len(ours) == 1 else None


def size_of(written: Any) -> int:
    """Number of parts of a written op."""
    return sum(map(size_of, written)) + 1 if isinstance(written, (list, tuple)) else 1


@functools.lru_cache(maxsize=1024)
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields that an op is made with, in order."""
    if kind in _HINTS:
        found: dict[str, Any] = _HINTS[kind]
        return found
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is of the type that an annotation states; Any is any number."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is ...:
            parts = parts[:1] * len(value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    if parts:  # a union
        return any(fits(value, part) for part in parts)
    if hint is Op:
        return isinstance(value, Op)
    if hint in (float, Any):
        return type(value) in (int, float) or (hint is Any and type(value) in _PLAIN)
    return type(value) is (type(None) if hint is None else hint)


def checked(value: Any, hint: Any) -> Any:
    """The value, which is of the type that an annotation states.

    Errors: CheckpointError where it is not.
    """
    if not fits(value, hint):
        raise CheckpointError(f"{value!r:.80} stands where {hint} belongs")
    return value


def _suit(fields: Sequence[Any], hints: Mapping[str, Any]) -> bool:
    """Whether an op can be made of these fields, as far as their types say."""
    if len(fields) != len(hints) or not all(map(fits, fields, hints.values())):
        return False
    for (name, hint), field in zip(hints.items(), fields, strict=True):
        sizes = field if hint == _SIZES else (field,) * (hint is int and name not in _SIGNED)
        if any(not 0 <= n < 2**64 for n in sizes):
            return False
    return True


def checked_shape(shape: Any) -> tuple[int, ...]:
    """The shape, which an array could have.

    Errors: CheckpointError for what is none.
    """
    good = isinstance(shape, tuple) and len(shape) <= 64
    if (
        not good
        or not all(type(n) is int and n >= 0 for n in shape)
        or prod(n or 1 for n in shape) >= 2**59
    ):
        raise CheckpointError(f"{shape!r:.80} is no shape")
    found: tuple[int, ...] = shape
    return found
