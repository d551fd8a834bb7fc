"""Types of the arguments of public functions, which checkers read and nothing else: as wide as what
the functions take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol, TypeAlias

    import numpy as np

    from ..core.device import device
    from ..core.dtype import dtype
    from ..core.tensor_type import Tensor
    from .random.generators import Generator

    class Named(Protocol):
        """A layout or memory format."""

        name: str

    Axes: TypeAlias = int | Sequence[int] | None
    Dims: TypeAlias = int | tuple[int, ...] | list[int]  # one, or several
    DTypeLike: TypeAlias = dtype | str | type | np.dtype[np.generic]
    DeviceLike: TypeAlias = device | str | int
    Layout: TypeAlias = Named | str
    MemoryFormat: TypeAlias = Named
    Number: TypeAlias = complex  # and so bool, int and float, for checkers
    Operand: TypeAlias = Tensor | complex
    Random: TypeAlias = Generator
    ManyTensors: TypeAlias = Sequence[Tensor]
