"""Memory of large arrays: statistics of blocks kept for reuse, and their release.

The native backend keeps freed blocks of recent sizes, since a fresh one costs page faults that take
longer than adding two arrays. ADJOINT_MEMORY_CACHE bounds it.
"""

from __future__ import annotations

import sys

from . import native

__all__ = ["memory_stats", "release_memory"]


def memory_stats() -> dict[str, int]:
    """Bytes and counts of large blocks (64 KiB and more): `allocated` in arrays now, `peak`,
    `cached` for reuse, `limit` of that, `requests`, and `reuses` among them. Zeros where the native
    backend is off.

    >>> sorted(ad.memory_stats())
    ['allocated', 'cached', 'limit', 'peak', 'requests', 'reuses']
    """
    if native.reason_off() is not None:
        return dict.fromkeys(("allocated", "peak", "cached", "limit", "requests", "reuses"), 0)
    from .native.runtime import array_memory

    return array_memory.memory_stats()


def release_memory() -> None:
    """Return memory that is kept for reuse to the system: blocks, libraries' plans, work memory.

    >>> ad.release_memory()
    >>> ad.memory_stats()["cached"]
    0
    """
    if native.reason_off() is not None:
        return
    from .native.runtime import array_memory

    plans = sys.modules.get("adjoint.backends.native.onednn.plan")
    if plans is not None:
        plans.release_memory()
    array_memory.release_memory()
