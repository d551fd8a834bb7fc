"""Calling a kernel with NumPy arrays.

What a call needs is worked out once for each combination of shapes, strides and dtypes; after that a
call is a look-up, the outputs' allocation, and one call of machine code.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError

from . import cache, ir, split, target
from .ir import ITEMSIZE, Kernel, verify
from .lower import cost, in_place, lower, word_names
from .schedule import Layout, Plan, plan

__all__ = ["Compiled", "Runner"]

Array = np.ndarray
# run(address of kernel(begin, end, words), address of words, number of chunks)
Runner = Callable[[int, int, int], None]

NUMPY = {name: np.dtype(name) for name in ir.STORAGE if name != "bfloat16"}
NUMPY["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
DATA_OFFSET = object.__basicsize__
PAYLOAD = bytes.__basicsize__ - 1  # of a bytes object: where its content starts
FEW = 16  # outputs below which a large reduction is split
SPLIT = 65536  # elements from which it is
REMEMBERED = 4096  # combinations of shapes and strides a kernel keeps
QUICK = 65536  # additions below which the GIL is kept


class _Quick(ctypes._CFuncPtr):  # type: ignore[misc,name-defined]
    """A C function that is called with the GIL held."""

    _flags_ = ctypes._FUNCFLAG_CDECL | ctypes._FUNCFLAG_PYTHONAPI  # type: ignore[attr-defined]
    _restype_ = None


class _Long(ctypes._CFuncPtr):  # type: ignore[misc,name-defined]
    """A C function that is called without the GIL."""

    _flags_ = ctypes._FUNCFLAG_CDECL  # type: ignore[attr-defined]
    _restype_ = None


def data_address(array: Array) -> int:
    """Where an array's data is; faster than its `ctypes` attribute."""
    return ctypes.c_size_t.from_address(id(array) + DATA_OFFSET).value


_codes: dict[tuple[str, Layout], tuple[int, int]] = {}
_compiling = threading.Lock()


def address_of(kernel: Kernel, layout: Layout) -> tuple[int, int]:
    """The addresses of a kernel's functions `kernel` and `launch`: from memory, disk or the compiler."""
    key = (kernel.key, layout)
    if key not in _codes:
        with _compiling:
            if key not in _codes:
                _codes[key] = _load(kernel, layout)
    return _codes[key]


def _load(kernel: Kernel, layout: Layout) -> tuple[int, int]:
    host = target.host()
    name = cache.digest(kernel.key, repr(layout), repr(host))
    symbol = "k" + name
    code = cache.read(name)
    if code is None:
        code = host.compile(lower(kernel, layout, host, symbol))
        cache.write(name, code)
    return target.load(code, symbol, f"{symbol}.launch")


class _Entry:
    """All that a call needs for one combination of shapes, strides and dtypes."""

    def __init__(self, kernel: Kernel, planned: Plan, work: float) -> None:
        names = word_names(kernel, planned.layout)
        self.address, launch = address_of(kernel, planned.layout)
        self.launch = (_Quick if work < QUICK else _Long)(launch)
        self.chunks = planned.chunks
        self.operands = len(kernel.inputs) + len(kernel.outputs)
        fixed = len(names) - self.operands - len(kernel.scalars)
        words = [planned.words[name] for name in names[:fixed]]
        self.head = struct.pack(f"{fixed}q", *words)
        codes = {"float32": "fi", "float64": "d"}
        tail = "".join(
            codes.get(v.dtype, "q" if v.dtype in ir.SIGNED else "Q") for v in kernel.scalars
        )
        self.pack = struct.Struct(f"={self.operands}Q{tail}".replace("fi", "f4x")).pack


