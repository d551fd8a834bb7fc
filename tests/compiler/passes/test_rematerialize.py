"""What kernels compute again rather than read."""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.compiler.passes import rematerialize
from adjoint.compiler.passes.fusion_roles import is_cheap
from adjoint.compiler.passes.kernels import keep_less
from adjoint.compiler.passes.pipelines import PIPELINES
from adjoint.ir.program import Program, Value, make
from adjoint.ops.elementwise.arithmetic import Add, Mul, Sub
from adjoint.ops.elementwise.functions import Exp
from adjoint.ops.linalg.fully_connected import Linear
from adjoint.ops.nn.piecewise import Relu, ReluGradient
from adjoint.ops.shape.movement import Reshape

from ..report.test_explanation import make_step


def _spec(*shape):
    return ad.zeros(*shape).spec


def _chain():
    """x -> c = f(x) (a product); a = c - 1; b = a * 2; d = product of b; behind: d + a * b."""
    x, w = Value(_spec(64, 64), name="x"), Value(_spec(64, 64), name="w")
    c = make(Linear(), x, w)
    a = make(Sub(), c.output, 1.0)
    b = make(Mul(), a.output, 2.0)
    d = make(Linear(), b.output, w)
    e = make(Mul(), a.output, b.output)
    y = make(Add(), d.output, e.output)
    return Program([x, w], [c, a, b, d, e, y], [y.output]), [a, b, e, y]


def test_recompute():
    """Behind the second product a and b were read; now the first product's result alone is."""
    graph, (a, b, e, y) = _chain()
    groups = [[a, b], [e, y]]
    before = [node.op.name for node in graph.nodes]
    assert before == ["linear", "sub", "mul", "linear", "mul", "add"]
    assert rematerialize.recompute(graph, groups, is_cheap) == 2
    graph.verify()
    after = [node.op.name for node in graph.nodes]
    assert after == ["linear", "sub", "mul", "linear", "sub", "mul", "mul", "add"]
    read = {x for node in groups[1] for x in node.values if x.node not in set(groups[1])}
    assert read == {graph.nodes[0].output, graph.nodes[3].output}


def test_what_is_written_in_any_case_is_read_where_fewest_bytes_are_to_be_moved():
    """Of the above b is a product's input, so that it is read; a is written for the end only."""
    graph, (a, b, e, y) = _chain()
    groups = [[a, b], [e, y]]
    assert rematerialize.recompute(graph, groups, is_cheap, written_stays=True) == 1
    graph.verify()
    read = {x for node in groups[1] for x in node.values if x.node not in set(groups[1])}
    assert read == {graph.nodes[0].output, b.output, graph.nodes[3].output}


def test_an_activation_that_is_read_beside_what_it_is_made_of_is_computed_again():
    """c = f(x); m = a mean; r = relu((c - m) * 2), a product's; behind: where r is 0, of c - m."""
    x, w = Value(_spec(256, 256), name="x"), Value(_spec(256, 256), name="w")
    m = Value(_spec(256), name="m")
    c = make(Linear(), x, w)
    a = make(Sub(), c.output, m)
    b = make(Mul(), a.output, 2.0)
    r = make(Relu(), b.output)
    d = make(Linear(), r.output, w)
    g = make(ReluGradient(), d.output, r.output)
    h = make(Sub(), c.output, m)
    y = make(Mul(), g.output, h.output)
    graph = Program([x, w, m], [c, a, b, r, d, g, h, y], [y.output])
    groups = [[a, b, r], [g, h, y]]
    copies: list = []
    found = rematerialize.recompute(graph, groups, is_cheap, copies, written_stays=True)
    assert found == 1
    graph.verify()
    read = {v for node in groups[1] for v in node.values if v.node not in set(groups[1])}
    assert read == {c.output, m, d.output}
    assert [node.op.name for node in copies] == ["sub", "mul", "relu"]


