"""Every special case that the standard lists for an elementwise function, on a grid of values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from .special_cases import BINARY, COMPLEX, CONDITIONS, UNARY, VALUES

PAIRS = list(itertools.product(VALUES, VALUES))

# Where the other two differ from the standard themselves.
DIFFERENT = {("numpy", "expm1"), ("numpy", "sign"), ("array_api_strict", "expm1")}


def nearest(value):
    return value if not math.isfinite(value) or value == 0 else math.copysign(round(value), value)


def evaluate(expression, names):
    """The value of a result's expression, with the sign that zeros have."""
    expression = expression.strip()
    if expression in ("inf", "+inf"):
        return math.inf
    if expression.startswith("nan"):
        return -math.nan if expression.endswith("1") else math.nan
    if expression == "-0":
        return -0.0
    known = {"pi": math.pi, "inf": math.inf, "cos": math.cos, "sin": math.sin, "abs": abs,
             "max": max, "min": min, "round": round, "nearest": nearest}  # fmt: skip
    return eval(expression, {"__builtins__": {}}, known | names)  # from our own table


def agrees(actual, expected, names, tolerance):
    """Whether a value is one of those that a result names."""
    for each in expected.split("|"):
        any_sign = each.strip().endswith("?")
        wanted = evaluate(each.replace("?", ""), names)
        if isinstance(wanted, bool):
            if actual is wanted:
                return True
        elif math.isnan(wanted):
            signed = "sign bit" not in each or math.copysign(1, actual) == math.copysign(1, wanted)
            if math.isnan(actual) and signed:
                return True
        elif any_sign:
            if math.isclose(abs(actual), abs(wanted), rel_tol=tolerance):
                return True
        elif math.isclose(actual, wanted, rel_tol=tolerance) and (
            math.copysign(1, actual) == math.copysign(1, wanted)
        ):
            return True
    return False


def holds(conditions, values):
    return all(
        CONDITIONS[condition](value) for condition, value in zip(conditions, values, strict=True)
    )


def failures(cases, inputs, outputs, tolerance):
    """What a function should have given and did not; an error where a case has no input."""
    found = []
    for *conditions, expected in cases:
        matching = [i for i, values in enumerate(inputs) if holds(conditions, values)]
        assert matching, f"no value fits {conditions}"
        for i in matching:
            names = {f"x{k + 1}": value for k, value in enumerate(inputs[i])}
            if not agrees(outputs[i], expected, names, tolerance):
                found.append(f"{conditions}: {inputs[i]} gave {outputs[i]}, not {expected}")
    return found


def values_of(x):
    """The elements as Python values."""
    return np.asarray(x).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_real_functions_of_one_array(xp, name, dtype):
    x = xp.asarray(VALUES, dtype=getattr(xp, dtype))
    outputs = values_of(getattr(xp, name)(x))
    assert not failures(UNARY[name], [(v,) for v in VALUES], outputs, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(BINARY))
def test_real_functions_of_two_arrays(xp, name, dtype):
    x1 = xp.asarray([pair[0] for pair in PAIRS], dtype=getattr(xp, dtype))
    x2 = xp.asarray([pair[1] for pair in PAIRS], dtype=getattr(xp, dtype))
    outputs = values_of(getattr(xp, name)(x1, x2))
    assert not failures(BINARY[name], PAIRS, outputs, 1e-6)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", sorted(COMPLEX))
def test_complex_functions(xp, name, dtype, request):
    if (xp.__name__, name) in DIFFERENT:
        reason = f"{xp.__name__}'s {name} of complex numbers"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    x = xp.asarray([complex(a, b) for a, b in PAIRS], dtype=getattr(xp, dtype))
    result = getattr(xp, name)(x)
    found = []
    is_complex = COMPLEX[name][0][3] is not None
    parts = [xp.real(result), xp.imag(result)] if is_complex else [result]
    for part, column in zip(parts, (2, 3), strict=False):
        outputs = values_of(part)
        for a, b, *expected in COMPLEX[name]:
            wanted = expected[column - 2]
            for i, (real, imaginary) in enumerate(PAIRS):
                if holds((a, b), (real, imaginary)):
                    names = {"a": real, "b": imaginary}
                    if not agrees(outputs[i], wanted, names, 1e-5):
                        found.append(f"{real}, {imaginary}: {outputs[i]}, not {wanted}")
    assert not found
