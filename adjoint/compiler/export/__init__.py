"""Functions and training steps in files: `ad.export(fn, example, path)`, ahead of time.

A file holds a program's graph, its whole state (weights, buffers, optimizers' states and step
counts, gradients, generators, schedules, scales, numbers) and its signature; another process loads
and runs it, or trains on, without the code that it was captured from.

>>> import io
>>> layer, file = ad.nn.Linear(2, 1), io.BytesIO()
>>> _ = ad.export(layer, (ad.ones(3, 2),), file)
>>> _ = file.seek(0)
>>> loaded = ad.export.load(file)
>>> loaded(ad.ones(3, 2)).equal(layer(ad.ones(3, 2)))
True
>>> list(loaded.state_dict())
['weight', 'bias']
"""

from __future__ import annotations

import io as _io
import sys as _sys
import types as _types
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any

from ...core.errors import InvalidType as _InvalidType
from ...core.errors import Unsupported as _Unsupported
from ...core.tensor_base import TensorBase as _TensorBase
from ...io import checkpoint as _checkpoint
from ...nn.modules.module import Module as _Module
from ...runtime.public import naming
from ..function import CompiledFunction as _CompiledFunction
from ..function import CompiledModule as _CompiledModule
from .exported import ExportedProgram as ExportedProgram
from .exported import opened as _opened
from .forms import by_position as _by_position
from .forms import parameters_of as _parameters_of
from .writing import contents_of as _contents_of

__all__ = ["ExportedProgram", "export", "load", "save"]


@naming
def export(
    mod: _Callable[..., _Any],
    args: tuple[_Any, ...],
    kwargs: _Mapping[str, _Any] | None = None,
    *,
    dynamic_shapes: _Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """A module, a function or a training step as a program with a state of its own, a copy.

    `strict` changes nothing. See `ad.export(fn, example, path)` for what is captured, how and when.
    Errors: Unsupported for what cannot be captured or stored, and for `dynamic_shapes`; InvalidType
    for other arguments.
    Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export.html

    >>> layer = ad.nn.Linear(2, 1)
    >>> program = ad.export.export(layer, (ad.ones(3, 2),))
    >>> program.module()(ad.ones(3, 2)).shape
    adjoint.Size([3, 1])
    """
    if dynamic_shapes is not None:
        raise _Unsupported("export: dynamic_shapes; give an example of each size in a list")
    if not isinstance(args, tuple):
        raise _InvalidType(f"export: args are a tuple, got {type(args).__name__}")
    file = _io.BytesIO()
    _checkpoint.save(_contents(mod, [(args, dict(kwargs or {}))]), file)
    file.seek(0)
    return _opened(file, None)


def save(ep: ExportedProgram, f: _Any) -> None:
    """Write a program to a path or a file, with the state that it has now.

    Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export.html

    >>> import io
    >>> ad.export.save(ad.export.export(ad.nn.Linear(2, 1), (ad.ones(3, 2),)), io.BytesIO())
    """
    if not isinstance(ep, ExportedProgram):
        raise _InvalidType(f"export.save: expected an ExportedProgram, got {type(ep).__name__}")
    ep.save(f)


@naming
def load(f: _Any, *, memory: int | None = None) -> ExportedProgram:
    """Load the program in a file. No code of the file is run, and none of the function's is
    needed.

    The file is verified: its checksums and the version of its format; that ops, routines,
    optimizers, schedules, scalers and computations on numbers are adjoint's own, made of fields of
    the right types; that every value is computed before it is read, and has the shape and dtype
    that its op infers; that states, written tensors and optimizers' parameters are tensors of the
    file with these shapes and dtypes; that no value takes more than `memory` bytes (by default,
    those of the machine), and all together no more than 16 times as many. Machine code is compiled
    from the graph when it is first called, or comes from this machine's own cache.
    Errors: CheckpointError for a file that is cut short, altered, of another version or of another
    kind; FileNotFoundError for a missing one.
    Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export.html

    >>> import io
    >>> file = io.BytesIO()
    >>> _ = ad.export(lambda x: x * 2, (ad.ones(3),), file)
    >>> _ = file.seek(0)
    >>> ad.export.load(file)(ad.ones(3))
    tensor([2., 2., 2.])
    """
    return _opened(f, memory)


def _to_file(
    fn: _Callable[..., _Any], example: _Any, path: _Any, kwargs: _Mapping[str, _Any] | None = None
) -> None:
    """Write a function, a module, or a whole training step (forward, backward, optimizer) to a
    file, for another process to run without its code.

    `example` is a tuple of arguments (or one tensor), `kwargs` has those by name; a list of tuples
    gives a program for each. The function is captured as `ad.compile` would, and nothing is
    changed; what its Python read is as it was then, for good. A module gives gradients where it is
    exported with them, and runs without them in `no_grad`, too.
    Errors: Unsupported and InvalidType for what cannot be captured, or stored.

    >>> import io
    >>> ad.export(ad.nn.Linear(2, 1), (ad.ones(3, 2),), io.BytesIO())
    """
    examples = example if isinstance(example, list) else [example]
    arguments = []
    for each in examples:
        args = (each,) if isinstance(each, _TensorBase) else each
        if not isinstance(args, tuple):
            raise _InvalidType(
                "export: an example is a tuple of arguments, or a list of such tuples, got "
                f"{type(args).__name__}"
            )
        arguments.append((args, dict(kwargs or {})))
    _checkpoint.save(_contents(fn, arguments), path)


def _contents(function: _Any, examples: list[_Any]) -> dict[str, _Any]:
    """Content of the file for a function, captured with these examples."""
    if not callable(function):
        raise _InvalidType(f"export: expected a function or a module, got {type(function)}")
    if isinstance(function, _CompiledModule):
        function = function._orig_mod
    elif isinstance(function, _CompiledFunction):
        function = function.function
    elif isinstance(function, _types.MethodType) and isinstance(
        function.__func__, _CompiledFunction
    ):
        function = _types.MethodType(function.__func__.function, function.__self__)
    names = _parameters_of(function.forward if isinstance(function, _Module) else function)
    name = str(getattr(function, "__name__", type(function).__name__))
    examples = [_by_position(names, *each) for each in examples]
    return {"name": name, "positional": names, **_contents_of(function, examples, name)}


class _Callable_Module(_types.ModuleType):  # noqa: N801
    """Type of this module, which can be called."""

    def __call__(self, *args: _Any, **kwargs: _Any) -> None:
        return _to_file(*args, **kwargs)


_sys.modules[__name__].__class__ = _Callable_Module
