"""The coefficients of the polynomials that special functions are made of.

coefficients.json says of each which function it is, where, and in what variable, which `on` brings
to [-1, 1]. They are Chebyshev interpolants of the function to 60 digits, brought to powers of that
variable; those for float32 are quotients and polynomials with small relative errors.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

__all__ = ["fitted"]


@functools.lru_cache(maxsize=1)
def _contents() -> dict[str, Any]:
    path = Path(__file__).with_name("coefficients.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@functools.lru_cache(maxsize=64)
def fitted(name: str) -> tuple[float, ...]:
    """The coefficients of the polynomial of that name, lowest power first."""
    return tuple(_contents()[name]["numbers"])
