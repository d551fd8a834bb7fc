"""How a compiled function is called where it stands in a class, and what type checkers know of what
`ad.compile` returns.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from typing import Concatenate

    from .function import CompiledFunction, CompiledModule
    from .run.step import CompiledStep

P = ParamSpec("P")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - the object itself
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T", covariant=True)


class BoundWhenRead(Generic[P, R]):
    """Base of callable objects that are methods where they stand in a class, as functions are. They
    are called as `function` is, whose parameters P and result R a type checker knows.
    """

    function: Callable[P, R]

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the function."""

    @overload
    def __get__(self: O, instance: None, owner: type | None = None) -> O: ...
    @overload
    def __get__(
        self: BoundWhenRead[Concatenate[S, Q], T], instance: S, owner: type | None = None
    ) -> CompiledMethod[Q, T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


if TYPE_CHECKING:

    class CompiledMethod(Protocol[Q, T]):
        """A compiled function that stands in a class, read from an object: `explain` and `graph`
        are those of the function, which take the object first.
        """

        @property
        def __func__(self) -> CompiledFunction[..., T]: ...

        @property
        def reasons(self) -> list[str]:
            """See `CompiledFunction`."""

        @property
        def programs(self) -> list[CompiledStep]:
            """See `CompiledFunction.programs`."""

        def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> T:
            """Run the function."""

    class ModuleLike(Protocol[Q, T]):
        """A module, by how it is called."""

        _modules: dict[str, Any]

        def forward(self, *args: Q.args, **kwargs: Q.kwargs) -> T:
            """Compute the output."""

    class Compiler(Protocol):
        """The decorator that `ad.compile` with options is."""

        @overload
        def __call__(self, model: ModuleLike[P, R]) -> CompiledModule[P, R]: ...
        @overload
        def __call__(self, model: Callable[P, R]) -> CompiledFunction[P, R]: ...
