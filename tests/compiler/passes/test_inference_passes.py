"""Passes on static graphs: what is left, and that it computes the same."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.compiler.passes import (
    affine,
    basic_passes,
    kernels,
    patterns,
    pipelines,
    static_layers,
    views,
)
from adjoint.compiler.schedule import buffers  # fmt: skip
from adjoint.core import policy
from adjoint.core.errors import GraphError
from adjoint.inference.static_capture import FrozenSource, capture
from adjoint.ir import rewriting
from adjoint.ir.program import Node, Program, Value, make
from adjoint.ops.elementwise.arithmetic import Add
from adjoint.ops.elementwise.functions import Tanh
from adjoint.ops.nn.activation import Gelu
from adjoint.runtime.lazy import run

F = nn.functional
ROOT = pathlib.Path(__file__).parents[3]


def graph_of(function, *inputs):
    graph, _ = capture(FrozenSource(function), [x.spec for x in inputs])
    graph.verify()
    return graph


def names(graph):
    return [node.op.name for node in graph.nodes]


def values(graph, *inputs):
    """What the graph computes, node by node."""
    known = dict(zip(graph.inputs, [x.numpy() for x in inputs], strict=True))

    def get(x):
        return x if not isinstance(x, Value) else x.array if x.array is not None else known[x]

    for node in graph.nodes:
        found = run(node.op, [get(x) for x in node.inputs])
        known.update(zip(node.outputs, found if isinstance(found, tuple) else (found,),
                         strict=True))  # fmt: skip
    return [get(y) for y in graph.outputs]


def check(change, function, *inputs, before, after):
    """Apply a pass; the names before and after, its count, and the values."""
    graph = graph_of(function, *inputs)
    expected = values(graph, *inputs)
    assert names(graph) == before
    count = change(graph)
    basic_passes.drop_dead(graph)
    graph.verify()
    assert names(graph) == after
    for x, y in zip(values(graph, *inputs), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert (count > 0) == (before != after)
    return graph


X = ad.from_numpy(np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32))
IMAGE = ad.from_numpy(np.random.default_rng(1).standard_normal((2, 3, 5, 5)).astype(np.float32))
W = ad.from_numpy(np.random.default_rng(2).standard_normal((6, 6)).astype(np.float32))


def test_fold_constants():
    check(
        lambda graph: basic_passes.fold_constants(graph, basic_passes.Folds()),
        lambda x: x * (W.exp() + 1).sum(),
        X, before=["exp", "add", "sum", "mul"], after=["mul"],
    )  # fmt: skip


def test_folds_are_shared_and_bounded(monkeypatch):
    folds = basic_passes.Folds()
    source = FrozenSource(lambda x: x + W.exp().sum(0))
    graphs = [capture(source, [X[:n].spec])[0] for n in (1, 2)]
    for graph in graphs:
        basic_passes.fold_constants(graph, folds)
    one, two = (graph.nodes[0].inputs[1] for graph in graphs)
    assert one is two and one.array is not None
    monkeypatch.setattr(policy, "FOLDED_ELEMENTS", 10)
    graph = capture(source, [X.spec])[0]
    assert basic_passes.fold_constants(graph, basic_passes.Folds()) == 0
    assert names(graph) == ["exp", "sum", "add"]


def test_drop_dead():
    x, y = Value(X.spec, name="x"), Value(X.spec, name="y")
    used, dead = make(Tanh(), x), make(Add(), x, y)
    graph = Program([x, y], [used, dead], [used.output])
    assert basic_passes.drop_dead(graph) == 1
    assert graph.nodes == [used] and graph.inputs == [x, y]


def test_merge_equal():
    check(
        basic_passes.merge_equal, lambda x: x.exp() * x.exp() + (x + 0.0) - (x + -0.0), X,
        before=["exp", "exp", "mul", "add", "add", "add", "sub"],
        after=["exp", "mul", "add", "add", "add", "sub"],
    )  # fmt: skip


def test_merge_equal_in_another_order():
    """Sums and products; the greater of 0 and -0 may be either."""
    check(
        basic_passes.merge_equal,
        lambda x: (x * x.exp() + x.exp() * x) / (x + x.exp() - (x.exp() + x)).exp(), X,
        before=["exp", "mul", "exp", "mul", "add", "exp", "add", "exp", "add", "sub", "exp",
                "true_divide"],
        after=["exp", "mul", "add", "add", "sub", "exp", "true_divide"],
    )  # fmt: skip
    for function in (
        lambda x: ad.maximum(x, W[:2]) - ad.maximum(W[:2], x),
        lambda x: (x - W[:2]) * (W[:2] - x),
    ):
        graph = graph_of(function, X)
        basic_passes.fold_constants(graph, basic_passes.Folds())
        assert basic_passes.merge_equal(graph) == 0


def test_drop_identities():
    check(
        basic_passes.drop_identities,
        lambda x: (x * 1 / 1).reshape(2, 3, 2).reshape(6, 2).permute(1, 0).permute(1, 0) + 1,
        X, before=["mul", "true_divide", "reshape", "reshape", "permute", "permute", "add"],
        after=["reshape", "add"],
    )  # fmt: skip


def test_drop_expansions(monkeypatch):
    """Where the op broadcasts to the same sizes, and is large; what nothing else reads goes."""
    assert basic_passes.drop_expansions(graph_of(lambda x: x.sum(0).expand(2, 6) * x, X)) == 0
    monkeypatch.setattr(policy, "EXPANDED", 12)
    row = ad.ones(1, 6)
    check(
        basic_passes.drop_expansions, lambda x: (x.sum(0) * row).expand(2, 6) * x, X,
        before=["sum", "mul", "expand", "mul"], after=["sum", "mul", "mul"],
    )  # fmt: skip
    check(
        basic_passes.drop_expansions, lambda x: x.sum(0).expand(2, 6) * x.amax(0).expand(2, 6), X,
        before=["sum", "expand", "amax", "expand", "mul"], after=["sum", "amax", "expand", "mul"],
    )  # fmt: skip


def test_inline_numbers():
    half = ad.tensor(0.5)
    graph = graph_of(lambda x: half * x + half, X)
    assert basic_passes.inline_numbers(graph) == 2
    assert graph.nodes[0].inputs == (graph.inputs[0], 0.5)
    graph = graph_of(lambda x: x.double() * half, X)
    assert basic_passes.inline_numbers(graph) == 0  # of another dtype


def test_flatten_products():
    """A product of rows that were reshaped for it becomes a linear layer in any dimensions."""
    x = X.reshape(1, 2, 6)
    graph = check(
        lambda graph: views.flatten_products(graph, basic_passes.Folds()),
        lambda x: (x.reshape(2, 6) @ W).reshape(1, 2, 6).tanh(),
        x, before=["reshape", "mat_mul", "reshape", "tanh"], after=["linear", "tanh"],
    )  # fmt: skip
    assert graph.nodes[0].inputs[1].shape == (6, 6)


@pytest.mark.parametrize("own", [False, True])
def test_fold_affine(own):
    """Batch normalization after convolutions, biases and factors after linear layers."""
    conv, norm = nn.Conv2d(3, 4, 3, bias=own), nn.BatchNorm2d(4)
    with ad.no_grad():
        for x in (norm.running_mean, norm.weight, norm.bias):
            x.copy_(ad.randn(4))
        norm.running_var.copy_(ad.rand(4) + 0.5)
    folds = basic_passes.Folds()
    graph = graph_of(nn.Sequential(conv, norm), IMAGE)
    expected = values(graph, IMAGE)
    pipelines.run_pipeline("frozen", graph, pipelines.Settings(folds=folds))
    assert names(graph) == ["convolution"] and len(graph.nodes[0].inputs) == 3
    np.testing.assert_allclose(values(graph, IMAGE)[0], expected[0], rtol=1e-4, atol=1e-5)
    check(
        lambda graph: affine.fold_affine(graph, basic_passes.Folds()),
        lambda x: 2 - (F.linear(x, W) * 3 + W[0].numpy().tolist()[0]) / 4, X,
        before=["linear", "mul", "add", "true_divide", "sub"], after=["linear"],
    )  # fmt: skip


def test_affine_operations_that_others_read_stay():
    def function(x):
        y = F.linear(x, W)
        return y * 2 + y

    check(
        lambda graph: affine.fold_affine(graph, basic_passes.Folds()), function, X,
        before=["linear", "mul", "add"], after=["linear", "mul", "add"],
    )  # fmt: skip


def test_hoist_through_views():
    bias = W[0].clone()

    def function(x):
        y = F.linear(x, W).reshape(2, 1, 6)
        return (y + bias).relu().permute(1, 0, 2) * 0.5

    graph = graph_of(function, X)
    assert names(graph) == ["linear", "reshape", "add", "relu", "permute", "mul"]
    expected = values(graph, X)
    while views.hoist_through_views(graph):
        graph.verify()
    assert names(graph)[:2] == ["linear", "add"]
    np.testing.assert_allclose(values(graph, X)[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: F.relu6(x), "clip"),
        (lambda x: x.clamp(-1, 2), "clip"),
        (lambda x: F.hardtanh(x), "clip"),
        (lambda x: F.leaky_relu(x, 0.1), "leaky"),
        (lambda x: F.hardswish(x), "hardswish"),
        (lambda x: F.hardsigmoid(x), "hardsigmoid"),
        (lambda x: 0.5 * x * (1 + (x / 2**0.5).erf()), "gelu"),
        (lambda x: x * ((x * 0.5**0.5).erf() + 1) * 0.5, "gelu"),
        (lambda x: x.clamp(min=0), "relu"),
    ],
)
def test_name_activations(function, name):
    graph = graph_of(function, X * 4)
    expected = values(graph, X * 4)
    assert patterns.name_activations(graph) > 0
    graph.verify()
    assert names(graph) == [name]
    np.testing.assert_allclose(values(graph, X * 4)[0], expected[0], rtol=1e-5, atol=1e-6)


def test_other_compositions_keep_their_ops():
    for function in (
        lambda x: ad.where(x >= 2, 3.0, ad.where(x <= 0, 0.0, x)),
        lambda x: 0.5 * x * (1 + x.erf()),
        lambda x: ad.where(x > 0, x, x.exp()),
    ):
        graph = graph_of(function, X)
        assert patterns.name_activations(graph) == 0


def test_fuse_epilogues():
    """What follows a layer goes along, where nothing else reads the layer."""
    conv = nn.Conv2d(3, 3, 3, padding=1)
    graph = check(
        static_layers.fuse_epilogues, lambda x: (conv(x) + x).relu(), IMAGE,
        before=["convolution", "add", "relu"], after=["convolution_add_relu"],
    )  # fmt: skip
    assert graph.nodes[0].inputs[-1] is graph.inputs[0]
    check(
        static_layers.fuse_epilogues, lambda x: conv(x).relu() + conv(x), IMAGE,
        before=["convolution", "relu", "convolution", "add"],
        after=["convolution_relu", "convolution_add"],
    )  # fmt: skip
    check(
        static_layers.fuse_epilogues, lambda x: (lambda y: y.relu() + y)(conv(x)), IMAGE,
        before=["convolution", "relu", "add"], after=["convolution", "relu", "add"],
    )  # fmt: skip
    check(
        static_layers.fuse_epilogues, lambda x: F.avg_pool2d(x, 2), IMAGE,
        before=["sum_pool", "true_divide"], after=["sum_pool_linear"],
    )  # fmt: skip


def _needs_kernels():
    reason = native.unusable()
    if reason is not None:
        pytest.skip(f"native backend: {reason}")


def test_fuse_kernels():
    _needs_kernels()
    check(
        kernels.fuse_kernels, lambda x: F.layer_norm(x.exp() + 1, (6,)), X,
        before=["exp", "add", "mean", "sub", "mul", "mean", "add", "rsqrt", "mul"],
        after=["exp_add", "mean_sub_mul_..."],
    )  # fmt: skip


def test_kernels_make_no_cycles():
    """tanh(x) and the last sum may not be one kernel: the product lies between them."""
    _needs_kernels()

    def function(x):
        y = x.tanh()
        return y + F.linear(y, W) * y

    graph = graph_of(function, X)
    expected = values(graph, X)
    kernels.fuse_kernels(graph)
    graph.verify()
    assert names(graph) == ["tanh", "linear", "mul_add"]
    np.testing.assert_allclose(values(graph, X)[0], expected[0], rtol=1e-6)


def test_the_verifier_refuses_wrong_graphs():
    x = Value(X.spec, name="x")
    tanh = make(Tanh(), x)
    after = make(Gelu(False), tanh.output)
    Program([x], [tanh, after], [after.output]).verify()
    with pytest.raises(GraphError, match="before it is computed"):
        Program([x], [after, tanh], [after.output]).verify()
    with pytest.raises(GraphError, match="not computed"):
        Program([x], [], [tanh.output]).verify()
    wrong = Node(Tanh(), [x], [IMAGE.spec])
    with pytest.raises(GraphError, match="gives"):
        Program([x], [wrong], [wrong.output]).verify()


def test_every_pass_is_declared_and_shown_before_and_after():
    """Each function that changes a program can be watched, and has a test of its name."""
    changing = {
        each.name
        for folder in ("ir", "compiler")
        for path in (ROOT / "adjoint" / folder).rglob("*.py")
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
        and each.args.args and ast.unparse(each.args.args[0]) == "graph: Program"
        and each.returns is not None and ast.unparse(each.returns) == "int"
    }  # fmt: skip
    importlib.import_module("adjoint.compiler.function")
    assert changing == set(rewriting.PASSES)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [
        name for name in changing if not re.search(rf"^def test_{name}(\b|_)", tests, re.M)
    ] == []


# ---- buffers -------------------------------------------------------------------------------------


def test_buffers_share_memory_one_after_another():
    chain = [buffers.Buffer(100, i, i + 1) for i in range(10)]
    layout = buffers.plan(chain)
    assert layout.size == 2 * 128
    assert set(layout.offsets) == {0, 128}


def test_the_smallest_gap_is_taken():
    """Both gaps hold the last buffer; it goes into the one that it fits."""
    found = buffers.plan(
        [buffers.Buffer(640, 0, 1), buffers.Buffer(512, 0, 9), buffers.Buffer(320, 0, 1),
         buffers.Buffer(256, 0, 9), buffers.Buffer(192, 2, 3)]
    )  # fmt: skip
    assert found.offsets[4] == found.offsets[2]


@pytest.mark.parametrize("seed", range(20))
def test_random_lifetimes(seed):
    random = np.random.default_rng(seed)
    made = []
    for _ in range(40):
        begin = int(random.integers(0, 30))
        made.append(buffers.Buffer(int(random.integers(1, 5000)), begin,
                                   begin + int(random.integers(0, 10))))  # fmt: skip
    layout = buffers.plan(made)
    used = np.zeros((45, layout.size), bool)
    for offset, (size, begin, end, _) in zip(layout.offsets, made, strict=True):
        assert offset % buffers.ALIGNMENT == 0
        part = used[begin : end + 1, offset : offset + size]
        assert part.shape[1] == size and not part.any()
        part[:] = True
    live = max(sum(b.size for b in made if b.begin <= t <= b.end) for t in range(40))
    assert live <= layout.size <= 2 * live
