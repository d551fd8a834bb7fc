"""A graph read from another tool's file as a Module: named values and the steps that make them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np

from ..core.errors import AdjointError, CheckpointError, InvalidArgument
from ..nn import Module, Parameter
from ..ops.create.exchange import from_numpy
from ..tensor import Tensor


class Step(Protocol):
    """An operator: the names of the values that it takes and gives; "" is one left out."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Path = tuple[str, ...]  # names of modules, from the graph inwards
Place = tuple[Path, str]  # of a tensor: the module that has it, and its name there


class ImportedGraph(Module):
    """Base of imported graphs; a format's `_step` computes an operator."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self._format = format
        self.input_names: list[str] = []
        self.output_names: list[str] = []
        self._values: dict[str, Any] = {}  # the constant arrays
        self._places: dict[str, Place] = {}  # of parameters and buffers
        self._steps: list[Any] = []  # in an order in which each can be computed
        self._drops: list[list[str]] = []  # what nothing needs after each step

    def _register(self, name: str, tensor: Tensor, is_buffer: bool) -> None:
        """Keep a tensor under its name in the file, as far as names of attributes allow it."""
        module, path, leaf = self._parent(name)
        if is_buffer:
            module.register_buffer(leaf, tensor)
        else:
            module.register_parameter(leaf, Parameter(tensor))
        self._places[name] = (path, leaf)

    def _parent(self, name: str) -> tuple[Module, Path, str]:
        """The module for a name with dots, its path, and what is free there for the last part."""
        parts = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
        if len(parts) > 32:
            parts = ["_".join(parts)]
        module: Module = self
        path = []
        for part in parts[:-1]:
            child = module._modules.get(part)
            if child is None:
                part = _free(module, part)
                child = Module()
                module.add_module(part, child)
            module = child
            path.append(part)
        return module, tuple(path), _free(module, parts[-1])

    def _at(self, path: Path) -> Module:
        """The module that is there now: what was put in the place of another is what runs."""
        module: Module = self
        for part in path:
            child = module._modules.get(part)
            if child is None:
                raise InvalidArgument(
                    f"{self._format}: the graph computes with {'.'.join(path)}, and there is no "
                    f"{part!r} any more; put a module there"
                )
            module = child
        return module

    def _tensors(self, args: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        """The inputs in their order, also those given by name; arrays become tensors."""
        names = self.input_names
        given = dict(zip(names, args, strict=False))
        twice = [name for name in named if name in given]
        unknown = [name for name in named if name not in names]
        if twice or unknown or len(given) + len(named) != len(names) or len(args) > len(names):
            wrong = f"{len(args)}" + (f" and {', '.join(named)}" if named else "")
            raise InvalidArgument(
                f"{self._format}: expected the inputs {', '.join(names)}, got {wrong}"
            )
        given.update(named)
        return [
            from_numpy(np.asarray(x).astype(x.dtype.newbyteorder("="), order="C"))
            if isinstance(x, (np.ndarray, np.generic)) else x
            for x in map(given.__getitem__, names)
        ]  # fmt: skip

    def _step(self, step: Any, inputs: list[Any]) -> tuple[Any, ...]:
        """Computes the outputs of one step."""
        raise NotImplementedError

    def _start(self, args: Sequence[Any], put: Container[Path] = ()) -> dict[str, Any]:
        """The values that are there before the first step, without those of the modules `put`."""
        values = dict(self._values)
        modules: dict[Path, Any] = {}
        for name, (path, leaf) in self._places.items():
            if put and under(path, put):
                continue
            module = modules.get(path)
            if module is None:
                module = modules[path] = self._at(path)
            values[name] = self._tensor_of(module, path, leaf)
        values.update(zip(self.input_names, args, strict=True))
        return values

    def _tensor_of(self, module: Module, path: Path, leaf: str) -> Any:
        """A tensor that the graph computes with, from the module that has it."""
        computes = path and type(module).forward is not Module.forward
        if computes or not hasattr(module, leaf):
            raise InvalidArgument(
                f"{self._format}: the graph computes with the tensor {'.'.join((*path, leaf))}, "
                f"and a {type(module).__name__} was put in the place of what had it, which the "
                "graph does not call; change the tensors there instead"
            )
        return getattr(module, leaf)

    def _compute(self, args: Sequence[Any]) -> Any:
        """The outputs for these inputs; one alone, several as a tuple."""
        return self._computed(self._start(args), self._steps, self._drops)

    def _computed(
        self, values: dict[str, Any], steps: Sequence[Any], all_drops: Sequence[list[str]]
    ) -> Any:
        for step, drops in zip(steps, all_drops, strict=True):
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
    """The result of a function as a tuple."""
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
    """The values that nothing needs after each step."""
    seen = set(outputs)
    drops = []
    for step in reversed(steps):
        names = [n for n in dict.fromkeys((*step.inputs, *step.outputs)) if n and n not in seen]
        seen.update(names)
        drops.append(names)
    return drops[::-1]


def under(path: Path, paths: Container[Path]) -> bool:
    """Whether one of `paths` is `path`, or that of a module that `path` is inside of."""
    return any(path[:depth] in paths for depth in range(1, len(path) + 1))


def _free(module: Module, name: str) -> str:
    """`name`, with underscores behind it until the module has no such attribute."""
    while hasattr(module, name) or not name:
        name += "_"
    return name
