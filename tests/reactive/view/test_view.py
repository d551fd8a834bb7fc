"""Snapshots of eager tapes, Graphviz, statistics, `summary`, and the commands."""

from __future__ import annotations

import re
import shutil
import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.tools.cli.main import main
from adjoint.view.snapshot import Edge, NodeInfo, Snapshot, statistics_of


def ops(snapshot):
    return [node.op for node in snapshot.nodes]


def links(snapshot):
    return {(snapshot.nodes[e.source].title, snapshot.nodes[e.target].title, e.position)
            for e in snapshot.edges}  # fmt: skip


# ---- snapshots of tapes --------------------------------------------------------------------------


def test_nodes_and_edges():
    x = ad.tensor([[1.0, 2.0]], requires_grad=True)
    w = nn.Parameter(ad.ones(2, 2))
    data = ad.randn(1, 2)
    y = ((x @ w) * data).tanh() * 2.5
    graph = y.graph()
    assert ops(graph) == ["input", "parameter", "mat_mul", "input", "mul", "tanh", "mul"]
    kinds = [node.kind for node in graph.nodes]
    assert kinds == ["input", "parameter", "op", "input", "op", "op", "op"]
    pairs = [(e.source, e.target, e.position) for e in graph.edges]
    assert pairs == [(0, 2, 0), (1, 2, 1), (2, 4, 0), (3, 4, 1), (4, 5, 0), (5, 6, 0)]
    assert graph.nodes[6].attributes == {"input 1": "2.5"}
    assert [node.shape for node in graph.nodes[:3]] == [(1, 2), (2, 2), (1, 2)]
    assert {node.dtype for node in graph.nodes} == {"float32"}
    assert np.array_equal(graph.nodes[5].value(), y.detach().numpy() / 2.5)  # tanh saved it
    assert len({node.id for node in graph.nodes}) == 7


def test_values_gradients_versions_and_release():
    w = nn.Parameter(ad.tensor([3.0, 4.0]))
    y = (w * w).sum()
    y.backward(retain_graph=True)
    graph = y.graph()
    leaf = graph.nodes[0]
    assert leaf.grad_norm() == 10.0 and leaf.statistics().mean == 3.5 and leaf.version == 0
    assert [node.state for node in graph.nodes] == ["fresh"] * 3
    with ad.no_grad():
        w += 1
    y = (w * w).sum()
    y.backward()
    states = {node.op: node.state for node in y.graph().nodes}
    assert states == {"parameter": "fresh", "mul": "released", "sum": "fresh"}
    assert y.graph().nodes[0].version == 1


def test_intermediate_gradient():
    x = ad.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    norms = [node.grad_norm() for node in z.graph().nodes]
    assert norms == [pytest.approx(648**0.5), pytest.approx(72**0.5), None, None]


def test_several_outputs_are_one_node():
    x = ad.randn(4, 2, requires_grad=True)
    a, b = x.chunk(2)
    graph = (a * b).graph()
    assert ops(graph) == ["input", "split", "mul"]
    assert [(e.source, e.target) for e in graph.edges] == [(0, 1), (1, 2), (1, 2)]
    assert graph.nodes[1].attributes["output 1"] == "(2, 2) float32"


def test_detached_values_are_boundaries():
    x = ad.randn(3, requires_grad=True)
    y = x.exp()
    with ad.view.observe():
        z = y.tanh()
        loss = (z * z.detach()).sum()
    graph = loss.graph()
    (boundary,) = [node for node in graph.nodes if node.kind == "boundary"]
    assert boundary.op == "detach"
    around = {(graph.nodes[e.source].op, graph.nodes[e.target].op) for e in graph.edges}
    assert ("tanh", "detach") in around and ("detach", "mul") in around


def test_a_tensor_without_history():
    graph = ad.ones(2, 2).graph()
    assert ops(graph) == ["input"] and graph.edges == [] and graph.nodes[0].shape == (2, 2)


