"""Ops that are written as others: which are left, and that they compute the same."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends import native
from adjoint.compiled import step as compiled_step
from adjoint.inference.opening import open_activations, open_variances
from adjoint.inference.passes import merge_equal
from adjoint.nn import functional as F

from ..sweep import swept
from .test_inference_passes import check, graph_of

pytestmark = pytest.mark.skipif(native.reason_off() is not None, reason="no native backend")


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
    for change in (open_activations, lambda graph: 0):
        monkeypatch.setattr(compiled_step, "open_activations", change)
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
