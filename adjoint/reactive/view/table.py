"""`summary(model, input)`: layers, shapes, parameters and multiply-adds."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import InvalidArgument, InvalidType
from ...core.mode import MODE, mode_with
from ...core.op import Op
from ...core.spec import prod
from ...namespaces.random import fork_rng
from ...nn.modules.module import Module
from ...ops.create.creation import zeros
from ...ops.linalg.fully_connected import Linear, LinearInput, LinearWeight
from ...ops.linalg.matrix_product import MatMul
from ...ops.nn.convolution_ops import Convolution, ConvolutionInput, ConvolutionWeight
from ...runtime.dispatch import execute
from ...tensor import Tensor


@dataclass
class Row:
    """One layer of a summary. Counts are its own, without those of the layers inside it or shown
    above it.
    """

    path: str  # "" for the model itself
    kind: str  # class name
    output: str = ""  # shapes of the last call's tensors; "" where it was not called
    parameters: int = 0
    trainable: int = 0
    multiply_adds: int = 0
    calls: int = 0
    same_as: str | None = None  # path of the row that counts this module


@dataclass
class Summary:
    """A summary: rows of layers, their totals, and the table as text."""

    rows: list[Row]

    @property
    def parameters(self) -> int:
        """Elements of all parameters, each parameter once."""
        return sum(row.parameters for row in self.rows)

    @property
    def trainable(self) -> int:
        """Elements of the parameters that get gradients."""
        return sum(row.trainable for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one call of the model with the given inputs."""
        return sum(row.multiply_adds for row in self.rows)

    def __str__(self) -> str:
        head = ("layer", "class", "output", "parameters", "trainable", "multiply-adds")
        table = [head, *map(_cells, self.rows)]
        widths = [max(len(cells[i]) for cells in table) for i in range(len(head))]
        lines = [
            " ".join(
                cell.ljust(width) if i < 3 else cell.rjust(width + 1)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in table
        ]
        total = (
            f"total: {self.parameters:,} parameters, {self.trainable:,} trainable, "
            f"{self.multiply_adds:,} multiply-adds"
        )
        return "\n".join([*lines, "", total])

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from .notebook import of_text

        return of_text(self, str(self))


def _cells(row: Row) -> tuple[str, ...]:
    depth = row.path.count(".") + bool(row.path)
    name = "  " * depth + row.path.rpartition(".")[2] if row.path else "(model)"
    if row.same_as is not None:
        return (name, row.kind, f"is {row.same_as or '(model)'}", "", "", "")
    output = row.output + (f" x{row.calls}" if row.calls > 1 else "")
    counts = (row.parameters, row.trainable, row.multiply_adds)
    return (name, row.kind, output, *(f"{count:,}" if count else "-" for count in counts))


def summarize(model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Summary:
    """See `adjoint.summary`."""
    if not isinstance(model, Module):
        raise InvalidType(f"summary: expected a Module, got {type(model).__name__}")
    rows: list[Row] = []
    first: dict[int, Row] = {}  # id of a module of the copy -> the row that counts it
    counted: set[int] = set()
    with fork_rng():
        twin = _copy(model).eval()
        for path, module in twin.named_modules(remove_duplicate=False):
            row = Row(path, "")
            rows.append(row)
            if id(module) in first:
                row.same_as = first[id(module)].path
            else:
                first[id(module)] = row
        place = next((p.device for p in twin.parameters()), None)
        keywords = {k: _input(x, place) for k, x in named.items()}
        _run(twin, first, [_input(x, place) for x in inputs], keywords)
        for module in twin.modules():  # after the run: lazy modules are what they become now
            row = first[id(module)]
            row.kind = type(module).__name__
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in counted:
                    counted.add(id(parameter))
                    row.parameters += parameter.numel()
                    row.trainable += parameter.numel() if parameter.requires_grad else 0
    for row in rows:
        if row.same_as is not None:
            row.kind = next(other.kind for other in rows if other.path == row.same_as)
    return Summary(rows)


def _copy(model: Module) -> Any:
    """A deep copy of a model."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:  # such as the last hidden state
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise InvalidArgument(
            f"summary: {type(model).__name__} cannot be copied, and it is not run itself because "
            f"that could change it: {error}; give it a __deepcopy__, or keep such state outside"
        ) from error


def _input(value: Any, place: Any) -> Any:
    """Zeros on device `place` for a shape, anything else as it is."""
    if isinstance(value, tuple) and value and all(type(size) is int for size in value):
        return zeros(value, device=place)
    return value


def _run(model: Any, rows: dict[int, Row], inputs: list[Any], named: dict[str, Any]) -> None:
    """Call the model; each op counts for the innermost module whose forward is running."""
    running = [rows[id(model)]]

    def counted(op: Op, operands: tuple[Any, ...]) -> Any:
        result = execute(op, operands)
        running[-1].multiply_adds += multiply_adds(op, operands, result)
        return result

    def enter(module: Module, args: Any) -> None:
        running.append(rows[id(module)])

    def leave(module: Module, args: Any, output: Any) -> None:
        row = running.pop()
        row.calls += 1
        row.output = _shapes(output)

    for module in model.modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    with no_grad():
        before = MODE.get()
        try:
            MODE.set(mode_with(before, executor=counted))
            model(*inputs, **named)
        finally:
            MODE.set(before)


def _shapes(output: Any) -> str:
    """The shapes of the tensors in an output, in order."""
    if isinstance(output, Tensor):
        return str(tuple(output.shape))
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return ", ".join(text for text in map(_shapes, output) if text)
    return ""


def multiply_adds(op: Op, inputs: tuple[Any, ...], output: Any) -> int:
    """The multiply-adds that `op` takes on these tensors; 0 for an op of another kind.

    This is the field's usual count: work that is done element by element is not in it.
    """
    op = getattr(op, "base", op)  # a layer fused with its epilogue
    if isinstance(op, MatMul):
        return prod(output.shape) * int(inputs[0].shape[-1])
    if isinstance(op, Linear):
        return prod(output.shape) * int(inputs[1].shape[1])
    if isinstance(op, LinearInput):
        return prod(inputs[0].shape) * int(inputs[1].shape[1])
    if isinstance(op, LinearWeight):
        return prod(inputs[0].shape) * int(inputs[1].shape[-1])
    if isinstance(op, Convolution):  # each output reads one window of each channel of its group
        return prod(output.shape) * prod(inputs[1].shape[1:])
    if isinstance(op, ConvolutionInput):  # each input adds to one window of each channel
        return prod(inputs[0].shape) * prod(inputs[1].shape[1:])
    if isinstance(op, ConvolutionWeight):
        return prod(inputs[1].shape) * prod(output.shape[1:])
    return 0
