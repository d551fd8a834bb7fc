"""A graph read from another tool's file as a Module: named values and the steps that make them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np

from ..core.errors import AdjointError, CheckpointError, InvalidArgument
from ..nn import Module, Parameter
from ..ops.create.memory import from_numpy
from ..tensor import Tensor

__all__ = [
    "FAULTS", "ImportedGraph", "Step", "last_uses", "needed", "refuse", "refusing", "several",
]  # fmt: skip


class Step(Protocol):
    """An operator: the names of the values that it takes and gives; "" is one left out."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class ImportedGraph(Module):
    """What imported graphs share; a format says in `_step` what an operator computes."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self._format = format
        self.input_names: list[str] = []
        self.output_names: list[str] = []
        self._values: dict[str, Any] = {}  # the constant arrays
        self._places: dict[str, tuple[Module, str, bool]] = {}  # of parameters and buffers
        self._steps: list[Any] = []  # in an order in which each can be computed
        self._drops: list[list[str]] = []  # what nothing needs after each step

    def _register(self, name: str, tensor: Tensor, is_buffer: bool) -> None:
        """Keep a tensor under its name in the file, as far as names of attributes allow it."""
        module, leaf = self._parent(name)
        if is_buffer:
            module.register_buffer(leaf, tensor)
        else:
            module.register_parameter(leaf, Parameter(tensor))
        self._places[name] = (module, leaf, is_buffer)

    def _parent(self, name: str) -> tuple[Module, str]:
        """The module for a name with dots, and what is free there for its last part."""
        parts = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
        if len(parts) > 32:
            parts = ["_".join(parts)]
        module: Module = self
        for part in parts[:-1]:
            child = module._modules.get(part)
            if child is None:
                part = _free(module, part)
                child = Module()
                module.add_module(part, child)
            module = child
        return module, _free(module, parts[-1])

    def _step(self, step: Any, inputs: list[Any]) -> tuple[Any, ...]:
        """What one step computes."""
        raise NotImplementedError

    def _start(self, args: Sequence[Any]) -> dict[str, Any]:
        """The values that are there before the first step."""
        if len(args) != len(self.input_names):
            raise InvalidArgument(
                f"{self._format}: expected the inputs {', '.join(self.input_names)}, "
                f"got {len(args)}"
            )
        values = dict(self._values)
        for name, (module, leaf, is_buffer) in self._places.items():
            values[name] = (module._buffers if is_buffer else module._parameters)[leaf]
        values.update(zip(self.input_names, args, strict=True))
        return values

    def _compute(self, args: Sequence[Any]) -> Any:
        """The outputs for these inputs; one alone, several as a tuple."""
        values = self._start(args)
        for step, drops in zip(self._steps, self._drops, strict=True):
            inputs = [values[name] if name else None for name in step.inputs]
            found = self._step(step, inputs)
            if len(found) < len(step.outputs):
                raise CheckpointError(
                    f"{self._format}: the operator of {step.outputs[-1]!r} gives {len(found)} "
                    f"outputs, not {len(step.outputs)}"
                )
            values.update(zip(step.outputs, found, strict=False))
            for name in drops:
                values.pop(name, None)
        return self._results(values)

    def _results(self, values: dict[str, Any]) -> Any:
        results = tuple(
            from_numpy(np.array(v)) if isinstance(v, np.ndarray) else v
            for v in (values[name] for name in self.output_names)
        )
        return results[0] if len(results) == 1 else results

    def _summary(self) -> str:
        names = f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"
        return f"{names}, {len(self._steps)} nodes"


FAULTS = (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError,
          ArithmeticError, MemoryError)  # fmt: skip


def refuse(what: str, error: Exception) -> NoReturn:
    """Raise what an operator raised: of FAULTS, a CheckpointError that names the operator."""
    if isinstance(error, AdjointError):
        raise error
    raise CheckpointError(f"{what} has inputs or attributes that do not fit: {error}") from error


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """`refuse` for a block."""
    try:
        yield
    except FAULTS as error:
        refuse(what, error)


def several(found: Any) -> tuple[Any, ...]:
    """What a function returned, as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def needed(steps: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """The steps that outputs depend on."""
    wanted = set(outputs)
    kept = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs):
            wanted.update(step.inputs)
            kept.append(step)
    return kept[::-1]


def last_uses(steps: Sequence[Any], outputs: Sequence[str]) -> list[list[str]]:
    """For each step, the values that nothing needs after it."""
    seen = set(outputs)
    drops = []
    for step in reversed(steps):
        names = [n for n in dict.fromkeys((*step.inputs, *step.outputs)) if n and n not in seen]
        seen.update(names)
        drops.append(names)
    return drops[::-1]


def _free(module: Module, name: str) -> str:
    """`name`, with underscores behind it until the module has no such attribute."""
    while hasattr(module, name) or not name:
        name += "_"
    return name
