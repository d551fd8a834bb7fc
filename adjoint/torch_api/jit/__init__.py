"""TorchScript's names: what marks code for a compiler changes nothing here, as nothing is scripted.

A scripted module or function is the module or function. Files of TorchScript are neither read nor
written, and nothing is traced: `adjoint.compile` makes functions fast, `adjoint.export` and
`adjoint.onnx` write them.

Source: https://docs.pytorch.org/docs/stable/jit.html

>>> @ad.jit.script
... def double(x): return x * 2
>>> double(ad.ones(1)), ad.jit.is_scripting()
(tensor([2.]), False)
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...core.argument_repr import argument_repr
from ...core.errors import Unsupported
from ...core.missing_names import refused
from ...nn.modules.module import Module
from ..futures import Future

__all__ = [
    "Attribute", "Final", "Future", "ScriptFunction", "ScriptModule", "annotate", "export", "fork",
    "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing",
    "script_method", "trace", "trace_module", "unused", "wait",
]  # fmt: skip


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = list
BroadcastingList5 = BroadcastingList6 = list  # for annotations: a number may stand for its list
List, Optional, Tuple = list, typing.Optional, tuple

_INSTEAD = "adjoint.compile makes functions fast, adjoint.export and adjoint.onnx.export write them"


def _given(function: Any) -> Any:
    return function


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, module or class itself.

    >>> ad.jit.script(len) is len
    True
    """
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that changes nothing.

    >>> ad.jit.ignore(len) is len, ad.jit.ignore(drop=True)(len) is len
    (True, True)
    """
    return drop if callable(drop) else _given


script_if_tracing = script_method = export = unused = interface = _overload = _given
_script_if_tracing = _copy_to_script_wrapper = script_if_tracing
_overload_method = _given


def is_scripting() -> bool:
    """Whether TorchScript compiles this: False.

    >>> ad.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Whether TorchScript traces this: False.

    >>> ad.jit.is_tracing()
    False
    """
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value.

    >>> ad.jit.annotate(int, 3)
    3
    """
    return the_value


class Attribute(typing.NamedTuple):
    """A value and its type."""

    value: Any
    type: Any


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of a type; of a generic one, the container alone is looked at.

    >>> ad.jit.isinstance([1], list[int])
    True
    """
    import builtins

    return builtins.isinstance(obj, typing.get_origin(target_type) or target_type)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """A future of a call, which is done when this returns.

    >>> ad.jit.wait(ad.jit.fork(lambda x: x + 1, ad.ones(1)))
    tensor([2.])
    """
    made: Future[Any] = Future()
    try:
        made.set_result(func(*args, **kwargs))
    except Exception as error:
        made.set_exception(error)
    return made


def wait(future: Future) -> Any:
    """The result of a future."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which nothing is different."""
    yield


class ScriptFunction:
    """PyTorch's class of scripted functions; no function here is one: a scripted function is the
    function.

    Errors: Unsupported.
    """

    __repr__ = argument_repr

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"jit.{type(self).__name__}: nothing is scripted here; {_INSTEAD}")


class ScriptModule(Module):
    """PyTorch's class of scripted modules; no module here is one: a scripted module is the module.

    Errors: Unsupported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"jit.{type(self).__name__}: derive from nn.Module; {_INSTEAD}")


class RecursiveScriptModule(ScriptModule):
    """PyTorch's class of scripted modules; no module here is one."""


def _refused(name: str, why: str) -> Callable[..., Any]:
    return refused("jit", name, f"{why}; {_INSTEAD}")


load = _refused("load", "files of TorchScript hold programs of it, which are not read")
save = _refused("save", "files of TorchScript are not written")
trace = _refused("trace", "nothing is traced for TorchScript")
trace_module = _refused("trace_module", "nothing is traced for TorchScript")
freeze = _refused("freeze", "adjoint.inference.freeze makes a static graph of a module")
optimize_for_inference = _refused("optimize_for_inference", "adjoint.inference.freeze does that")
