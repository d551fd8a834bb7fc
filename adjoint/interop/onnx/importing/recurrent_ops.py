"""ONNX's recurrent layers: LSTM, GRU and RNN, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....nn.functional.recurrent import recurrent_layer
from ....ops.index.gather import Gather
from ....runtime.dispatch import apply
from ....tensor import Tensor
from .imported_node import F, ImportedNode, ad, host, operator, t

Activation = Callable[[Tensor], Tensor]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # PyTorch's gates in ONNX's order
# each with the alpha and beta that it has where none are given; None: it has no such number
_ACTIVATIONS: dict[str, tuple[Any, Any, Any]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "elu": (lambda x, a, b: F.elu(x, a), 1.0, None),
    "hardsigmoid": (lambda x, a, b: ad.clamp(a * x + b, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: F.leaky_relu(x, a), 0.01, None),
    "relu": (lambda x, a, b: ad.relu(x), None, None),
    "scaledtanh": (lambda x, a, b: a * ad.tanh(b * x), 1.0, 1.0),
    "sigmoid": (lambda x, a, b: ad.sigmoid(x), None, None),
    "softplus": (lambda x, a, b: F.softplus(x), None, None),
    "softsign": (lambda x, a, b: F.softsign(x), None, None),
    "tanh": (lambda x, a, b: ad.tanh(x), None, None),
    "thresholdedrelu": (lambda x, a, b: F.threshold(x, a, 0.0), 1.0, None),
}


@operator("LSTM", "GRU", "RNN")
def _(n: ImportedNode, x: Any, weight: Any, own_weight: Any, *given: Any) -> Any:
    bias_pair, lengths, h, c, peepholes = given + (None,) * (5 - len(given))
    x, weight, own_weight = t(x), t(weight), t(own_weight)
    batch_first = bool(n.get("layout", 0))
    x = x.transpose(0, 1) if batch_first else x
    directions, rows, hidden = own_weight.shape
    if (
        x.ndim != 3
        or rows != _GATES[n.kind] * hidden
        or weight.shape[:2] != own_weight.shape[:2]
        or not x.shape[0]
    ):
        raise ValueError("shapes of X, W and R do not fit")
    way = n.get("direction", "forward")
    if directions != 1 + (way == "bidirectional"):
        raise ValueError(f"direction {way} with {directions} sets of weights")
    functions = _activations(n, directions)
    usual = _is_usual(n) and peepholes is None
    ends = _ends(lengths, x)
    outputs, hs, cs = [], [], []
    for d in range(directions):
        backwards = way == "reverse" or d == 1
        state = []
        for start in (h, c):
            if start is None:
                state.append(x.new_zeros(x.shape[1], hidden))
            else:
                state.append(t(start)[:, d] if batch_first else t(start)[d])
        if usual and ends is None:
            pair = None if bias_pair is None else t(bias_pair)[d]
            y, *last = _as_layer(n.kind, x, weight[d], own_weight[d], pair, state, backwards)
            outputs.append(y)
            hs.append(last[0])
            cs.append(last[-1])
            continue
        cell = _CELLS[n.kind](
            n,
            own_weight[d],
            None if bias_pair is None else t(bias_pair)[d],
            functions[d],
            None if peepholes is None else t(peepholes)[d],
        )
        source = _reversed(x, ends) if backwards else x
        y, last = _loop(cell, source, weight[d], state, ends)
        outputs.append(_reversed(y, ends) if backwards else y)
        hs.append(last[0])
        cs.append(last[1])
    if batch_first:
        found = (ad.stack(outputs, 2).transpose(0, 1), ad.stack(hs, 1), ad.stack(cs, 1))
    else:
        found = (ad.stack(outputs, 1), ad.stack(hs), ad.stack(cs))
    return found if n.kind == "LSTM" else found[:2]


def _is_usual(n: ImportedNode) -> bool:
    """Whether the cell is PyTorch's."""
    names = [name.lower() for name in n.get("activations") or ()]
    usual = [name.lower() for name in _USUAL[n.kind]]
    if names not in ([], usual, usual * 2) or n.get("clip", 0.0) or n.get("input_forget", 0):
        return False
    return n.kind != "GRU" or bool(n.get("linear_before_reset", 0))


def _as_layer(
    kind: str, x: Any, weight: Any, own_weight: Any, pair: Any, state: Any, backwards: bool
) -> Any:
    """The outputs and the last state by our own layer, which has its gates in another order."""
    order = _ORDERS[kind]

    def sorted_gates(rows: Any) -> Any:
        parts = rows.chunk(len(order))
        return ad.cat([parts[gate] for gate in order]) if len(order) > 1 else rows

    bias, own_bias = (None, None) if pair is None else map(sorted_gates, pair.chunk(2))
    return recurrent_layer(
        x, sorted_gates(weight), sorted_gates(own_weight), bias, own_bias, None, state[0],
        state[1] if kind == "LSTM" else None, "RNN_TANH" if kind == "RNN" else kind, backwards,
        None,
    )  # fmt: skip


