"""Masks: elements that a tensor of booleans selects are filled, or taken from a source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core import policy
from ...core.argument_errors import assert_tensor
from ...core.device import is_device_array
from ...core.errors import DTypeError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import writing
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from ...runtime.writes import values_of
from ..samples import KINDS, array, each_dtype
from ..shape.sizes import hold_sizes, hold_values
from .advanced import IndexPut
from .gather import Gather as Gather
from .gather import GatherSum as GatherSum
from .gather import gather as gather
from .gather import take_along_dim as take_along_dim
from .indexing import one_value

if TYPE_CHECKING:
    from ...ops.argument_types import Operand

__all__ = ["masked_fill", "masked_scatter"]


@dataclass(eq=False, repr=False)
class MaskedFill(Op):
    """The first input with one value where the mask is True."""

    needs = ("x2", "", "x2")
    exact = True

    def infer(self, spec: Spec, mask: Spec, value: Any) -> Spec:
        """The broadcast shape of the first two."""
        return spec.with_(shape=broadcast_shapes(spec.shape, mask.shape, op="masked_fill"))

    def compute(self, xp: Any, x: Any, mask: Any, value: Any) -> Any:
        """Write into a copy; kernels select."""
        if type(x) is not np.ndarray and not is_device_array(x):
            return xp.where(mask, value, x)
        shape = x.shape if x.shape == mask.shape else np.broadcast_shapes(x.shape, mask.shape)
        result = x.copy() if x.shape == shape else xp.broadcast_to(x, shape).copy()
        self.write(xp, result, mask, value)
        return result

    def write(self, xp: Any, x: Any, mask: Any, value: Any) -> None:
        """Assign where the mask is True; of many elements by position, which is faster where few
        are meant.
        """
        if is_device_array(x) or not x.flags.c_contiguous:
            np.copyto(x, value, where=mask, casting="unsafe")
            return
        wide = mask if mask.shape == x.shape else np.broadcast_to(mask, x.shape)
        if x.size <= policy.SCATTER_FEW:
            np.putmask(x, wide, value)
        else:
            x.reshape(-1)[np.flatnonzero(wide)] = value

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, x: Any, mask: Any, value: Any
    ) -> Any:
        """The op for a batch: entries of the first two operands, given as many dimensions."""
        each = (x, mask, value)
        ndim = max(t._data.ndim - flag for t, flag in zip(each[:2], flags, strict=False))
        x = x if flags[0] else x.expand(size, *x._data.shape)
        lifted = [
            t.reshape(size, *(1,) * (ndim + 1 - t._data.ndim), *t._data.shape[1:]) if flag else t
            for t, flag in zip((x, mask, value), (True, *flags[1:]), strict=True)
        ]
        return apply(self, *lifted)

    def gradient(self, g: Tensor, mask: Tensor) -> tuple[Any, ...]:
        """g where the input was kept, for the input; g elsewhere, for the value."""
        return (
            lambda: apply(self, g, mask, 0),
            None,
            lambda: apply(self, g, mask.logical_not(), 0),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each dtype, broadcast both ways, 0-d values, empty."""
        mask = array((2, 3), dt.bool_, seed=2)
        yield from each_dtype(cls(), KINDS, (2, 3), mask, 1)
        yield Sample(cls(), (array((2, 3)), mask[:1], array(())), "value")
        yield Sample(cls(), (array((3,)), mask, array(())), "broadcast")
        yield Sample(cls(), (array((0, 3)), mask[:0], 2.0), "empty")
        yield Sample(cls(), (array(()), np.array(True), 2.0), "0-d")

    def reference(self, x: Any, mask: Any, value: Any) -> Any:
        """Reference value by arithmetic."""
        return np.where(mask, value, x.astype(np.complex128 if x.dtype.kind == "c" else float))


@writing
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Any:
    """A copy of `input` with one value (a number or a 0-d tensor) where `mask` is True.

    Shapes: `input` and `mask` broadcast (in place, only `mask` does).
    Errors: DTypeError for a mask that is not bool; ShapeError for a value with dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill.html

    >>> ad.masked_fill(ad.tensor([1., 2.]), ad.tensor([True, False]), 0)
    tensor([0., 2.])
    """
    assert_tensor("masked_fill", mask, "mask")
    if mask.dtype is not dt.bool_:
        raise DTypeError(
            "masked_fill: masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}; compare it, e.g. mask != 0"
        )
    return _MASKED_FILL, input, mask, one_value(input, value, "masked_fill")


_MASKED_FILL = MaskedFill()


@public(inplace=True)
@explaining
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the elements where `mask` is True taken, in order, from `source`.

    Shapes: `input` and `mask` broadcast; `source` has at least as many elements as are True.
    Errors: DTypeError for other dtypes; ShapeError where `source` is too short.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_scatter.html

    >>> ad.masked_scatter(ad.zeros(3), ad.tensor([True, False, True]), ad.tensor([1., 2.]))
    tensor([1., 0., 2.])
    """
    if mask.dtype is not dt.bool_:
        raise DTypeError(
            f"masked_scatter: masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}"
        )
    if source.dtype is not input.dtype:
        raise DTypeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype} and {source.dtype}"
        )
    shape = broadcast_shapes(input._data.shape, mask._data.shape, op="masked_scatter")
    known = values_of(
        mask,
        "masked_scatter takes as many elements as a mask selects; take them by "
        "source.reshape(-1)[mask.reshape(-1).cumsum(0) - 1] (clamped), and select by where()",
        followed=True,
    )
    places = np.flatnonzero(np.broadcast_to(known, shape))
    if source._data.size < places.size:
        raise ShapeError(
            f"masked_scatter: Number of elements of source ({source._data.size}) < number of ones "
            f"in mask ({places.size})"
        )
    values = source.reshape(-1)[: places.size]
    input = hold_sizes("masked_scatter", input)
    chosen = hold_values("masked_scatter", fresh(places), mask)
    flat = apply(IndexPut((0,)), input.expand(shape).reshape(-1), chosen, values)
    return flat.reshape(shape)
