"""The module `functorch.experimental` of older programs: what of it became part of `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from ..func import functionalize, replace_all_batch_norm_modules_, vmap
from ..utils._pytree import tree_flatten

__all__ = ["chunk_vmap", "functionalize", "replace_all_batch_norm_modules_"]


def chunk_vmap(
    func: Callable[..., Any],
    in_dims: object = 0,
    out_dims: object = 0,
    randomness: str = "error",
    chunks: int = 2,
) -> Callable[..., Any]:
    """`vmap`, which computes the entries in `chunks` parts of equal size, the last one smaller.

    Errors: InvalidArgument for less than one part; those of `vmap`.

    >>> from adjoint.torch_api.alias.functorch_experimental import chunk_vmap
    >>> import adjoint
    >>> chunk_vmap(adjoint.sin, chunks=3)(adjoint.zeros(7))
    tensor([0., 0., 0., 0., 0., 0., 0.])
    """
    if chunks < 1:
        raise InvalidArgument(f"chunk_vmap: `chunks` should be 1 or greater, got {chunks}")

    def mapped(*args: object, **kwargs: object) -> object:
        dims = in_dims if isinstance(in_dims, int) else tree_flatten(in_dims)[0]
        leaves = tree_flatten(args)[0]
        places = [dims] * len(leaves) if isinstance(dims, int) else dims
        sizes = [
            x._data.shape[dim]
            for x, dim in zip(leaves, places, strict=False)
            if isinstance(x, TensorBase) and isinstance(dim, int)
        ]
        size = max(1, -(-sizes[0] // chunks)) if sizes else None
        return vmap(func, in_dims, out_dims, randomness, chunk_size=size)(*args, **kwargs)

    return mapped
