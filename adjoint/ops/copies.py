"""Copies of what the view functions show: `permute_copy` is `permute` in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.op import FUNCTIONS, METHODS, with_out
from . import complex, joining, movement, slicing  # noqa: F401 - they declare the views

__all__ = [
    "alias_copy", "as_strided_copy", "detach_copy", "diagonal_copy", "expand_copy", "permute_copy",
    "select_copy", "slice_copy", "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy",
    "transpose_copy", "unbind_copy", "unfold_copy", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "unsqueeze_copy", "view_as_complex_copy", "view_as_real_copy",
    "view_copy",
]  # fmt: skip


def _alias(input: Any) -> Any:
    return input


def _detach(input: Any) -> Any:
    return input.detach()


def _expand(input: Any, size: Any, *, implicit: bool = False) -> Any:
    return FUNCTIONS["expand"](input, size)


def _slice(
    input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
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


def _copying(name: str) -> Any:
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
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.{name}_copy.html\n"
    )
    FUNCTIONS[copy.__name__] = copy
    return with_out(copy)


alias_copy = _copying("alias")
as_strided_copy = _copying("as_strided")
detach_copy = _copying("detach")
diagonal_copy = _copying("diagonal")
expand_copy = _copying("expand")
permute_copy = _copying("permute")
select_copy = _copying("select")
slice_copy = _copying("slice")
split_copy = _copying("split")
split_with_sizes_copy = _copying("split_with_sizes")
squeeze_copy = _copying("squeeze")
t_copy = _copying("t")
transpose_copy = _copying("transpose")
unbind_copy = _copying("unbind")
unfold_copy = _copying("unfold")
unsqueeze_copy = _copying("unsqueeze")
view_as_complex_copy = _copying("view_as_complex")
view_as_real_copy = _copying("view_as_real")
view_copy = _copying("view")


# PyTorch's parts that its autograd does not know to be views; here they are what split gives.
unsafe_chunk = METHODS["unsafe_chunk"] = FUNCTIONS["chunk"]
unsafe_split = METHODS["unsafe_split"] = FUNCTIONS["split"]
unsafe_split_with_sizes = METHODS["unsafe_split_with_sizes"] = FUNCTIONS["split_with_sizes"]
