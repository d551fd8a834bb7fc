"""Checks of sparse tensors, and of gradients of functions that take them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...core.argument_repr import argument_repr
from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from ...ops.create.conversion import sparse_coo, sparse_of, sparse_parts
from ...ops.sparse.entries import is_sparse

__all__ = ["as_sparse_gradcheck", "check_sparse_tensor_invariants"]


class check_sparse_tensor_invariants:  # noqa: N801 - PyTorch's name
    """Ask for checks of the indices that sparse tensors are made with: by `enable()` from then on,
    or as a context manager or decorator. Here they are always checked; this is what one asked for.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.check_sparse_tensor_invariants.html

    >>> with ad.sparse.check_sparse_tensor_invariants():
    ...     ad.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    _asked = False

    __repr__ = argument_repr

    @staticmethod
    def is_enabled() -> bool:
        """Whether checks were asked for."""
        return check_sparse_tensor_invariants._asked

    @staticmethod
    def enable() -> None:
        """Ask for them."""
        check_sparse_tensor_invariants._asked = True

    @staticmethod
    def disable() -> None:
        """Do not ask for them; the tensors are checked all the same."""
        check_sparse_tensor_invariants._asked = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self._before: bool | None = None

    def __enter__(self) -> None:
        if self._before is not None:
            raise InvalidArgument(
                "check_sparse_tensor_invariants: this context manager is entered already; make "
                "another one"
            )
        self._before = self.is_enabled()
        check_sparse_tensor_invariants._asked = self.state

    def __exit__(self, *error: object) -> None:
        check_sparse_tensor_invariants._asked = bool(self._before)
        self._before = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` within it."""

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return within


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """`gradcheck` of functions of sparse tensors: their values are what varies, at the places that
    they have (`masked=True`), and all elements of a sparse result are compared.

    Errors: InvalidArgument for `masked=False`, where elements outside of the places would vary.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sparse.as_sparse_gradcheck.html

    >>> check = ad.sparse.as_sparse_gradcheck(ad.autograd.gradcheck)
    >>> x = ad.eye(2, dtype=ad.float64).to_sparse().requires_grad_()
    >>> check(lambda x: (x * 2).to_dense(), (x,), masked=True)
    True
    """

    def checked(func: Callable[..., Any], inputs: Any, **kwargs: Any) -> Any:
        masked = kwargs.pop("masked", False)
        given: list[Any] = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
        if not masked and any(is_sparse(x) and x.requires_grad for x in given):
            raise InvalidArgument(
                "as_sparse_gradcheck: gradients of sparse tensors have their places alone; give "
                "masked=True"
            )
        parts = [sparse_parts(_merged(x)) if is_sparse(x) else None for x in given]
        values = [
            x if part is None else part[1][-2].detach().clone().requires_grad_(x.requires_grad)
            for x, part in zip(given, parts, strict=True)
        ]

        def of_values(*args: Any) -> Any:
            made = [
                x if part is None else _with_values(part, x)
                for x, part in zip(args, parts, strict=True)
            ]
            found = func(*made)
            several = isinstance(found, (list, tuple))
            dense = [y.to_dense() if is_sparse(y) else y for y in (found if several else [found])]
            return tuple(dense) if several else dense[0]

        return gradcheck(of_values, tuple(values), **kwargs)

    return checked


def _merged(x: Any) -> Any:
    return x.coalesce() if x.layout is sparse_coo else x


def _with_values(part: Any, values: Any) -> Any:
    kept, pieces, merged = part
    return sparse_of(kept, (*pieces[:-2], values, pieces[-1]), merged)
