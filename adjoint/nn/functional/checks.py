"""Checks of arguments. Those of values come at once, or, in a function that is being captured, at
each of its runs.
"""

from __future__ import annotations

from ...core.errors import DTypeError
from ...core.tensor_type import Tensor


def as_indices(x: Tensor, name: str, what: str) -> Tensor:
    """Classes or row numbers, of any integer dtype, as int64.

    Errors: DTypeError for numbers of another kind, which would be cut to integers.
    """
    kind = x.dtype
    if kind.is_floating_point or kind.is_complex or kind.name == "bool":
        raise DTypeError(
            f"{name}: expected {what} dtype to be Long or Byte, but got {kind}; classes and rows "
            f"are integers: make it with an integer dtype, or convert it with .long()"
        )
    return x.long()
