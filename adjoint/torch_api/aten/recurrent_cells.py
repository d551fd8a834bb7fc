"""Recurrent networks and their cells as functions of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.errors import InvalidArgument, ShapeError
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...nn.functional.recurrent import recurrent_cell, recurrent_layer
from ...ops.shape.concatenation import cat, stack
from ...runtime.public import explaining
from ...tensor import Tensor

Parameters = Any  # of each layer and direction: w_ih, w_hh, then b_ih, b_hh, then the projection


class _Parameters(NamedTuple):
    """The parameters of one layer in one direction, None for those that it has not."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    projection: Tensor | None


class _Network(NamedTuple):
    """A kind of network under its public name."""

    kind: str
    name: str

    def run(
        self,
        data: Any,
        sizes: Any,
        hx: Any,
        params: Parameters,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Any, ...]:
        """The output of the last layer, and the final states of all layers and directions; `sizes`
        are those of the batches of packed data, None for others.

        Errors: InvalidArgument for another number of states, ShapeError for one of parameters.
        """
        states = tuple(hx) if self.kind == "LSTM" else (hx,)
        if self.kind == "LSTM" and len(states) != 2:
            raise InvalidArgument(
                f"{self.name}: expects two hidden states, (h, c), got {len(states)}"
            )
        directions = 2 if bidirectional else 1
        projects = len(states) == 2 and states[0].shape[-1] != states[1].shape[-1]
        parts = self._parted(tuple(params), has_biases, projects, num_layers, directions)
        finals: list[Any] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                h, c = (*(s[place] for s in states), None)[:2]
                output, *final = recurrent_layer(
                    data, *parts[place], h, c, self.kind, bool(direction), sizes
                )
                outputs.append(output)
                finals.append(final)
            data = outputs[0] if directions == 1 else cat(outputs, -1)
            if dropout and layer < num_layers - 1:
                data = F.dropout(data, dropout, train)
        return (data, *(stack(list(each)) for each in zip(*finals, strict=True)))

    def _parted(
        self, params: tuple[Any, ...], biased: bool, projects: bool, layers: int, directions: int
    ) -> list[_Parameters]:
        """The parameters of each layer and direction.

        Errors: ShapeError where there are more, or fewer.
        """
        each = 2 + 2 * biased + projects
        if len(params) != each * layers * directions:
            raise ShapeError(
                f"{self.name}: {layers} layers of {directions} directions have {each} parameters "
                f"each, got {len(params)} in all"
            )
        parts = []
        for begin in range(0, len(params), each):
            w_ih, w_hh, *rest = params[begin : begin + each]
            b_ih, b_hh = rest[:2] if biased else (None, None)
            parts.append(_Parameters(w_ih, w_hh, b_ih, b_hh, rest[-1] if projects else None))
        return parts


def _network(kind: str, name: str) -> Callable[..., Any]:
    """The public function that runs all layers of a network."""
    run = _Network(kind, name).run

    def function(*args: Any, **kwargs: Any) -> Any:
        names = _PACKED if _is_packed(args, kwargs) else _PADDED
        given = _bound(name, names, args, kwargs)
        if names is _PACKED:
            sizes = tuple(int(n) for n in given.pop("batch_sizes").tolist())
            return run(sizes=sizes, **given)
        first = given.pop("batch_first")
        data = given.pop("input")
        found = run(data.transpose(0, 1) if first else data, None, **given)
        return (found[0].transpose(0, 1), *found[1:]) if first else found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""nn.{kind.partition("_")[0]} as a function of its parameters, of which
    each layer and direction has w_ih, w_hh, and with biases b_ih, b_hh.

    Called as {name}({", ".join(_PADDED)}), or for packed sequences
    {name}({", ".join(_PACKED)}).

    Shapes: (time, batch, features), or packed (rows, features) with the batch size of each step;
    the states are (layers * directions, batch, hidden).
    Errors: ShapeError for another number of parameters.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.{kind.partition("_")[0]}.html
    """
    return explaining(function)


_SHARED = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED = ("input", *_SHARED, "batch_first")
_PACKED = ("data", "batch_sizes", *_SHARED)


def _is_packed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the sizes of batches are given: then parameters come fourth, not `has_biases`."""
    named = "data" in kwargs or "batch_sizes" in kwargs
    return named or (len(args) > 3 and isinstance(args[3], (list, tuple)))


def _bound(
    name: str, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    twice = set(names[: len(args)]) & kwargs.keys()
    if len(args) > len(names) or twice or set(given) != set(names):
        raise TypeError(
            f"{name}(): expected ({', '.join(names)}), got {len(args)} arguments by position and "
            f"{sorted(kwargs)}"
        )
    return given


lstm = _network("LSTM", "lstm")
gru = _network("GRU", "gru")
rnn_tanh = _network("RNN_TANH", "rnn_tanh")
rnn_relu = _network("RNN_RELU", "rnn_relu")


# ---- cells ---------------------------------------------------------------------------------------


def _step(
    name: str, kind: str, input: Any, states: tuple[Any, ...], w_ih: Any, w_hh: Any, *biases: Any
) -> Any:
    if input.ndim != 2 or input.shape[1] != w_ih.shape[1]:
        raise ShapeError(
            f"{name}: input has inconsistent input_size: got shape {tuple(input.shape)}, expected "
            f"(batch, {w_ih.shape[1]})"
        )
    for h in states:
        if tuple(h.shape) != (input.shape[0], w_hh.shape[1]):
            raise ShapeError(
                f"{name}: hidden state has inconsistent hidden_size: got shape {tuple(h.shape)}, "
                f"expected {(input.shape[0], w_hh.shape[1])}"
            )
    h, c = (*states, None)[:2]
    b_ih, b_hh = biases
    return recurrent_cell(input, w_ih, w_hh, b_ih, b_hh, h, c, kind)


@explaining
def lstm_cell(
    input: Tensor,
    hx: Any,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Any, Any]:
    """One step of nn.LSTMCell: the state (h, c) after `hx`.

    Shapes: (batch, features), states (batch, hidden), w_ih (4 hidden, features), w_hh (4 hidden,
    hidden).
    Errors: ShapeError for others; InvalidArgument for another number of states.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html

    >>> zeros = ad.zeros(1, 2)
    >>> ad.lstm_cell(ad.zeros(1, 3), (zeros, zeros), ad.zeros(8, 3), ad.zeros(8, 2))[0]
    tensor([[0., 0.]])
    """
    states = tuple(hx)
    if len(states) != 2:
        raise InvalidArgument(f"lstm_cell: expects two hidden states, (h, c), got {len(states)}")
    h, c = _step("lstm_cell", "LSTM", input, states, w_ih, w_hh, b_ih, b_hh)
    return h, c


def _cell(kind: str, name: str) -> Callable[..., Any]:
    def function(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        return _step(name, kind, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]

    module = "GRUCell" if kind == "GRU" else "RNNCell"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""One step of nn.{module}: the state after `hx`.

    Shapes: (batch, features), hx (batch, hidden).
    Errors: ShapeError for others.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.{module}.html
    """
    return explaining(function)


gru_cell = _cell("GRU", "gru_cell")
rnn_tanh_cell = _cell("RNN_TANH", "rnn_tanh_cell")
rnn_relu_cell = _cell("RNN_RELU", "rnn_relu_cell")
