"""A step of a loaded graph, and the table of what each kind of operator computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import Unsupported
from ...tensor import Tensor
from .text import label_of

TABLE: dict[str, Callable[..., Any]] = {}


@dataclass(eq=False, repr=False, slots=True)
class GraphStep:
    """One operator, ready to run."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: dict[str, Any]
    keys: tuple[str, ...]  # of each input, the argument that it is; "" where by position
    name: str
    layer: Any = None  # a Module, where the operator is one
    path: tuple[str, ...] = ()  # of the layer
    training: bool = False
    numbers: bool = False  # whether inputs may be parameters
    # The shapes of inputs and outputs, as the file has them.
    declared: dict[str, Any] = field(default_factory=dict)
    call: Any = None

    def __post_init__(self) -> None:
        self.call = TABLE.get(self.kind, run_layer)  # which a module of the user's is

    @property
    def label(self) -> str:
        """Name of the step in messages."""
        return label_of(self.name, self.kind)

    def bound(self, inputs: list[Any]) -> tuple[GraphStep, list[Any]]:
        """The step with what inputs say of its parameters, as of an unoptimized file, in them."""
        given = [
            bool(key) and not isinstance(x, Tensor)
            for key, x in zip(self.keys, inputs, strict=True)
        ]
        if not any(given):
            return self, inputs
        kept = [i for i, is_given in enumerate(given) if not is_given]
        params = {key: x for key, x, g in zip(self.keys, inputs, given, strict=True) if g}
        step = self.changed(
            params, inputs=tuple(self.inputs[i] for i in kept),
            keys=tuple(self.keys[i] for i in kept),
        )  # fmt: skip
        return step, [inputs[i] for i in kept]

    def changed(
        self, params: dict[str, Any], kind: str | None = None,
        inputs: tuple[str, ...] | None = None, keys: tuple[str, ...] | None = None,
    ) -> GraphStep:  # fmt: skip
        """The step with other parameters beside its own."""
        step = GraphStep(
            kind or self.kind, self.inputs if inputs is None else inputs, self.outputs,
            {**self.params, **params}, self.keys if keys is None else keys, self.name, self.layer,
            self.path,
        )  # fmt: skip
        step.training = self.training
        return step

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter; `default` for one that is missing or None."""
        value = self.params.get(name)
        return default if value is None else value

    def unsupported(self, what: str) -> Unsupported:
        """The error for a gap."""
        return Unsupported(f"pnnx: {self.label}: {what} is not supported")


def run_layer(s: GraphStep, *xs: Any) -> Any:
    """Call the step's module."""
    return s.layer(*xs)


def operator(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function for the operators called `kinds`: of the step and its inputs."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in kinds:
            assert kind not in TABLE, kind
            TABLE[kind] = function
        return function

    return enter


def words(text: str) -> list[str]:
    """The names in a text."""
    return text.split()
