"""Every op of the registry recorded, lazily and in a graph, gives what it gives eagerly."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.runtime.cells import Cell
from adjoint.runtime.dispatch import apply
from adjoint.runtime.lazy import LazyValue

from .test_ops import CASES, few_of_each_op, outputs, tensors, widen


def leaves(sample):
    """The inputs, the floating-point ones as leaves that require grad."""
    return [x.detach().clone().requires_grad_() if wants(x, sample) else x for x in tensors(sample)]


def wants(x, sample):
    return isinstance(x, ad.Tensor) and x.dtype.category >= 2 and sample.op.differentiable


def run(sample, inputs):
    """Values of the outputs, and gradients of the inputs."""
    ys = outputs(apply(sample.op, *inputs))
    wanted = [x for x in inputs if isinstance(x, ad.Tensor) and x.requires_grad]
    ends = [y for y in ys if y.requires_grad]
    grads = []
    if ends and sample.gradients:
        ones = [ad.ones_like(y.detach()) for y in ends]
        grads = ad.autograd.grad(ends, wanted, ones, allow_unused=True)
    return ys, grads


def assert_equal(found, expected, near=False):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        assert a.spec == b.spec
        x, y = widen(a.detach().numpy()), widen(b.detach().numpy())
        if near:
            bound = 16 * np.finfo(a.dtype.numpy).eps * max(1, np.abs(y).max())
            np.testing.assert_allclose(x, y, rtol=0, atol=bound)
        else:
            np.testing.assert_array_equal(x, y)


# Recorded values lie row-major, eager ones as their inputs do: these are summed in another order.
REORDERED = {"Softmax-strided", "Cofactors-complex64"}


@pytest.mark.parametrize("sample", few_of_each_op(CASES, 1))
def test_lazily(sample, request):
    near = request.node.callspec.id in REORDERED
    expected = run(sample, leaves(sample))
    with ad.lazy():
        recorded = outputs(apply(sample.op, *tensors(sample)))
        assert all(type(y._data) is LazyValue for y in recorded)
        ys, grads = run(sample, leaves(sample))
        specs = [y.spec for y in ys]
    assert_equal(ys, expected[0], near)
    assert_equal(grads, expected[1], near)
    assert specs == [y.spec for y in ys]


@pytest.mark.parametrize("sample", few_of_each_op(CASES, 1))
def test_in_a_graph(sample, request):
    near = request.node.callspec.id in REORDERED
    expected = run(sample, leaves(sample))
    with ad.Graph() as graph:
        inputs = leaves(sample)
        ys, grads = run(sample, inputs)
    assert sample.op.copies or all(type(y._data) is Cell for y in ys)  # copies of constants copy
    assert_equal(ys, expected[0], near)
    assert_equal(grads, expected[1], near)
    graph.check_invariants()
    with graph.events() as log:
        assert_equal(ys, expected[0], near)
        assert_equal(grads, expected[1], near)
    assert log.ran == []  # nothing has changed


FLOATING = [
    case for case in CASES
    if any(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in case.values[0].inputs)
]  # fmt: skip


@pytest.mark.parametrize("sample", few_of_each_op(FLOATING, 1))
def test_in_a_graph_after_a_change(sample):
    """The inputs' elements move round by one place; the graph follows."""
    values = [
        np.roll(x, 1) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for x in sample.inputs
    ]
    graph = ad.Graph()
    inputs = [
        graph.input(x, dtype=ad.from_numpy(x).dtype) if isinstance(x, np.ndarray) else x
        for x in sample.inputs
    ]
    ys = outputs(apply(sample.op, *inputs))
    graph.forward(*ys)
    for x, value in zip(inputs, values, strict=True):
        if isinstance(x, ad.Tensor):
            x.set(ad.from_numpy(value))
    moved = [ad.from_numpy(v) if isinstance(v, np.ndarray) else v for v in values]
    try:
        expected = outputs(apply(sample.op, *moved))
    except (ad.AdjointError, ValueError, IndexError):  # such values it refuses
        with pytest.raises((ad.AdjointError, ValueError, IndexError)):
            graph.forward(*ys)
        return
    assert_equal(ys, expected)
    graph.check_invariants()
