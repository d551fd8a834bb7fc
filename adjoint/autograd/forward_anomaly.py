"""The first NaN of a forward pass: an executor that looks at the result of each operation."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from ..core.errors import AutogradError
from ..core.mode import MODE, mode_with
from ..core.op import Op
from ..core.package import FOLDER
from ..core.tensor_base import TensorBase
from ..runtime.dispatch import execute
from .engine import is_walking

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor

__all__ = ["execute_without_nan"]


def execute_without_nan(op: Op, inputs: tuple[object, ...]) -> object:
    """The result of an operation.

    Errors: AutogradError that names operation, line and inputs where NaN is in the result; not in
    a backward, which names the function whose gradient it is.
    """
    result = execute(op, inputs)
    if is_walking():
        return result
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, executor=None, anomaly=False, grad=False))
        if any(map(_has_nan, result if type(result) is tuple else (result,))):
            raise AutogradError(
                f"{op.name}: its result has NaN, the first one in this block{_line()}; "
                f"{'; '.join(_described(inputs)) or 'it has no inputs'}"
            )
    finally:
        MODE.set(mode)
    return result


def _has_nan(x: object) -> bool:
    return _is_of_floats(x) and bool(cast("Tensor", x).isnan().any())


def _is_of_floats(x: object) -> bool:
    return isinstance(x, TensorBase) and x.dtype.category >= 2


def _described(inputs: Sequence[object]) -> Iterator[str]:
    """Texts about each input of floats: has it NaN, and its range."""
    for n, x in enumerate(inputs):
        if not _is_of_floats(x):
            continue
        y = cast("Tensor", x).detach()
        shape = tuple(y.shape)
        if _has_nan(y):
            yield f"input {n} {shape} has NaN itself, and was made outside of the block"
        elif y.dtype.category == 2 and 0 not in shape:
            yield f"input {n} {shape} has none: from {y.min().item():g} to {y.max().item():g}"
        else:
            yield f"input {n} {shape} has none"


def _line() -> str:
    """The user's line that runs, in brackets."""
    users = [each for each in traceback.extract_stack() if not each.filename.startswith(FOLDER)]
    if not users:
        return ""
    last = users[-1]
    return f" ({last.filename}:{last.lineno}, in {last.name}: {last.line})"
