"""Calling a kernel with NumPy arrays.

What a call needs is worked out once for each combination of shapes, strides and dtypes; after that
a call is a look-up, the outputs' allocation, and one call of machine code.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from adjoint.core import debug, fork_safety, policy
from adjoint.core.arrays import addresses, call
from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError
from adjoint.core.sized_tables import SizedTable

from . import cache, ir, linear, target
from .analysis import cost, in_place
from .ir import ITEMSIZE, Kernel, Output, verify
from .lower import lower
from .plans import (
    BoundPlan,
    Halves,
    PlanFamily,
    RowMajorPlan,
    fixed_words,
    halves_of,
    operand_dtypes,
)  # fmt: skip
from .schedule import LoopLayout, in_blocks, spans

Array: TypeAlias = np.ndarray
Maker: TypeAlias = Callable[[], Array]
# run(address of kernel(begin, end, words), words, number of chunks)
Runner: TypeAlias = Callable[[int, bytes, int], None]

NUMPY = {name: np.dtype(name) for name in ir.STORAGE if name != "bfloat16"}
NUMPY["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
QUICK = 65536  # additions below which the GIL is kept


_codes: dict[
    tuple[str, LoopLayout], target.LoadedCode
] = {}  # those made last; others while they are in use
_compiling = fork_safety.lock()


def code_of(kernel: Kernel, layout: LoopLayout) -> target.LoadedCode:
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


def _load(kernel: Kernel, layout: LoopLayout) -> target.LoadedCode:
    host = target.host()
    name = cache.digest(kernel.key, repr(layout), repr(host))
    symbol = "k" + name
    if "kernels" in debug.on:
        debug.say("kernels", f"{symbol[:13]}: {layout}\n{kernel}")
    return target.freed(name, lambda: lower(kernel, layout, host, symbol), symbol)


class KernelEntry:
    """All that a call needs for one combination of shapes, strides and dtypes."""

    def __init__(
        self,
        kernel: Kernel,
        planned: BoundPlan,
        work: float,
        same: Sequence[int],
        spans: list[tuple[int, int]],
        makers: Sequence[Maker],
    ) -> None:
        self.code = code_of(kernel, planned.layout)
        self.work = work  # in additions
        self.quick = work < QUICK
        self.chunks, self.makers = planned.chunks, makers
        self._kernel, self._layout = kernel, planned.layout  # until `forget`
        self._units = planned.units
        self.rows = planned.rows
        self.row_major = all(isinstance(make, functools.partial) for make in makers)
        self.head = planned.head
        self.pack = packer(kernel)
        # Where each operand begins and ends, in bytes from its pointer; of a call without outputs
        # of its own, which overlaps nothing, none.
        self.spans = spans
        self._inputs, self._same = len(kernel.inputs), same

    def in_blocks(self, rows: int, size: int) -> tuple[bytes, list[list[tuple[int, int]]]] | None:
        """The head for chunks that are `size` of so many rows, and of each chunk where what it
        touches of each operand begins and ends (see `schedule.in_blocks`).
        """
        fixed = fixed_words(self._kernel, self._layout)
        words = dict(zip(fixed, struct.unpack(f"{len(fixed)}q", self.head), strict=True))
        blocks = in_blocks(self._kernel, self._layout, words, self._units, rows, size)
        if blocks is None:
            return None
        return struct.pack(f"{len(fixed)}q", *(blocks[0][name] for name in fixed)), blocks[1]

    def forget(self) -> None:
        """Drops the kernel and its layout, which only `in_blocks` needs, where many entries are
        kept.
        """
        del self._kernel, self._layout

    @property
    def address(self) -> int:
        """The address of the machine code."""
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
        """Where each input, then the only output, begins and ends, in bytes from its first element,
        and whether it may be the very memory that is written.
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


def packer(kernel: Kernel) -> Callable[..., bytes]:
    """The function that makes words of the values of a kernel's scalars."""
    return _packer(*[v.dtype for v in kernel.scalars])


@functools.lru_cache
def _packer(*dtypes: str) -> Callable[..., bytes]:
    codes = {"float32": "f4x", "float64": "d"}
    tail = [codes.get(dtype, "q" if dtype in ir.SIGNED else "Q") for dtype in dtypes]
    return struct.Struct("=" + "".join(tail)).pack


