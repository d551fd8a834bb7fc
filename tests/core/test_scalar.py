"""Numbers with which computations are written down before they are known."""

import math
import operator

import pytest

from adjoint.core.errors import InvalidType, Unsupported
from adjoint.core.scalar import Arithmetic, Scalar

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("function", OPERATORS)
def test_arithmetic_is_done_again_with_other_numbers(function):
    arithmetic = Arithmetic()
    a, b = arithmetic.scalar(2.0), arithmetic.scalar(3)
    results = [function(a, b), function(a, 0.5), function(0.5, b), -a, +b, abs(-a)]
    assert all(type(x) is Scalar and isinstance(x, float) for x in results)
    run = arithmetic.function([*results, 7.0])
    for x, y in ((2.0, 3), (0.25, 7.0), (5, 0.5)):
        expected = (function(x, y), function(x, 0.5), function(0.5, y), -x, y, abs(x), 7.0)
        assert run(x, y) == expected


def test_the_sign_of_zero_survives():
    arithmetic = Arithmetic()
    x = -arithmetic.scalar(1.0)
    assert math.copysign(1, arithmetic.function([x])(0.0)[0]) == -1


@pytest.mark.parametrize(
    ("decide", "others", "same"),
    [
        (lambda x: x > 1, [3.0, 1.5], [True, True]),
        (lambda x: x == 2, [2, 2.5], [True, False]),
        (lambda x: x != 2, [2, 2.5], [True, False]),
        (lambda x: bool(x), [0.0, -1.0], [False, True]),
        (lambda x: 1 <= x < 3, [2.9, 3.0], [True, False]),
        (lambda x: bool(x - 2), [2.0, 1.0], [True, False]),
    ],
)
def test_decisions_must_come_out_the_same(decide, others, same):
    arithmetic = Arithmetic()
    assert decide(arithmetic.scalar(2.0)) == decide(2.0)
    assert [arithmetic.function([])(x) is not None for x in others] == same


def test_errors_of_other_numbers_are_a_difference():
    arithmetic = Arithmetic()
    x = 1 / arithmetic.scalar(2.0)
    run = arithmetic.function([x])
    assert run(4.0) == (0.25,)
    assert run(0.0) is None
    assert Arithmetic().function([])() == ()


@pytest.mark.parametrize("function", [float, int, round, math.floor, lambda x: x % 2, float.hex])
def test_its_value_is_not_there_to_be_read(function):
    x = Arithmetic().scalar(2.0)
    if function is float.hex:
        assert function(x) == "nan"  # what asks the float itself gets no number
    else:
        with pytest.raises(Unsupported, match="not known yet"):
            function(x)
    assert math.isnan(math.sqrt(x))


def test_two_computations_do_not_mix():
    with pytest.raises(Unsupported, match="two computations"):
        Arithmetic().scalar(1.0) + Arithmetic().scalar(1.0)


def test_scalars_are_told_apart():
    arithmetic = Arithmetic()
    x, y = arithmetic.scalar(1.0), arithmetic.scalar(1.0)
    with pytest.raises(InvalidType, match="table"):  # it would miss what is there for its value
        hash(x)
    assert repr(y) == "<number 1>"
    with pytest.raises(TypeError):
        x + "text"
