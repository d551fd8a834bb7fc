"""Plans of composites for tensors of any sizes: a composite is captured with symbols for the sizes,
and what its body, its gradient and its kernels decided by them is a guard.

For other sizes a plan is filled in from the one that was captured (`docs/inside/sizes.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..core import policy
from ..core.symbolic_sizes import Filling, KernelGraph

if TYPE_CHECKING:
    from typing import TypeAlias

P = TypeVar("P", bound="Sized")
# From the floats that come with a call to the scalars of its kernels; None where they decide
# otherwise.
Scalars: TypeAlias = "Callable[..., tuple[float, ...] | None]"


class Sized(Protocol):
    """A plan whose sizes may be symbols."""

    sources: list[object]  # of the scalars of its kernels

    def sized(self: P, fill: Filling, floats: Sequence[float], scalars: Scalars | None) -> P | None:
        """The plan for other sizes and floats, of which `scalars` computes those of its kernels;
        None where they decide otherwise.
        """


class PlanPattern(Generic[P]):
    """A plan for all sizes that decide as those did with which it was captured; or the reason why
    there is none for these.
    """

    __slots__ = ("_asked", "_plan", "_refusal", "_run")

    def __init__(
        self, capture: Callable[[KernelGraph], P], why: Callable[[Exception], str]
    ) -> None:
        """`capture` makes the plan with symbols of a recording; `why` says, or raises, what its
        errors mean.
        """
        graph = KernelGraph()
        self._plan: P | None = None
        self._refusal = ""
        fill = Filling(graph.values)
        sources: list[object] = []
        try:
            plan = capture(graph)
            plan.sized(fill, (), None)  # what it fills in
        except Exception as error:
            self._refusal = why(error)
        else:
            self._plan, sources = plan, plan.sources
        self._asked = list(fill.asked)
        # A zero behind them: a function of no sizes would give no tuple.
        self._run = graph.function(sources, graph.floats, [*fill.asked.values(), 0])
        graph.close()

    def plan(self, sizes: Sequence[int], floats: Sequence[float]) -> P | str | None:
        """The plan for these sizes and floats, or why there is none; None where they decide
        otherwise.
        """
        bound = self._run(*sizes)
        if bound is None:
            return None
        values, scalars = bound
        if self._plan is None:
            return None if scalars(*floats) is None else self._refusal
        fill = Filling((), dict(zip(self._asked, values, strict=False)))
        return self._plan.sized(fill, floats, scalars)


class PlanPatterns(Generic[P]):
    """The patterns of one kind of call, of which the latest comes first."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: list[PlanPattern[P]] = []

    def find(self, sizes: Sequence[int], floats: Sequence[float]) -> P | str | None:
        """The plan for these sizes and floats, or why there is none, by a pattern that is there."""
        for pattern in self._made:
            plan = pattern.plan(sizes, floats)
            if plan is not None:
                return plan
        return None

    def plan(
        self, sizes: Sequence[int], floats: Sequence[float], make: Callable[[], PlanPattern[P]]
    ) -> P | str:
        """The plan for these sizes and floats, or why there is none, by a pattern that is made
        where there is none.
        """
        plan = self.find(sizes, floats)
        if plan is not None:
            return plan
        pattern = make()
        if len(self._made) >= policy.SIZE_VARIANTS:
            self._made.pop()
        self._made.insert(0, pattern)
        plan = pattern.plan(sizes, floats)
        return "numbers of which it has no value" if plan is None else plan
