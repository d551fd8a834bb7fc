"""Drawings of a Graph: states, boundaries, modules, names, times."""

from __future__ import annotations

import re

import adjoint as ad
from adjoint import nn


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
    assert {node.label for node in found if node.kind == "parameter"} == {"0.weight", "0.bias"}
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
    (g,) = ad.grad((w * w).exp(), [w])
    assert g.item() != 0
    assert (
        any(node.module.startswith("backward") for node in graph.snapshot().nodes)
        or len(graph.snapshot().nodes) > 3
    )
