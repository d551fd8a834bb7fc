"""`adjoint.random`: seed and state of the default generator, like PyTorch's module of that name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..ops.random.generators import (
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
    """Restore the default generator's state at the end of the block.

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
