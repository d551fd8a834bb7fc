"""Ops that are written as others: which are left, and that they compute the same."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.passes.basic_passes import merge_equal
from adjoint.compiler.passes.decompose import (
    open_activations,
    open_narrow_gradients,
    open_outer_products,
    open_variances,
)
from adjoint.compiler.passes.pipelines import PIPELINES
from adjoint.nn import functional as F
from tests.native import needs_native

from ...sweep import swept
from .test_inference_passes import check, graph_of

pytestmark = needs_native


def gradient(x, approximate="none"):
    """GELU and its derivative, as a step has them."""
    with ad.enable_grad():
        x = x.detach().requires_grad_()
        y = F.gelu(x, approximate=approximate)
        return y.detach(), ad.autograd.grad(y.sum(), x)[0]


def test_open_activations():
    def change(graph):
        count = open_activations(graph)
        merge_equal(graph)
        return count

    x = ad.tensor(np.linspace(-3, 3, 12).reshape(3, 4).astype(np.float32))
    slope = ["mul", "mul", "exp", "mul", "add"]
    check(
        change, lambda x: [F.gelu(x), ad.erf(x * 0.5**0.5) + x * (x * x * -0.5).exp()], x,
        before=["gelu", "mul", "erf", *slope],
        after=["mul", "mul", "erf", "add", "mul", *slope],
    )  # fmt: skip
    for other in (lambda x: ad.erf(x), lambda x: ad.erf(-x * 0.5**0.5), lambda x: ad.tanh(x)):
        check(
            change, lambda x, other=other: [F.gelu(x), other(x)], x,
            before=(names := [node.op.name for node in graph_of(
                lambda x, other=other: [F.gelu(x), other(x)], x).nodes]),
            after=names,
        )  # fmt: skip


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize(
    "dtype", [ad.float32, swept((ad.float64,)), swept((ad.bfloat16,)), swept((ad.float16,))]
)
@pytest.mark.parametrize("shape", [(4, 15), swept(((0, 3),)), swept(((),)), swept(((1000, 17),))])
def test_gradients_keep_their_bits(approximate, dtype, shape, monkeypatch):
    x = ad.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3).to(dtype)
    found = []
    closed = tuple(
        each._replace(passes=tuple(run for run in each.passes if run is not open_activations))
        for each in PIPELINES["step"]
    )
    for pipeline in (PIPELINES["step"], closed):
        monkeypatch.setitem(PIPELINES, "step", pipeline)
        program = ad.compile(lambda x: gradient(x, approximate))
        results = [y.float().numpy() for k in (1, 2) for y in program(x * k)]
        rows = program.explain(x).rows
        costly = ("erf", "tanh", "gelu")
        count = sum(name in costly for row in rows for name in (row.fused or (row.name,)))
        found.append((results, count))
    (results, count), (wanted, before) = found
    for y, z in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(y, z)
    if x.numel():
        assert (before, count) == (2, 1 if dtype in (ad.float32, ad.float64) else 2)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("var", ["mean", "sub", "mul", "sum", "true_divide"]),
        ("std", ["mean", "sub", "mul", "sum", "true_divide", "sqrt"]),
        ("var_mean", ["mean", "sub", "mul", "sum", "true_divide", "reshape"]),
    ],
)
def test_open_variances(name, after):
    x = ad.tensor(np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32))
    for options in ({}, {"correction": 0}, {"keepdim": True}):

        def function(x, options=options):
            found = getattr(ad, name)(x, 1, **options)
            return list(found) if isinstance(found, tuple) else [found]

        check(open_variances, function, x, before=["var_mean"], after=after)
    for other in (x.bfloat16(), x.to(ad.complex64), x[:0]):  # rounded once; complex; nothing
        assert open_variances(graph_of(lambda x: [getattr(ad, name)(x, 1)][:1], other)) == 0


OUTER = {
    "linear": (lambda x, w: [F.linear(x, w)], (5, 1), (3, 1), ["reshape", "mul"]),
    "rows": (lambda x, w: [F.linear(x, w)], (2, 5, 1), (3, 1), ["reshape", "mul"]),
    "row": (lambda x, w: [F.linear(x, w)], (1,), (3, 1), ["reshape", "mul"]),
    "matmul": (lambda x, y: [x @ y], (5, 1), (1, 4), ["mul"]),
    "batch": (lambda x, y: [x @ y], (2, 1, 5, 1), (3, 1, 4), ["mul"]),
}


@pytest.mark.parametrize("name", OUTER)
def test_open_outer_products(name):
    function, left, right, after = OUTER[name]
    rng = np.random.default_rng(0)
    x, w = (ad.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in (left, right))
    x[..., 0] *= ad.tensor(rng.choice([1.0, -0.0, 0.0, np.inf], x.shape[:-1]).astype(np.float32))
    graph = graph_of(lambda x: function(x, w), x)
    assert open_outer_products(graph) == 1
    assert [node.op.name for node in graph.nodes] == after
    compiled = ad.compile(lambda x, w: function(x, w)[0])
    for other in (x, x.double()):
        with ad.no_grad():
            wanted, found = function(other, w.to(other))[0], compiled(other, w.to(other))
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
        np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(wanted.numpy()))
    for narrow in (ad.bfloat16, ad.complex64):
        low = w.to(narrow)
        graph = graph_of(lambda x, low=low: function(x, low), x.to(narrow))
        assert open_outer_products(graph) == 0


def test_gradients_of_layers_of_one_feature_are_opened():
    layers = ad.nn.Sequential(ad.nn.Linear(1, 4), ad.nn.Tanh(), ad.nn.Linear(4, 1))

    def gradients(x):
        return [y.detach() for y in ad.autograd.grad(layers(x).sum(), list(layers.parameters()))]

    compiled = ad.compile(gradients)
    for rows in (1, 1, 7):
        x = ad.randn(rows, 1)
        for found, wanted in zip(compiled(x), gradients(x), strict=True):
            assert ad.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for x in (ad.randn(1), ad.randn(2, 3, 1)):
        for found, wanted in zip(compiled(x), gradients(x), strict=True):
            assert ad.allclose(found, wanted, rtol=1e-5, atol=1e-6)
        wanted = ad.autograd.grad(layers(x.requires_grad_()).sum(), x)[0]
        found = ad.compile(lambda x: ad.autograd.grad(layers(x).sum(), x)[0])(x)
        assert ad.allclose(found, wanted) and found.shape == wanted.shape
    names = [row.name for row in compiled.explain(ad.ones(1, 1)).rows]
    assert not any("linear" in name for name in names)  # forward of the last layer is not needed


def test_variances_within_a_step_are_kernels():
    def standardized(x):
        x = x.detach().requires_grad_()
        y = ((x - x.mean(0)) / x.std(0)).pow(3).sum()
        return y.detach(), ad.autograd.grad(y, x)[0]

    x = ad.tensor(np.random.default_rng(0).standard_normal((33, 7)).astype(np.float32))
    compiled = ad.compile(standardized)
    for y, z in zip(compiled(x), standardized(x), strict=True):
        np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-4, atol=1e-5)
    assert not compiled.explain(x).host_calls


@pytest.mark.parametrize("rows", [(5,), (2, 3), (0,), (1,)])
def test_open_narrow_gradients(rows):
    """The gradient of weights of one column is a sum of multiplications; others stay products."""
    rng = np.random.default_rng(0)
    counts = {}
    for features in (1, 2):
        g, x = (ad.tensor(rng.standard_normal((*rows, n))) for n in (4, features))

        def weight(g, x):
            with ad.enable_grad():
                w = ad.zeros(4, x.shape[-1], dtype=g.dtype, requires_grad=True)
                return [ad.autograd.grad(F.linear(x, w), w, g)[0]]

        counts[features] = open_narrow_gradients(graph_of(lambda g, x=x: weight(g, x), g))
        [found], [wanted] = ad.compile(weight)(g, x), weight(g, x)
        assert ad.allclose(found, wanted) and found.shape == wanted.shape
    assert counts == {1: 1, 2: 0}
