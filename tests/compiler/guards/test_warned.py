"""Warnings of compiled functions: each call gives those that the function would give."""

from __future__ import annotations

import warnings
from warnings import warn

import pytest

import adjoint as ad
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native


def deep():
    warnings.warn("deep", DeprecationWarning, stacklevel=2)


def warning(x):
    warnings.warn("here", stacklevel=1)
    warnings.warn("the caller", stacklevel=2)
    warnings.warn(FutureWarning("above the caller"), stacklevel=3)
    deep()
    return x * 2


def called(function):
    return function(ad.ones(2)).tolist()


def heard(function, action):
    """What three calls from one line, and one from another, warn of, and where."""
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        for _ in range(3):
            assert called(function) == [2.0, 2.0]
        function(ad.ones(2))
    return [(str(each.message), each.category, each.lineno) for each in found]


@pytest.mark.parametrize("action", ["always", "default", "once", "module", "ignore"])
def test_each_call_warns_as_the_function_would(action):
    def names(found):
        return [(text, kind) for text, kind, _ in found]

    expected, found = heard(warning, action), heard(ad.compile(warning), action)
    assert names(found) == names(expected)
    within = [each for each in expected if each[0] in ("here", "deep", "the caller")]
    assert [each for each in found if each[0] in ("here", "deep", "the caller")] == within


def test_a_warning_that_a_filter_makes_an_error_is_one_in_each_call():
    compiled = ad.compile(warning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(ad.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(UserWarning, match="here"):
                compiled(ad.ones(2))


def test_a_warning_by_another_function_of_c_is_found():
    compiled = ad.compile(lambda x: list(map(warnings.warn, ["said"])) and x * 2)
    for _ in range(2):
        with pytest.warns(UserWarning, match="said"):
            compiled(ad.ones(2))


def test_what_cannot_be_given_again_is_refused():
    with pytest.raises(Unsupported, match=r"warn.*call warnings\.warn"):
        ad.compile(lambda x: warn("said", stacklevel=1) or x)(ad.ones(2))
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(lambda x: warnings.warn(f"{x.sum()}", stacklevel=1) or x)(ad.ones(2))
    with pytest.raises(TypeError, match="category must be"):
        ad.compile(lambda x: warnings.warn("said", "no class", 1) or x)(ad.ones(2))
