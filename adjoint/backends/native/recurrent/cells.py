"""The cells of recurrent layers on vectors of units: what a step computes, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...codegen.emit import FunctionBody, Reg
from ...codegen.maths import evaluate

Regs = Sequence[Reg]


class CellStep(NamedTuple):
    """Result of a step for one vector of units: its new state, and the values that its gradient
    reads.
    """

    h: Reg
    c: Reg | None = None
    saved: tuple[Reg, ...] = ()


class Gradient(NamedTuple):
    """Gradients of a step's sums: those with the input's weights, those with the state's if others;
    and the gradient that reaches the previous state other than through the products.
    """

    inputs: tuple[Reg, ...]
    state: tuple[Reg, ...] | None = None
    carry: Reg | None = None


class Cell:
    """An Elman cell; what is different in others is overridden.

    A unit has `sums`, each begun by a bias: of the input's products those in `from_input`, of the
    state's those in `from_state`, in the order in which the weights have them.
    """

    sums = 1
    from_input: tuple[int, ...] = (0,)
    from_state: tuple[int, ...] = (0,)
    saved = 0  # values a unit and step that the gradient reads; 0: the output
    has_c = False  # a second state
    carries = False  # a part of the state's gradient comes by other ways than the products
    apart = False  # the products of input and state have different gradients

    @property
    def gates(self) -> int:
        """Number of gates: rows of a unit in the weights."""
        return len(self.from_input)

    def step(self, b: FunctionBody, sums: Regs, h: Reg | None, c: Reg | None) -> CellStep:
        """The new state, from the sums and the previous state."""
        return CellStep(self.activation(b, sums[0]))

    def gradient(self, b: FunctionBody, dh: Reg, carry: Reg | None, saved: Regs) -> Gradient:
        """The gradients of a step's sums, from the output's gradient; `carry` of the step after is
        that of c, or a part of dh.
        """
        return Gradient((self.slope(b, dh, saved[0]),))

    def activation(self, b: FunctionBody, x: Reg) -> Reg:
        """The cell's activation function, applied to the sum."""
        return evaluate(b, "tanh", x)

    def slope(self, b: FunctionBody, g: Reg, y: Reg) -> Reg:
        """g times the derivative of the activation where it is y."""
        return g * b.fma(-y, y, 1.0)


class Relu(Cell):
    """An Elman cell with max(x, 0)."""

    def activation(self, b: FunctionBody, x: Reg) -> Reg:
        """NaN stays NaN."""
        return b.select(b.compare("le", x, 0.0), 0.0, x)

    def slope(self, b: FunctionBody, g: Reg, y: Reg) -> Reg:
        """0 at 0."""
        return b.select(b.compare("le", y, 0.0), 0.0, g)


class Lstm(Cell):
    """Hochreiter and Schmidhuber's, 1997, with a forget gate."""

    sums = 4
    from_input = from_state = (0, 1, 2, 3)
    saved = 6
    has_c = carries = True

    def step(self, b: FunctionBody, sums: Regs, h: Reg | None, c: Reg | None) -> CellStep:
        """The weights have the gates in this order."""
        assert c is not None
        i, f, o = (evaluate(b, "sigmoid", sums[n]) for n in (0, 1, 3))
        g = evaluate(b, "tanh", sums[2])
        new = b.fma(f, c, i * g)
        out = evaluate(b, "tanh", new)
        return CellStep(o * out, new, (i, f, g, o, out, c))

    def gradient(self, b: FunctionBody, dh: Reg, carry: Reg | None, saved: Regs) -> Gradient:
        """`carry` is the gradient of c."""
        assert carry is not None
        i, f, g, o, out, before = saved
        dc = b.fma(dh * o, b.fma(-out, out, 1.0), carry)
        sums = (
            dc * g * _sigmoid_slope(b, i),
            dc * before * _sigmoid_slope(b, f),
            dc * i * b.fma(-g, g, 1.0),
            dh * out * _sigmoid_slope(b, o),
        )
        return Gradient(sums, None, dc * f)


class Gru(Cell):
    """Cho's et al., 2014; the reset gate is applied after the state's product."""

    sums = 4
    from_input = (0, 1, 2)
    from_state = (0, 1, 3)
    saved = 5
    carries = apart = True

    def step(self, b: FunctionBody, sums: Regs, h: Reg | None, c: Reg | None) -> CellStep:
        """The weights have the gates in this order."""
        assert h is not None
        r, z = (evaluate(b, "sigmoid", x) for x in sums[:2])
        n = evaluate(b, "tanh", b.fma(r, sums[3], sums[2]))
        rest = h - n
        return CellStep(b.fma(z, rest, n), None, (r, z, n, sums[3], rest))

    def gradient(self, b: FunctionBody, dh: Reg, carry: Reg | None, saved: Regs) -> Gradient:
        """`carry` is the part of dh that the step after passes on directly."""
        assert carry is not None
        r, z, n, inner, rest = saved
        dh = dh + carry
        dn = b.fma(-dh, z, dh) * b.fma(-n, n, 1.0)
        dr = dn * inner * _sigmoid_slope(b, r)
        dz = dh * rest * _sigmoid_slope(b, z)
        return Gradient((dr, dz, dn), (dr, dz, dn * r), dh * z)


def _sigmoid_slope(b: FunctionBody, y: Reg) -> Reg:
    return b.fma(-y, y, y)


CELLS: dict[str, Cell] = {"RNN_TANH": Cell(), "RNN_RELU": Relu(), "LSTM": Lstm(), "GRU": Gru()}