class Pair:
    """A reduction that runs as two kernels: the parts, then their combination."""

    def __init__(
        self, halves: Halves, planned: BoundPlan, sizes: Sequence[int],
        strides: Sequence[Sequence[int]], work: float, makers: Sequence[Maker],
    ) -> None:  # fmt: skip
        part = halves.part
        shape = (planned.parts, *(sizes[a] for a in halves.kept))
        scratch = [functools.partial(np.empty, shape, NUMPY[o.dtype]) for o in part.outputs]
        inputs, dtypes = len(part.inputs), operand_dtypes(part)
        touched = spans(sizes, strides[:inputs], dtypes[:inputs])
        touched += [(0, math.prod(shape) * ITEMSIZE[o.dtype]) for o in part.outputs]
        self.first = KernelEntry(part, planned, work, [0] * len(scratch), touched, scratch)
        self.second, self.positions = halves.whole, halves.positions
        self.sizes = [math.prod(sizes[a] for a in axes) for axes in halves.counted]
        self.order = (*range(1, len(shape)), 0)  # the parts last
        self.makers, self.chunks = makers, planned.chunks

    def forget(self) -> None:
        """Drops what only `in_blocks` needs, as in `KernelEntry`."""
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
        """The inputs of the second kernel: the parts, and some of the arrays."""
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
        # By shapes and strides.
        self._entries: SizedTable[KernelEntry | Pair] = SizedTable("calls of kernels")
        self._plans = {False: PlanFamily(), True: PlanFamily()}  # True: with outputs that are given
        self._last: tuple[Any, KernelEntry | Pair] | None = None  # what `entry` gave, and for what
        self._flat: list[RowMajorPlan] = []  # the latest first
        self._flat_asked = 0
        self.cost = cost(kernel)  # of one element, in additions
        self.in_place = in_place(kernel)  # outputs that may be an input's memory
        self._single = len(kernel.outputs) == 1
        self._draws = any(v.op == "random" for v in kernel.values)

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
        entry = self._entries.find(key)
        if entry is None:
            if len(scalars) != len(self.kernel.scalars):
                wanted = len(self.kernel.scalars)
                raise InvalidArgument(f"kernel: takes {wanted} scalars, not {len(scalars)}")
            entry = self._prepare(arrays, None if out is None else outs, shape)
            entry.forget()
            self._entries.put(key, entry)
        if out is None:
            outs = entry.allocate()
            if isinstance(entry, KernelEntry):  # the shortest way, which cannot find an overlap
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
    ) -> KernelEntry | Pair:
        """The prepared call for arrays like these, with outputs like `outs` if those are given. The
        last one is kept: who asks whether a kernel may overwrite an input then binds it.
        """
        given: list[Any] = [(x.shape, x.strides, x.dtype) for x in arrays]
        made = [(y.shape, y.strides, y.dtype, y.flags.writeable) for y in outs or ()]
        key = given, shape if shape is None else tuple(shape), outs is None, made
        last = self._last  # other threads may set it meanwhile
        if last is not None and last[0] == key:
            return last[1]
        entry = self._prepare(arrays, outs, shape)
        self._last = key, entry
        return entry

    def bound(self, arrays: Sequence[Array], space: Sequence[int]) -> BoundPlan | None:
        """The plan for arrays that are known to fit a space of these sizes; None where outputs are
        not simply row-major, or there are two kernels: then `entry` is to be asked.
        """
        rank = self.kernel.rank
        steps = [_strides(x, v.axes, rank) for x, v in zip(arrays, self.kernel.inputs, strict=True)]
        planned = self._plans[False].plan(self, space, steps)
        return planned if planned.in_order and not self._draws else None

    def row_major(
        self, shapes: Sequence[Sequence[int]], space: Sequence[int]
    ) -> tuple[RowMajorPlan, tuple[int, ...]] | None:
        """The plan for row-major inputs of these shapes, which are known to fit the space, and what
        its function gives; None where `entry` or `bound` is to be asked.
        """
        sizes = [n for shape in (*shapes, space) for n in shape]
        for each in self._flat:
            found = each.run(*sizes)
            if found is not None:
                return None if each.layout is None else (each, found)
        self._flat_asked += 1
        if self._flat_asked <= policy.PLANS_ALONE or self._draws or 0 in sizes:
            return None
        made = RowMajorPlan(self, shapes, space)
        if len(self._flat) >= policy.SIZE_VARIANTS:
            self._flat.pop()
        self._flat.insert(0, made)
        found = made.run(*sizes)
        return None if found is None or made.layout is None else (made, found)

    @functools.cached_property
    def halves(self) -> Halves:
        """The two kernels that compute it where there are few results of much."""
        return halves_of(self.kernel, Compiled)

    def dtype(self, output: int) -> np.dtype[Any]:
        """The dtype of an output's array."""
        return NUMPY[self.kernel.outputs[output].dtype]

    # Preparation ---------------------------------------------------------------------------------

    def _prepare(
        self, arrays: Sequence[Array], outs: Sequence[Array] | None, shape: Sequence[int] | None
    ) -> KernelEntry | Pair:
        kernel = self.kernel
        sizes = self._sizes(arrays, outs, shape)
        operands = [(x, v.axes) for x, v in zip(arrays, kernel.inputs, strict=True)]
        if outs is not None:
            operands += [(x, o.axes) for x, o in zip(outs, kernel.outputs, strict=True)]
        strides = [_strides(x, axes, kernel.rank) for x, axes in operands]
        planned = self._plans[outs is not None].plan(self, sizes, strides)
        makers = [
            _maker(o, sizes, order)
            for o, order in zip(kernel.outputs, planned.orders, strict=False)
        ]
        work = self.cost * math.prod(sizes)
        if self._draws:
            _assert_row_major(kernel, [make() for make in makers] if outs is None else outs)
        if planned.halves is not None:
            return Pair(planned.halves, planned, sizes, strides, work, makers)
        if outs is None:
            return KernelEntry(kernel, planned, work, [], [], makers)
        inputs = len(kernel.inputs)
        dtypes = operand_dtypes(kernel)
        same = []
        for k in range(len(kernel.outputs)):
            like = (strides[inputs + k], ITEMSIZE[dtypes[inputs + k]])
            bits = [(strides[j], ITEMSIZE[dtypes[j]]) == like for j in range(min(inputs, 63))]
            same.append(sum(bit << j for j, bit in enumerate(bits)) if k in self.in_place else 0)
        return KernelEntry(kernel, planned, work, same, spans(sizes, strides, dtypes), makers)

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
            _check("input", v.attr[0], x, v.attr[1], v.axes)
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
            _check("output", k, x, o.dtype, o.axes)
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


