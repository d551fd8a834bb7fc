"""Functions that go back to a state of a generator: of adjoint's own and of PyTorch's. What they
draw is what eager execution draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native

pytestmark = needs_native


@pytest.fixture(params=[False, True], ids=["own", "pytorch"], autouse=True)
def _generator(request: pytest.FixtureRequest) -> Iterator[None]:
    ad.random.follow_torch(request.param)
    yield
    ad.random.follow_torch(False)
    ad.manual_seed(0)


def _again(x: Any) -> Any:
    state = ad.get_rng_state()
    y = ad.rand(3)
    ad.set_rng_state(state)
    return x + y - ad.rand(3) * 0.5


def _back(x: Any) -> Any:
    state = ad.get_rng_state()
    y = ad.rand(3)
    ad.set_rng_state(state)
    return x + y


def _fork(x: Any) -> Any:
    with ad.random.fork_rng():
        y = ad.rand(3)
    return x + y + ad.rand(3)


def _back_to_the_middle(x: Any) -> Any:
    y = ad.rand(3)
    state = ad.get_rng_state()
    z = ad.randn(3) + ad.rand(3)
    ad.set_rng_state(state)
    return x + y + z * ad.randn(3)


def _untouched(x: Any) -> Any:
    state = ad.get_rng_state()
    ad.set_rng_state(state)
    return x + 1


def _checkpointed(x: Any) -> Any:
    x = x.clone().requires_grad_()
    y = checkpoint(lambda x: nn.functional.dropout(x.exp(), 0.5), x + 1, use_reentrant=False)
    (y * y).sum().backward()
    return x.grad


FUNCTIONS: list[Callable[[Any], Any]] = [
    _again, _back, _fork, _back_to_the_middle, _untouched, _checkpointed
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_draws_are_those_of_eager_execution(function: Callable[[Any], Any]) -> None:
    found = []
    for run in (function, ad.compile(function)):
        ad.manual_seed(3)
        ad.rand(2)  # draws before
        found.append([(run(ad.zeros(3)).tolist(), ad.rand(2).tolist()) for _ in range(3)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1] or function in (_untouched, _back, _fork)


@pytest.mark.parametrize("draws", [0, 1, 2, 5])
def test_a_state_from_outside_is_refused(draws: int) -> None:
    ad.manual_seed(3)
    for _ in range(draws):
        ad.rand(2)
    state = ad.get_rng_state()
    ad.manual_seed(3)
    ad.rand(2)
    before = ad.get_rng_state().tolist()

    def step(x: Any) -> Any:
        ad.set_rng_state(state)
        return x + 1

    with pytest.raises(Unsupported, match="to a state from outside"):
        ad.compile(step)(ad.zeros(3))
    assert ad.get_rng_state().tolist() == before


def test_another_draw_of_pytorchs_from_such_a_state_is_refused() -> None:
    def step(x: Any) -> Any:
        state = ad.get_rng_state()
        y = ad.rand(3)
        ad.set_rng_state(state)
        return x + y + ad.randn(5).sum()

    ad.manual_seed(3)
    if ad.default_generator.twister is None:
        expected = step(ad.zeros(3)).tolist()
        ad.manual_seed(3)
        assert ad.compile(step)(ad.zeros(3)).tolist() == expected
        return
    with pytest.raises(Unsupported, match="draws something else"):
        ad.compile(step)(ad.zeros(3))
