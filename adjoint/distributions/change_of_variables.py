"""A change of variables and its inverse: the base of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument, Unsupported
from . import constraints

__all__ = ["Transform"]


class Transform:
    """A function y = f(x) between constrained spaces, with log|dy/dx|.

    Subclasses define `domain`, `codomain`, `_call`, and where they exist `_inverse` and
    `log_abs_det_jacobian`.
    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.Transform

    >>> t = ad.distributions.ExpTransform()
    >>> t.inv(t(ad.tensor(2.0)))
    tensor(2.)
    """

    bijective: bool = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        self._cache_size = cache_size  # accepted for PyTorch's sake: nothing is kept
        super().__init__()  # of what a class derives from besides

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
        """The transform itself: inverses are computed, not remembered."""
        return self

    def __call__(self, x: Any) -> Any:
        """f(x)."""
        return self._call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inverse(y)

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

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a bijective transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._transform = transform

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
        return self._transform._inverse(x)

    def _inverse(self, y: Any) -> Any:
        return self._transform._call(y)

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
