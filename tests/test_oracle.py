"""The oracle of refactorings: the same code gives no line, and each kind of change has its."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import adjoint as ad

from .oracle import Case, Recording, cases, compared, differentiated, distance

X = np.linspace(-1, 1, 100, dtype=np.float32)


def recording(function: Callable[[Any], Any]) -> Recording:
    """Of one case, which `function` computes."""
    found = Recording()
    found.add(Case("f of 100", lambda: differentiated(function, ad.from_numpy(X))))
    return found


def test_there_are_cases_of_every_op_of_the_registry() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    started = {name.split("(")[0] for name in names}
    assert {cls.__name__ for cls, _ in ad.testing.samples()} <= started


def test_the_same_code_has_no_differences_also_after_saving(tmp_path: Path) -> None:
    first = recording(ad.tanh)
    first.save(tmp_path)
    kept = Recording.load(tmp_path)
    assert set(kept.parts("f of 100")) == {"output 0 without history", "output 0", "gradient 0"}
    assert kept.counts["f of 100"]["nodes"] == {"TanhBackward0": 1}
    assert first.differing == []
    assert compared(kept, recording(ad.tanh)) == []


def test_an_ulp_in_one_element_is_named() -> None:
    def changed(x: Any) -> Any:
        y = x * 2
        y.detach()[7] = float(np.nextafter(np.float32(2 * X[7]), np.float32(9)))
        return y

    was, now = 2 * float(X[7]), float(np.nextafter(2 * X[7], np.float32(9)))
    text = f"up to 1 ulps in 1 of 100, the first at 7: {was} became {now}"
    assert compared(recording(lambda x: x * 2), recording(changed)) == [
        f"f of 100: output 0 without history: {text}",
        f"f of 100: output 0: {text}",
    ]


def test_other_gradients_and_nodes_are_named() -> None:
    first, second = compared(recording(lambda x: x * 2), recording(lambda x: x.detach() + x))
    assert first.startswith("f of 100: gradient 0: up to 8388608 ulps in 100 of 100")
    assert second == "f of 100: nodes {'MulBackward0': 1} became {'AddBackward0': 1}"


def test_other_errors_dtypes_and_shapes_are_named() -> None:
    before = recording(lambda x: x.detach())
    wider = compared(before, recording(lambda x: x.detach().double()))
    assert "f of 100: output 0: float32(100,) became float64(100,)" in wider
    shorter = compared(before, recording(lambda x: x.detach()[1:]))
    assert "f of 100: output 0: float32(100,) became float32(99,)" in shorter
    refused = recording(lambda x: x @ ad.ones(3))
    assert compared(before, refused) == [
        "f of 100: error: is new",
        "f of 100: output 0 without history: is gone",
        "f of 100: output 0: is gone",
    ]
    [line] = compared(refused, recording(lambda x: x @ ad.ones(4)))
    assert line.startswith("f of 100: error: 'ShapeError: matmul: ")
    assert "4x1" in line.split(" became ")[1]


@pytest.mark.parametrize(
    ("a", "b", "ulps"),
    [
        (np.array([0.0]), np.array([-0.0]), 0),
        (np.array([5e-324]), np.array([-5e-324]), 2),
        (np.array([1 + 1j], np.complex64), np.array([1 + 2j], np.complex64), 1 << 23),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([2.0], ml_dtypes.bfloat16), 128),
    ],
)
def test_distances(a: Any, b: Any, ulps: int) -> None:
    assert distance(a, b).startswith(f"up to {ulps} ulps in 1 of ")


def test_distances_of_nan_and_of_whole_numbers() -> None:
    assert distance(np.array([np.nan, 1.0]), np.array([1.0, 1.0])).startswith("NaN in 1 of 2")
    assert distance(np.array([1, 2]), np.array([1, 5])) == "1 of 2 elements differ"


def test_runs_that_differ_from_one_another_are_named() -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(x)
        return x + (len(calls) > 4)  # each run computes twice

    [first, *_] = recording(function).differing
    assert first.startswith("f of 100: run 3: output 0 without history: ")
