"""Loops whose body is one function, beside Python's loop over eager ops, and beside records."""

from collections import Counter

import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.capture import fused_loop
from tests.native import needs_native

from ...sweep import swept

F = ad.nn.functional
pytestmark = needs_native


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """How many loops have become one function, and how many have not, by reason."""
    counts = Counter()

    def note(body, make, before=fused_loop.fused):
        loop = before(body, make)
        counts["one function" if loop else body.by_records] += 1
        return loop

    monkeypatch.setattr("adjoint.compiler.capture.loop_lowering.fused", note)
    return counts


def by_records(monkeypatch, function, *given):
    """What a new program of the function gives, whose loops go through records."""
    with monkeypatch.context() as patch:
        patch.setattr(fused_loop, "is_on", lambda: False)
        return ad.compile(function)(*given)


def unrolled(turn, c, rows, reverse=False):
    """The scan as a Python loop over eager ops."""
    found = []
    order = range(len(rows))
    for t in reversed(order) if reverse else order:
        c, y = turn(c, rows[t])
        found.append(y)
    found = found[::-1] if reverse else found
    return c, ad.stack(found) if found else None


UNARY = {
    "neg": lambda x: -x,
    "abs": abs,
    "exp": lambda x: x.exp() * 0.1,
    "log": lambda x: (x * x + 1).log(),
    "log1p": lambda x: (x * x).log1p(),
    "expm1": lambda x: x.expm1() * 0.1,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "tanh": ad.tanh,
    "sigmoid": ad.sigmoid,
    "sin": ad.sin,
    "cos": ad.cos,
    "tan": lambda x: (x * 0.1).tan(),
    "atan": ad.atan,
    "sinh": lambda x: x.sinh() * 0.1,
    "asinh": ad.asinh,
    "erf": ad.erf,
    "power": lambda x: (x * x + 1) ** 0.3,
    "square": lambda x: x**2 * 0.1,
    "reciprocal": lambda x: 1 / (x * x + 1),
    "floor": lambda x: x.floor() * 0.1 + x,
    "round": lambda x: x.round() * 0.1 + x,
    "sign": lambda x: x.sign() * 0.1 + x,
    "clip": lambda x: x.clip(-0.5, 0.7),
    "relu": lambda x: F.relu(x) + 0.1 * x,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "where": lambda x: ad.where(x > 0.1, x, x * 0.1),
    "logical": lambda x: ad.where((x > 0) & ~(x > 1), x, 0.5 * x),
    "sum": lambda x: x - x.sum() * 0.01,
    "mean": lambda x: x - x.mean(),
    "prod": lambda x: x + (x * 0.1 + 1).prod() * 0.01,
    "amax": lambda x: x - x.amax(),
    "amin": lambda x: x + x.amin() * 0.1,
    "sum of rows": lambda x: x - x.sum(0, keepdim=True) * 0.1,
    "sum of columns": lambda x: x - x.sum(-1, keepdim=True) * 0.1,
    "max of rows": lambda x: x - x.amax(0),
    "var": lambda x: x / (1 + x.var()),
    "norm": lambda x: x / (1 + x.norm()),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: x - ad.logsumexp(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "index": lambda x: x + x[-1] * 0.1,
    "slices": lambda x: ad.cat([x[1:], x[:1]]),
    "steps": lambda x: x + ad.cat([x[::2], x[1::2]]) * 0.1,
    "flip": lambda x: x.flip(0) * 0.9,
    "roll": lambda x: ad.roll(x, 2, 0) - x,
    "pad": lambda x: x + F.pad(x, (1, 0))[..., :-1] * 0.1,
    "stack": lambda x: ad.stack([x, x * 0.5]).sum(0) * 0.5,
    "chunk": lambda x: ad.cat(x.chunk(2)[::-1]),
    "expand": lambda x: x + x[:1].expand(x.shape) * 0.1,
    "reshape": lambda x: x.reshape(-1).flip(0).reshape(x.shape),
    "tril": lambda x: x + x.reshape(x.shape[0], -1).tril().reshape(x.shape) * 0.1,
    "cast": lambda x: x.float().double() * 0.5 if x.dtype is ad.float64 else x.double().float(),
    "whole": lambda x: x * 0.5 + (x * 4).to(ad.int64).to(x.dtype) * 0.1,
    "remainder": lambda x: x % 0.7,
    "detach": lambda x: x.detach() * 0.5 + x * 0.1,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: 0.5 * (x - y),
    "mul": lambda x, y: x * y.tanh(),
    "div": lambda x, y: x / (1.5 + y * y),
    "maximum": ad.maximum,
    "minimum": ad.minimum,
    "atan2": ad.atan2,
    "hypot": lambda x, y: ad.hypot(x, y + 0.1) * 0.5,
    "lerp": lambda x, y: ad.lerp(x, y, 0.3),
    "outer": lambda x, y: (ad.outer(x.reshape(-1), y.reshape(-1)).sum(1) * 0.1).reshape(x.shape),
    "dot": lambda x, y: x + (x.reshape(-1) @ y.reshape(-1)) * 0.01,
    "rolled": lambda x, y: ad.roll(x, -1, 0) * y.tanh(),
}
PRODUCTS = {
    "product": lambda x, y: x @ y * 0.3,
    "transposed": lambda x, y: x.T @ y * 0.3,
    "right": lambda x, y: x @ y.T * 0.3,
    "vector": lambda x, y: x + (x @ y[0]) * 0.1,
    "batched": lambda x, y: ad.stack([x, y]).matmul(y)[0] * 0.3,
    "linear": lambda x, y: F.linear(x, y, y[0]) * 0.3,
    "solve": lambda x, y: ad.linalg.solve(x * 0.1 + 2 * ad.eye(len(x), dtype=x.dtype), y),
    "inverse": lambda x, y: ad.linalg.inv(x * 0.1 + y * 0.1 + 2 * ad.eye(len(x), dtype=x.dtype)),
    "slogdet": lambda x, y: x * 0.5 + ad.linalg.slogdet(x * 0.1 - ad.eye(len(x)).to(x))[1] * y,
}
TOLERANCE = {ad.float32: (2e-3, 2e-4), ad.float64: (1e-8, 1e-9)}


def check(function, shape, dtype, length, reverse, monkeypatch, made):
    """Values and gradients of a scan over a body, in both ways, beside the eager loop."""
    ad.manual_seed(0)
    c, w = (ad.randn(shape, dtype=dtype).mul_(0.5).requires_grad_() for _ in range(2))
    rows = (ad.randn((length, *shape), dtype=dtype) * 0.5).requires_grad_()
    leaves = [c, w, rows]

    def turn(c, row):
        c = function(c * 0.9, w + row * 0.1)
        return c, (c * row).sum()

    def gradients(c, ys):
        total = (c.double() ** 2).sum() + ys.double().sum()
        return [c, ys, *ad.autograd.grad(total, leaves, allow_unused=True)]

    def scanned(c, rows):
        return gradients(*ad.scan(turn, c, rows, reverse=reverse))

    made.clear()
    found = ad.compile(scanned)(c, rows)
    ways = Counter(made)
    others = by_records(monkeypatch, scanned, c, rows)
    wanted = gradients(*unrolled(turn, c, rows, reverse)) if length else [c]
    rtol, atol = TOLERANCE[dtype]
    for x, y in zip(found, others, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol, atol)
    for x, y in zip(found, wanted, strict=bool(length)):
        y = ad.zeros(x.shape) if y is None else y
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol, atol)
    return ways


@pytest.mark.parametrize("dtype", [ad.float64, swept(ad.float32)], ids=str)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_ops_as_bodies(name, dtype, monkeypatch, made):
    for shape, length in (((3,), 5), ((4, 4), 2), ((2, 17), 3)):
        function = BINARY.get(name) or (lambda x, y: UNARY[name](x) + y * 0.1)
        ways = check(function, shape, dtype, length, shape == (4, 4), monkeypatch, made)
        assert list(ways) == ["one function"], (shape, ways)


@pytest.mark.parametrize("dtype", [ad.float64, swept(ad.float32)], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_matrices_as_bodies(name, dtype, monkeypatch, made):
    for n in (1, 2, 3, 5, 8):
        ways = check(PRODUCTS[name], (n, n), dtype, 4, bool(n % 2), monkeypatch, made)
        assert list(ways) == ["one function"], (n, ways)
