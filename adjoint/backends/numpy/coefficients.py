"""The coefficients of the polynomials that special functions are made of.

coefficients.json says of each which function it is, where, and in what variable, which `on` brings
to [-1, 1]. tests/backends/numpy/fit_special.py wrote it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("coefficients.json")


@functools.lru_cache(maxsize=1)
def _contents() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=64)
def fitted(name: str) -> tuple[float, ...]:
    """The coefficients of the polynomial of that name, lowest power first."""
    return tuple(_contents()[name]["numbers"])
