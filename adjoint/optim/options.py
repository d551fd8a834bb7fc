"""Options of optimizers: how they are checked, and read as numbers."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidArgument, InvalidType
from ..core.symbolic_scalar import SymbolicFloat, SymbolicNumber
from ..tensor import Tensor

__all__: list[str] = []

_NOT_NEGATIVE = {
    "lr", "lr_decay", "eps", "weight_decay", "momentum", "momentum_decay",
    "initial_accumulator_value",
}  # fmt: skip


def checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among a constructor's arguments: `locals()`, where it has no other variables yet.

    Errors: InvalidArgument for those that no optimizer takes, whichever of them it has.
    """
    options = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    assert_not_negative(**{k: v for k, v in options.items() if k in _NOT_NEGATIVE})
    for i, beta in enumerate(options.get("betas", ())):
        if not 0.0 <= float(beta) < 1.0:
            raise InvalidArgument(f"Invalid beta parameter at index {i}: {beta}")
    if options.get("fused"):  # what PyTorch refuses, though here one implementation does all
        if options["differentiable"]:
            raise InvalidArgument("`fused` does not support `differentiable`; choose one")
        if options["foreach"]:
            raise InvalidArgument("`fused` and `foreach` cannot be `True` together; choose one")
    return options


def assert_not_negative(**options: Any) -> None:
    """Refuse a learning rate, epsilon, weight decay, ... below zero, or one that is text (as YAML
    reads 1e-3) or no number otherwise.
    """
    names = {"lr": "learning rate", "eps": "epsilon value"}
    for name, value in options.items():
        wrong = value is None or isinstance(value, (list, tuple, dict))
        if isinstance(value, str) or (wrong and name == "lr"):
            raise InvalidType(f"{name}: expected a number, got {value!r}; give float(...) of it")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise InvalidArgument(
                f"Tensor {name} must be 1-element, got one of shape {tuple(value.shape)}"
            )
        if isinstance(value, (int, float, Tensor)) and not value >= 0:
            raise InvalidArgument(
                f"Invalid {names.get(name, f'{name} value')}: {value}; {name} must be at least 0"
            )


def as_float(value: Any) -> float:
    """A number, also out of a tensor (a learning rate may be one); one that a kernel, or a program,
    is told with each step stays that.
    """
    return value if type(value) in (SymbolicFloat, SymbolicNumber) else float(value)
