"""Matrix products by generated code: single and double precision, for arrays and for machine code.

Small products are generated code (`gemm_code`); large ones of single precision are oneDNN's, which
is some percent faster there, as long as it can be loaded. Neither starts threads: parts of a
product are handed out by our pool.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import CachedLaunch, call
from ....core.arrays import address as place_of
from ....core.errors import Unsupported
from ...codegen import target
from ..onednn import api as onednn
from ..runtime import object_code, signals
from ..runtime.launch_list import Launch
from ..runtime.parallel_sections import Blocks, Spans
from . import gemm_code as gemm_code
from .few_rows_code import MOST
from .gemm_code import DEPTH, LARGE, TASK_WORDS
from .product_writer import ADD, BIAS, FEW_ROWS, RELU, Shape

__all__ = ["BIAS", "FEW_ROWS", "TASK_WORDS", "GemmPlan", "Shape", "address", "is_available"]

_ELEMENTS = {"float32": "float", "float64": "double"}

# oneDNN's OpenMP would start threads of its own: it is told, per calling thread, to use one.
# While it computes, no signal's handler may run on this thread: see runtime/signals.py.
_LIMITED = """
@product = internal global ptr null
@threads = internal global ptr null
@limit = internal global ptr null

define void @find(ptr %product, ptr %threads, ptr %limit) {
  store ptr %product, ptr @product
  store ptr %threads, ptr @threads
  store ptr %limit, ptr @limit
  ret void
}

define i32 @sgemm(i8 signext %ta, i8 signext %tb, i64 %m, i64 %n, i64 %k, float %alpha,
                  ptr %a, i64 %lda, ptr %b, i64 %ldb, float %beta, ptr %c, i64 %ldc) {
  %product = load ptr, ptr @product
  %threads = load ptr, ptr @threads
  %limit = load ptr, ptr @limit
  %unblocked = alloca [16 x i64]
  %alone = icmp eq ptr %limit, null
  br i1 %alone, label %compute, label %first
first:
  %before = call i32 %threads()
  call void %limit(i32 1)
  br label %compute
compute:
  %after = phi i32 [0, %0], [%before, %first]
  call void @block_signals(ptr %unblocked)
  %status = call i32 %product(
    i8 signext %ta, i8 signext %tb, i64 %m, i64 %n, i64 %k, float %alpha,
    ptr %a, i64 %lda, ptr %b, i64 %ldb, float %beta, ptr %c, i64 %ldc)
  call void @restore_signals(ptr %unblocked)
  br i1 %alone, label %end, label %last
last:
  call void %limit(i32 %after)
  br label %end
end:
  ret i32 %status
}
"""


class _GemmCode(NamedTuple):
    gemm: int  # an address
    chunks: int  # another: what runs a plan's tasks


def address(dtype: str = "float32") -> int | None:
    """Address at which machine code finds the product of row-major matrices; None where there is
    none.

    `int gemm(char ta, char tb, int64 m, int64 n, int64 k, T alpha, const T *a, int64 lda,
    const T *b, int64 ldb, T beta, T *c, int64 ldc)` makes the m x n matrix c alpha op(a) op(b) +
    beta c, where op transposes for 'T' and not for 'N', a row of a matrix as it is stored begins
    `ld` elements after the one before, and c is not read for beta 0. It returns 0.

    It computes on the thread that calls it and nowhere else, may be called by any number of threads
    at once, with or without the GIL, and gives the same bits each time.
    """
    compiled = _code(dtype)
    return None if compiled is None else compiled.gemm


@functools.cache
def is_available(dtype: Any) -> bool:
    """Whether products of this dtype can be computed here."""
    return _code_of(dtype) is not None


@functools.cache
def _code_of(dtype: Any) -> _GemmCode | None:
    return _code(dtype.name)  # a name that NumPy puts together at each question


@functools.cache
def _code(dtype: str) -> _GemmCode | None:
    """The entries for a dtype; None without llvmlite or wide vectors."""
    if dtype not in _ELEMENTS:
        return None
    element = _ELEMENTS[dtype]
    try:
        if target.host().vector_bytes < 32:
            return None
        gemm, chunks, connect = object_code.load(
            gemm_code,
            element,
            lambda host, symbol: gemm_code.text(host, element, symbol),
            ("gemm", "chunks", "connect"),
        )
    except Unsupported:
        return None
    library = _library() if dtype == "float32" else None
    if library is not None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(connect)(library)
    return _GemmCode(gemm, chunks)


def _library() -> int | None:
    """oneDNN's product, on the calling thread alone; None where it cannot be loaded."""
    try:
        lib = onednn.library()
        sgemm, find = object_code.library(
            __name__, lambda: _LIMITED + signals.functions(), ["sgemm", "find"]
        )
    except Unsupported:
        return None
    limit, threads = map(_address_of, lib.threads or (None, None))
    places = _address_of(lib.dll.dnnl_sgemm), threads, limit
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(find)(*places)
    return sgemm


