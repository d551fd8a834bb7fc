"""Symbolic tracing beside PyTorch's: the same nodes, names and text, but for the framework's name
and the private homes of PyTorch's functions; and the values that the graph gives.
"""

from __future__ import annotations

import collections
import enum
import math
import re
import typing
from math import sqrt

import pytest

import adjoint as ad

from ...pytorch import torch

FRAMEWORKS = {"adjoint": ad, "torch": torch}
Pair = collections.namedtuple("Pair", "a b")


class Colour(enum.Enum):
    RED = 1


def text(code):
    """The text without what differs: names of modules."""
    for theirs, ours in (
        ("torch._C._nn.", "torch.nn.functional."), ("torch._C._linalg.linalg_", "torch.linalg."),
        ("torch._C._fft.fft_", "torch.fft."), ("torch._C._special.special_", "torch.special."),
        ("torch.functional.", "torch."),
    ):  # fmt: skip
        code = code.replace(theirs, ours)
    return re.sub(r"\badjoint\b", "torch", code)


def same(ours, theirs):
    assert text(ours.code) == text(theirs.code)
    for mine, other in zip(ours.graph.nodes, theirs.graph.nodes, strict=True):
        assert mine.op == other.op
        assert mine.name == other.name
        assert list(map(str, mine.users)) == list(map(str, other.users))
        assert sorted(mine.meta) == sorted(other.meta)
    assert text(str(ours.graph)) == text(str(theirs.graph))


def operators(T):
    t = T.ones(3, 3)

    def f(x, y=2):
        a = x + 1, 1 + x, x - y, 2 - x, x * 3.5, 3 / x, x // 2, 7 % x, x**2, 2**x, x @ x, 2 @ x
        b = x < 1, x > 1, x <= y, x == 2, x != None, x > x, x >= 0  # noqa: E711
        c = x & x, 1 | x, x ^ x, ~x, -x, +x, abs(x), x << 1, 1 << x, x >> 1, x[0], x[1:, None]
        d = t + x, t - x, t * x, t / x, t**x, t > x, t % x, x[..., 0], x["key"], t[x], t == x
        x += 1
        return a, b, c, d, x

    return f


def functions(T):
    F = T.nn.functional
    t = T.ones(3)

    def f(x):
        return (
            F.relu(x), F.relu(x, True), T.relu(x), F.relu(input=x), x.relu(), F.softmax(x, 1),
            F.softmax(x, dim=-1, dtype=T.float64), F.dropout(x), F.dropout(x, 0.1, False),
            F.max_pool2d(x, 2), F.max_pool2d(x, kernel_size=2, stride=1), F.avg_pool2d(x, 2),
            F.layer_norm(x, (3,)), F.cross_entropy(x, x), F.linear(x, x),
            F.gelu(x, approximate="tanh"), F.conv2d(x, x, padding=1), F.pad(x, (1, 2)),
            F.interpolate(x, scale_factor=2.0), F.adaptive_avg_pool2d(x, (1, 1)), F.silu(x),
            F.embedding(x, x), F.batch_norm(x, x, x), F.mse_loss(x, x, reduction="sum"),
            F.leaky_relu(x, 0.2), F.hardswish(x), F.log_softmax(x, 1), F.normalize(x),
            F.group_norm(x, 2), F.sigmoid(x), F.tanh(x), F.one_hot(x, 3), F.grid_sample(x, x),
            F.scaled_dot_product_attention(x, x, x, is_causal=True), F.hardtanh(x), F.elu(x),
            T.cat([x, x], dim=1), T.cat((x, t)), T.add(x, 1), T.add(x, 1, alpha=2), T.sub(x, x),
            T.where(x > 0, x, 0.0), T.clamp(x, 0, 1), T.flatten(x, 1),
            T.sum(x, dim=(1, 2)), T.mean(x), T.matmul(x, x), T.bmm(x, x), T.einsum("ij->i", x),
            T.einsum("ij,jk->ik", [x, x]),
            T.stack((x, x)), T.split(x, 2), T.split(x, 2, dim=1), T.chunk(x, 2, dim=1),
            T.zeros_like(x), T.linalg.norm(x), T.fft.fft(x), T.sigmoid(x),
            T.exp(x), T.pow(x, 2), T.div(x, 2), T.div(x, 2, rounding_mode="floor"), T.max(x, 1),
            T.transpose(x, 0, 1), T.unsqueeze(x, 0), T.reshape(x, (2, -1)), T.mul(t, x),
            T.ones(x.shape[0]), T.arange(x.size(0)), T.meshgrid(x, x, indexing="ij"),
            T.nn.init.zeros_ is None, T.tanh(x), T.zeros(2, device=x.device), T.isnan(x),
        )  # fmt: skip

    return f


def methods(T):
    def f(x):
        x = x.view(x.size(0), -1).contiguous()
        n, c = x.shape
        a, b = x.split(2, dim=1)
        y = x.to(T.float64), x.add_(1), x.T, x.foo.bar(1).baz, x(3), x.shape[-1:], x.dtype
        return {"a": y, "b": [n * c, (a,)], "c": slice(n, None), "d": None, "e": "it's", "f": b}

    return f