class Compiled:
    """A kernel that can be called with arrays.

    >>> k = Kernel(rank=1)
    >>> x, y = k.input("float32"), k.input("float32")
    >>> _ = k.output(x * y + 1)
    >>> Compiled(k)(np.float32([1, 2, 3]), np.float32([4, 5, 6]))
    array([ 5., 11., 19.], dtype=float32)
    """

    def __init__(self, kernel: Kernel) -> None:
        verify(kernel)
        self.kernel = kernel
        self._entries: dict[tuple, Callable[..., Any]] = {}
        self._cost = cost(kernel)
        self._single = len(kernel.outputs) == 1
        self._plain = not kernel.scalars

    def __call__(
        self,
        *arrays: Array,
        out: Array | Sequence[Array] | None = None,
        scalars: Sequence[float] = (),
        shape: Sequence[int] | None = None,
        run: Runner | None = None,
    ) -> Any:
        """The kernel's outputs: an array, or a tuple where there are several.

        Inputs broadcast over axes where their size is 1. `out` takes the results (it may be an input:
        what would be overwritten too early is copied first); `scalars` are the values of `k.scalar`;
        `shape` is the whole index space, where the arrays do not determine it; `run` is called as
        run(address, words, chunks) and calls `address(begin, end, words)` for all chunks, from whatever
        threads it likes.

        Errors: DTypeError, ShapeError or InvalidArgument for arrays that do not fit the kernel.
        """
        if len(arrays) == 1:
            (x,) = arrays
            key: tuple = (x.shape, x.strides, x.dtype)
        elif len(arrays) == 2:
            x, y = arrays
            key = (x.shape, x.strides, x.dtype, y.shape, y.strides, y.dtype)
        else:
            key = tuple([(x.shape, x.strides, x.dtype) for x in arrays])
        if out is not None:
            outs = (out,) if isinstance(out, np.ndarray) else tuple(out)
            arrays, restore = self._disjoint(arrays, outs)
            if restore:  # an input was copied: its strides may differ
                key = tuple([(x.shape, x.strides, x.dtype) for x in arrays])
            key = (key, tuple([(x.shape, x.strides, x.dtype) for x in outs]))
        if shape is not None:
            key = (key, tuple(shape))
        call = self._entries.get(key)
        if call is None:
            call = self._prepare(arrays, None if out is None else outs, shape)
            if len(self._entries) >= REMEMBERED:
                self._entries.clear()
            self._entries[key] = call
        if out is None:
            return call(arrays, None, scalars, run)
        call(arrays, outs, scalars, run)
        return out

    # Preparation ---------------------------------------------------------------------------------

    def _prepare(
        self, arrays: Sequence[Array], outs: Sequence[Array] | None, shape: Sequence[int] | None
    ) -> Callable[..., Any]:
        kernel = self.kernel
        sizes = self._sizes(arrays, outs, shape)
        strides = [
            _strides(x, v.axes, kernel.rank) for x, v in zip(arrays, kernel.inputs, strict=True)
        ]
        shapes = [tuple(sizes[a] for a in o.axes) for o in kernel.outputs]
        if outs is None:
            orders = [_order(o.axes, sizes, strides) for o in kernel.outputs]
            makers = [
                _maker(s, NUMPY[o.dtype], order)
                for s, o, order in zip(shapes, kernel.outputs, orders, strict=True)
            ]
            made = [make() for make in makers]
        else:
            made, makers = list(outs), []
        strides += [
            _strides(x, o.axes, kernel.rank) for x, o in zip(made, kernel.outputs, strict=True)
        ]
        dtypes = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
        planned = plan(kernel, sizes, strides, dtypes, self._cost)
        work = self._cost * max(_product(sizes), 1)
        if planned.units < FEW and _product(sizes) > SPLIT and split.can_split(kernel):
            return _splitting(kernel, sizes, strides, dtypes, self._cost, makers)
        return _calling(_Entry(kernel, planned, work), makers)

    def _sizes(
        self, arrays: Sequence[Array], outs: Sequence[Array] | None, shape: Sequence[int] | None
    ) -> list[int]:
        """The size of each axis, by broadcasting; checks everything about the arrays."""
        kernel = self.kernel
        if len(arrays) != len(kernel.inputs):
            raise InvalidArgument(f"kernel: takes {len(kernel.inputs)} arrays, not {len(arrays)}")
        sizes = [1] * kernel.rank
        if shape is not None:
            if len(shape) != kernel.rank:
                raise ShapeError(f"kernel: shape {tuple(shape)} for rank {kernel.rank}")
            sizes = list(shape)
        for x, v in zip(arrays, kernel.inputs, strict=True):
            _check(f"input {v.attr[0]}", x, v.attr[1], v.axes)
            for axis, size in zip(v.axes, x.shape, strict=True):
                if size != 1 and sizes[axis] not in (1, size):
                    shapes = ", ".join(str(a.shape) for a in arrays)
                    raise ShapeError(f"kernel: shapes {shapes} do not broadcast")
                if size != 1:
                    sizes[axis] = size
        if outs is not None:
            if len(outs) != len(kernel.outputs):
                raise InvalidArgument(f"kernel: has {len(kernel.outputs)} outputs, not {len(outs)}")
            for k, (x, o) in enumerate(zip(outs, kernel.outputs, strict=True)):
                _check(f"output {k}", x, o.dtype, o.axes)
                if shape is None and not arrays:
                    for axis, size in zip(o.axes, x.shape, strict=True):
                        sizes[axis] = size
                if x.shape != tuple(sizes[a] for a in o.axes):
                    wanted = tuple(sizes[a] for a in o.axes)
                    raise ShapeError(f"kernel: output {k} has shape {x.shape}, not {wanted}")
                if not x.flags.writeable or any(
                    stride == 0 and size > 1
                    for stride, size in zip(x.strides, x.shape, strict=True)
                ):
                    raise InvalidArgument(f"kernel: output {k} cannot be written")
        return sizes

    def _disjoint(
        self, arrays: Sequence[Array], outs: Sequence[Array]
    ) -> tuple[tuple[Array, ...], bool]:
        """The inputs, copied where writing an output would change them before they are read."""
        safe = self._in_place
        result = []
        for x in arrays:
            for k, y in enumerate(outs):
                if not np.may_share_memory(x, y):
                    continue
                same = x.shape == y.shape and x.strides == y.strides
                if not (k in safe and same and data_address(x) == data_address(y)):
                    x = x.copy(order="K")
                    break
            result.append(x)
        copied = any(x is not y for x, y in zip(result, arrays, strict=True))
        return tuple(result), copied

    @functools.cached_property
    def _in_place(self) -> set[int]:
        return in_place(self.kernel)


