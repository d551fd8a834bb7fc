"""Calls in orders that PyTorch has deprecated, beside PyTorch's; who else operators ask."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import adjoint as ad

from ..pytorch import torch

CALLS = [
    lambda t, x, y: x.clone().add_(0.5, y),
    lambda t, x, y: x.clone().sub_(2, y),
    lambda t, x, y: x.addcmul(0.5, y, y),
    lambda t, x, y: x.clone().addcmul_(-1, y, y),
    lambda t, x, y: t.addcdiv(x, 2, y, y),
    lambda t, x, y: x.clone().addcdiv_(0.1, y, x),
    lambda t, x, y: t.addmm(2, x, 3, y, y),
    lambda t, x, y: x.addmm(2, y, y),
    lambda t, x, y: x.clone().addmm_(2, 3, y, y),
    lambda t, x, y: t.addmv(0.5, x[0], 2, y, x[1]),
    lambda t, x, y: t.addr(2, x, 3, y[0], y[1]),
    lambda t, x, y: t.baddbmm(2, x[None], 3, y[None], y[None]),
    lambda t, x, y: x.addbmm(2, y[None], y[None]),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("size", [3, 200])
def test_numbers_between_the_tensors(call, size):
    x, y = np.random.default_rng(0).uniform(0.5, 2, (2, size, size))
    with pytest.warns(UserWarning, match="deprecated"):
        found = call(ad, ad.tensor(x), ad.tensor(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = call(torch, torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.clone().add_(0.5, x, alpha=2),
        lambda x: x.addcmul(1, 2, x, x),
        lambda x: x.addmm(1, 2, 3, x, x),
        lambda x: x.addcmul(x, x, 1),
        lambda x: x.clone().mul_(2, x),
    ],
)
def test_other_orders_stay_mistakes(call):
    for t in (ad, torch):
        with pytest.raises(TypeError):
            call(t.ones(2, 2))


class Right(tuple):
    """Says what it was asked."""

    def __radd__(self, other):
        return "right", float(other)

    __rsub__ = __rmul__ = __rtruediv__ = __radd__


@pytest.mark.parametrize("t", [ad, torch])
def test_the_right_side_is_asked_where_it_is_no_tensor(t):
    x = t.tensor(2.0)
    right = Right((1, 2))
    assert [x + right, x - right, x * right, x / right] == [("right", 2.0)] * 4
    for call in (lambda: t.mul(x, right), lambda: x * object(), lambda: x + "a"):
        with pytest.raises(TypeError):
            call()
