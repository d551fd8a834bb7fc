"""Sums whose terms come one after another are added up as they come, products in their memory."""

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends.native.gemm import gemm
from adjoint.compiler.passes.accumulate import running_sums
from adjoint.compiler.passes.static_layers import accumulate_products
from adjoint.core import policy
from adjoint.nn import functional as F
from tests.sweep import one_in

from .test_inference_passes import check, graph_of, names

pytestmark = pytest.mark.skipif(gemm.address() is None, reason="no product is generated here")

RNG = np.random.default_rng(0)


def drawn(*shape, dtype=np.float32):
    return ad.tensor(RNG.standard_normal(shape).astype(dtype))


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(policy, "RUNNING_SUM", 0)


W = [drawn(4, 5) for _ in range(4)]
X = drawn(6, 4)


@pytest.mark.usefixtures("always")
def test_accumulate_products():
    check(
        accumulate_products, lambda x: [x @ W[0] + x @ W[1] + x @ W[2]], X,
        before=["mat_mul", "mat_mul", "add", "mat_mul", "add"],
        after=["mat_mul", "mat_mul_add", "mat_mul_add"],
    )  # fmt: skip


@pytest.mark.usefixtures("always")
def test_a_sum_may_begin_with_what_is_there_and_end_in_what_others_read():
    def function(x):
        y = W[3][:1] * 1 + 0 * x.sum()  # no term
        found = (y.expand(6, 5) + x @ W[0]) + (x @ W[1] + x @ W[2])
        return [found, found.exp()]

    graph = graph_of(lambda x, y: [(y + x @ W[0]) + x @ W[1]], X, drawn(6, 5))
    assert accumulate_products(graph) == 2
    assert names(graph) == ["mat_mul_add", "mat_mul_add"]
    graph = graph_of(function, X)
    accumulate_products(graph)
    assert names(graph).count("mat_mul_add") == 1


LEFT = {
    "what others read": lambda x: [(y := x @ W[0] + x @ W[1]) + x @ W[2] + x @ W[3], y],
    "a term that others read": lambda x: [(y := x @ W[0]) + x @ W[1] + y.exp()],
    "a term twice": lambda x: [(y := x @ W[0]) + y],
    "what is broadcast": lambda x: [x @ W[0] + x[:1] @ W[1]],
    "elementwise": lambda x: [x.exp() + x.sin() + x.cos()],
    "one term": lambda x: [x.exp() + x],
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", LEFT)
def test_what_is_no_sum_of_terms_is_left(case):
    graph = graph_of(LEFT[case], X)
    before = names(graph)
    changed = accumulate_products(graph)
    if case == "what others read":
        assert changed == 1  # what is shown is not written over
    else:
        assert not changed and names(graph) == before


def test_small_sums_stay_one_kernel():
    graph = graph_of(lambda x: [x @ W[0] + x @ W[1] + x @ W[2]], X)
    assert not running_sums(graph) and not accumulate_products(graph)


# Tiles, a bias, several blocks of k, the library's, few rows, one result, nothing.
SIZES = [
    (64, 64, 64), (5, 7, 3), (9, 700, 40), (64, 256, 96), (600, 200, 600), (1, 8, 8), (7, 9, 1),
    (33, 1, 5), (3, 0, 4), (0, 3, 4),
]  # fmt: skip


def result_of(function, given, size, monkeypatch):
    monkeypatch.setattr(policy, "RUNNING_SUM", size)
    with ad.no_grad():
        return ad.compile(function)(*given).numpy()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_the_bits_are_those_of_two_ops(sizes, dtype, monkeypatch):
    m, k, n = sizes
    x, w, bias = drawn(m, k, dtype=dtype), drawn(n, k, dtype=dtype), drawn(n, dtype=dtype)
    before = drawn(m, n, dtype=dtype)
    if m > 2 and k > 2:
        x[1, 0], x[2], bias[0], before[2] = float("nan"), 0.0, -0.0, -0.0
    turned = x.T.contiguous().T  # by columns
    for function in (
        lambda x, w, bias, y: F.linear(x, w, bias) + F.linear(x * 2, w, bias) + y,
        lambda x, w, bias, y: y + F.linear(turned, w) + x @ w.T,
        lambda x, w, bias, y: y.exp() + (x @ w.T + turned @ w.T),
        lambda x, w, bias, y: (w @ x.T + w @ turned.T).T + y,
    ):
        found, wanted = (
            result_of(function, (x, w, bias, before), size, monkeypatch) for size in (0, 1 << 60)
        )
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


class Shifted(nn.Module):
    """What has a large parameter that is no weight of a product."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(ad.randn(64, 64))
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return self.linear((x[:, None] + self.shift).tanh()).mean(1)


class Cell(nn.Module):
    """A loop over a cell, with a weight that the embedding shares."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, x):
        h = c = ad.zeros(len(x), 64)
        for _ in range(8):
            h, c = self.cell(self.embedding((x.abs().sum(1) * 3).long() % 100), (h, c))
        return h @ self.embedding.weight.T


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)),
    "norm": lambda: nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3),
        nn.Flatten(), nn.Linear(1024, 8),
    ),
    "images": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8),
    ),
    "shifted": Shifted,
    "cell": Cell,
}  # fmt: skip


def steps_of(name, batches, optimizer, zero):
    ad.manual_seed(0)
    model = MODELS[name]()
    optimizer = optimizer(model.parameters())

    def step(x):
        if zero:
            optimizer.zero_grad()
        for part in x.chunk(batches):
            model(part).square().mean().backward()
        optimizer.step()

    return model, step


@pytest.mark.parametrize(
    ("zero", "name"),
    [
        *(pytest.param(False, name, id=f"kept-{name}") for name in MODELS),
        *one_in(3, (pytest.param(True, name, id=f"cleared-{name}") for name in MODELS)),
    ],
)
def test_gradients_of_several_batches_are_those_of_eager_steps(name, zero):
    def optimizer(parameters):
        return ad.optim.SGD(parameters, lr=0.01)

    found, compiled = steps_of(name, 4, optimizer, zero)
    wanted, eager = steps_of(name, 4, optimizer, zero)
    compiled = ad.compile(compiled)
    for k in range(4):
        ad.manual_seed(k)
        x = ad.randn(16, 64)
        compiled(x), eager(x)
        for p, q in zip(found.parameters(), wanted.parameters(), strict=True):
            ad.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
            ad.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", one_in(2, MODELS))
def test_more_batches_take_no_more_memory(name, monkeypatch):
    """A term is freed as soon as it is added."""
    for each in ("REGION_BYTES", "APART"):  # steps stay in order, though they are small
        monkeypatch.setattr(policy, each, 0)

    def optimizer(parameters):
        return ad.optim.SGD(parameters, lr=0.01)

    memory = {}
    for batches in (4, 16):
        model, step = steps_of(name, batches, optimizer, True)
        step, x = ad.compile(step), ad.randn(4 * batches, 64)
        for _ in range(2):
            step(x)
        memory[batches] = step.explain(x).memory
    gradients = sum(p.nbytes for p in model.parameters())
    assert memory[16] <= memory[4] + gradients // 2, (memory, gradients)
