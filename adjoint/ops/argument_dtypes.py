"""Refusal of arguments by their dtypes, before a function would change their values."""

from __future__ import annotations

from typing import Any

from ..core.errors import DTypeError
from ..core.tensor_base import TensorBase
from .elementwise.pointwise import kind_of

__all__ = [
    "FLOATING", "INTEGERS", "NUMBERS", "REALS", "REAL_NUMBERS", "assert_dtypes",
    "assert_equal_dtypes",
]  # fmt: skip

# Kinds of dtypes by their letters (`kind_of`).
FLOATING = "f"
INTEGERS = "iu"
REALS = "biuf"
REAL_NUMBERS = "iuf"
NUMBERS = "iufc"
_NAMES = {FLOATING: "floating-point numbers", INTEGERS: "integers", REALS: "real numbers",
          REAL_NUMBERS: "real numbers", NUMBERS: "numbers"}  # fmt: skip
_REMEDIES = {FLOATING: ".float()", INTEGERS: ".long()", REAL_NUMBERS: ".int()", NUMBERS: ".int()"}


def assert_dtypes(name: str, kinds: str, **arguments: Any) -> None:
    """Refuse tensors among the arguments of a function whose dtypes are not of `kinds`; what is no
    tensor passes.
    """
    for argument, x in arguments.items():
        if isinstance(x, TensorBase) and (kind := kind_of(x.dtype)) not in kinds:
            remedy = f"convert it with {_REMEDIES.get(kinds)}"  # those of REALS refuse "c" only
            if kind == "c":
                remedy = "use its real or imaginary part, or abs()"
            raise DTypeError(
                f'{name}: "{name}" not implemented for {x.dtype}: argument {argument!r} holds '
                f"{_NAMES[kinds]}; {remedy}"
            )


def assert_equal_dtypes(name: str, like: Any, **arguments: Any) -> None:
    """Refuse tensors among the arguments of a function whose dtypes are not that of `like`."""
    for argument, x in arguments.items():
        if isinstance(x, TensorBase) and x.dtype is not like.dtype:
            raise DTypeError(
                f"{name}: {name}(): Expected self.dtype to be equal to {argument}.dtype, got "
                f"{like.dtype} and {x.dtype}; convert one with .to()"
            )
