"""Transforms by where they lead: from all numbers to what a constraint allows.

Source: https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraint_registry
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import InvalidType, Unsupported
from . import constraints
from .constraints import Constraint
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Makes a transform for a constraint, by the constraint's class.

    >>> ad.distributions.transform_to(ad.distributions.constraints.positive)(ad.tensor(0.0))
    tensor(1.)
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Register `factory(constraint)`, which makes the transform for constraints of this class;
        a decorator where it is not given.

        Errors: InvalidType for what is no constraint.
        """
        if factory is None:
            return lambda made: self.register(constraint, made)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise InvalidType(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Any:
        """The transform for a constraint.

        Errors: Unsupported where there is none.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise Unsupported(
                f"Cannot transform {type(constraint).__name__} constraints; register a transform"
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _to_both(kind: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        biject_to.register(kind, factory)
        transform_to.register(kind, factory)
        return factory

    return register


_to_both(constraints.real)(lambda constraint: identity_transform)


@_to_both(constraints._GreaterThanEq)
@_to_both(constraints._GreaterThan)
def _above(constraint: Any) -> Any:
    bound = constraint.lower_bound
    if isinstance(bound, (int, float)) and bound == 0:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(bound, 1)])


@_to_both(constraints._LessThan)
def _below(constraint: Any) -> Any:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


@_to_both(constraints._HalfOpenInterval)
@_to_both(constraints._Interval)
def _between(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and low == 0 and isinstance(high, (int, float)) and high == 1:
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _of_events(registry: ConstraintRegistry) -> Any:
    def make(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    return make


def _of_parts(registry: ConstraintRegistry) -> Any:
    def make(constraint: Any) -> Any:
        parts = [registry(each) for each in constraint.cseq]
        return CatTransform(parts, constraint.dim, constraint.lengths)

    return make


def _of_entries(registry: ConstraintRegistry) -> Any:
    return lambda constraint: StackTransform(list(map(registry, constraint.cseq)), constraint.dim)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _of_events(_registry))
    _registry.register(constraints.cat, _of_parts(_registry))
    _registry.register(constraints.stack, _of_entries(_registry))

_to_both(constraints.corr_cholesky)(lambda constraint: CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda constraint: PositiveDefiniteTransform())
