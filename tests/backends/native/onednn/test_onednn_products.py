"""Matrix products against NumPy's in float64."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.gemm import products
from adjoint.backends.native.lowering.bound import bound_product
from adjoint.backends.native.lowering.scratch import Scratch
from adjoint.backends.native.onednn import plan as onednn_plan
from adjoint.backends.native.onednn.api import LibraryError
from adjoint.backends.native.runtime.launch_list import LaunchList
from adjoint.core import dispatch_log, policy
from adjoint.core.errors import InvalidArgument, ShapeError
from adjoint.ir import compute
from adjoint.ops.linalg.fully_connected import LINEAR, LINEAR_INPUT, LINEAR_WEIGHT
from adjoint.runtime.dispatch import apply

from .onednn_cases import assert_near, like, matrices, needs_onednn, without_memory, workers  # noqa: F401

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SIZES = (1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 100, 129)


def check(r, a, b, dtype, tolerance):
    a, b = like(a, dtype), like(b, dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bias = activation = out = None
    scale = max(1.0, np.abs(expected).max(initial=0))
    if r.random() < 0.3:
        bias = r.standard_normal(b.shape[-1]).astype(dtype)
        expected = expected + bias.astype(np.float64)
    if r.random() < 0.3:
        activation = str(r.choice(list(products._ACTIVATIONS)))
        expected = products.activated(expected, activation)
    if r.random() < 0.3:
        out = np.empty(expected.shape, dtype)
    found = products.matmul(a, b, out=out, bias=bias, activation=activation)
    assert out is None or found is out
    assert found.dtype == dtype
    assert_near(found, expected, tolerance * scale)  # activations keep errors as they are


@needs_onednn
@pytest.mark.parametrize("seed", range(4))
def test_products_fuzzed(workers, seed, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "PRODUCT_SMALL", 0)
    r = np.random.default_rng(seed)
    for _ in range(250):
        m, k, n = (int(v) for v in r.choice(SIZES, 3))
        if r.random() < 0.03:
            m, k, n = (int(v) for v in r.permutation([0, 5, 40]))
        batch = tuple(int(v) for v in r.integers(1, 4, int(r.integers(0, 4))))
        a, b = matrices(r, batch, m, k), matrices(r, batch, k, n)
        check(r, a, b, np.dtype(np.float32), 6e-6)
        check(r, a, b, BFLOAT16, 1e-2)


@needs_onednn
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((512, 512), (512, 512)),
        ((1, 1024), (1024, 1024)),
        ((1024, 1024), (1024, 1)),
        ((8, 1024), (1024, 1024)),
        ((32, 1024), (1024, 4096)),
        ((4096, 64), (64, 64)),
        ((2, 3, 200, 64), (2, 3, 64, 200)),
        ((2, 300, 100), (100, 120)),
        ((300, 100), (2, 100, 120)),
    ],
)
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_every_way_of_cutting_gives_the_product(workers, left, right, orders):  # noqa: F811
    r = np.random.default_rng(0)
    a, b = (
        r.standard_normal(s if o == "n" else (*s[:-2], s[-1], s[-2]), np.float32)
        for s, o in zip((left, right), orders, strict=True)
    )
    a, b = (x if o == "n" else x.swapaxes(-1, -2) for x, o in zip((a, b), orders, strict=True))
    found = products.matmul(a, b)
    assert_near(found, a.astype(np.float64) @ b.astype(np.float64), 2e-6 * left[-1] ** 0.5)
    assert np.array_equal(found, products.matmul(a, b))  # bit for bit


@needs_onednn
@pytest.mark.parametrize("orders", ["nn", "nt", "tn"])
def test_large_bfloat16_products(workers, orders):  # noqa: F811
    r = np.random.default_rng(0)
    a = r.standard_normal((700, 1000) if orders[0] == "n" else (1000, 700)).astype(BFLOAT16)
    b = r.standard_normal((1000, 900) if orders[1] == "n" else (900, 1000)).astype(BFLOAT16)
    a, b = (x if o == "n" else x.T for x, o in zip((a, b), orders, strict=True))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for bias in (None, np.ones(900, BFLOAT16)):
        found = products.matmul(a, b, bias=bias)
        assert_near(found, expected + (bias is not None), 1e-2)


@needs_onednn
def test_bfloat16_accumulates_in_float32():
    a = np.ones((64, 4096), BFLOAT16)
    b = np.full((4096, 64), 0.00390625, BFLOAT16)
    assert (products.matmul(a, b) == 16).all()  # bfloat16 sums would stop growing at 1


@needs_onednn
def test_bfloat16_uses_the_matrix_units_where_they_are():
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    if "amx_bf16" not in flags:
        pytest.skip("this processor has no AMX")
    a = np.ones((128, 128), BFLOAT16)
    products.matmul(a, a)
    plan = products._plan_of(products.ready_for(a, a).run)
    names = {s.primitive.implementation for c in plan.phases[0] for s in c}
    assert names == {"brg:avx512_core_amx"}


@needs_onednn
def test_the_result_may_overwrite_an_operand():
    r = np.random.default_rng(0)
    a, b = (r.standard_normal((100, 100), np.float32) for _ in range(2))
    expected = products.matmul(a, b)
    assert products.matmul(c := a.copy(), b, out=c) is c
    assert np.array_equal(c, expected)
    whole = np.zeros((100, 200), np.float32)
    products.matmul(a, b, out=whole[:, 50:150])
    assert np.array_equal(whole[:, 50:150], expected)
    assert not whole[:, :50].any()
    assert not whole[:, 150:].any()


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex64, np.float32])
def test_other_dtypes_are_numpys(dtype):
    r = np.random.default_rng(0)
    a, b = (r.integers(-9, 9, (60, 60)).astype(dtype) for _ in range(2))
    assert np.array_equal(products.matmul(a, b), np.matmul(a, b))


def test_errors_name_what_does_not_fit():
    a, b = np.ones((100, 64), np.float32), np.ones((65, 100), np.float32)
    with pytest.raises(ValueError, match=r"\(100, 64\) @ \(65, 100\)"):
        products.matmul(a, b)
    with pytest.raises(InvalidArgument, match="swash"):
        products.matmul(a, a.T, activation="swash")
    with pytest.raises(InvalidArgument, match="swash"):
        products.matmul(a[:2], a[:2].T, activation="swash")
    with pytest.raises(ShapeError, match=r"bias \(3,\)"):
        products.matmul(a, a.T, bias=np.ones(3, np.float32))
    with pytest.raises(ShapeError, match=r"out \(3,\)"):
        products.matmul(a, a.T, out=np.ones(3, np.float32))


def rows_of(kind, shape, seed):
    """The same numbers, lying in memory in several ways."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    if kind == "turned":  # its rows are no matrix without a copy
        return np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
    if kind == "part":
        return np.concatenate([x, x], -1)[..., : shape[-1]]
    return x


