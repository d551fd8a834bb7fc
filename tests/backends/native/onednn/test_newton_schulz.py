"""Newton-Schulz iterations as one plan: what the body gives, for any shape, any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.native.onednn import api as onednn
from adjoint.backends.native.onednn import newton_schulz
from adjoint.optim import muon

from .onednn_cases import needs_onednn, workers  # noqa: F401 - a fixture


def has_plan() -> bool:
    """Whether oneDNN multiplies bfloat16 with sums behind the products on this processor."""
    y = ad.zeros(8, 8, dtype=ad.bfloat16).spec
    return newton_schulz.NewtonSchulz(y, (3.0, 2.0, 1.0), 1).plan() is not None


pytestmark = [
    needs_onednn,
    pytest.mark.skipif(
        onednn.unavailable() is None and not has_plan(),
        reason="oneDNN has no such products of bfloat16 on this processor: the body runs",
    ),
]

COEFFICIENTS = (3.4445, -4.775, 2.0315)
body = muon._iterated.__wrapped__  # type: ignore[attr-defined]


def unit(rng: Any, *shape: int) -> Any:
    return muon._unit(ad.tensor(rng.standard_normal(shape).astype(np.float32)), 1e-7)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes for which the routine ran."""
    found: list[Any] = []
    original = newton_schulz.NewtonSchulz.forward

    def forward(self: Any, arrays: Any) -> Any:
        found.append(arrays[0].shape)
        return original(self, arrays)

    monkeypatch.setattr(newton_schulz.NewtonSchulz, "forward", forward)
    return found


def assert_near(found: Any, expected: Any) -> None:
    """Equal up to the order of sums, which a rounding to bfloat16 may make an ulp or two."""
    assert found.shape == expected.shape and found.dtype is expected.dtype
    x, y = (each.float().numpy() for each in (found, expected))
    np.testing.assert_allclose(x, y, rtol=0, atol=np.abs(y).max() * 2**-4)
    assert np.abs(x - y).mean() <= np.abs(y).mean() * 2**-7


@pytest.mark.parametrize("shape", [(8, 8), (7, 90), (63, 65), (100, 101), (200, 250), (64, 1000)])
def test_the_body_for_any_shape_and_threads(
    shape: tuple[int, int],
    workers: int,  # noqa: F811
    runs: list[Any],
) -> None:
    rng = np.random.default_rng(shape)
    with ad.no_grad():
        for steps in (1, 2, 5):
            y = unit(rng, *shape)
            before = y.clone()
            found = muon._iterated(y, *COEFFICIENTS, steps)
            assert_near(found, body(y, *COEFFICIENTS, steps))
            assert y.equal(before)
            assert muon._iterated(y, *COEFFICIENTS, steps).equal(found)
    assert runs == [shape] * 6


def test_strided_matrices(runs: list[Any]) -> None:
    rng = np.random.default_rng(0)
    with ad.no_grad():
        for y in (unit(rng, 90, 40).t(), unit(rng, 80, 120)[::2, 1::3]):
            assert_near(muon._iterated(y, *COEFFICIENTS, 3), body(y, *COEFFICIENTS, 3))
    assert len(runs) == 2


def test_other_coefficients_are_another_plan(runs: list[Any]) -> None:
    y = unit(np.random.default_rng(1), 70, 70)
    with ad.no_grad():
        for options in ((3.4445, -4.775, 2.0315, 2), (1.5, -0.5, 0.0, 2), (2.0, -1.5, 0.5, 3)):
            assert_near(muon._iterated(y, *options), body(y, *options))
    assert len(runs) == 3


def test_what_is_not_finite_stays_in_its_rows(runs: list[Any]) -> None:
    y = unit(np.random.default_rng(2), 66, 67)
    y[3, 5] = float("nan")
    with ad.no_grad():
        found = muon._iterated(y, *COEFFICIENTS, 1).float().numpy()
    assert runs and found.shape == (66, 67)
    assert np.isnan(found).all()  # its column of the polynomial reaches every row
    y.zero_()
    with ad.no_grad():
        assert not muon._iterated(y, *COEFFICIENTS, 5).any().item()


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((40, 50), (0.0, -1.5, 0.5, 2)),
        ((40, 50), (2.0, 0.0, 0.5, 2)),
        ((40, 50), (2.0, -1.5, 1, 0)),
    ],
)
def test_what_has_no_plan_is_the_bodys(shape: Any, options: Any, runs: list[Any]) -> None:
    y = unit(np.random.default_rng(3), *shape)
    with ad.no_grad():
        assert muon._iterated(y, *options).equal(body(y, *options))
    assert not runs


def test_gradients_are_the_bodys(runs: list[Any]) -> None:
    y = unit(np.random.default_rng(4), 40, 50)
    leaves = [y.clone().requires_grad_() for _ in range(2)]
    for function, leaf in zip((muon._iterated, body), leaves, strict=True):
        function(leaf, *COEFFICIENTS, 1).float().sum().backward()
    assert leaves[0].grad.equal(leaves[1].grad)
    assert not runs


def test_without_onednn_the_body_runs(monkeypatch: pytest.MonkeyPatch, runs: list[Any]) -> None:
    y = unit(np.random.default_rng(5), 41, 57)
    monkeypatch.setattr(onednn, "_loaded", "switched off by a test")
    with ad.no_grad():
        assert muon._iterated(y, *COEFFICIENTS, 2).equal(body(y, *COEFFICIENTS, 2))
    assert not runs
