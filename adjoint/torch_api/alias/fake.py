"""`torch._subclasses.fake_tensor`: tensors without values, of which there are none here."""

from __future__ import annotations

from typing import Any

__all__ = ["FakeTensor", "is_fake"]
__path__: list[str] = []  # the module that PyTorch has above it is this one, too


class FakeTensor:
    """PyTorch's class of tensors without values; no tensor here is one."""


def is_fake(x: Any) -> bool:
    """Whether a tensor has no values: none here."""
    return False
