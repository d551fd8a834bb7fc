"""Matrix products over parts of the rows, columns or batch; NumPy's where it is faster.

float32 and float64 are generated code's (`gemm`) from a size on where that pays, and always where
they have one to four rows or one column (`few_rows`); bfloat16, which accumulates in float32,
float32 of five to some rows, and products with an activation are oneDNN's (`_cut` holds what was
measured); everything else is NumPy's BLAS.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ....core import policy
from ....core.arrays import address
from ....core.errors import InvalidArgument, ShapeError, Unsupported
from ....core.op import Op
from ....core.sized_tables import SizedTable
from ....ir.compute import launcher_of, quietly, remember
from ..onednn import api as onednn
from ..onednn.api import BIAS, DST, SRC, WEIGHTS, Descriptor, Primitive
from ..onednn.plan import (
    SCRATCH,
    SHARED,
    OneDnnPlan,
    PlanArgument,
    PrimitiveStep,
    aligned,
    bytes_of,
    planned,
    threads,
)
from ..runtime import block_cache
from ..runtime.pool import default_pool
from . import few_rows, gemm
from .few_rows import must_be_copied as must_be_copied
from .few_rows_code import MOST

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = (FLOAT32, BFLOAT16, FLOAT64)

Sizes = tuple[int, ...]
Strides = tuple[int, ...]

A, B, C, D = range(4)  # slots: the operands, the result, the bias
_ALL = np.zeros((1, gemm.TASK_WORDS), np.int64)  # one task: all of a product


class PlannedProduct(NamedTuple):
    """Description of a matrix product: c (m, n) = a (m, k) @ b (k, n) in a batch; strides in
    elements.

    A stride of the batch is 0 where the operand broadcasts; c is contiguous, or has strides of its
    own and rows without gaps.
    """

    batch: Sizes
    m: int
    k: int
    n: int
    a: Strides
    b: Strides
    dtype: Any
    bias: bool
    activation: str | None
    c: Strides = ()

    def __str__(self) -> str:
        left, right = (*self.batch, self.m, self.k), (*self.batch, self.k, self.n)
        return f"matmul {left} @ {right} {self.dtype.name}"


def _order(m: int, n: int, rows: int, columns: int) -> tuple[int, int] | None:
    """Strides of a matrix as oneDNN takes them: one of them 1, dense if possible."""
    found = None
    if n == 1 or columns == 1:
        row = n if m == 1 else rows
        if max(row, 1) == n:
            return row, 1
        found = (row, 1) if max(row, 1) > n else None
    if m == 1 or rows == 1:
        column = m if n == 1 else columns
        if max(column, 1) == m or (found is None and max(column, 1) > m):
            return 1, column
    return found


def _strides(x: Any, rank: int) -> Strides | None:
    """Strides in elements over `rank` dimensions, or None where oneDNN cannot describe x."""
    item, steps = x.itemsize, x.strides
    if len(steps) == rank == 2:
        (m, n), (row, column) = x.shape, steps
        if row % item or column % item or row < 0 or column < 0:
            return None
        return _order(m, n, row // item, column // item)
    if any(s % item or s < 0 for s in steps):
        return None
    steps = [s // item for s in steps]
    order = _order(*x.shape[-2:], *steps[-2:])
    if order is None:
        return None
    batch = (0 if n == 1 else s for n, s in zip(x.shape[:-2], steps, strict=False))
    return (*(0,) * (rank - x.ndim), *batch, *order)


def is_laid_out(x: Any) -> bool:
    """Whether matrices lie so that products need no copy: each has rows or columns without gaps."""
    return _strides(x, x.ndim) is not None


def are_laid_out(a: Any, b: Any) -> list[bool]:
    """Whether each of two operands lies so that their product needs no copy of it."""
    if must_be_copied(a, b):
        return [False, False]
    return [is_laid_out(a), is_laid_out(b)]


def _merged(batch: Sizes, a: Strides, b: Strides) -> tuple[Sizes, Strides, Strides]:
    """The batch with as few dimensions as both operands' strides permit."""
    sizes: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for n, s, t in zip(batch, a, b, strict=False):
        if n == 1:
            continue
        if sizes and left[-1] == s * n and right[-1] == t * n:
            sizes[-1] *= n
            left[-1], right[-1] = s, t
        else:
            sizes.append(n)
            left.append(s)
            right.append(t)
    return tuple(sizes), (*left, *a[-2:]), (*right, *b[-2:])


