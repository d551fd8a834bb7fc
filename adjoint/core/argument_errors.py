"""Error messages for arguments that should have been tensors, worded with the names of the public
function and argument concerned. Nothing here runs in a call that succeeds.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from . import config
from .errors import AdjointError, AutogradError, DeviceError, IndexingError, InvalidType, ShapeError
from .extensions import MODULES
from .keywords import wrongly_called
from .overrides import ABSENT, FOLLOWED, OTHERS, following, leave, overridden
from .tensor_base import TensorBase
from .tracebacks import cut, is_ours

__all__ = [
    "MISTAKES", "assert_tensor", "described", "explain", "explained", "has_a_say", "misplaced",
    "placed", "remedy",
]  # fmt: skip

MISTAKES = (  # what Python and NumPy say of wrong arguments, and what is said on purpose
    AttributeError, TypeError, ValueError, AutogradError, DeviceError, IndexingError,
)  # fmt: skip

_NONE: Any = object()
_TOO_LARGE = ("array is too big", "Maximum allowed dimension", "Maximum allowed size")  # NumPy's


def described(value: object) -> str:
    """Description of a value for an error message: the full name of its type with its shape, or the
    value itself.
    """
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{_top(kind)}.{kind.__name__}"
    if value is None:
        return "None"
    if callable(value) and hasattr(value, "__name__"):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    if isinstance(value, (list, tuple)) and any(isinstance(each, TensorBase) for each in value):
        return f"{name} of {len(value)} with tensors"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{name} of shape {tuple(shape)}"
    return f"{name}: {value!r:.40}" if kind.__module__ == "builtins" else name


def _top(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def remedy(value: object, due: str = "a tensor") -> str:
    """Advice for an error message: how to make what is `due` from `value`."""
    if "list" in due:
        return "put what there is in a list"
    if "tensor" not in due:
        if getattr(value, "size", None) == 1 or (callable(getattr(value, "numel", None))):
            return "take its element with .item()"
        return f"give {due}"
    made = f"{config.CALLED}.tensor()"
    top = _top(type(value))
    if value is None:
        return "is a return missing where it was made?"
    if top == "torch":
        return f"convert it with {config.CALLED}.from_dlpack(), or import one framework alone"
    if top == "numpy" and hasattr(value, "ndim"):
        return f"convert it with {config.CALLED}.from_numpy(), or {made} for a copy"
    if isinstance(value, (list, tuple)) and any(isinstance(each, TensorBase) for each in value):
        return f"join its tensors with {config.CALLED}.stack()"
    if isinstance(value, type) or callable(value):
        return "call it first, or give what it is to be applied to"
    if hasattr(value, "__dlpack__"):
        return f"convert it with {config.CALLED}.from_dlpack()"
    return f"make one with {made}"


def misplaced(value: object, op: str, argument: str = "", due: str = "a tensor") -> InvalidType:
    """The error for `value`, passed where `due` was expected. It names the public function that
    received `value`, which may be one that called `op`, and its argument.
    """
    for name, arguments in _calls(sys._getframe(2)):
        place = _place(value, arguments)
        if place:
            return _error(value, name, place, due)
    made = _error(value, op, argument, due)
    made.wrong = value, due  # `explain` may know which function was called
    return made


def _error(value: object, op: str, argument: str, due: str) -> InvalidType:
    where = f" for argument '{argument}'" if argument else ""
    return InvalidType(f"{op}: expected {due}{where}, got {described(value)}; {remedy(value, due)}")


def assert_tensor(op: str, value: object, argument: str = "input") -> None:
    """Raise InvalidType unless `value` is a tensor."""
    if not isinstance(value, TensorBase):
        raise misplaced(value, op, argument)


def explain(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise InvalidType where `error`, met in `function(*args, **kwargs)`, is about a value that is
    no tensor, or about how the function was called; ShapeError where NumPy has no array of such a
    size; return where it is about something else.
    """
    if isinstance(error, ValueError) and str(error).startswith(_TOO_LARGE):
        raise ShapeError(
            f"{_name(function)}: Storage size calculation overflowed ({error}); use fewer elements"
        ) from error
    value, due = getattr(error, "wrong", (_NONE, "a tensor"))
    ours = not isinstance(error, AdjointError) and is_ours(_innermost(error.__traceback__))
    if value is _NONE and not ours:
        return
    signature = _signature(function)
    name = _name(function)
    if signature is None:
        return
    if isinstance(error, TypeError):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise wrongly_called(name, str(wrong), signature, kwargs) from None
    calls = [*_calls(sys._getframe(1)), (name, _bound(signature, args, kwargs))]
    if value is _NONE:
        value = _culprit(error, calls)
    if value is _NONE:
        value = _annotated(error, signature, calls[-1][1])
    if value is _NONE:
        return
    for called, arguments in calls:
        argument = _place(value, arguments)
        if argument.startswith("args[") and isinstance(error, InvalidType):
            continue  # a function within has a name for it
        if argument and not called.startswith("_"):  # else of whoever called it
            due = "a number or bool" if _is_ambiguous(error) else due
            better = _error(value, called, argument, due)
            if arguments is calls[-1][1]:  # there may be another function around this one
                better.wrong = value, due
            raise better from None


