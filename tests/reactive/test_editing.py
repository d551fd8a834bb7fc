"""Edits of a living graph, copies, and transactions: all of a change, or none of it."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import GraphError, ShapeError

# Nodes follow what a program writes: that is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Graph. ")


@pytest.fixture
def graph():
    graph = ad.Graph()
    yield graph
    graph.check_invariants()


# ---- edits ---------------------------------------------------------------------------------------


def test_replace_runs_only_what_used_the_old_node(graph):
    x, z = graph.input(2.0), graph.input(5.0)
    h = x * 3
    y, other = h + 1, z.exp()
    graph.forward(y, other)
    new = x * 5
    assert graph.replace(h, new) is new
    with graph.events() as log:
        assert y.item() == 11
        other.item()
    assert log.ran == ["Mul", "Add"]
    assert h.item() == 6


def test_replace_by_an_eager_tensor_and_by_a_number(graph):
    x = graph.input([1.0, 2.0])
    h = x * 3
    y = h + 1
    weight = ad.nn.Parameter(ad.tensor([10.0, 20.0]))
    graph.replace(h, weight)
    assert y.tolist() == [11, 21]
    with ad.no_grad():
        weight.add_(1)
    assert y.tolist() == [12, 22]
    y.sum().backward()
    assert weight.grad.tolist() == [1, 1]


def test_an_input_used_twice_is_replaced_in_both_places(graph):
    a, b = graph.input(2.0), graph.input(3.0)
    y = a * a
    graph.replace(a, b)
    assert y.item() == 9
    y.set_input(1, a)
    assert y.item() == 6
    b.set(7.0)
    assert y.item() == 14


def test_shapes_and_dtypes_downstream_are_known_at_once(graph):
    x = graph.input(np.ones((2, 3), np.float32))
    wide = graph.input(np.ones((4, 3)), dtype=ad.float64)
    h = x * 2
    y = h.sum(1)
    z = y.exp()
    graph.forward(z)
    graph.replace(h, wide)
    assert (y.shape, z.shape) == ((4,), (4,))
    assert (y.dtype, z.dtype) == (ad.float64, ad.float64)
    assert z.tolist() == pytest.approx([np.exp(3)] * 4)


def test_an_edit_that_does_not_fit_downstream_changes_nothing(graph):
    x, other = graph.input(np.ones((2, 3))), graph.input(np.ones((4, 5)))
    h = x * 2
    y = (h @ graph.input(np.ones((3, 2)))).sum()
    y.item()
    before = graph.stats()
    for wrong in (lambda: graph.replace(h, other), lambda: h.set_input(0, other)):
        with pytest.raises(ShapeError):
            wrong()
    after = graph.stats()
    assert {k: after[k] for k in before if k != "nodes"} == {
        k: before[k] for k in before if k != "nodes"
    }
    with graph.events() as log:
        assert y.item() == 24
    assert log.ran == []


def test_insert_after_and_remove_again(graph):
    x = graph.input(-2.0)
    h = x * 3
    y = h + 1
    new = graph.insert_after(h, ad.relu)
    assert y.item() == 1
    graph.replace(new, h)
    nodes = len(graph)
    graph.remove(new)
    assert y.item() == -5
    assert len(graph) == nodes - 1


def test_insert_after_a_source_and_several_nodes_deep(graph):
    x = graph.input(2.0)
    y = x * 10
    graph.insert_after(x, lambda h: (h + 1) * h)
    assert y.item() == 60
    x.set(3.0)
    assert y.item() == 120


def test_removing_takes_along_what_only_it_used(graph):
    x = graph.input(1.0, name="x")
    y = graph.name((x * 2).exp() + 1, "y")
    assert len(graph) == 4
    graph.remove(y)
    del y
    assert len(graph) == 1
    assert "y" not in graph


def test_an_output_of_several_keeps_its_place(graph):
    x, other = graph.input([[1.0, 2.0], [3.0, 4.0]]), graph.input([[5.0, 6.0]])
    h = x * 1
    _, second = h.unbind(0)
    y = second * 2
    assert y.tolist() == [6, 8]
    with pytest.raises(ShapeError, match="unbind"):
        graph.replace(h, other)
    assert y.tolist() == [6, 8]
    graph.replace(h, x.transpose(0, 1))
    assert y.tolist() == [4, 8]


def test_parameters_keep_values_and_optimizer_state(graph):
    w = graph.parameter([1.0, 2.0], name="w")
    x = graph.input([1.0, 1.0])
    h = w * x
    loss = (h * h).sum()
    optimizer = ad.optim.SGD([w], lr=0.1, momentum=0.9)
    loss.backward()
    optimizer.step()
    momentum = optimizer.state[w]["momentum_buffer"].tolist()
    value = w.tolist()
    graph.insert_after(h, lambda t: t * 2)
    assert w.tolist() == value
    assert optimizer.state[w]["momentum_buffer"].tolist() == momentum
    optimizer.zero_grad()
    loss.backward()
    assert w.grad.tolist() == pytest.approx([8 * v for v in value])
    optimizer.step()
    expected = [v - 0.1 * (0.9 * m + 8 * v) for v, m in zip(value, momentum, strict=True)]
    assert w.tolist() == pytest.approx(expected)


def test_edits_after_a_backward_that_change_shapes(graph):
    w = graph.parameter(np.ones((2, 3)))
    other = graph.parameter(np.ones((4, 3)))
    h = w * 2
    loss = (h * h).sum()
    loss.backward(retain_graph=True)
    kept = h.grad
    assert kept.tolist() == [[4.0] * 3] * 2
    graph.replace(h, other)
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert h.grad is None
    with pytest.raises(GraphError, match="removed"):
        kept.numpy()  # its nodes were of the pass before the edit
    loss.backward()
    assert other.grad.tolist() == [[2.0] * 3] * 4
    assert w.grad.tolist() == [[8.0] * 3] * 2


def test_a_node_recorded_under_no_grad_and_edited_to_use_a_parameter(graph):
    w = graph.parameter(3.0)
    x = graph.input(2.0)
    y = x * 2
    y.set_input(0, w)
    y.backward()
    assert w.grad.item() == 2


def test_a_cut_goes_with_its_use(graph):
    w, v = graph.parameter(3.0), graph.parameter(5.0)
    y = w.detach() * v
    y.backward()
    assert w.grad is None
    y.set_input(0, w)
    y.backward()
    assert w.grad.item() == 5
    assert v.grad.item() == 6


# ---- copies --------------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way(graph):
    w = graph.parameter([1.0, 2.0], name="w")
    x = graph.input([3.0, 4.0], name="x")
    y = graph.name((w * x).sum(), "y")
    y.item()
    other = graph.copy()
    with other.events() as log:
        assert other["y"].item() == 11
    assert log.ran == []  # values are copied too
    other["x"].set([0.0, 1.0])
    with ad.no_grad():
        other["w"].mul_(10)
    assert (other["y"].item(), y.item()) == (20, 11)
    other["y"].backward()
    assert other["w"].grad.tolist() == [0, 1]
    assert w.grad is None
    graph.replace(x, w)
    assert (other["y"].item(), y.item()) == (20, 5)
    assert other.twin(y).item() == 20
    assert isinstance(other["w"], ad.nn.Parameter)
    other.check_invariants()


def test_a_copy_shares_tensors_outside(graph):
    layer = ad.nn.Linear(2, 1)
    with graph:
        y = layer(ad.ones(1, 2)).sum()
    other = graph.copy()
    value = y.item()
    with ad.no_grad():
        layer.bias.add_(1)
    assert other.twin(y).item() == y.item() == pytest.approx(value + 1)


def test_a_twin_of_a_later_node(graph):
    x = graph.input(1.0)
    other = graph.copy()
    with pytest.raises(GraphError, match="was not in the graph when it was copied"):
        other.twin(x * 2)


# ---- transactions --------------------------------------------------------------------------------


class Stopped(Exception):
    """What a test stops a batch with."""


def everything(graph):
    """Values and structure by which two states of a graph can be told apart."""
    return {
        c: (type(c.op).__name__, c.inputs, c.cut, tuple(c.shape), c.version, c.array.tolist())
        if c.op is None
        else (c.op, c.inputs, c.cut, tuple(c.shape))
        for c in graph._state.cells()
    }


def test_many_sets_one_update(graph):
    xs = [graph.input(float(i)) for i in range(5)]
    y = ad.stack(xs).sum()
    y.item()
    with graph.events() as log:
        with graph.batch():
            for x in xs:
                x.set(1.0)
        assert y.item() == 5
    assert log.ran == ["Stack", "Sum"] or log.ran[-1] == "Sum"
    assert log.ran.count("Sum") == 1


def test_an_error_takes_back_sets_writes_and_edits(graph):
    x = graph.input([1.0, 2.0], name="x")
    w = graph.parameter([3.0, 4.0], name="w")
    outside = ad.nn.Parameter(ad.tensor([5.0, 6.0]))
    h = x * w
    with graph:
        y = (h + outside).sum()
    y.item()
    before = everything(graph)
    with pytest.raises(Stopped), graph.batch():
        x.set([9.0, 9.0])
        with ad.no_grad():
            w.add_(1)
            w[0] = 100.0
            outside.mul_(2)
            outside[1] = 7.0
        graph.replace(h, x)
        assert y.item() != 22
        h.set_input(1, x)
        raise Stopped
    assert x.tolist() == [1, 2]
    assert w.tolist() == [3, 4]
    assert outside.tolist() == [5, 6]
    assert everything(graph) == before
    assert y.item() == 22
    y.backward()
    assert outside.grad.tolist() == [1, 1]
    assert w.grad.tolist() == [1, 2]


def test_an_optimizer_step_is_taken_back(graph):
    w = graph.parameter([1.0, 2.0])
    loss = (w * w).sum()
    loss.backward()
    optimizer = ad.optim.Adam([w], lr=0.1)
    with pytest.raises(Stopped), graph.batch():
        optimizer.step()
        assert loss.item() < 5
        raise Stopped
    assert w.tolist() == [1, 2]
    assert loss.item() == 5


def test_an_unset_input_is_unset_again(graph):
    x = graph.input((2,))
    y = x * 2
    with pytest.raises(Stopped), graph.batch():
        x.set([1.0, 2.0])
        assert y.tolist() == [2, 4]
        raise Stopped
    with pytest.raises(GraphError, match="no value"):
        y.numpy()


def test_inner_batches_belong_to_the_outer_one(graph):
    x, y = graph.input(1.0), graph.input(1.0)
    z = x + y
    with pytest.raises(Stopped), graph.batch():
        with graph.batch():
            x.set(5.0)
        y.set(7.0)
        assert z.item() == 12
        raise Stopped
    assert z.item() == 2
    with graph.batch():
        try:
            with graph.batch():
                x.set(5.0)
                raise Stopped
        except Stopped:
            y.set(9.0)
    assert (x.item(), z.item()) == (1, 10)  # the inner batch is undone, the outer one is not


def test_errors_of_a_set_in_the_middle(graph):
    x, y = graph.input([1.0, 2.0]), graph.input([3.0, 4.0])
    z = (x * y).sum()
    z.item()
    with pytest.raises(ShapeError), graph.batch():
        x.set([5.0, 6.0])
        y.set([1.0, 2.0, 3.0])
    with graph.events() as log:
        assert z.item() == 11
    assert log.ran == []


def test_a_batch_that_is_done_stays(graph):
    x = graph.input(1.0)
    y = x * 2
    with graph.batch():
        x.set(2.0)
    with pytest.raises(Stopped), graph.batch():
        x.set(3.0)
        raise Stopped
    assert y.item() == 4


def test_names_and_nodes_made_in_a_batch(graph):
    x = graph.input(1.0, name="x")
    with pytest.raises(Stopped), graph.batch():
        graph.input(2.0, name="y")
        graph.name(x * 2, "z")
        raise Stopped
    assert "y" not in graph
    assert "z" not in graph
    graph.input(3.0, name="y")


def test_a_removal_is_taken_back(graph):
    x = graph.input([1.0, 2.0], "x")
    w = graph.parameter([3.0, 4.0], "w")
    y = graph.name(x * w, "y")
    before = everything(graph)
    y.sum().backward()
    with pytest.raises(Stopped), graph.batch():
        x.set([5.0, 6.0])
        graph.remove("y")
        graph.remove(w)
        graph.remove(x)
        assert len(graph) == 0
        with pytest.raises(GraphError, match="removed"):
            x.set([7.0, 8.0])
        raise Stopped
    assert everything(graph) == before
    assert (list(graph.inputs), graph["y"].tolist()) == (["x"], [3, 8])
    y.sum().backward()
    assert w.grad.tolist() == [2, 4]


def test_structure_before_and_after_many_edits_in_a_batch(graph):
    x = graph.input(np.ones((2, 2)))
    wide = graph.input(np.ones((3, 2)))
    a = x * 2
    b = a.sum(0)
    c = b.exp().sum()
    c.item()
    before = everything(graph)
    with pytest.raises(Stopped), graph.batch():
        graph.replace(a, wide)
        assert c.item() == pytest.approx(2 * np.exp(3))
        graph.insert_after(b, ad.sin)
        a.set_input(0, wide)
        c.item()
        raise Stopped
    assert b.shape == (2,)
    assert a.shape == (2, 2)
    assert everything(graph) == before
    assert c.item() == pytest.approx(2 * np.exp(4))


def test_replacing_keeps_the_boundary_of_a_detached_use(graph):
    w, v, u = graph.parameter(3.0), graph.parameter(5.0), graph.parameter(7.0)
    y = w.detach() * v
    graph.replace(w, u)
    y.backward()
    assert u.grad is None
    assert v.grad.item() == 7
    graph.insert_after(u, lambda t: t * 2)
    y.backward()
    assert u.grad is None
    assert v.grad.item() == 21


def test_set_input_to_a_detached_node(graph):
    w, v = graph.parameter(3.0), graph.parameter(5.0)
    h = w * 2
    y = w * v
    y.set_input(0, h.detach())
    y.backward()
    assert w.grad is None
    assert v.grad.item() == 6


def test_a_copy_does_not_copy_remembered_backward_passes(graph):
    w = graph.parameter(np.ones((2, 3)), name="w")
    wide = graph.parameter(np.ones((4, 3)), name="wide")
    h = w * 2
    y = graph.name(h.sin().sum(), "y")
    nodes = len(graph)
    y.backward()
    other = graph.copy()
    assert len(other) == nodes
    other.replace(other.twin(h), other["wide"])
    other["y"].backward()
    assert other["wide"].grad.shape == wide.shape
    other.check_invariants()


def test_a_failed_batch_does_not_take_back_gradients_derived_in_it(graph):
    w = graph.parameter(2.0)
    h = w * 3
    y = h * h
    (g,) = ad.autograd.grad(y, w)
    graph.insert_after(h, ad.sin)
    with pytest.raises(Stopped), graph.batch():
        y.item()  # derives g anew
        raise Stopped
    assert g.item() == pytest.approx(3 * np.sin(12))
    with pytest.raises(Stopped), graph.batch():
        y.set_input(0, w)
        y.item()
        raise Stopped
    assert g.item() == pytest.approx(3 * np.sin(12))


# ---- removing after a backward -------------------------------------------------------------------


def test_what_only_gradients_use_is_removed(graph):
    w = graph.parameter(2.0, name="w")
    h = graph.name(w * 3, "h")
    (h * h).backward()  # of a loss that nobody holds
    graph.backward(h, retain_graph=True)
    kept = w.grad.item()
    assert kept == 36 + 3
    graph.remove(h)
    assert (len(graph), graph.stats()["nodes"], graph.nodes == [w]) == (1, 1, True)
    assert "h" not in graph
    for use in (h.item, lambda: h.set(1.0), lambda: h.set_input(0, w), lambda: graph.users(h)):
        with pytest.raises(GraphError, match=r"'h' of shape .* was removed"):
            use()
    y = w * 5
    y.backward()
    assert w.grad.item() == kept + 5


def test_a_removed_input_is_not_revived(graph):
    x = graph.input([1.0, 2.0], "x")
    graph.remove("x")
    assert len(graph) == 0
    assert graph.inputs == {}
    for write in (
        lambda: x.set([3.0, 4.0]),
        lambda: x.copy_(ad.ones(2)),
        lambda: x.fill_(1.0),
        lambda: x.__setitem__(0, 5.0),
        x.tolist,
        lambda: graph.remove(x),
    ):
        with pytest.raises(GraphError, match=r"'x' of shape .* was removed"):
            write()
    assert len(graph) == 0
    graph.input(1.0, "x")


def test_the_middle_of_a_recorded_backward_pass_is_taken_out(graph):
    w, v = graph.parameter(2.0), graph.parameter(3.0)
    h = w * v
    k = h.exp()
    loss = k + h * w
    for taken_out in (False, True):
        if taken_out:
            assert graph.splice_out(k).node is h.node
        w.grad = v.grad = None
        loss.backward(retain_graph=taken_out)
        a, b = ad.tensor(2.0, requires_grad=True), ad.tensor(3.0, requires_grad=True)
        (a * b if taken_out else (a * b).exp()).add(a * b * a).backward()
        assert w.grad.item() == pytest.approx(a.grad.item())
        assert v.grad.item() == pytest.approx(b.grad.item())
        graph.check_invariants()
    with pytest.raises(GraphError, match="removed"):
        k.item()


def test_a_gradient_that_someone_holds_is_a_user(graph):
    w = graph.parameter(3.0)
    y = w * w
    (g,) = ad.autograd.grad(y, w)
    with pytest.raises(GraphError, match="'mul' is used by 'derivative'"):
        graph.remove(y)
    assert g.item() == 6
    graph.remove(g)
    graph.remove(y)
    w.set(4.0)
    assert len(graph) == 1


def test_a_removal_with_several_names(graph):
    y = graph.name(graph.name(graph.input(1.0, "x") * 2, "y"), "also")
    graph.remove("y")
    assert "also" not in graph
    assert graph.inputs.keys() == {"x"}
    del y


# ---- inputs of nodes -----------------------------------------------------------------------------


def test_inputs_of_a_cat_come_and_go(graph):
    a, b, c = (graph.parameter([float(i)] * (i + 1), f"p{i}") for i in range(3))
    y = ad.cat([a, b])
    loss = (y * y).sum()
    loss.backward()
    y.add_input("p2")
    y.add_input(a.detach(), 0)
    assert y.tolist() == [0, 0, 1, 1, 2, 2, 2]
    a.grad = b.grad = None
    loss.backward()
    assert (a.grad.tolist(), b.grad.tolist(), c.grad.tolist()) == ([0], [2, 2], [4, 4, 4])
    y.remove_input(1)  # a, attached; the cut stays with the other
    a.set([5.0])
    a.grad = None
    loss.backward()
    assert a.grad is None
    y.remove_input(-1)
    assert (y.tolist(), graph.inputs_of(y)) == ([5, 1, 1], [a, b])
    with pytest.raises(ad.core.errors.InvalidArgument, match="no number 2"):
        y.remove_input(2)
    y.remove_input(0)
    with pytest.raises(GraphError, match="would have no inputs"):
        y.remove_input(0)
    with pytest.raises(GraphError, match=r"'sum' has a fixed number of inputs \(1\)"):
        loss.add_input(a)
    with pytest.raises(GraphError, match="cycle"):
        y.add_input(loss.reshape(1))
    assert y.tolist() == [1, 1]


def test_an_input_that_does_not_fit_is_added_in_a_batch(graph):
    a, b = graph.input(np.ones(2)), graph.input(np.ones(3))
    y = ad.stack([a]).sum()
    (stacked,) = graph.inputs_of(y)
    with pytest.raises(ShapeError, match="at node 'stack'"):
        stacked.add_input(b)
    with graph.batch():
        stacked.add_input(b)
        a.set(np.ones(3))
    assert y.item() == 6


def test_constants_names_and_numbers_as_inputs(graph):
    x = graph.input([2.0, 3.0], "x")
    y = x * 3
    for value in (4.0, 5.0):
        assert y.set_input(1, value).tolist() == [2 * value, 3 * value]
    for value in (7.0, 8.0):
        assert y.set_input(0, value).item() == 5 * value
    assert y.set_input(0, "x").tolist() == [10, 15]
    assert y.set_input(1, [1.0, 2.0]).tolist() == [2, 6]
    with pytest.raises(GraphError, match="no node is named 'z'"):
        y.set_input(0, "z")
    assert graph.replace("x", 1.5) == 1.5
    assert y.tolist() == [1.5, 3]


def test_users_and_inputs(graph):
    x = graph.parameter(2.0, "x")
    y, z = x * 3, x.exp()
    y.backward()
    assert [each.node for each in graph.users("x")] == [y.node, z.node]
    assert graph.inputs_of(y) == [x, 3]
    first, _ = graph.input([[1.0], [2.0]]).unbind(0)
    (whole,) = graph.inputs_of(first)
    assert [each.node.label for each in graph.users(graph.inputs_of(whole)[0])] == ["unbind"]


def test_splice_out(graph):
    w, v = graph.parameter(2.0), graph.parameter(3.0)
    h = graph.name(w.detach() * 5, "h")
    y = h * v
    assert graph.splice_out("h") is w
    assert "h" not in graph
    y.backward()
    assert (w.grad, v.grad.item()) == (None, 2)  # the gradient ended in front of h
    k = w * v
    z = k + 1
    with pytest.raises(GraphError, match="2 inputs that are tensors"):
        graph.splice_out(k)
    assert graph.splice_out(k, 1) is v
    assert z.item() == 4
    with pytest.raises(GraphError, match="0 inputs that are tensors"):
        graph.splice_out(w)


def test_a_splice_that_does_not_fit_changes_nothing(graph):
    x = graph.input(np.ones((2, 3)))
    h = x.sum(0)
    y = ad.stack([h, graph.input(np.ones(3))])
    with pytest.raises(ShapeError, match="at node 'stack'"):
        graph.splice_out(h)
    assert y.tolist() == [[2] * 3, [1] * 3]
    assert h.tolist() == [2] * 3


def test_rename(graph):
    x = graph.input(1.0, "x")
    y = graph.name(x * 2, "y")
    with pytest.raises(Stopped), graph.batch():
        graph.rename("x", "a")
        graph.rename(y, "b")
        graph.name(y, "c")
        graph.input(1.0, "x")
        assert (graph["a"] is x, graph["b"] is y, y.node.label) == (True, True, "c")
        graph.remove("b")
        raise Stopped
    assert (x.node.label, y.node.label, graph["x"] is x, graph["y"] is y) == ("x", "y", True, True)
    assert graph.rename(y, "z") is graph["z"]
    assert graph.rename("x", "x") is x
    for node, new in (("z", "x"), ("q", "r")):
        with pytest.raises(GraphError, match="named"):
            graph.rename(node, new)
    assert list(graph.inputs) == ["x"]


def test_no_operation_takes_a_removed_node():
    graph = ad.Graph()
    a, b = graph.input(1.0, "a"), graph.input(2.0, "b")
    y = a * 2
    graph.remove(y)
    graph.remove(a)
    for gone in (a, y):
        for function in (
            lambda x: x + 1, lambda x: 1 + x, lambda x: b * x, lambda x: x.exp(), lambda x: x + x,
            lambda x: ad.stack([b, x]), lambda x: x.detach() + 1, lambda x: x.sum(0),
        ):  # fmt: skip
            with pytest.raises(GraphError, match="was removed from its graph"):
                function(gone)
    assert len(graph) == 1
    graph.check_invariants()


def test_a_node_is_removed_once():
    graph = ad.Graph()
    a = graph.input(1.0, "a")
    with pytest.raises(GraphError, match="was removed"), graph.batch():
        graph.remove(a)
        graph.remove(a)
    assert graph["a"] is a and a.item() == 1
    with graph.batch():
        graph.remove("a")
        with pytest.raises(GraphError, match="no node is named 'a'"):
            graph.remove("a")
        with pytest.raises(GraphError, match="was removed"):
            graph.remove(a)
    assert "a" not in graph
    graph.check_invariants()


def test_parameters_of_modules_go_by_the_modules_names():
    graph = ad.Graph()
    w = graph.parameter(1.0, "w")
    net = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.ReLU(), ad.nn.Linear(2, 1))
    alone = ad.nn.Parameter(ad.ones(1))
    with graph:
        y = net(graph.input(ad.ones(3, 2))) * w * alone
    assert y.shape == (3, 1)
    names = dict(graph.named_parameters())
    assert names["w"] is w and names["outside0"] is alone
    (root,) = {name.split(".")[0] for name in names if "." in name}
    assert root.startswith("Sequential")
    for name, parameter in net.named_parameters():
        assert names[f"{root}.{name}"] is parameter
