"""A change of variables and its inverse: the base of transforms."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument, Unsupported
from . import constraints

__all__ = ["Transform"]


class Transform:
    """A function y = f(x) between constrained spaces, with log|dy/dx|.

    Subclasses define `domain`, `codomain`, `_call`, and where they exist `_inverse` and
    `log_abs_det_jacobian`. With `cache_size=1` the last pair of x and y is kept: the inverse of
    that very y is that x, without rounding, and also where there is no `_inverse`.
    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.Transform

    >>> t = ad.distributions.ExpTransform()
    >>> t.inv(t(ad.tensor(2.0)))
    tensor(2.)
    """

    bijective: bool = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise InvalidArgument(f"cache_size must be 0 or 1, not {cache_size!r}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)  # a name that subclasses elsewhere read
        super().__init__()  # of what a class derives from besides

    def __getstate__(self) -> Any:
        """State to copy and pickle: without the pair that is kept, which may have a graph."""
        state = getattr(super(), "__getstate__", self.__dict__.copy)()
        return {**state, "_cached_x_y": (None, None)}

    @property
    def event_dim(self) -> int:
        """The dimensions of an event, where they are the same on both sides."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise InvalidArgument(
            "Please use either .domain.event_dim or .codomain.event_dim: "
            f"{self.domain.event_dim} and {self.codomain.event_dim}"
        )

    @property
    def inv(self) -> Any:
        """The inverse transform."""
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        """1 for an increasing function, -1 for a decreasing one."""
        raise Unsupported(f"{type(self).__name__}.sign is not defined")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """A transform with the same parameters, that keeps the last pair of x and y or does not."""
        if cache_size == self._cache_size:
            return self
        new = copy.copy(self)
        new._cache_size = cache_size
        return new

    def __call__(self, x: Any) -> Any:
        """f(x)."""
        if not self._cache_size:
            return self._call(x)
        old, y = self._cached_x_y
        if x is not old:
            y = self._call(x)
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        if not self._cache_size:
            return self._inverse(y)
        x, old = self._cached_x_y
        if y is not old:
            x = self._inverse(y)
            self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise Unsupported(f"{type(self).__name__}._call is not defined")

    def _inverse(self, y: Any) -> Any:
        raise Unsupported(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log|dy/dx| for an input and its output."""
        raise Unsupported(f"{type(self).__name__}.log_abs_det_jacobian is not defined")

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of the output for an input of `shape`."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of the input for an output of `shape`."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Plain(Transform):
    """Base of transforms without parameters: equal to every other of their class."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class _InverseTransform(Transform):
    """The inverse of a bijective transform, which keeps what is kept."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._transform = transform

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The inverse of the transform with or without what it keeps."""
        return _InverseTransform(self._transform.with_cache(cache_size))

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform is bijective, as for the transform."""
        return self._transform.bijective

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The transform's codomain."""
        return self._transform.codomain

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The transform's domain."""
        return self._transform.domain

    @property
    def sign(self) -> Any:
        """Sign of the transform's derivative."""
        return self._transform.sign

    @property
    def inv(self) -> Any:
        """The transform itself."""
        return self._transform

    def _call(self, x: Any) -> Any:
        return self._transform._inv_call(x)

    def _inverse(self, y: Any) -> Any:
        return self._transform(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The transform's, negated."""
        return -self._transform.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The transform's inverse shape."""
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The transform's forward shape."""
        return self._transform.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._transform == other._transform

    def __hash__(self) -> int:
        return hash((_InverseTransform, self._transform))

    def __repr__(self) -> str:
        return f"Inverse({self._transform!r})"
