"""Inputs and parameters that are set to other shapes: what depends on them follows, or refuses."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd.graph_writes import Overwritten
from adjoint.core.errors import GraphError, ShapeError
from adjoint.nn import functional as F

from .test_editing import Stopped, everything
from .test_threads import together


@pytest.fixture
def graph():
    graph = ad.Graph(lines=True)
    yield graph
    graph.check_invariants()


@pytest.fixture
def net(graph):
    """Two layers, whose weights must agree, and their loss."""
    graph.input(np.ones((5, 4)), "x")
    graph.parameter(np.full((4, 3), 0.1), "w1")
    graph.parameter(np.full((3, 2), 0.2), "w2")
    graph.name((graph["x"] @ graph["w1"]).tanh() @ graph["w2"], "out")
    return graph.name(graph["out"].sum(), "loss")


def gradients(graph):
    """Loss and gradients of `net`, computed from nothing."""
    x, w1, w2 = (
        ad.tensor(graph[n].detach().numpy(), requires_grad=True) for n in ("x", "w1", "w2")
    )
    loss = ((x @ w1).tanh() @ w2).sum()
    return loss.item(), *(g.tolist() for g in ad.autograd.grad(loss, (w1, w2)))


def of_graph(graph):
    w1, w2 = graph["w1"], graph["w2"]
    w1.grad = w2.grad = None
    graph["loss"].backward()
    return graph["loss"].item(), w1.grad.tolist(), w2.grad.tolist()


def assert_same(have, want):
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_two_weights_widen_together(graph, net):
    net.backward()
    with pytest.raises(ShapeError, match=r"matmul: .* at node 'out' \(.*test_editing_shapes"):
        graph["w1"].set(np.full((4, 6), 0.3))
    assert graph["w1"].grad is not None
    with graph.batch():
        graph["w1"].set(np.full((4, 6), 0.3))
        assert graph["w1"].shape == (4, 6)
        graph["w2"].set(np.full((6, 2), 0.1))
        assert net.item() == pytest.approx(gradients(graph)[0])
    assert graph["w1"].grad is None  # it was of the old shape
    assert_same(of_graph(graph), gradients(graph))
    optimizer = ad.optim.Adam([graph["w1"], graph["w2"]], lr=0.1)
    optimizer.step()
    assert_same(of_graph(graph), gradients(graph))


def test_a_batch_whose_shapes_do_not_agree_changes_nothing(graph, net):
    before = everything(graph)
    net.backward()
    grad, expected = graph["w1"].grad.tolist(), gradients(graph)
    with pytest.raises(ShapeError, match="at node 'out'"), graph.batch():
        graph["w1"].set(np.ones((4, 6)))
        graph["w2"].set(np.ones((5, 2)))
    assert everything(graph) == before
    assert graph["w1"].grad.tolist() == grad
    assert_same(of_graph(graph), expected)


def test_reads_in_a_batch_that_does_not_fit_yet(graph, net):
    other = (graph["x"] * 2).sum()
    with graph.batch():
        graph["w1"].set(np.ones((4, 6)))
        with pytest.raises(ShapeError, match="at node 'out'"):
            net.item()
        assert other.item() == 40
        with ad.no_grad():
            graph["w2"].mul_(2)
        graph["w2"].set(np.ones((6, 2)))
    assert_same(of_graph(graph), gradients(graph))


def test_an_error_after_new_shapes_takes_them_back(graph, net):
    expected = of_graph(graph)
    for wide in (6, 0):
        with pytest.raises(Stopped), graph.batch():
            graph["w1"].set(np.ones((4, wide)))
            graph["w2"].set(np.ones((wide, 2)))
            net.backward()
            graph["x"].set(np.ones((0, 4)))
            graph.remove("loss")
            raise Stopped
        assert graph["w1"].shape == (4, 3)
        assert of_graph(graph) == expected


def test_inner_batches_leave_the_doubt_to_the_outer_one(graph, net):
    with graph.batch():
        with graph.batch():
            graph["w1"].set(np.ones((4, 6)))
        with pytest.raises(Stopped), graph.batch():
            graph["w2"].set(np.ones((6, 2)))
            assert net.item() != 0
            raise Stopped
        with pytest.raises(ShapeError):
            net.item()
        graph["w2"].set(np.ones((6, 1)))
    assert graph["out"].shape == (5, 1)
    assert_same(of_graph(graph), gradients(graph))


def test_shapes_with_zero_and_an_input_declared_by_shape(graph):
    x = graph.input((4, 2), "x", dtype=ad.float64)
    w = graph.parameter(np.ones((2, 3)), "w")
    y = (x @ w).sum(0)
    for rows in (3, 0, 5):
        x.set(np.ones((rows, 2)))
        assert y.tolist() == [2 * rows] * 3
        w.grad = None
        y.sum().backward()
        assert w.grad.tolist() == [[rows] * 3] * 2
        graph.check_invariants()


def test_a_last_batch_that_is_smaller(graph):
    features, labels = graph.input((4, 6), "features"), graph.input(np.zeros(4, np.int64), "labels")
    model = ad.nn.Sequential(
        ad.nn.Unflatten(1, (2, 3)), ad.nn.Flatten(), ad.nn.Linear(6, 5), ad.nn.LayerNorm(5)
    )
    with graph:
        loss = F.cross_entropy(model(features), labels)
    for rows in (4, 7, 1):
        x, y = ad.randn(rows, 6), ad.arange(rows) % 5
        with graph.batch():
            features.set(x)
            labels.set(y)
        model.zero_grad()
        loss.backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        expected = F.cross_entropy(model(x), y)
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        for have, p in zip(found, model.parameters(), strict=True):
            np.testing.assert_allclose(have.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, 1],
        lambda x: x[1:],
        lambda x: x[-1],
        lambda x: x[:-1, None],
        lambda x: x[0:1],
        lambda x: x[0:10],
        lambda x: x[..., 2:4],
        lambda x: x.flatten(),
        lambda x: x[None].flatten(1),
        lambda x: x.T.unsqueeze(1),
        lambda x: x.sum(1, keepdim=True).squeeze(1),
        lambda x: x.reshape(-1, 3),
        lambda x: x.view(-1),
        lambda x: x.T.ravel(),
        lambda x: x.unflatten(1, (-1, 2)),
        lambda x: x.unsqueeze(0).expand(2, -1, -1),
    ],
)
def test_what_says_no_size_fits_any(graph, function):
    x = graph.input(np.ones((4, 6)), requires_grad=True)
    y = function(x)
    loss = (y * y.exp()).sum()
    for shape in ((8, 6), (3, 6), (9, 12), (1, 6)):
        value = np.random.default_rng(0).standard_normal(shape)
        x.set(value)
        t = ad.tensor(value, requires_grad=True)
        expected = function(t)
        assert y.shape == expected.shape
        np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
        loss.backward()
        (expected * expected.exp()).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy())
        graph.check_invariants()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(4, 2, 3),
        lambda x: x[:, None].expand(4, 5, 6),
        lambda x: x + ad.ones(4, 6),
        lambda x: x.sum(1, keepdim=True) @ ad.ones(1, 4, dtype=ad.float64) @ x,
        lambda x: x[3],
    ],
)
def test_what_says_sizes_refuses_others(graph, function):
    x = graph.input(np.ones((4, 6)), "x")
    with graph:
        y = function(x).sum()
    y.item()
    with pytest.raises((ShapeError, IndexError), match=r"test_editing_shapes.py:\d+\), the graph"):
        x.set(np.ones((3, 6)))
    assert x.shape == (4, 6)
    with graph.events() as log:
        y.item()
    assert log.ran == []


def test_a_view_that_was_written(graph):
    x, v = graph.input(np.ones((4, 3))), graph.input(np.full((2, 3), 5.0))
    y = x * 1
    y[1:3].mul_(v)
    x.set(np.ones((5, 3)))
    assert y.tolist() == [[1] * 3, [5] * 3, [5] * 3, [1] * 3, [1] * 3]
    with pytest.raises(ShapeError, match=r"is written to a part of shape .* at node"):
        x.set(np.ones((2, 3)))
    assert y.sum().item() == 39


def test_fewer_dimensions_are_refused_where_they_would_mean_something_else(graph):
    x = graph.input(np.ones((4, 6)))
    y = x.unsqueeze(1)
    with pytest.raises(ShapeError, match="2 dimensions"):
        x.set(np.ones((4, 6, 1)))
    assert y.shape == (4, 1, 6)


def test_gradients_that_are_nodes_follow(graph):
    u, v = graph.input(np.ones(3), requires_grad=True), graph.input(np.ones(3))
    z = (u * u).sum()
    (du,) = ad.autograd.grad(z, u, create_graph=True)
    (duu,) = ad.autograd.grad(du.sum(), u)
    both = ad.stack([du, v]).sum()
    with pytest.raises(ShapeError, match="at node 'stack'"):
        u.set(np.ones(5))
    with graph.batch():
        u.set(np.arange(5.0))
        assert du.shape == (5,)
        v.set(np.ones(5))
    assert du.tolist() == [0, 2, 4, 6, 8]
    assert duu.tolist() == [2] * 5
    assert both.item() == 25
    with pytest.raises(Stopped), graph.batch():
        u.set(np.ones(2))
        v.set(np.ones(2))
        assert both.item() == 6
        raise Stopped
    assert (du.shape, duu.shape, both.item()) == ((5,), (5,), 25)


def test_a_gradient_that_could_not_be_derived_any_more_refuses(graph):
    u = graph.input(np.ones(3), requires_grad=True)
    z = u * u
    (du,) = ad.autograd.grad(z, u, ad.tensor([1.0, 2.0, 3.0], dtype=ad.float64))
    with pytest.raises(ShapeError, match="Mismatch in shape"):
        u.set(np.ones(2))
    assert (u.tolist(), z.tolist(), du.tolist()) == ([1] * 3, [1] * 3, [2, 4, 6])


def test_threads_see_shapes_that_agree(graph, net):
    def widen(first):
        for i in range(60):
            wide = 1 + (first + i) % 4
            with graph.batch():
                graph["w1"].set(np.zeros((4, wide)))
                graph["w2"].set(np.ones((wide, 2)))

    def read():
        for _ in range(60):
            assert net.item() in (0.0, started)

    started = net.item()
    together(lambda: widen(0), lambda: widen(2), read, read)


def test_a_set_of_the_wrong_kind_still_refuses(graph):
    x = graph.input(np.ones((2, 2)))
    with pytest.raises(GraphError, match="is computed"):
        (x * 2).set(np.ones((3, 3)))


def test_data_of_another_shape_is_inferred_or_refused(graph):
    layer = ad.nn.Linear(3, 2, dtype=ad.float64)
    x = graph.input(np.ones((4, 3)), "x")
    y = layer(x)
    assert y.sum().item() != 0
    with pytest.raises(ShapeError, match="at node 'linear'"):
        layer.weight.data = ad.ones(5, 4, dtype=ad.float64)
    assert layer.weight.shape == (2, 3)
    graph.check_invariants()
    with graph.batch():
        layer.weight.data = ad.ones(5, 3, dtype=ad.float64)
        layer.bias.data = ad.zeros(5, dtype=ad.float64)
    assert y.tolist() == [[3] * 5] * 4
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[4] * 3] * 5
    with pytest.raises(Stopped), graph.batch():
        layer.weight.data = ad.full((1, 3), 2.0, dtype=ad.float64)
        layer.bias.data = ad.zeros(1, dtype=ad.float64)
        assert y.shape == (4, 1)
        raise Stopped
    assert layer.weight.tolist() == [[1] * 3] * 5
    assert y.tolist() == [[3] * 5] * 4


def test_data_of_another_dtype_is_inferred_too(graph):
    layer = ad.nn.Linear(3, 2, bias=False)
    x = graph.input(ad.ones(1))
    with graph:
        y = layer.weight * x
    assert y.dtype is ad.float32
    with pytest.raises(ad.DTypeError, match="at node 'mul'"):
        layer.weight.data = ad.ones(2, 3, dtype=ad.float64)
    assert layer.weight.dtype is ad.float32
    graph.check_invariants()


def test_data_of_a_parameter_of_the_graph_sets_it(graph):
    w = graph.parameter(np.ones(2), "w")
    y = w * 2
    w.data = ad.tensor([1.0, 2.0, 3.0], dtype=ad.float64)
    assert y.tolist() == [2, 4, 6] and graph["w"] is w


def test_a_value_written_over_one_of_another_shape_is_refused(graph):
    x, v = graph.input(np.ones((4, 3)), requires_grad=True), graph.input(np.ones((4, 3)))
    y = x * 1
    with ad.no_grad():
        y.copy_(v)
    assert y.tolist() == v.tolist()
    with pytest.raises(ShapeError, match=r"copy_: .* at node"):
        x.set(np.ones((2, 3)))
    with graph.batch():
        x.set(np.ones((2, 3)))
        v.set(np.full((2, 3), 5.0))
    assert y.tolist() == [[5] * 3] * 2


def test_overwriting_wants_one_shape_and_dtype():
    spec = ad.ones(2, 3).spec
    assert Overwritten().infer(spec, spec) == spec
    for other in (ad.ones(2).spec, ad.ones(2, 3, dtype=ad.float64).spec):
        with pytest.raises(ShapeError, match="over one of shape"):
            Overwritten().infer(spec, other)
