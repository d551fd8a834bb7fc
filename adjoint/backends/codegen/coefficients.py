"""The numbers in the polynomials of maths.py; tests/backends/codegen/fit.py wrote their file."""

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
def fitted(name: str) -> tuple[Any, ...]:
    """A polynomial's coefficients, lowest power first; a table's columns, one for each power."""
    return tuple(_contents()[name]["numbers"])
