"""Training steps as the same program for every framework: what benchmarks of compiled ones measure.

No framework is imported here, so that a process has the one alone that it measures.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Step = Callable[..., Any]
Wrap = Callable[[Any], Any]


def _trained(model: Any, loss_of: Step, optimizer: Any) -> Step:
    """The usual training step: `loss_of` the model and a batch."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _accumulated(loss_of: Step, optimizer: Any, batches: int, dim: int = 0) -> Step:
    """The same for the mean loss of several batches, whose gradients are added up."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        total = 0.0
        for part in zip(*(x.chunk(batches, dim) for x in batch), strict=True):
            loss = loss_of(*part) / batches
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step


def _adam(t: Any, model: Any, name: str = "Adam") -> Any:
    options = {"fused": True} if t.__name__ == "torch" else {}
    return getattr(t.optim, name)(model.parameters(), lr=1e-3, **options)


def _classifier(t: Any, model: Any, optimizer: Any, inner: Wrap, batches: int = 1) -> Step:
    model, criterion = inner(model), t.nn.CrossEntropyLoss()

    def loss_of(x: Any, y: Any) -> Any:
        return criterion(model(x), y)

    if batches > 1:
        return _accumulated(loss_of, optimizer, batches)
    return _trained(model, loss_of, optimizer)


class Row:
    """A step: its batch, the same program for both frameworks, JAX's (None where that is not
    measured), and its work.
    """

    def __init__(
        self, title: str, batch: Sequence[Any], make: Callable[[Any, Wrap], Step],
        jax: Callable[[Any], Any] | None, flops: float = 0,
    ) -> None:  # fmt: skip
        self.title, self.batch, self.make, self.jax, self.flops = title, batch, make, jax, flops


def gpt_model(
    t: object, words: int, length: int, width: int, heads: int, layers: int, head_bias: bool = True
) -> object:
    """A GPT."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: object) -> object:
            b, n, c = x.shape
            q, k, v = (
                part.view(b, n, heads, c // heads).transpose(1, 2)
                for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=head_bias)

        def forward(self, x: object) -> object:
            h = self.tokens(x) + self.places(t.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(h))).reshape(-1, words)

    return GPT()


