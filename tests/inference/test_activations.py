"""GELU and its gradient share what is costly: which ops are left, and the same bits."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends import native
from adjoint.compiled import step as compiled_step
from adjoint.inference.activations import open_activations
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
