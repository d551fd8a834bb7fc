"""Tensors that the function compares by identity: refused where they come with the call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import adjoint as ad
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
A, B, C = ad.ones(3), ad.ones(3), ad.ones(3)
STATE = SimpleNamespace(a=A)
TABLE = {A: 2.0, B: 3.0}
COMPARED: dict[str, Callable[[Any], Any]] = {
    "is": lambda x: x * (2 if x is STATE.a else 3),
    "is not": lambda x: x * (2 if x is not STATE.a else 3),
    "id": lambda x: x * (2 if id(x) == id(STATE.a) else 3),
    "key": lambda x: x * TABLE[x],
    "get": lambda x: x * TABLE.get(x, 5.0),
    "in a dict": lambda x: x * (2 if x in TABLE else 3),
    "in a set": lambda x: x * (2 if x in {STATE.a} else 3),
    "one by one": lambda x: x * (2 if any(x is each for each in TABLE) else 3),
}


@pytest.mark.parametrize("name", COMPARED)
def test_an_argument_that_is_reached_in_another_way_is_refused(name: str) -> None:
    """Before or after others; a tensor of its own is as eagerly."""
    function = COMPARED[name]
    step = ad.compile(lambda x: function(x))
    for _ in range(2):
        with pytest.raises(Unsupported, match="by identity"):
            step(A)
        if name != "key":
            assert step(C).tolist() == function(C).tolist()
            assert step(C + 1).tolist() == function(C + 1).tolist()


@pytest.mark.parametrize("name", ["is", "get"])
def test_it_runs_eagerly_where_the_user_wants_that(name: str) -> None:
    function = COMPARED[name]
    step = ad.compile(lambda x: function(x), fallback="eager")
    assert step(C).tolist() == function(C).tolist()
    with pytest.warns(UserWarning, match="by identity"):
        assert step(A).tolist() == function(A).tolist()
    assert step(C).tolist() == function(C).tolist()


def test_attributes_that_others_set() -> None:
    """They are inputs from their second tensor on, and may come to be the same one."""
    state = SimpleNamespace(a=A, b=A)

    def function(x: Any) -> Any:
        return x * (2 if state.a is state.b else 3)

    step = ad.compile(function)
    for state.b in (A, B, A, C, A, B):
        assert step(C).tolist() == function(C).tolist()


def test_what_compares_with_constants_takes_any_tensor() -> None:
    def function(x: Any, y: Any = None) -> Any:
        return x * STATE.a if y is None else x * STATE.a + y

    step = ad.compile(function)
    for x, y in ((A, None), (B, A), (A, A)):
        assert step(x, y).tolist() == function(x, y).tolist()
