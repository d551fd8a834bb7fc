"""Memory that each of several calls may use while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..onednn.plan import aligned_bytes


class Scratch:
    """Memory for calls that never run at once: each may overwrite what others have left there.

    >>> scratch = Scratch()
    >>> scratch(100).size >= 100 and scratch(50) is scratch(100)
    True
    """

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __call__(self, size: int) -> Any:
        """At least `size` bytes that begin on a cache line; whoever uses them keeps them alive."""
        if self._bytes.size < size:
            self._bytes = aligned_bytes(size)
        return self._bytes
