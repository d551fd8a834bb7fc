"""ReLU behind a product is done by the product's tiles, with the bits that it has alone."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends.native.gemm import gemm
from adjoint.compiler.passes.static_layers import rectify_products
from adjoint.nn import functional as F

from .test_inference_passes import check, graph_of, names

pytestmark = pytest.mark.skipif(gemm.address() is None, reason="no product is generated here")

RNG = np.random.default_rng(0)
X, W = (ad.tensor(RNG.standard_normal(shape).astype(np.float32)) for shape in ((6, 4), (5, 4)))


def test_rectify_products():
    check(
        rectify_products, lambda x: [F.relu(F.linear(x, W)), F.relu(x @ W.T).sum()], X,
        before=["linear", "relu", "permute", "mat_mul", "relu", "sum"],
        after=["linear_relu", "permute", "mat_mul_relu", "sum"],
    )  # fmt: skip


def test_what_others_read_or_no_tile_computes_is_left():
    def both(x):
        y = F.linear(x, W.to(x.dtype))
        return [F.relu(y), y]

    def once(x):
        y = F.linear(x, W.to(x.dtype))
        return [F.relu(y) + y]

    low, none = X.bfloat16(), X[:0]
    for function, x in ((both, X), (once, X), (once, low), (lambda x: [F.relu(x)], X)):
        graph = graph_of(function, x)
        before = names(graph)
        assert rectify_products(graph) == 0 and names(graph) == before
    two = graph_of(lambda x: [F.relu(ad.var_mean(x, 1)[0])], X)  # an op of two results
    assert rectify_products(two) == 0
    graph = graph_of(lambda x: [F.relu(F.linear(x, W))], none)
    assert rectify_products(graph) == 0


# Tiles, several blocks of k, the turned product, the library's, few rows, one result, one feature.
SIZES = [
    (64, 64, 64), (5, 7, 3), (9, 700, 40), (64, 784, 256), (600, 600, 600), (1, 8, 8), (2, 3, 999),
    (7, 9, 1), (33, 1, 5), (0, 3, 4),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_the_bits_are_those_of_two_ops(sizes, dtype):
    m, k, n = sizes
    x, w, bias = (ad.tensor(RNG.standard_normal(s).astype(dtype)) for s in ((m, k), (n, k), n))
    if m > 2:
        x[1, 0], x[2], bias[0] = float("nan"), 0.0, -0.0
    turned = x.T.contiguous().T  # by columns
    for function in (
        lambda x, w, bias: F.relu(F.linear(x, w, bias)),
        lambda x, w, bias: F.relu(F.linear(turned, w)),
        lambda x, w, bias: F.relu(x @ w.T),
    ):
        with ad.no_grad():
            found, wanted = (f(x, w, bias).numpy() for f in (ad.compile(function), function))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_a_step_of_layers_has_no_kernel_for_relu():
    model = ad.nn.Sequential(ad.nn.Linear(4, 8), ad.nn.ReLU(), ad.nn.Linear(8, 8), ad.nn.ReLU())
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled, x = ad.compile(step), ad.randn(16, 4)
    for _ in range(3):
        compiled(x)
    found = [row.name for row in compiled.explain(x).rows]
    assert found.count("linear_relu") == 2 and "relu" not in found
