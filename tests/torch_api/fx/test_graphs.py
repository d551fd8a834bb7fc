"""Graphs that are made and changed by hand, beside PyTorch's."""

from __future__ import annotations

import copy
import gc
import math
import operator
import pickle

import pytest

import adjoint as ad
from adjoint.core.overrides import FOLLOWED

from ...pytorch import torch
from .test_tracing import net, same, text

BOTH = (ad, torch)


def by_hand(T):
    """A graph with every kind of node, and names that are taken."""
    graph = T.fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", type_expr=int, default_value=3)
    graph.call_function(operator.iadd, (x, 1))
    graph.call_function(getattr, (x, "foo bar"))
    graph.call_function(getattr, (x, "foo", None))
    d = graph.call_method("add", (x, y), {"alpha": 3})
    weight = graph.get_attr("p.0.weight")
    m = graph.call_module("a.0", (x, [weight, {"k": d}]))
    for name in ("zzz", "add", "x_5", "x", "1a b", "for", "x_5", "print", "y_0", "y_0"):
        graph.create_node("call_function", T.relu, (x,), name=name)
    graph.call_method("__getitem__", (x, 1))
    graph.call_function(operator.setitem, (x, 1, 2))
    graph.call_function(operator.getitem, (x, (1, slice(None))))
    for function in (operator.not_, operator.truth, operator.index, operator.inv, math.sqrt, len):
        graph.call_function(function, (x,))
    graph.call_function(operator.contains, (x, 1))
    graph.call_function(T.nn.Linear, (1, 2))
    for value in ([1, (x,)], {"a": (x,)}, range(3), math.inf, slice(x, 2), T.float32, None, "q'"):
        graph.call_function(T.relu, (value,))
    graph.output((m, d))
    return graph


def test_a_graph_by_hand_has_the_text_of_pytorchs():
    ours, theirs = map(by_hand, BOTH)
    assert text(ours.python_code("self").src) == text(theirs.python_code("self").src)
    assert text(str(ours)) == text(str(theirs))


def changed(T):
    """What passes do: insert, replace, erase, move, copy."""
    graph = T.fx.symbolic_trace(lambda x, y: T.relu(x) + x.neg() * y).graph
    relu = graph.find_nodes(op="call_function", target=T.relu)[0]
    with graph.inserting_after(relu):
        new = graph.call_method("gelu", (relu.args[0],))
        graph.call_method("exp", (relu.args[0],))
    with graph.inserting_after(new):
        newer = graph.call_function(T.sigmoid, (new,))
    relu.replace_all_uses_with(newer)
    graph.erase_node(relu)
    with graph.inserting_before(newer):
        graph.call_function(T.tanh, (new,))
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        z = graph.placeholder("z")
    first.prepend(first.next)
    newer.update_arg(0, z)
    newer.update_kwarg("out", None)
    newer.insert_arg(0, first)
    copied = T.fx.Graph()
    values = {}
    result = copied.graph_copy(graph, values)
    copied.output([result])
    dead = copied.eliminate_dead_code()
    return graph, copied, dead


def test_changes_give_the_graphs_that_they_give_in_pytorch():
    ours, theirs = map(changed, BOTH)
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        assert text(str(mine)) == text(str(other))
        assert len(mine.nodes) == len(other.nodes)
        assert list(map(str, reversed(mine.nodes))) == list(map(str, reversed(other.nodes)))
    assert ours[2] == theirs[2] is True


def test_an_erased_node_with_users_is_refused():
    graph = by_hand(ad)
    with pytest.raises(RuntimeError, match="Tried to erase Node x but it still had"):
        graph.erase_node(next(iter(graph.nodes)))


def test_lint_finds_what_is_wrong():
    graph = ad.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_method("neg", (x,))
    graph.output(y)
    graph.lint()
    x.prepend(y)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()
    x.append(y)
    y.args = (ad.fx.Graph().placeholder("z"),)
    with pytest.raises(RuntimeError, match="does not belong to this Graph"):
        graph.lint()
    with pytest.raises(RuntimeError, match="nonexistent attribute"):
        module = ad.fx.GraphModule({"a": ad.ones(1)}, reading("a"))
        del module.a
        module.graph.lint()


