"""Bad use of a graph: a clear error, and the graph as it was."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import AutogradError, DTypeError, GraphError, InvalidArgument, ShapeError


@pytest.fixture
def graph():
    graph = ad.Graph()
    yield graph
    graph.check_invariants()


def test_an_input_that_was_never_set(graph):
    x = graph.input((2, 3), name="features")
    y = (x * 2).sum()
    for read in (y.item, x.numpy, lambda: graph.forward(y), lambda: print(y)):
        with pytest.raises(GraphError, match=r"'features' of shape \(2, 3\) has no value"):
            read()
        graph.check_invariants()
    x.set(np.ones((2, 3)))
    assert y.item() == 12


@pytest.mark.parametrize("value", [[1.0, 2.0], 1.0, np.ones((3, 2)), np.ones((1, 2, 3)), []])
def test_a_value_of_the_wrong_shape(graph, value):
    x = graph.input(np.zeros((2, 3), np.float32), name="x")
    y = ad.stack([x, graph.input(np.ones((2, 3), np.float32))]).sum(0)
    y.numpy()
    version = x.node.version
    with pytest.raises(ShapeError, match=r"equal size.* at node 'stack', the graph is unchanged"):
        x.set(value)
    assert x.node.version == version
    assert x.shape == (2, 3)
    with graph.events() as log:
        assert y.tolist() == [[1, 1, 1]] * 2
    assert log.ran == []


def test_a_value_of_the_wrong_dtype(graph):
    x = graph.input(ad.tensor([1, 2]), name="x")
    with pytest.raises(DTypeError, match="holds int64, the value is float"):
        x.set([1.5, 2.5])
    x.set(ad.tensor([3, 4], dtype=ad.int32))
    assert x.tolist() == [3, 4]
    assert x.dtype == ad.int64


def test_something_that_is_no_value(graph):
    x = graph.input(1.0)
    for wrong in ("text", None, object(), {"a": 1}):
        with pytest.raises((TypeError, ValueError)):
            x.set(wrong)
    assert x.item() == 1


def test_set_of_a_computed_node(graph):
    y = graph.input(1.0) * 2
    with pytest.raises(GraphError, match="'mul' is computed"):
        y.set(3.0)
    assert y.item() == 2


def test_in_place_writes_check_shapes_first(graph):
    x = graph.input([1.0, 2.0])
    y = x * 2
    y.numpy()
    for wrong in (
        lambda: x.add_(ad.ones(3)), lambda: x.copy_(ad.ones(5)), lambda: y.mul_(ad.ones(2, 2)),
        lambda: x.__setitem__(7, 1.0),
    ):  # fmt: skip
        with pytest.raises((ad.AdjointError, IndexError)):
            wrong()
    with graph.events() as log:
        assert y.tolist() == [2, 4]
    assert log.ran == []


def test_a_leaf_is_not_written_while_gradients_are_on(graph):
    w = graph.parameter([1.0])
    with pytest.raises(AutogradError, match="leaf"):
        w.add_(1)
    assert w.item() == 1


def test_shapes_are_checked_at_the_line_that_records(graph):
    a, b = graph.input((2, 3)), graph.input((2, 3))
    nodes = len(graph)
    with pytest.raises(ShapeError, match="matmul"):
        a @ b
    assert len(graph) == nodes


def test_two_graphs_are_not_mixed(graph):
    other = ad.Graph()
    x, y = graph.input(1.0), other.input(2.0)
    for mix in (
        lambda: x + y,
        lambda: graph.forward(y),
        lambda: graph.backward(y),
        lambda: (x * 2).set_input(0, y),
        lambda: graph.replace(x, y),
        lambda: graph.remove(y),
        lambda: ad.cat([x.reshape(1), y.reshape(1)]),
        lambda: graph.insert_after(x, lambda h: y),
        lambda: graph.name(y, "y"),
        lambda: x.copy_(y),
    ):
        with pytest.raises(GraphError, match="graph"):
            mix()
    assert (x.item(), y.item()) == (1, 2)
    other.check_invariants()


def test_a_value_goes_to_another_graph_as_a_value(graph):
    other = ad.Graph()
    y = graph.input(1.0) * 3
    x = other.input(0.0)
    x.set(y.item())
    assert (x + 1).item() == 4
    x.set(y)
    assert (x + 1).item() == 4


def test_a_node_is_not_used_after_removal(graph):
    x = graph.input(1.0, name="x")
    y = graph.name(x * 2, "twice")
    graph.remove(y)
    assert "twice" not in graph
    for use in (y.item, lambda: (y + 1).item(), lambda: graph.forward(y)):
        with pytest.raises(GraphError, match="removed"):
            use()
    with pytest.raises(ad.AdjointError):
        y.sum().backward()
    graph.check_invariants()
    assert (x + 1).item() == 2


def test_a_node_in_use_is_not_removed(graph):
    x = graph.input(1.0)
    h = x * 2
    y = h + 1
    with pytest.raises(GraphError, match="'mul' is used by 'add'"):
        graph.remove(h)
    assert y.item() == 3


def test_names_are_taken_once(graph):
    graph.input(1.0, name="x")
    for again in (
        lambda: graph.input(2.0, name="x"),
        lambda: graph.parameter(2.0, name="x"),
        lambda: graph.name(graph["x"] * 2, "x"),
    ):
        with pytest.raises(GraphError, match="named 'x' already"):
            again()
    with pytest.raises(GraphError, match=r"no node is named 'y'; there are \['x'\]"):
        graph["y"]
    assert graph["x"].item() == 1


@pytest.mark.parametrize("make", ["input", "parameter"])
def test_neither_value_nor_shape(graph, make):
    with pytest.raises(InvalidArgument, match="give a value or a shape"):
        getattr(graph, make)()


def test_a_parameter_of_integers(graph):
    with pytest.raises((AutogradError, RuntimeError)):
        graph.parameter([1, 2], name="w", dtype=ad.int64)
    assert "w" not in graph
    graph.parameter([1.0], name="w")


def test_eager_tensors_are_no_nodes(graph):
    x = ad.ones(2)
    for use in (
        lambda: graph.forward(x), lambda: graph.replace(x, x), lambda: graph.remove(x),
        lambda: x.set_input(0, x), lambda: x.detach_node(), lambda: graph.forward(3),
    ):  # fmt: skip
        with pytest.raises(GraphError, match="Graph"):
            use()


def test_set_input_with_a_bad_index(graph):
    y = graph.input(1.0) + graph.input(2.0)
    for index in (2, -3, 100):
        with pytest.raises(InvalidArgument, match="has 2 inputs"):
            y.set_input(index, graph.input(1.0))
    with pytest.raises((GraphError, InvalidArgument)):
        graph.input(1.0).set_input(0, y)


def test_a_cycle_is_named_and_nothing_changes(graph):
    x = graph.input(1.0, name="X")
    a = graph.name(x + 1, "A")
    b = graph.name(a * 2, "B")
    c = graph.name(b.sin(), "C")
    c.item()
    with pytest.raises(GraphError, match="A -> B -> C -> A"):
        a.set_input(0, c)
    with pytest.raises(GraphError, match="A -> A"):
        a.set_input(0, a)
    with pytest.raises(GraphError, match=r"B -> C -> B|C -> B -> C"):
        graph.replace(a, c)
    graph.check_invariants()
    with graph.events() as log:
        assert c.item() == pytest.approx(np.sin(4))
    assert log.ran == []


def test_backward_of_what_needs_no_gradient(graph):
    x = graph.input(1.0)
    with pytest.raises(AutogradError, match="does not require grad"):
        (x * 2).backward()
    w = graph.parameter(1.0)
    with pytest.raises(AutogradError):
        (w * 2).detach().backward()
    with pytest.raises(AutogradError):
        ad.autograd.grad(w * 2, x)


def test_a_node_is_not_pickled(graph):
    y = graph.input(1.0) * 2
    with pytest.raises((ad.AdjointError, TypeError, pickle.PicklingError)):
        pickle.dumps(y)
    assert y.item() == 2


def test_a_nodes_value_is_saved_as_a_value(graph, tmp_path):
    y = graph.input([1.0, 2.0]) * 2
    ad.save({"y": y.detach()}, tmp_path / "y.pt")
    assert ad.load(tmp_path / "y.pt")["y"].tolist() == [2, 4]


def test_an_exception_inside_the_context_leaves_the_mode(graph):
    with pytest.raises(KeyError), graph:
        raise KeyError
    assert type((ad.ones(1) + 1)._data) is np.ndarray


def test_graphs_nest(graph):
    other = ad.Graph()
    with graph:
        a = ad.ones(2) + 1
        with other:
            b = ad.ones(2) + 2
        c = a + 1
    assert a.node.state is c.node.state
    assert b.node.state is not a.node.state
    assert c.tolist() == [3, 3]


LEAF_WRITES = {
    "mul_": lambda x: x.mul_(2),
    "copy_": lambda x: x.copy_(ad.ones(3)),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "fill_": ad.nn.init.zeros_,
    "add_": lambda x: (x.sum().backward(), ad.optim.SGD([x], lr=0.1).step()),
    "exp": lambda x: ad.exp(ad.ones(3), out=x),
}


@pytest.mark.parametrize("name", LEAF_WRITES)
@pytest.mark.parametrize("lines", [False, True])
def test_a_write_to_a_leaf_that_shows_a_node_names_op_node_line_and_remedy(name, lines):
    graph = ad.Graph(lines=lines)
    x = graph.input(ad.ones(3))
    with graph:
        node = x * 2
        leaf = node.detach().requires_grad_()
        y = leaf * 3
        recorded = r", which was recorded at \S*test_graph_errors.py:\d+" if lines else ""
        said = (
            rf"^{name}: at \S*test_graph_errors.py:\d+, a leaf of shape \(3,\) would be written, "
            rf".* node 'mul'{recorded}: .*node.detach\(\).clone\(\).requires_grad_\(\)$"
        )
        with pytest.raises(ad.GraphError, match=said), ad.set_grad_enabled(name == "add_"):
            LEAF_WRITES[name](leaf)
        assert node.tolist() == [2, 2, 2] and y.tolist() == [6, 6, 6]
        own = node.detach().clone().requires_grad_()  # the remedy
        with ad.set_grad_enabled(name == "add_"):
            LEAF_WRITES[name](own)
        assert node.tolist() == [2, 2, 2] and own.tolist() != [2, 2, 2]