def _ends(lengths: Any, x: Tensor) -> Any:
    """The length of each sequence; None where all are as long as the tensor."""
    if lengths is None:
        return None
    ends = host(lengths).reshape(-1).astype(np.int64)
    if len(ends) != x.shape[1] or (len(ends) and not 0 <= ends.min() <= ends.max() <= x.shape[0]):
        raise ValueError(f"lengths {ends[:8]} for {tuple(x.shape)}")
    return None if (ends == x.shape[0]).all() else ends


def _reversed(x: Tensor, ends: Any) -> Any:
    """Reverses each sequence; padding behind its end stays there."""
    if ends is None:
        return x.flip(0)
    at = np.arange(x.shape[0])[:, None]
    places = np.where(at < ends, ends - 1 - at, at)[..., None]
    return apply(Gather(0), x, t(places).expand(x.shape))


def _activations(n: ImportedNode, directions: int) -> list[list[Activation]]:
    """The functions of each direction; numbers are taken in order by those that have such."""
    usual = _USUAL[n.kind]
    names = n.get("activations") or list(usual) * directions
    if len(names) != len(usual) * directions:
        raise ValueError(f"{len(names)} activations for {directions} directions")
    alphas, betas = iter(n.get("activation_alpha") or ()), iter(n.get("activation_beta") or ())
    functions = [_activation(n, name, alphas, betas) for name in names]
    return [functions[i : i + len(usual)] for i in range(0, len(names), len(usual))]


def _activation(
    n: ImportedNode, name: str, alphas: Iterator[float], betas: Iterator[float]
) -> Activation:
    if name.lower() not in _ACTIVATIONS:
        raise n.unsupported(f"activation {name[:40]!r}")
    function, alpha, beta = _ACTIVATIONS[name.lower()]
    a = None if alpha is None else next(alphas, alpha)
    b = None if beta is None else next(betas, beta)
    bound = n.get("clip", 0.0)
    if bound:
        return lambda x: function(ad.clamp(x, -bound, bound), a, b)
    return lambda x: function(x, a, b)


def _loop(
    cell: Any, x: Tensor, weight: Tensor, state: list[Tensor], ends: Any
) -> tuple[Tensor, list[Tensor]]:
    """The outputs of all steps and the last state; behind its end a sequence's state stays."""
    given = F.linear(x, weight, cell.input_bias)
    steps = []
    for i, step in enumerate(given.unbind(0)):
        new = cell(step, *state)
        if ends is None:
            state = new
            steps.append(state[0])
        else:
            going = t((i < ends)[:, None])
            state = [ad.where(going, a, b) for a, b in zip(new, state, strict=True)]
            steps.append(ad.where(going, new[0], ad.zeros_like(new[0])))
    return ad.stack(steps), state


class _Cell:
    """One step of a recurrent cell, of what the input gives to the gates and the state."""

    def __init__(
        self,
        n: ImportedNode,
        weight: Tensor,
        bias: Any,
        functions: Sequence[Activation],
        peepholes: Any,
    ) -> None:
        self.weight = weight
        self.hidden = weight.shape[1]
        self.functions = functions
        pair: Any = (None, None) if bias is None else bias.split(weight.shape[0])
        self.input_bias, self.bias = pair
        self.peepholes = None if peepholes is None else peepholes.split(self.hidden)
        self.coupled = bool(n.get("input_forget", 0))
        self.resets_last = bool(n.get("linear_before_reset", 0))

    def __call__(self, step: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        raise NotImplementedError


class _LSTM(_Cell):
    def __call__(self, step: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        gates, new, shown = self.functions
        i, o, f, g = (step + F.linear(h, self.weight, self.bias)).split(self.hidden, 1)
        if self.peepholes is not None:
            i, f = i + self.peepholes[0] * c, f + self.peepholes[2] * c
        i = gates(i)
        f = 1 - i if self.coupled else gates(f)
        c = f * c + i * new(g)
        o = gates(o if self.peepholes is None else o + self.peepholes[1] * c)
        return [o * shown(c), c]


class _GRU(_Cell):
    def __call__(self, step: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        gates, new = self.functions
        size = self.hidden
        if self.resets_last:
            z, r, n = F.linear(h, self.weight, self.bias).split(size, 1)
            z1, r1, n1 = step.split(size, 1)
            z, r = gates(z1 + z), gates(r1 + r)
            n = new(n1 + r * n)
        else:
            own = self.weight.split([2 * size, size])
            bias = (None, None) if self.bias is None else self.bias.split([2 * size, size])
            z, r = gates(step[:, : 2 * size] + F.linear(h, own[0], bias[0])).split(size, 1)
            n = new(step[:, 2 * size :] + F.linear(r * h, own[1], bias[1]))
        return [(1 - z) * n + z * h, c]


class _RNN(_Cell):
    def __call__(self, step: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        return [self.functions[0](step + F.linear(h, self.weight, self.bias)), c]


_CELLS = {"LSTM": _LSTM, "GRU": _GRU, "RNN": _RNN}
