"""Constraints on parameters and values of distributions.

Source: https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.errors import Unsupported
from ..ops.linalg.matrix_factors import cholesky_ex, eigvalsh
from ..ops.shape.concatenation import cat as _join
from ..ops.shape.concatenation import stack as _pile

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector",
    "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values; `check` says which elements of a tensor lie in it.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.constraints.Constraint

    >>> ad.distributions.constraints.positive.check(ad.tensor([1., -1.]))
    tensor([ True, False])
    """

    is_discrete: Any = False
    event_dim: Any = 0  # how many of the last dimensions a value has
    bounds: ClassVar[tuple[str, ...]] = ()  # attributes that are shown

    def check(self, value: Any) -> Any:
        """A bool tensor of the value's batch shape."""
        raise Unsupported(f"{type(self).__name__}.check is not defined")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self.bounds)
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Bounded(Constraint):
    """Base of those with bounds, numbers or tensors, which their names say."""

    def __init__(self, *bounds: Any, **named: Any) -> None:
        given = {**dict(zip(self.bounds, bounds, strict=False)), **named}
        for name in self.bounds:
            setattr(self, name, given[name])


class _GreaterThan(_Bounded):
    """Values above a bound."""

    bounds = ("lower_bound",)
    lower_bound: Any

    def check(self, value: Any) -> Any:
        """Whether values exceed the bound."""
        return value > self.lower_bound


class _GreaterThanEq(_GreaterThan):
    """Values from a bound on."""

    def check(self, value: Any) -> Any:
        """Whether values are at least the bound."""
        return value >= self.lower_bound


class _LessThan(_Bounded):
    """Values below a bound."""

    bounds = ("upper_bound",)
    upper_bound: Any

    def check(self, value: Any) -> Any:
        """Whether values are below the bound."""
        return value < self.upper_bound


class _Interval(_Bounded):
    """Values between two bounds, both included."""

    bounds = ("lower_bound", "upper_bound")
    lower_bound: Any
    upper_bound: Any

    def check(self, value: Any) -> Any:
        """Whether values are within the closed interval."""
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Values from one bound to below another."""

    def check(self, value: Any) -> Any:
        """Whether values are within the interval, its upper end excluded."""
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_Interval):
    """Whole numbers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        """Whether values are within the interval and integral (no remainder of a division by 1)."""
        return _are_whole(value, super().check(value))


class _IntegerGreaterThan(_GreaterThanEq):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        """Whether values are at least the bound and integral (no remainder of a division by 1)."""
        return _are_whole(value, super().check(value))


def _are_whole(x: Any, inside: Any) -> Any:
    """`inside`, where elements are whole numbers; those of integer dtypes are."""
    return inside & (x % 1 == 0) if x.dtype.is_floating_point else inside


class _Multinomial(_Bounded):
    """Vectors of counts with a sum of at most a bound."""

    bounds = ("upper_bound",)
    upper_bound: Any
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        """Whether counts are not negative and their sum is at most the bound."""
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        """Whether values are 0 or 1."""
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of zeros and one 1."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        """Whether vectors consist of 0 and 1 and their sum is 1."""
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Real(Constraint):
    """All numbers but NaN."""

    def check(self, value: Any) -> Any:
        """NaN is not equal to itself."""
        return value == value


class _Simplex(Constraint):
    """Vectors of shares."""

    event_dim = 1

    def check(self, value: Any) -> Any:
        """Whether vectors have no negative element and sum 1."""
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Any) -> Any:
        """Whether the last two dimensions are equal."""
        return value.new_full(value.shape[:-2], value.shape[-2] == value.shape[-1]).bool()


class _LowerTriangular(_Square):
    """Matrices with zeros above the diagonal."""

    def check(self, value: Any) -> Any:
        """Whether all elements above the diagonal are 0."""
        return (value.tril() == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower-triangular matrices with a positive diagonal."""

    def check(self, value: Any) -> Any:
        """Whether matrices are lower-triangular with a positive diagonal."""
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: their rows have length 1."""

    def check(self, value: Any) -> Any:
        """Whether the sum of squares of each row is 1, besides the base's check."""
        return super().check(value) & ((value.square().sum(-1) - 1).abs() < 1e-5).all(-1)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Any) -> Any:
        """Whether matrices equal their transposes."""
        other = value.mT
        return ((value - other).abs() <= 1e-6 + 1e-5 * other.abs()).all(-1).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Any) -> Any:
        """Whether all eigenvalues are at least 0."""
        return super().check(value) & (eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    def check(self, value: Any) -> Any:
        """Whether a Cholesky factorization exists."""
        return super().check(value) & (cholesky_ex(value).info == 0)


class _IndependentConstraint(Constraint):
    """`base_constraint` for all elements of the last dimensions together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        """Whether the base constraint holds for all elements of an event together."""
        result = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            result = result.all(-1)
        return result

    def __repr__(self) -> str:
        inner = f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"
        return f"{type(self).__name__[1:]}({inner})"


class MixtureSameFamilyConstraint(Constraint):
    """`base_constraint` for values that a dimension of components is to be added to.

    >>> c = ad.distributions.constraints
    >>> c.MixtureSameFamilyConstraint(c.positive).check(ad.ones(2))
    tensor([True, True])
    """

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim

    def check(self, value: Any) -> Any:
        """Whether the base constraint holds for all components together."""
        events = self.event_dim
        result = self.base_constraint.check(value.unsqueeze(-1 - events))
        return result.all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Parts(Constraint):
    """Base of constraints for each part of a tensor along `dim`."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        self.cseq = list(cseq)
        self.dim = dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class _Cat(_Parts):
    """Constraint of concatenated parts of `lengths`, each with its own."""

    def check(self, value: Any) -> Any:
        """Part by part."""
        parts = value.split(self.lengths, self.dim)
        return _join([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Parts):
    """Constraint of stacked entries, each with its own."""

    def check(self, value: Any) -> Any:
        """Entry by entry."""
        parts = value.unbind(self.dim)
        return _pile([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


class _Dependent(Constraint):
    """Constraint that depends on other values; a call sets its known properties."""

    def __init__(self, *, is_discrete: Any = False, event_dim: Any = 0) -> None:
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def __call__(self, *, is_discrete: Any = None, event_dim: Any = None) -> _Dependent:
        """A copy with the given properties."""
        return _Dependent(
            is_discrete=self.is_discrete if is_discrete is None else is_discrete,
            event_dim=self.event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Any) -> Any:
        """Refused: the constraint depends on values that are not known here."""
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other values.

    >>> ad.distributions.constraints.is_dependent(ad.distributions.constraints.positive)
    False
    """
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):  # noqa: N801 - PyTorch's name
    """A property that is a constraint; of the class, one that depends on other values.

    >>> class Mine(ad.distributions.Distribution):
    ...     @ad.distributions.constraints.dependent_property(is_discrete=False, event_dim=0)
    ...     def support(self):
    ...         return ad.distributions.constraints.greater_than(self.low)
    >>> ad.distributions.constraints.is_dependent(Mine.support)
    True
    """

    def __init__(self, fn: Any = None, *, is_discrete: Any = False, event_dim: Any = 0) -> None:
        property.__init__(self, fn)
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def __call__(self, fn: Any) -> dependent_property:  # type: ignore[override]
        """Decorates a method; the constructor had the arguments."""
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
interval = _Interval
half_open_interval = _HalfOpenInterval
integer_interval = _IntegerInterval
multinomial = _Multinomial
independent = _IndependentConstraint
cat = _Cat
stack = _Stack

dependent = _Dependent()
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
real_vector = independent(real, 1)
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
