"""Calling a kernel with NumPy arrays.

What a call needs is worked out once for each combination of shapes, strides and dtypes; after that
a call is a look-up, the outputs' allocation, and one call of machine code.
"""

from __future__ import annotations

import functools
import math
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from adjoint.core import debug, policy
from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError
from adjoint.eager.arrays import addresses, call

from . import cache, ir, linear, split, target
from .analysis import cost, in_place
from .ir import ITEMSIZE, Kernel, Output, verify
from .lower import lower, word_names
from .schedule import SHARE, Layout, Plan, in_blocks, plan

Array: TypeAlias = np.ndarray
Maker: TypeAlias = Callable[[], Array]
# run(address of kernel(begin, end, words), words, number of chunks)
Runner: TypeAlias = Callable[[int, bytes, int], None]

NUMPY = {name: np.dtype(name) for name in ir.STORAGE if name != "bfloat16"}
NUMPY["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
FEW = 16  # units of work below which a large reduction is split
SPLIT = 65536  # elements from which it is
REMEMBERED = 4096  # combinations of shapes and strides a kernel keeps
QUICK = 65536  # additions below which the GIL is kept


_codes: dict[tuple[str, Layout], target.Code] = {}  # those made last; others while they are in use
_compiling = threading.Lock()


def _after_fork() -> None:
    """Another thread may have been compiling when the process was forked."""
    global _compiling
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def code_of(kernel: Kernel, layout: Layout) -> target.Code:
    """The code of a kernel in a layout: from memory, disk or the compiler."""
    key = (kernel.key, layout)
    code = _codes.get(key)
    if code is None:
        with _compiling:
            code = _codes.get(key)
            if code is None:
                if len(_codes) >= policy.KERNELS:
                    for old in list(_codes)[: len(_codes) // 2]:
                        del _codes[old]
                code = _codes[key] = _load(kernel, layout)
    return code


def _load(kernel: Kernel, layout: Layout) -> target.Code:
    host = target.host()
    name = cache.digest(kernel.key, repr(layout), repr(host))
    symbol = "k" + name
    if "kernels" in debug.on:
        debug.say("kernels", f"{symbol[:13]}: {layout}\n{kernel}")
    return target.freed(name, lambda: lower(kernel, layout, host, symbol), symbol)


class Entry:
    """All that a call needs for one combination of shapes, strides and dtypes."""

    def __init__(
        self,
        kernel: Kernel,
        planned: Plan,
        work: float,
        same: Sequence[int],
        makers: Sequence[Maker],
    ) -> None:
        self.code = code_of(kernel, planned.layout)
        self.work = work  # in additions
        self.quick = work < QUICK
        self.chunks, self.makers = planned.chunks, makers
        self._kernel, self._layout = kernel, planned.layout  # until `forget`
        self._units = planned.units
        # How many rows there are for `in_blocks`; 0: any number that divides them.
        self.rows = planned.words["o0"] if planned.layout.outer else 0
        self.row_major = all(isinstance(make, functools.partial) for make in makers)
        self.head = self._head(planned.words)
        codes = {"float32": "f4x", "float64": "d"}
        tail = [codes.get(v.dtype, "q" if v.dtype in ir.SIGNED else "Q") for v in kernel.scalars]
        self.pack = struct.Struct("=" + "".join(tail)).pack
        self.spans = planned.spans  # what is touched of each operand: see Plan
        self._inputs, self._same = len(kernel.inputs), same

    def _fixed(self) -> list[str]:
        """The words before pointers."""
        names = word_names(self._kernel, self._layout)
        return names[: names.index("p0")] if "p0" in names else names

    def _head(self, words: Mapping[str, int]) -> bytes:
        fixed = self._fixed()
        return struct.pack(f"{len(fixed)}q", *(words[name] for name in fixed))

    def in_blocks(self, rows: int, size: int) -> tuple[bytes, list[list[tuple[int, int]]]] | None:
        """The head for chunks that are `size` of so many rows, and of each chunk where what it
        touches of each operand begins and ends (see `schedule.in_blocks`).
        """
        fixed = self._fixed()
        words = dict(zip(fixed, struct.unpack(f"{len(fixed)}q", self.head), strict=True))
        found = in_blocks(self._kernel, self._layout, words, self._units, rows, size)
        return None if found is None else (self._head(found[0]), found[1])

    def forget(self) -> None:
        """What only `in_blocks` asks for, where many are kept."""
        del self._kernel, self._layout

    @property
    def address(self) -> int:
        """Of the code."""
        return self.code.address

    def allocate(self) -> tuple[Array, ...]:
        """The outputs, not yet computed."""
        return tuple([make() for make in self.makers])

    def call(
        self,
        arrays: Sequence[Array],
        outs: Sequence[Array],
        scalars: Sequence[float],
        run: Runner | None,
    ) -> bool:
        """Runs the kernel, unless writing would overwrite what is still to be read: then True."""
        places = addresses((*arrays, *outs))
        if self.overlaps(places):
            return True
        self.launch(places, scalars, run)
        return False

    def launch(self, places: bytes, scalars: Sequence[float], run: Runner | None) -> None:
        """Runs it on what begins at these addresses."""
        words = self.head + places + self.pack(*scalars)
        if run is None or self.chunks < 2:
            call(self.address, self.chunks, words, None, self.quick)
        else:
            run(self.address, words, self.chunks)

    def written_spans(self) -> list[tuple[int, int, bool]]:
        """Of each input, then of the only output: where it begins and ends, in bytes from its first
        element, and whether it may be the very memory that is written.
        """
        [same] = self._same
        return [(*span, bool(same >> k & 1)) for k, span in enumerate(self.spans)]

    def overlaps(self, places: bytes) -> bool:
        """Whether an output overlaps an input, unless both are the very same memory and each
        element is read before it is written.
        """
        starts = memoryview(places).cast("q")
        given = self._inputs
        for k, same in enumerate(self._same, given):
            start = starts[k]
            low, high = self.spans[k]
            for j in range(given):
                other = starts[j]
                begin, end = self.spans[j]
                meets = other + begin < start + high and start + low < other + end
                if meets and not (other == start and same >> j & 1):
                    return True
        return False


class Pair:
    """A reduction that runs as two kernels: the parts, then their combination."""

    def __init__(
        self, kernel: Kernel, sizes: Sequence[int], strides: list[list[int]], dtypes: list[str],
        cost: float, makers: Sequence[Maker],
    ) -> None:  # fmt: skip
        part = split.partial(kernel)
        inputs = len(kernel.inputs)
        kept = [a for a in range(kernel.rank) if a not in kernel.reduced]
        strides, dtypes = strides[:inputs], dtypes[:inputs]
        for output in part.outputs:
            steps, step = [0] * kernel.rank, ITEMSIZE[output.dtype]
            for axis in reversed(kept):
                steps[axis] = step if sizes[axis] != 1 else 0
                step *= sizes[axis]
            strides.append(steps)
            dtypes.append(output.dtype)
        planned = plan(part, sizes, strides, dtypes, cost, split=True)
        shape = (planned.parts, *(sizes[a] for a in kept))
        scratch = [functools.partial(np.empty, shape, NUMPY[o.dtype]) for o in part.outputs]
        work = cost * math.prod(sizes)
        self.first = Entry(part, planned, work, [0] * len(scratch), scratch)
        whole, self.positions, numbers = split.combining(kernel)
        self.second = Compiled(whole)
        self.sizes = [math.prod(sizes[a] for a in kernel.values[n].attr) for n in numbers]
        self.order = (*range(1, len(shape)), 0)  # the parts last
        self.makers, self.chunks = makers, planned.chunks

    def forget(self) -> None:
        """As for an Entry."""
        self.first.forget()

    def allocate(self) -> tuple[Array, ...]:
        """The outputs, not yet computed."""
        return tuple([make() for make in self.makers])

    def call(
        self,
        arrays: Sequence[Array],
        outs: Sequence[Array],
        scalars: Sequence[float],
        run: Runner | None,
    ) -> bool:
        """Runs the kernels; the inputs are read before the outputs are written: always False."""
        parts = self.first.allocate()
        self.first.launch(addresses((*arrays, *parts)), scalars, run)
        inputs = self.combined(parts, arrays)
        self.second(*inputs, out=outs, scalars=(*scalars, *self.sizes), run=run)
        return False

    def combined(self, parts: Sequence[Array], arrays: Sequence[Array]) -> list[Array]:
        """What the second kernel reads: the parts, and some of the arrays."""
        return [*(x.transpose(self.order) for x in parts), *(arrays[k] for k in self.positions)]


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
        kernel.close()
        self.kernel = kernel = linear.flattened(kernel)
        kernel.close()
        self._entries: dict[tuple, Entry | Pair] = {}
        self.cost = cost(kernel)  # of one element, in additions
        self.in_place = in_place(kernel)  # outputs that may be an input's memory
        self._single = len(kernel.outputs) == 1

    def __call__(
        self,
        *arrays: Array,
        out: Array | Sequence[Array] | None = None,
        scalars: Sequence[float] = (),
        shape: Sequence[int] | None = None,
        run: Runner | None = None,
    ) -> Any:
        """The kernel's outputs: an array, or a tuple where there are several.

        Inputs broadcast over axes where their size is 1. `out` takes the results (it may overlap an
        input: what would be overwritten too early is copied first); `scalars` are the values of
        `k.scalar`; `shape` is the whole index space, where the arrays do not determine it; `run` is
        called as run(address, words, chunks) and calls `address(begin, end, words)` so that each of
        the chunks is run once, from whatever threads it likes, and returns when all are done.

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
            outs = (out,) if self._single and isinstance(out, np.ndarray) else tuple(out)
            key = (key, tuple([(x.shape, x.strides, x.dtype) for x in outs]))
        if shape is not None:
            key = (key, tuple(shape))
        entry = self._entries.get(key)
        if entry is None:
            if len(scalars) != len(self.kernel.scalars):
                wanted = len(self.kernel.scalars)
                raise InvalidArgument(f"kernel: takes {wanted} scalars, not {len(scalars)}")
            entry = self._prepare(arrays, None if out is None else outs, shape)
            entry.forget()
            if len(self._entries) >= REMEMBERED:
                self._entries.clear()
            self._entries[key] = entry
        if out is None:
            outs = entry.allocate()
            if isinstance(entry, Entry):  # the shortest way, which cannot find an overlap
                entry.launch(addresses((*arrays, *outs)), scalars, run)
                return outs[0] if self._single else outs
        if entry.call(arrays, outs, scalars, run):
            apart = [
                x.copy() if any(np.may_share_memory(x, y) for y in outs) else x for x in arrays
            ]
            self(*apart, out=outs, scalars=scalars, shape=shape, run=run)
        return out if out is not None else outs[0] if self._single else outs

    def entry(
        self,
        arrays: Sequence[Array],
        shape: Sequence[int] | None = None,
        outs: Sequence[Array] | None = None,
    ) -> Entry | Pair:
        """What calls with arrays like these need, for outputs like `outs` if those are given."""
        return self._prepare(arrays, outs, shape)

    def dtype(self, output: int) -> np.dtype[Any]:
        """Of an output's array."""
        return NUMPY[self.kernel.outputs[output].dtype]

    # Preparation ---------------------------------------------------------------------------------

    def _prepare(
        self, arrays: Sequence[Array], outs: Sequence[Array] | None, shape: Sequence[int] | None
    ) -> Entry | Pair:
        kernel = self.kernel
        sizes = self._sizes(arrays, outs, shape)
        strides = [
            _strides(x, v.axes, kernel.rank) for x, v in zip(arrays, kernel.inputs, strict=True)
        ]
        makers: list[Maker] = []
        if outs is None:
            makers = [_maker(o, sizes, strides) for o in kernel.outputs]
            outs = [make() for make in makers]
        strides += [
            _strides(x, o.axes, kernel.rank) for x, o in zip(outs, kernel.outputs, strict=True)
        ]
        dtypes = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
        if any(v.op == "random" for v in kernel.values):
            _assert_row_major(kernel, outs)
        planned = plan(kernel, sizes, strides, dtypes, self.cost)
        total = math.prod(sizes)
        depth = math.prod(sizes[a] for a in kernel.reduced)
        large = total > SPLIT and depth >= 2 * SHARE
        if planned.units < FEW and large and split.can_split(kernel):
            return Pair(kernel, sizes, strides, dtypes, self.cost, makers)
        inputs = len(kernel.inputs)
        same = []
        for k in range(len(kernel.outputs)):
            like = (strides[inputs + k], ITEMSIZE[dtypes[inputs + k]])
            bits = [(strides[j], ITEMSIZE[dtypes[j]]) == like for j in range(min(inputs, 63))]
            same.append(sum(bit << j for j, bit in enumerate(bits)) if k in self.in_place else 0)
        return Entry(kernel, planned, self.cost * total, same, makers)

    def _sizes(
        self, arrays: Sequence[Array], outs: Sequence[Array] | None, shape: Sequence[int] | None
    ) -> list[int]:
        """The size of each axis, by broadcasting; checks everything about the arrays."""
        kernel = self.kernel
        if len(arrays) != len(kernel.inputs):
            raise InvalidArgument(f"kernel: takes {len(kernel.inputs)} arrays, not {len(arrays)}")
        if outs is not None and len(outs) != len(kernel.outputs):
            raise InvalidArgument(f"kernel: has {len(kernel.outputs)} outputs, not {len(outs)}")
        if shape is not None and (len(shape) != kernel.rank or any(n < 0 for n in shape)):
            raise ShapeError(f"kernel: shape {tuple(shape)} for rank {kernel.rank}")
        sizes = [1] * kernel.rank if shape is None else list(shape)
        known = list(zip(arrays, kernel.inputs, strict=True))
        for x, v in known:
            _check(f"input {v.attr[0]}", x, v.attr[1], v.axes)
            for axis, size in zip(v.axes, x.shape, strict=True):
                if size != 1 and sizes[axis] != size and (shape is not None or sizes[axis] != 1):
                    shapes = ", ".join(str(a.shape) for a in arrays)
                    space = "" if shape is None else f" to {tuple(shape)}"
                    raise ShapeError(f"kernel: shapes {shapes} do not broadcast{space}")
                if size != 1:
                    sizes[axis] = size
        if outs is None:
            return sizes
        given = shape is not None or bool(arrays)
        for k, (x, o) in enumerate(zip(outs, kernel.outputs, strict=True)):
            _check(f"output {k}", x, o.dtype, o.axes)
            if not given:
                for axis, size in zip(o.axes, x.shape, strict=True):
                    sizes[axis] = size
            wanted = tuple(sizes[a] for a in o.axes)
            if x.shape != wanted:
                raise ShapeError(f"kernel: output {k} has shape {x.shape}, not {wanted}")
            steps = zip(x.strides, x.shape, strict=True)
            shared = x.size and any(step == 0 and size > 1 for step, size in steps)
            if shared or not x.flags.writeable:
                raise InvalidArgument(f"kernel: output {k} cannot be written")
        return sizes


def _check(what: str, x: Array, dtype: str, axes: tuple[int, ...]) -> None:
    if not isinstance(x, np.ndarray):
        raise DTypeError(f"kernel: {what} is no NumPy array but {type(x).__name__}")
    if x.dtype != NUMPY[dtype]:
        raise DTypeError(f"kernel: {what} is {x.dtype}, not {dtype}")
    if x.ndim != len(axes):
        raise ShapeError(f"kernel: {what} has shape {x.shape}; it needs {len(axes)} dimensions")


def _assert_row_major(kernel: Kernel, outs: Sequence[Array]) -> None:
    """Raise unless the first output over the whole space is: its memory counts random numbers."""
    whole = [x for x, o in zip(outs, kernel.outputs, strict=True) if len(o.axes) == kernel.rank]
    if not whole or not whole[0].flags.c_contiguous:
        raise InvalidArgument("kernel: random numbers need a row-major output over the whole space")


def _strides(x: Array, axes: tuple[int, ...], rank: int) -> list[int]:
    """The stride along each axis of the space, 0 where the array has but one position."""
    strides = [0] * rank
    for axis, size, stride in zip(axes, x.shape, x.strides, strict=True):
        if size != 1:  # nothing may be read ahead of a loop over no elements: no stride 0 there
            strides[axis] = stride if size else x.itemsize
    return strides


def _maker(output: Output, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Maker:
    """A function that allocates an output, in whose memory the axes lie as NumPy would order them:
    as in the inputs that step along both of two, and else row-major.
    """
    axes, dtype = output.axes, NUMPY[output.dtype]
    order: list[int] = []  # from the inside
    for k in reversed(range(len(axes))):
        place = len(order)
        for j in reversed(range(place)):
            steps = [(abs(s[axes[k]]), abs(s[axes[order[j]]])) for s in strides]
            known = [inner <= own for own, inner in steps if own and inner]
            if any(known):
                break
            if known:
                place = j
        order.insert(place, k)
    order.reverse()
    several = [k for k in order if sizes[axes[k]] != 1]  # an axis of one position may be anywhere
    if several == sorted(several):
        return functools.partial(np.empty, tuple(sizes[a] for a in axes), dtype)
    shape = tuple(sizes[axes[k]] for k in order)
    back = tuple(order.index(k) for k in range(len(order)))
    return lambda: np.empty(shape, dtype).transpose(back)
