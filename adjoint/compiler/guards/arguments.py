"""Checks of a compiled call's arguments: which of them may be written, and which may share
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import address
from ...core.elements import owner
from ...core.errors import AutogradError, Unsupported
from ...core.mode import MODE
from ...core.tensor_base import TensorBase
from ...ops.create.memory import owner_of
from ...runtime.lazy import LazyValue
from ...runtime.node import INFERENCE

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray

SHARED = (
    "compile: memory that is written is shown by another tensor too (x.detach(), x.data, a view); "
    "use one of them in the function, or x.detach().clone()"
)


class AliasingGuard:
    """Aliasing guard: refuses arguments that share memory with a tensor that the program writes."""

    def __init__(
        self,
        states: Iterable[Any],
        written: Iterable[Any],
        arguments: Sequence[int],
        ordered: Sequence[tuple[int, bool]] = (),
    ) -> None:
        """Arrays of the program's `states` and of what it has `written`, and the numbers of the
        `arguments` that it writes. `ordered` lists arguments on whose memory order the program
        depends, each with whether it must also begin its storage.
        """
        self.written = _by_owner(written)
        self.arguments = arguments
        self.ordered = ordered
        self.asked = bool(arguments or ordered)  # in each call
        self.known = _by_owner(states) if arguments else self.written

    def check(self, arguments: Sequence[Any]) -> None:
        """Raise for arguments that the program cannot write, or that share memory that is
        written.

        Errors: AutogradError, Unsupported.
        """
        for n, begins in self.ordered:
            assert_ordered(arguments[n]._data, begins)
        for n in self.arguments:
            _assert_writable(arguments[n])
        if not self.written and not self.arguments:
            return
        for n, x in enumerate(arguments):
            candidates = self.known if n in self.arguments else self.written
            for other in candidates.get(_owner(x._data), ()):
                if np.may_share_memory(x._data, other):
                    raise Unsupported(SHARED)
        for n in self.arguments:
            array = arguments[n]._data
            for k, x in enumerate(arguments):
                if k != n and np.may_share_memory(array, x._data):
                    raise Unsupported(SHARED)


def assert_ordered(array: BackendArray, begins: bool) -> None:
    """Refuse memory that is not row-major, or that does not begin its storage where `begins` says
    it must.

    Errors: Unsupported.
    """
    if not array.flags.c_contiguous or (begins and _begin(array) != _begin(owner_of(array))):
        raise Unsupported(
            "compile: as_strided: of memory from outside that is not row-major, or, with a "
            "storage_offset, not from the beginning of its storage; give its contiguous() or clone"
        )


def place_of(array: BackendArray) -> tuple[Any, ...]:
    """Key of an array's memory: equal for two arrays only if they show the same elements alike."""
    return _begin(array), array.shape, array.strides, array.dtype


def _begin(array: Any) -> int:
    """Address of the first element of an array of the host or of a device."""
    return address(array) if type(array) is np.ndarray else int(array.ctypes.data)


def are_alike(a: BackendArray, b: BackendArray) -> bool:
    """Whether two arrays show the same memory with the same shape, strides and dtype."""
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
    arrays_of: dict[int, list[Any]] = {}
    for array in arrays:
        if array.size:
            arrays_of.setdefault(_owner(array), []).append(array)
    return arrays_of


def _owner(array: Any) -> int:
    """Key of the storage of an array: equal for all arrays that are views of the same memory."""
    if type(array) is not np.ndarray:
        return int(array.tensor.untyped_storage().data_ptr())
    return id(owner(array))


def _assert_writable(x: TensorBase) -> None:
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
