"""Random arguments for every function of the standard that is not elementwise.

A recipe draws (args, kwargs) that are right or wrong in ways that a user may be wrong in: NumPy
arrays stand for arrays, `DType(name)` for dtypes; each namespace gets its own of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = INTEGERS + FLOATS
NUMERIC = REAL + COMPLEX
ALL = ("bool", *NUMERIC)


class DType(NamedTuple):
    """A dtype, by name."""

    name: str


def filled(shape, dtype, rng):
    """Few different small numbers, so that some are equal and none overflow."""
    values = rng.integers(-3, 4, shape)
    if dtype == "bool":
        return np.asarray(values > 0)
    if dtype.startswith("u"):
        values = np.abs(values)
    if dtype in COMPLEX:
        values = values + 1j * rng.integers(-3, 4, shape)
    return np.asarray(values).astype(dtype)


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
seeds = st.integers(0, 2**16)


class Draw:
    """Values drawn one after the other."""

    def __init__(self, draw):
        self.draw = draw

    def of(self, *values):
        return self.draw(st.sampled_from(values))

    def integer(self, low, high):
        return self.draw(st.integers(low, high))

    def boolean(self):
        return self.draw(st.booleans())

    def array(self, dtypes=NUMERIC, shape=None, **sides):
        if shape is None:
            shape = self.draw(hnp.array_shapes(**({"min_dims": 0, "max_dims": 3, "min_side": 0,
                                                    "max_side": 3} | sides)))  # fmt: skip
        return filled(shape, self.of(*dtypes), np.random.default_rng(self.draw(seeds)))

    def axis(self, x):
        return self.integer(-x.ndim - 1, x.ndim)  # one too far on both sides

    def axes(self, x):
        kind = self.of("none", "one", "several")
        if kind == "none" or not x.ndim:
            return None
        if kind == "one":
            return self.axis(x)
        return tuple(self.draw(st.lists(st.integers(-x.ndim, x.ndim - 1), max_size=2)))

    def pair(self, dtypes=NUMERIC, min_dims=0):
        """Two arrays whose shapes broadcast and whose dtypes may promote."""
        found = self.draw(
            hnp.mutually_broadcastable_shapes(
                num_shapes=2, min_dims=min_dims, max_dims=3, max_side=3
            )
        )
        return [self.array(dtypes, shape) for shape in found.input_shapes]

    def matrices(self, dtypes=FLOATS + COMPLEX, square=False, side=3):
        batch = self.draw(hnp.array_shapes(min_dims=0, max_dims=1, max_side=2))
        n, m = self.integer(1, side), self.integer(1, side)
        return self.array(dtypes, (*batch, n, n if square else m))

    def regular(self, batch=None):
        """Well-conditioned square matrices."""
        if batch is None:
            batch = self.draw(hnp.array_shapes(min_dims=0, max_dims=1, max_side=2))
        n = self.integer(1, 3)
        x = self.array(FLOATS + COMPLEX, (*batch, n, n))
        return x + np.asarray(12 * np.eye(n), x.dtype)

    def hermitian(self):
        x = self.regular()
        return x + np.conj(np.swapaxes(x, -1, -2))


def reduction(dtypes, dtype=False, **options):
    def recipe(d):
        x = d.array(dtypes, **options)
        kwargs = {"axis": d.axes(x), "keepdims": d.boolean()}
        if dtype:
            kwargs["dtype"] = d.of(None, None, DType("float64"), DType(str(x.dtype)))
            if kwargs["dtype"] and x.dtype.kind == "c" and kwargs["dtype"].name == "float64":
                kwargs["dtype"] = None
        return (x,), kwargs

    return recipe


def running(d):
    x = d.array(NUMERIC, min_dims=1)
    axis = d.axis(x)
    return (x,), {"axis": None if x.ndim == 1 else axis, "include_initial": d.boolean()}


def of_spread(d):
    (x,), kwargs = reduction(FLOATS, min_side=1)(d)
    return (x,), kwargs | {"correction": d.of(0, 1, 0.5)}


def of_extreme_place(d):
    x = d.array(ALL, min_side=1)
    return (x,), {"axis": d.of(None, d.axis(x)), "keepdims": d.boolean()}


def of_order(d):
    x = d.array(ALL, min_dims=1)
    return (x,), {"axis": d.axis(x), "descending": d.boolean(), "stable": True}


def along(dtypes=ALL, **options):
    def recipe(d):
        x = d.array(dtypes, **options)
        return (x,), {"axis": d.axis(x)}

    return recipe


def of_flip(d):
    x = d.array(ALL)
    return (x,), {"axis": d.axes(x)}


def of_roll(d):
    x = d.array(ALL)
    axis = d.axes(x)
    shift = d.integer(-4, 4)
    if isinstance(axis, tuple) and d.boolean():
        shift = tuple(d.integer(-4, 4) for _ in axis)
    return (x, shift), {"axis": axis}


def of_broadcast_to(d):
    x = d.array(ALL)
    shape = d.draw(shapes) if d.boolean() else (*d.draw(shapes), *x.shape)
    return (x, shape[-6:]), {}


def of_concat(d):
    x = d.array(NUMERIC, min_dims=1)
    axis = d.of(None, d.axis(x))
    parts = [x]
    for _ in range(d.integer(0, 2)):
        shape = list(x.shape)
        if axis is not None and -x.ndim <= axis < x.ndim:
            shape[axis] = d.integer(0, 2)
        parts.append(d.array(NUMERIC, tuple(shape)))
    return (parts,), {"axis": axis}


def of_stack(d):
    x = d.array(NUMERIC)
    parts = [x, *(d.array(NUMERIC, x.shape) for _ in range(d.integer(0, 2)))]
    return (parts,), {"axis": d.axis(x)}


def of_moveaxis(d):
    x = d.array(ALL, min_dims=1)
    if d.boolean():
        return (x, d.axis(x), d.axis(x)), {}
    order = d.draw(st.permutations(range(x.ndim)))
    places = d.draw(st.permutations(range(-x.ndim, 0)))
    count = d.integer(0, x.ndim)
    return (x, tuple(order[:count]), tuple(places[:count])), {}


def of_permutation(d):
    x = d.array(ALL)
    return (x, tuple(d.draw(st.permutations(range(x.ndim))))), {}


def of_repeat(d):
    x = d.array(ALL, min_dims=1)
    axis = d.of(None, d.integer(-x.ndim, x.ndim - 1))
    count = x.size if axis is None else x.shape[axis]
    if d.boolean():
        return (x, d.integer(0, 3)), {"axis": axis}
    counts = np.random.default_rng(count).integers(0, 3, d.of(count, 1))
    return (x, counts.astype(d.of("int64", "int32"))), {"axis": axis}


def of_reshape(d):
    x = d.array(ALL)
    sizes = d.of((-1,), (x.size,), (x.size, 1), (*x.shape, 1), (2, -1), (7,))
    return (x, sizes), {"copy": d.of(None, True)}


def of_squeeze(d):
    x = d.array(ALL, min_dims=1, max_side=2)
    axis = d.axes(x)
    return (x, 0 if axis is None else axis), {}


def of_tile(d):
    return (d.array(ALL), tuple(d.draw(st.lists(st.integers(0, 2), max_size=4)))), {}


def of_take(d):
    x = d.array(ALL, min_dims=1, min_side=1)
    axis = d.integer(-x.ndim, x.ndim - 1)
    size = x.shape[axis]
    indices = np.random.default_rng(size).integers(0, size, d.integer(0, 4))
    kwargs = {"axis": axis} if x.ndim > 1 or d.boolean() else {}
    return (x, indices.astype(d.of("int64", "int32", "uint8"))), kwargs


def of_take_along_axis(d):
    x = d.array(ALL, min_dims=1, min_side=1)
    axis = d.integer(-x.ndim, x.ndim - 1)
    shape = list(x.shape)
    shape[axis] = d.integer(0, 4)
    if d.boolean() and x.ndim > 1:
        shape[(axis - 1) % x.ndim] = 1
    indices = np.random.default_rng(len(shape)).integers(0, x.shape[axis], shape)
    return (x, indices), {"axis": axis}


def of_searchsorted(d):
    x1 = np.sort(d.array(REAL, (d.integer(0, 5),)))
    x2 = d.array(REAL)
    kwargs = {"side": d.of("left", "right", "middle")}
    if d.boolean():
        sorter = np.random.default_rng(3).permutation(x1.size)
        unsorted = np.empty_like(x1)
        unsorted[sorter] = x1
        return (unsorted, x2), kwargs | {"sorter": sorter}
    return (x1, x2), kwargs


def of_where(d):
    x1, x2 = d.pair(ALL)
    condition = d.array(("bool", "bool", "int64"), d.of((), x1.shape, x2.shape))
    if d.boolean():
        x1 = d.of(True, 1, 1.5, 2j)
    elif d.boolean():
        x2 = d.of(True, 1, 1.5, 2j)
    return (condition, x1, x2), {}


def of_clip(d):
    x = d.array(ALL)
    low, high = d.of(None, -1, 0), d.of(None, 1, 2)
    if d.boolean():
        low = np.asarray(d.of(0, 1), x.dtype)
    if x.dtype.kind == "u" and isinstance(low, int):
        low = abs(low)
    return (x,), {"min": low, "max": high}


def of_diff(d):
    x = d.array(NUMERIC, min_dims=1, min_side=1)
    axis = d.integer(-x.ndim, x.ndim - 1)
    kwargs = {"axis": axis, "n": d.integer(0, 3)}
    for name in ("prepend", "append"):
        if d.boolean():
            shape = list(x.shape)
            shape[axis] = d.integer(0, 2)
            kwargs[name] = d.array((str(x.dtype),), tuple(shape))
    return (x,), kwargs


def of_matmul(d):
    n, k, m = (d.integer(0, 3) for _ in range(3))
    first, second = d.of((n, k), (k,), (2, n, k), (1, 2, n, k), ()), d.of((k, m), (k,), (2, k, m))
    if d.boolean() and len(second) > 1:
        second = (*second[:-2], second[-2] + 1, second[-1])
    return (d.array(NUMERIC, first), d.array(NUMERIC, second)), {}


def of_tensordot(d):
    x1 = d.array(NUMERIC, min_dims=1)
    count = d.integer(0, min(2, x1.ndim))
    rest = d.draw(hnp.array_shapes(min_dims=0, max_dims=1, max_side=2))
    if d.boolean():
        x2 = d.array(NUMERIC, (*x1.shape[x1.ndim - count :], *rest))
        return (x1, x2), {"axes": count}
    axes = d.draw(st.permutations(range(x1.ndim)))[:count]
    x2 = d.array(NUMERIC, (*rest, *(x1.shape[i] for i in axes)))
    return (x1, x2), {"axes": (axes, list(range(len(rest), len(rest) + count)))}


def of_vecdot(d):
    x1, x2 = d.pair(min_dims=1)
    axis = d.integer(-min(x1.ndim, x2.ndim), -1)
    return (x1, x2), {"axis": axis}


def of_cross(d):
    shape1, shape2 = d.of(((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (4, 3)), ((2,), (2,)))
    axis = -1
    if d.boolean() and len(shape1) == len(shape2):
        axis = -len(shape1)
        shape1, shape2 = shape1[::-1], shape2[::-1]
    return (d.array(NUMERIC, shape1), d.array(NUMERIC, shape2)), {"axis": axis}


def of_diagonal(d):
    return (d.matrices(ALL),), {"offset": d.integer(-4, 4)}


def of_trace(d):
    return (d.matrices(NUMERIC),), {"offset": d.integer(-4, 4)}


def of_outer(d):
    ranks = d.of((1, 1), (1, 1), (1, 1), (2, 1), (0, 1))
    return tuple(d.array(NUMERIC, (2,) * rank) for rank in ranks), {}


def of_solve(d):
    x = d.regular()
    n = x.shape[-1]
    shape = d.of((n,), (n, 2), (2, n, 1), (n + 1,))
    if len(shape) == 3 and x.ndim == 3:
        shape = (x.shape[0], n, 1)
    return (x, d.array((str(x.dtype),), shape)), {}


def of_matrix_power(d):
    return (d.regular(), d.integer(-2, 3)), {}


def of_matrix_norm(d):
    x = d.array(FLOATS + COMPLEX, d.of((2, 3), (3, 2), (2, 2, 2), (1, 1)))
    order = d.of("fro", "nuc", 1, 2, np.inf, -1, -2, -np.inf)
    return (x,), {"ord": order, "keepdims": d.boolean()}


def of_vector_norm(d):
    x = d.array(FLOATS + COMPLEX, min_side=1)
    order = d.of(0, 1, 2, 3, 0.5, -1, -2, np.inf, -np.inf)
    return (x,), {"ord": order, "axis": d.axes(x), "keepdims": d.boolean()}


def of_rank(d):
    return (d.matrices(side=3),), {"rtol": d.of(None, 0.1)}


def of_pinv(d):
    n, m = d.integer(1, 3), d.integer(1, 3)
    return (d.array(FLOATS + COMPLEX, (*d.of((), (2,)), n, m)),), {"rtol": d.of(None, 0.01)}


def of_arange(d):
    kind = d.of(int, float)
    start, stop, step = (kind(d.integer(-5, 5)) for _ in range(3))
    dtype = d.of(None, DType("float32"), DType("int32"))
    return (start, d.of(None, stop), step or 1), {"dtype": dtype}


def of_linspace(d):
    start, stop = d.of((0, 1), (-2.5, 3), (3, -1), (1j, 2), (2, 2))
    dtype = d.of(None, DType("float64" if not isinstance(start, complex) else "complex128"))
    return (start, stop, d.integer(0, 6)), {"dtype": dtype, "endpoint": d.boolean()}


def of_eye(d):
    args = (d.integer(0, 4), d.of(None, d.integer(0, 4)))
    return args, {"k": d.integer(-5, 5), "dtype": d.of(None, *(DType(name) for name in ALL))}


def of_full(d):
    name = d.of("bool", "int8", "uint64", "float32", "complex64")
    value = {"b": True, "i": -3, "u": 7, "f": 1.5, "c": 1 + 2j}[np.dtype(name).kind]
    return (d.of(3, (2, 0), (), (2, 3)), value), {"dtype": d.of(None, DType(name))}


def of_full_like(d):
    x = d.array(ALL)
    value = {"b": True, "i": -3, "u": 7, "f": 1.5, "c": 1 + 2j}[x.dtype.kind]
    return (x, value), {"dtype": d.of(None, DType(str(x.dtype)))}


def of_new(d):
    return (d.of(3, (2, 0), (), (2, 3)),), {"dtype": d.of(None, *(DType(name) for name in ALL))}


def of_like(d):
    return (d.array(ALL),), {"dtype": d.of(None, *(DType(name) for name in ALL))}


def of_triangle(d):
    return (d.array(ALL, min_dims=2),), {"k": d.integer(-4, 4)}


def of_meshgrid(d):
    count = d.integer(0, 3)
    name = d.of(*NUMERIC)
    arrays = [d.array((name,), d.of((), (2,), (3,), (0,))) for _ in range(count)]
    return tuple(arrays), {"indexing": d.of("xy", "ij")}


def of_fft(real=False):
    def recipe(d):
        x = d.array(FLOATS if real else COMPLEX, min_dims=1, min_side=1)
        kwargs = {"n": d.of(None, 1, 2, 5), "axis": d.integer(-x.ndim, x.ndim - 1)}
        if d.boolean():
            kwargs["norm"] = d.of("backward", "ortho", "forward", "other")
        return (x,), kwargs

    return recipe


def of_complex_fft(d):
    (x,), kwargs = of_fft()(d)
    return (x,), {"axis": kwargs["axis"], "n": d.of(2, 3, 5)}


def of_fftn(real=False):
    def recipe(d):
        x = d.array(FLOATS if real else COMPLEX, min_dims=1, min_side=2)
        axes = d.of(None, tuple(range(x.ndim)), (-1,))
        kwargs = {"axes": axes}
        if axes is not None and d.boolean():
            kwargs["s"] = tuple(d.integer(2, 4) for _ in axes)
        return (x,), kwargs

    return recipe


def of_frequencies(d):
    dtype = d.of(None, DType("float64"), DType("int32"))
    return (d.integer(1, 6),), {"d": d.of(1.0, 0.5), "dtype": dtype}


def of_shift(d):
    x = d.array(FLOATS + COMPLEX, min_dims=1)
    return (x,), {"axes": d.of(None, 0, (0,), tuple(range(x.ndim)))}


def one(dtypes, **options):
    return lambda d: ((d.array(dtypes, **options),), {})


def matrices(square=False):
    return lambda d: ((d.matrices(square=square),), {})


RECIPES = {
    "arange": of_arange, "empty": of_new, "empty_like": of_like, "eye": of_eye, "full": of_full,
    "full_like": of_full_like, "linspace": of_linspace, "meshgrid": of_meshgrid, "ones": of_new,
    "ones_like": of_like, "tril": of_triangle, "triu": of_triangle, "zeros": of_new,
    "zeros_like": of_like,
    "clip": of_clip, "take": of_take, "take_along_axis": of_take_along_axis,
    "matmul": of_matmul, "matrix_transpose": one(ALL), "tensordot": of_tensordot,
    "vecdot": of_vecdot,
    "broadcast_arrays": lambda d: (tuple(d.pair(ALL)), {}), "broadcast_to": of_broadcast_to,
    "concat": of_concat, "expand_dims": lambda d: ((x := d.array(ALL), d.axis(x)), {}),
    "flip": of_flip, "moveaxis": of_moveaxis, "permute_dims": of_permutation, "repeat": of_repeat,
    "reshape": of_reshape, "roll": of_roll, "squeeze": of_squeeze, "stack": of_stack,
    "tile": of_tile, "unstack": along(min_dims=1),
    "argmax": of_extreme_place, "argmin": of_extreme_place,
    "count_nonzero": reduction(NUMERIC), "nonzero": one(ALL), "searchsorted": of_searchsorted,
    "where": of_where,
    "unique_all": one(ALL), "unique_counts": one(ALL), "unique_inverse": one(ALL),
    "unique_values": one(ALL),
    "argsort": of_order, "sort": of_order,
    "cumulative_prod": running, "cumulative_sum": running,
    "max": reduction(ALL, min_side=1), "min": reduction(ALL, min_side=1),
    "mean": reduction(ALL, min_side=1), "prod": reduction(ALL, dtype=True),
    "sum": reduction(ALL, dtype=True), "std": of_spread, "var": of_spread,
    "all": reduction(ALL), "any": reduction(ALL), "diff": of_diff,
    "linalg.cholesky": lambda d: ((d.hermitian(),), {"upper": d.boolean()}),
    "linalg.cross": of_cross, "linalg.det": matrices(square=True), "linalg.diagonal": of_diagonal,
    "linalg.eigvalsh": lambda d: ((d.hermitian(),), {}),
    "linalg.inv": lambda d: ((d.regular(),), {}),
    "linalg.matmul": of_matmul, "linalg.matrix_norm": of_matrix_norm,
    "linalg.matrix_power": of_matrix_power, "linalg.matrix_rank": of_rank,
    "linalg.matrix_transpose": one(ALL), "linalg.outer": of_outer, "linalg.pinv": of_pinv,
    "linalg.slogdet": lambda d: ((d.regular(),), {}), "linalg.solve": of_solve,
    "linalg.svdvals": lambda d: ((d.matrices(),), {}), "linalg.tensordot": of_tensordot,
    "linalg.trace": of_trace, "linalg.vecdot": of_vecdot, "linalg.vector_norm": of_vector_norm,
    "fft.fft": of_fft(), "fft.ifft": of_fft(), "fft.fftn": of_fftn(), "fft.ifftn": of_fftn(),
    "fft.rfft": of_fft(real=True), "fft.irfft": of_complex_fft, "fft.rfftn": of_fftn(real=True),
    "fft.irfftn": of_fftn(), "fft.hfft": of_complex_fft, "fft.ihfft": of_fft(real=True),
    "fft.fftfreq": of_frequencies, "fft.rfftfreq": of_frequencies, "fft.fftshift": of_shift,
    "fft.ifftshift": of_shift,
}  # fmt: skip
