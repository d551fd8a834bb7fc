"""The matrix product that machine code calls."""

import ctypes

import numpy as np
import pytest

from adjoint.backends.native import gemm

pytestmark = pytest.mark.skipif(gemm.address() is None, reason="no library has a product here")

_INT, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


def _sgemm():
    return ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char, ctypes.c_char, _INT, _INT, _INT, _FLOAT, _POINTER, _INT,
        _POINTER, _INT, _FLOAT, _POINTER, _INT,
    )(gemm.address())  # fmt: skip


@pytest.mark.parametrize("transposes", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 17, 65), (64, 130, 200), (1, 64, 300)]
)
@pytest.mark.parametrize("weights", [(1.0, 0.0), (2.0, 1.0), (-1.0, 0.5)])
def test_product_of_parts_of_matrices(transposes, sizes, weights):
    m, k, n = sizes
    alpha, beta = weights
    draw = np.random.default_rng(7)
    gap = 3
    shapes = [
        (rows, columns) if t == "N" else (columns, rows)
        for t, rows, columns in zip(transposes, (m, k), (k, n), strict=True)
    ]
    a, b = (draw.standard_normal((r, c + gap), np.float32) for r, c in shapes)
    c = draw.standard_normal((m, n + gap), np.float32)
    op = [
        x[:, :-gap] if t == "N" else x[:, :-gap].T for t, x in zip(transposes, (a, b), strict=True)
    ]
    expected = c.copy()
    expected[:, :-gap] = alpha * (op[0].astype(np.float64) @ op[1]) + beta * c[:, :-gap]
    if beta == 0:
        c[:, :-gap] = np.nan  # not read
    left, right = transposes.encode()
    status = _sgemm()(
        left, right, m, n, k, alpha, a.ctypes.data, a.shape[1], b.ctypes.data, b.shape[1], beta,
        c.ctypes.data, c.shape[1],
    )  # fmt: skip
    assert status == 0
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(c[:, -gap:], expected[:, -gap:])
