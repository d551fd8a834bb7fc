"""Drawings of a Graph: states, boundaries, modules, names, times."""

from __future__ import annotations

import re

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidType


def nodes(graph, **options):
    return {node.title: node for node in graph.snapshot(**options).nodes}


def test_states_follow_the_graph():
    graph = ad.Graph()
    x, w = graph.input((2,), "x", dtype=ad.float32), graph.parameter(ad.tensor([1.0, 2.0]), "w")
    y = x * w
    z = y.exp()
    assert {t: n.state for t, n in nodes(graph).items()} == {
        "x": "never", "w": "fresh", "mul": "never", "exp": "never",
    }  # fmt: skip
    x.set([1.0, 1.0])
    graph.forward(y)
    found = nodes(graph)
    assert (found["mul"].state, found["exp"].state) == ("fresh", "never")
    assert found["mul"].statistics().mean == 1.5 and found["exp"].statistics() is None
    graph.forward(z)
    before = nodes(graph)
    x.set([2.0, 2.0])
    after = nodes(graph)
    assert (after["mul"].state, after["exp"].state) == ("stale", "stale")
    assert after["x"].version > before["x"].version
    assert [n.id for n in after.values()] == [n.id for n in before.values()]
    assert after["w"].kind == "parameter" and after["x"].kind == "input"
    assert after["x"].shape == (2,) and after["mul"].dtype == "float32"
    z.sum().backward()
    assert nodes(graph)["mul"].state == "released" and nodes(graph)["w"].grad_norm() > 0


def test_looking_computes_nothing():
    graph = ad.Graph()
    y = graph.input([1.0], "x").exp()
    with graph.events() as log:
        graph.to_dot()
        graph.snapshot().to_html()
        y.graph().to_html()
    assert log.ran == [] and graph.stats()["runs"] == 0


def test_detached_inputs_are_boundaries():
    graph = ad.Graph()
    x = graph.input([1.0], "x", requires_grad=True)
    y = x.exp()
    z = y * y.detach() + y.detach()
    found = z.graph()
    (boundary,) = [node for node in found.nodes if node.kind == "boundary"]
    pairs = [(found.nodes[e.source].op, found.nodes[e.target].op) for e in found.edges]
    assert boundary.title == "exp, detached"
    assert sorted(pairs) == [
        ("detach", "add"), ("detach", "mul"), ("exp", "detach"), ("exp", "mul"), ("input", "exp"),
        ("mul", "add"),
    ]  # fmt: skip
    assert graph.to_dot().count("style=dashed") == 3


def test_modules_lines_outputs_and_times():
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
    graph = ad.Graph(lines=True)
    x = graph.input([[1.0, 2.0]], "x")
    with graph:
        a, b = model(x).chunk(2, 1)
        y = a * b
    with graph.events() as log:
        graph.forward(y)
        x.set([[3.0, 4.0]])
        graph.forward(y)
    found = graph.snapshot(log=log).nodes
    by_op = {node.op: node for node in found}
    assert by_op["tanh"].module.endswith("1") and by_op["linear"].module.endswith("0")
    assert by_op["mul"].module == "" and by_op["mul"].runs == 2 and by_op["mul"].time_us > 0
    assert re.fullmatch(r"test_view_graph\.py:\d+  y = a \* b", by_op["mul"].source)
    assert by_op["split"].attributes["output 1"] == "(1, 2) float32"
    assert [node.op for node in found].count("item") == 0
    names = {node.label for node in found if node.kind == "parameter"}
    assert names == {"Sequential.0.weight", "Sequential.0.bias"}
    names = nn.ModuleDict({"net": model})
    found = y.graph(names).nodes
    assert {n.label for n in found if n.kind == "parameter"} == {"net.0.weight", "net.0.bias"}


def test_only_what_led_to_a_tensor():
    graph = ad.Graph()
    x = graph.input(1.0, "x")
    y, _other = x + 1, x * 2
    assert [node.title for node in y.graph().nodes] == ["x", "add"]
    assert len(graph.snapshot().nodes) == 3


def test_stale_nodes_are_marked_in_dot():
    graph = ad.Graph()
    x = graph.input(1.0, "x")
    y = x + 1
    y.item()
    assert "stale" not in graph.to_dot()
    x.set(2.0)
    assert graph.to_dot().count(r"\nstale") == 1


def test_a_backward_pass_is_a_box_of_its_own():
    graph = ad.Graph()
    w = graph.parameter(2.0, "w")
    loss = (w * w).exp()
    loss.backward()
    found = graph.snapshot().nodes
    assert [node.op for node in found if not node.module] == ["parameter", "mul", "exp"]
    backward = [node for node in found if node.module == "backward"]
    assert len(backward) == len(found) - 3 == len(graph.gradient_nodes)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def boxes(snapshot):
    return {node.module for node in snapshot.nodes if node.kind == "op"}


