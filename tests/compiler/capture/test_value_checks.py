"""Functions that look at values to refuse them: a program looks at each run, no capture reads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native

X = (ad.arange(20.0) * 0.7).sin().reshape(4, 5)
IDS = ad.tensor([3, 0, 1, 1, 2, 3, 0])
WINDOW = ad.hann_window(8)


def bag(**options: Any) -> Callable[..., Any]:
    return lambda ids, starts: nn.functional.embedding_bag(ids, X, starts, **options)


def unpool(places: Any) -> Any:
    return nn.functional.max_unpool2d(X.reshape(1, 1, 4, 5), places.reshape(1, 1, 4, 5), 2)


def spectrum(window: Any) -> Any:
    x = ad.arange(40.0).cos()
    parts = ad.stft(x, 8, 4, window=WINDOW, return_complex=True)
    return ad.istft(parts, 8, 4, window=window)


# A function; what it takes; what it refuses, or None.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...] | None]] = {
    "quantile": (lambda q: ad.quantile(X, q, 1), (ad.tensor([0.0, 0.3]),), (ad.tensor([2.0]),)),
    "nanquantile": (lambda q: ad.nanquantile(X, q), (ad.tensor(0.3),), (ad.tensor(-0.1),)),
    "normal": (lambda s: ad.normal(0.0, s) * 0, (ad.ones(3),), (-ad.ones(3),)),
    "unravel_index": (lambda i: ad.unravel_index(i, (3, 4)), (ad.tensor([5, 0, 11]),), None),
    "max_unpool2d": (unpool, (ad.arange(20) * 3,), (ad.arange(20) + 99,)),
    "istft": (spectrum, (WINDOW,), (WINDOW * 0,)),
    "lu_factor_ex": (
        lambda a: ad.linalg.lu_factor_ex(a, check_errors=True)[0], (X[:2, :2],), (X[:2, :2] * 0,)
    ),
    "bags": (bag(mode="sum"), (IDS, ad.tensor([0, 2, 2])), (IDS, ad.tensor([1, 2, 2]))),
    "means": (bag(mode="mean", padding_idx=1), (IDS, ad.tensor([0, 2, 5])), None),
    "bags with ends": (
        bag(mode="sum", include_last_offset=True, padding_idx=0), (IDS, ad.tensor([0, 3, 7])), None
    ),
    "index_fill": (
        lambda i, v: X.index_fill(1, i, v), (ad.tensor([1, 1, 3]), ad.tensor(2.0)),
        (ad.tensor([7]), ad.tensor(2.0)),
    ),
    "index_add of one": (
        lambda i: ad.ones(()).index_add(0, i, ad.tensor(2.0)), (ad.tensor([0]),), (ad.tensor([1]),)
    ),
    "scatter_add of one": (
        lambda i: ad.ones(()).scatter_add(0, i, ad.tensor(2.0)), (ad.tensor(0),), (ad.tensor(1),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_eager_execution(name: str) -> None:
    function, given, refused = CASES[name]
    step = ad.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            expected, found = function(*given), step(*given)
            pairs = zip(expected, found, strict=True) if name == "unravel_index" else [
                (expected, found)
            ]  # fmt: skip
            for a, b in pairs:
                ad.testing.assert_close(a, b)
        if refused is None:
            return
        with pytest.raises(ad.AdjointError):
            function(*refused)
        for program in (step, ad.compile(function)):
            with pytest.raises(ad.AdjointError) as caught:
                program(*refused)
            assert not isinstance(caught.value, Unsupported)
        ad.testing.assert_close(function(*given), step(*given))
        assert len(step.programs) <= 2


def test_gradients_of_bags_reach_weights_and_factors() -> None:
    starts = ad.tensor([0, 3, 3])

    def loss(weight: Any, factors: Any) -> Any:
        found = nn.functional.embedding_bag(
            IDS, weight, starts, mode="sum", per_sample_weights=factors, padding_idx=3
        )
        return ad.autograd.grad((found * found).sum(), (weight, factors))

    weight, factors = X.clone().requires_grad_(), ad.arange(7.0).cos().requires_grad_()
    for a, b in zip(loss(weight, factors), ad.compile(loss)(weight, factors), strict=True):
        ad.testing.assert_close(a, b)
