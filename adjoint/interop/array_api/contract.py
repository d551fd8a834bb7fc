"""Decorators of the namespace's functions: checked, promoted operands; documentation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .data_types import Array, assert_kind, checked, is_array, operands

Function = Callable[..., Any]
SPECIFICATION = "https://data-apis.org/array-api/2024.12/API_specification/generated/array_api."


def unary(kinds: frozenset[str], own: Function | None = None) -> Callable[[Function], Any]:
    """Declare a function of one array, whose dtype must be of one of `kinds`; `own`, where given,
    computes it.
    """

    def declare(function: Function) -> Any:
        name, compute = function.__name__, own or function

        @functools.wraps(function)
        def checking(x: Array, /) -> Array:
            return compute(checked(name, x, kinds))

        return documented(checking, kinds)

    return declare


def binary(kinds: frozenset[str], own: Function | None = None) -> Callable[[Function], Any]:
    """Declare a function of two arrays (one may be a Python scalar), which are promoted to a dtype
    of one of `kinds`; `own`, where given, computes it.
    """

    def declare(function: Function) -> Any:
        name, compute = function.__name__, own or function

        @functools.wraps(function)
        def promoting(x1: Any, x2: Any, /) -> Array:
            if is_array(x1) and is_array(x2) and (dtype := x1.dtype) is x2.dtype:
                assert_kind(name, dtype, kinds)
                return compute(x1, x2)
            return compute(*operands(name, kinds, x1, x2))

        return documented(promoting, kinds)

    return declare


def documented(function: Function, kinds: frozenset[str]) -> Function:
    """Complete a docstring: the dtypes that the function takes, and its page in the standard."""
    summary, _, rest = (function.__doc__ or "").partition("\n\n")
    facts = (
        f"    Dtypes: {', '.join(sorted(kinds))}.\n"
        "    Errors: DTypeError for another dtype, or where two do not promote.\n"
        f"    Source: {SPECIFICATION}{function.__name__}.html\n"
    )
    function.__doc__ = f"{summary}\n\n{facts}\n{rest}"
    return function
