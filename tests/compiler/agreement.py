"""Whether a compiled function does what the eager one does: results, gradients, states, errors."""

from __future__ import annotations

from typing import Any

import numpy as np

import adjoint as ad
from adjoint.core.errors import Unsupported


def tensors_in(value: Any) -> list[Any]:
    """The tensors of a nested value, in order."""
    if isinstance(value, ad.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for each in value for x in tensors_in(each)]
    return []


def widened(x: Any) -> Any:
    """A tensor's values in a dtype of NumPy's own that holds each of them."""
    array = x.detach().numpy()
    return (
        array.astype(np.float64) if array.dtype.kind == "V" or array.dtype.itemsize < 4 else array
    )


def assert_equal(found: Any, expected: Any, tolerance: float = 0.0, what: str = "") -> None:
    """The same structure, shapes, dtypes and wishes for gradients; each value differs at most by
    `tolerance` of the largest finite one of its tensor, and not at all where that is zero.
    """
    assert type(found) is type(expected), f"{what}: {type(found)} for {type(expected)}"
    if isinstance(expected, dict):
        assert list(found) == list(expected), what
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), what
        for n, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_equal(a, b, tolerance, f"{what}[{n}]")
        return
    if not isinstance(expected, ad.Tensor):
        assert found == expected or (found != found and expected != expected), (
            f"{what}: {found!r} for {expected!r}"
        )
        return
    assert found.shape == expected.shape, f"{what}: {found.shape} for {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: {found.dtype} for {expected.dtype}"
    assert found.requires_grad == expected.requires_grad, (
        f"{what}: requires_grad is {found.requires_grad}"
    )
    a, b = widened(found), widened(expected)
    scale = np.abs(b).max(initial=0, where=np.isfinite(b)) if tolerance and b.size else 0
    np.testing.assert_allclose(
        a, b, rtol=0, atol=tolerance * float(scale), equal_nan=True, err_msg=what
    )


def error_of(call: Any, *args: Any) -> tuple[Any, Any]:
    """What a call gives, and the error that it raises: one of both."""
    try:
        return call(*args), None
    except Exception as error:  # each kind is to be the same
        return None, error


def assert_same_error(found: Any, expected: Any, what: str = "") -> None:
    """Both raise the same, or neither does; of what is not supported the user's line is said.

    In a compiled function the op of a backward fails by itself: no "grad: " stands before it.
    """
    if (found is None) != (expected is None):
        raise AssertionError(f"{what}: {found!r} for {expected!r}") from found or expected
    assert type(found) is type(expected), f"{what}: {found!r} for {expected!r}"
    told, wanted = (str(error).removeprefix("grad: ") for error in (found, expected))
    if isinstance(expected, Unsupported):
        told = told.removeprefix("compile: ")[: len(wanted)]
    assert told == wanted, f"{what}: {found} for {expected}"
