"""Reductions: sum, mean, extrema, products, variances, norms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.op import Op, Sample, apply, public
from ..core.spec import Spec, normalize_axes, reduced_shape
from .promotion import cast
from .samples import COMPLEX, FLOATS, INTS, array, strided

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["sum"]


class Reduction(Op, abstract=True):
    """Base of ops that reduce `axes` (sorted, not negative)."""

    axes: tuple[int, ...]
    keepdims: bool

    def infer(self, spec: Spec) -> Spec:
        """The shape without the reduced axes."""
        return spec.with_(shape=reduced_shape(spec.shape, self.axes, self.keepdims))

    def restore(self, value: Any, spec: Spec) -> Any:
        """`value` (of the output's shape) with the reduced axes back, as size 1."""
        return value if self.keepdims else value.reshape(reduced_shape(spec.shape, self.axes, True))


def reduction_samples(dtypes: tuple[dt.dtype, ...], **options: Any) -> Any:
    """Samples of a reduction: every set of axes, kept or not, 0-d, empty, strided, each dtype."""

    def samples(cls: Any) -> Iterable[Sample]:
        first = dtypes[0]
        for dtype in dtypes:
            yield Sample(cls((1,)), (array((3, 4), dtype),), dtype.name, **options)
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            for keepdims in (False, True):
                x = array((2, 3, 2), first)
                yield Sample(cls(axes, keepdims), (x,), f"axes{axes}{keepdims}", **options)
        yield Sample(cls((0,)), (strided(array((3, 4), first)),), "strided", **options)
        yield Sample(cls(()), (array((), first),), "0-d", **options)
        yield Sample(cls((1,)), (array((0, 3), first),), "empty", **options)

    return classmethod(samples)


@dataclass(frozen=True)
class Sum(Reduction):
    """Sum over `axes`."""

    axes: tuple[int, ...]
    keepdims: bool = False
    needs = "spec"
    samples = reduction_samples(FLOATS + INTS[:1] + COMPLEX)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's sum, in the input's dtype."""
        return xp.sum(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g for every element that was summed."""
        return (self.restore(g, spec).expand(spec.shape),)

    def reference(self, x: Any) -> Any:
        """NumPy's sum in float64."""
        wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
        return np.sum(wide, axis=self.axes, keepdims=self.keepdims)


@public(out=True)
def sum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dt.dtype | None = None
) -> Tensor:
    """The sum of the elements over `dim` (an int, several, or all where None).

    Shapes: any; reduced dimensions are dropped, or kept with size 1 where `keepdim`.
    Dtypes: bools and integers sum to int64; `dtype` converts first.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sum.html

    >>> ad.sum(ad.tensor([[1., 2.], [3., 4.]]), dim=0)
    tensor([4., 6.])
    """
    if dtype is not None:
        input = cast(input, dtype)
    elif input._data.dtype.kind in "biu":
        input = cast(input, dt.int64)
    axes = normalize_axes(dim, input._data.ndim, "sum")
    result: Tensor = apply(Sum(axes, keepdim), input)
    return result
