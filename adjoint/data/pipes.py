"""Pipes: datasets made of one another, whose classes become methods of each other.

PyTorch's own pipes (`map`, `batch`, ...) are not here: a generator over a dataset does what they
do. These are the classes and decorators for pipes of one's own.

Source: https://docs.pytorch.org/docs/stable/data.html

>>> @ad.utils.data.functional_datapipe("doubled")
... class Doubled(ad.utils.data.IterDataPipe):
...     def __init__(self, source): self.source = source
...     def __iter__(self): return (2 * x for x in self.source)
>>> class Numbers(ad.utils.data.IterDataPipe):
...     def __iter__(self): return iter(range(3))
>>> list(Numbers().doubled())
[0, 2, 4]
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ..core.errors import AdjointError, InvalidArgument, InvalidType
from .dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation",
    "functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic",
    "runtime_validation", "runtime_validation_disabled",
]  # fmt: skip


class InvalidatedIterator(AdjointError, RuntimeError):  # noqa: N818 - reads as what happened
    """A pipe was iterated a second time, which ends the first iteration."""


class _Functional:
    """Base of both kinds of pipes: registered classes are their methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name) if not name.startswith("__") else None
        if found is None:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute {name!r}: functional_datapipe "
                "makes one of a class; PyTorch's own pipes are not here"
            )
        return functools.partial(found, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Register `pipe.function_name(...)` as `function(pipe, ...)`."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Make `pipe.function_name(...)` construct a `cls_to_register` of the pipe.

        Errors: InvalidArgument where there is such a method already.
        """
        if function_name in cls.functions:
            raise InvalidArgument(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


class _Watched:
    """An iteration that ends when the pipe is iterated again."""

    def __init__(self, pipe: IterDataPipe, iterator: Iterator[Any]) -> None:
        pipe.__dict__["_iterations"] = self.number = pipe.__dict__.get("_iterations", 0) + 1
        self.pipe, self.iterator = pipe, iterator

    def __iter__(self) -> _Watched:
        return self

    def __next__(self) -> Any:
        if self.pipe.__dict__["_iterations"] != self.number:
            raise InvalidatedIterator(
                "This iterator has been invalidated because another iterator has been created from "
                f"the same IterDataPipe: {self.pipe!r}"
            )
        return next(self.iterator)


class IterDataPipe(_Functional, IterableDataset[Any]):
    """A pipe that is iterated; one iteration at a time.

    Errors: InvalidatedIterator, a RuntimeError, from an iteration when another one has begun.
    Source: https://docs.pytorch.org/docs/stable/data.html

    >>> class Numbers(ad.utils.data.IterDataPipe):
    ...     def __iter__(self): return iter(range(3))
    >>> list(Numbers())
    [0, 1, 2]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__iter__")
        if own is None:
            return

        @functools.wraps(own)
        def watched(self: Any) -> Any:
            self.reset()
            return _Watched(self, iter(own(self)))

        cls.__iter__ = watched  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[Any]:
        return self  # type: ignore[return-value]

    def reset(self) -> None:
        """Begin anew: called before each iteration."""


class DFIterDataPipe(IterDataPipe):
    """A pipe of tables."""

    def _is_dfpipe(self) -> bool:
        return True


class MapDataPipe(_Functional, Dataset[Any]):
    """A pipe that is indexed.

    Source: https://docs.pytorch.org/docs/stable/data.html

    >>> class Squares(ad.utils.data.MapDataPipe):
    ...     def __getitem__(self, i): return i * i
    >>> Squares()[3]
    9
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DataChunk(list[Any]):
    """Several examples of a pipe as one list.

    >>> ad.utils.data.DataChunk([1, 2]).as_str()
    '[1, 2]'
    """

    def __init__(self, items: Iterable[Any]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The examples as text."""
        return f"{indent}[{', '.join(str(each) for each in self)}]"

    def raw_iterator(self) -> Iterator[Any]:
        """The examples as they were given."""
        yield from self.items


class functional_datapipe:  # noqa: N801 - PyTorch's name
    """A decorator that makes a class of pipes a method `name` of all others of its kind.

    Errors: InvalidArgument where the name is taken.
    Source: https://docs.pytorch.org/docs/stable/data.html

    >>> @ad.utils.data.functional_datapipe("negated")
    ... class Negated(ad.utils.data.MapDataPipe):
    ...     def __init__(self, source): self.source = source
    ...     def __getitem__(self, i): return -self.source[i]
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        """The class itself."""
        kind = cls.cls if isinstance(cls, non_deterministic) else cls
        for base in (IterDataPipe, MapDataPipe):
            if isinstance(kind, type) and issubclass(kind, base):
                base.register_datapipe_as_function(self.name, cls)
        return cls


# ---- determinism ---------------------------------------------------------------------------------

_switches = {"deterministic": False, "validates": True}


class _Switch:
    name: str
    value: bool

    def __enter__(self) -> None:
        """Nothing to do: the constructor has set it."""

    def __exit__(self, *error: object) -> None:
        _switches[self.name] = self.prev

    def __init__(self) -> None:
        self.prev = _switches[self.name]
        _switches[self.name] = self.value


class guaranteed_datapipes_determinism(_Switch):  # noqa: N801 - PyTorch's name
    """A block in which pipes that are marked `non_deterministic` are refused.

    >>> with ad.utils.data.guaranteed_datapipes_determinism():
    ...     pass
    """

    name, value = "deterministic", True


class non_deterministic:  # noqa: N801 - PyTorch's name
    """A decorator of pipes whose order is not always the same: always, or where a function of the
    arguments they are made with says so.

    Errors: InvalidType for what is no class of pipes; InvalidArgument where such a pipe is made
    inside `guaranteed_datapipes_determinism`.
    """

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        self.says: Any = None
        if isinstance(arg, type):
            self._take(arg)
        elif callable(arg):
            self.says = arg
        else:
            raise InvalidType(f"{arg} can not be decorated by non_deterministic")

    def _take(self, cls: Any) -> None:
        if not isinstance(cls, type) or not issubclass(cls, IterDataPipe):
            raise InvalidType(
                f"Only `IterDataPipe` can be decorated with `non_deterministic`, but "
                f"{getattr(cls, '__name__', cls)} is found"
            )
        self.cls = cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A pipe of the class that is marked; before, marks one."""
        if self.cls is None:
            self._take(args[0] if args else None)
            return self
        if _switches["deterministic"] and (self.says is None or self.says(*args, **kwargs)):
            raise InvalidType(
                f"{self.cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_"
                "determinism'. You can turn off determinism for this DataPipe if that is acceptable"
            )
        return self.cls(*args, **kwargs)


# ---- types ---------------------------------------------------------------------------------------


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of functions: arguments that are annotated as pipes must be some.

    Errors: InvalidType for others.
    """
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints = typing.get_type_hints(f)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind: Any = typing.get_origin(hints.get(name)) or hints.get(name)
            piped = isinstance(kind, type) and issubclass(kind, IterDataPipe)
            if piped and not isinstance(value, kind):
                raise InvalidType(
                    f"Expected argument '{name}' as a {kind.__name__}, but found {type(value)}"
                )
        return f(*args, **kwargs)

    return checked


class runtime_validation_disabled(_Switch):  # noqa: N801 - PyTorch's name
    """A block in which `runtime_validation` checks nothing.

    >>> with ad.utils.data.runtime_validation_disabled():
    ...     pass
    """

    name, value = "validates", False


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of `__iter__`: what it gives must be of the type that its annotation
    `Iterator[T]` says.

    Errors: InvalidArgument from the iteration; InvalidType for other functions than `__iter__`.
    """
    if f.__name__ != "__iter__":
        raise InvalidType(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        arguments = typing.get_args(typing.get_type_hints(f).get("return"))
        kind = typing.get_origin(arguments[0]) or arguments[0] if arguments else object
        for each in f(self):
            if _switches["validates"] and isinstance(kind, type) and not isinstance(each, kind):
                raise InvalidArgument(
                    f"Expected an instance as subtype of {kind}, but found {each}({type(each)})"
                )
            yield each

    return checked
