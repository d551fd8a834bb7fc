"""Gradients in a graph: nodes that refresh, accumulation, release, freezing, hooks, modes."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import AutogradError
from adjoint.utils.checkpoint import checkpoint

# Nodes follow what a program writes: that is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Graph. ")


@pytest.fixture
def graph():
    graph = ad.Graph()
    yield graph
    graph.check_invariants()


# ---- gradients are nodes -------------------------------------------------------------------------


def test_a_gradient_refreshes(graph):
    x = graph.input([1.0, 2.0], requires_grad=True)
    (g,) = ad.autograd.grad((x**3).sum(), x)
    assert g.tolist() == [3, 12]
    x.set([2.0, 3.0])
    assert g.tolist() == [12, 27]
    with graph.events() as log:
        g.tolist()
    assert log.ran == []


def test_only_the_affected_part_of_the_backward_runs_again(graph):
    a, b = graph.parameter([1.0, 2.0]), graph.parameter([3.0, 4.0])
    c = graph.input([1.0, 1.0])
    loss = (a.sin() * c).sum() + b.exp().sum()
    ga, gb = ad.autograd.grad(loss, [a, b])
    np.testing.assert_allclose(ga.detach().numpy(), np.cos([1, 2]), rtol=1e-6)
    np.testing.assert_allclose(gb.detach().numpy(), np.exp([3, 4]), rtol=1e-6)
    with graph.events() as log:
        c.set([2.0, 5.0])
        np.testing.assert_allclose(ga.detach().numpy(), np.cos([1, 2]) * [2, 5], rtol=1e-6)
        gb.detach().numpy()
    assert "Cos" not in log.ran  # a has not changed
    assert "Exp" not in log.ran
    assert log.ran.count("Mul") <= 2
    with graph.events() as log, ad.no_grad():
        b.copy_(ad.tensor([0.0, 1.0]))
        log.clear()
        np.testing.assert_allclose(gb.detach().numpy(), np.exp([0, 1]), rtol=1e-6)
        ga.detach().numpy()
    assert set(log.ran) <= {"Exp", "Mul", "Derivative", "Conj"}
    assert log.ran.count("Exp") == 1


def test_values_and_sensitivities_of_one_input_of_many(graph):
    xs = [graph.parameter(0.1 * i) for i in range(1, 101)]
    total = ad.stack([x.sin() for x in xs]).sum()
    gradients = ad.autograd.grad(total, xs)
    graph.forward(total, *gradients)
    with ad.no_grad():
        xs[7].copy_(ad.tensor(2.0))
    with graph.events() as log:
        assert gradients[7].item() == pytest.approx(np.cos(2.0))
        for g in gradients:
            g.item()
    assert log.ran.count("Cos") == 1
    assert len(log.ran) <= 4


def test_a_gradient_that_does_not_depend_on_the_change_is_not_run(graph):
    w, x = graph.parameter([1.0, 2.0]), graph.input([3.0, 4.0])
    loss = (w * x).sum()
    (g,) = ad.autograd.grad(loss, w)
    assert g.tolist() == [3, 4]
    with ad.no_grad():
        w.mul_(2)
    with graph.events() as log:
        assert g.tolist() == [3, 4]
    assert log.ran == []
    assert loss.item() == 22


def test_second_derivatives_refresh(graph):
    x = graph.input(2.0, requires_grad=True)
    (g,) = ad.autograd.grad(x**4, x)
    (h,) = ad.autograd.grad(g, x)
    (third,) = ad.autograd.grad(h, x)
    assert (g.item(), h.item(), third.item()) == (32, 48, 48)
    x.set(1.0)
    assert (third.item(), h.item(), g.item()) == (24, 12, 4)


def test_gradients_go_on_through_gradients(graph):
    w, x = graph.parameter(2.0), graph.input(3.0, requires_grad=True)
    (g,) = ad.autograd.grad((w * x) ** 2, x)  # 2 w^2 x
    penalty = g**2
    penalty.backward()
    assert w.grad.item() == pytest.approx(2 * (2 * 4 * 3) * 4 * 2 * 3)
    x.set(1.0)
    assert penalty.item() == 64


def test_gradients_are_derived_anew_after_edits(graph):
    w, x = graph.parameter(2.0), graph.input(3.0)
    h = w * x
    y = h * h
    (g,) = ad.autograd.grad(y, w)
    (second,) = ad.autograd.grad(g, w)
    assert (g.item(), second.item()) == (36, 18)
    graph.insert_after(h, ad.sin)
    assert g.item() == pytest.approx(2 * np.sin(6) * np.cos(6) * 3)
    assert second.item() == pytest.approx(2 * np.cos(12) * 9)
    x.set(1.0)
    assert g.item() == pytest.approx(np.sin(4))
    y.set_input(0, x)
    y.set_input(1, x)
    assert g.item() == 0  # the path is gone
    assert second.item() == 0
    y.set_input(0, h)
    assert g.item() == 1
    assert second.item() == 0


def test_a_graph_with_a_gradient_without_a_path_can_still_be_read(graph):
    w, x = graph.parameter(2.0), graph.input(3.0)
    y = w * 1
    (g,) = ad.autograd.grad(y, w)
    graph.replace(w, x)
    assert y.item() == 3
    assert g.item() == 0
    assert (x + 1).item() == 4


def test_freezing_does_not_change_gradients_asked_for_before(graph):
    w = graph.parameter(2.0)
    h = w * 3
    (g,) = ad.autograd.grad(h * h, w)
    graph.freeze(w)
    graph.insert_after(h, lambda t: t * 1)
    assert g.item() == 36
    assert graph.is_frozen(w)


def test_allow_unused_and_grad_outputs(graph):
    w, v = graph.parameter([1.0, 2.0]), graph.parameter(1.0)
    y = w * 3
    with pytest.raises(AutogradError, match="allow_unused"):
        ad.autograd.grad(y.sum(), [w, v])
    g, none = ad.autograd.grad(y, [w, v], grad_outputs=ad.tensor([1.0, 10.0]), allow_unused=True)
    assert g.tolist() == [3, 30]
    assert none is None


def test_gradients_of_computed_nodes(graph):
    w = graph.parameter([1.0, 2.0])
    h = w * w
    (g,) = ad.autograd.grad((h * h).sum(), h)
    assert g.tolist() == [2, 8]
    with ad.no_grad():
        w.add_(1)
    assert g.tolist() == [8, 18]


def test_functional_transforms_and_jacobians(graph):
    x = graph.input([1.0, 2.0], requires_grad=True)
    y = x * x
    rows = [ad.autograd.grad(y[i], x)[0] for i in range(2)]
    assert [r.tolist() for r in rows] == [[2, 0], [0, 4]]
    x.set([5.0, 6.0])
    assert [r.tolist() for r in rows] == [[10, 0], [0, 12]]


# ---- backward ------------------------------------------------------------------------------------


def test_leaves_accumulate_and_the_chain_rule_uses_fresh_cotangents(graph):
    w = graph.parameter(2.0)
    h = w * 3
    loss = h * h
    for times in (1, 2, 3):
        loss.backward()
        assert w.grad.item() == 36 * times
    w.grad = None
    graph.backward(loss)
    assert w.grad.item() == 36


def test_a_vector_is_summed_and_a_gradient_may_be_given(graph):
    w = graph.parameter([1.0, 2.0])
    y = w * w
    y.backward()
    assert w.grad.tolist() == [2, 4]
    y.backward(ad.tensor([10.0, 0.0]))
    assert w.grad.tolist() == [22, 4]
    graph.backward(y, gradient=ad.tensor([0.0, 1.0]))
    assert w.grad.tolist() == [22, 8]


def test_backward_makes_sure_that_the_forward_is_fresh(graph):
    w, x = graph.parameter(2.0), graph.input(1.0)
    loss = (w * x).exp()
    loss.item()
    x.set(3.0)
    loss.backward()
    assert w.grad.item() == pytest.approx(3 * np.exp(6))
    w.grad = None
    x.set(0.5)
    loss.backward()
    assert w.grad.item() == pytest.approx(0.5 * np.exp(1))


def test_gradients_of_intermediates_after_a_retained_backward_until_the_next(graph):
    w = graph.parameter([1.0, 2.0])
    h = w * w
    loss = h.sum() * 5
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert h.grad is None
    loss.backward(retain_graph=True)
    assert h.grad.tolist() == [5, 5]
    assert not h.grad.requires_grad
    loss.backward()
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert h.grad is None
    assert w.grad.tolist() == [20, 40]


def test_values_are_released_and_computed_again_when_needed(graph):
    w, x = graph.parameter([1.0, 2.0]), graph.input([3.0, 4.0])
    fixed = x.exp()
    h = w.sin() * fixed
    loss = (h * h).sum()
    value = loss.item()
    expected = h.tolist()
    loss.backward()
    assert h.node.array is None
    assert not h.node.stale
    assert fixed.node.array is not None  # no gradient flows through it
    assert loss.node.array is not None
    with graph.events() as log:
        assert loss.item() == value
    assert log.ran == []
    with graph.events() as log:
        assert h.tolist() == expected
    assert log.ran == ["Sin", "Mul"]
    loss.backward(retain_graph=True)
    with graph.events() as log:
        loss.backward(retain_graph=True)
    assert log.ran == []  # a remembered pass, all of it up to date
    graph.check_invariants()


def test_released_values_do_not_run_again_for_what_is_up_to_date(graph):
    w = graph.parameter([1.0, 2.0])
    a = w.sin()
    b = a.exp()
    c = b.cos()
    graph.forward(c)
    b.sum().backward()
    with graph.events() as log:
        c.tolist()
    assert log.ran == []


def test_backward_inside_no_grad_warns_and_works(graph):
    w = graph.parameter(3.0)
    loss = w * w
    with pytest.warns(UserWarning, match="no_grad"), ad.no_grad():
        loss.backward()
    assert w.grad.item() == 6
    with pytest.warns(UserWarning, match="no_grad"):
        graph.no_grad_scope(lambda: graph.backward(loss))
    assert w.grad.item() == 12


def test_backward_inside_no_grad_of_what_was_recorded_there(graph):
    w = graph.parameter(3.0)

    def step():
        loss = w * w
        loss.backward()
        return loss.item()

    with pytest.warns(UserWarning, match="no_grad"):
        assert graph.no_grad_scope(step) == 9
    assert w.grad.item() == 6


def test_no_grad_scope_returns_and_restores(graph):
    w = graph.parameter(3.0)
    y = graph.no_grad_scope(lambda: w * 2)
    assert not y.requires_grad
    assert y.item() == 6
    with pytest.raises(KeyError):
        graph.no_grad_scope({}.popitem)
    assert ad.is_grad_enabled()
    with ad.no_grad():
        graph.no_grad_scope(lambda: None)
        assert not ad.is_grad_enabled()
    assert (w * 2).requires_grad


def test_freeze_stores_nothing_and_lets_gradients_pass(graph):
    first, second = graph.parameter(2.0), graph.parameter(3.0)
    loss = (first * second) ** 2
    graph.freeze(second)
    assert graph.is_frozen(second)
    assert not graph.is_frozen(first)
    loss.backward()
    assert second.grad is None
    assert first.grad.item() == 2 * 6 * 3
    graph.unfreeze(second)
    loss.backward()
    assert second.grad.item() == 2 * 6 * 2
    assert first.grad.item() == 2 * 2 * 6 * 3


def test_freeze_of_a_module(graph):
    body, head = ad.nn.Linear(2, 3), ad.nn.Linear(3, 1)
    x = graph.input(np.ones((4, 2), np.float32))
    with graph:
        loss = head(body(x).tanh()).sum()
    graph.freeze(body)
    assert graph.is_frozen(body)
    loss.backward()
    assert body.weight.grad is None
    assert head.weight.grad is not None
    optimizer = ad.optim.SGD(head.parameters(), lr=0.1)
    loss.item()
    with graph.events() as log:
        optimizer.step()
        loss.item()
    assert "Tanh" not in log.ran  # the frozen body does not run again


def test_detach_is_a_boundary_without_a_node_and_detach_node_one_with(graph):
    w = graph.parameter(3.0)
    h = w * 2
    nodes = len(graph)
    cut = h.detach()
    assert len(graph) == nodes
    y = h * cut
    y.backward()
    assert w.grad.item() == 12
    w.grad = None
    visible = h.detach_node()
    assert len(graph) > nodes
    z = h * visible
    z.backward()
    assert w.grad.item() == 12
    assert visible.item() == cut.item() == 6
    with ad.no_grad():
        w.copy_(ad.tensor(1.0))
    assert visible.item() == cut.item() == 2
    assert not visible.requires_grad
    assert not cut.requires_grad


def test_hooks_run_on_fresh_gradients_in_order(graph):
    w = graph.parameter(2.0)
    h = w * 3
    calls = []
    first = h.register_hook(lambda g: calls.append(("first", g.item())))
    h.register_hook(lambda g: calls.append(("second", g.item())) or g * 10)
    w.register_hook(lambda g: calls.append(("leaf", g.item())))
    loss = h * 5
    for _ in range(2):
        loss.backward()
    assert calls == [("first", 5), ("second", 5), ("leaf", 150)] * 2
    assert w.grad.item() == 300
    first.remove()
    del calls[:]
    loss.backward()
    assert [name for name, _ in calls] == ["second", "leaf"]


def test_post_accumulate_hooks(graph):
    w = graph.parameter(2.0)
    seen = []
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.item()))
    loss = w * w
    loss.backward()
    loss.backward()
    assert seen == [4, 8]


def test_retain_grad(graph):
    w = graph.parameter([1.0, 2.0])
    h = w * w
    h.retain_grad()
    (h * 3).sum().backward()
    assert h.grad.tolist() == [3, 3]


def test_a_hook_added_later_is_called(graph):
    w = graph.parameter(2.0)
    h = w * 3
    loss = h * h
    loss.backward()
    calls = []
    h.register_hook(lambda g: calls.append(g.item()))
    loss.backward()
    assert calls == [12]


def test_a_graph_goes_on_into_the_eager_tape(graph):
    w = ad.tensor(2.0, requires_grad=True)
    eager = w * w
    with graph:
        y = eager * 3
    y.backward(retain_graph=True)
    assert w.grad.item() == 12
    y.backward()
    assert w.grad.item() == 24


def test_backward_into_chosen_leaves(graph):
    a, b = graph.parameter(2.0), graph.parameter(3.0)
    loss = a * b
    loss.backward(inputs=[a])
    assert a.grad.item() == 3
    assert b.grad is None
    graph.backward(loss, inputs=b)
    assert b.grad.item() == 2
    assert a.grad.item() == 3


def test_a_gradient_is_a_value_of_its_own(graph):
    w, x = graph.parameter(2.0), graph.input(3.0)
    loss = w * x
    loss.backward()
    kept = w.grad
    x.set(10.0)
    loss.item()
    assert kept.item() == 3
    kept.add_(1)
    w.grad = None
    loss.backward()
    assert w.grad.item() == 10


def test_optimizers_see_what_backward_stored(graph):
    w, x = graph.parameter([1.0, -1.0]), graph.input([1.0, 2.0])
    optimizer = ad.optim.Adam([w], lr=0.1)
    loss = ((w * x).sum() - 3) ** 2
    twin = ad.tensor([1.0, -1.0], requires_grad=True)
    eager = ad.optim.Adam([twin], lr=0.1)
    for step in range(5):
        x.set([1.0, 2.0 + step])
        for parameters, make in ((optimizer, lambda: loss), (eager, None)):
            parameters.zero_grad()
            each = make() if make else ((twin * ad.tensor([1.0, 2.0 + step])).sum() - 3) ** 2
            each.backward()
            parameters.step()
        np.testing.assert_allclose(w.detach().numpy(), twin.detach().numpy(), rtol=1e-5)


def test_gradients_asked_for_outside_the_context_follow_eager_parameters(graph):
    w = ad.nn.Parameter(ad.tensor([0.5, 1.0]))
    v = ad.nn.Parameter(ad.tensor([2.0, 3.0]))
    with graph:
        loss = (w.sin() * v).sum()
    (g,) = ad.autograd.grad(loss, w)
    loss.backward()
    for _ in range(3):
        w.grad = v.grad = None
        with ad.no_grad():
            w.add_(0.25)
            v.mul_(2)
        loss.backward()
        expected = np.cos(w.detach().numpy()) * v.detach().numpy()
        np.testing.assert_allclose(g.detach().numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(v.grad.numpy(), np.sin(w.detach().numpy()), rtol=1e-6)


def test_a_view_of_a_detached_alias_stays_detached_when_the_memory_is_written(graph):
    w = graph.parameter([1.0, 2.0])
    h = w * 1
    view = h.detach().view(2, 1)
    h.mul_(3)
    assert view.tolist() == [[3], [6]]
    assert not view.requires_grad
    assert h.requires_grad


# ---- backward passes that are remembered ---------------------------------------------------------


def test_hooks_of_a_computed_tensor_outside_run_once_a_backward(graph):
    w = ad.ones(2, requires_grad=True)
    h = w * 2
    calls = []
    h.register_hook(lambda g: calls.append(g.tolist()) or g * 10)
    h.retain_grad()
    x = graph.input([1.0, 2.0])
    with graph:
        y = (x * h).sum()
        y.backward(retain_graph=True)
    assert w.grad.tolist() == [20, 40] and h.grad.tolist() == [10, 20]
    x.set([3.0, 4.0])
    w.grad = None
    y.backward()
    assert w.grad.tolist() == [60, 80] and calls == [[1, 2], [3, 4]]


def test_a_leaf_with_hooks_does_not_record_the_backward_anew(graph):
    x, w = graph.input([1.0, 2.0]), graph.parameter([1.0, 1.0])
    seen = []
    w.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    with graph:
        loss = (w * w * x).sum()
        loss.backward()
    count = len(graph.gradient_nodes)
    for value in ([3.0, 4.0], [5.0, 6.0]):
        x.set(value)
        w.grad = None
        loss.backward()
        assert w.grad.tolist() == [4 * each for each in value]
    assert seen == [[2, 4], [6, 8], [10, 12]]
    assert len(graph.gradient_nodes) == count and graph.stats()["plans"] == 1


def test_a_given_gradient_does_not_record_the_backward_anew(graph):
    x, w = graph.input([1.0, 2.0]), graph.parameter([1.0, 1.0])
    with graph:
        y = w * w * x
    nodes = []
    for value, g in (([1.0, 2.0], [1.0, 10.0]), ([3.0, 4.0], [1.0, 0.0]), ([3.0, 4.0], [0.0, 2.0])):
        given = ad.tensor(g)
        x.set(value)
        w.grad = None
        y.backward(given)
        given.zero_()
        assert w.grad.tolist() == [2 * a * b for a, b in zip(value, g, strict=True)]
        nodes.append(len(graph.gradient_nodes))
    assert len(set(nodes)) == 1 and graph.stats()["plans"] == 1
    w.grad = None
    y.sum().backward()
    assert w.grad.tolist() == [6, 8]
    with pytest.raises(ad.ShapeError, match="Mismatch in shape"):
        y.backward(ad.ones(3))


# ---- leaves among aliases ------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["parameter", "computed"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_detached_tensor_that_becomes_a_leaf_leaves_the_gradient_to_the_other(graph, of, inside):
    w = graph.parameter([1.0, 2.0])
    with graph if inside else contextlib.nullcontext():
        h = w if of == "parameter" else w * 1
        leaf = h.detach().requires_grad_()
        loss, other = (h * h).sum(), (leaf * leaf * 3).sum()
    loss.backward()
    assert w.grad.tolist() == [2, 4] and leaf.grad is None
    other.backward()
    assert w.grad.tolist() == [2, 4] and leaf.grad.tolist() == [6, 12]
    w.set([3.0, 4.0])
    other.backward()
    assert leaf.grad.tolist() == [24, 36]
    with pytest.raises(ad.GraphError, match=r"detach\(\)\.clone\(\)"), ad.no_grad():
        leaf.sub_(1)
    assert w.tolist() == [3, 4]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("by", ["a use before", "an alias"])
def test_what_was_computed_without_gradient_gives_a_leaf_none(graph, by, inside):
    w = graph.parameter([1.0, 2.0])
    with graph if inside else contextlib.nullcontext():
        with ad.no_grad():
            value = w * 2
        if by == "an alias":
            leaf = value.detach().requires_grad_()
            other = (value * w).sum()
        else:
            other = (value * w).sum()
            leaf = value.requires_grad_()
        loss = other + (leaf * leaf).sum()
    loss.backward()
    assert w.grad.tolist() == [2, 4] and leaf.grad.tolist() == [4, 8]


def test_a_detached_leaf_without_another_is_written_like_it(graph):
    x = graph.input([1.0, 2.0])
    leaf = x.detach().requires_grad_()
    (leaf * x).sum().backward()
    with ad.no_grad():
        leaf.sub_(leaf.grad)
    assert leaf.tolist() == x.tolist() == [0, 0]


def test_a_reentrant_checkpoint_is_differentiated_again(graph):
    x, layer = graph.input(ad.ones(2, 3), requires_grad=True), ad.nn.Linear(3, 3)
    with graph:
        y = checkpoint(lambda v: layer(v).tanh(), x, use_reentrant=True).sum()
    for value in (1.0, 2.0):
        x.set(ad.full((2, 3), value))
        layer.zero_grad()
        y.backward()
        expected = ad.autograd.grad(layer(x.snapshot()).tanh().sum(), layer.parameters())
        for p, g in zip(layer.parameters(), expected, strict=True):
            ad.testing.assert_close(p.grad, g)
