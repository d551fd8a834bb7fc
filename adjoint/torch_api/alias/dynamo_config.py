"""`torch._dynamo.config`: settings of PyTorch's compiler, which change nothing here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

cache_size_limit = recompile_limit = 8
capture_scalar_outputs = suppress_errors = verbose = False


@contextlib.contextmanager
def patch(*args: Any, **settings: Any) -> Iterator[None]:
    """Settings for as long as it is open."""
    held = globals()
    before = dict(held)
    held.update(*args, **settings)
    try:
        yield
    finally:
        for name in held.keys() - before.keys():
            del held[name]
        held.update(before)
