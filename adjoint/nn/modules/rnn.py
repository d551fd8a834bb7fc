"""Recurrent layers and cells: RNN, LSTM, GRU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ...core.errors import InvalidArgument, ShapeError
from ...ops.shape.concatenation import cat, stack
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from ..functional.recurrent import STEPS, State, recurrent_cell, recurrent_layer
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


if TYPE_CHECKING:
    Steps = TypeVar("Steps", Tensor, PackedSequence)  # of the output as of the input


class RNNBase(Module):
    """Base of RNN, LSTM and GRU: parameters, layers, directions, packed sequences.

    Each layer applies its step to all times, in each direction; see RNN, LSTM and GRU for the
    formulas.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        num_layers: Number of layers, each on the outputs of the one before. Default: 1.
        bias: Whether to add learned biases. Default: True.
        batch_first: Whether input and output have the batch first. Default: False.
        dropout: Probability of dropout between layers, in training. Default: 0.0.
        bidirectional: Whether each layer runs backward, too. Default: False.
        proj_size: Size of the projected state of an LSTM; 0 for none. Default: 0.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Errors: InvalidArgument for a hidden_size or num_layers that is not positive and a dropout
    outside [0, 1], and for a proj_size that does not fit; ShapeError, in the call, for an input or
    state of other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNBase.html

    >>> ad.nn.RNNBase("GRU", 2, 3).weight_ih_l0.shape
    adjoint.Size([9, 2])
    """

    _shown_as = "{input_size}, {hidden_size}"
    _shown_unless = (
        ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
        ("dropout", 0.0), ("bidirectional", False),
    )  # fmt: skip

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(hidden_size, int) or hidden_size <= 0:
            raise InvalidArgument(
                f"{mode}: hidden_size must be greater than zero, got {hidden_size}"
            )
        if num_layers <= 0:
            raise InvalidArgument(f"{mode}: num_layers must be greater than zero, got {num_layers}")
        if not 0 <= dropout <= 1:
            raise InvalidArgument(
                f"{mode}: dropout should be a number in range [0, 1] representing the probability "
                f"of an element being zeroed, got {dropout}"
            )
        if proj_size and (mode != "LSTM" or not 0 < proj_size < hidden_size):
            raise InvalidArgument(
                f"{mode}: proj_size is for LSTM, between 0 and hidden_size, got {proj_size}"
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates = STEPS[mode][1] * hidden_size
        output = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else output * self.num_directions
            for suffix in self._suffixes(layer):
                sizes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates, width),
                    "weight_hh": (gates, output),
                }
                if bias:
                    sizes.update(bias_ih=(gates,), bias_hh=(gates,))
                if proj_size:
                    sizes.update(weight_hr=(proj_size, hidden_size))
                for name, size in sizes.items():
                    self._new_parameter(f"{name}_{suffix}", size, device, dtype)
        self.reset_parameters()

    @property
    def num_directions(self) -> int:
        """2 where bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"][: self.num_directions]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [
            [self._parameters[f"{n}_{s}"] for n in names if f"{n}_{s}" in self._parameters]
            for layer in range(self.num_layers)
            for s in self._suffixes(layer)
        ]

    def reset_parameters(self) -> None:
        """Draw new initial values: uniform within 1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: parameters are used where they are."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The outputs of all steps, and the final state of every layer and direction.

        Shapes: (time, batch, input_size), (batch, time, input_size) where `batch_first`,
        (time, input_size), or a PackedSequence.
        """
        packed = isinstance(input, PackedSequence)
        sizes = None
        if packed:
            data, sizes = input.data, tuple(input.batch_sizes.tolist())
            batched = True
        else:
            if input.ndim not in (2, 3):
                raise ShapeError(
                    f"{self.mode}: Expected input to be 2D or 3D, got {input.ndim}D instead"
                )
            batched = input.ndim == 3
            data = input if batched else input.unsqueeze(1)
            if batched and self.batch_first:
                data = data.transpose(0, 1)
        if data.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self.mode}: input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {data.shape[-1]}"
            )
        order = input.sorted_indices if packed else None
        states = self._initial(hx, data, sizes[0] if sizes else data.shape[1], batched, order)
        finals: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                place = layer * self.num_directions + direction
                state = tuple(s[place] for s in states)
                output, *final = self._run(data, sizes, state, suffix, reverse=bool(direction))
                outputs.append(output)
                finals.append(tuple(final))
            data = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                data = F.dropout(data, self.dropout, self.training)
        last = [
            stack(parts) if len(parts) > 1 else parts[0].unsqueeze(0)
            for parts in zip(*finals, strict=True)
        ]
        if packed:
            if order is not None:
                last = [h.index_select(1, input.unsorted_indices) for h in last]
            data = PackedSequence(
                data, input.batch_sizes, input.sorted_indices, input.unsorted_indices
            )
        elif not batched:
            data = data.squeeze(1)
            last = [h.squeeze(1) for h in last]
        elif self.batch_first:
            data = data.transpose(0, 1)
        return data, (tuple(last) if self.mode == "LSTM" else last[0])

    def _initial(self, hx: Any, data: Any, batch: int, batched: bool, order: Any) -> State:
        rows = self.num_layers * self.num_directions
        widths = [self.proj_size or self.hidden_size]
        if self.mode == "LSTM":
            widths.append(self.hidden_size)
        if hx is None:
            return tuple(data.new_zeros(rows, batch, w) for w in widths)
        given = tuple(hx) if self.mode == "LSTM" else (hx,)
        if not batched:
            given = tuple(h.unsqueeze(1) for h in given)
        for h, width in zip(given, widths, strict=True):
            if tuple(h.shape) != (rows, batch, width):
                raise ShapeError(
                    f"{self.mode}: Expected hidden size {(rows, batch, width)}, got {list(h.shape)}"
                )
        return given if order is None else tuple(h.index_select(1, order) for h in given)

    def _run(
        self, data: Any, sizes: tuple[int, ...] | None, state: State, suffix: str, reverse: bool
    ) -> State:
        """One layer in one direction over `data`: the outputs and the final state."""
        take = self._parameters.get
        h, c = (*state, None)[:2]
        return recurrent_layer(
            data,
            take(f"weight_ih_{suffix}"),
            take(f"weight_hh_{suffix}"),
            take(f"bias_ih_{suffix}"),
            take(f"bias_hh_{suffix}"),
            take(f"weight_hr_{suffix}"),
            h,
            c,
            self.mode,
            reverse,
            sizes,
        )


