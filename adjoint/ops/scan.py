"""Running sums, products, extrema."""

from __future__ import annotations

__all__: list[str] = []
