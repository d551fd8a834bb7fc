"""Export of each primitive as ONNX nodes: one function each, in `TABLE` by the op's name.

A function takes the exporter, the value, and the inputs of its op (values and numbers); it returns
the name of the result, or a tuple of names for an op with several outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Lower = Callable[..., Any]
TABLE: dict[str, Lower] = {}


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Enter a function for the ops called `names`."""

    def enter(function: Lower) -> Lower:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def ints(values: Sequence[int]) -> Any:
    """Ints as the one-dimensional tensor that ONNX takes for axes and sizes."""
    return np.array(values, np.int64).reshape(-1)