@pytest.mark.parametrize("width", [4, 96])  # NumPy's product, and a plan's
def test_a_layers_products_are_launched_with_rows_that_lie_in_any_way(width):
    w = np.random.default_rng(9).standard_normal((width, 64), dtype=np.float32)
    bias = np.arange(width, dtype=np.float32)
    for _ in range(3):
        for kind in ("whole", "turned", "part"):
            x, g = rows_of(kind, (12, 8, 64), 1), rows_of(kind, (12, 8, width), 2)
            for op, arrays, expected in (
                (LINEAR, (x, w), x @ w.T),
                (LINEAR, (x, w, bias), x @ w.T + bias),
                (LINEAR_INPUT, (g, w), g @ w),
                (LINEAR_WEIGHT, (g, x), np.einsum("abn,abk->nk", g, x)),
            ):
                found = apply(op, *map(ad.from_numpy, arrays))
                assert found.shape == expected.shape
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)
    native = compute.accelerate is not None
    keys = (*products._ready.young, *products._ready.fresh)
    assert native == any(library == "linear" for library, *_ in keys)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.bfloat16, ad.float16], ids=str)
def test_operands_that_were_expanded(dtype):
    """A side of one element may have been expanded along the other: so is the gradient of a sum."""
    draw = np.random.default_rng(0)

    def lying(rows, columns):
        x = ad.tensor(draw.standard_normal((rows, columns)).astype(np.float32)).to(dtype)
        yield x
        yield x[:1].expand(rows, columns)
        yield x[:, :1].expand(rows, columns)
        yield x[:1, :1].expand(rows, columns)
        yield x[:1].T.expand(columns, rows).T if columns == 1 or rows == 1 else x.T.contiguous().T

    sizes = ((33, 1, 130), (1, 33, 130), (33, 130, 1), (1, 1, 70), (64, 1, 1), (5, 4, 3))
    for m, k, n in (*sizes, (1, 600, 700), (700, 600, 1), (300, 1, 400)):
        for a, b in itertools.product(lying(m, k), lying(k, n)):
            found = (a @ b).float().numpy()
            wanted = a.float().numpy() @ b.float().numpy()
            tolerance = {"float32": 1e-5, "float64": 1e-5}.get(dtype.name, 2e-2)
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * k)


def test_one_row_under_autocast_has_gradients():
    layer = ad.nn.Linear(130, 33)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        y = layer(x := ad.randn(1, 130)).sum()
    y.backward()
    ad.testing.assert_close(layer.weight.grad, x.expand(33, 130), rtol=1e-2, atol=1e-2)


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_bound_product_without_memory(bias, turned, without_memory, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(dispatch_log, "on", True)
    monkeypatch.setattr(dispatch_log, "_lines", set())
    r = np.random.default_rng(0)
    a = r.standard_normal((16, 1024)).astype(np.float32)
    b = r.standard_normal((256, 1024)).astype(np.float32).T
    b = b if turned else np.ascontiguousarray(b)
    others = [r.standard_normal(256).astype(np.float32)] if bias else []
    out = np.zeros((16, 256), np.float32)
    [call] = bound_product("product", [a, b, *others], out, Scratch())
    assert not call.needs_arrays and not call.fails
    sequence = LaunchList([call, call])
    assert sequence.failing == [False, False]
    sequence()
    assert len(without_memory) >= 2
    exact = a.astype(np.float64) @ b.astype(np.float64) + sum(others)
    assert_near(out, exact, 1e-3)
    moved = -a.copy()
    sequence.moving(a)(moved.ctypes.data)  # where the array lies in another call
    sequence()
    assert_near(out, 2.0 * sum(others) - exact, 1e-3)
    assert "computed by NumPy: oneDNN says out_of_memory" in capsys.readouterr().err


@needs_onednn
def test_a_call_that_nothing_replaces_may_fail(without_memory):  # noqa: F811
    a, b, out = (np.ones(shape, np.float32) for shape in ((16, 1024), (1024, 256), (16, 256)))
    plan, *_ = products._planned(a, b, None, None, ())
    call = plan.call(a, b, out, work=onednn_plan.aligned_bytes(plan.work))
    assert call.fails and not call.needs_arrays
    with pytest.raises(LibraryError, match="out_of_memory"):
        call()