@pytest.mark.skipif(not native.load(), reason="no native code")
def test_keep_less():
    """Behind the second product a and b were kept for the end; now b is made of a once more."""
    graph, (a, b, *_) = _chain()
    d = graph.nodes[3]
    kept = {x.node for node in graph.nodes[4:] for x in node.values} - set(graph.nodes[4:])
    assert kept == {a, b, d}
    assert keep_less(graph, 4, ()) == 1
    graph.verify()
    after = graph.nodes[4:]
    assert [node.op.name for node in after] == ["mul", "mul", "add"]
    assert {x.node for node in after for x in node.values} - set(after) == {a, d}


def test_a_group_that_begins_before_what_it_is_to_compute_again():
    """Its first node stands before the product of which it now computes; that stays where it is."""
    x, w = Value(_spec(64, 64), name="x"), Value(_spec(64, 64), name="w")
    early = make(Mul(), x, 3.0)
    c = make(Linear(), x, w)
    a, b = make(Sub(), c.output, 1.0), make(Mul(), c.output, 2.0)
    d = make(Linear(), x, w)
    e = make(Mul(), a.output, b.output)
    y = make(Add(), e.output, early.output)
    z = make(Add(), y.output, d.output)
    graph = Program([x, w], [early, c, a, b, d, e, y, z], [z.output])
    groups = [[a, b], [early, e, y, z]]
    assert rematerialize.recompute(graph, groups, is_cheap) == 2
    graph.verify()
    assert [n.op.name for n in graph.nodes] == [
        "mul", "linear", "linear", "sub", "mul", "mul", "add", "add",
    ]  # fmt: skip
    assert graph.nodes[1] is c and len(groups) == 1 and len(groups[0]) == 6


def test_what_is_costly_or_read_anyway_is_kept():
    x, w = Value(_spec(64, 64), name="x"), Value(_spec(64, 64), name="w")
    c = make(Linear(), x, w)
    a = make(Exp(), c.output)
    b = make(Mul(), a.output, 2.0)
    d = make(Linear(), b.output, w)
    y = make(Mul(), d.output, a.output)
    z = make(Linear(), c.output, w)  # reads c behind
    graph = Program([x, w], [c, a, b, d, y, z], [y.output, z.output])
    groups = [[a, b], [y]]
    assert rematerialize.recompute(graph, groups, is_cheap) == 0
    assert len(graph.nodes) == 6


def test_shown_memory_is_kept():
    """What a group reads by a view stays: the view shows what was stored."""
    graph, (a, b, e, y) = _chain()
    flat = make(Reshape((4096,)), b.output)
    back = make(Reshape((64, 64)), flat.output)
    e.inputs = (a.output, back.output)
    graph.nodes[3:3] = [flat, back]
    groups = [[a, b], [e, y]]
    rematerialize.recompute(graph, groups, is_cheap)
    graph.verify()
    assert back.output in e.inputs and flat.inputs == (b.output,) and b in graph.nodes


def _normalized(depends, size=128):
    """c = f(x) (a product); a = c - 1; d = product of a. Behind: e = product of a; y = c * d, where
    it `depends` c * e.
    """
    x, w = Value(_spec(size, size), name="x"), Value(_spec(size, size), name="w")
    c = make(Linear(), x, w)
    a = make(Sub(), c.output, 1.0)
    d = make(Linear(), a.output, w)
    e = make(Linear(), d.output, a.output)
    y = make(Mul(), c.output, e.output if depends else d.output)
    z = make(Linear(), y.output, w)
    graph = Program([x, w], [c, a, d, e, y, z], [e.output, z.output])
    return graph, [[a], [y]], {e, y, z}


def test_a_kernel_behind_gives_again_what_a_product_reads():
    """The product waits for it."""
    graph, groups, behind = _normalized(depends=False)
    [a] = groups[0]
    copies: list = []
    assert rematerialize.give_again(graph, groups, behind, is_cheap, copies) == {a.output}
    graph.verify()
    users = graph.users()
    assert len(users[a.output]) == 1  # the first product
    [again] = copies
    assert groups[1][1:] == copies and again.op is a.op and again.inputs == a.inputs
    [reader] = users[again.output]
    assert reader.output is graph.outputs[0]


