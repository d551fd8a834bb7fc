"""Numbers with which computations are written down before they are known."""

import math
import operator

import numpy as np
import pytest

from adjoint.core.errors import InvalidType, Unsupported
from adjoint.core.symbolic_scalar import ScalarGraph, SymbolicFloat, is_lost
from adjoint.core.symbolic_sizes import KernelGraph, ask, largest, least, most, step

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("function", OPERATORS)
def test_arithmetic_is_done_again_with_other_numbers(function):
    arithmetic = ScalarGraph()
    a, b = arithmetic.scalar(2.0), arithmetic.scalar(3)
    results = [function(a, b), function(a, 0.5), function(0.5, b), -a, +b, abs(-a)]
    assert all(type(x) is SymbolicFloat and isinstance(x, float) for x in results)
    run = arithmetic.function([*results, 7.0])
    for x, y in ((2.0, 3), (0.25, 7.0), (5, 0.5)):
        expected = (function(x, y), function(x, 0.5), function(0.5, y), -x, y, abs(x), 7.0)
        assert run(x, y) == expected


def test_the_sign_of_zero_survives():
    arithmetic = ScalarGraph()
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
    arithmetic = ScalarGraph()
    assert decide(arithmetic.scalar(2.0)) == decide(2.0)
    assert [arithmetic.function([])(x) is not None for x in others] == same


def test_errors_of_other_numbers_are_a_difference():
    arithmetic = ScalarGraph()
    x = 1 / arithmetic.scalar(2.0)
    run = arithmetic.function([x])
    assert run(4.0) == (0.25,)
    assert run(0.0) is None
    assert ScalarGraph().function([])() == ()


@pytest.mark.parametrize("function", [float, int, round, math.floor, lambda x: x % 2, float.hex])
def test_its_value_is_not_there_to_be_read(function):
    x = ScalarGraph().scalar(2.0)
    if function is float.hex:
        assert function(x) == "nan"  # what asks the float itself gets no number
    else:
        with pytest.raises(Unsupported, match="not known yet"):
            function(x)
    assert math.isnan(math.sqrt(x))


def test_two_computations_do_not_mix():
    with pytest.raises(Unsupported, match="two computations"):
        ScalarGraph().scalar(1.0) + ScalarGraph().scalar(1.0)


def test_scalars_are_told_apart():
    arithmetic = ScalarGraph()
    x, y = arithmetic.scalar(1.0), arithmetic.scalar(1.0)
    with pytest.raises(InvalidType, match="table"):  # it would miss what is there for its value
        hash(x)
    assert repr(y) == "<number 1>"
    with pytest.raises(TypeError):
        x + "text"


def test_what_nothing_asks_for_is_not_computed() -> None:
    arithmetic = ScalarGraph()
    x = arithmetic.scalar(4.0)
    _ = 1 / x
    run = arithmetic.function([x + 1])
    assert run(0.0) == (1.0,)


def test_early_results_come_with_what_computes_the_late_ones() -> None:
    graph = KernelGraph()
    scale = graph.scalar(0.5)
    rows, columns = graph.sizes((4, 8))
    assert rows != columns
    run = graph.function([scale * rows], 1, [rows * columns, step(operator.ge, rows, 5)])
    (size, many), values = run(6, 7)
    assert (size, many, values(0.25)) == (42, True, (1.5,))
    assert run(7, 7) is None


def test_bounds_of_sizes_are_no_decisions() -> None:
    graph = KernelGraph()
    (n,) = graph.sizes((10,))
    run = graph.function([least(n, 16), most(n, 16)])
    assert run(10) == (10, 16) and run(20) == (16, 20)
    assert least(3, 4) == 3 and most(3, 4) == 4


def test_a_float_of_a_size_that_is_taken_for_known_is_found() -> None:
    graph = KernelGraph()
    (n,) = graph.sizes((10,))
    assert is_lost(math.sqrt(n / 2)) and is_lost(float(np.float32(math.sqrt(n / 2))))
    assert not is_lost(math.nan) and not is_lost(math.inf - math.inf) and not is_lost(1.0)


def test_the_largest_of_sizes_is_a_guard_for_each():
    graph = KernelGraph()
    n = graph.scalar(6)
    assert largest([4, n, n * 2, 12]) == 2  # the first of equal ones
    run = graph.function([n])
    assert run(7) == (7,)
    assert run(5) is None  # 12 is larger than 10
    assert largest([3, 7, 7]) == 1


def test_a_question_about_shapes_is_asked_again_for_others():
    graph = KernelGraph()
    n = graph.scalar(6)
    asked = []

    def question(shapes):
        asked.append(shapes)
        return shapes[1][0] > 4

    assert ask(question, [(), (n, 3), (2,)])
    assert not ask(question, [(9,), (n - 2,)])
    run = graph.function([n])
    assert asked == [[(), (6, 3), (2,)], [(9,), (4,)]]
    assert run(5) == (5,)
    assert asked[2:] == [[(), (5, 3), (2,)], [(9,), (3,)]]
    assert run(4) is None
    assert run(7) is None
    assert ask(question, [(), (5,)]) and not ask(question, [(), (4,)])