def _address_of(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _work(s: Shape) -> int:
    """Multiply-adds of a product, or those of another one that would take its time."""
    return s.k * max(s.m, s.n) * MOST if s.mode & FEW_ROWS else s.m * s.n * s.k


class GemmPlan:
    """Products of parts of arrays that have the shapes and strides for which it was made.

    A task is the number of its shape and the offsets, in bytes, of its parts of a, b, c and bias.
    Tasks may run at once; no two write the same part of c.
    """

    def __init__(
        self, dtype: Any, shapes: Sequence[Shape], tasks: Any, pool: Any = None,
        whole: Shape | None = None, turned: bool = False,
    ) -> None:  # fmt: skip
        """`tasks`: an int64 array of rows; `pool`: who shares them out, or None; `whole`: what the
        tasks are parts of, where it is one product; `turned`: the arrays that calls are given are b
        and a, in this order.
        """
        code = _code_of(dtype)
        if code is None:
            raise Unsupported(f"products of {dtype}: no generated code here; use NumPy's")
        self._shapes = np.array(shapes, np.int64)
        self._tasks = np.ascontiguousarray(tasks, np.int64)
        assert self._tasks.shape[1:] == (TASK_WORDS,)
        self._pool = pool if len(tasks) > 1 else None
        work = sum(map(_work, shapes)) * len(tasks) // len(shapes)
        self._quick = work < policy.GEMM_QUICK
        self._chunks = code.chunks
        self._whole, self._itemsize, self._turned = whole, dtype.itemsize, turned

    def rectified(self) -> GemmPlan:
        """A plan of the same products that computes max(c, 0)."""
        return self._with(RELU)

    def adding(self) -> GemmPlan | None:
        """A plan that adds the products to what c holds. None where the bits would differ from
        those of a separate addition: where k is in several blocks, or a library computes the
        product.
        """
        few = (self._shapes[:, Shape._fields.index("mode")] & FEW_ROWS) != 0
        m, n, k = self._shapes[:, :3].T
        whole = (k * self._itemsize <= 4 * DEPTH) & (m * n * k <= LARGE)
        return self._with(ADD) if (few | whole).all() else None

    def _with(self, mode: int) -> GemmPlan:
        other = copy.copy(self)
        other._shapes = self._shapes.copy()
        other._shapes[:, Shape._fields.index("mode")] |= mode
        return other

    def _operands(self, given: Sequence[Any]) -> Sequence[Any]:
        """The operands a, b and perhaps the bias among the arrays that a call is given."""
        return (given[1], given[0], *given[2:]) if self._turned else given

    def _before(self, biased: bool) -> bytes:
        return struct.pack("3q", place_of(self._shapes), place_of(self._tasks), biased)

    def run(self, a: Any, b: Any, c: Any, *bias: Any) -> None:
        """Compute c from a, b and bias (contiguous, or none)."""
        places = [place_of(x) for x in (*self._operands((a, b, *bias)), c)]
        words = self._before(bool(bias)) + struct.pack(f"{len(places)}q", *places)
        pool = self._pool.entry() if self._pool is not None else None
        call(self._chunks, len(self._tasks), words, pool, self._quick)

    def call(self, given: Sequence[Any], c: Any) -> Launch:
        """A reusable call for arrays that keep their addresses: a, b and perhaps bias."""
        before = self._before(len(given) > 2)
        arrays = *self._operands(given), c
        words = before + struct.pack(f"{len(arrays)}q", *map(place_of, arrays))
        first = len(before) // 8
        pointers = range(first, first + len(given) + 1)
        shared = self._pool is not None
        bound = Launch(self._chunks, len(self._tasks), words, pointers, shared, self._quick, self)
        whole = self._whole
        if whole is not None and min(whole[3:8]) >= 0:
            bound.work = float(whole.m * whole.n * whole.k)
            bound.spans = self._spans(whole, 0, len(given) > 2)
            bound.rows = whole.m
            bound.blocks = functools.partial(self._blocks, words[len(before) :], whole)
        return bound

    def _blocks(self, places: bytes, whole: Shape, rows: int, size: int) -> Blocks | None:
        """A call for arrays at these places in chunks that are `size` of so many rows, each of one
        or several of c's.
        """
        steps, left = divmod(whole.m, rows)
        if left or not steps:
            return None
        mode, item, biased = int(self._shapes[0][-1]), self._itemsize, len(places) > 3 * 8
        shapes: list[Shape] = []
        tasks, spans = [], []
        for begin in range(0, whole.m, size * steps):
            shape = whole._replace(m=min(size * steps, whole.m - begin), mode=mode)
            if shape not in shapes:
                shapes.append(shape)
            a, c = begin * whole.a_row * item, begin * whole.c_row * item
            tasks.append((shapes.index(shape), a, 0, c, 0))
            spans.append(self._spans(shape, begin, biased))
        plan = copy.copy(self)
        plan._shapes, plan._tasks = np.array(shapes, np.int64), np.array(tasks, np.int64)
        return Blocks(plan._before(biased) + places, spans, (plan._shapes, plan._tasks))

    def _spans(self, shape: Shape, begin: int, biased: bool) -> Spans:
        """Spans of memory (begin, end) in a, b, perhaps the bias, and c, for the rows from `begin`
        on.
        """
        m, n, k = shape.m - 1, shape.n - 1, shape.k - 1
        a, c = begin * shape.a_row, begin * shape.c_row
        elements = [(a, a + m * shape.a_row + k * shape.a_column),
                 (0, k * shape.b_row + n * shape.b_column),
                 *([(0, n)] if biased else []),
                 (c, c + m * shape.c_row + n)]  # fmt: skip
        return [(low * self._itemsize, (high + 1) * self._itemsize) for low, high in elements]

    def call_at_places(self) -> Launch:
        """A reusable call whose tasks hold addresses instead of offsets, for arrays that keep them;
        a bias is read where the mode of a shape says so.
        """
        words = self._before(False) + bytes(8 * 3)
        return Launch(
            self._chunks, len(self._tasks), words, range(0), False, self._quick, self, fixed=True
        )  # fmt: skip

    def launcher(self, given: Sequence[Any], c: Any) -> CachedLaunch:
        """A launcher that allocates c and computes it from arrays that lie in memory as the given
        ones do: a, b and perhaps bias.
        """
        pool = self._pool.entry() if self._pool is not None else None
        views = [(n, 0) for n in self._operands(range(len(given)))]
        before = self._before(len(given) > 2)
        made = CachedLaunch(
            self._chunks, len(self._tasks), given, [(c.shape, c.dtype)], before, b"", pool,
            self._quick, views,
        )  # fmt: skip
        made.keeps = self
        return made