_in_use: WeakValueDictionary[str, Compiled] = WeakValueDictionary()


def compiled(kernel: Kernel) -> Compiled:
    """The kernel to be called: one for all of equal text, while it is in use. So a composite that
    is traced for another size finds the plans of those before.
    """
    found = _in_use.get(kernel.key)
    return _in_use.setdefault(kernel.key, Compiled(kernel)) if found is None else found


def _check(kind: str, k: int, x: Array, dtype: str, axes: tuple[int, ...]) -> None:
    if not isinstance(x, np.ndarray):
        raise DTypeError(f"kernel: {kind} {k} is no NumPy array but {type(x).__name__}")
    if x.dtype != NUMPY[dtype]:
        raise DTypeError(f"kernel: {kind} {k} is {x.dtype}, not {dtype}")
    if x.ndim != len(axes):
        raise ShapeError(f"kernel: {kind} {k} has shape {x.shape}; it needs {len(axes)} dimensions")


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


def _maker(output: Output, sizes: Sequence[int], order: Sequence[int]) -> Maker:
    """A function that allocates an output, in whose memory the axes lie in this order."""
    axes, dtype = output.axes, NUMPY[output.dtype]
    several = [k for k in order if sizes[axes[k]] != 1]  # an axis of one position may be anywhere
    if several == sorted(several):
        return functools.partial(np.empty, tuple(sizes[a] for a in axes), dtype)
    shape = tuple(sizes[axes[k]] for k in order)
    back = tuple(order.index(k) for k in range(len(order)))
    return lambda: np.empty(shape, dtype).transpose(back)
