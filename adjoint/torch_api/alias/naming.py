"""Under the alias, types call themselves PyTorch's: `torch.float32`, `torch.nn.modules.linear`."""

from __future__ import annotations

import sys
from types import ModuleType

from ...core import config
from ...core.device import device
from ...core.dtype import dtype, finfo, iinfo
from ...core.spec import Size
from ...io.class_paths import ELSEWHERE, FOLLOWED, PACKAGE
from ...ops.create.conversion import memory_format
from ...ops.random.generators import Generator
from ...tensor import Tensor

TOP = (Tensor, Size, device, dtype, finfo, iinfo, memory_format, Generator)

_MUTABLE = 1 << 9  # a class that Python made, not one of an extension


def take_names() -> None:
    """Give all types that are there PyTorch's names; `name_types` is for modules to come."""
    config.CALLED = "torch"
    for kind in TOP:
        kind.__module__ = "torch"
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            name_types(module)


def name_types(module: ModuleType) -> None:
    """Give the types of a module of ours PyTorch's name of it, by which others find them."""
    name = getattr(module, "__name__", "")
    top, _, rest = name.partition(".")
    if top != PACKAGE:
        return
    if rest.partition(".")[0] in FOLLOWED:
        theirs = f"torch.{rest}"
        sys.modules.setdefault(theirs, module)
    elif name in ELSEWHERE:
        theirs = ELSEWHERE[name]
    else:
        return
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and kind.__module__ == name and kind.__flags__ & _MUTABLE:
            kind.__module__ = theirs