def explained(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception:
    """The error to raise for `error`, met in `function(*args, **kwargs)`: itself, or one that names
    the argument (see `explain`), with no frames yet.
    """
    if not isinstance(error, MISTAKES):
        return error
    try:
        explain(error, function, args, kwargs)
    except AdjointError as better:
        return better.with_traceback(None)
    finally:
        del args, kwargs  # this frame may be in a traceback: a cycle, with all tensors in it
    return error


def placed(error: AdjointError, called: str = "") -> AdjointError:
    """`error`, met in an op, whose message names the public function that was called, too, where
    that is another: the outermost one of the package, or `called` where that one is compiled.
    """
    if isinstance(error, InvalidType) or error.module or len(error.args) != 1:
        return error  # it names the function whose argument is wrong, or has been told to the user
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_globals.get("__name__", "")):
        code = frame.f_code
        name = code.co_name
        if code.co_varnames[:1] == ("input",):  # a function or method of tensors
            is_public = not name.startswith("_") and name in frame.f_globals
        else:
            is_public = name in frame.f_globals.get("__all__", ()) and "self" not in frame.f_locals
        called = name if is_public else called
        frame = frame.f_back
    if called:
        error.args = (_headed(str(error), called),)
    return error


def _headed(text: str, called: str) -> str:
    """A message that begins with the name of the function that was called. The name of an op stays
    behind it, but for one that says the same: "clamp_min" where `clamp` was called.
    """
    head, colon, rest = text.partition(": ")
    module, dot, op = head.removesuffix("()").rpartition(".")
    op, own = op.rstrip("_"), called.rstrip("_")
    if op == own or text.startswith((f"{called} ", f"{called}()")):
        return text
    is_alike = op.isidentifier() and (own in op or op in own)
    return f"{module}{dot}{called}: {rest}" if colon and is_alike else f"{called}: {text}"


def _public_name(function: Callable[..., Any]) -> str:
    """The name of a function that was declared to be public; empty for one that is not called by
    the name that it has.
    """
    name = function.__name__
    places = (getattr(each, "__globals__", ()) for each in (function, inspect.unwrap(function)))
    return name if name[0] != "_" and any(name in place for place in places) else ""


def settled(error: AdjointError, called: str = "") -> None:
    """Prepare an error of an op, which is being handled, for a bare `raise`: `placed`, without
    frames of this package and without what was handled when it was raised.
    """
    placed(error, called)
    error.__suppress_context__ = True
    cut(error)


REFLECTED: dict[Callable[..., Any], str] = {}  # operators: what Python asks of the right side