def test_custom_functions_keep_their_name():
    class DoubleIt(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert ops(DoubleIt.apply(ad.ones(2, requires_grad=True)).graph()) == ["input", "double_it"]


def test_in_place_writes_through_views():
    x = ad.ones(4, requires_grad=True)
    y = x * 1
    y[1:3].mul_(5)
    graph = y.sum().graph()
    assert "view_write" in ops(graph) and graph.to_dot()


def test_deep_chains_need_no_recursion():
    x = y = ad.ones(1, requires_grad=True)
    for _ in range(20_000):
        y = y + x
    graph = y.graph()
    assert len(graph.nodes) == 20_001 and len(graph.edges) == 40_000


def test_lazy_values_are_not_computed_by_looking():
    x = ad.ones(2, requires_grad=True)
    with ad.autograd.recording.lazy():
        y = x.exp().exp()
    before = y._data.array
    graph = y.graph()
    assert [node.statistics() is None for node in graph.nodes if node.kind == "op"] == [True, True]
    assert before is None and y._data.array is None


# ---- observation ---------------------------------------------------------------------------------


def test_modules_lines_and_times():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 1)))
    with ad.view.observe():
        y = model(ad.ones(3, 2))
        z = y.sum()
    found = {node.op: node for node in z.graph().nodes if node.kind == "op"}
    assert found["relu"].module == "Sequential.1.0" and found["sum"].module == ""
    assert re.fullmatch(r"test_view\.py:\d+  z = y\.sum\(\)", found["sum"].source)
    assert found["sum"].time_us > 0 and found["sum"].runs == 1
    assert "1.1.weight" in {node.label.removeprefix("Sequential.") for node in z.graph().nodes}
    assert ad.ones(1, requires_grad=True).exp().graph().nodes[1].source == ""  # outside


def test_calls_of_a_shared_module_are_told_apart():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x):
            return self.blocks[0](self.blocks[0](x))

    with ad.view.observe():
        y = Twice()(ad.ones(1, 2))
    modules = [node.module for node in y.graph().nodes if node.kind == "op"]
    assert modules == ["Twice.blocks.0", "Twice.blocks.0 (2)"]


def test_observing_ends_with_an_error_and_keeps_results_equal():
    model = nn.Linear(2, 2)
    x = ad.ones(1, 2)
    with pytest.raises(RuntimeError, match="cannot be multiplied"), ad.view.observe():
        model(ad.ones(1, 3))
    with ad.view.observe(), ad.no_grad():
        a = model(x)
    b = model(x)
    assert not a.requires_grad and b.requires_grad and a.equal(b)
    assert b.graph().nodes[-1].source == ""


def test_values_are_kept_only_where_asked():
    for keep in (False, True):
        with ad.view.observe(keep):
            y = (ad.ones(3, requires_grad=True) + 1).sum()
        (add,) = [node for node in y.graph().nodes if node.op == "add"]
        assert (add.value() is not None) is keep


# ---- statistics ----------------------------------------------------------------------------------


def test_statistics():
    rng = np.random.default_rng(0)
    array = rng.normal(2, 3, (30, 40))
    found = statistics_of(array)
    assert found.mean == pytest.approx(array.mean()) and found.std == pytest.approx(array.std())
    assert (found.low, found.high) == (array.min(), array.max())
    expected, _ = np.histogram(array, bins=24)
    assert sum(found.histogram) == 1200
    assert np.abs(np.array(found.histogram) - expected).sum() <= 2  # rounding at bin borders


@pytest.mark.parametrize(
    "array",
    [
        np.array([], np.float32), np.array(5), np.array([True, False]), np.array([np.nan, np.inf]),
        np.array([1 + 1j]), np.full(3, 7e307), np.array([-1.7e308, 1.7e308]),
        np.arange(4, dtype=np.uint8), ad.ones(3, dtype=ad.bfloat16).numpy(),
    ],
    ids=str,
)  # fmt: skip
def test_statistics_of_any_array(array):
    found = statistics_of(array)
    finite = np.isfinite(np.abs(array.astype(np.complex128)))
    assert sum(found.histogram) == finite.sum()
    assert found.nan + found.infinite == array.size - finite.sum()
    if finite.any():
        assert found.low <= found.mean <= found.high and np.isfinite(found.std)


def test_statistics_of_a_large_array_read_a_sample():
    array = np.lib.stride_tricks.as_strided(np.ones(1), (10**6, 10**6), (0, 0))
    found = statistics_of(array)
    assert found.count == 10**12 and found.sampled == 2**16 and found.mean == 1


# ---- Graphviz ------------------------------------------------------------------------------------

HOSTILE = 'a"b\\c\n</table>{|}<b>'


def hostile_snapshot():
    nodes = [
        NodeInfo(1, "input", HOSTILE, "input"),
        NodeInfo(2, "detach", HOSTILE, "boundary", module=HOSTILE),
        NodeInfo(3, HOSTILE, state="stale", shape=(2,), dtype="float32", module=f"m.{HOSTILE}"),
        NodeInfo(4, "weight", kind="parameter"),
        NodeInfo(5, "1.5", kind="constant"),
    ]
    return Snapshot(nodes, [Edge(0, 1, 0), Edge(1, 2, 0), Edge(3, 2, 1), Edge(4, 2, 2)], HOSTILE)


