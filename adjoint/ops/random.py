"""Random numbers: counters, generators, distributions."""

from __future__ import annotations

__all__: list[str] = []
