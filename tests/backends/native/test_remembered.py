"""Small calls go straight to what computed them the first time, however their operands lie; and
give what the first call gave.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint.ir import compute
from adjoint.runtime import dispatch
from tests.native import needs_native

pytestmark = needs_native


def matrix(draw, way, rows, columns, dtype):
    """A matrix that lies in memory in one of many ways."""
    whole = ad.from_numpy(draw.standard_normal((2 * rows, 2 * columns)).astype(dtype))
    return {
        "by rows": lambda: whole[:rows, :columns].clone(memory_format=ad.contiguous_format),
        "by columns": lambda: whole[:rows, :columns].t().contiguous().t(),
        "part": lambda: whole[:rows, 1 : columns + 1],
        "gaps": lambda: whole[:rows, ::2],
        "gaps in both": lambda: whole[::2, ::2],
        "expanded": lambda: whole[:1, :1].expand(rows, columns),
    }[way]().detach()


WAYS = ("by rows", "by columns", "part", "gaps", "gaps in both", "expanded")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 4, 5), (7, 16, 9), (64, 32, 48)])
def test_products_of_matrices_that_lie_in_any_way(sizes, dtype):
    """With copies of operands or without, three times the same, gradients too."""
    draw = np.random.default_rng(0)
    linear = ad.nn.functional.linear
    m, k, n = sizes
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    for first, second in itertools.product(WAYS, WAYS):
        x, w = matrix(draw, first, m, k, dtype), matrix(draw, second, n, k, dtype)
        v = matrix(draw, second, k, n, dtype)
        bias = ad.from_numpy(draw.standard_normal(n).astype(dtype))
        ones = np.ones((m, n), dtype)
        for right, called, expected in (
            (w, linear, x.numpy() @ w.numpy().T),
            (w, functools.partial(linear, bias=bias), x.numpy() @ w.numpy().T + bias.numpy()),
            (v, ad.matmul, x.numpy() @ v.numpy()),
        ):
            a, b = x.detach().requires_grad_(), right.detach().requires_grad_()
            flat = right.numpy() if right is w else right.numpy().T
            for _ in range(3):
                y = called(a, b)
                by_a, by_b = ad.autograd.grad(y.sum(), (a, b))
                np.testing.assert_allclose(y.detach().numpy(), expected, **near)
                np.testing.assert_allclose(by_a.numpy(), ones @ flat, **near)
                by_b = by_b.numpy() if right is w else by_b.numpy().T
                np.testing.assert_allclose(by_b, ones.T @ x.numpy(), **near)
                with ad.no_grad():
                    np.testing.assert_allclose(called(x, right).numpy(), expected, **near)


CALLS = {
    "add": lambda x, y: x + y, "number": lambda x, y: x * 2.5, "exp": lambda x, y: x.exp(),
    "softmax": lambda x, y: x.softmax(0), "where": lambda x, y: ad.where(x > y, x, y),
    "std": lambda x, y: ad.stack(list(ad.std_mean(x, 0))), "amax": lambda x, y: x.amax(-1),
    "gelu": lambda x, y: ad.nn.functional.gelu(x), "kept": lambda x, y: (x + y).sum(0, True),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_results_lie_as_the_first_one_and_nothing_is_looked_up_again(name, monkeypatch):
    asked = []

    def counted(op, arrays):
        asked.append(op.name)
        return first(op, arrays)

    first = compute.compute_anew
    draw = np.random.default_rng(0)
    orders = list(itertools.permutations(range(3)))
    for shape in [(4, 3, 5), (1, 3, 5), (4, 1, 1), (0, 3, 2)]:
        values = [ad.from_numpy(draw.standard_normal(shape).astype("float32")) for _ in range(2)]
        for order in orders:
            back = [order.index(d) for d in range(3)]
            x, y = (v.permute(*order).contiguous().permute(*back).requires_grad_() for v in values)
            expected = CALLS[name](*values)
            found, gradients = [], []
            for k in range(4):
                with monkeypatch.context() as patched:
                    if k == 3:
                        patched.setattr(compute, "compute_anew", counted)
                        patched.setattr(dispatch, "compute_anew", counted)
                    result = CALLS[name](x, y)
                found.append(result)
                gradients.append(ad.autograd.grad(result.sum(), x)[0])
            for result, gradient in zip(found, gradients, strict=True):
                np.testing.assert_allclose(result.detach().numpy(), expected.numpy(), rtol=1e-5)
                assert result.stride() == found[0].stride()
                np.testing.assert_array_equal(gradient.numpy(), gradients[0].numpy())
            assert not found[-1].numel() or not asked, (order, asked)


def test_results_of_another_order_own_their_memory():
    x = ad.ones(4, 3).t()
    for _ in range(3):
        y = x + x
    assert y.stride() == (1, 3)
    assert y.untyped_storage().nbytes() == 48
    y.view(3, 4)[0] = 5  # a view of it, which is written
    assert y.tolist() == [[5.0] * 4, [2.0] * 4, [2.0] * 4]
