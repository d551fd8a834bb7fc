"""Where parameters and values of distributions lie.

Source: https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.linalg.linalg import cholesky_ex

__all__ = [
    "Constraint", "boolean", "corr_cholesky", "dependent", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "less_than",
    "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer",
    "one_hot", "positive", "positive_definite", "positive_integer", "real", "real_vector",
    "simplex", "square", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values; `check` says which elements of a tensor lie in it.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.constraints.Constraint

    >>> ad.distributions.constraints.positive.check(ad.tensor([1., -1.]))
    tensor([ True, False])
    """

    def __init__(
        self, name: str, check: Callable[[Any], Any], is_discrete: bool = False, event_dim: int = 0
    ) -> None:
        self.name = name
        self._check = check
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def check(self, value: Any) -> Any:
        """A bool tensor of the value's batch shape."""
        return self._check(value)

    def __repr__(self) -> str:
        return self.name


def greater_than(lower_bound: Any) -> Constraint:
    """Values above a bound.

    >>> ad.distributions.constraints.greater_than(2.0).check(ad.tensor(3.0))
    tensor(True)
    """
    return Constraint(f"GreaterThan(lower_bound={lower_bound})", lambda x: x > lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Values from a bound on.

    >>> ad.distributions.constraints.greater_than_eq(2.0).check(ad.tensor(2.0))
    tensor(True)
    """
    return Constraint(f"GreaterThanEq(lower_bound={lower_bound})", lambda x: x >= lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Values below a bound.

    >>> ad.distributions.constraints.less_than(2.0).check(ad.tensor(2.0))
    tensor(False)
    """
    return Constraint(f"LessThan(upper_bound={upper_bound})", lambda x: x < upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Values between two bounds, both included.

    >>> ad.distributions.constraints.interval(0, 1).check(ad.tensor(2.0))
    tensor(False)
    """
    return Constraint(
        f"Interval(lower_bound={lower_bound}, upper_bound={upper_bound})",
        lambda x: (x >= lower_bound) & (x <= upper_bound),
    )


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Values from one bound to below another.

    >>> ad.distributions.constraints.half_open_interval(0, 1).check(ad.tensor(1.0))
    tensor(False)
    """
    return Constraint(
        f"HalfOpenInterval(lower_bound={lower_bound}, upper_bound={upper_bound})",
        lambda x: (x >= lower_bound) & (x < upper_bound),
    )


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers between two bounds, both included.

    >>> ad.distributions.constraints.integer_interval(0, 3).check(ad.tensor([3.0, 1.5]))
    tensor([ True, False])
    """
    return Constraint(
        f"IntegerInterval(lower_bound={lower_bound}, upper_bound={upper_bound})",
        lambda x: _are_whole(x, (x >= lower_bound) & (x <= upper_bound)),
        is_discrete=True,
    )


def multinomial(upper_bound: Any) -> Constraint:
    """Vectors of counts with a given sum.

    >>> ad.distributions.constraints.multinomial(3).check(ad.tensor([1., 2.]))
    tensor(True)
    """
    return Constraint(
        f"Multinomial(upper_bound={upper_bound})",
        lambda x: (x >= 0).all(-1) & (x.sum(-1) <= upper_bound),
        is_discrete=True,
        event_dim=1,
    )


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """`base` for all elements of the last dimensions together.

    >>> c = ad.distributions.constraints
    >>> c.independent(c.real, 1).check(ad.zeros(2, 3))
    tensor([True, True])
    """

    def check(x: Any) -> Any:
        result = base.check(x)
        for _ in range(reinterpreted_batch_ndims):
            result = result.all(-1)
        return result

    return Constraint(
        f"IndependentConstraint({base}, {reinterpreted_batch_ndims})",
        check,
        base.is_discrete,
        base.event_dim + reinterpreted_batch_ndims,
    )


def _are_whole(x: Any, inside: Any) -> Any:
    """`inside`, where elements are whole numbers; those of integer dtypes are."""
    return inside & (x % 1 == 0) if x.dtype.is_floating_point else inside


def _is_lower_cholesky(x: Any) -> Any:
    lower = (x.tril() == x).all(-1).all(-1)
    return lower & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _is_symmetric(x: Any) -> Any:
    return ((x - x.mT).abs() <= 1e-6 + 1e-5 * x.mT.abs()).all(-1).all(-1)


def _is_positive_definite(x: Any) -> Any:
    return _is_symmetric(x) & (cholesky_ex(x).info == 0)


boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True)
one_hot = Constraint(
    "OneHot()",
    lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1),
    is_discrete=True,
    event_dim=1,
)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: _are_whole(x, x >= 0), is_discrete=True
)
positive_integer = Constraint(
    "IntegerGreaterThan(lower_bound=1)", lambda x: _are_whole(x, x >= 1), is_discrete=True
)
dependent = Constraint("Dependent()", lambda x: x == x)
real = Constraint("Real()", lambda x: x == x)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
real_vector = independent(real, 1)
simplex = Constraint(
    "Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), event_dim=1
)
lower_triangular = Constraint(
    "LowerTriangular()", lambda x: (x.tril() == x).all(-1).all(-1), event_dim=2
)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, event_dim=2)
corr_cholesky = Constraint(
    "CorrCholesky()",
    lambda x: _is_lower_cholesky(x) & ((x.square().sum(-1) - 1).abs() < 1e-5).all(-1),
    event_dim=2,
)
square = Constraint(
    "Square()", lambda x: x.new_full(x.shape[:-2], x.shape[-2] == x.shape[-1]).bool(), event_dim=2
)
symmetric = Constraint("Symmetric()", _is_symmetric, event_dim=2)
positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, event_dim=2)
