"""PyTorch's names for model files, and for the classes that they may name.

Source: https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from collections.abc import Callable
from typing import Any

from ..core.device import device
from ..io.files import load, save
from ..io.safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from ..io.trusted import trust
from ..io.unsafe_names import get_unsafe_globals_in_checkpoint

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals",
    "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save", "trust",
]  # fmt: skip

DEFAULT_PROTOCOL = 2  # of the pickles in files

# Types for annotations.
MAP_LOCATION = Callable[[Any, str], Any] | device | str | dict[str, str] | None
FILE_LIKE = Any
