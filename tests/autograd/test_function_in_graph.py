"""Custom Functions inside a Graph: recorded from operations, or run as a whole."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import AutogradError


class Cube(ad.autograd.Function):
    """Made of operations; saves its input and its output."""

    @staticmethod
    def forward(ctx, x):
        y = x * x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 3 * y / x


class NumpySine(ad.autograd.Function):
    """Reads values: NumPy computes."""

    calls = 0

    @staticmethod
    def forward(ctx, x, scale):
        NumpySine.calls += 1
        ctx.save_for_backward(x)
        ctx.scale = scale
        return ad.from_numpy(np.sin(x.detach().numpy()) * scale)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ad.from_numpy(np.cos(x.detach().numpy()) * ctx.scale), None


class Split(ad.autograd.Function):
    """Two outputs, one without gradient, and a result that is no tensor."""

    @staticmethod
    def forward(ctx, x):
        low, high = x * 2, x * 3
        ctx.mark_non_differentiable(high)
        return low, high, "label"

    @staticmethod
    def backward(ctx, g_low, g_high, _=None):
        assert float(g_high.abs().sum()) == 0
        return g_low * 2


def test_operations_are_nodes_and_refresh():
    graph = ad.Graph()
    x = graph.parameter([1.0, 2.0])
    y = Cube.apply(x)
    (g,) = ad.autograd.grad(y.sum(), x)
    (h,) = ad.autograd.grad(g.sum(), x)
    assert y.tolist() == [1, 8]
    assert g.tolist() == [3, 12]
    assert h.tolist() == [6, 12]
    x.set([3.0, 1.0])
    assert y.tolist() == [27, 1]
    assert g.tolist() == [27, 3]
    assert h.tolist() == [18, 6]
    graph.check_invariants()


def test_a_forward_that_reads_runs_again_as_a_whole():
    graph = ad.Graph()
    x = graph.parameter([0.0, 1.0], dtype=ad.float64)
    before = NumpySine.calls
    y = NumpySine.apply(x, 2.0)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), 2 * np.sin([0, 1]))
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos([0, 1]))
    x.set([1.0, 3.0])
    np.testing.assert_allclose(y.detach().numpy(), 2 * np.sin([1, 3]))
    assert NumpySine.calls > before
    (g,) = ad.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(g.detach().numpy(), 2 * np.cos([1, 3]))
    with pytest.raises(ad.AutogradError, match="reads values"):
        ad.autograd.grad(g.sum(), x)


def test_several_results():
    with ad.Graph():
        x = ad.ones(2, requires_grad=True)
        low, high, label = Split.apply(x)
        assert label == "label"
        assert low.requires_grad
        assert not high.requires_grad
        (low * 5).sum().backward()
    assert x.grad.tolist() == [10, 10]
    assert high.tolist() == [3, 3]


def test_lazily_a_function_is_as_eager():
    with ad.lazy():
        x = ad.tensor([1.0, 2.0], requires_grad=True)
        y = Cube.apply(x)
        y.sum().backward()
    assert x.grad.tolist() == [3, 12]
    assert y.tolist() == [1, 8]


def test_one_gradient_for_several_arguments_is_an_error_as_in_eager_execution():
    class Product(ad.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g * 2

    graph = ad.Graph()
    a, b = graph.parameter([1.0, 2.0]), graph.parameter([3.0, 4.0])
    for x, y in ((a, b), (ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True))):
        with pytest.raises(AutogradError, match=r"ProductBackward .*\(expected 2, got 1\)"):
            Product.apply(x, y).sum().backward()
        assert x.grad is None and y.grad is None
