"""einops for adjoint's tensors, and its layers.

einops finds a library's tensors through a subclass of its backend class. Importing this module
(which imports einops; importing adjoint imports neither) defines ours, and from then on einops' own
functions take tensors: `einops.rearrange(x, "b c h w -> b (c h w)")`. They are here too, with the
layers `Rearrange`, `Reduce` and `EinMix`.

Source: https://einops.rocks/

>>> from adjoint.einops import Rearrange, rearrange
>>> rearrange(ad.tensor([[1, 2], [3, 4]]), "a b -> (b a)")
tensor([1, 3, 2, 4])
>>> Rearrange("b h w -> b (h w)")(ad.zeros(2, 3, 4)).shape
adjoint.Size([2, 12])
"""

from __future__ import annotations

from typing import Any

from einops import asnumpy, einsum, pack, parse_shape, rearrange, reduce, repeat, unpack
from einops._backends import AbstractBackend
from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from ..nn import Module, Parameter
from ..ops.create.creation import empty
from ..ops.linalg.contraction import einsum as sum_of_products
from ..tensor import Tensor
from . import array_api as xp

__all__ = [
    "AdjointBackend", "EinMix", "Rearrange", "Reduce", "asnumpy", "einsum", "pack", "parse_shape",
    "rearrange", "reduce", "repeat", "unpack",
]  # fmt: skip


class AdjointBackend(AbstractBackend):  # type: ignore[misc]
    """The functions of a library that einops calls, in terms of the array API standard where it has
    them.

    >>> from adjoint.einops import AdjointBackend
    >>> AdjointBackend().is_appropriate_type(ad.zeros(1))
    True
    """

    framework_name = "adjoint"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether this backend serves a value."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Any:
        """A tensor with the values of an array."""
        return xp.asarray(x)

    def to_numpy(self, x: Any) -> Any:
        """An array with the values of a tensor, without its history."""
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Any:
        """Consecutive whole numbers."""
        return xp.arange(start, stop)

    def transpose(self, x: Any, axes: Any) -> Any:
        """The dimensions in another order."""
        return xp.permute_dims(x, tuple(axes))

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        """min, max, sum, mean, prod, any or all over dimensions."""
        return getattr(xp, operation)(x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: Any) -> Any:
        """The tensors along a new first dimension."""
        return xp.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Any:
        """A new dimension of size 1."""
        return xp.expand_dims(x, new_position)

    def tile(self, x: Any, repeats: Any) -> Any:
        """The tensor several times along each dimension."""
        return xp.tile(x, tuple(repeats))

    def concat(self, tensors: Any, axis: int) -> Any:
        """The tensors one after the other."""
        return xp.concat(tensors, axis=axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether the dtype permits a mean."""
        return xp.isdtype(x.dtype, ("real floating", "complex floating"))

    def einsum(self, pattern: str, *x: Any) -> Any:
        """Sums of products by Einstein's convention."""
        return sum_of_products(pattern, *x)


class Rearrange(RearrangeMixin, Module):  # type: ignore[misc]
    """`rearrange` with a fixed pattern as a module.

    Errors: EinopsError for a pattern that cannot be read or does not fit.
    Source: https://einops.rocks/api/rearrange/

    >>> from adjoint.einops import Rearrange
    >>> Rearrange("b (h w) -> b h w", h=2)(ad.zeros(1, 6)).shape
    adjoint.Size([1, 2, 3])
    """

    def forward(self, input: Any) -> Any:
        """The elements in the pattern's order."""
        return self._apply_recipe(input)


class Reduce(ReduceMixin, Module):  # type: ignore[misc]
    """`reduce` with a fixed pattern and operation as a module.

    Errors: EinopsError for a pattern that cannot be read or does not fit.
    Source: https://einops.rocks/api/reduce/

    >>> from adjoint.einops import Reduce
    >>> Reduce("b (h 2) -> b h", "max")(ad.tensor([[1., 5., 3., 2.]]))
    tensor([[5., 3.]])
    """

    def forward(self, input: Any) -> Any:
        """The reduced tensor."""
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, Module):  # type: ignore[misc]
    """A linear layer whose mixing of dimensions a pattern describes.

    Errors: EinopsError for a pattern that cannot be read or does not fit.
    Source: https://einops.rocks/1-einops-basics/

    >>> from adjoint.einops import EinMix
    >>> layer = EinMix("t b c -> t b (h d)", "c h d", "h d", c=4, h=2, d=3)
    >>> layer(ad.zeros(5, 1, 4)).shape
    adjoint.Size([5, 1, 6])
    """

    def _create_parameters(
        self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
    ) -> None:
        self.weight = Parameter(empty(weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None
        if bias_shape is not None:
            self.bias = Parameter(empty(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self, before: Any, before_lengths: Any, after: Any, after_lengths: Any
    ) -> None:
        self.before = None if before is None else Rearrange(before, **before_lengths)
        self.after = None if after is None else Rearrange(after, **after_lengths)

    def forward(self, input: Any) -> Any:
        """The dimensions mixed by the weight, and the bias added."""
        if self.before is not None:
            input = self.before(input)
        result = sum_of_products(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.after is None else self.after(result)