def pieces(size: int, parts: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """`size` in about `parts` equal pieces, each but the last a multiple: start and length."""
    step = max(1, -(-size // parts))
    step = -(-step // multiple) * multiple
    for start in range(0, size, step):
        yield start, min(step, size - start)


class _ProductBuilder:
    """Makes the steps of one part of a product; equal parts share their primitives."""

    def __init__(self, product: PlannedProduct, prefer: str, turned: bool = False) -> None:
        self.product, self.prefer, self.what = product, prefer, str(product)
        self.arrays = (B, A, C) if turned else (A, B, C)  # the slots of a, b and c
        self.primitives: dict[Any, Primitive] = {}
        self.scratch = self.shared = 0
        self.copies: list[list[PrimitiveStep]] = []

    def describe(self, shape: Sizes, strides: Strides) -> Descriptor:
        """A memory; where it broadcasts, of size 1."""
        pairs = list(zip(shape, strides, strict=True))
        sizes = tuple(n if s else 1 for n, s in pairs)
        steps = list(strides)
        for i in reversed(range(len(shape))):
            if not steps[i]:
                steps[i] = max(n * s for n, s in zip(sizes[i + 1 :], steps[i + 1 :], strict=True))
        return onednn.described(sizes, steps, self.product.dtype)

    def reorder(self, x: Descriptor, y: Descriptor, key: Any) -> Primitive:
        """A copy from x to y."""
        if key not in self.primitives:
            self.primitives[key] = onednn.Primitive(onednn.reorder(x, y, self.what))
        return self.primitives[key]

    def steps(
        self, batch: Sizes, m: int, n: int, first: Sizes, row: int, column: int, cut: Cut
    ) -> list[PrimitiveStep]:
        """The part of `batch` from `first`, `m` rows from `row` and `n` columns from `column`."""
        p = self.product
        shapes = ((*batch, m, p.k), (*batch, p.k, n), (*batch, m, n))
        whole = onednn.contiguous_strides((*p.batch, p.m, p.n))
        starts = ((*first, row, 0), (*first, 0, column), (*first, row, column))
        steps: list[PrimitiveStep] = []
        after: list[PrimitiveStep] = []
        places = []
        scratch = 0
        for slot, array, shape, strides, start in zip(
            (A, B, C), self.arrays, shapes, (p.a, p.b, whole), starts, strict=True
        ):
            memory = self.describe(shape, strides)
            offset = sum(i * s for i, s in zip(start, strides, strict=True)) * p.dtype.itemsize
            place = PlanArgument(memory, array, offset)
            dense = _dense(shape, strides) if slot in cut.packed else strides
            if dense != strides:
                copy = PlanArgument(self.describe(shape, dense), SCRATCH, scratch)
                scratch += aligned(copy.memory.size)
                source, target = (copy, place) if slot == C else (place, copy)
                mover = self.reorder(source.memory, target.memory, (slot, shape))
                step = PrimitiveStep(mover, {SRC: source, DST: target})
                (after if slot == C else steps).append(step)
                place = copy
            places.append(place)
        self.scratch = max(self.scratch, scratch)
        arguments = dict(zip((SRC, WEIGHTS, DST), places, strict=True))
        bias = None
        if p.bias:
            bias = onednn.contiguous((*(1,) * len(batch), 1, n), p.dtype)
            arguments[BIAS] = PlanArgument(bias, D, column * p.dtype.itemsize)
        key = (batch, m, n)
        if key not in self.primitives:
            self.primitives[key] = onednn.primitive(
                "matmul",
                self.what,
                onednn.library().engine,
                places[0].memory,
                onednn.any_layout(shapes[1], p.dtype) if cut.blocked else places[1].memory,
                bias,
                places[2].memory,
                activation=onednn.ACTIVATIONS[p.activation] if p.activation else None,
                prefer=self.prefer,
            )
        main = self.primitives[key]
        if cut.blocked:
            arguments[WEIGHTS] = self.blocked(places[1], main.memory(WEIGHTS))
        return [*steps, PrimitiveStep(main, arguments), *after]

    def blocked(self, plain: PlanArgument, wanted: Descriptor) -> PlanArgument:
        """The right operand as the product wants it, copied once for all rows."""
        if onednn.same_layout(plain.memory, wanted):
            return plain
        target = PlanArgument(wanted, SHARED)
        if not self.copies:
            self.shared = wanted.size
            self.copies = self.copied(plain, target)
        return target

    def copied(self, plain: PlanArgument, target: PlanArgument) -> list[list[PrimitiveStep]]:
        """The right operand (all columns) into another order, in parts of the columns."""
        p = self.product
        chunks = []
        for column, n in pieces(p.n, threads(), 4 * 16):
            offset = column * p.b[-1] * p.dtype.itemsize
            source = PlanArgument(self.describe((p.k, n), p.b), plain.slot, offset)
            part = target.memory.part((p.k, n), (0, column))
            mover = onednn.Primitive(onednn.reorder(source.memory, part, self.what))
            step = PrimitiveStep(mover, {SRC: source, DST: target._replace(memory=part)})
            chunks.append([step])
        return chunks

    def plan(self, chunks: list[list[PrimitiveStep]]) -> OneDnnPlan:
        """The copies for all parts, then all parts."""
        phases = [self.copies, chunks] if self.copies else [chunks]
        slots = 4 if self.product.bias else 3
        return OneDnnPlan(self.what, phases, slots, self.shared, self.scratch)


def _dense(shape: Sizes, strides: Strides) -> Strides:
    """The strides of a matrix without gaps: by rows if there are few, else in the same order."""
    if strides[1] == 1 or shape[0] < 32:
        return (shape[1], 1)
    return (1, shape[0])


class Cut(NamedTuple):
    """Partition of a product: number of parts, and implementation.

    The slots in `packed` are copied on the way where their rows have gaps; with `blocked`, the
    right operand is first brought into the order of its use (then there is one part of columns).
    """

    rows: int = 1
    columns: int = 1
    prefer: str = "brg"
    packed: Sizes = ()
    blocked: bool = False


def _cut(p: PlannedProduct, workers: int) -> Cut:
    """The cut of a product of two matrices; measured with AVX-512, one thread and several.

    "brg" has the fewest instructions around its loop, but does not copy operands into the order of
    their use, so it wins where the right operand is stored by columns, or is small, or is read for
    a few rows only; "gemm" does copy and wins elsewhere. Only "brg" uses AMX.
    """
    work = p.m * p.k * p.n
    parts = max(1, min(2 * workers if workers > 1 and work >> 26 else workers, work >> 19))
    narrow = p.dtype == BFLOAT16
    if narrow and few_rows.are_few(p.m, p.k, p.n):
        parts = few_rows.parts(p.m, p.k, p.n, p.dtype.itemsize, 1, workers)
    by_columns = p.b[-1] != 1
    if p.m < policy.PRODUCT_FEW_ROWS and p.n >= policy.PRODUCT_FEW_ROWS:
        enough = 2 if narrow or p.k * p.n >= 1 << 20 else 8
        if p.m >= enough and (by_columns or narrow):
            return Cut(1, parts, "brg", (A, C))
        return Cut(1, parts, "gemm", (A,))
    if p.n < 32:
        return Cut(parts, 1, "brg" if narrow else "gemm")
    streamed = p.m <= 64 and p.k * p.n >= 1 << 21
    if streamed and (parts == 1 or by_columns):
        return Cut(1, parts, "brg", (A, C))
    if streamed:
        return Cut(1, parts, "gemm")
    if narrow and not by_columns and work >= 1 << 29:
        return Cut(max(2, parts), 1, "brg", (A,), blocked=True)
    row_major = p.a[-1] == 1
    few = by_columns and row_major and work <= 1 << 25
    if narrow or few or (p.m >= 2048 and p.k * p.n <= 1 << 13):
        return Cut(parts, 1, "brg", (A,))
    return Cut(*_grid(p.m, p.n, parts), "gemm")


def _grid(m: int, n: int, parts: int) -> tuple[int, int]:
    """`parts` as rows and columns of parts that are as square as possible."""
    pairs = [(r, parts // r) for r in range(1, parts + 1) if parts % r == 0]
    return min(pairs, key=lambda pair: abs(math.log(m / pair[0]) - math.log(n / pair[1])))


class _Expanded(Unsupported):
    """The library takes no matrix of which all rows, or all columns, are the same element."""


def _build(p: PlannedProduct, turned: bool = False) -> Any:
    """The plan; where it is `turned`, the arrays that it is given are b and a.

    Errors: Unsupported where NumPy's product is faster, or the only one.
    """
    workers = threads()
    work = p.m * p.k * p.n
    c_row = p.c[-2] if p.c else p.n
    few = few_rows.fits(p.m, p.k, p.n, p.a[-2:], p.b[-2:], c_row)
    if few and p.activation is None and gemm.is_available(p.dtype):
        return _build_generated(p, workers, turned)
    vector = 1 in (p.m, p.n) and work > policy.PRODUCT_VECTOR
    wide = p.dtype == FLOAT64
    few_rows_narrow = p.dtype == BFLOAT16 and few_rows.are_few(p.m, p.k, p.n)
    left = p.activation is None and not few_rows_narrow and not turned
    if left and (wide or workers == 1 or p.k == 1):
        few = p.n < 16 and policy.PRODUCT_LITTLE < work <= policy.PRODUCT_FEW_COLUMNS
        if vector or few or (wide and workers == 1 and work >= policy.PRODUCT_LARGE_DOUBLE):
            raise Unsupported(f"{p}: left to NumPy")
    some_rows = (
        p.m < policy.PRODUCT_FEW_ROWS
        and work > (policy.PRODUCT_VECTOR if p.m == 1 else policy.PRODUCT_LITTLE)
        and p.k > 1
        and p.n >= policy.PRODUCT_FEW_ROWS
        and (p.m < 8 or p.k * p.n >= 1 << 16)
    )
    library = some_rows and not p.batch and not wide and onednn.unavailable() is None
    if p.activation is None and not (vector or library) and gemm.is_available(p.dtype):
        return _build_generated(p, workers, turned)
    if wide or p.c:
        raise Unsupported(f"{p}: left to NumPy")
    if 0 in (*p.a[-2:], *p.b[-2:]):
        raise _Expanded(f"{p}: of a vector that was expanded; give it memory")
    if not p.batch:
        cut = _cut(p, workers)
        builder = _ProductBuilder(p, cut.prefer, turned)
        chunks = [
            builder.steps((), m, n, (), row, column, cut)
            for row, m in pieces(p.m, cut.rows, 16)
            for column, n in pieces(p.n, cut.columns, 16)
        ]
        return builder.plan(chunks)
    return _build_batch(p, workers)


def _build_generated(p: PlannedProduct, workers: int, turned: bool = False) -> gemm.GemmPlan:
    """The plan of all products of the batch, each in parts where there are more workers than
    products.
    """
    count = math.prod(p.batch)
    work = p.m * p.k * p.n
    whole = p.c or (onednn.contiguous_strides((*p.batch, p.m, p.n)) if p.batch else (p.n, 1))
    few = few_rows.fits(p.m, p.k, p.n, p.a[-2:], p.b[-2:], whole[-2])
    if few:
        parts = few_rows.parts(p.m, p.k, p.n, p.dtype.itemsize, count, workers)
        rows, columns = (parts, 1) if p.n == 1 else (1, parts)
        if not few_rows.are_shared(p.m, p.k, p.n, p.dtype.itemsize, count):
            workers = 1
    else:
        most = 2 * workers if workers > 1 and count * work >> 26 else workers
        parts = max(1, min(-(-most // count), work // policy.PRODUCT_GRAIN))
        rows, columns = _grid(p.m, p.n, parts)
    if p.k == 1:  # the time is that of writing: a few whole rows at a time
        rows, columns = max(parts, work // policy.OUTER_PART), 1
    mode = gemm.FEW_ROWS if few else 0
    product = gemm.Shape(p.m, p.n, p.k, p.a[-2], p.a[-1], p.b[-2], p.b[-1], whole[-2], mode)
    if count == rows == columns == 1 and p.m and p.n:
        return gemm.GemmPlan(p.dtype, [product], _ALL, None, product, turned)
    shapes: list[gemm.Shape] = []
    places: list[tuple[int, ...]] = []  # of a part: its shape, offsets in elements
    for row, m in pieces(p.m, rows, 8):
        for column, n in pieces(p.n, columns, 16):
            shape = gemm.Shape(m, n, p.k, p.a[-2], p.a[-1], p.b[-2], p.b[-1], whole[-2], mode)
            if shape not in shapes:
                shapes.append(shape)
            starts = (row * p.a[-2], column * p.b[-1], row * whole[-2] + column, column)
            places.append((shapes.index(shape), *starts))
    tasks: Any = np.array(places, np.int64)
    if count != 1:
        offsets = np.zeros((count, 1, gemm.TASK_WORDS), np.int64)
        for word, strides in ((1, p.a), (2, p.b), (3, whole)):
            at: Any = np.zeros(1, np.int64)
            for n, step in zip(p.batch, strides, strict=False):
                at = np.add.outer(at, np.arange(n) * step)
            offsets[:, 0, word] = at.reshape(-1)
        tasks = (offsets + tasks).reshape(-1, gemm.TASK_WORDS)
    tasks[:, 1:] *= p.dtype.itemsize
    pool = default_pool() if workers > 1 else None
    whole_one = product if count == 1 else None
    return gemm.GemmPlan(p.dtype, shapes, tasks, pool, whole_one, turned)


def _build_batch(p: PlannedProduct, workers: int) -> Any:
    """Parts of the batch's largest dimension, and of the rows where that is too small."""
    axis = max(range(len(p.batch)), key=lambda i: p.batch[i])
    size = p.batch[axis]
    parts = min(size, workers, max(1, (math.prod(p.batch) * p.m * p.k * p.n) >> 19))
    rows = 1 if parts * 2 > workers else workers // parts
    large = p.dtype == FLOAT32 and p.m * p.k * p.n >= 1 << 21
    builder = _ProductBuilder(p, "gemm" if large else "brg")
    chunks = []
    for start, length in pieces(size, parts):
        batch = (*p.batch[:axis], length, *p.batch[axis + 1 :])
        first = (*(0,) * axis, start, *(0,) * (len(p.batch) - axis - 1))
        for row, m in pieces(p.m, rows, 16):
            chunks.append(builder.steps(batch, m, p.n, first, row, 0, Cut()))
    return builder.plan(chunks)


def matmul(a: Any, b: Any, out: Any = None, bias: Any = None, activation: str | None = None) -> Any:
    """a @ b + bias, then the activation, for arrays of two dimensions or more.

    Shapes: (..., m, k) @ (..., k, n) -> (..., m, n), batch dimensions broadcast; bias (n,).
    Dtypes: a, b and bias have the same; bfloat16 accumulates in float32 and is rounded once.
    Errors: ShapeError where shapes do not fit; InvalidArgument for an unknown activation.

    >>> matmul(np.ones((2, 3), np.float32), np.ones((3, 1), np.float32)).ravel()
    array([3., 3.], dtype=float32)
    """
    if out is None and activation is None:
        ready = ready_for(a, b, bias)
        if ready is not None:
            return _computed(ready, a, b, bias)
    batch = _batch_of(a, b)
    if batch is not None:
        shape = (*batch, a.shape[-2], b.shape[-1])
        if math.prod(batch) and _pays(a, b):
            if bias is not None or activation is not None or out is not None:
                _assert_fitting(shape, a, out, bias, activation)
            product = _library(a, b, out, bias, activation, batch)
            if product is not None:
                return product
        if out is None and activation is None and a.dtype != BFLOAT16:
            _remember(a, b, bias, None, shape)
    return _numpy(a, b, out, bias, activation)


def prepare(a: Any, b: Any, bias: Any = None) -> None:
    """Prepares a product of such arrays for `ready_for`, without computing it."""
    batch = None if ready_for(a, b, bias) is not None else _batch_of(a, b)
    if batch is None:
        return
    plan = None
    if math.prod(batch) and _pays(a, b):
        plan = _planned(a, b, bias, None, batch)
    if plan is not None or a.dtype != BFLOAT16:
        run = None if plan is None else _run_of(*plan)
        _remember(a, b, bias, run, (*batch, a.shape[-2], b.shape[-1]))


def _batch_of(a: Any, b: Any) -> Sizes | None:
    """The batch of two arrays that can be multiplied here."""
    x, y = a.shape, b.shape
    if a.dtype not in _DTYPES or b.dtype != a.dtype or not len(x) >= 2 <= len(y) or x[-1] != y[-2]:
        return None
    return np.broadcast_shapes(x[:-2], y[:-2]) if len(x) > 2 or len(y) > 2 else ()


class _Ready(NamedTuple):
    """A prepared product, for operands of which none has to be copied."""

    run: Any  # None: NumPy's
    shape: Sizes
    dtype: Any
    workers: int  # of the pool for which it was made; 0: it does not matter


def _weigh(ready: _Ready) -> int:
    return policy.KEY_BYTES if ready.run is None else bytes_of(_plan_of(ready.run))


_ready = SizedTable("products", _weigh)


def ready_for(a: Any, b: Any, bias: Any = None, library: str = "product") -> _Ready | None:
    """The prepared product for such arrays, as an op of that `library` takes them; None if there is
    none yet.
    """
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    ready = _ready.find(_key(a, b, bias, library))
    if ready is None or (ready.workers and ready.workers != threads()):
        return None
    if bias is not None:
        contiguous = bias.shape == ready.shape[-1:] and bias.strides == (bias.itemsize,)
        if not contiguous or bias.dtype != ready.dtype:
            return None
    return ready


def _computed(ready: _Ready, a: Any, b: Any, bias: Any, library: str = "product") -> Any:
    """The product, as it was computed before."""
    if ready.run is None:
        c = _by_numpy(*_OPERANDS[library](a, b))
        if bias is not None:
            np.add(c, bias, out=c)
        return c if c.ndim == len(ready.shape) else c.reshape(ready.shape)
    c = np.empty(ready.shape, ready.dtype)
    if bias is None:
        ready.run(a, b, c)
    else:
        ready.run(a, b, c, bias)
    return c


def _by_numpy(a: Any, b: Any) -> Any:
    outer = a.shape[-1] == 1 and a.ndim > 1 and b.ndim > 1
    return np.multiply(a, b) if outer else np.matmul(a, b)


def _rows(x: Any) -> Any:
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


# What is multiplied for two inputs of an op, by what that says as its `library`.
_OPERANDS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "product": lambda a, b: (a, b),
    "linear": lambda x, w: (_rows(x), w.T),
    "linear_input": lambda g, w: (_rows(g), w),
    "linear_weight": lambda g, x: (_rows(g).T, _rows(x)),
}


def matrices(library: str, x: Any, y: Any) -> tuple[Any, Any]:
    """The operands of the matrix product for two inputs of an op of that `library`."""
    return _OPERANDS[library](x, y)


def _launch(library: str, a: Any, b: Any, bias: Any = None) -> Any:
    """Result of an op whose product is prepared for such arrays; else None."""
    ready = ready_for(a, b, bias, library)
    return None if ready is None else quietly(_computed, ready, a, b, bias, library)


# By what an op says as its `library`.
LAUNCHERS: dict[str, Any] = {name: functools.partial(_launch, name) for name in _OPERANDS}


def accelerate(op: Op, arrays: Sequence[Any], names: Any) -> Any:
    """Computes an op that is a product, with functions of `names`; NotImplemented for dtypes of
    which NumPy knows more. Eager execution calls its launcher from then on.
    """
    dtype = arrays[0].dtype
    narrow = dtype == BFLOAT16 and onednn.unavailable() is None
    alike = dtype in _DTYPES and all(x.dtype == dtype for x in arrays)
    if not narrow and (not alike or dtype == BFLOAT16):
        return NotImplemented
    result = quietly(op.compute, names, *arrays)
    if alike:
        _remember_operands(op.library, result, *arrays)
    if not narrow or (alike and _is_ready(op.library, *arrays)):
        remember(op, list(arrays), _launcher(op.library, result, arrays), result)
    return result


def _is_ready(library: str, a: Any, b: Any, bias: Any = None) -> bool:
    return ready_for(a, b, bias, library) is not None


def _launcher(library: str, c: Any, arrays: Sequence[Any]) -> Any:
    """The launcher that gives `c` for such arrays: the plan, called by pointer, where they are its
    operands.
    """
    bias = arrays[2] if len(arrays) > 2 else None
    ready = ready_for(arrays[0], arrays[1], bias, library)
    run: Any = None if ready is None else ready.run
    copies = type(run) is _OnCopies
    plan = run.plan if copies else getattr(run, "__self__", None)
    if type(plan) is not gemm.GemmPlan or not all(type(x) is np.ndarray for x in arrays):
        return LAUNCHERS[library]
    launch: Any = plan.launcher(run.given(*arrays) if copies else arrays, c)
    if copies:
        launch = functools.partial(_launch_on_copies, launch, run.given)
    return functools.partial(quietly, launch) if c.nbytes >= block_cache.SMALLEST // 2 else launch


def _launch_on_copies(launch: Any, given: Any, *arrays: Any) -> Any:
    return launch(*given(*arrays))


def _remember_operands(library: str, c: Any, x: Any, y: Any, bias: Any = None) -> None:
    """Note for these arrays what is known about the matrices made of them: where that are views, a
    plan asks for nothing but where the elements are.
    """
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        return
    a, b = _OPERANDS[library](x, y)
    ready = ready_for(a, b, bias)
    if ready is None:
        return
    run = ready.run
    by_place = np.may_share_memory(a, x) and np.may_share_memory(b, y)
    if run is not None and library != "product" and (not by_place or type(run) is _OnCopies):
        run = functools.partial(_run_on_operands, library, run)
    _ready.put(_key(x, y, bias, library), ready._replace(run=run, shape=c.shape))


def _run_on_operands(library: str, run: Any, x: Any, y: Any, *others: Any) -> None:
    run(*_OPERANDS[library](x, y), *others)


def computed(op: Op, arrays: Sequence[Any], names: Any) -> Any:
    """Computes an op of a library, with functions of `names`. Eager execution computes it in the
    same way from then on, without the checks made now.
    """
    result = quietly(op.compute, names, *arrays)
    remember(op, list(arrays), launcher_of(op, names), result)
    return result


def _key(a: Any, b: Any, bias: Any, library: str = "product") -> Any:
    dtypes = a.dtype.char, b.dtype.char
    return library, a.shape, a.strides, b.shape, b.strides, dtypes, bias is None


def _remember(a: Any, b: Any, bias: Any, run: Any, shape: Sizes) -> None:
    always = run is None and a.shape[-2] * a.shape[-1] * b.shape[-1] <= policy.PRODUCT_SMALL
    _ready.put(_key(a, b, bias), _Ready(run, shape, a.dtype, 0 if always else threads()))


def _plan_of(run: Any) -> Any:
    """The plan that is run, None where that is NumPy."""
    while isinstance(run, functools.partial):
        run = run.args[-1]
    return run.plan if isinstance(run, _OnCopies) else getattr(run, "__self__", None)


def _pays(a: Any, b: Any) -> bool:
    """Whether one product is large enough for a plan."""
    m, (k, n) = a.shape[-2], b.shape[-2:]
    work = m * k * n
    if k == 1:
        return bool(work > policy.OUTER_SMALL)
    few = work > 0 and few_rows.are_few(m, k, n)
    if (few or 0 < work <= policy.PRODUCT_LITTLE) and gemm.is_available(b.dtype):
        return True
    if few and b.dtype == BFLOAT16 and onednn.unavailable() is None:
        return True
    return work > policy.PRODUCT_SMALL and (
        work > policy.PRODUCT_SMALL_BY_ROWS or b.strides[-1] != b.itemsize or threads() > 1
    )


def _assert_fitting(shape: Sizes, a: Any, out: Any, bias: Any, activation: str | None) -> None:
    """Refuse what does not fit a product of this shape."""
    if bias is not None and (bias.shape != shape[-1:] or bias.dtype != a.dtype):
        raise ShapeError(
            f"matmul: bias {bias.shape} {bias.dtype} does not fit a product {shape} {a.dtype}"
        )
    if out is not None and (out.shape != shape or out.dtype != a.dtype):
        raise ShapeError(
            f"matmul: out {out.shape} {out.dtype} does not fit a product {shape} {a.dtype}"
        )
    if activation is not None and activation not in _ACTIVATIONS:
        raise InvalidArgument(
            f"matmul: activation {activation!r} is none of {', '.join(_ACTIVATIONS)}"
        )


def _planned(a: Any, b: Any, bias: Any, activation: str | None, batch: Sizes) -> Any:
    """The plan, and which operands it wants as contiguous copies; None where there is none."""
    key = (
        "matmul", a.shape, a.strides, b.shape, b.strides, a.dtype.char,
        None if bias is None else bias.shape, activation, threads(),
    )  # fmt: skip
    return planned(key, _prepare, a, b, batch, bias, activation)


def _library(
    a: Any, b: Any, out: Any, bias: Any, activation: str | None, batch: Sizes
) -> Any | None:
    plan = _planned(a, b, bias, activation, batch)
    if plan is None:
        return None
    plan, copy_a, copy_b = plan
    shape = (*batch, a.shape[-2], b.shape[-1])
    if out is None and activation is None:
        _remember(a, b, bias, _run_of(plan, copy_a, copy_b), shape)
    if copy_a:
        a = np.ascontiguousarray(a)
    if copy_b:
        b = np.ascontiguousarray(b)
    fresh = (
        out is None
        or not out.flags.c_contiguous
        or np.may_share_memory(out, a)
        or np.may_share_memory(out, b)
    )
    c = np.empty(shape, a.dtype) if fresh else out
    if bias is None:
        plan.run(a, b, c)
    else:
        plan.run(a, b, c, np.ascontiguousarray(bias))
    if out is None:
        return c
    if fresh:
        np.copyto(out, c)
    return out


class _OnCopies:
    """A plan for operands of which some are copied first."""

    __slots__ = ("copy_a", "copy_b", "plan")

    def __init__(self, plan: Any, copy_a: bool, copy_b: bool) -> None:
        self.plan, self.copy_a, self.copy_b = plan, copy_a, copy_b

    def __call__(self, a: Any, b: Any, c: Any, *bias: Any) -> None:
        """Compute the product into `c`."""
        a, b, *more = self.given(a, b, *bias)
        self.plan.run(a, b, c, *more)

    def given(self, a: Any, b: Any, *bias: Any) -> tuple[Any, ...]:
        """The plan's operands: a and b, copied where it needs them contiguous, and the bias."""
        a = np.ascontiguousarray(a) if self.copy_a else a
        b = np.ascontiguousarray(b) if self.copy_b else b
        return a, b, *bias


def _run_of(plan: Any, copy_a: bool, copy_b: bool) -> Any:
    return _OnCopies(plan, copy_a, copy_b) if copy_a or copy_b else plan.run


def is_little(a: Any, b: Any) -> bool:
    """Whether generated code takes not much longer than NumPy for products of matrices, whatever
    their shapes.
    """
    return math.prod((*a.shape[-2:], b.shape[-1])) <= policy.PRODUCT_FEW_COLUMNS


def generated(a: Any, b: Any, bias: Any = None) -> gemm.GemmPlan | None:
    """Products of as many matrices as they lie, by generated code; None where that has none."""
    left, right = _strides(a, a.ndim), _strides(b, b.ndim)
    if left is None or right is None or a.dtype != b.dtype or not gemm.is_available(a.dtype):
        return None
    batch, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
    if b.shape[:-2] != batch or 0 in batch or must_be_copied(a, b):
        return None
    sizes, left, right = _merged(batch, left, right)
    product = PlannedProduct(sizes, m, k, n, left, right, a.dtype, bias is not None, None)
    return _build_generated(product, threads())


def generated_into(a: Any, b: Any, c: Any, *bias: Any) -> Any:
    """Products into a batch of matrices `c`, each by rows or by columns between which there may be
    gaps: the plan, and its operands. None where generated code does not compute such a product in
    any case.
    """
    if not a.dtype == b.dtype == c.dtype or not a.shape[:-2] == b.shape[:-2] == c.shape[:-2]:
        return None
    if not (_pays(a, b) or is_little(a, b)) or must_be_copied(a, b):
        return None
    if c.strides[-1] != c.itemsize and a.strides[-2] == a.itemsize and not bias:
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))  # whose right operand lies by rows
    steps = tuple(s // c.itemsize for s in c.strides)
    left, right = _strides(a, a.ndim), _strides(b, b.ndim)
    if left is None or right is None or steps[-1] != 1 or min(steps) < 0:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    product = PlannedProduct(c.shape[:-2], m, k, n, left, right, a.dtype, bool(bias), None, steps)
    try:
        plan = _build(product)
    except Unsupported:
        return None
    return (plan, (a, b, *bias), c) if isinstance(plan, gemm.GemmPlan) else None


def together(parts: Sequence[Sequence[Any]]) -> gemm.GemmPlan:
    """Small products of matrices that are laid out: a, b, their result and perhaps a bias for each,
    all of one dtype. Its tasks know the places of the arrays, which stay where they are.
    """
    shapes: dict[gemm.Shape, int] = {}
    tasks = []
    for a, b, c, *bias in parts:
        left, right = _strides(a, 2), _strides(b, 2)
        assert left is not None and right is not None
        (m, n), k = c.shape, a.shape[1]
        mode = gemm.BIAS if bias else 0
        if few_rows.fits(m, k, n, left, right, n):
            mode |= gemm.FEW_ROWS
        shape = gemm.Shape(m, n, k, left[0], left[1], right[0], right[1], n, mode)
        number = shapes.setdefault(shape, len(shapes))
        tasks.append((number, *map(address, (a, b, c)), address(bias[0]) if bias else 0))
    return gemm.GemmPlan(parts[0][0].dtype, list(shapes), np.array(tasks, np.int64))


def _prepare(a: Any, b: Any, batch: Sizes, bias: Any, activation: str | None) -> Any:
    """The plan, and which operands it wants as contiguous copies."""
    rank = len(batch) + 2
    dtype = a.dtype
    few = MOST < a.shape[-2] <= min(16, b.shape[-1] // 8 - 1) and a.strides[-1] != a.itemsize
    for copies in ((False, False), (True, False), (False, True), (True, True)):
        if few and not copies[0]:
            continue  # rows of so few elements are cheaper to copy than to jump between
        x, y = (
            np.empty(v.shape, dtype) if copy else v for v, copy in zip((a, b), copies, strict=True)
        )
        left, right = _strides(x, rank), _strides(y, rank)
        if left is None or right is None or must_be_copied(x, y):
            continue
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        sizes, left, right = _merged(batch, left, right)
        count = math.prod(sizes)
        if sizes == (count,) and not right[0] and left[2] == 1 and left[0] == m * left[1]:
            sizes, m, left, right = (), m * count, left[1:], right[1:]
        product = PlannedProduct(sizes, m, k, n, left, right, dtype, bias is not None, activation)
        turned = _is_of_vectors(product)
        if turned:
            other = _of_vectors(product)
            if other is None:
                continue
            product = other
        try:
            return _build(product, turned), *copies
        except _Expanded:
            continue
    raise AssertionError("contiguous copies can always be described")


def _is_of_vectors(p: PlannedProduct) -> bool:
    """Whether it is one matrix that is multiplied with each of several vectors."""
    plain = not (p.bias or p.activation or p.c)
    return plain and p.n == 1 < p.k and len(p.batch) > 0 and not any(p.a[:-2])


def _of_vectors(p: PlannedProduct) -> PlannedProduct | None:
    """The product of a matrix of all vectors with the transposed matrix; None where the vectors do
    not lie as one.
    """
    rows = _order(p.batch[0], p.k, p.b[0], p.b[1]) if len(p.batch) == 1 else None
    if rows is None or rows != (p.b[0], p.b[1]):
        return None
    columns = p.a[-1], p.a[-2]
    return p._replace(batch=(), m=p.batch[0], n=p.m, a=rows, b=columns)


def _numpy(a: Any, b: Any, out: Any, bias: Any, activation: str | None) -> Any:
    """Computes the product by NumPy, bfloat16 through float32."""
    if a.shape[-1:] != b.shape[-2:-1]:
        raise ValueError(f"inner sizes differ, {a.shape} @ {b.shape}")  # the op says it better
    narrow = a.dtype == BFLOAT16
    if not narrow and bias is None and activation is None:
        return _by_numpy(a, b) if out is None else np.matmul(a, b, out=out)
    x, y = (v.astype(FLOAT32) if narrow else v for v in (a, b))
    c = _by_numpy(x, y)
    _assert_fitting(c.shape, a, out, bias, activation)
    if bias is not None:
        c = c + bias.astype(c.dtype)
    if activation is not None:
        c = activated(c, activation)
    c = c.astype(a.dtype, copy=False)
    if out is None:
        return c
    np.copyto(out, c)
    return out


def by_numpy_into(a: Any, b: Any, c: Any, *bias: Any) -> None:
    """Product by NumPy into `c`, with no memory but NumPy's BLAS's own; not for bfloat16."""
    np.matmul(a, b, out=c)
    for each in bias:
        np.add(c, each, out=c)


def activated(x: Any, activation: str) -> Any:
    """An activation by NumPy: what oneDNN fuses, where oneDNN is not used."""
    return _ACTIVATIONS[activation](x).astype(x.dtype, copy=False)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2)))


_ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu,
    "gelu_tanh": lambda x: (
        x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    ),
}
