"""Conversion of dtype, device and container."""

from __future__ import annotations

__all__: list[str] = []
