"""What a kernel means, in NumPy: the oracle of the fuzz tests; random kernels and arrays.

`python tests/backends/codegen/reference.py 100000` compares that many random calls.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from adjoint.backends.codegen import Compiled, Kernel, KernelValue
from adjoint.backends.codegen.ir import DTYPES, FLOATS, INTEGERS, NARROW, REDUCTIONS, STORAGE

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


NAMES = {
    "neg": np.negative, "not": np.invert, "sub": np.subtract, "mul": np.multiply, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift, "floor_div": np.floor_divide, "mod": np.remainder,
    "round": np.rint, "div": np.divide, "fma": lambda a, b, c: a * b + c,
    "abs": lambda x: x if x.dtype == bool else np.abs(x),
}  # fmt: skip
REDUCERS = {"max": np.max, "min": np.min, "any": np.any, "all": np.all}


def evaluate(kernel: Kernel, arrays: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """The outputs, over an index space of that shape."""
    known: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for v in kernel.values:
            known[v.number] = _value(v, known, arrays, shape)
        return [
            _output(known[o.value.number], o.axes, shape).astype(numpy_dtype(o.dtype))
            for o in kernel.outputs
        ]


def _value(
    v: KernelValue, known: dict[int, Any], arrays: Sequence[Any], shape: Sequence[int]
) -> Any:
    """A value with one dimension per axis of the space, of size 1 where it does not vary."""
    args = [known[x.number] for x in v.inputs]
    rank = len(shape)
    if v.op == "input":
        x = arrays[v.attr[0]].astype(v.dtype)
        places = iter(x.shape)
        return x.reshape([next(places) if a in v.axes else 1 for a in range(rank)])
    if v.op == "const":
        return np.full([1] * rank, v.attr, v.dtype)
    if v.op == "index":
        (axis,) = v.attr
        return np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(rank)])
    if v.op == "size":
        return np.full([1] * rank, np.prod([shape[a] for a in v.attr], dtype=np.int64))
    if v.op == "cast":
        return args[0].astype(numpy_dtype(v.attr[0])).astype(v.dtype)
    if v.op == "where":
        return np.where(*args)
    if v.op in REDUCTIONS:
        over = [shape[a] if a in v.attr else n for a, n in enumerate(args[0].shape)]
        x = np.broadcast_to(args[0], over)
        if v.op in ("sum", "prod"):
            return getattr(np, v.op)(x, axis=v.attr, keepdims=True, dtype=x.dtype)
        return REDUCERS[v.op](x, axis=v.attr, keepdims=True)
    f = NAMES.get(v.op) or getattr(np, v.op)
    return f(*args)


def _output(x: Any, axes: tuple[int, ...], shape: Sequence[int]) -> Any:
    rank = len(shape)
    whole = [shape[a] if a in axes else 1 for a in range(rank)]
    return np.broadcast_to(x, whole).reshape([shape[a] for a in axes])


# Random kernels ----------------------------------------------------------------------------------

ANY = ["maximum", "minimum"]
NUMERIC = ["add", "sub", "mul", "neg", "abs", "sign"]
BITWISE = ["and", "or", "xor", "not"]
INTEGER = ["floor_div", "mod", "shl", "shr"]
FLOATING = ["div", "floor", "ceil", "round", "trunc", "sqrt"]
BINARY = {"add", "sub", "mul", "and", "or", "xor", "maximum", "minimum", "div"} | set(INTEGER)


def random_kernel(rng: np.random.Generator, reduce: bool) -> Kernel:
    """Exact elementwise ops, casts and comparisons, then perhaps a reduction with more after it."""
    rank = int(rng.integers(0 if not reduce else 1, 5))
    k = Kernel(rank)
    dtype = str(rng.choice(DTYPES))
    values = []
    for _ in range(int(rng.integers(1, 4))):
        values.append(k.input(str(rng.choice([dtype, *STORAGE]))))
    for _ in range(int(rng.integers(1, 6))):
        values.append(_random_op(k, rng, values))
    axes = tuple(a for a in range(rank) if rng.random() < 0.5) or ((0,) if rank else ())
    if reduce:
        x = values[-1]
        allowed = [op for op, dtypes in REDUCTIONS.items() if x.dtype in dtypes]
        if x.dtype in FLOATS:  # sums and products depend on the order
            allowed = ["max", "min"]
        result = k.reduce(str(rng.choice(allowed)), x, axes)
        k.output(result)
        if rng.random() < 0.5:
            k.output(k.maximum(x, result))
    else:
        k.output(values[-1])
        if rng.random() < 0.3:
            k.output(values[0])
    return k


def _random_op(k: Kernel, rng: np.random.Generator, values: list[KernelValue]) -> KernelValue:
    x = values[int(rng.integers(len(values)))]
    if rng.random() < 0.2:
        sources = [d for d in STORAGE if x.dtype not in FLOATS or d in FLOATS + NARROW + ("bool",)]
        return k.cast(x, str(rng.choice(sources)))
    like = [v for v in values if v.dtype == x.dtype]
    y = like[int(rng.integers(len(like)))]
    if rng.random() < 0.2:
        condition = k.op(str(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"])), x, y)
        return k.where(condition, x, y)
    ops = list(ANY)
    ops += NUMERIC if x.dtype != "bool" else []
    ops += FLOATING if x.dtype in FLOATS else BITWISE
    ops += INTEGER if x.dtype in INTEGERS else []
    op = str(rng.choice(ops))
    return k.op(op, x, y) if op in BINARY else k.op(op, x)


def random_shape(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    most = {0: 1, 1: 300, 2: 40, 3: 12, 4: 7}[rank]
    sizes = rng.integers(1, most + 1, rank)
    sizes[rng.random(rank) < 0.15] = 1
    sizes[rng.random(rank) < 0.03] = 0
    return tuple(int(n) for n in sizes)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Any strides: transposed, stepped, reversed, broadcast, unaligned."""
    kind = numpy_dtype(dtype)
    rank = len(shape)
    order = rng.permutation(rank) if rng.random() < 0.4 else np.arange(rank)
    steps = rng.integers(1, 3, rank) if rng.random() < 0.3 else np.ones(rank, int)
    lying = [int(shape[a]) * int(steps[a]) for a in order]
    count = int(np.prod(lying)) if rank else 1
    memory = rng.integers(0, 256, count * kind.itemsize + 8, dtype=np.uint8)
    start = int(rng.integers(0, 8)) if rng.random() < 0.3 else 0
    flat = memory[start : start + count * kind.itemsize].view(kind)
    if dtype == "bool":
        flat[:] = rng.random(count) < 0.5
    elif rng.random() < 0.8 or dtype in NARROW:
        flat[:] = rng.integers(-9 if dtype[0] != "u" else 0, 10, count).astype(kind)
    if not rank:
        return flat.reshape(())
    x = flat.reshape(lying).transpose(np.argsort(order))
    x = x[tuple(slice(None, None, int(s)) for s in steps)]
    if rng.random() < 0.3:
        x = x[tuple(slice(None, None, -1 if rng.random() < 0.5 else 1) for _ in shape)]
    if rng.random() < 0.3 and 0 not in shape:
        x = x[tuple(slice(0, 1) if rng.random() < 0.4 else slice(None) for _ in shape)]
        if rng.random() < 0.3:
            x = np.broadcast_to(x, shape)
    return x


