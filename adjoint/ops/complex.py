"""Complex numbers: real, imag, conj, angle, polar, view_as_real."""

from __future__ import annotations

__all__: list[str] = []