def names(snapshot, kind="parameter"):
    return {node.label for node in snapshot.nodes if node.kind == kind}


def test_each_module_is_a_box_also_two_of_one_class():
    G, D = Net(), Net()
    graph = ad.Graph()
    x = graph.input([[1.0, 2.0]], "x")
    with graph:
        loss = D(G(x)).sum() + G(x + 1).sum()
    found = loss.graph()
    assert boxes(found) == {"", "Net", "Net.body", "Net.head", "Net#2", "Net#2.body", "Net#2.head"}
    assert sum(node.op == "linear" for node in found.nodes if node.module == "Net.body") == 2
    expected = {f"{name}.{p}" for name in ("Net", "Net#2") for p, _ in G.named_parameters()}
    assert names(found) == names(graph.snapshot()) == expected


def test_modules_given_by_keyword_have_that_name():
    G, D = Net(), Net()
    D.body.requires_grad_(False)
    x = ad.ones(1, 2)
    graph = ad.Graph()
    with graph:
        in_graph = D(G(x)).sum()
    with ad.lazy():
        lazy = D(G(x)).sum()
    with ad.view.observe():
        eager = D(G(x)).sum()
    parameters = {f"G.{p}" for p, _ in G.named_parameters()} | {"D.head.weight", "D.head.bias"}
    for loss in (in_graph, lazy, eager, D(G(x)).sum()):
        found = loss.graph(G=G, D=D)
        assert names(found) == parameters
        frozen = {"D.body.weight", "D.body.bias"}
        if not loss.is_computed:
            assert names(found, "frozen") == frozen
        else:  # a tape knows only what gradients flow through, or read
            assert names(found, "frozen") == {"D.body.weight"}
    inside = {"G", "G.body", "G.head", "D", "D.body", "D.head", ""}
    assert boxes(in_graph.graph(G=G, D=D)) == boxes(eager.graph(G=G, D=D)) == inside
    assert boxes(graph.snapshot(G=G, D=D)) == inside
    assert "Net" in boxes(in_graph.graph(D=D)) and "D" in boxes(in_graph.graph(D=D))
    with pytest.raises(InvalidType, match="graph: titel='loss' is no Module"):
        in_graph.graph(titel="loss")
    plain = names(in_graph.graph(G))
    assert {"body.weight", "Net#2.head.bias"} <= plain


def test_frozen_parameters_are_marked(tmp_path):
    model, graph = nn.Linear(2, 1), ad.Graph()
    graph.freeze(model)
    with graph:
        y = model(ad.ones(1, 2))
    assert graph.to_dot().count(r"\nfrozen") == 2
    page = graph.save_html(tmp_path / "graph.html", net=model).read_text()
    assert page.count('"kind":"frozen"') == 2 and '"label":"net.bias"' in page
    graph.unfreeze(model)
    assert "frozen" not in graph.to_dot() and y.graph().nodes[1].kind == "parameter"


def test_a_lazy_computation_is_drawn_before_it_runs():
    model = nn.Linear(2, 4)
    given = ad.ones(3, 2) * 2
    with ad.lazy():
        x = given + 1
        a, b = model(x).detach().chunk(2, 1)
        y = (a * b).sum()
    found = y.graph(model)
    pairs = {(found.nodes[e.source].title, found.nodes[e.target].title) for e in found.edges}
    assert pairs == {
        ("input", "add"), ("add", "linear"), ("weight", "linear"), ("bias", "linear"),
        ("linear", "split"), ("split", "mul"), ("mul", "sum"),
    }  # fmt: skip
    states = {node.title: node.state for node in found.nodes}
    assert states["input"] == states["weight"] == "fresh"
    assert states["add"] == states["linear"] == states["sum"] == "never"
    by_op = {node.op: node for node in found.nodes}
    assert by_op["split"].attributes["output 1"] == "(3, 2) float32"
    assert by_op["add"].attributes["input 1"] == "1" and by_op["input"].statistics().mean == 2
    assert found.to_dot() and found.to_html()
    assert not (x.is_computed or y.is_computed)
    assert x.tolist() == [[3.0] * 2] * 3
    states = {node.title: node.state for node in y.graph(model).nodes}
    assert states["add"] == "fresh" and states["linear"] == "never"
    deep = given
    with ad.lazy():
        for _ in range(5_000):
            deep = deep + given
    assert len(deep.graph().nodes) == 5_001


def test_custom_functions_keep_their_name_in_a_graph():
    class DoubleIt(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = DoubleIt.apply(ad.Graph().parameter([1.0]))
    assert y.graph().nodes[-1].op == "double_it"