def reading(name):
    graph = ad.fx.Graph()
    graph.output(graph.get_attr(name))
    return graph


def test_arguments_are_not_changed_in_place():
    graph = ad.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(ad.cat, ([x, x],), {"dim": 0})
    with pytest.raises(TypeError, match="does not support mutation"):
        node.args[0].append(x)
    with pytest.raises(TypeError, match="does not support mutation"):
        node.kwargs["dim"] = 1
    node.args = ([x],)
    assert list(x.users) == [node]
    node.args = ([],)
    assert not x.users


@pytest.mark.parametrize("bad", ("x; import os", "a b", "1", "for", "__import__('os')("))
def test_text_that_is_no_name_never_gets_into_the_code(bad):
    graph = ad.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(ad.relu, (x,), name=bad)  # names of nodes are made identifiers
    with pytest.raises(ad.InvalidArgument):
        graph.placeholder(bad) if not bad.isidentifier() else graph.call_method(bad, (x,))
        graph.call_method(bad, (x,))
        graph.python_code("self")
    graph = ad.fx.Graph()
    graph.call_method(bad, (graph.placeholder("x"),))
    with pytest.raises(ad.InvalidArgument, match="no name"):
        graph.python_code("self")
    graph = ad.fx.Graph()
    graph.call_function(ad.relu, (graph.placeholder("x"),), {bad: 1})
    with pytest.raises(ad.InvalidArgument, match="no name"):
        graph.python_code("self")
    graph = ad.fx.Graph()
    graph.output(graph.get_attr(bad))
    value = ad.fx.GraphModule({bad: ad.ones(2)}, graph)()  # a string in the code
    assert value.tolist() == [1, 1]


class Nasty:
    def __repr__(self):
        return "__import__('os').abort()"

    __str__ = __repr__


def test_reprs_are_not_evaluated():
    graph = ad.fx.Graph()
    nasty = Nasty()
    graph.output((graph.call_function(isinstance, (nasty, Nasty)), nasty, "a\"\\'\n"))
    module = ad.fx.GraphModule({}, graph)
    assert module() == (True, nasty, "a\"\\'\n")


def test_a_module_of_a_dict():
    """In e3nn's manner: a graph by hand, with arithmetic of proxies."""
    graph = ad.fx.Graph()
    tracer = ad.fx.proxy.GraphAppendingTracer(graph)
    x = ad.fx.Proxy(graph.placeholder("x", ad.Tensor), tracer=tracer)
    w = ad.fx.Proxy(graph.get_attr("inner.w"), tracer)
    out = ad.einsum("ij,jk->ik", x, w.reshape(2, 3)) * (1 / math.sqrt(2))
    out = ad.cat([out, out.new_zeros((x.shape[0], 1))], dim=1)
    graph.output(out.node, ad.Tensor)
    graph.lint()
    w = ad.arange(6.0)
    module = ad.fx.GraphModule({"inner.w": w}, graph, class_name="Product")
    x = ad.randn(4, 2)
    expected = (x @ w.reshape(2, 3)) / math.sqrt(2)
    ad.testing.assert_close(module(x)[:, :3], expected)
    assert module(x)[:, 3].tolist() == [0] * 4
    assert list(module.state_dict()) == ["inner.w"] and "Product" in repr(module)
    with pytest.raises(RuntimeError, match="was not provided in ``root``"):
        ad.fx.GraphModule({}, graph)


def test_code_follows_the_graph_only_when_it_is_compiled_again():
    module = ad.fx.symbolic_trace(lambda x: x + 1)
    other = ad.fx.symbolic_trace(lambda x: x - 1)
    node = module.graph.find_nodes(op="call_function", target=operator.add)[0]
    node.target = operator.mul
    assert module(ad.tensor(5)).item() == 6
    module.recompile()
    assert module(ad.tensor(5)).item() == 5 and other(ad.tensor(5)).item() == 4
    module.graph = other.graph
    assert module(ad.tensor(5)).item() == 4


