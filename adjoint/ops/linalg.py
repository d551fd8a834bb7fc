"""Linear algebra: decompositions, solvers, norms."""

from __future__ import annotations

__all__: list[str] = []