def recovered(
    error: Exception,
    asking: Callable[..., Any],
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Retry a failed call: the result of `asking` by `__torch_function__`, if `error` came from the
    first argument met that is no tensor but has it (later calls check such types beforehand), or by
    a deprecated order of arguments. Otherwise raise `error`, explained.
    """
    try:
        if OTHERS not in FOLLOWED:
            following()
            said = overridden(asking, args, kwargs)
            if said is not ABSENT:
                return said
            leave(OTHERS)
        if asking in REFLECTED and has_a_say(args[-1], REFLECTED[asking]):
            return NotImplemented  # Python asks the other one
        from .deprecated_orders import in_present_order

        older = in_present_order(asking.__name__, args, kwargs)
        if older is not None:
            warnings.warn(
                f"{asking.__name__}: this order of arguments is deprecated; "
                f"{', '.join(older[1])} after the tensors, by name",
                stacklevel=3,
            )
            return asking(*older[0], **older[1])
        error = explained(error, function, args, kwargs)
        if error is sys.exc_info()[1]:
            if isinstance(error, AdjointError):
                placed(error, _public_name(asking) or _public_name(function))
            cut(error)
            raise  # what the caller handles; so this frame is not added
        try:
            raise error
        except AdjointError:
            cut(error)
            raise
    finally:
        del error, args, kwargs  # this frame is in the traceback: a cycle, with all tensors in it


def has_a_say(right: object, name: str) -> bool:
    """Whether the right operand of an operator is of a user-defined class with that method, or a
    comparison with an object of any class, which Python answers by identity. Numbers, arrays and
    PyTorch's tensors have it, too, but would return NotImplemented.
    """
    kind = type(right)
    if isinstance(right, TensorBase) or _top(kind) in ("numpy", "torch"):
        return False
    if name in ("__eq__", "__ne__"):
        return not isinstance(right, (bool, int, float, complex))
    own = getattr(kind, name, None)
    return _top(kind) != "builtins" and own is not None and own is not getattr(object, name, None)


def _is_ambiguous(error: Exception) -> bool:
    return isinstance(error, ValueError) and "truth value" in str(error)


def _culprit(error: Exception, calls: list[tuple[str, Mapping[str, Any]]]) -> Any:
    """The argument that `error` is about; `_NONE` where there is none."""
    text = str(error)
    if isinstance(error, ValueError) and not _is_ambiguous(error):
        return _NONE
    asked = getattr(error, "obj", None)  # which Cython's errors do not say
    is_argument = asked is not None and any(_place(asked, arguments) for _, arguments in calls)
    if is_argument and _is_foreign(asked):
        return asked
    for _, arguments in calls:
        for value in arguments.values():
            several = value if isinstance(value, (list, tuple)) else ()
            for each in (*several, value):
                if _is_foreign(each) and _is_named(type(each), text, error):
                    return each
    if isinstance(error, (AttributeError, TypeError)):
        for _, arguments in calls:
            for value in arguments.values():
                if _is_foreign(value) and hasattr(value, "dtype") and hasattr(value, "shape"):
                    return value  # an array, of which a method was called that tensors have, too
    return _NONE


def _annotated(error: Exception, signature: inspect.Signature, arguments: Mapping[str, Any]) -> Any:
    """The argument that is no tensor though the signature says so; `_NONE` where there is none."""
    if isinstance(error, (AttributeError, TypeError)):
        for name, value in arguments.items():
            parameter = signature.parameters[name]
            kinds = str(parameter.annotation).split(" | ")
            if "Tensor" not in kinds or set(kinds) - {"Tensor", "None"}:
                continue
            if isinstance(value, TensorBase) or (value is None and "None" in kinds):
                continue
            if parameter.kind is not parameter.VAR_POSITIONAL:
                return value
    return _NONE


def _is_named(kind: type, text: str, error: Exception) -> bool:
    if _is_ambiguous(error):
        return _top(kind) in ("numpy", "torch")
    full = f"{kind.__module__}.{kind.__name__}"
    return f"'{kind.__name__}'" in text or f"'{full}'" in text or full in text


def _is_foreign(value: object) -> bool:
    """Whether a value may have been taken for a tensor."""
    return not isinstance(value, (TensorBase, type(sys))) and not is_ours(type(value).__module__)


def _innermost(trace: TracebackType | None) -> str:
    """The module in which an error was raised."""
    module = ""
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        trace = trace.tb_next
    return module


def _place(value: object, arguments: Mapping[str, Any]) -> str:
    """The argument that is `value`, or a sequence in which it is; empty where there is none."""
    for name, passed in arguments.items():
        if passed is value:
            return name
        if isinstance(passed, (list, tuple)):
            for i, each in enumerate(passed):
                if each is value:
                    return f"{name}[{i}]"
    return ""


def _calls(frame: FrameType | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The package's public functions and layers on the call stack, outermost first: pairs of a name
    and the arguments by name. Wrappers, which take any arguments, are left out, as is what has no
    frames where the core is compiled.
    """
    frames = []
    while frame is not None and is_ours(frame.f_globals.get("__name__", "")):
        if frame.f_globals["__name__"] not in MODULES:
            frames.append(frame)
        frame = frame.f_back
    for each in reversed(frames):
        code = each.f_code
        name = code.co_name
        values = each.f_locals
        owner = values.get("self")
        layer = name in ("forward", "__init__") and owner is not None
        if layer:
            name = type(owner).__name__
        elif (
            name.startswith(("_", "assert_"))
            or name not in each.f_globals.get("__all__", (name,))
            or (owner is None and name not in each.f_globals)
        ):
            continue
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if {"args", "kwargs"}.issubset(names):
            continue
        yield name, {arg: values[arg] for arg in names if arg in values and arg != "self"}


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # those of C
        return None


def _bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}


def _name(function: Callable[..., Any]) -> str:
    owner = getattr(function, "__self__", None)  # a layer's `forward`
    return type(owner).__name__ if owner is not None else function.__name__