def test_copies_and_pickles_have_their_own_graph_and_values():
    model = net(ad)().eval()
    traced = ad.fx.symbolic_trace(model)
    x = ad.randn(2, 3)
    for made in (copy.deepcopy(traced), pickle.loads(pickle.dumps(_without_locals()))):
        assert made.graph is not traced.graph and made.graph.owning_module is made
    made = copy.deepcopy(traced)
    assert text(made.code) == text(traced.code) and type(made).__name__ == "Net"
    before = traced(x)[0].tolist()
    assert made(x)[0].tolist() == before
    with ad.no_grad():
        made.scale.zero_()
    made.graph.output_node().args = (1,)
    made.recompile()
    assert traced(x)[0].tolist() == before and made(x) == 1


def _without_locals():
    return ad.fx.symbolic_trace(ad.nn.Sequential(ad.nn.Linear(3, 2), ad.nn.ReLU()))


def test_a_pickle_has_nodes_and_no_code():
    module = _without_locals()
    text = pickle.dumps(module)
    assert b"def forward" not in text
    again = pickle.loads(text)
    x = ad.randn(2, 3)
    assert again(x).tolist() == module(x).tolist() and again.code == module.code


def test_folders_are_refused(tmp_path):
    with pytest.raises(ad.Unsupported, match=r"adjoint\.export"):
        _without_locals().to_folder(tmp_path)


def test_submodules():
    module = ad.fx.symbolic_trace(net(ad)())
    assert module.add_submodule("a.b.c", ad.nn.ReLU()) and module.a.b.c(ad.ones(1))
    assert not module.add_submodule("scale.x", ad.nn.ReLU())
    assert module.delete_submodule("a.b") and not module.delete_submodule("a.b")
    module.delete_all_unused_submodules()
    assert [name for name, _ in module.named_children()] == ["first", "blocks"]
    module.graph.lint()


def specialised(T):
    def f(x, y=None, flag=3):
        if y is not None:
            return x + y
        return x * flag if flag > 2 else x

    return T.fx.symbolic_trace(f, concrete_args={"y": None, "flag": 4})


def test_concrete_arguments():
    ours, theirs = map(specialised, BOTH)
    same(ours, theirs)
    x = ad.ones(1)
    assert ours(x, None, 4).item() == 4
    with pytest.raises(AssertionError, match="has been specialized to have value 4 but got"):
        ours(x, None, 5)
    with pytest.raises(AssertionError, match="specialized to have value None"):
        ours(x, 1, 4)
    with pytest.raises(ad.InvalidArgument, match="no arguments of"):
        ad.fx.symbolic_trace(lambda x: x, concrete_args={"q": 1})


def test_modules_that_are_not_the_roots_are_refused_as_in_pytorch():
    for T in BOTH:
        with pytest.raises(NameError, match="module is not installed as a submodule"):
            T.fx.symbolic_trace(lambda x: T.nn.Linear(2, 2)(x))  # noqa: B023
        with pytest.raises(NameError, match="parameter is not a member of this module"):
            T.fx.symbolic_trace(lambda x: x + T.nn.Parameter(T.ones(1)))  # noqa: B023
        with pytest.raises(NotImplementedError, match="argument of type"):
            T.fx.symbolic_trace(lambda x: (x, object()))


def test_tracing_leaves_the_modules_as_they_are_whatever_happens():
    call, read = ad.nn.Module.__call__, ad.nn.Module.__getattr__
    sine = math.sin
    with pytest.raises(ad.fx.proxy.TraceError):
        ad.fx.symbolic_trace(lambda x: 1 if math.sin(x) else 2)
    assert (ad.nn.Module.__call__, ad.nn.Module.__getattr__, math.sin) == (call, read, sine)
    assert not ad.fx._symbolic_trace.is_fx_tracing()


def test_public_functions_ask_for_proxies_only_while_there_are_any():
    gc.collect()
    assert ad.fx.Proxy not in FOLLOWED
    with pytest.raises(ad.fx.proxy.TraceError):
        ad.fx.symbolic_trace(lambda x: 1 if ad.relu(x) else 2)
    traced = ad.fx.symbolic_trace(net(ad)())
    gc.collect()
    assert ad.fx.Proxy not in FOLLOWED and len(traced.graph.nodes) > 10
    x = ad.fx.Proxy(ad.fx.Graph().placeholder("x"))
    assert ad.fx.Proxy in FOLLOWED and isinstance(ad.relu(x), ad.fx.Proxy)
    del x
    assert ad.fx.Proxy not in FOLLOWED
