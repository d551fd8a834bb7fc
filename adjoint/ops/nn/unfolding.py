"""The windows of images as columns, and back: `unfold` (im2col) and `fold` (col2im)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, prod
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import explaining
from ..samples import array
from .windows import Pairs, Sizes, batched, per_dimension, reference_windows, window_count

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

# torch.unfold is another function (windows along one dimension): these two are nn.functional's.
__all__ = ["fold", "unfold"]


@dataclass(eq=False, repr=False)
class Unfold(Op):
    """The windows of images (batch, channels, *size) as columns, (batch, channels * k, windows)."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    by_rows = True
    linear = True

    def count(self, size: Any) -> Sizes:
        """Number of windows along each dimension."""
        return window_count(tuple(size), self.kernel, self.stride, self.padding, self.dilation)

    def infer(self, x: Spec) -> Spec:
        """A spec of one column per window."""
        count = self.count(x.shape[2:])
        if min(count) < 1:
            raise ShapeError(
                f"unfold: Given input with spatial size {x.shape[2:]}, kernel_size={self.kernel}, "
                f"dilation={self.dilation}, padding={[lo for lo, _ in self.padding]}, calculated "
                f"shape of the array of sliding blocks as {count}, but its components must be at "
                "least one; pad the input or shrink the kernel"
            )
        return x.with_(shape=(x.shape[0], x.shape[1] * prod(self.kernel), prod(count)))

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's copy of all windows."""
        count = self.count(x.shape[2:])
        columns = xp.im2col(x, self.kernel, self.stride, self.padding, self.dilation, count)
        return columns.reshape(len(x), x.shape[1] * prod(self.kernel), prod(count))

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The cotangents added up at the places that the elements came from."""
        op = Fold(self.kernel, self.stride, self.padding, self.dilation, tuple(spec.shape[2:]))
        return (apply(op, g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Overlapping, strided, padded, dilated windows."""
        for label, shape, options in _geometries():
            yield Sample(cls(*options), (array(shape),), label)

    def reference(self, x: Any) -> Any:
        """Window by window."""
        windows = reference_windows(x, self.kernel, self.stride, self.padding, self.dilation)
        rank = len(self.kernel)
        columns = np.moveaxis(windows, range(2, rank + 2), range(-rank, 0))
        count = prod(windows.shape[2 : rank + 2])
        return columns.reshape(len(x), x.shape[1] * prod(self.kernel), count)


def _geometries() -> Iterable[tuple[str, Sizes, tuple[Sizes, Sizes, Pairs, Sizes]]]:
    yield "overlapping", (2, 2, 3, 4), ((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1))
    yield "padded", (1, 2, 3, 3), ((2, 3), (2, 1), ((1, 1), (1, 1)), (1, 1))
    yield "dilated", (1, 1, 4, 5), ((2, 2), (1, 2), ((0, 0), (1, 1)), (2, 2))
    yield "empty", (0, 2, 2, 2), ((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1))


