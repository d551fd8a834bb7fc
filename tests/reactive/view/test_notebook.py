"""What notebooks show: pages where they are small, else pictures; nothing is computed for it."""

from __future__ import annotations

import html
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import policy

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "notebook.md"


def observed(model, x):
    with ad.view.observe():
        return model(x).graph(model)


def shown():
    """One object of each kind that has a picture."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    graph = ad.Graph()
    y = graph.input(1.0, name="x") + 1
    step = ad.compile(lambda x: (x * 2).exp())
    return {
        "snapshot": observed(model, ad.ones(1, 2)),
        "graph": graph,
        "stages": step.graph(ad.ones(3)),
        "frozen": ad.inference.freeze(model, ad.ones(1, 2)),
    }, y


def tables():
    step = ad.compile(lambda x: (x * 2).exp())
    with ad.profiler.profile() as profile:
        ad.ones(3).exp()
    return {
        "explanation": step.explain(ad.ones(3)),
        "summary": ad.summary(nn.Linear(2, 3), (1, 2)),
        "profile": profile.key_averages(),
    }


@pytest.mark.parametrize("kind", ["snapshot", "graph", "stages", "frozen"])
def test_small_graphs_are_pages_in_a_frame_that_reaches_nothing(kind):
    x = shown()[0][kind]
    bundle = x._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == repr(x)
    frame = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" title="[^"]*" style="[^"]*"></iframe>',
        bundle["text/html"],
    )
    page = html.unescape(frame[1])
    assert page.startswith("<!DOCTYPE html>") and "connect-src 'none'" in page


@pytest.mark.parametrize("kind", ["snapshot", "graph", "stages", "frozen"])
def test_large_ones_are_drawn_folded(kind, monkeypatch):
    monkeypatch.setattr(policy, "PAGE_INLINE", 10_000)
    x = shown()[0][kind]
    picture = ET.fromstring(x._repr_mimebundle_()["text/html"])
    boxes = picture.findall(".//{http://www.w3.org/2000/svg}rect")
    assert boxes and "save_html" in picture.findtext("p/small")


@pytest.mark.parametrize("kind", ["explanation", "summary", "profile"])
def test_tables_are_text(kind):
    x = tables()[kind]
    bundle = x._repr_mimebundle_()
    assert ET.fromstring(bundle["text/html"]).text == bundle["text/plain"]
    assert not re.match(r"<[\w.]+ object at", repr(x))


def test_nothing_is_computed_to_be_shown():
    objects, y = shown()
    graph = objects["graph"]
    with graph.events() as log:
        graph._repr_mimebundle_()
    assert log.ran == [] and graph.snapshot().nodes[-1].state == "never"
    assert y.item() == 2.0


def test_names_of_users_are_no_markup(monkeypatch):
    monkeypatch.setattr(policy, "PAGE_INLINE", 10)
    model = nn.Sequential()
    for name in ("<script>alert(1)</script>", '"&'):
        model.add_module(name, nn.Linear(2, 2))
    assert "<script" not in observed(model, ad.ones(1, 2))._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("nodes", [0, 1])
def test_empty_graphs_are_shown(nodes, monkeypatch):
    graph = ad.Graph()
    for n in range(nodes):
        graph.input(float(n))
    for most in (policy.PAGE_INLINE, 0):
        monkeypatch.setattr(policy, "PAGE_INLINE", most)
        assert graph._repr_mimebundle_()["text/plain"].startswith(f"<adjoint.Graph: {nodes} node")


def test_parts_of_long_modules_are_named_by_what_is_in_them():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(130)])
    from adjoint.reactive.view.layout import layout

    names = [group.name for group in layout(observed(model, ad.ones(1, 2)))]
    assert any(re.fullmatch(r"\d+ to \d+", name) for name in names)


def test_the_page_of_the_docs_runs_as_a_notebook(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    cells = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute(cwd=tmp_path)
    for cell in notebook.cells:
        (output,) = cell.outputs
        assert output.output_type == "execute_result" and "text/html" in output.data


def test_one_node_is_not_nodes():
    graph = ad.Graph()
    graph.input(1.0, name="x")
    assert repr(graph) == "<adjoint.Graph: 1 node, 1 named>"
    assert repr(graph.snapshot()).endswith(": 1 node, 0 edges>")


def test_a_wide_graph_is_drawn_in_rows_that_can_be_read():
    from adjoint.view.notebook import folded_svg
    from adjoint.view.snapshot import NodeInfo, Snapshot

    drawn = folded_svg(Snapshot([NodeInfo(i, "input", f"x{i}") for i in range(40)], [], "wide"))
    width = float(re.search(r'viewBox="0 0 (\d+)', drawn)[1])
    assert width < 1100 and drawn.count("<rect") == 40
