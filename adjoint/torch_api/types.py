"""Types for annotations, under PyTorch's names.

>>> isinstance(1.5, ad.types.Number)
True
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from ..core.device import device as _device
from ..core.dtype import dtype as _dtype  # noqa: F401 - programs import it
from ..core.spec import Size
from ..ops.create.conversion import layout as _layout  # noqa: F401 - likewise

__all__ = ["Device", "FileLike", "Number", "Storage"]

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
Number: Any = (builtins.int, builtins.float, builtins.bool)
Device: TypeAlias = "_device | str | int | None"
FileLike: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
_size: Any = Size | list[int] | tuple[int, ...]
_TensorOrTensors: Any = Any
Storage = Sequence  # of numbers: tensors have no storage objects here
