"""Graphs in files, in ONNX, and copied with what is outside of them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import adjoint as ad
from adjoint.autograd.fusion import Fused
from adjoint.core.errors import AutogradError, CheckpointError, GraphError, InvalidType
from adjoint.core.op import REGISTRY, Op
from adjoint.io import checkpoint
from adjoint.reactive import saving

from ..sweep import few_or_many
from .test_reactive_properties import Machine

# Nodes follow what a program writes: that is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Graph. ")


def written(graph):
    file = io.BytesIO()
    graph.save(file)
    return file.getvalue()


def loaded(graph):
    found = ad.Graph.load(io.BytesIO(written(graph)))
    found.check_invariants()
    return found


def values(graph):
    return {name: graph[name].detach().numpy() for name in graph._named}


def assert_same_bits(a, b):
    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def graph():
    """Something of everything that a file holds."""
    graph = ad.Graph(seed=3, cutoff=True, lines=True)
    x = graph.input(np.arange(6.0).reshape(2, 3), "x", requires_grad=True)
    w = graph.parameter(np.ones((3, 2)), "w")
    frozen = graph.parameter(2.0, "frozen")
    graph.freeze(frozen)
    layer = ad.nn.Linear(3, 2, dtype=ad.float64)
    with graph:
        h = graph.name(layer(x) + x @ w * frozen, "h")
        graph.name(ad.rand(3), "drawn")
        graph.name(h.std(1), "std")  # one of two outputs
        graph.name(x.to(ad.bfloat16)[0:0], "empty")
        graph.name(ad.complex(x, x) * 1j, "complex")
        part = graph.name(h * 1, "part")
        part[0].mul_(2.0)  # written through a view
        with ad.no_grad():
            part.add_(1.0)
        graph.name(h.detach_node() > 0, "positive")
        graph.name(graph.input((4,), "unset") + 1, "waiting")
    graph.name(layer.weight, "weight")
    (g,) = ad.autograd.grad((h * h).sum(), (x,), create_graph=True)
    graph.name((g * g).sum(), "penalty")
    graph.forward(*(graph[name] for name in graph._named if name not in ("unset", "waiting")))
    return graph


def test_a_loaded_graph_is_as_it_was_and_runs_nothing(graph):
    again = loaded(graph)
    assert list(again._named) == list(graph._named)
    assert list(again.inputs) == list(graph.inputs)
    names = [[name for name, _ in each.named_parameters()] for each in (graph, again)]
    assert names[0] == names[1]
    assert (again._state.cutoff, again._state.places, again.training) == (True, True, True)
    with again.events() as log:
        for name in graph._named:
            if name in ("unset", "waiting"):
                continue
            assert_same_bits(again[name].detach().numpy(), graph[name].detach().numpy())
            assert type(again[name]) is type(graph[name])
            assert again[name].requires_grad == graph[name].requires_grad, name
    assert log.ran == []
    assert again.is_frozen(again["frozen"])
    before, after = (
        [
            (c.label, c.op and saving._OPS.written(c.op, c.label), c.cutoff, c.cut)
            for c in saving.lasting(each)
        ]
        for each in (graph, again)
    )
    assert before == after
    lines = [each["h"].node.about["line"] for each in (graph, again)]
    assert lines[0] == lines[1] and lines[0][0] == __file__


def test_a_loaded_graph_lives(graph):
    again = loaded(graph)
    for each in (graph, again):
        each["x"].set(np.full((2, 3), 0.5))
        each["unset"].set([1, 2, 3, 4])
        with each:
            each.name(ad.rand(2), "drawn later")
        (each["part"].sum() + each["penalty"]).backward()
    assert again["waiting"].tolist() == [2, 3, 4, 5]
    for name, value in values(graph).items():
        assert_same_bits(values(again)[name], value)
    for name in ("x", "w", "weight"):
        assert_same_bits(again[name].grad.numpy(), graph[name].grad.numpy())
    for each in (graph, again):
        each.insert_after(each["h"], lambda h: h.tanh() * 3)
        each["h"].set_input(1, each["x"].detach().sum())
        each.check_invariants()
    for name, value in values(graph).items():  # gradients among them, which were derived anew
        assert_same_bits(values(again)[name], value)


def test_a_loaded_graph_trains_as_the_original():
    model = ad.nn.Sequential(ad.nn.Linear(3, 8), ad.nn.Tanh(), ad.nn.Linear(8, 1))
    graph = ad.Graph()
    x = graph.input(np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32), "x")
    with graph:
        graph.name((model(x) - x.sum(1, keepdim=True)).square().mean(), "loss")
    graph["loss"].item()
    both = graph, loaded(graph)
    for each in both:
        optimizer = ad.optim.Adam(each.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            each["loss"].backward()
            optimizer.step()
    assert both[0]["loss"].item() == both[1]["loss"].item()
    for p, q in zip(*(each.parameters() for each in both), strict=True):
        assert_same_bits(p.detach().numpy(), q.detach().numpy())


def test_a_stale_node_is_loaded_stale_and_a_released_one_released():
    graph = ad.Graph()
    x = graph.input(1.0, "x", requires_grad=True)
    graph.name(graph.name(x.exp(), "h") * 2, "y").backward()  # releases h
    again = loaded(graph)
    assert again["h"].node.array is None and not again["h"].node.stale
    with again.events() as log:
        again["y"].item()
    assert log.ran == []
    x.set(2.0)
    again = loaded(graph)
    with again.events() as log:
        assert again["y"].item() == pytest.approx(2 * np.exp(2))
    assert log.ran == ["Exp", "Mul"]


def test_a_name_of_a_detached_tensor_stays_detached():
    graph = ad.Graph()
    x = graph.input(2.0, "x", requires_grad=True)
    graph.name((x * x).detach(), "constant")
    again = loaded(graph)
    (again["constant"] * again["x"]).backward()
    assert again["x"].grad.item() == 4


def test_a_leaf_in_the_middle_stays_one():
    graph = ad.Graph()
    x = graph.input(2.0, "x", requires_grad=True)
    d = graph.name((x * x).detach().requires_grad_(), "d")
    graph.name(d * d * x, "z")
    for each in (graph.copy(), loaded(graph), loaded(graph.copy()), graph):
        each["z"].backward()
        assert (each["d"].grad.item(), each["x"].grad.item()) == (16, 16)


def test_a_tensor_outside_that_has_a_name_and_no_users_any_more():
    graph = ad.Graph()
    weight = ad.nn.Parameter(ad.ones(2))
    used = graph.input([1.0, 2.0]) * weight
    graph.name(weight, "weight")
    del used
    assert graph.copy()["weight"] is weight
    for each in (loaded(graph), graph.copy(share=False)):
        assert type(each["weight"]) is ad.nn.Parameter and each["weight"] is not weight
        assert each["weight"].tolist() == [1, 1]


def test_a_file_takes_few_bytes_a_node():
    graph = ad.Graph()
    y = graph.input(1.0, "x")
    with graph.building():
        for _ in range(3000):
            y = (y + 1) * 0.5
    graph.name(y, "y").item()
    assert len(written(graph)) < 6000 * 60
    again = loaded(graph)
    again["x"].set(3.0)
    graph["x"].set(3.0)
    assert again["y"].item() == graph["y"].item()


def test_loading_onto_another_device():
    graph = ad.Graph()
    x = graph.input([1.0, 2.0], "x")
    graph.name(x.exp(), "y")
    graph["y"].sum().item()
    pytest.importorskip("torch")
    again = ad.Graph.load(io.BytesIO(written(graph)), map_location="torch")
    assert again["y"].device.type == "torch"
    with again.events() as log:
        assert again["y"].cpu().tolist() == graph["y"].tolist()
    assert "Exp" not in log.ran


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_op_can_be_written_and_read(name):
    kind = REGISTRY[name]
    for sample in kind.samples():
        assert saving._OPS.read(saving._OPS.written(sample.op, "it")) == sample.op


class Doubled(ad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_what_no_file_can_hold_is_refused_by_name(tmp_path):
    graph = ad.Graph()
    x = graph.input(1.0, requires_grad=True)
    graph.name(Doubled.apply(x), "doubled")
    with pytest.raises(InvalidType, match=r"save: node 'doubled' is computed by RecordedFunction"):
        graph.save(tmp_path / "graph")
    graph = ad.Graph()
    outside = ad.ones(2, requires_grad=True) * 2
    y = graph.input(1.0) * outside
    with pytest.raises(GraphError, match=r"save: .* history"):
        graph.save(tmp_path / "graph")
    assert not list(tmp_path.iterdir())
    with pytest.raises(AutogradError, match="detach"):
        graph.copy(share=False)
    assert y.tolist() == [2, 2]


def test_an_op_with_other_fields_than_its_class_states_is_refused():
    graph = ad.Graph()
    y = graph.name(graph.input([[1.0, 2.0]]).sum(0), "total")
    y.node.op = type(y.node.op)((-1,), "yes")
    with pytest.raises(InvalidType, match="'total' is computed by Sum"):
        written(graph)


# ---- files made by hand --------------------------------------------------------------------------


def changed(found, *path, to):
    """`found` with one value exchanged."""
    key, *rest = path
    copied = dict(found) if isinstance(found, dict) else list(found)
    copied[key] = changed(copied[key], *rest, to=to) if rest else to
    return tuple(copied) if isinstance(found, tuple) else copied


def column(*numbers):
    return ad.tensor(np.array(numbers, np.int64))


ATTACKS = {
    "a version to come": (("adjoint.Graph",), 2, "no graph of version"),
    "an op that nobody knows": (("ops", 0, 1), "os.system", "no op 'os.system'"),
    "a class that is no op": (("ops", 0, 1), "adjoint.core.op.Op", "no op"),
    "a field too many": (("ops", 0, 2), [1], "not made of"),
    "an axis that is text": (("ops", 1, 2, 0), ["x"], "not made of"),
    "an axis beyond the shape": (("ops", 1, 2, 0), [7], None),
    "a negative size": (("ops", 1, 2, 0), [-1], "not made of"),
    "a number that is a list": (("numbers", 0), [2.0], "stands where"),
    "a cycle": (("columns", "input"), column(2, 2, 1), "number 2 of 1"),
    "an input of its own": (("columns", "input"), column(1, -1, 1), "number 1 of 1"),
    "a number out of range": (("columns", "input"), column(0, -9, 1), "number 8 of 1"),
    "an op out of range": (("columns", "op"), column(-1, 5, 1), "number 5 of 2"),
    "columns of other lengths": (("columns", "op"), column(-1, 0), "argument"),
    "a column of floats": (("columns", "op"), ad.zeros(3), "integers"),
    "a million nodes": (("columns", "op"), column(*[0] * 1_000_000), None),
    "a million inputs": (("columns", "count"), column(0, 10**6, 1), None),
    "a negative count": (("columns", "count"), column(0, -2, 1), None),
    "inputs that nobody has": (("columns", "input"), column(0, -1, 1, 1), "more sources"),
    "values that nobody has": (("values", "float64"), ad.zeros(99).double(), "more sources"),
    "too few values": (("values", "float64"), ad.zeros(1).double(), "too few"),
    "values of a wrong dtype": (("values",), {"float32": ad.zeros(7)}, "float64"),
    "no sources": (("sources",), [], None),
    "a source that is text": (("sources", 0, "tensor"), "x", "a source is a str"),
    "a huge shape": (("sources", 0), {"shape": (2**40, 2**40), "dtype": ad.float64}, "no shape"),
    "a source of no dtype": (("sources", 0), {"shape": (2,), "dtype": "float64"}, "stands where"),
    "a source of another shape": (("sources", 0, "tensor"), ad.zeros(2, 9).double(), None),
    "fresh, computed from stale": (("columns", "flags"), column(4, 38, 36), "stale"),
    "fresh, and nothing seen": (("columns", "flags"), column(4, 36, 32), "has seen None"),
    "a name of no node": (("named", "y"), (9, False), "number 9 of 3"),
    "an input without a name": (("inputs", 0), "z", "KeyError"),
    "a name that is a number": (("facts", 0, 0), 5, "stands where"),
    "a cut that is no input": (("facts", 0, 3), (3,), "no inputs"),
    "a gradient that is none": (("derivations",), [[[2], [0], [None], [2]]], "gradients"),
    "a generator of two bytes": (("generator",), ad.zeros(2, dtype=ad.uint8), "RNG state"),
    "a flag that is text": (("cutoff",), "yes", "stands where"),
}  # fmt: skip


@pytest.fixture(scope="module")
def structure():
    graph = ad.Graph()
    x = graph.input(np.ones((2, 3)), "x")
    graph.name((x * 2.0).sum(1), "y").tolist()
    file = io.BytesIO(written(graph))
    return ad.load(file)


def from_structure(found):
    file = io.BytesIO()
    checkpoint.save(found, file)
    file.seek(0)
    return ad.Graph.load(file)


def test_the_structure_that_the_attacks_begin_with_is_sound(structure):
    assert from_structure(structure)["y"].tolist() == [6, 6]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_made_by_hand_is_refused(structure, attack):
    path, value, match = ATTACKS[attack]
    with pytest.raises(CheckpointError, match=match) as caught:
        from_structure(changed(structure, *path, to=value))
    assert not isinstance(caught.value.__cause__, MemoryError)
    assert len(str(caught.value)) < 1000


def test_nodes_with_countless_outputs_are_refused():
    graph = ad.Graph()
    x = graph.input((1 << 30, 2), "x")
    graph.name((x * 2).sum(), "y")
    found = ad.load(io.BytesIO(written(graph)))
    found["ops"][1] = ("op", "adjoint.ops.shape.splitting.Unbind", [1 << 30, 0])
    with pytest.raises(CheckpointError, match="more parts"):
        from_structure(found)


OUTSIDE = {
    "a view beyond its memory": (
        lambda x: x.as_strided((3,), (2,), 1),
        ([[3], [-1], 2], [[3], [1], -2], [[3], [5], 1], [[3], [2**62], 0], [[3], [2, 1], 0]),
    ),
    "a dimension counted from the end": (lambda x: x.cumsum(0), ([-1, False], ["x", False])),
    "windows that go back": (lambda x: x.unfold(0, 2, 1), ([0, 2, -1], [0, 20, 1], [-1, 2, 1])),
}


@pytest.mark.parametrize("attack", OUTSIDE)
def test_an_op_that_would_touch_other_memory_is_refused(attack):
    function, forged = OUTSIDE[attack]
    graph = ad.Graph()
    graph.name(function(graph.input(np.zeros(10), "x")), "y").tolist()
    found = ad.load(io.BytesIO(written(graph)))
    assert from_structure(found)["y"].tolist() == graph["y"].tolist()
    for fields in forged:
        found["ops"][0] = (*found["ops"][0][:2], fields)
        with pytest.raises(CheckpointError):
            from_structure(found)


def test_a_file_cut_short_and_files_of_other_kinds(tmp_path, graph):
    data = written(graph)
    for end in (0, 7, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(CheckpointError):
            ad.Graph.load(io.BytesIO(data[:end]))
    ad.save({"w": ad.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="reads other"):
        ad.Graph.load(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError):
        ad.Graph.load(tmp_path / "none")


# ---- copies --------------------------------------------------------------------------------------


def test_a_copy_that_shares_nothing_trains_apart():
    tied = ad.nn.Linear(2, 2)
    constant = ad.tensor([[1.0, 2.0]])
    graph = ad.Graph()
    with graph:
        loss = graph.name(tied(tied(constant)).square().sum(), "loss")
    graph.name(tied.weight, "weight")
    before = loss.item()
    other, shared = graph.copy(share=False), graph.copy()
    twin = other.twin(tied.weight)
    assert type(twin) is ad.nn.Parameter and twin is not tied.weight and twin is other["weight"]
    assert shared.twin(tied.weight) is tied.weight is shared["weight"]
    assert len(list(other.parameters())) == 2
    optimizer = ad.optim.SGD(other.parameters(), lr=0.01)
    with other.events() as log:
        assert other.twin(loss).item() == before
    assert log.ran == []
    other.twin(loss).backward()
    optimizer.step()
    assert loss.item() == before and tied.weight.grad is None
    assert other["loss"].item() < before
    with ad.no_grad():
        tied.weight.zero_()
    assert other["loss"].item() != loss.item() == shared["loss"].item()
    for each in (graph, other, shared):
        each.check_invariants()
    with pytest.raises(GraphError, match="twin"):
        other.twin(ad.ones(2))


def test_gradients_of_a_copy_are_derived_anew_after_an_edit_of_it():
    graph = ad.Graph()
    x, u = graph.input(2.0, "x"), graph.input(3.0, "u", requires_grad=True)
    z = graph.name(u * u * x, "z")
    (du,) = ad.autograd.grad(z, (u,))
    graph.name(du, "du")
    assert du.item() == 12
    z.set_input(1, u)  # not read before it is copied
    copies = [graph.copy(), graph.copy(share=False), loaded(graph)]
    for each in copies:
        assert each["du"].item() == 27
        each["z"].set_input(1, each["x"])
        assert each["du"].item() == 12
    assert du.item() == 27


class Saved(Machine):
    """As `Machine`, and goes on with loaded graphs and with copies, gradients among them."""

    def go_on(self, new, cells):
        """Go on with `new`, whose `cells` stand for those of the old graph."""

        def twin(node):
            if node.step.cell not in cells:  # a tensor outside that nothing uses
                return node.tensor
            return saving.refreshing.tensor_of(cells[node.step.cell])

        def cell(old):
            if old in cells:
                return cells[old]
            with new:
                return old.follows.sum().node.cells[0]

        old = self.oracle
        self.graph, self.oracle = new, old.copied(twin, cell)
        nodes = dict(zip(old.nodes, self.oracle.nodes, strict=True))
        for node in self.oracle.nodes:
            kept = node.tensor is not None and node.tensor.is_leaf and node.tensor.grad is not None
            node.grad = node.grad if kept else None
        self.derived = [
            (nodes[loss], nodes[leaf], saving.refreshing.tensor_of(cells[g.node]))
            for loss, leaf, g in self.derived
        ]

    @rule()
    def go_on_with_a_loaded_one(self):
        new = loaded(self.graph)
        before = [
            cell for cell in saving.lasting(self.graph)
            if cell.living_users() or getattr(cell, "follows", None) is None
        ]  # fmt: skip
        self.go_on(new, dict(zip(before, saving.lasting(new), strict=True)))

    @rule(share=st.booleans())
    def go_on_with_a_copy(self, share):
        before = saving.lasting(self.graph)
        new = self.graph.copy(share=share)
        cells = {cell: new._twins[id(cell)][1]() for cell in before}
        self.go_on(new, {cell: twin for cell, twin in cells.items() if twin is not None})


@few_or_many("count", 25, 400)
def test_machine_that_saves(count):
    options = settings(max_examples=count, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Saved, settings=options)


# ---- ONNX ----------------------------------------------------------------------------------------


@pytest.fixture
def network():
    model = ad.nn.Sequential(ad.nn.Linear(3, 5), ad.nn.LayerNorm(5), ad.nn.ReLU())
    graph = ad.Graph()
    x = graph.input(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), "x")
    scale = graph.parameter(2.0, "scale")
    with graph:
        h = graph.name(model(x), "h")
        first, _ = (h * scale).split([2, 3], 1)
        graph.name(first.softmax(1), "y")
        graph.name(h.detach_node().sum(1), "total")
    graph.name(model[0].weight, "weight")
    graph.insert_after(h, lambda t: t * 3)  # what is exported is the graph as it is now
    return graph


def run_onnx(data, *arrays):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(data)
    names = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def test_nodes_are_exported_with_the_inputs_they_depend_on(network):
    network.input(1.0, "of no use")
    file = io.BytesIO()
    nodes = [network["y"], network["total"]]
    ad.onnx.export(nodes, None, file, dynamic_axes={"x": {0: "batch"}})
    module = ad.onnx.load(file.getvalue())
    assert module.input_names == ["x"] and module.output_names == ["y", "total"]
    assert "weight" in dict(module.named_parameters())
    for rows in (4, 7):
        x = np.random.default_rng(1).standard_normal((rows, 3)).astype(np.float32)
        found = run_onnx(file.getvalue(), x)
        for have, want in zip(module(ad.tensor(x)), found, strict=True):
            np.testing.assert_allclose(have.detach().numpy(), want, rtol=1e-4, atol=1e-6)
        if rows == 4:
            network["x"].set(x)
            for have, want in zip(nodes, found, strict=True):
                np.testing.assert_allclose(have.detach().numpy(), want, rtol=1e-4, atol=1e-6)


def test_any_node_may_be_the_input_of_an_exported_part(network):
    file = io.BytesIO()
    ad.onnx.export(network["y"], (network["h"],), file)
    value = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    (found,) = run_onnx(file.getvalue(), value)
    first = (ad.tensor(value) * 6)[:, :2]
    np.testing.assert_allclose(found, first.softmax(1).numpy(), rtol=1e-5)


def test_export_refuses_nodes_of_two_graphs_and_tensors_of_none(network):
    for nodes, inputs in (
        ([network["y"], ad.Graph().input(1.0)], None), (network["y"], (ad.Graph().input(1.0),)),
        (ad.ones(2), None),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=r"onnx\.export"):
            ad.onnx.export(nodes, inputs, io.BytesIO())


def test_every_op_that_only_graphs_have_can_be_saved():
    """Those that are in no registry, compute something, and are not of other programs."""
    found, waiting = set(), [Op]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        module = kind.__module__
        mine = module.startswith("adjoint.") and not module.startswith(
            ("adjoint.inference.", "adjoint.compiler.")
        )
        mine = mine and kind not in REGISTRY.values()
        if mine and kind.compute is not Op.compute and not kind.__subclasses__():
            found.add(kind)
    never = {"Opaque", "_Passing"}  # a user's code; of eager backward passes
    never |= {"Followed"}  # numbers of PyTorch's generator, which graphs refuse
    never |= {"Apart"}  # of duals, which graphs refuse
    never |= {"OfMemory"}  # of arrays that lie in some way, which what is recorded does not
    found = {k for k in found if not k.opaque and not issubclass(k, Fused)}
    missing = {k.__name__ for k in found} - set(saving._OPS.further) - never
    assert not missing, f"add {missing} to saving._OPS, with what their fields are"


def test_what_follows_other_shapes_does_so_in_a_loaded_graph():
    graph = ad.Graph()
    x = graph.input(np.arange(24.0).reshape(4, 6), "x", requires_grad=True)
    graph.name(x[..., 1:, None].flatten(1), "part")
    graph.name(x.reshape(-1, 3)[-1], "last")
    graph.name(x.softmax(1)[:, x[0].long() % 6], "picked")
    again = loaded(graph)
    value = np.arange(12.0).reshape(2, 6)
    for each in (graph, again):
        each["x"].set(value)
    for name in ("part", "last", "picked"):
        assert again[name].tolist() == graph[name].tolist()
    assert again["last"].tolist() == [9, 10, 11]


@pytest.mark.parametrize("index", [("a",), (1.5,), ((0, "b", 1),), ((1, 2, 3, 4),)])
def test_an_index_that_is_none_is_refused(index):
    graph = ad.Graph()
    graph.name(graph.input(np.ones((4, 6)), "x")[1:], "y").node.op.index = index
    with pytest.raises((InvalidType, CheckpointError, ad.IndexingError)):
        loaded(graph)
