"""`adjoint.random`: the default generator's seed and state, as PyTorch's module of that name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .ops.random.random import (
    Generator,
    default_generator,
    follow_torch,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "Generator", "default_generator", "follow_torch", "fork_rng", "get_rng_state", "initial_seed",
    "manual_seed", "seed", "set_rng_state",
]  # fmt: skip


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cpu") -> Iterator[None]:
    """Bring the default generator back to its state when the block ends.

    Source: https://docs.pytorch.org/docs/stable/random.html#torch.random.fork_rng

    >>> with ad.random.fork_rng():
    ...     a = ad.rand(2)
    >>> a.equal(ad.rand(2))
    True
    """
    state = default_generator.get_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.set_state(state)
