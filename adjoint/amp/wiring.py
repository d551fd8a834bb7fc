"""Lets autocast reach the listed functions, wherever the package has them under a name.

As in PyTorch, functions do not know of autocast: it is put around those on the lists, once, when
the package has been imported. Outside autocast a wrapped function costs one look at the mode.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..core.argument_errors import MISTAKES, recovered
from ..core.mode import MODE, is_casting
from ..core.overrides import ABSENT, FOLLOWED, overridden
from ..namespaces import fft, linalg
from ..nn import functional
from ..tensor import Tensor
from .lists import CPU, CUDA


def wire(top: dict[str, Any]) -> None:
    """Put autocast around the listed functions: those in `top`, the top-level namespace, in
    `nn.functional`, `linalg` and `fft`, everywhere in the package, and the Tensor methods.
    """
    spaces = {"": (top, vars(functional)), "linalg": (vars(linalg),), "fft": (vars(fft),)}
    wrapped: dict[int, Callable[..., Any]] = {}
    for name in sorted({*CPU.functions, *CUDA.functions}):
        space, _, short = name.rpartition(".")
        for names in spaces[space]:
            if short in names and id(names[short]) not in wrapped:
                wrapped[id(names[short])] = _around(name, names[short])
        if not space and short in vars(Tensor):
            setattr(Tensor, short, _around(name, vars(Tensor)[short]))
    package = __name__.partition(".")[0]
    for place, module in list(sys.modules.items()):
        ours = place == package or place.startswith(f"{package}.")
        if ours and module is not None:  # None is what refuses an import
            for name, value in list(vars(module).items()):
                if id(value) in wrapped:
                    setattr(module, name, wrapped[id(value)])


def _around(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    apart = getattr(function, "operands_apart", None)  # where they may come in one list

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if apart is not None:
            args = apart(args)
        if FOLLOWED:
            said = overridden(call, args, kwargs)
            if said is not ABSENT:
                return said
        try:
            if not is_casting():
                return function(*args, **kwargs)
            return MODE.get().autocast.call(name, function, args, kwargs)
        except MISTAKES as error:
            return recovered(error, call, function, args, kwargs)

    return call