def resnet_model(t: object) -> object:
    """A ResNet of three blocks, 16 to 64 channels."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            stride = after // before
            self.body = nn.Sequential(
                nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after),
                nn.ReLU(), nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
            )  # fmt: skip
            self.short = nn.Conv2d(before, after, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: object) -> object:
            return nn.functional.relu(self.body(x) + self.short(x))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16), Block(16, 32), Block(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def _drawn() -> Any:
    return np.random.default_rng(0)


def pointwise(size: int = 1 << 20) -> Row:
    """A chain of functions of each element, its sum and its gradient."""

    def make(t: Any, inner: Wrap) -> Step:
        total = inner(lambda x: (t.tanh(x) * t.sigmoid(x) + t.exp(-x * x) * t.sin(x)).sum())

        def step(x: Any) -> Any:
            x = x.detach().requires_grad_()
            return t.autograd.grad(total(x), x)[0]

        return step

    x = _drawn().standard_normal(size).astype(np.float32)
    title = f"pointwise tanh(x)*sigmoid(x) + exp(-x*x)*sin(x), sum and gradient, {size}"
    return Row(title, [x], make, lambda peers: peers.pointwise(x))


def perceptron(sizes: Sequence[int], batch: int, batches: int = 1) -> Row:
    """Fully connected layers, Adam; perhaps with the gradients of several batches in a step."""

    def make(t: Any, inner: Wrap) -> Step:
        layers: list[Any] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [t.nn.Linear(inputs, outputs), t.nn.ReLU()]
        model = t.nn.Sequential(*layers[:-1])
        return _classifier(t, model, _adam(t, model), inner, batches)

    count = batch * batches
    draw = _drawn()
    x = draw.standard_normal((count, sizes[0])).astype(np.float32)
    y = draw.integers(0, sizes[-1], count)
    work = sum(i * o for i, o in itertools.pairwise(sizes))
    several = f"gradients of {batches} batches of {batch}" if batches > 1 else f"batch {batch}"
    title = f"MLP {'-'.join(map(str, sizes))}, {several}, Adam"
    flops = 6 * count * work - 2 * count * sizes[0] * sizes[1]
    return Row(title, [x, y], make, lambda peers: peers.mlp(sizes, x, y, batches), flops)


def resnet(count: int = 32, side: int = 32, batches: int = 1) -> Row:
    """A ResNet of three blocks, 16 to 64 channels, SGD with momentum; perhaps with the gradients of
    several batches in a step.
    """

    def make(t: Any, inner: Wrap) -> Step:
        model = resnet_model(t)
        optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        return _classifier(t, model, optimizer, inner, batches)

    draw = _drawn()
    x = draw.standard_normal((count, 3, side, side)).astype(np.float32)
    y = draw.integers(0, 10, count)
    title = f"ResNet 16-32-64, {count}x3x{side}x{side}, SGD with momentum{_in(batches)}"
    flops = 2.4e9 * count / 32 * (side / 32) ** 2
    jax = None if batches > 1 else lambda peers: peers.resnet(x, y)
    return Row(title, [x, y], make, jax, flops)


def _in(batches: int) -> str:
    return f", in {batches} batches" if batches > 1 else ""


def lstm() -> Row:
    """LSTM 32-128, 50 steps, batch 32, Adam."""

    def make(t: Any, inner: Wrap) -> Step:
        class Model(t.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.lstm = t.nn.LSTM(32, 128, batch_first=True)
                self.decoder = t.nn.Linear(128, 10)

            def forward(self, x: Any) -> Any:
                return self.decoder(self.lstm(x)[0][:, -1])

        model = Model()
        return _classifier(t, model, _adam(t, model), inner)

    draw = _drawn()
    x = draw.standard_normal((32, 50, 32)).astype(np.float32)
    y = draw.integers(0, 10, 32)
    title = "LSTM 32-128, 50 steps, batch 32, Adam"
    return Row(title, [x, y], make, lambda peers: peers.lstm(x, y, 128, 10), 0.73e9)


def gpt(
    words: int = 96, width: int = 128, count: int = 12, length: int = 64, batches: int = 1
) -> Row:
    """GPT of 4 layers, AdamW; perhaps with the gradients of several batches in a step."""

    def make(t: Any, inner: Wrap) -> Step:
        model = gpt_model(t, words, length, width, heads=4, layers=4)
        optimizer = _adam(t, model, "AdamW")
        model, criterion = inner(model), t.nn.CrossEntropyLoss()

        def loss_of(x: Any, y: Any) -> Any:
            return criterion(model(x), y.reshape(-1))

        if batches > 1:
            return _accumulated(loss_of, optimizer, batches)
        return _trained(model, loss_of, optimizer)

    draw = _drawn()
    x, y = (draw.integers(0, words, (count, length)) for _ in range(2))
    title = f"GPT, 4 layers {width} wide, {count}x{length} tokens, AdamW{_in(batches)}"
    each = 4 * (24 * width**2 + 4 * length * width) + 2 * width * words  # of a token, forward
    flops = 3 * each * count * length
    flat = y.reshape(-1)
    jax = None if batches > 1 else lambda peers: peers.gpt(x, flat, words, width, 4, 4)
    return Row(title, [x, y], make, jax, flops)


def products(count: int = 100) -> Row:
    """Products of pairs of 4x4, with their gradients."""
    draw = _drawn()
    arrays = [draw.standard_normal((4, 4)).astype(np.float32) for _ in range(2 * count)]

    def make(t: Any, inner: Wrap) -> Step:
        def total(*xs: Any) -> Any:
            return sum((a @ b).sum() for a, b in zip(xs[::2], xs[1::2], strict=True))

        total = inner(total)

        def step(*xs: Any) -> Any:
            own = [x.detach().requires_grad_() for x in xs]
            return t.autograd.grad(total(*own), own)

        return step

    pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    title = f"{count} products of 4x4 with gradients"
    return Row(title, arrays, make, lambda peers: peers.products(pairs))


def chain(count: int = 100) -> Row:
    """Products of 4x4 one after another, with the gradients of all factors."""
    draw = _drawn()
    x, *weights = [(draw.standard_normal((4, 4)) / 2).astype(np.float32) for _ in range(count + 1)]

    def make(t: Any, inner: Wrap) -> Step:
        def total(x: Any, *weights: Any) -> Any:
            for w in weights:
                x = x @ w
            return x.sum()

        total = inner(total)

        def step(*xs: Any) -> Any:
            own = [x.detach().requires_grad_() for x in xs]
            return t.autograd.grad(total(*own), own)

        return step

    title = f"a chain of {count} products of 4x4 with gradients"
    return Row(title, [x, *weights], make, lambda peers: peers.chain(x, weights))


def dqn() -> Row:
    """An update of a value network, 4-64-64-2, batch 64, with a target network, Adam."""

    def make(t: Any, inner: Wrap) -> Step:
        def network() -> Any:
            nn = t.nn
            return nn.Sequential(
                nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
            )

        model, target = network(), network()
        optimizer = _adam(t, model)
        called, aimed, criterion = inner(model), inner(target), t.nn.SmoothL1Loss()

        def loss_of(states: Any, actions: Any, rewards: Any, following: Any, ends: Any) -> Any:
            q = called(states).gather(1, actions.unsqueeze(1)).squeeze(1)
            with t.no_grad():
                aim = rewards + 0.99 * aimed(following).max(1).values * (1 - ends)
            return criterion(q, aim)

        return _trained(model, loss_of, optimizer)

    draw = _drawn()
    states, following = (draw.standard_normal((64, 4)).astype(np.float32) for _ in range(2))
    rewards, ends = (draw.integers(0, 2, 64).astype(np.float32) for _ in range(2))
    batch = [states, draw.integers(0, 2, 64), rewards, following, ends]
    title = "DQN update 4-64-64-2, batch 64, Adam"
    return Row(title, batch, make, lambda peers: peers.dqn(*batch))


def characters(hidden: int = 32, length: int = 16, batches: int = 1) -> Row:
    """A loop over an LSTM cell that predicts characters, Adam; perhaps with the gradients of
    several batches in a step.
    """
    words, count = 32, 16

    def make(t: Any, inner: Wrap) -> Step:
        class Model(t.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.embedding = t.nn.Embedding(words, hidden)
                self.cell = t.nn.LSTMCell(hidden, hidden)
                self.head = t.nn.Linear(hidden, words)

            def forward(self, x: Any, y: Any) -> Any:
                h, c = t.zeros(x.shape[1], hidden), t.zeros(x.shape[1], hidden)
                loss = 0.0
                for k in range(x.shape[0]):
                    h, c = self.cell(self.embedding(x[k]), (h, c))
                    loss = loss + t.nn.functional.cross_entropy(self.head(h), y[k])
                return loss / x.shape[0]

        model = Model()
        optimizer = _adam(t, model)
        if batches > 1:
            return _accumulated(inner(model), optimizer, batches, dim=1)
        return _trained(model, inner(model), optimizer)

    draw = _drawn()
    x, y = (draw.integers(0, words, (length, count)) for _ in range(2))
    steps = f"{length} steps of {count}"
    title = f"char-LSTM, a loop over a cell of {hidden}, {steps}, Adam{_in(batches)}"
    jax = None if batches > 1 else lambda peers: peers.characters(x, y, words, hidden)
    return Row(title, [x, y], make, jax)


def pinn() -> Row:
    """A network with u'' = -sin x, by second derivatives, Adam."""
    width, count = 32, 128

    def make(t: Any, inner: Wrap) -> Step:
        nn = t.nn
        model = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

        def loss_of(points: Any) -> Any:
            x = points.detach().requires_grad_()
            u = model(x)
            (first,) = t.autograd.grad(u.sum(), x, create_graph=True)
            (second,) = t.autograd.grad(first.sum(), x, create_graph=True)
            return ((second + x.sin()) ** 2).mean() + (model(t.zeros(1, 1)) ** 2).sum()

        return _trained(model, loss_of, _adam(t, model))  # inductor has no second derivatives

    points = np.linspace(0, np.pi, count, dtype=np.float32)[:, None]
    title = f"PINN 1-{width}-{width}-1, {count} points, second derivatives, Adam"
    return Row(title, [points], make, lambda peers: peers.pinn(points, width))


ROWS: dict[str, Callable[[], Row]] = {
    "pointwise": pointwise,
    "mlp": lambda: perceptron((784, 256, 256, 10), 64),
    "resnet": resnet,
    "lstm": lstm,
    "gpt": gpt,
    "products": products,
    "chain": chain,
    "small": lambda: perceptron((64, 32, 10), 32),
    "dqn": dqn,
    "characters": characters,
    "loop": lambda: characters(256),
    "batches": lambda: perceptron((512,) * 4, 16, batches=8),
    "pinn": pinn,
    "gpt-256": lambda: gpt(1000, 256, 32, 128),
    "gpt-256/8": lambda: gpt(1000, 256, 32, 128, batches=8),
    "resnet-64": lambda: resnet(64, 64),
    "resnet-64/4": lambda: resnet(64, 64, batches=4),
    "loop-512": lambda: characters(512, 40),
    "loop-512/4": lambda: characters(512, 40, batches=4),
    "mlp-1024": lambda: perceptron((1024,) * 6, 256),
    "mlp-1024/8": lambda: perceptron((1024,) * 6, 32, batches=8),
}
LARGE = [name for name in ROWS if "-" in name]  # whose memory is measured


WAYS = ("compiled", "eager", "PyTorch", "torch.compile", "JAX jit")


def ways() -> list[str]:
    """Those for which all is installed."""
    jax = importlib.util.find_spec("jax") is not None
    return [way for way in WAYS if jax or way != "JAX jit"]


def ways_of(row: str) -> list[str]:
    """Those that can run a row."""
    return [way for way in ways() if way != "JAX jit" or ROWS[row]().jax is not None]


def of_framework(row: Row, t: Any, inner: Wrap = lambda x: x) -> tuple[Step, list[Any]]:
    """A row's step in a framework with PyTorch's API, and its batch there."""
    return row.make(t, inner), [t.tensor(x) for x in row.batch]


def prepared(row: Row, way: str) -> Callable[[], object]:
    """A row's step as a function of no arguments; only its framework is imported."""
    if way == "JAX jit":
        assert row.jax is not None
        return row.jax(importlib.import_module("benchmarks.jax_steps"))
    t: Any = importlib.import_module("adjoint" if way in ("compiled", "eager") else "torch")
    step, batch = of_framework(row, t, t.compile if way == "torch.compile" else lambda x: x)
    if way == "compiled":
        step = t.compile(step)
    return lambda: step(*batch)
