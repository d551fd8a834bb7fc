"""`assert_close`: values, shapes and dtypes, with PyTorch's tolerances and messages."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import config
from ...core.device import host_array
from ...core.dtype import from_numpy_dtype
from ...core.errors import InvalidArgument, InvalidType
from ...ops.create.memory import as_tensor
from ...runtime.lazy import concrete
from ...tensor import Tensor

_TOLERANCES = {  # dtype -> (relative, absolute); all others compare exactly
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}

Message = str | Callable[[str], str] | None


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless `actual` equals `expected` up to rounding.

    Compared are tensors, arrays, numbers, None, and sequences and mappings of these:
    |actual - expected| <= atol + rtol |expected|, by default with tolerances for the dtype.
    A tensor is not compared with an array.

    Errors: AssertionError naming the mismatch and where it is; InvalidType for what cannot be
    compared; InvalidArgument for only one of `rtol` and `atol`.
    Source: https://docs.pytorch.org/docs/stable/testing.html#torch.testing.assert_close

    >>> ad.testing.assert_close(ad.tensor([0.1]) + 0.2, ad.tensor([0.3]))
    >>> ad.testing.assert_close(ad.tensor([1, 2]), ad.tensor([1, 3]))
    Traceback (most recent call last):
    AssertionError: Tensor-likes are not equal!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 1 at index (1,)
    Greatest relative difference: 0.3333333333333333 at index (1,)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise InvalidArgument(
            f"assert_close: Both 'rtol' and 'atol' must be either specified or omitted, but got no "
            f"{missing}."
        )
    comparison = _Comparison(
        rtol, atol, equal_nan, allow_subclasses, check_device, check_dtype, check_stride
    )
    failure = comparison.failure(actual, expected, "")
    if failure is not None:
        text = failure if msg is None else msg(failure) if callable(msg) else msg
        raise AssertionError(text)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` without looking at dtypes and devices, NaNs being equal.

    Source: https://docs.pytorch.org/docs/stable/testing.html#torch.testing.assert_allclose

    >>> ad.testing.assert_allclose(ad.tensor([1.0]), ad.tensor([1.0], dtype=ad.float64))
    """
    assert_close(
        as_tensor(actual),
        as_tensor(expected),
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=False,
        check_dtype=False,
        msg=msg or None,
    )