def constants(T):
    def f(x):
        return (
            T.float32, T.device("cpu"), 1j, float("nan"), -float("inf"), "a'b", Ellipsis,
            True, Colour.RED, Pair(x, 1), T.cat(Pair(x, x)), range(2, 5), T.tensor([1.0]) + x,
            x + T.tensor(2), x.to(memory_format=T.channels_last), f"{x}", x is None,
            isinstance(x, T.Tensor), hasattr(x, "foo"), T.Size([1, 2]), [x[i] for i in range(2)],
        )  # fmt: skip

    return f


def arguments(T):
    def f(input, self_, lambda_, x=(1, 2), *rest, flag: bool = True, **more):
        return input + self_ + lambda_, rest[0], more["a"], x, flag

    return f


def annotated(T):
    def f(x: T.Tensor, y: int = 3, z: list[int] = (), w: "int" = 1, v: dict = None) -> T.Tensor:  # noqa: UP037, RUF013
        return x * y

    return f


def generics(T):
    def f(x, y, z=None, w=1, v=(), r=None, s=None, k=None, n=None):
        return x

    of = typing
    f.__annotations__ = {
        "x": of.Optional[T.Tensor], "y": of.List[int], "z": of.Dict[str, T.Tensor],
        "w": of.Union[int, str], "v": of.Tuple[int, ...], "r": T.nn.Module, "s": T.dtype,
        "k": tuple[T.Tensor, int], "n": int | None,
        "return": of.Tuple[T.Tensor, of.List[T.Tensor]],
    }  # fmt: skip
    return f


def mathematics(T):
    def f(x):
        return math.floor(x.mean()), sqrt(x), math.pi * x, math.sqrt(4.0)

    return f


PROGRAMS = (operators, functions, methods, constants, arguments, annotated, generics, mathematics)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_functions_become_the_nodes_that_they_become_in_pytorch(program):
    ours, theirs = (T.fx.symbolic_trace(program(T)) for T in (ad, torch))
    same(ours, theirs)


def net(T):
    nn = T.nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            return self.norm(x + self.lin(x)).relu()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5))
            self.blocks = nn.ModuleList([Block(), Block()])
            self.again = self.blocks[0].lin
            self.scale = nn.Parameter(T.ones(4))
            self.register_buffer("shift", T.ones(4))
            self.plain = T.ones(4)

        def forward(self, x, double=False):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            x = self.again(x) * self.scale + self.shift
            x = self.shift * x + self.plain + self.scale * self.scale
            y = x @ self.again.weight + T.tensor([1.0])
            return F.relu(x) + F.dropout(y, 0.3, self.training), self.shift

    return Net


def weights_of(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("training", (True, False))
def test_modules_become_the_nodes_that_they_become_in_pytorch(training):
    models = {name: net(T)().train(training) for name, T in FRAMEWORKS.items()}
    ours, theirs = (T.fx.symbolic_trace(models[name]) for name, T in FRAMEWORKS.items())
    same(ours, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert text(str(ours)) == text(str(theirs))
    assert text(ours.print_readable(False)) == text(theirs.print_readable(False))
    for mine, other in zip(ours.graph.nodes, theirs.graph.nodes, strict=True):
        stacks = (node.meta.get("nn_module_stack", {}) for node in (mine, other))
        assert len({str([(key, path) for key, (path, _) in s.items()]) for s in stacks}) == 1


def test_a_traced_module_computes_what_the_module_does():
    model = net(ad)().eval()
    traced = ad.fx.symbolic_trace(model)
    x = ad.randn(5, 3)
    for mine, other in zip(traced(x), model(x), strict=True):
        assert mine.tolist() == other.tolist()
    traced(x)[0].sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model(x)[0].sum().backward()
    for name, p in model.named_parameters():
        assert ad.equal(p.grad, gradients[name])


REFUSED = {
    "if": lambda x: 1 if x.sum() > 0 else 2,
    "not": lambda x: not x,
    "and": lambda x: x and x,
    "in": lambda x: x in [1, 2],
    "contains": lambda x: 3 in x,
    "loop": lambda x: [y for y in x],  # noqa: C416
    "star": lambda x: max(*x),
    "dict": lambda x: {**x},
    "len": lambda x: len(x),
    "int": lambda x: int(x),
    "float": lambda x: float(x),
    "range": lambda x: range(x),
    "class": lambda x: x.shape[0].__class__,
    "rest": lambda x: (lambda a, *b: a)(*x),
    "max": lambda x: max(x, 2),
    "items": lambda x: {k: v for k, v in x.items()},  # noqa: C416
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_symbol_cannot_say_is_refused_as_in_pytorch(name):
    said = []
    for T in (ad, torch):
        with pytest.raises(Exception) as caught:
            T.fx.symbolic_trace(REFUSED[name])
        said.append(caught.value)
    ours, theirs = said
    assert type(ours).__name__ == type(theirs).__name__
    assert str(ours)[:60] == str(theirs)[:60]