@pytest.mark.parametrize("why", ["it needs the product's result", "small", "costly", "an output"])
def test_what_no_kernel_behind_can_give_again_is_kept(why):
    graph, groups, behind = _normalized(why.startswith("it"), 64 if why == "small" else 128)
    before = list(graph.nodes)
    [a] = groups[0]
    if why == "an output":
        graph.outputs.append(a.output)
    cheap = is_cheap if why != "costly" else lambda node: False
    assert not rematerialize.give_again(graph, groups, behind, cheap, [])
    assert graph.nodes == before


def test_saturate_is_the_least_cut():
    """Against all cuts of small random networks."""
    draw = random.Random(0)
    for _ in range(200):
        n = draw.randint(2, 6)
        edges = {
            (a, b): float(draw.randint(0, 5))
            for a, b in itertools.permutations(range(n), 2)
            if draw.random() < 0.5
        }
        least = min(
            sum(c for (a, b), c in edges.items() if a in side and b not in side)
            for size in range(n - 1)
            for rest in itertools.combinations(range(1, n - 1), size)
            for side in [{0, *rest}]
        )
        flow = {}
        for (a, b), c in edges.items():
            flow.setdefault(a, {})[b] = c
            flow.setdefault(b, {}).setdefault(a, 0.0)
        assert rematerialize.saturate(flow, 0, n - 1) == least


@pytest.mark.skipif(not native.load(), reason="no native code")
@pytest.mark.parametrize(
    ("sizes", "most"), [((32, 3, 16, 16), 4), ((1, 3, 1, 15), 4), ((3, 3, 33, 2), 4)]
)
def test_a_step_keeps_less(sizes, most):
    """Two convolutions with norms: of the six large values that live at once four are left, and
    values are those of eager steps.
    """

    def made(compiled):
        ad.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        )  # fmt: skip
        step, _, _ = make_step(model, functools.partial(ad.optim.SGD, lr=0.01))
        return model, step if compiled else step.function

    pairs = [made(False), made(True)]
    x, y = ad.randn(*sizes), ad.randint(0, 4, sizes[:1])
    for _ in range(3):
        losses = [step(x, y).item() for _, step in pairs]
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for p, q in zip(*(model.state_dict().values() for model, _ in pairs), strict=True):
        np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=1e-3, atol=1e-5)
    part = pairs[1][1].programs[0].parts[0]
    large = 4 * 8 * sizes[0] * sizes[2] * sizes[3]
    if large > 1 << 14:
        assert part.schedule.layout.size < (most + 0.5) * large


def test_what_waits_for_gradients_is_chosen(monkeypatch):
    """A norm and its activation are computed again from what the convolution gave, which is kept
    with the statistics; without that, what is between them is kept as well.
    """

    def trained():
        ad.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        step = ad.compile(model)
        step(ad.randn(16, 3, 16, 16)).sum().backward()
        kept = step._compiled_call.programs[0].parts[-1].inputs
        sizes = [np.prod(x.shape) for x in kept if x.shape[:2] == (16, 8)]
        return [p.grad.numpy() for p in model.parameters()], sum(sizes) // (16 * 8 * 16 * 16)

    if not native.load():
        pytest.skip("no native code")
    found, kept = trained()
    monkeypatch.setitem(PIPELINES, "whole", ())
    expected, most = trained()
    assert (kept, most) == (1, 3)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not native.load(), reason="no native code")
@pytest.mark.parametrize("sizes", [(64, 64), (1, 15), (0, 3), ()])
def test_inputs_that_are_written_meanwhile_are_not_read_again(sizes):
    """Twice x is kept, though x is there: the caller may write to it before backward."""
    scaled = ad.compile(lambda x, w: ((x * 2) * w).sin())
    for _ in range(2):
        x, w = ad.ones(sizes), ad.zeros(sizes).requires_grad_()
        y = scaled(x, w)
        x.fill_(7.0)
        y.sum().backward()
        assert (w.grad == 2).all()
