"""Sizes at which kernels go wrong: nothing, one element, one less than a power of two."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.nn import functional as F
from tests.sweep import one_in

# name: a function of a matrix (rows, columns); what it refuses on the CPU it refuses elsewhere
FUNCTIONS = {
    "add": lambda x: x + x,
    "number": lambda x: 2 - x * 3,
    "exp": lambda x: x.exp(),
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "where": lambda x: x.where(x > 0, 1.5),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "compare": lambda x: x > 0.1,
    "where numbers": lambda x: ad.where(x > 0, 0.1, 0.7).to(x.dtype),
    "clamp tensors": lambda x: x.clamp(min=ad.zeros_like(x[:1]), max=x.abs()),
    "clamp 0-d": lambda x: x.clamp(min=ad.tensor(-0.25)),
    "maximum": lambda x: x.maximum(0.1 * x),
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x.prod(0),
    "max": lambda x: x.max(1).values,
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(1),
    "var": lambda x: x.var(0),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(0),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1).values,
    "matmul": lambda x: x @ x.T,
    "matmul tall": lambda x: x.T @ x,
    "linear": lambda x: F.linear(x, x, x[:, :1].sum(1)),
    "outer": lambda x: ad.outer(x[0], x[0]),
    "bmm": lambda x: ad.bmm(x[None], x[None].mT),
    "einsum": lambda x: ad.einsum("ij,kj->ik", x, x),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms": lambda x: F.rms_norm(x, x.shape[1:]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "sort": lambda x: x.sort(1).values,
    "argsort": lambda x: x.argsort(0),
    "topk": lambda x: x.topk(min(3, x.shape[1]), 1).values,
    "median": lambda x: x.median(1).values,
    "kthvalue": lambda x: x.kthvalue(1, 1).values,
    "unique": lambda x: x.sign().unique(),
    "nonzero": lambda x: (x > 0).nonzero(),
    "mask": lambda x: x[x > 0],
    "flip": lambda x: x.flip(1),
    "cat": lambda x: ad.cat([x, x], 1),
    "stack": lambda x: ad.stack([x, x]),
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "take": lambda x: x[:, x.argsort(1)[0]],
    "scatter": lambda x: ad.zeros_like(x).scatter_add(1, x.argsort(1), x),
    "index_add": lambda x: ad.zeros_like(x).index_add(0, x.argsort(0)[:, 0], x),
    "pad": lambda x: F.pad(x, (1, 2)),
    "roll": lambda x: x.roll(1, 0),
    "tril": lambda x: x.tril(),
    "repeat": lambda x: x.repeat(2, 3),
    "interleave": lambda x: x.repeat_interleave(2, 0),
    "unfold": lambda x: x.unfold(1, 1, 1).contiguous(),
    "chunk": lambda x: x.chunk(2, 1)[0] * 2,
    "cross_entropy": lambda x: F.cross_entropy(x, x.argmax(1)),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float()),
    "nll": lambda x: F.nll_loss(x.log_softmax(1), x.argmax(1), reduction="sum"),
    "huber": lambda x: F.smooth_l1_loss(x, x * 3),
    "cosine": lambda x: F.cosine_similarity(x, x + 1),
    "embedding": lambda x: F.embedding(x.argsort(1), ad.ones_like(x.T)),
    "one_hot": lambda x: F.one_hot(x.argsort(1), 17),
    "bincount": lambda x: x.argsort(1)[:1].flatten().bincount(),
    "conv": lambda x: F.conv1d(
        x[None], x[:, :, None].mT[:1].expand(2, -1, -1).mT[:2, : x.shape[0]], padding=1
    ),
    "conv2d": lambda x: F.conv2d(x[None, None], ad.ones(1, 1, 3, 3).to(x), padding=1),
    "max_pool": lambda x: F.max_pool1d(x, 2, 1, padding=1),
    "avg_pool": lambda x: F.avg_pool1d(x, 1),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None]
    ),
    "causal": lambda x: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], is_causal=True
    ),
    "cdist": lambda x: ad.cdist(x, x + 1),
    "fft": lambda x: ad.fft.rfft(x).abs(),
    "det": lambda x: ad.linalg.det(ad.eye(len(x)).to(x) + 0.01 * x @ x.T),
    "solve": lambda x: ad.linalg.solve(x @ x.T + 9 * ad.eye(len(x)).to(x), x),
    "cholesky": lambda x: ad.linalg.cholesky(x @ x.T + 9 * ad.eye(len(x)).to(x)),
    "quantile": lambda x: x.quantile(0.3, 1),
    "histc": lambda x: x.histc(5, -1, 1),
    "cov": lambda x: x.cov(),
    "searchsorted": lambda x: ad.searchsorted(x.sort(1).values, x),
    "isin": lambda x: ad.isin(x.argsort(1), x.argsort(0)[:1]),
    "diff": lambda x: x.diff(),
    "to half": lambda x: (x.half() * 2).float(),
    "bfloat16": lambda x: (x.bfloat16() + 1).float(),
    "complex": lambda x: (x + 1j * x).abs(),
    "integers": lambda x: x.int() // 2,
    "index": lambda x: x[..., -1],
    "put": lambda x: x.index_put((x.argsort(0)[:, 0],), x[:1]),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, ad.arange(300.0).to(x)),
    "dropout": lambda x: F.dropout(x, 0.5),
    "rand": lambda x: ad.rand_like(x),
    "lerp": lambda x: x.lerp(x * 2, 0.3),
    "addmm": lambda x: ad.addmm(x @ x.T, x, x.T, beta=0.5),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "trace": lambda x: x.trace(),
    "mode": lambda x: x.mode(1).values,
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "glu": lambda x: F.glu(ad.cat([x, x], 1)),
    "pairwise": lambda x: F.pairwise_distance(x, x + 1),
    "ctc": lambda x: F.ctc_loss(
        F.pad(x, (0, 2)).log_softmax(1)[:, None], ad.ones(1, 1).long().to(x.device), (len(x),), (1,)
    ),
}
SHAPES = [(0, 5), (5, 0), (0, 0), (1, 1), (1, 15), (15, 1), (15, 17)]


def run(function, shape, device, strided):
    """The value, and the gradient where there is one; or the error."""
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    leaf = ad.from_numpy(values).to(device).requires_grad_()
    x = leaf
    if strided:  # every other column of something wider, turned around
        wide = ad.zeros(shape[1] * 2, shape[0]).to(device)
        wide[::2] = leaf.T
        x = wide[::2].T
    ad.manual_seed(0)
    try:
        y = function(x)
    except Exception as error:
        return error, None
    if not y.requires_grad:
        return y, None
    try:
        (g,) = ad.autograd.grad((y * y).sum(), [leaf])
    except Exception as error:
        return y, error
    return y, g


@pytest.mark.parametrize(
    ("name", "strided"),
    [*((name, False) for name in FUNCTIONS), *one_in(4, ((name, True) for name in FUNCTIONS))],
)
def test_sizes(name, device, strided):
    for shape in SHAPES:
        found, expected = (run(FUNCTIONS[name], shape, d, strided) for d in (device, "cpu"))
        for a, b in zip(found, expected, strict=True):
            if not isinstance(b, ad.Tensor):
                assert type(a) is type(b), f"{shape}: {a!r}, and on the CPU {b!r}"
                continue
            assert isinstance(a, ad.Tensor), f"{shape}: {a!r}"
            assert (a.device.type, a.shape, a.dtype) == (device, b.shape, b.dtype), shape
            np.testing.assert_allclose(
                a.detach().cpu().numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-5,
                err_msg=str(shape),
            )  # fmt: skip