def assert_same(kernel: Kernel, got: Any, arrays: Sequence[Any], shape: tuple[int, ...]) -> None:
    """Equal but for the bits of NaNs and the signs of zeros that a maximum may choose."""
    results = got if isinstance(got, tuple) else (got,)
    for x, y in zip(results, evaluate(kernel, arrays, shape), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        wide = x.dtype.kind == "V" or x.dtype == BFLOAT16
        a, b = (x.astype(np.float32), y.astype(np.float32)) if wide else (x, y)
        np.testing.assert_array_equal(a, b, err_msg=f"{kernel}\n{[a.strides for a in arrays]}")


def compare(rng: np.random.Generator, kernel: Kernel, calls: int) -> None:
    """Calls one kernel with random arrays."""
    f = Compiled(kernel)
    for _ in range(calls):
        shape = random_shape(rng, kernel.rank)
        if kernel.reduced and 0 in shape:
            shape = tuple(max(n, 1) for n in shape)
        arrays = [random_array(rng, shape, v.attr[1]) for v in kernel.inputs]
        assert_same(kernel, f(*arrays, shape=shape), arrays, shape)


if __name__ == "__main__":
    generator = np.random.default_rng(1)
    for number in range(int(sys.argv[1]) // 100):
        compare(generator, random_kernel(generator, number % 2 == 1), 100)
    print(f"{int(sys.argv[1])} calls agree")
