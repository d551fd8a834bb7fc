"""Composites that PyTorch has as one kernel: value, first and second derivative as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd.fusion import DeviceFused
from adjoint.nn import functional as F

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


WORDS = np.array([2, 0, 1, 2])
# name: (function, arrays: floats want gradients)
CASES = {
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (4,), w, b), [normal(3, 4), normal(4), normal(4)]
    ),
    "layer_norm_plain": (lambda x: F.layer_norm(x, (3, 4)), [normal(2, 3, 4)]),
    "group_norm": (
        lambda x, w, b: F.group_norm(x, 2, w, b), [normal(3, 4, 2), normal(4), normal(4)]
    ),
    "instance_norm": (lambda x: F.instance_norm(x), [normal(2, 3, 4)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), [normal(3, 4), normal(4)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        [normal(5, 3, 2), normal(3), normal(3)],
    ),
    "batch_norm_rows": (lambda x: F.batch_norm(x, None, None, training=True), [normal(5, 3)]),
    "batch_norm_by_running": (
        lambda x, w, b: F.batch_norm(
            x, ad.zeros(3).to(x) + 0.5, ad.ones(3).to(x) * 2, w, b, False
        ),
        [normal(5, 3, 2), normal(3), normal(3)],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)],
    ),
    "causal_attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        [normal(1, 2, 4, 4), normal(1, 2, 4, 4), normal(1, 2, 4, 4)],
    ),
    "masked_attention": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, ad.tensor([[True, False], [False, False]]).to(q.device)
        ),
        [normal(1, 1, 2, 4), normal(1, 1, 2, 4), normal(1, 1, 2, 4)],
    ),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), [normal(4, 3), WORDS]),
    "weighted_cross_entropy": (
        lambda x, t: F.cross_entropy(
            x, t, ad.tensor([1.0, 2.0, 0.5]).to(x), ignore_index=1, label_smoothing=0.1
        ),
        [normal(4, 3), WORDS],
    ),
    "summed_cross_entropy": (
        lambda x, t: F.cross_entropy(x, t, reduction="sum"), [normal(2, 3, 2), WORDS.reshape(2, 2)]
    ),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), [normal(3, 2), normal(3, 2)]),
    "gelu": (lambda x: F.gelu(x), [normal(3, 4)]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), [normal(3, 4)]),
    "silu": (lambda x: F.silu(x), [normal(3, 4)]),
    "mish": (lambda x: F.mish(x), [normal(3, 4)]),
    "softplus": (lambda x: F.softplus(x, 2.0, 1.0), [normal(3, 4)]),
    "softmax": (lambda x: x.softmax(0), [normal(3, 4)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [normal(3, 4)]),
}  # fmt: skip


def derivatives(name, device):
    function, arrays = CASES[name]
    inputs = [ad.from_numpy(a).to(device) for a in arrays]
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    wanted = [x for x in leaves if x.requires_grad]
    y = function(*leaves)
    seed = (ad.arange(y.numel()) % 3 + 1.0).reshape(y.shape).to(y)
    first = ad.autograd.grad(y, wanted, seed, retain_graph=True)
    graphed = ad.autograd.grad(y, wanted, seed, create_graph=True)
    further = [(g * g).sum() for g in graphed if g.requires_grad]
    second = ad.autograd.grad(further, wanted, allow_unused=True)
    second = [ad.zeros_like(x) if g is None else g for x, g in zip(wanted, second, strict=True)]
    return y, first, graphed, second


@pytest.mark.parametrize("name", CASES)
def test_value_and_derivatives(name, device):
    found, expected = derivatives(name, device), derivatives(name, "cpu")
    for these, those in zip(found, expected, strict=True):
        these, those = ((t,) if isinstance(t, ad.Tensor) else t for t in (these, those))
        for a, b in zip(these, those, strict=True):
            assert a.device.type == device and a.shape == b.shape and a.dtype is b.dtype
            np.testing.assert_allclose(
                a.detach().cpu().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-7
            )


@pytest.mark.parametrize(
    "name",
    ["layer_norm", "rms_norm", "batch_norm", "attention", "causal_attention", "cross_entropy",
     "mse_loss"],
)  # fmt: skip
def test_they_are_one_node(name, device):
    function, arrays = CASES[name]
    inputs = [ad.from_numpy(a).to(device) for a in arrays]
    y = function(*[x.requires_grad_() if x.is_floating_point() else x for x in inputs])
    node = y.grad_fn
    while not isinstance(node.op, DeviceFused):  # beneath a reshape of the result
        (node,) = [parent for parent in node.parents if hasattr(parent, "op")]
    assert len(node.parents) == len(arrays)


def test_running_statistics(device):
    mine, other = ad.nn.BatchNorm2d(3).to(device), ad.nn.BatchNorm2d(3)
    x = ad.from_numpy(normal(4, 3, 2, 2).astype(np.float32))
    for _ in range(2):
        mine(x.to(device))
        other(x)
    for a, b in zip(mine.buffers(), other.buffers(), strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-5)
    mine.eval(), other.eval()
    np.testing.assert_allclose(
        mine(x.to(device)).detach().cpu().numpy(), other(x).detach().numpy(), atol=1e-5
    )


def test_a_second_backward_is_refused_and_retained_graphs_serve_twice(device):
    x = ad.ones(2, 4, device=device, requires_grad=True)
    y = F.layer_norm(x * ad.arange(4.0, device=device), (4,)).square().sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    assert x.grad.equal(2 * once)
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()
