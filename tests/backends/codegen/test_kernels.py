"""Compiled kernels against NumPy."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.codegen.analysis import Analysis
from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError

from ...sweep import first_of_each
from .reference import assert_same, compare, random_kernel


@pytest.mark.parametrize("seed", first_of_each(lambda seed: seed % 2, range(24), count=4))
def test_random_kernels_agree_with_numpy(seed):
    rng = np.random.default_rng(seed)
    compare(rng, random_kernel(rng, reduce=seed % 2 == 1), calls=25)


def one(f, dtype="float32", rank=1, inputs=1):
    k = Kernel(rank)
    k.output(f(k, *(k.input(dtype) for _ in range(inputs))))
    return Compiled(k)


def choosing(k, x):
    """Costly choices, one inside another, that share a value with each other and the outside."""
    shared = k.exp(x)
    inner = k.where(x < -2.0, k.pow(k.abs(x), shared), k.tan(x) * k.sin(k.cos(x)))
    return k.where(x > 0.0, k.log(x) + k.erf(shared) * k.tan(x), inner) + shared


def test_a_result_does_not_depend_on_what_its_neighbours_choose():
    f = one(choosing)
    x = np.random.default_rng(0).normal(-1, 2, 1001).astype(np.float32)
    for values in (x, np.abs(x), -np.abs(x), np.abs(x) - 9, x[:5]):
        alone = [f(np.full(3, v, np.float32))[1] for v in values[:40]]
        np.testing.assert_array_equal(f(values)[:40], alone)
    strided = np.repeat(x, 3)[::3]
    np.testing.assert_array_equal(f(strided), f(x))


def test_what_one_choice_alone_needs_is_a_branch():
    k = Kernel(rank=1)
    x = k.input("float32")
    k.output(choosing(k, x))
    branches = Analysis(k).branches(0, {})
    values = [v for branch in branches.values() for v in branch]
    assert [len(branches), len({v.number for v in values})] == [4, len(values)]
    assert {v.op for v in values} >= {"pow", "sin", "cos", "log", "erf"}
    assert not {"exp", "tan"} & {v.op for v in values}
    k = Kernel(rank=1)
    x = k.input("float32")
    k.output(k.where(x > 0.0, x, k.expm1(x)))  # too little for a branch
    assert not Analysis(k).branches(0, {})


def test_branches_within_reductions():
    x = np.random.default_rng(0).normal(0, 2, (7, 130)).astype(np.float32)
    f = one(choosing, rank=2)(x)
    for axes in ((0,), (1,), (0, 1)):
        got = one(lambda k, v, axes=axes: k.max(choosing(k, v), axes=axes), rank=2)(x)
        np.testing.assert_array_equal(got, f.max(axes))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integer_division_of_all_signs_zero_and_the_least(dtype):
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max], dtype)
    if info.min:
        edges = np.concatenate([edges, np.array([-1, -2, -7], dtype)])
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        for op, f in (
            ("floor_div", np.floor_divide),
            ("mod", np.remainder),
            ("fmod", np.fmod),
            ("shl", np.left_shift),
            ("shr", np.right_shift),
        ):
            got = one(lambda k, a, b, op=op: k.op(op, a, b), dtype, inputs=2)(x, y)
            np.testing.assert_array_equal(got, f(x, y), err_msg=op)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_edges(dtype):
    edges = np.array(
        [0.0, -0.0, 1, -1, 2.5, -2.5, 3.5, 0.5, -0.5, 1e30, np.inf, -np.inf, np.nan, 1e-40], dtype
    )
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    binary = {
        "maximum": np.maximum, "minimum": np.minimum, "floor_div": np.floor_divide,
        "mod": np.remainder, "fmod": np.fmod, "copysign": np.copysign, "div": np.divide,
        "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    }  # fmt: skip
    unary = {
        "round": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "sign": np.sign,
        "abs": np.abs, "neg": np.negative, "isnan": np.isnan, "isinf": np.isinf,
        "isfinite": np.isfinite, "sqrt": np.sqrt, "reciprocal": np.reciprocal,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for op, f in binary.items():
            got = one(lambda k, a, b, op=op: k.op(op, a, b), dtype, inputs=2)(x, y)
            np.testing.assert_array_equal(got, f(x, y), err_msg=op)
        for op, f in unary.items():
            got = one(lambda k, a, op=op: k.op(op, a), dtype)(edges)
            np.testing.assert_array_equal(got, f(edges), err_msg=op)
            if got.dtype != bool and op != "sign":
                np.testing.assert_array_equal(np.signbit(got[:-2]), np.signbit(f(edges)[:-2]), op)


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_narrow_floats_round_to_nearest_even_with_specials(narrow):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = np.concatenate(
        [bits.view(np.float32), np.float32([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65520, 1e-8])]
    )
    k = Kernel(rank=1)
    v = k.input("float32")
    k.output(v, "float32")
    k.output(k.cast(v, narrow), narrow)
    copy, rounded = Compiled(k)(x)
    np.testing.assert_array_equal(copy, x)
    with np.errstate(all="ignore"):
        wanted = x.astype(rounded.dtype)
    np.testing.assert_array_equal(rounded.astype(np.float32), wanted.astype(np.float32))
    back = Kernel(rank=1)
    back.output(back.input(narrow))
    every = np.arange(1 << 16, dtype=np.uint16).view(rounded.dtype)
    np.testing.assert_array_equal(Compiled(back)(every), every.astype(np.float32))


def test_float64_is_rounded_to_float16_once():
    """As by NumPy; by way of float32, what lies just beside a middle would be moved to it."""
    every = np.arange(0x7BFF, dtype=np.uint16)
    low, high = (x.view(np.float16).astype(np.float64) for x in (every, every + np.uint16(1)))
    middle = (low + high) / 2
    x = [middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9), 65520 - 2.0**-37, 65520.0]
    x = np.concatenate([*map(np.atleast_1d, x), [1e300, 5e-324, np.inf, 0.0, np.nan]])
    x = np.concatenate([x, -x])
    k = Kernel(rank=1)
    k.output(k.cast(k.input("float64"), "float16"), "float16")
    rounded = Compiled(k)(x)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(rounded, wanted)
    np.testing.assert_array_equal(np.signbit(rounded), np.signbit(wanted))


def test_softmax_layer_norm_and_cross_entropy_rows_are_one_kernel_each():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 3, 129), dtype=np.float32)
    for axis in range(3):
        k = Kernel(rank=3)
        v = k.input("float32")
        e = k.exp(v - k.max(v, axes=(axis,)))
        k.output(e / k.sum(e, axes=(axis,)))
        mean = k.mean(v, axes=(axis,))
        centred = v - mean
        k.output(centred * k.rsqrt(k.mean(centred * centred, axes=(axis,)) + 1e-5))
        k.output(mean)
        soft, norm, means = Compiled(k)(x)
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis, keepdims=True))
        np.testing.assert_allclose(soft, e / e.sum(axis, keepdims=True), rtol=2e-6)
        wanted = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(
            wide.var(axis, keepdims=True) + 1e-5
        )
        np.testing.assert_allclose(norm, wanted, atol=2e-6)
        np.testing.assert_allclose(means, wide.mean(axis), atol=1e-7)
    k = Kernel(rank=2)
    scores, target = k.input("float32"), k.input("int64", axes=(0,))
    top = k.max(scores, axes=(1,))
    picked = k.sum(k.where(k.eq(k.index(1), target), scores - top, 0.0), axes=(1,))
    k.output(k.log(k.sum(k.exp(scores - top), axes=(1,))) - picked)
    y = x.reshape(21, 129)
    labels = rng.integers(0, 129, 21)
    log_sum = np.log(np.exp(y.astype(np.float64)).sum(1))
    np.testing.assert_allclose(
        Compiled(k)(y, labels), log_sum - y[np.arange(21), labels], rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "float64"])
def test_argmax_and_argmin_take_the_first_and_nan(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, (30, 70)).astype(dtype)
    if dtype.startswith("float"):
        x[3, 40] = x[3, 60] = x[5, 0] = np.nan
    for axis in (0, 1):
        k = Kernel(rank=2)
        v = k.input(dtype)
        k.output(k.argmax(v, axis))
        k.output(k.argmin(v, axis))
        high, low = Compiled(k)(x)
        np.testing.assert_array_equal(high, x.argmax(axis))
        np.testing.assert_array_equal(low, x.argmin(axis))


def test_scalars_sizes_and_indices():
    k = Kernel(rank=2)
    x, rate, steps = k.input("float32"), k.scalar("float32"), k.scalar("int64")
    place = k.index(0) * k.size((1,)) + k.index(1)
    k.output(x * rate)
    k.output(place + steps)
    f = Compiled(k)
    x = np.ones((5, 33), np.float32)
    for rate in (0.1, -2.0):
        scaled, places = f(x, scalars=(rate, -3))
        np.testing.assert_array_equal(scaled, np.float32(rate) * x)
        np.testing.assert_array_equal(places, np.arange(165).reshape(5, 33) - 3)
    np.testing.assert_array_equal(f(x.T, scalars=(1, 0))[1], np.arange(165).reshape(33, 5))


def test_outputs_lie_in_memory_like_the_inputs():
    f = one(lambda k, x: -x, rank=3)
    x = np.zeros((2, 3, 4), np.float32)
    assert f(x).flags.c_contiguous
    assert f(x.T).flags.f_contiguous
    assert f(x.transpose(1, 0, 2)).strides == x.transpose(1, 0, 2).strides


def test_a_kernel_without_inputs_fills_what_it_is_given():
    k = Kernel(rank=2)
    k.output(k.index(1) * 2)
    assert Compiled(k)(shape=(2, 3)).tolist() == [[0, 2, 4], [0, 2, 4]]
    out = np.empty((3, 2), np.int64)
    assert Compiled(k)(out=out) is out
    assert out.tolist() == [[0, 2]] * 3


def test_changing_sizes_does_not_compile_again():
    from adjoint.backends.codegen import run

    f = one(lambda k, x, y: x * y - y, rank=2, inputs=2)
    a = np.ones((8, 50), np.float32)
    f(a, a)
    before = len(run._codes)
    for shape in [(1, 50), (64, 50), (7, 1000), (300, 300)]:
        a = np.ones(shape, np.float32)
        assert f(a, a).shape == shape
    assert len(run._codes) == before


def test_refuses_arrays_that_do_not_fit():
    f = one(lambda k, x, y: x + y, rank=2, inputs=2)
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(DTypeError, match="input 1 is float64, not float32"):
        f(x, x.astype(np.float64))
    with pytest.raises(DTypeError, match="is >f4"):
        f(x, x.astype(">f4"))
    with pytest.raises(ShapeError, match=r"\(3, 4\), \(4, 3\) do not broadcast"):
        f(x, x.T)
    with pytest.raises(ShapeError, match="needs 2 dimensions"):
        f(x, x[0])
    with pytest.raises(InvalidArgument, match="takes 2 arrays, not 1"):
        f(x)
    with pytest.raises(InvalidArgument, match="takes 0 scalars, not 1"):
        f(x, x, scalars=(1,))
    with pytest.raises(ShapeError, match=r"output 0 has shape \(1, 4\), not \(3, 4\)"):
        f(x, x, out=np.zeros((1, 4), np.float32))
    with pytest.raises(DTypeError, match="output 0 is int32"):
        f(x, x, out=np.zeros((3, 4), np.int32))
    frozen = np.zeros((3, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InvalidArgument, match="cannot be written"):
        f(x, x, out=frozen)
    one_row = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
    with pytest.raises(InvalidArgument, match="cannot be written"):
        f(x, x, out=one_row)


def test_the_oracle_notices_a_wrong_result():
    k = Kernel(rank=1)
    k.output(k.input("int32") + 1)
    x = np.arange(5, dtype=np.int32)
    with pytest.raises(AssertionError):
        assert_same(k, x, [x], (5,))


def test_python_threads_may_compile_and_call_at_once():
    shared = [one(lambda k, x, n=n: x * n + k.sin(x), rank=2) for n in range(5)]
    x = np.random.default_rng(0).standard_normal((40, 50), dtype=np.float32)
    wrong = []

    def work(part):
        for size in range(1, 40):
            for n, f in enumerate(shared):
                y = x[: size + part]
                if not np.allclose(f(y), y * n + np.sin(y), atol=1e-6):
                    wrong.append((part, size, n))

    workers = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_compiles_and_calls():
    code = (
        "import os, numpy as np\n"
        "from tests.backends.codegen.test_kernels import one\n"
        "x = np.arange(5, dtype=np.float32)\n"
        "f = one(lambda k, x: x + 7); f(x)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    new = one(lambda k, x: x * 9 - 4)\n"
        "    os._exit(0 if (new(x) == x * 9 - 4).all() and (f(x) == x + 7).all() else 3)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sums_that_are_taken_apart_keep_the_extent_of_outputs() -> None:
    """A value that is the same along the reduced axis may be wanted at each place of it."""
    kernel = Kernel(rank=1)
    x, w = kernel.input("float64", (0,)), kernel.input("float64", ())
    total = kernel.sum(x, axes=(0,))
    kernel.output(kernel.sum(x * total, axes=(0,)) * w, full=True)
    numbers, factor = np.arange(6.0), np.float64(0.5)
    found = Compiled(kernel)(numbers, np.asarray(factor))
    np.testing.assert_array_equal(found, np.full(6, 15.0 * 15.0 * 0.5), strict=True)
