"""The matrix product that machine code calls."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.codegen import target
from adjoint.backends.native.gemm import gemm, products
from adjoint.backends.native.gemm import gemm_code as gemm_code
from adjoint.backends.native.runtime.pool import Pool
from adjoint.ir import compute

pytestmark = pytest.mark.skipif(gemm.address() is None, reason="no product is generated here")

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p
_SCALARS = {"float32": ctypes.c_float, "float64": ctypes.c_double}
_TOLERANCES = {"float32": 1e-4, "float64": 1e-12}


def _gemm(dtype, address=None):
    scalar = _SCALARS[dtype]
    address = address or gemm.address(dtype)
    return ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char, ctypes.c_char, _INT, _INT, _INT, scalar, _POINTER, _INT,
        _POINTER, _INT, scalar, _POINTER, _INT,
    )(address)  # fmt: skip


def _check(dtype, transposes, sizes, alpha, beta, gap=3, address=None):
    """The product of parts of larger matrices; what lies beside the result stays as it was."""
    m, k, n = sizes
    draw = np.random.default_rng(7)
    shapes = [
        (rows, columns) if t == "N" else (columns, rows)
        for t, rows, columns in zip(transposes, (m, k), (k, n), strict=True)
    ]
    a, b = (draw.standard_normal((r, c + gap)).astype(dtype) for r, c in shapes)
    c = draw.standard_normal((m, n + gap)).astype(dtype)
    op = [
        x[:, :-gap] if t == "N" else x[:, :-gap].T for t, x in zip(transposes, (a, b), strict=True)
    ]
    expected = c.copy()
    product = op[0].astype(np.float64) @ op[1]
    expected[:, :-gap] = alpha * product + (beta * c[:, :-gap] if beta else 0)
    if beta == 0:
        c[:, :-gap] = np.nan  # not read
    left, right = transposes.encode()
    status = _gemm(dtype, address)(
        left, right, m, n, k, alpha, a.ctypes.data, a.shape[1], b.ctypes.data, b.shape[1], beta,
        c.ctypes.data, c.shape[1],
    )  # fmt: skip
    assert status == 0
    tolerance = _TOLERANCES[dtype] * max(1, k) ** 0.5
    np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance)
    assert np.array_equal(c[:, -gap:], expected[:, -gap:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposes", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (2.0, 1.0), (-1.0, 0.5)])
def test_every_tile(dtype, transposes, weights):
    for sizes in [(1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 17, 65), (1, 64, 300), (15, 2, 97)]:
        _check(dtype, transposes, sizes, *weights)
    for n in range(1, 50):
        _check(dtype, transposes, (n % 17 + 1, 3, n), *weights)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposes", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    "sizes",
    [
        (64, 600, 200),  # several blocks of k; few rows: the transpose of the result
        (100, 300, 1030),
        (530, 270, 260),  # several bands of rows, and a is copied
        (600, 40, 50),
        (9, 700, 1024),
    ],
)
def test_every_way_of_blocking(dtype, transposes, sizes):
    _check(dtype, transposes, sizes, 1.0, 0.0)
    _check(dtype, transposes, sizes, 1.0, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_to_sum_gives_zeros_or_what_was_there(dtype):
    for beta in (0.0, 2.0):
        _check(dtype, "NN", (20, 0, 30), 1.0, beta)
    _check(dtype, "NN", (0, 4, 30), 1.0, 0.0)
    _check(dtype, "NN", (4, 5, 0), 1.0, 0.0)


def test_rows_do_not_depend_on_what_else_is_computed():
    draw = np.random.default_rng(3)
    a, b = draw.standard_normal((200, 600), np.float32), draw.standard_normal((600, 90), np.float32)

    def product(rows):
        c = np.empty((rows, 90), np.float32)
        _gemm("float32")(
            b"N", b"N", rows, 90, 600, 1.0, a.ctypes.data, 600, b.ctypes.data, 90, 0.0,
            c.ctypes.data, 90,
        )  # fmt: skip
        return c

    assert np.array_equal(product(13), product(40)[:13])  # both are generated code's


def test_a_plan_adds_the_bias_and_shares_out_tasks():
    draw = np.random.default_rng(5)
    a = draw.standard_normal((40, 70), np.float32)
    b = draw.standard_normal((70, 33), np.float32)
    bias = draw.standard_normal(33, np.float32)
    shapes = [gemm.Shape(24, 33, 70, 70, 1, 33, 1, 33), gemm.Shape(16, 33, 70, 70, 1, 33, 1, 33)]
    tasks = [[0, 0, 0, 0, 0], [1, 24 * 70 * 4, 0, 24 * 33 * 4, 0]]
    with Pool(2) as pool:
        for shared in (None, pool):
            c = np.full((40, 33), np.nan, np.float32)
            gemm.GemmPlan(a.dtype, shapes, tasks, shared).run(a, b, c, bias)
            np.testing.assert_allclose(c, a @ b + bias, rtol=1e-4, atol=1e-4)
            gemm.GemmPlan(a.dtype, shapes, tasks, shared).run(a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_in_many_threads_and_in_a_forked_child():
    draw = np.random.default_rng(1)
    a, b = (draw.standard_normal((150, 150), np.float32) for _ in range(2))
    expected = products.matmul(a, b)

    def work(_):
        return all(np.array_equal(products.matmul(a, b), expected) for _ in range(30))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
    child = os.fork()
    if child == 0:
        os._exit(0 if work(None) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("sizes", [(30, 40, 50), (90, 400, 300), (200, 210, 220)])
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bias_whichever_way_is_taken(sizes, orders, dtype):
    m, k, n = sizes
    draw = np.random.default_rng(2)
    a, b = (
        draw.standard_normal(shape if order == "n" else shape[::-1]).astype(dtype)
        for shape, order in zip(((m, k), (k, n)), orders, strict=True)
    )
    a, b = (x if order == "n" else x.T for x, order in zip((a, b), orders, strict=True))
    bias = draw.standard_normal(n).astype(dtype)
    expected = a.astype(np.float64) @ b + bias
    tolerance = _TOLERANCES[dtype] * 10
    for _ in range(2):  # planned, then remembered
        found = products.matmul(a, b, bias=bias)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(not target.host().has("avx2"), reason="no x86-64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_the_registers_of_avx2(dtype):
    narrow = target.Target(target.host().triple, "haswell", "+avx,+avx2,+fma")
    symbol = f"haswell.{dtype}"
    element = {"float32": "float", "float64": "double"}[dtype]
    code = narrow.compile(gemm_code.text(narrow, element, symbol))
    [address] = target.load(code, f"{symbol}.gemm")
    for transposes in ("NN", "NT", "TN", "TT"):
        for sizes in [(1, 1, 1), (13, 21, 30), (70, 400, 300), (300, 20, 33), (530, 270, 260)]:
            _check(dtype, transposes, sizes, 1.0, 0.0, address=address)
            _check(dtype, transposes, sizes, 2.0, 0.5, address=address)


@pytest.mark.parametrize("sizes", [(3, 4), (8, 8), (65, 33), (512, 300)])
def test_a_layer_of_a_vector_is_that_of_its_row_whichever_came_first(sizes):
    inputs, outputs = sizes
    numbers = np.random.default_rng(0)
    x, w, b = (
        ad.tensor(numbers.standard_normal(shape).astype(np.float32))
        for shape in ((inputs,), (outputs, inputs), (outputs,))
    )
    found = []
    for first in (x, x.view(1, -1)):
        compute.forget()
        products._ready.clear()
        for _ in range(2):
            ad.linear(first, w, b)
        found += [ad.linear(x, w, b) for _ in range(3)]
    assert all(y.tolist() == found[0].tolist() for y in found)


@pytest.mark.skipif(not target.host().has("avx2"), reason="no x86-64")
@pytest.mark.parametrize(
    ("features", "rows", "in_loop"),
    [("+avx,+avx2,+fma", 4, 0), ("+avx2,+fma,+avx512f,+avx512dq,+avx512bw", 8, 1)],
)
def test_the_loop_over_k_masks_only_where_masks_have_registers(features, rows, in_loop):
    text = gemm_code.text(target.Target("", "", features), "float", "any")
    tile = text.split(f"@.tiles{rows}x3c(")[1].split("\n}")[0]
    # c's last vectors and the bias's, where they are added; and b's in the loop.
    assert tile.count("@llvm.masked.load") == rows + 1 + in_loop


def test_products_are_cut_for_the_number_of_threads_of_now(monkeypatch):
    a = ad.randn(281, 281)  # a size that no other test has
    made = []

    class Plan(gemm.GemmPlan):
        def launcher(self, given, c):
            made.append(len(self._tasks))
            return super().launcher(given, c)

    monkeypatch.setattr(gemm, "GemmPlan", Plan)
    before = ad.get_num_threads()
    try:
        for threads in (1, 2, 1):
            ad.set_num_threads(threads)
            for _ in range(3):
                a @ a
    finally:
        ad.set_num_threads(before)
    assert len(made) == 3  # one launcher for each
    assert made[0] == made[2] < made[1]
