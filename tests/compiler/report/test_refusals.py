"""After a refusal `explain()` lists all others of the function, each with its line and remedy."""

from __future__ import annotations

import contextvars
import functools
import io
import itertools
import logging
import operator
import os
import random
import re
import time
import types
import warnings

import pytest

import adjoint as ad
from adjoint.compiler.report.refusals import refusals
from adjoint.core.errors import Unsupported

steps, written = itertools.count(), io.StringIO()
held, scaled = types.SimpleNamespace(steps=iter([1.0])), types.SimpleNamespace(scale=2.0)
variable, log = contextvars.ContextVar("variable", default=2.0), logging.getLogger("refusals")
getter, table = operator.attrgetter("scale"), {"scale": 2.0}.items()


def helper(x):
    return x * random.random()


class Counted(ad.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = itertools.count(1)
        self.layer = ad.nn.Linear(2, 2)

    @property
    def seconds(self):
        return time.perf_counter()

    def forward(self, x):
        y = self.layer(x) * self.seconds
        if y.sum().item() > 0:
            written.write("positive")
        return y * next(self.steps)


def step(x, model):
    print("step")
    read = os.getenv
    read("HOME")
    return helper(model(x)) * next(steps) * next(each() for each in [lambda: next(held.steps)])


TOLD = {  # texts, and the functions in which they are
    r"print\(\)": "step", r"os\.getenv\(\)": "step", r"random\.Random\.random\(\)": "helper",
    "held.steps, of the type list_iterator": "<lambda>", "steps, of the type count": "step",
}  # fmt: skip
IN_MODULE = {
    r"time\.perf_counter\(\)": "seconds", r"the values of a tensor, by \.item\(\)": "forward",
    "written, of the type StringIO": "forward", r"StringIO\.write\(\)": "forward",
    "self.steps, of the type count": "forward",
}  # fmt: skip


def assert_told(texts, told):
    for text, function in told.items():
        matching = [each for each in texts if re.search(text, each)]
        assert matching, f"{text} is not among {texts}"
        assert re.search(
            rf"\(\S+test_refusals\.py:\d+, in {re.escape(function)}\); \w", matching[0]
        )


def test_all_refusals_are_found_with_line_and_remedy():
    assert_told(refusals(step), TOLD)
    assert_told(refusals(Counted()), IN_MODULE)
    assert_told(refusals(ad.nn.Sequential(ad.nn.Tanh(), Counted())), IN_MODULE)
    model = Counted()
    assert_told(refusals(lambda x: step(model(x), model)), {**TOLD, **IN_MODULE})


@pytest.mark.parametrize("fallback", ["error", "eager"])
def test_explain_lists_what_comes_after_the_first_refusal(fallback, capsys):
    model = Counted()
    compiled = ad.compile(lambda x: step(x, model), fallback=fallback)
    with warnings.catch_warnings(), pytest.raises(Unsupported) as caught:
        warnings.simplefilter("ignore")
        compiled.explain(ad.ones(2))
    first, *others = str(caught.value).splitlines()
    assert "it" in first and others[0] == "Its code would be refused for this, too:"
    place = first[first.index("(/") : first.index(")", first.index(", in "))]
    assert not any(place in each for each in others)  # what has been said is not repeated
    assert len(others) >= len(TOLD) + len(IN_MODULE)  # without the first, below a heading
    assert_told(others, IN_MODULE)
    assert capsys.readouterr().out == ("step\n" if fallback == "eager" else "")


def test_one_refusal_is_told_as_it_is():
    with pytest.raises(Unsupported) as caught:
        ad.compile(lambda x: x * next(steps)).explain(ad.ones(2))
    assert "\n" not in str(caught.value)


@functools.lru_cache
def cached(n):
    return n * variable.get()


def test_what_compiles_has_no_refusals():
    def f(x):
        warnings.warn("step", stacklevel=2)
        if log.isEnabledFor(10):
            x = x * 3
        y = x * sum(value for _, value in table) * getter(scaled) * cached(2)
        return y * len([*map(float, itertools.chain([1.0], [2.0]))])

    assert refusals(f) == []
    with pytest.warns(UserWarning, match="step"):
        assert ad.compile(f)(ad.ones(1)).item() == 2 * 2 * 4 * 2


@pytest.mark.parametrize("read", [
    lambda x: x * next(steps), lambda x: next(x * n for n in itertools.islice(steps, 1)),
    lambda x: x * next(held.steps), lambda x: x * [held][0].steps.__next__(),
])  # fmt: skip
def test_a_refusal_of_an_iterator_names_the_users_line(read):
    with pytest.raises(Unsupported, match=r"an iterator .*test_refusals\.py:\d+, in "):
        ad.compile(read)(ad.ones(1))


def test_an_iterator_among_the_arguments_is_refused_at_the_function():
    def f(x, numbers):
        return x * next(numbers)

    line = f.__code__.co_firstlineno
    with pytest.raises(Unsupported, match=rf"an iterator .*test_refusals\.py:{line}, in f"):
        ad.compile(f)(ad.ones(1), iter([1.0]))


@pytest.mark.parametrize(("f", "warned"), [
    (lambda x, i: x[i] * 2, 0), (lambda x, i: x * list(range(30))[i], 1),
    (lambda x, i: x.narrow(0, i, 2), 0),
])  # fmt: skip
def test_an_index_that_differs_in_each_call_is_never_an_error(f, warned):
    x, indexed = ad.arange(30.0), ad.compile(f)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for i in range(20):
            assert indexed(x, i).tolist() == f(x, i).tolist()
    assert sum("other calls run eagerly" in str(each.message) for each in given) == warned