def test_dot():
    text = hostile_snapshot().to_dot()
    bare = re.sub(r'"(\\.|[^"\\])*"', "", text)  # what is not quoted
    assert bare.count("{") == bare.count("}") == 4 and "<" not in bare and "|" not in bare
    shapes = re.findall(r"^ *n\d .*shape=(\w+)", text, re.MULTILINE)
    assert sorted(shapes) == ["box", "box", "ellipse", "invhouse", "plaintext"]
    assert text.count("style=dashed") == 2  # the edges at the boundary
    assert r"\nstale" in text and "penwidth=2" in text
    assert text.count("subgraph") == 3


def test_svg():
    if shutil.which("dot") is None:
        pytest.skip("Graphviz's dot is not installed")
    svg = hostile_snapshot().to_svg()
    assert svg.count('class="node"') == 5 and svg.count('class="edge"') == 4
    assert "<b>" not in svg
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with ad.view.observe():
        svg = model(ad.ones(1, 2)).graph(model).to_svg()
    assert "0.weight" in svg and svg.count('class="cluster"') == 3


def test_svg_without_graphviz(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotImplementedError, match="apt-get install graphviz"):
        ad.ones(1).graph().to_svg()


# ---- summary -------------------------------------------------------------------------------------


def by_path(summary):
    return {row.path: row for row in summary.rows}


@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        (lambda: nn.Linear(7, 5), (3, 2, 7), 3 * 2 * 7 * 5),
        (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 8, 9), 2 * 6 * 8 * 9 * 4 * 9),
        (lambda: nn.Conv2d(4, 8, 3, groups=4, stride=2), (1, 4, 9, 9), 8 * 4 * 4 * 1 * 9),
        (lambda: nn.Conv1d(3, 2, 5), (2, 3, 11), 2 * 2 * 7 * 3 * 5),
        (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 5), 2 * 4 * 25 * 6 * 9),
        (lambda: nn.LSTM(6, 5), (7, 3, 6), 7 * 3 * 4 * 5 * (6 + 5)),
        (lambda: nn.LSTM(6, 5, 2, bidirectional=True), (7, 3, 6),
         7 * 3 * 4 * 5 * 2 * ((6 + 5) + (10 + 5))),
        (lambda: nn.GRU(6, 5), (7, 3, 6), 7 * 3 * 3 * 5 * (6 + 5)),
        (lambda: nn.LayerNorm(8), (2, 8), 0),
        (lambda: nn.BatchNorm2d(3), (1, 3, 4, 4), 0),
    ],
)  # fmt: skip
def test_multiply_adds(make, shape, expected):
    model = make()
    found = ad.summary(model, shape)
    assert found.multiply_adds == expected
    assert found.parameters == sum(p.numel() for p in model.parameters())


def test_attention():
    x = ad.zeros(5, 2, 8)  # length, batch, width
    found = ad.summary(nn.MultiheadAttention(8, 2), x, x, x)
    projections = 4 * 5 * 2 * 8 * 8
    scores_and_values = 2 * 2 * 2 * 5 * 5 * 4  # both products: batch x heads x length^2 x head
    assert found.multiply_adds == projections + scores_and_values
    assert by_path(found)[""].output == "(5, 2, 8), (2, 5, 5)"


def test_embedding_and_inputs_by_name():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.out = nn.Linear(6, 3)

        def forward(self, words, *, extra):
            return {"y": self.out(ad.cat([self.embedding(words).mean(1), extra], 1)), "n": 1}

    found = ad.summary(Model(), ad.tensor([[1, 2, 3]]), extra=(1, 2))
    rows = by_path(found)
    assert found.multiply_adds == rows["out"].multiply_adds == 18
    assert rows["embedding"].parameters == 40 and rows["embedding"].multiply_adds == 0
    assert rows["embedding"].output == "(1, 3, 4)" and rows[""].output == "(1, 3)"


def test_shared_modules_and_tied_parameters_count_once():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(3, 3))
    model[3].weight = shared.weight
    model[3].bias.requires_grad_(False)
    found = ad.summary(model, (2, 3))
    rows = by_path(found)
    assert rows["0"].calls == 2 and rows["0"].multiply_adds == 2 * 18
    assert rows["2"].same_as == "0" and rows["2"].parameters == 0
    assert rows["3"].parameters == 3 and rows["3"].trainable == 0
    assert (found.parameters, found.trainable) == (15, 12)
    assert "is 0" in str(found) and "x2" in str(found)