def _check(what: str, x: Array, dtype: str, axes: tuple[int, ...]) -> None:
    if not isinstance(x, np.ndarray):
        raise DTypeError(f"kernel: {what} is no NumPy array but {type(x).__name__}")
    if x.dtype != NUMPY[dtype]:
        raise DTypeError(f"kernel: {what} is {x.dtype}, not {dtype}")
    if x.ndim != len(axes):
        raise ShapeError(f"kernel: {what} has shape {x.shape}; it needs {len(axes)} dimensions")


def _product(sizes: Sequence[int]) -> int:
    return functools.reduce(lambda x, y: x * y, sizes, 1)


def _strides(x: Array, axes: tuple[int, ...], rank: int) -> list[int]:
    """The stride along each axis of the space, 0 where the array has but one position."""
    strides = [0] * rank
    for axis, size, stride in zip(axes, x.shape, x.strides, strict=True):
        if size != 1:
            strides[axis] = stride
    return strides


def _order(
    axes: tuple[int, ...], sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[int]:
    """The dimensions of an output in the order in which they lie in memory, like the inputs'."""
    return sorted(range(len(axes)), key=lambda k: (-sum(abs(s[axes[k]]) for s in strides), k))


def _maker(shape: tuple[int, ...], dtype: np.dtype, order: list[int]) -> Callable[[], Array]:
    """A function that allocates an array with its dimensions in that order in memory."""
    if order == sorted(order):
        return functools.partial(np.empty, shape, dtype)
    lying = tuple(shape[k] for k in order)
    back = tuple(order.index(k) for k in range(len(order)))
    return lambda: np.empty(lying, dtype).transpose(back)


def _calling(entry: _Entry, makers: list[Callable[[], Array]]) -> Callable[..., Any]:
    """A function that runs one kernel."""
    head, pack, launch, chunks = entry.head, entry.pack, entry.launch, entry.chunks
    make = makers[0] if len(makers) == 1 else None

    def call(arrays: Sequence[Array], outs: Sequence[Array] | None, scalars: Any, run: Any) -> Any:
        if make is not None and outs is None:
            result = make()
            outs = (result,)
        else:
            if outs is None:
                outs = tuple([m() for m in makers])
            result = outs
        if run is None or chunks < 2:
            launch(head + pack(*map(id, arrays), *map(id, outs), *scalars))
        else:
            pointers = map(data_address, itertools.chain(arrays, outs))
            words = head + pack(*pointers, *scalars)
            run(entry.address, id(words) + PAYLOAD, chunks)
        return result

    return call


def _splitting(
    kernel: Kernel, sizes: Sequence[int], strides: list[list[int]], dtypes: list[str], work: float,
    makers: list[Callable[[], Array]],
) -> Callable[..., Any]:  # fmt: skip
    """A function that runs one kernel as two."""
    part = split.partial(kernel)
    kept = tuple(sizes[a] for a in range(kernel.rank) if a not in kernel.reduced)
    inputs = len(kernel.inputs)
    partial_dtypes = [o.dtype for o in part.outputs]
    along = [np.broadcast_to(np.empty((), NUMPY[d]), kept) for d in partial_dtypes]
    for k, x in enumerate(along):
        steps, step = [0] * kernel.rank, x.itemsize
        for axis in reversed(range(kernel.rank)):
            if axis not in kernel.reduced:
                steps[axis] = step if sizes[axis] != 1 else 0
                step *= sizes[axis]
        strides = [*strides[: inputs + k], steps]
    planned = plan(part, sizes, strides, dtypes[:inputs] + partial_dtypes, work, split=True)
    entry = _Entry(part, planned, work * _product(sizes))
    shape = (planned.parts, *kept)
    scratch = [functools.partial(np.empty, shape, NUMPY[d]) for d in partial_dtypes]
    first = _calling(entry, scratch)
    whole, positions, numbers = split.combining(kernel)
    second = Compiled(whole)
    extra = [_product([sizes[a] for a in kernel.values[n].attr]) for n in numbers]
    back = (*range(1, len(shape)), 0)

    def call(arrays: Sequence[Array], outs: Sequence[Array] | None, scalars: Any, run: Any) -> Any:
        results = first(arrays, None, scalars, run)
        results = results if isinstance(results, tuple) else (results,)
        inputs = [*(r.transpose(back) for r in results), *(arrays[k] for k in positions)]
        if outs is None:
            outs = tuple([make() for make in makers])
        second(*inputs, out=outs, scalars=(*scalars, *extra), run=run)
        return outs[0] if len(makers) == 1 else outs

    return call
