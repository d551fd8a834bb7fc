"""One layer of a recurrent network in one direction, over all steps, or one step of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ...ops.linalg.fully_connected import linear
from ...ops.shape.concatenation import cat
from ...ops.shape.sizes import hold_sizes
from ...runtime.fused import fused
from .activation import relu

State: TypeAlias = "tuple[Any, ...]"  # (h,), for an LSTM (h, c)


def _tanh_step(x: Any, state: State, weight: Any, bias: Any, projection: Any) -> State:
    return ((x + linear(state[0], weight, bias)).tanh(),)


def _relu_step(x: Any, state: State, weight: Any, bias: Any, projection: Any) -> State:
    return (relu(x + linear(state[0], weight, bias)),)


def _lstm_step(x: Any, state: State, weight: Any, bias: Any, projection: Any) -> State:
    h, c = state
    i, f, g, o = (x + linear(h, weight, bias)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if projection is None else linear(h, projection), c)


def _gru_step(x: Any, state: State, weight: Any, bias: Any, projection: Any) -> State:
    h = state[0]
    xr, xz, xn = x.chunk(3, -1)
    hr, hz, hn = linear(h, weight, bias).chunk(3, -1)
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (n + (xz + hz).sigmoid() * (h - n),)


STEPS: dict[str, tuple[Callable[..., State], int]] = {  # step, gates
    "RNN_TANH": (_tanh_step, 1),
    "RNN_RELU": (_relu_step, 1),
    "LSTM": (_lstm_step, 4),
    "GRU": (_gru_step, 3),
}


@fused(native="recurrent.eager_recurrent", always=True)
def recurrent_layer(
    x: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any,
    bias_hh: Any,
    weight_hr: Any,
    h: Any,
    c: Any,
    kind: str,
    reverse: bool,
    sizes: tuple[int, ...] | None,
) -> State:
    """The outputs of all steps and the final state, of a layer that begins with the state (h, c).

    x is (time, batch, features), or packed: (rows, features), of which `sizes[t]` belong to step t,
    never more than to the step before. c is for an LSTM, weight_hr for one that has projections.
    """
    initial = (h,) if c is None else (h, c)
    if sizes is None:
        sizes = (x.shape[1],) * x.shape[0]
        data = x.reshape(-1, x.shape[2])
    else:
        data = x
    step = STEPS[kind][0]
    inputs = linear(data, weight_ih, bias_ih).split(list(sizes))
    outputs: list[Any] = [None] * len(sizes)
    finished: list[State] = []
    count = sizes[-1] if reverse else sizes[0]
    state = tuple(s[:count] for s in initial) if count != sizes[0] else initial
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        if sizes[t] < count:  # forward: the shortest sequences have ended
            finished.append(tuple(s[sizes[t] :] for s in state))
            state = tuple(s[: sizes[t]] for s in state)
        elif sizes[t] > count:  # backward: the shorter sequences begin
            begun = [i[count : sizes[t]] for i in initial]
            state = tuple(cat([s, b]) for s, b in zip(state, begun, strict=True))
        count = sizes[t]
        state = step(inputs[t], state, weight_hh, bias_hh, weight_hr)
        outputs[t] = state[0]
    finished.append(state)
    if len(finished) > 1:
        state = tuple(cat(list(parts)) for parts in zip(*reversed(finished), strict=True))
    output = cat(outputs)
    if x.ndim == 3:
        output = output.reshape(x.shape[0], x.shape[1], -1)
    return (output, *state)


@fused(native="recurrent.eager_recurrent", always=True, apart=True)
def recurrent_cell(
    x: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any, h: Any, c: Any, kind: str
) -> State:
    """The state after (h, c) and one step's input; c is for an LSTM. Zeros where they are None."""
    given = (h, c) if kind == "LSTM" else (h,)
    if any(s is None for s in given):  # zeros of these sizes, which would be broadcast with one row
        x = hold_sizes("recurrent_cell", x, dims=range(x.ndim - 1))
    size = (*x.shape[:-1], weight_hh.shape[1])
    state = tuple(x.new_zeros(size) if s is None else s for s in given)
    return STEPS[kind][0](linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, None)
