"""Functions of adjoint that a user replaces, and that adjoint's own code alone calls."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.core import checked_modules as replaced
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
X = ad.arange(6.0).reshape(2, 3)


def assert_equal(model: Any, compiled: Any) -> None:
    assert compiled(X).tolist() == model(X).tolist()


@pytest.fixture
def models() -> tuple[Any, Any]:
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3))
    return model, ad.compile(model)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (F, "gelu", lambda x, **_: x * 3),
        (F, "linear", lambda x, w, b: x - 1),
        (nn.GELU, "forward", lambda self, x: x + 2),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_what_calls_it_follows(
    models: tuple[Any, Any], owner: Any, name: str, value: Any, before: bool
) -> None:
    """Before the first call or after it; and the former one, when it is put back."""
    model, compiled = models
    if not before:
        assert_equal(model, compiled)
    with mock.patch.object(owner, name, value):
        assert_equal(model, compiled)
    assert_equal(model, compiled)
    count = len(compiled._compiled_call.programs)
    assert_equal(model, compiled)
    assert len(compiled._compiled_call.programs) == count
    assert replaced.STATE[replaced.WHAT] == ()


def test_what_it_reads_is_followed(
    models: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, compiled = models
    factor = [2.0]
    monkeypatch.setattr(F, "gelu", lambda x, **_: x * factor[0])
    for factor[0] in (3.0, 4.0, 3.0):
        assert_equal(model, compiled)
    monkeypatch.setattr(F, "gelu", lambda x, **_: print(x.shape) or x)
    with pytest.raises(Unsupported, match=r"print\(\).*test_replaced"):
        compiled(X)


def test_a_method_that_only_our_code_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed; what it reads is not followed."""

    def function(x: Any) -> Any:
        return x * len(repr(nn.Tanh()))

    compiled = ad.compile(function)
    assert_equal(function, compiled)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Tanh, "extra_repr", lambda self: "more", raising=False)
        with pytest.raises(Unsupported, match=r"runs <lambda>.*test_replaced"):
            compiled(X)
    assert_equal(function, compiled)


def test_a_name_at_the_top_and_settings(models: tuple[Any, Any]) -> None:
    """What our own code sets, and numbers, are no replaced functions."""
    before = replaced.STATE[replaced.WHAT]
    with mock.patch.object(ad, "tanh", abs):
        assert [each[:2] for each in replaced.STATE[replaced.WHAT]] == [("adjoint", "tanh")]
    with mock.patch.object(ad, "pi", 3.0):
        assert replaced.STATE[replaced.WHAT] == before == ()


def test_what_is_imported_after_a_capture_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_functions.py").write_text("def twice(x):\n    return x * 2\n")
    monkeypatch.setattr(ad.nn, "__path__", [*ad.nn.__path__, str(tmp_path)])
    assert ad.compile(lambda x: x + 1)(ad.ones(2)).tolist() == [2.0, 2.0]
    try:
        for _ in range(2):  # and again, as another module
            late = importlib.import_module("adjoint.nn.late_functions")
            assert ad.compile(lambda x: x + 1)(ad.ones(2)).tolist() == [2.0, 2.0]
            with mock.patch.object(late, "twice", None):
                noted = replaced.STATE[replaced.WHAT]
            assert noted == (("adjoint.nn.late_functions", "twice", None),)
            del sys.modules["adjoint.nn.late_functions"]
    finally:
        sys.modules.pop("adjoint.nn.late_functions", None)
