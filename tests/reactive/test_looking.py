"""What a graph says of itself, what it lets go, and where gradients are looked for in vain."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import GraphError
from adjoint.runtime.cells import Cell

NO_LEAF = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x).tanh())


# ---- nodes ---------------------------------------------------------------------------------------


def test_nodes_of_the_backward_pass_are_apart():
    graph = ad.Graph()
    w, x = graph.parameter([1.0, 2.0], "w"), graph.input([3.0, 4.0], "x")
    loss = (w * x).exp().sum()
    loss.item()
    before = graph.stats()
    assert [each.node.label for each in graph.nodes] == ["w", "x", "mul", "exp", "sum"]
    assert before["nodes"] == len(graph) == 5 and before["gradient_nodes"] == 0
    loss.backward()
    after = graph.stats()
    for name in ("nodes", "edges", "inputs", "stale"):
        assert after[name] == before[name], name
    assert len(graph) == len(graph.nodes) == 5
    assert after["gradient_nodes"] == len(graph.gradient_nodes) > 0
    assert all(each.node.planned for each in graph.gradient_nodes)
    assert {each.node for each in (*graph.nodes, *graph.gradient_nodes)} == set(
        graph._state.cells()
    )


def test_a_gradient_that_was_asked_for_is_a_node_like_others():
    graph = ad.Graph()
    w = graph.parameter(2.0, "w")
    (g,) = ad.autograd.grad(w * w * w, w)
    assert any(each.node is g.node for each in graph.nodes)
    assert all(each.node is not g.node for each in graph.gradient_nodes)
    assert g.item() == 12


def test_nodes_are_tensors_with_a_node_each():
    model, graph = Net(), ad.Graph()
    with graph:
        a, b = model(ad.ones(1, 3)).chunk(2, 1)  # two outputs of one op
        y = (a * b).sum()
    y.backward()
    gone = graph.input(1.0, "gone")
    graph.remove(gone)  # still held by the variable
    nodes = [*graph.nodes, *graph.gradient_nodes]
    assert all(isinstance(each, ad.Tensor) and isinstance(each.node, Cell) for each in nodes)
    assert repr(nodes) and all(each.dtype is not None for each in nodes)
    assert model.body.weight.node in [each.node for each in graph.nodes]
    assert gone.node not in [each.node for each in nodes]
    other = ad.Graph()
    with other:
        z = model.body.weight * 2
    assert model.body.weight.node.state is other._state is z.node.state
    assert ad.ones(1).node is None


# ---- values --------------------------------------------------------------------------------------


def test_release_drops_computed_values_only():
    graph = ad.Graph()
    w, x = graph.parameter(np.ones((50, 50)), "w"), graph.input(np.ones((50, 50)), "x")
    h = (w @ x).exp()
    a, b = h.chunk(2)
    y = (a * b).sum()
    value, sources = y.item(), w.nbytes + x.nbytes
    stats = graph.stats()
    assert stats["bytes"] > sources and stats["released"] == 0
    graph.release()
    stats = graph.stats()
    assert stats["bytes"] == sources and stats["stale"] == 0
    assert stats["released"] == len(graph) - 2
    assert [each.is_computed for each in (w, x, h, a, y)] == [True, True, False, False, False]
    with graph.events() as log:
        assert y.item() == value
    assert log.ran == ["MatMul", "Exp", "Split", "Mul", "Sum"]
    graph.check_invariants()


def test_release_above_a_node():
    graph = ad.Graph()
    x = graph.input([1.0, 2.0])
    h = x.exp()
    y, other = h * 2, (x + 1) * 3
    graph.forward(y, other)
    graph.release(y)
    assert not h.is_computed and y.is_computed and other.is_computed and x.is_computed
    with graph.events() as log:
        y.tolist()
    assert log.ran == []
    x.set([0.0, 1.0])
    assert y.tolist() == pytest.approx([2.0, 2 * np.e])
    with pytest.raises(GraphError, match=r"release: .* belongs to another graph"):
        graph.release(y, ad.Graph().input(1.0) + 1)
    assert h.is_computed


def test_release_frees_gradients_which_come_again():
    graph = ad.Graph()
    w = graph.parameter([1.0, 2.0])
    y = (w * w).sum()
    (g,) = ad.autograd.grad(y, w)
    random = graph.name(ad.rand(2) * w, "random")
    expected = random.tolist()
    assert g.tolist() == [2, 4]
    graph.release()
    assert not g.is_computed
    assert g.tolist() == [2, 4] and random.tolist() == expected
    y.backward()
    graph.release()
    y.backward()
    assert w.grad.tolist() == [4, 8]


def test_is_computed():
    x = ad.ones(2)
    assert x.is_computed and (x + 1).is_computed
    with ad.lazy():
        y = x + 1
        z = y * 2
    assert not y.is_computed and not z.is_computed
    assert y.tolist() == [2, 2]
    assert y.is_computed and not z.is_computed
    graph = ad.Graph()
    a = graph.input(1.0)
    b = a + 1
    empty = graph.input((2,))
    assert a.is_computed and not b.is_computed and not empty.is_computed
    b.item()
    assert b.is_computed
    a.set(5.0)
    assert not b.is_computed and a.is_computed and graph.stats()["runs"] == 1


def test_values_cross_graphs():
    first, second = ad.Graph(), ad.Graph()
    x = first.input(2.0)
    y = x * 3
    given = second.input(0.0, "given")
    z = given * 10
    assert given.set(y) is given and z.item() == 60
    x.set(5.0)
    assert z.item() == 60  # the value was taken, not followed
    given.set(y)
    assert z.item() == 150 and second.input(y).item() == 15
    assert (ad.tensor(y.item()) * given).node.state is second._state
    with pytest.raises(GraphError, match="two graphs"):
        y * given
    first.check_invariants()
    second.check_invariants()


# ---- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none):
    model, apart, graph = Net(), nn.Linear(2, 2), ad.Graph()
    w = graph.parameter(2.0, "w")
    with graph:
        loss = (model(ad.ones(1, 3)) * w).sum()
    loss.backward()
    apart(ad.ones(1, 2)).sum().backward()
    used = [w, *model.parameters()]
    assert all(p.grad.abs().sum().item() > 0 for p in used)
    graph.zero_grad(set_to_none=to_none)
    for p in used:
        assert p.grad is None if to_none else not p.grad.any()
    assert apart.weight.grad is not None


def eager(w):
    return w * 2


def lazily(w):
    with ad.lazy():
        return w * 2


def in_graph(w):
    with ad.Graph():
        return w * 2


WAYS = pytest.mark.parametrize("way", [eager, lazily, in_graph])


@WAYS
def test_grad_of_a_computed_tensor_warns_as_pytorch_does(way):
    torch = pytest.importorskip("torch")
    reference = torch.ones(2, requires_grad=True) * 2
    with pytest.warns(UserWarning) as theirs:
        assert reference.grad is None
    y = way(ad.ones(2, requires_grad=True))
    with pytest.warns(UserWarning) as ours:
        assert y.grad is None
    (warning,) = ours
    assert str(warning.message).startswith(NO_LEAF) and warning.filename == __file__
    assert str(theirs[0].message).startswith(str(warning.message))
    y.sum().backward()
    with pytest.warns(UserWarning, match=NO_LEAF):
        assert y.grad is None


@WAYS
def test_grad_that_is_there_or_could_be_does_not_warn(way):
    w = ad.ones(2, requires_grad=True)
    y, kept, given = way(w), way(w), way(w)
    kept.retain_grad()
    given.grad = ad.ones(2)
    assert w.grad is None and kept.grad is None and y.detach().grad is None
    (kept * 3).sum().backward()
    assert kept.grad.tolist() == [3, 3] and w.grad.tolist() == [6, 6]
    assert given.grad.tolist() == [1, 1]
    with ad.no_grad():
        assert way(w).grad is None
    assert way(ad.ones(2)).grad is None


def test_a_graph_shows_retained_gradients_without_a_warning():
    graph = ad.Graph()
    w = graph.parameter([1.0, 2.0])
    h, constant = w * w, graph.input(1.0) + 1
    h.sum().backward(retain_graph=True)
    assert h.grad.tolist() == [1, 1]
    assert constant.grad is None


def test_the_package_itself_does_not_warn():
    w = ad.ones(2, requires_grad=True)
    y = w * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = ad.Graph()
        with graph:
            z = y * 3  # whose source follows a computed tensor
        assert graph.snapshot().to_html() and z.graph().nodes[0].grad_norm() is None
        holder = nn.Linear(2, 1)
        holder._parameters["weight"] = y  # as reparametrizations do
        holder.zero_grad()
        holder.to(ad.float64)
        assert nn.utils.clip_grad_norm_([y], 1.0).item() == 0
        assert copy.deepcopy(w).grad is None and repr(y)
