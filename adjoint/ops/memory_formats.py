"""Memory formats, which are hints: tensors stay row-major, as their strides say."""

from __future__ import annotations

import warnings
from typing import Any

from ..core import config
from ..core.errors import InvalidType

__all__ = ["assert_memory_format", "follow_hint"]


def assert_memory_format(memory_format: Any, name: str) -> None:
    """Refuse what is no memory format. Those with channels last are hints: tensors stay row-major,
    as their strides say, and compiled programs lay out as is fastest.
    """
    if memory_format is not None and type(memory_format).__name__ != "memory_format":
        raise InvalidType(
            f"{name}: memory_format must be one such as {config.CALLED}.channels_last, got "
            f"{memory_format!r:.40}; leave it out"
        )


def follow_hint(memory_format: Any, name: str) -> None:
    """Refuse what is no memory format, and warn of one that is not followed: views of the result
    that are views with channels last are copies here, so writes to them are lost.
    """
    assert_memory_format(memory_format, name)
    if "channels_last" in str(memory_format):
        warnings.warn(
            f"{name}: {memory_format} is a hint, the memory stays row-major; where "
            "permute(0, 2, 3, 1) is to be contiguous, call x.permute(0, 2, 3, 1).contiguous()",
            stacklevel=4,
        )
