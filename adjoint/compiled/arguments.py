"""What a compiled function writes to its arguments, and what these may show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..core.errors import AutogradError, Unsupported
from ..core.mode import MODE
from ..eager.arrays import address
from ..eager.elements import owner
from ..graph.lazy import LazyValue
from ..graph.node import INFERENCE
from ..ops.create.memory import owner_of

SHARED = (
    "compile: memory that is written is shown by another tensor too (x.detach(), x.data, a view); "
    "use one of them in the function, or x.detach().clone()"
)


class Memory:
    """Whether arguments show memory that a program writes, or write memory that it knows."""

    def __init__(
        self,
        states: Iterable[Any],
        written: Iterable[Any],
        arguments: Sequence[int],
        ordered: Sequence[tuple[int, bool]] = (),
    ) -> None:
        """`states` and `written` are arrays, `arguments` the numbers of those that are written;
        `ordered` those of which the program goes by the order of memory, and whether by where a
        storage begins.
        """
        self.written = _by_owner(written)
        self.arguments = arguments
        self.ordered = ordered
        self.asked = bool(arguments or ordered)  # in each call
        self.known = _by_owner(states) if arguments else self.written

    def check(self, arguments: Sequence[Any]) -> None:
        """Refuse arguments that a program cannot write, or that share memory that is written.

        Errors: AutogradError, Unsupported.
        """
        for n, begins in self.ordered:
            assert_ordered(arguments[n]._data, begins)
        for n in self.arguments:
            _assert_writable(arguments[n])
        if not self.written and not self.arguments:
            return
        for n, x in enumerate(arguments):
            known = self.known if n in self.arguments else self.written
            for other in known.get(_owner(x._data), ()):
                if np.may_share_memory(x._data, other):
                    raise Unsupported(SHARED)
        for n in self.arguments:
            array = arguments[n]._data
            for k, x in enumerate(arguments):
                if k != n and np.may_share_memory(array, x._data):
                    raise Unsupported(SHARED)


def assert_ordered(array: Any, begins: bool) -> None:
    """Refuse memory that is not row-major, or, where a storage is to begin with it, does not.

    Errors: Unsupported.
    """
    if not array.flags.c_contiguous or (begins and _begin(array) != _begin(owner_of(array))):
        raise Unsupported(
            "compile: as_strided: of memory from outside that is not row-major, or, with a "
            "storage_offset, not from the beginning of its storage; give its contiguous() or clone"
        )


def place_of(array: Any) -> Any:
    """By which the memory of an array is known."""
    return _begin(array), array.shape, array.strides, array.dtype


def _begin(array: Any) -> int:
    """Where the elements of an array, perhaps of a device, begin."""
    return address(array) if type(array) is np.ndarray else int(array.ctypes.data)


def are_alike(a: Any, b: Any) -> bool:
    """Whether arrays show the same memory alike."""
    return type(a) is type(b) is not LazyValue and bool(place_of(a) == place_of(b))


def assert_apart(arrays: Iterable[Any], written: Iterable[Any]) -> None:
    """Refuse arrays that share memory, where one of them is `written`."""
    changed = set(map(id, written))
    spans = sorted(
        (_begin(array), _begin(array) + array.nbytes, id(array) in changed)
        for array in arrays
        if array.size
    )
    end, writes = 0, False
    for first, last, changes in spans:
        if first < end and (changes or writes):
            raise Unsupported(SHARED)
        writes = changes or (writes and first < end)
        end = max(end, last)


def _by_owner(arrays: Iterable[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for array in arrays:
        if array.size:
            found.setdefault(_owner(array), []).append(array)
    return found


def _owner(array: Any) -> int:
    """What arrays that show the same memory have in common."""
    if type(array) is not np.ndarray:
        return int(array.tensor.untyped_storage().data_ptr())
    return id(owner(array))


def _assert_writable(x: Any) -> None:
    data = x._data
    if not data.flags.writeable:
        raise AutogradError("compile: the memory of an argument is read-only; give a clone of it")
    if x._changes is INFERENCE and not MODE.get().inference:
        raise AutogradError(
            "compile: Inplace update to inference tensor outside InferenceMode is not allowed; "
            "give a clone of it"
        )
    if data.size > 1 and any(
        stride == 0 and size > 1 for size, stride in zip(data.shape, data.strides, strict=True)
    ):
        raise AutogradError(
            "compile: unsupported operation: more than one element of the written-to tensor refers "
            "to a single memory location (an argument was expanded); give a clone of it"
        )
