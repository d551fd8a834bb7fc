"""Copies of what the view functions show: `permute_copy` is `permute` in memory of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime.public import FUNCTIONS, METHODS, with_out
from ..elementwise import complex  # noqa: F401 - they declare the views
from ..index import slicing  # noqa: F401 - they declare the views
from . import joining, movement  # noqa: F401 - they declare the views

if TYPE_CHECKING:
    from ...core.tensor_type import Tensor
    from ...ops.argument_types import Dims

__all__ = [
    "alias_copy", "as_strided_copy", "detach_copy", "diagonal_copy", "expand_copy", "permute_copy",
    "select_copy", "slice_copy", "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy",
    "transpose_copy", "unbind_copy", "unfold_copy", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "unsqueeze_copy", "view_as_complex_copy", "view_as_real_copy",
    "view_copy",
]  # fmt: skip


def _alias(input: Tensor) -> Any:
    return input


def _detach(input: Tensor) -> Any:
    return input.detach()


def _expand(input: Tensor, size: Dims, *, implicit: bool = False) -> Any:
    return FUNCTIONS["expand"](input, size)


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)]


_VIEWS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    **METHODS,
    "alias": _alias,
    "detach": _detach,
    "expand": _expand,
    "slice": _slice,
}


def _copying(name: str, arguments: str, result: str) -> Any:
    """The function `name`_copy; calling it on `arguments` gives `result`."""
    view = _VIEWS[name]

    def copy(*args: Any, **kwargs: Any) -> Any:
        shown = view(*args, **kwargs)
        if isinstance(shown, tuple):
            return tuple(part.clone() for part in shown)
        return shown.clone()

    copy.__name__ = copy.__qualname__ = f"{name}_copy"
    copy.__doc__ = (
        f"What `{name}` shows, in memory of its own; with the same arguments.\n\n"
        f"    Errors: those of `{name}`.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.{name}_copy.html\n\n"
        f"    >>> ad.{name}_copy({arguments})\n"
        f"    {result}\n"
    )
    functools.update_wrapper(copy, view, (), ())  # its signature
    FUNCTIONS[copy.__name__] = copy
    return with_out(copy)


alias_copy = _copying("alias", "ad.ones(1)", "tensor([1.])")
as_strided_copy = _copying("as_strided", "ad.arange(4), (2,), (2,)", "tensor([0, 2])")
detach_copy = _copying("detach", "ad.ones(1)", "tensor([1.])")
diagonal_copy = _copying("diagonal", "ad.eye(2)", "tensor([1., 1.])")
expand_copy = _copying("expand", "ad.ones(1), (2,)", "tensor([1., 1.])")
permute_copy = _copying("permute", "ad.eye(2, 1), (1, 0)", "tensor([[1., 0.]])")
select_copy = _copying("select", "ad.eye(2), 0, 1", "tensor([0., 1.])")
slice_copy = _copying("slice", "ad.arange(4), 0, 1, 3", "tensor([1, 2])")
split_copy = _copying("split", "ad.arange(3), 2", "(tensor([0, 1]), tensor([2]))")
split_with_sizes_copy = _copying(
    "split_with_sizes", "ad.arange(3), [1, 2]", "(tensor([0]), tensor([1, 2]))"
)
squeeze_copy = _copying("squeeze", "ad.ones(1, 1)", "tensor(1.)")
t_copy = _copying("t", "ad.eye(2, 1)", "tensor([[1., 0.]])")
transpose_copy = _copying("transpose", "ad.eye(2, 1), 0, 1", "tensor([[1., 0.]])")
unbind_copy = _copying("unbind", "ad.arange(2)", "(tensor(0), tensor(1))")
unfold_copy = _copying("unfold", "ad.arange(3), 0, 2, 1", "tensor([[0, 1],\n            [1, 2]])")
unsqueeze_copy = _copying("unsqueeze", "ad.ones(1), 0", "tensor([[1.]])")
view_as_complex_copy = _copying("view_as_complex", "ad.tensor([[1.0, 2.0]])", "tensor([1.+2.j])")
view_as_real_copy = _copying("view_as_real", "ad.tensor([1 + 2j])", "tensor([[1., 2.]])")
view_copy = _copying("view", "ad.arange(2), (2, 1)", "tensor([[0],\n            [1]])")


# PyTorch's parts that its autograd does not know to be views; here they are what split gives.
unsafe_chunk = METHODS["unsafe_chunk"] = METHODS["chunk"]
unsafe_split = METHODS["unsafe_split"] = METHODS["split"]
unsafe_split_with_sizes = METHODS["unsafe_split_with_sizes"] = METHODS["split_with_sizes"]
