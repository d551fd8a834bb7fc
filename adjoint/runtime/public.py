"""Declarations of public functions: methods, in-place forms, `out=`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from ..core.argument_errors import MISTAKES, recovered
from ..core.errors import AdjointError
from ..core.keywords import concealing, unexpected
from ..core.mode import without_autocast
from ..core.op import Op
from ..core.overrides import ABSENT, FOLLOWED, overridden
from ..core.tracebacks import cut

if TYPE_CHECKING:
    from ..core.tensor_base import TensorBase

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
T = TypeVar("T", bound="TensorBase")

_NAMED: Any = object()  # separates positional from keyword arguments


def with_names(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Positional and keyword arguments of a call as one sequence, for its signature."""
    return (*args, _NAMED, *chain.from_iterable(kwargs.items()))


METHODS: dict[str, Callable[..., Any]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def public(
    *, method: bool | str = True, inplace: bool = False, out: bool = False, plain: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Declare a public function: `method` makes it a Tensor method too (under another name if a
    string), `inplace` adds the method with a trailing underscore, `out` the keyword `out=`. A
    `plain` one runs so shortly that Python alone looks at its keywords.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        FUNCTIONS[name] = function
        # one object: overrides are asked about the method by its name
        named = function if plain else naming(function)
        accepting = _with_numpy_names(function)
        accepting = named if accepting is function else accepting
        if method:
            METHODS[method if isinstance(method, str) else name] = accepting
        if inplace:
            INPLACE[f"{name}_"] = accepting
        # another object than the method, as in PyTorch: overrides tell the two from each other
        if out:
            return with_out(function)
        return named if accepting is named else _with_numpy_names(function)

    return declare


INPLACE: dict[str, Callable[..., Any]] = {}


def _with_numpy_names(function: Callable[..., R]) -> Callable[..., R]:
    """Make `function` accept `axis` and `keepdims`, NumPy's names, for `dim` and `keepdim`."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "dim" not in names:
        return function

    @functools.wraps(function)
    def accepting(*args: Any, **kwargs: Any) -> R:
        if FOLLOWED:
            said = overridden(accepting, args, kwargs)
            if said is not ABSENT:
                return said
        if kwargs:
            if "axis" in kwargs:
                kwargs["dim"] = kwargs.pop("axis")
            if "keepdims" in kwargs:
                kwargs["keepdim"] = kwargs.pop("keepdims")
        try:
            return function(*args, **kwargs) if kwargs else function(*args)
        except MISTAKES as error:
            return recovered(error, accepting, function, args, kwargs)

    return accepting


def naming(function: F) -> F:
    """Declare a function: a keyword that it does not take is an error that says what was meant, and
    errors show none of the frames below it. One that takes all keywords, or has nothing that may be
    left out, stays as it is.

    Errors: InvalidType.
    """
    code = function.__code__
    if code.co_flags & inspect.CO_VARKEYWORDS:
        others = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
        return concealing(function) if "others" in others[:2] else function
    if not function.__defaults__ and not function.__kwdefaults__:
        return function
    count = code.co_argcount + code.co_kwonlyargcount
    names = frozenset(code.co_varnames[code.co_posonlyargcount : count])

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not names.issuperset(kwargs):
            raise unexpected(function, kwargs)
        try:
            return function(*args, **kwargs) if kwargs else function(*args)
        except AdjointError as error:
            cut(error)
            raise error  # a bare one would bring this frame twice

    return cast(F, named)


def explaining(function: F) -> F:
    """Declare a function whose errors name the argument that should have been a tensor, as the
    other declarations here do.
    """
    if function.__code__.co_name == "named":  # which this one does, too
        function = vars(function)["__wrapped__"]

    @functools.wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Any:
        if FOLLOWED:
            said = overridden(explained, args, kwargs)
            if said is not ABSENT:
                return said
        try:
            return function(*args, **kwargs)
        except MISTAKES as error:
            return recovered(error, explained, function, args, kwargs)

    return cast(F, explained)


def with_out(function: F) -> F:
    """Add the keyword `out=` (alone for functions that are found only in modules such as `linalg`;
    `public(out=True)` does it for the others).
    """
    accepting = _with_numpy_names(function)

    @functools.wraps(function)
    def writing_out(*args: Any, out: object = None, **kwargs: Any) -> Any:
        if FOLLOWED:
            said = overridden(writing_out, args, kwargs if out is None else {**kwargs, "out": out})
            if said is not ABSENT:
                return said
        if out is None:
            try:
                return accepting(*args, **kwargs) if kwargs else function(*args)
            except MISTAKES as error:
                return recovered(error, writing_out, function, args, kwargs)
        return write_out(without_autocast(accepting, *args, **kwargs), out, function.__name__)

    return cast(F, writing_out)


def in_place_doc(name: str) -> str:
    """The docstring of the method with a trailing underscore."""
    return (
        f"In-place version of `{name}`: writes into this tensor's memory and returns it.\n\n"
        f"    Errors: those of `{name}`; AutogradError for a leaf that requires grad.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}_.html\n"
    )


def rebinding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the in-place method of a function that returns a view: the tensor becomes that view
    of its own memory.
    """
    name = f"{function.__name__}_"

    def in_place(input: Any, *args: Any, **kwargs: Any) -> Any:
        return rebind(name, input, lambda old: function(old, *args, **kwargs))

    in_place.__name__ = in_place.__qualname__ = name
    in_place.__doc__ = in_place_doc(function.__name__)
    functools.update_wrapper(in_place, function, (), ())  # its signature
    METHODS[name] = explaining(in_place)
    return function


def _not_connected(*_: object) -> NoReturn:
    raise RuntimeError("adjoint.tensor has not been imported")


_write_out: Callable[..., Any] = _not_connected
_write: Callable[..., Any] = _not_connected
_rebind: Callable[..., Any] = _not_connected
_write_anew: Callable[..., bool] = _not_connected


def connect(
    out: Callable[..., Any],
    write: Callable[..., Any],
    rebind_to: Callable[..., Any],
    anew: Callable[..., bool],
) -> None:
    """Set the functions that write results into existing memory (see autograd/wiring.py)."""
    global _write_out, _write, _rebind, _write_anew
    _write_out, _write, _rebind, _write_anew = out, write, rebind_to, anew


def write_out(result: object, out: R, name: str) -> R:
    """Copy `result` (a tensor or a tuple of them) into `out` and return `out`."""
    return _write_out(result, out, name)


def write_in_place(name: str, op: Op, tensor: T, *inputs: Any) -> T:
    """Change the memory of `tensor` by `op.write`; error messages call it `name`."""
    return _write(name, op, tensor, *inputs)


def rebind(name: str, tensor: T, function: Callable[[Any], Any]) -> T:
    """Make `tensor` the view of itself that `function` returns."""
    return _rebind(name, tensor, function)


def write_anew(
    owner: object,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call_args: tuple[Any, ...],
) -> bool:
    """Compile a kernel that writes `function(*args, **kwargs)` over the first of `args`, and run
    it.
    """
    return _write_anew(owner, name, function, args, kwargs, call_args)