@dataclass(eq=False, repr=False)
class Fold(Op):
    """The transpose of `Unfold`: images of `size` with the columns' elements added up."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    size: Sizes
    by_rows = True
    linear = True

    def count(self) -> Sizes:
        """Number of windows of images along each dimension."""
        return window_count(self.size, self.kernel, self.stride, self.padding, self.dilation)

    def infer(self, x: Spec) -> Spec:
        """Images."""
        if x.shape[1] % prod(self.kernel):
            raise ShapeError(
                f"fold: Expected size of input's dimension 1 to be divisible by the product of "
                f"kernel_size, but got input.size(1)={x.shape[1]} and kernel_size={self.kernel}"
            )
        count = self.count()
        if min(count) < 1 or x.shape[2] != prod(count):
            raise ShapeError(
                f"fold: Given output_size={self.size}, kernel_size={self.kernel}, "
                f"dilation={self.dilation}, stride={self.stride}, expected size of input's "
                f"dimension 2 to match the calculated number of sliding blocks {count} = "
                f"{prod(count)}, but got input.size(2)={x.shape[2]}"
            )
        return x.with_(shape=(x.shape[0], x.shape[1] // prod(self.kernel), *self.size))

    strict = True

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's sum."""
        count = self.count()
        columns = x.reshape(len(x), x.shape[1] // prod(self.kernel), *self.kernel, *count)
        return xp.col2im(
            columns, self.kernel, self.stride, self.padding, self.dilation, count, self.size
        )

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The windows of g."""
        return (apply(Unfold(self.kernel, self.stride, self.padding, self.dilation), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Columns of the shapes that Unfold gives."""
        for label, shape, options in _geometries():
            count = Unfold(*options).count(shape[2:])
            columns = (shape[0], shape[1] * prod(options[0]), prod(count))
            yield Sample(cls(*options, shape[2:]), (array(columns),), label)

    def reference(self, x: Any) -> Any:
        """Reference value by the matrix of Unfold."""
        op = Unfold(self.kernel, self.stride, self.padding, self.dilation)
        shape = (1, x.shape[1] // prod(self.kernel), *self.size)
        columns = [op.reference(e.reshape(shape)).ravel() for e in np.eye(prod(shape))]
        result = x.reshape(len(x), x.shape[1] * x.shape[2]) @ np.array(columns).T
        return result.reshape(len(x), *shape[1:])


@explaining
def unfold(
    input: Tensor, kernel_size: Dims, dilation: Dims = 1, padding: Dims = 0, stride: Dims = 1
) -> Tensor:
    """Windows of images as columns (im2col).

        y[n, (c, k), i] = x[n, c, stride i + dilation k - padding]

    Here i and k are pairs, whose numbers are counted in one.

    Args:
        input: Values.
        kernel_size: Size of the windows, an int or a pair.
        dilation: Distance between neighbouring elements of a window, an int or a pair. Default: 1.
        padding: Width of the padding on both sides, an int or a pair. Default: 0.
        stride: Distance between neighbouring windows, an int or a pair. Default: 1.

    Shapes: (batch, channels, height, width) -> (batch, channels kernel_height kernel_width,
    windows), or without batch.
    Errors: ShapeError where no window fits.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.unfold.html

    >>> from adjoint.ops.nn.unfolding import unfold
    >>> unfold(ad.ones(1, 1, 3, 3), 2).shape
    adjoint.Size([1, 4, 4])
    """
    x, has_batch = batched(input, 2, "unfold")
    op = Unfold(
        per_dimension(kernel_size, 2, "unfold", "kernel_size"),
        per_dimension(stride, 2, "unfold", "stride"),
        tuple((p, p) for p in per_dimension(padding, 2, "unfold", "padding", 0)),
        per_dimension(dilation, 2, "unfold", "dilation"),
    )
    op.infer(x.spec)
    result: Tensor = apply(op, x)
    return result if has_batch else result.squeeze(0)


@explaining
def fold(
    input: Tensor,
    output_size: Dims,
    kernel_size: Dims,
    dilation: Dims = 1,
    padding: Dims = 0,
    stride: Dims = 1,
) -> Tensor:
    """Images from columns (col2im): elements that meet are added.

        y[n, c, stride i + dilation k - padding] += x[n, (c, k), i], for all c, i and k

    Here i and k are pairs, whose numbers are counted in one. It is the transpose of unfolding, not
    its inverse.

    Args:
        input: Values.
        output_size: Size of the images, an int or a pair.
        kernel_size: Size of the windows, an int or a pair.
        dilation: Distance between neighbouring elements of a window, an int or a pair. Default: 1.
        padding: Width of the padding on both sides, an int or a pair. Default: 0.
        stride: Distance between neighbouring windows, an int or a pair. Default: 1.

    Shapes: (batch, channels kernel_height kernel_width, windows) -> (batch, channels,
    *output_size), or without batch.
    Errors: ShapeError where the columns do not fit the arguments.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fold.html

    >>> from adjoint.ops.nn.unfolding import fold
    >>> fold(ad.ones(1, 4, 1), (2, 2), 2).shape
    adjoint.Size([1, 1, 2, 2])
    """
    if input.ndim not in (2, 3):
        raise ShapeError(
            f"fold: Expected 2D or 3D (batch mode) tensor for input, but got input of size: "
            f"{list(input.shape)}"
        )
    x = input if input.ndim == 3 else input.unsqueeze(0)
    op = Fold(
        per_dimension(kernel_size, 2, "fold", "kernel_size"),
        per_dimension(stride, 2, "fold", "stride"),
        tuple((p, p) for p in per_dimension(padding, 2, "fold", "padding", 0)),
        per_dimension(dilation, 2, "fold", "dilation"),
        per_dimension(output_size, 2, "fold", "output_size"),
    )
    result: Tensor = apply(op, x)
    return result if input.ndim == 3 else result.squeeze(0)
