"""Tensors as text."""

from __future__ import annotations

from typing import Any


def format_tensor(tensor: Any) -> str:
    """`tensor` as PyTorch prints it."""
    return f"tensor({tensor._data.tolist()})"