class RNN(RNNBase):
    """Elman's recurrent layers.

        h' = tanh(W_ih x + b_ih + W_hh h + b_hh)

    Here x is the input of a step, h the state before it and h' its output and state.

    A `PackedSequence` as input gives one as output. Weights and biases start uniform within 1 /
    sqrt(hidden_size).

    Args:
        nonlinearity: "tanh", or "relu" in its place. Default: "tanh".
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        num_layers: Number of layers, each on the outputs of the one before. Default: 1.
        bias: Whether to add learned biases. Default: True.
        batch_first: Whether input and output have the batch first, (batch, time, ...). Default:
            False.
        dropout: Probability of dropout between layers, in training. Default: 0.0.
        bidirectional: Whether each layer runs backward, too; both results are concatenated.
            Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (time, batch, input_size), state (num_layers directions, batch, hidden_size),
    zeros if not given -> output (time, batch, directions hidden_size) and the final state; or
    without batch.
    Errors: InvalidArgument for a hidden_size or num_layers that is not positive and a dropout
    outside [0, 1], and for another nonlinearity; ShapeError, in the call, for an input or state of
    other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html

    >>> output, h = ad.nn.RNN(4, 8)(ad.zeros(5, 3, 4))
    >>> output.shape, h.shape
    (adjoint.Size([5, 3, 8]), adjoint.Size([1, 3, 8]))
    """

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **kwargs: Any) -> None:
        if len(args) > 3 and isinstance(args[3], str):
            nonlinearity, args = args[3], (*args[:3], *args[4:])
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(
                f"RNN: Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    if TYPE_CHECKING:

        def __call__(self, input: Steps, hx: Tensor | None = None) -> tuple[Steps, Tensor]:
            """Type of a call: see the class."""


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997).

        (i, f, g, o) = W_ih x + b_ih + W_hh h + b_hh
        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    Here x is the input of a step, (h, c) the state before it, h' its output and (h', c') its state.

    A `PackedSequence` as input gives one as output. Weights and biases start uniform within 1 /
    sqrt(hidden_size).

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        num_layers: Number of layers, each on the outputs of the one before. Default: 1.
        bias: Whether to add learned biases. Default: True.
        batch_first: Whether input and output have the batch first, (batch, time, ...). Default:
            False.
        dropout: Probability of dropout between layers, in training. Default: 0.0.
        bidirectional: Whether each layer runs backward, too; both results are concatenated.
            Default: False.
        proj_size: Size of h', which W_hr projects, where it is not 0. Default: 0.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (time, batch, input_size), a pair of states (num_layers directions, batch,
    hidden_size), zeros if not given -> output (time, batch, directions hidden_size) and the final
    pair; or without batch. h has proj_size, if there is one, in the place of hidden_size.
    Errors: InvalidArgument for a hidden_size or num_layers that is not positive and a dropout
    outside [0, 1], and for a proj_size that is not below hidden_size; ShapeError, in the call, for
    an input or state of other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html

    >>> output, (h, c) = ad.nn.LSTM(4, 8, bidirectional=True)(ad.zeros(5, 3, 4))
    >>> output.shape, c.shape
    (adjoint.Size([5, 3, 16]), adjoint.Size([2, 3, 8]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    if TYPE_CHECKING:

        def __call__(
            self, input: Steps, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Steps, tuple[Tensor, Tensor]]:
            """Type of a call: see the class."""


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014).

        (r, z, n) = W_ih x + b_ih, (r', z', n') = W_hh h + b_hh
        m = tanh(n + sigmoid(r + r') n')
        h' = (1 - sigmoid(z + z')) m + sigmoid(z + z') h

    Here x is the input of a step, h the state before it and h' its output and state.

    A `PackedSequence` as input gives one as output. Weights and biases start uniform within 1 /
    sqrt(hidden_size).

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        num_layers: Number of layers, each on the outputs of the one before. Default: 1.
        bias: Whether to add learned biases. Default: True.
        batch_first: Whether input and output have the batch first, (batch, time, ...). Default:
            False.
        dropout: Probability of dropout between layers, in training. Default: 0.0.
        bidirectional: Whether each layer runs backward, too; both results are concatenated.
            Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (time, batch, input_size), state (num_layers directions, batch, hidden_size),
    zeros if not given -> output (time, batch, directions hidden_size) and the final state; or
    without batch.
    Errors: InvalidArgument for a hidden_size or num_layers that is not positive and a dropout
    outside [0, 1]; ShapeError, in the call, for an input or state of other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html

    >>> output, h = ad.nn.GRU(4, 8, batch_first=True)(ad.zeros(3, 5, 4))
    >>> output.shape, h.shape
    (adjoint.Size([3, 5, 8]), adjoint.Size([1, 3, 8]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    if TYPE_CHECKING:

        def __call__(self, input: Steps, hx: Tensor | None = None) -> tuple[Steps, Tensor]:
            """Type of a call: see the class."""


class RNNCellBase(Module):
    """Base of the cells: parameters and the check of shapes.

    See RNNCell, LSTMCell and GRUCell for the formulas.

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        bias: Whether to add learned biases.
        num_chunks: Number of parts of the weights, one for each gate.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNCell.html

    >>> ad.nn.RNNCellBase(2, 3, True, 4).weight_ih.shape
    adjoint.Size([12, 2])
    """

    _shown_as = "{input_size}, {hidden_size}"
    _shown_unless: ClassVar[tuple[tuple[str, Any], ...]] = (("bias", True),)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self._new_parameter("weight_ih", (rows, input_size), device, dtype)
        self._new_parameter("weight_hh", (rows, hidden_size), device, dtype)
        self._new_parameter("bias_ih", (rows,), device, dtype, bias)
        self._new_parameter("bias_hh", (rows,), device, dtype, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: uniform within 1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _step(self, input: Any, h: Any, c: Any, mode: str) -> State:
        name = type(self).__name__
        *batch, features = input.shape
        if len(batch) > 1:
            raise ShapeError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if features != self.input_size:
            raise ShapeError(
                f"{name}: input has inconsistent input_size: got {features} expected "
                f"{self.input_size}"
            )
        for state in (h, c):
            if state is not None and state.shape != (*batch, self.hidden_size):
                raise ShapeError(
                    f"{name}: hidden state has shape {tuple(state.shape)}, expected "
                    f"{(*batch, self.hidden_size)}"
                )
        own = self._parameters
        return recurrent_cell(
            input, own["weight_ih"], own["weight_hh"], own["bias_ih"], own["bias_hh"], h, c, mode
        )


class RNNCell(RNNCellBase):
    """One step of Elman's recurrent layer.

        h' = tanh(W_ih x + b_ih + W_hh h + b_hh)

    Weights and biases start uniform within 1 / sqrt(hidden_size).

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        bias: Whether to add learned biases. Default: True.
        nonlinearity: "tanh" or "relu". Default: "tanh".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (batch, input_size), state (batch, hidden_size), zeros if not given -> (batch,
    hidden_size); or without batch.
    Errors: ShapeError for other sizes, and InvalidArgument for another nonlinearity, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNCell.html

    >>> ad.nn.RNNCell(4, 8)(ad.zeros(3, 4)).shape
    adjoint.Size([3, 8])
    """

    _shown_unless = (("bias", True), ("nonlinearity", "tanh"))

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f"RNNCell: Unknown nonlinearity: {self.nonlinearity}")
        return self._step(input, hx, None, f"RNN_{self.nonlinearity.upper()}")[0]


class _GatedCell(RNNCellBase):
    _chunks: int  # blocks of rows of each weight

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self._chunks, device, dtype)


class LSTMCell(_GatedCell):
    """One step of long short-term memory.

        (i, f, g, o) = W_ih x + b_ih + W_hh h + b_hh
        c' = sigmoid(f) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    Weights and biases start uniform within 1 / sqrt(hidden_size).

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        bias: Whether to add learned biases. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (batch, input_size), a pair of states (batch, hidden_size), zeros if not given ->
    the next pair; or without batch.
    Errors: ShapeError for other sizes, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html

    >>> h, c = ad.nn.LSTMCell(4, 8)(ad.zeros(3, 4))
    >>> h.shape
    adjoint.Size([3, 8])
    """

    _chunks = 4

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next (h, c)."""
        h, c = (None, None) if hx is None else hx
        return self._step(input, h, c, "LSTM")


class GRUCell(_GatedCell):
    """One step of gated recurrent units.

        (r, z, n) = W_ih x + b_ih, (r', z', n') = W_hh h + b_hh
        m = tanh(n + sigmoid(r + r') n')
        h' = (1 - sigmoid(z + z')) m + sigmoid(z + z') h

    Weights and biases start uniform within 1 / sqrt(hidden_size).

    Args:
        input_size: Size of the input's vectors.
        hidden_size: Size of the state's vectors.
        bias: Whether to add learned biases. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (batch, input_size), state (batch, hidden_size), zeros if not given -> (batch,
    hidden_size); or without batch.
    Errors: ShapeError for other sizes, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GRUCell.html

    >>> ad.nn.GRUCell(4, 8)(ad.zeros(3, 4)).shape
    adjoint.Size([3, 8])
    """

    _chunks = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        return self._step(input, hx, None, "GRU")[0]