def test_lists_of_modules_and_modules_that_do_not_run():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict(
                {"a": nn.ModuleList([nn.Linear(2, 2)]), "b": nn.Linear(2, 9)}
            )

        def forward(self, x):
            return self.parts["a"][0](x)

    rows = by_path(ad.summary(Model(), (1, 2)))
    assert list(rows) == ["", "parts", "parts.a", "parts.a.0", "parts.b"]
    assert rows["parts.b"].output == "" and rows["parts.b"].parameters == 27
    assert rows["parts.a.0"].output == "(1, 2)"


def test_summary_changes_nothing():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, momentum=0.5)
            self.drop = nn.Dropout(0.5)
            self.scale = nn.Parameter(ad.ones(3))
            self.last = None
            self.seen = []

        def forward(self, x):
            self.seen.append(1)
            self.scale.data.mul_(0.5)
            self.last = self.drop(self.norm(x)) * self.scale * ad.rand(3)
            return self.last

    model = Odd()
    model.norm.eval()
    model(ad.randn(4, 3)).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grad, last, state = model.scale.grad.clone(), model.last, ad.get_rng_state()
    ad.summary(model, (4, 3))
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert model.scale.grad.equal(grad) and model.last is last and model.seen == [1]
    assert model.training and not model.norm.training and model.drop.training
    assert ad.get_rng_state().equal(state)
    assert model._call_hooks is None and model.norm._call_hooks is None
    assert ad.is_grad_enabled()


def test_lazy_modules_stay_lazy():
    model = nn.Sequential(nn.LazyLinear(4))
    found = ad.summary(model, (2, 6))
    assert found.parameters == 28 and found.rows[1].kind == "Linear"
    assert model[0].has_uninitialized_params()


def test_summary_errors():
    with pytest.raises(TypeError, match="expected a Module, got int"):
        ad.summary(3)
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match="Linear cannot be copied"):
        ad.summary(model, (1, 2))
    with pytest.raises(RuntimeError):
        ad.summary(nn.Linear(2, 2), (1, 3))


def test_the_count_agrees_with_pytorch():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    def build(nn):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10),
        )  # fmt: skip

    theirs = build(torch.nn).eval()
    with FlopCounterMode(display=False) as counter:
        theirs(torch.zeros(2, 3, 16, 16))
    assert ad.summary(build(nn), (2, 3, 16, 16)).multiply_adds * 2 == counter.get_total_flops()


# ---- commands ------------------------------------------------------------------------------------

PROGRAM = """
import sys
import adjoint as ad
from adjoint import nn
ad.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
x = ad.randn(5, 3)
loss = model(x).square().mean()
other = x.sum()
if "--fail" in sys.argv: raise RuntimeError("as asked")
if __name__ == "__main__": sys.exit(0)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path / "train.py"


def test_view(program, capsys):
    assert main(["view", "train.py"]) == 0
    assert "train.html: " in capsys.readouterr().out
    html = (program.parent / "train.html").read_text()
    for text in ("Sequential.0", "square", "0.weight", "loss = model(x).square().mean()"):
        assert text in html
    assert main(["view", "train.py", "--of", "other", "-o", "page.html"]) == 0
    assert "page.html: 1 node\n" in capsys.readouterr().out


def test_view_of_a_program_without_global_tensors(program, capsys):
    """The last loss is shown."""
    body = PROGRAM.split("other =")[0].replace("\n", "\n    ")
    program.write_text(f"def main():{body}\n    loss.backward()\nmain()")
    assert main(["view", "train.py"]) == 0
    assert "train.html: 9 nodes" in capsys.readouterr().out


def test_view_errors(program, capsys):
    assert main(["view", "missing.py"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["view", "train.py", "--of", "model"]) == 1
    error = capsys.readouterr().err
    assert "no graph or tensor named 'model'; it has x, loss, other" in error
    program.write_text("a = 1")  # nothing to be seen
    assert main(["view", "train.py"]) == 1
    assert "assign it to graph, loss, output" in capsys.readouterr().err
    program.write_text(PROGRAM)
    with pytest.raises(SystemExit) as caught:
        main(["view", "train.py", "--", "--fail"])
    error = capsys.readouterr().err
    assert caught.value.code == 1 and error.startswith("Traceback")
    assert "as asked" in error and "train.py" in error and "program.py" not in error


def test_summary_command(program, capsys):
    assert main(["summary", "train.py", "--input", "8,3"]) == 0
    assert "total: 21 parameters, 21 trainable, 128 multiply-adds" in capsys.readouterr().out
    assert main(["summary", "train.py", "--input", "x", "--of", "model"]) == 0
    assert "80 multiply-adds" in capsys.readouterr().out
    assert main(["summary", "train.py", "--input", "y"]) == 1
    assert "no variable named 'y'" in capsys.readouterr().err