@dataclass(eq=False)
class _Comparison:
    """The options of one `assert_close`."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    allow_subclasses: bool
    check_device: bool
    check_dtype: bool
    check_stride: bool

    def failure(self, actual: Any, expected: Any, place: str) -> str | None:
        """Description of the difference, or None."""
        if _is_array(actual) and _is_array(expected) and _are_related(actual, expected):
            found = self._tensors(actual, expected)
        elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
            return self._mappings(actual, expected, place)
        elif _is_sequence(actual) and _is_sequence(expected):
            return self._sequences(actual, expected, place)
        elif isinstance(actual, (bool, np.bool_)) and isinstance(expected, (bool, np.bool_)):
            found = None if actual == expected else f"Booleans mismatch: {actual} is not {expected}"
        elif _is_number(actual) and _is_number(expected):
            found = self._numbers(actual, expected)
        elif actual is None or expected is None:
            same = actual is expected
            found = None if same else f"None mismatch: {actual} is not {expected}"
        else:
            raise InvalidType(
                f"assert_close: No comparison pair was able to handle inputs of type "
                f"{type(actual)} and {type(expected)}." + (f" (item {place})" if place else "")
            )
        return f"{found}\n\nThe failure occurred for item {place}" if found and place else found

    def tolerances(self, *names: str) -> tuple[float, float]:
        """(relative, absolute) for values of these dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [_TOLERANCES.get(name, (0.0, 0.0)) for name in names]
        return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)

    def _mappings(
        self, actual: Mapping[Any, Any], expected: Mapping[Any, Any], place: str
    ) -> str | None:
        missing = sorted((key for key in expected if key not in actual), key=str)
        additional = sorted((key for key in actual if key not in expected), key=str)
        if missing or additional:
            return (
                f"The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {additional}"
            )
        for key in expected:
            found = self.failure(actual[key], expected[key], f"{place}[{key!r}]")
            if found is not None:
                return found
        return None

    def _sequences(self, actual: Sequence[Any], expected: Sequence[Any], place: str) -> str | None:
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            found = self.failure(a, e, f"{place}[{i}]")
            if found is not None:
                return found
        return None

    def _numbers(self, actual: Any, expected: Any) -> str | None:
        if self.check_dtype and type(actual) is not type(expected):
            return f"The (d)types do not match: {type(actual)} != {type(expected)}."
        names = [
            {int: "int64", float: "float64", complex: "complex128"}[type(v)]
            for v in (actual, expected)
        ]
        rtol, atol = self.tolerances(*names)
        if actual == expected or (self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
            return None
        absolute = abs(actual - expected)
        relative = float("inf") if expected == 0 else absolute / abs(expected)
        if cmath.isfinite(absolute) and absolute <= atol + rtol * abs(expected):
            return None
        return _scalar_text(actual, expected, absolute, relative, rtol, atol)

    def _tensors(self, actual: Any, expected: Any) -> str | None:
        if not self.allow_subclasses and type(actual) is not type(expected):
            raise InvalidType(
                f"assert_close: types {type(actual)} and {type(expected)} differ; pass "
                "allow_subclasses=True"
            )
        a, e = _array(actual), _array(expected)
        if a.shape != e.shape:
            return _attribute("shape", _size(a.shape), _size(e.shape))
        both = isinstance(actual, Tensor) and isinstance(expected, Tensor)
        if self.check_device and both and actual.device != expected.device:
            return _attribute("device", actual.device, expected.device)
        dtypes = from_numpy_dtype(a.dtype), from_numpy_dtype(e.dtype)
        if self.check_dtype and dtypes[0] is not dtypes[1]:
            return _attribute("dtype", *dtypes)
        if self.check_stride and both and actual.stride() != expected.stride():
            return _attribute("stride()", actual.stride(), expected.stride())
        rtol, atol = self.tolerances(*(dtype.name for dtype in dtypes))
        return _array_failure(_wide(a), _wide(e), rtol, atol, self.equal_nan)


def _array_failure(a: Any, e: Any, rtol: float, atol: float, equal_nan: bool) -> str | None:
    with np.errstate(all="ignore"):
        close = np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan)
        if close.all():
            return None
        absolute = np.abs(a - e)
        relative = absolute / np.abs(e)
    if not a.ndim:
        return _scalar_text(a.item(), e.item(), absolute.item(), relative.item(), rtol, atol)
    absolute[close] = relative[close] = 0
    exact = rtol == 0 and atol == 0
    wrong = int(close.size - close.sum())

    def greatest(kind: str, difference: Any, allowed: float) -> str:
        index = np.unravel_index(int(np.argmax(difference)), difference.shape)
        suffix = "" if exact else f" (up to {allowed} allowed)"
        place = tuple(int(i) for i in index)
        return f"Greatest {kind} difference: {difference[index].item()} at index {place}{suffix}"

    return (
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {close.size} ({wrong / close.size:.1%})\n"
        f"{greatest('absolute', absolute, atol)}\n{greatest('relative', relative, rtol)}"
    )


def _scalar_text(
    actual: Any, expected: Any, absolute: Any, relative: Any, rtol: float, atol: float
) -> str:
    exact = rtol == 0 and atol == 0
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {absolute}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}"
    )


def _attribute(name: str, actual: Any, expected: Any) -> str:
    return f"The values for attribute '{name}' do not match: {actual} != {expected}."


def _size(shape: tuple[int, ...]) -> str:
    return f"{config.CALLED}.Size({list(shape)})"


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _are_related(actual: object, expected: object) -> bool:
    """Whether one's type is the other's, or derived from it: a tensor is not compared with an
    array.
    """
    return isinstance(actual, type(expected)) or isinstance(expected, type(actual))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def _array(value: Any) -> Any:
    return host_array(concrete(value), {}) if isinstance(value, Tensor) else value


def _wide(array: Any) -> Any:
    """The values in a dtype in which differences can be taken without overflow."""
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
