"""Convolution and its two transposes; re-exports pooling and `unfold`/`fold`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.types import Tensor
from ...eager.dispatch import apply
from ...eager.public import public
from ..elementwise.namespace import conj
from ..samples import array, strided
from ..shape.sizes import hold_sizes
from .windows import Pairs, Sizes, batched, hashable, per_dimension, reference_windows, window_count

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


@dataclass(eq=False, repr=False)
class ConvolutionOp(Op, abstract=True):
    """Base of the three ops y(x, w), x(y, w) and w(x, y) of one form, linear in each argument:
    the sum over all windows of y times (window of x) times w. The derivative of one of them is
    again one of them.
    """

    library = "always"
    strict = True
    stride: Sizes
    padding: Pairs  # before and after each dimension
    dilation: Sizes
    groups: int

    def forward(self, x: Any, w: Any, bias: Any = None) -> Any:
        """y, from x and w."""
        inputs = (x, w) if bias is None else (x, w, bias)
        return apply(_related(self, Convolution), *inputs)

    def to_input(self, y: Any, w: Any, size: Any) -> Any:
        """x of spatial shape `size`, from y and w."""
        return apply(_related(self, ConvolutionInput, tuple(size)), y, w)

    def to_weight(self, x: Any, y: Any, kernel: Any) -> Any:
        """w of spatial shape `kernel`, from x and y."""
        return apply(_related(self, ConvolutionWeight, tuple(kernel)), x, y)

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, a: Any, b: Any, bias: Any = None
    ) -> Any:
        """Images as more images, where all share the weight; else as groups of channels."""
        of_images = type(self) is not ConvolutionWeight
        if of_images and not any(flags[1:]):
            _, images, *rest = a._data.shape
            inputs = (b,) if bias is None else (b, bias)
            y = apply(self, a.reshape(size * images, *rest), *inputs)
            return y.reshape(size, images, *y._data.shape[1:])
        a, b = (
            x if flag else x.expand(size, *x._data.shape)
            for x, flag in zip((a, b), flags[:2], strict=True)
        )
        b = b.flatten(0, 1) if of_images else _side_by_side(b)
        fields = self._attributes()
        kind: Any = type(self)
        op = kind(*fields[:3], size * self.groups, *fields[4:])
        y = apply(op, _side_by_side(a), b)
        if not of_images:
            return y.reshape(size, y._data.shape[0] // size, *y._data.shape[1:])
        images, channels, *places = y._data.shape
        y = y.reshape(images, size, channels // size, *places).transpose(0, 1)
        if bias is None:
            return y
        lead = (size, 1) if flags[2] else ()
        return y + bias.reshape(*lead, -1, *(1,) * len(places))

    def count(self, size: Sizes, kernel: Sizes) -> Sizes:
        """The spatial shape of y."""
        return window_count(size, kernel, self.stride, self.padding, self.dilation)


def _side_by_side(x: Any) -> Any:
    """Entries of a batch as channels of the same images."""
    return x.transpose(0, 1).flatten(1, 2)


@functools.lru_cache(maxsize=4096)
def _related(op: ConvolutionOp, kind: Any, *size: Sizes) -> Any:
    """The op of another kind over the same windows; one and the same each time."""
    if type(op) is kind and not size:
        return op
    return kind(op.stride, op.padding, op.dilation, op.groups, *size)


def _assert_same_dtype(name: str, *specs: Spec) -> None:
    for spec in specs[1:]:
        if spec.dtype is not specs[0].dtype:
            raise DTypeError(
                f"{name}: Input type ({specs[0].dtype}) and weight or bias type ({spec.dtype}) "
                "should be the same; convert one with .to()"
            )


def _assert_alike(name: str, rank: int, x: Spec, w: Spec, *bias: Spec) -> None:
    if len(w.shape) != rank + 2 or len(x.shape) != rank + 2:
        raise ShapeError(
            f"{name}: Expected {rank + 2}D input and weight, but got input of size: "
            f"{list(x.shape)} and weight of size: {list(w.shape)}"
        )
    _assert_same_dtype(name, x, w, *bias)


def _conv_samples(cls: Any, make: Callable[..., Sample]) -> Iterable[Sample]:
    """`make(dtype, x shape, w shape, stride, padding, dilation, groups, label)` on a grid."""
    one = ((1, 1),)
    for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.float16, dt.complex128):
        yield make(dtype, (2, 2, 5), (3, 2, 3), (1,), one, (1,), 1, dtype.name)
    f = dt.float64
    yield make(f, (2, 2, 7), (3, 2, 2), (2,), ((1, 2),), (2,), 1, "stride-dilation")
    yield make(f, (2, 4, 4, 5), (4, 2, 3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1), 2, "groups")
    yield make(f, (2, 3, 4, 4), (3, 1, 2, 2), (2, 1), ((0, 0), (0, 0)), (1, 2), 3, "depthwise")
    yield make(f, (2, 3, 2, 2), (2, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1, "pointwise")
    yield make(f, (1, 1, 3, 3, 3), (2, 1, 2, 2, 2), (1,) * 3, ((1, 0),) * 3, (1,) * 3, 1, "3d")
    yield make(f, (0, 2, 5), (3, 2, 3), (1,), one, (1,), 1, "empty")


def _reference_conv(op: ConvolutionOp, x: Any, w: Any) -> Any:
    """y, one window at a time."""
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    windows = reference_windows(x.astype(wide), w.shape[2:], op.stride, op.padding, op.dilation)
    axes = (1, *range(-len(op.stride), 0)), tuple(range(1, w.ndim))  # channels, and places
    groups = zip(np.split(windows, op.groups, 1), np.split(w.astype(wide), op.groups), strict=True)
    parts = [np.tensordot(part, weight, axes) for part, weight in groups]
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def _reference_transpose(
    op: ConvolutionOp, shape: Any, apply_to: Callable[[Any], Any], y: Any
) -> Any:
    """The transpose of the linear map `apply_to` (inputs of `shape`), by its matrix."""
    size = int(np.prod(shape))
    columns = [apply_to(np.eye(size)[i].reshape(shape)).ravel() for i in range(size)]
    matrix = np.array(columns).reshape(size, y.size)
    return (matrix @ y.ravel().astype(matrix.dtype)).reshape(shape)


class Convolution(ConvolutionOp):
    """y: the cross-correlation of images x (batch, channels, *size) with w (out, in, *kernel)."""

    needs = ("x2 spec1", "x1 spec2", "")

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None) -> Spec:
        """(batch, out channels, *count)."""
        rank = len(self.stride)
        name = f"conv{rank}d"
        _assert_alike(name, rank, x, w, *(() if bias is None else (bias,)))
        if x.shape[1] != w.shape[1] * self.groups:
            raise ShapeError(
                f"{name}: Given groups={self.groups}, weight of size {list(w.shape)}, expected "
                f"input{list(x.shape)} to have {w.shape[1] * self.groups} channels, but got "
                f"{x.shape[1]} channels instead"
            )
        if w.shape[0] % self.groups:
            raise ShapeError(
                f"{name}: Given groups={self.groups}, expected weight to be divisible by "
                f"{self.groups} at dimension 0, but got weight of size {list(w.shape)} instead"
            )
        if bias is not None and bias.shape != w.shape[:1]:
            raise ShapeError(
                f"{name}: Given weight of size {list(w.shape)}, expected bias to be "
                f"1-dimensional with {w.shape[0]} elements, but got bias of size "
                f"{list(bias.shape)} instead"
            )
        count = self.count(x.shape[2:], w.shape[2:])
        if min(count, default=1) <= 0:
            padded = [n + lo + hi for n, (lo, hi) in zip(x.shape[2:], self.padding, strict=True)]
            raise ShapeError(
                f"{name}: Calculated padded input size per channel: {padded}. Kernel size: "
                f"{list(w.shape[2:])} (dilation {list(self.dilation)}). Kernel size can't be "
                "greater than actual input size; pad the input or shrink the kernel"
            )
        return x.with_(shape=(x.shape[0], w.shape[0], *count))

    def compute(self, xp: Any, x: Any, w: Any, bias: Any = None) -> Any:
        """The backend's convolution."""
        count = self.count(x.shape[2:], w.shape[2:])
        return xp.conv(x, w, bias, self.stride, self.padding, self.dilation, self.groups, count)

    def gradient(self, g: Tensor, x1: Any, x2: Any, spec1: Spec, spec2: Spec) -> tuple[Any, ...]:
        """The two transposes; the bias was added at every place."""
        return (
            lambda: self.to_input(g, conj(x2), spec1.shape[2:]),
            lambda: self.to_weight(conj(x1), g, spec2.shape[2:]),
            lambda: g.sum(dim=(0, *range(2, g.ndim))),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The grid, a bias, memory that is not contiguous."""

        def make(dtype: Any, x: Any, w: Any, *options: Any) -> Sample:
            return Sample(cls(*options[:4]), (array(x, dtype), array(w, dtype)), options[4])

        yield from _conv_samples(cls, make)
        x, w = array((2, 2, 4, 4)), array((3, 2, 3, 3))
        op = cls((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
        yield Sample(op, (x, w, array((3,))), "bias")
        yield Sample(op, (strided(x), strided(w)), "strided")

    def reference(self, x: Any, w: Any, bias: Any = None) -> Any:
        """Window by window."""
        y = _reference_conv(self, x, w)
        return y if bias is None else y + bias.reshape(-1, *(1,) * len(self.stride))


@dataclass(eq=False, repr=False)
class ConvolutionInput(ConvolutionOp):
    """x: the transpose of a convolution in its images, whose spatial shape is `size`."""

    size: Sizes
    needs = ("x2", "x1 spec2")

    def infer(self, y: Spec, w: Spec) -> Spec:
        """(batch, in channels, *size)."""
        rank = len(self.stride)
        name = f"conv_transpose{rank}d"
        _assert_alike(name, rank, y, w)
        if y.shape[1] != w.shape[0] or w.shape[0] % self.groups:
            raise ShapeError(
                f"{name}: Given transposed=1, groups={self.groups}, weight of size "
                f"{list(w.shape)}, expected input{list(y.shape)} to have {w.shape[0]} channels "
                f"(a multiple of groups), but got {y.shape[1]} channels instead"
            )
        if self.count(self.size, w.shape[2:]) != y.shape[2:]:
            raise ShapeError(
                f"{name}: images of size {self.size} do not have {y.shape[2:]} windows of size "
                f"{w.shape[2:]}"
            )
        return y.with_(shape=(y.shape[0], w.shape[1] * self.groups, *self.size))

    def compute(self, xp: Any, y: Any, w: Any) -> Any:
        """The backend's transposed convolution."""
        return xp.conv_input(y, w, self.stride, self.padding, self.dilation, self.groups, self.size)

    def gradient(self, g: Tensor, x1: Any, x2: Any, spec2: Spec) -> tuple[Any, ...]:
        """g stands where the images stood."""
        return (
            lambda: self.forward(g, conj(x2)),
            lambda: self.to_weight(g, conj(x1), spec2.shape[2:]),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The grid."""

        def make(dtype: Any, x: Any, w: Any, *options: Any) -> Sample:
            op: Any = cls(*options[:4], x[2:])  # type: ignore[call-arg]
            y = (x[0], w[0], *op.count(x[2:], w[2:]))
            return Sample(op, (array(y, dtype), array(w, dtype)), options[4])

        return _conv_samples(cls, make)

    def reference(self, y: Any, w: Any) -> Any:
        """By the matrix of the convolution."""
        shape = (len(y), w.shape[1] * self.groups, *self.size)
        return _reference_transpose(
            self, shape, lambda x: _reference_conv(self, x.astype(w.dtype), w), y
        )


@dataclass(eq=False, repr=False)
class ConvolutionWeight(ConvolutionOp):
    """w: the transpose of a convolution in its weight, whose spatial shape is `kernel`."""

    kernel: Sizes
    needs = ("x2 spec1", "x1")

    def infer(self, x: Spec, y: Spec) -> Spec:
        """(out channels, in channels / groups, *kernel)."""
        _assert_same_dtype("conv_weight", x, y)
        divided = x.shape[1] % self.groups == 0 == y.shape[1] % self.groups
        if (
            self.count(x.shape[2:], self.kernel) != y.shape[2:]
            or x.shape[0] != y.shape[0]
            or not divided
        ):
            raise ShapeError(
                f"conv_weight: images {x.shape} and values {y.shape} do not fit with a kernel of "
                f"size {self.kernel}"
            )
        return x.with_(shape=(y.shape[1], x.shape[1] // self.groups, *self.kernel))

    def compute(self, xp: Any, x: Any, y: Any) -> Any:
        """The backend's sum over windows."""
        return xp.conv_weight(
            x, y, self.stride, self.padding, self.dilation, self.groups, self.kernel
        )

    def gradient(self, g: Tensor, x1: Any, x2: Any, spec1: Spec) -> tuple[Any, ...]:
        """g stands where the weight stood."""
        return (
            lambda: self.to_input(conj(x2), g, spec1.shape[2:]),
            lambda: self.forward(conj(x1), g),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """The grid."""

        def make(dtype: Any, x: Any, w: Any, *options: Any) -> Sample:
            op: Any = cls(*options[:4], w[2:])  # type: ignore[call-arg]
            y = (x[0], w[0], *op.count(x[2:], w[2:]))
            return Sample(op, (array(x, dtype), array(y, dtype, seed=1)), options[4])

        return _conv_samples(cls, make)

    def reference(self, x: Any, y: Any) -> Any:
        """By the matrix of the convolution."""
        shape = (y.shape[1], x.shape[1] // self.groups, *self.kernel)
        return _reference_transpose(
            self, shape, lambda w: _reference_conv(self, x, w.astype(x.dtype)), y
        )


# ---- public functions ----------------------------------------------------------------------------


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    name = f"conv{rank}d"
    if weight._data.ndim != rank + 2:
        raise ShapeError(
            f"{name}: expected {rank + 2}D weight (out, in / groups, *kernel), but got weight of "
            f"size: {list(weight.shape)}"
        )
    kernel: Any = ()
    if isinstance(padding, str):
        weight = hold_sizes(name, weight, dims=range(2, rank + 2))
        kernel = weight._data.shape[2:]
    op = convolution_of(rank, kernel, stride, padding, dilation, groups)
    x, has_batch = batched(input, rank, name)
    inputs = (x, weight) if bias is None else (x, weight, bias)
    result: Tensor = apply(op, *inputs)
    return result if has_batch else result.squeeze(0)


def convolution_of(
    rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Convolution:
    """The op of a convolution with these arguments; its `kernel` tells where padding is "same"."""
    return _convolution(
        rank, hashable(stride), hashable(padding), hashable(dilation), groups, tuple(kernel)
    )


@functools.lru_cache(maxsize=1024, typed=True)
def _convolution(
    rank: int, stride: Any, padding: Any, dilation: Any, groups: int, kernel: Sizes
) -> Convolution:
    """The op with these arguments; one and the same each time, so that it is known."""
    name = f"conv{rank}d"
    if groups < 1:
        raise InvalidArgument(f"{name}: groups must be a positive int, got {groups}")
    strides = per_dimension(stride, rank, name, "stride")
    dilations = per_dimension(dilation, rank, name, "dilation")
    pads: Pairs
    if isinstance(padding, str):
        pads = _named_padding(padding, name, kernel, strides, dilations)
    else:
        pads = tuple((p, p) for p in per_dimension(padding, rank, name, "padding", 0))
    return Convolution(strides, pads, dilations, groups)


def _named_padding(name: str, op: str, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    if name == "valid":
        return ((0, 0),) * len(kernel)
    if name != "same":
        raise InvalidArgument(f"{op}: Invalid padding string: {name!r}; use 'valid' or 'same'")
    if max(stride) > 1:
        raise InvalidArgument(
            f"{op}: padding='same' is not supported for strided convolutions, got stride={stride}"
        )
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


@public(method=False)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of a batch of signals with a kernel.

    Shapes: (batch, in, length) or (in, length), weight (out, in / groups, kernel), bias (out,).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html

    >>> ad.conv1d(ad.tensor([[1., 2., 4.]]), ad.tensor([[[-1., 1.]]]))
    tensor([[1., 2.]])
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of a batch of images with a kernel.

    `padding` is an int, one per dimension, 'valid' (none) or 'same' (the output keeps the size).

    Shapes: (batch, in, height, width) or without batch, weight (out, in / groups, kh, kw).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html

    >>> ad.conv2d(ad.ones(1, 1, 3, 3), ad.ones(1, 1, 2, 2), padding='same')
    tensor([[[[4., 4., 2.],
              [4., 4., 2.],
              [2., 2., 1.]]]])
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@public(method=False)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of a batch of volumes with a kernel.

    Shapes: (batch, in, depth, height, width) or without batch, weight (out, in / groups, *kernel).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ or the kernel is larger than the padded input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv3d.html

    >>> ad.conv3d(ad.ones(1, 1, 2, 2, 2), ad.ones(1, 1, 2, 2, 2)).item()
    8.0
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@functools.lru_cache(maxsize=1024)
def _transposed(
    stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, size: Sizes
) -> ConvolutionInput:
    """The op with these fields; one and the same each time."""
    return ConvolutionInput(stride, padding, dilation, groups, size)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    if weight._data.ndim != rank + 2:
        raise ShapeError(
            f"{name}: expected {rank + 2}D weight (in, out / groups, *kernel), but got weight of "
            f"size: {list(weight.shape)}"
        )
    strides = per_dimension(stride, rank, name, "stride")
    dilations = per_dimension(dilation, rank, name, "dilation")
    pads = per_dimension(padding, rank, name, "padding", 0)
    extras = per_dimension(output_padding, rank, name, "output_padding", 0)
    for more, s, d in zip(extras, strides, dilations, strict=True):
        if more >= max(s, d):
            raise InvalidArgument(
                f"{name}: output padding must be smaller than either stride or dilation, but got "
                f"output_padding={extras}, stride={strides}, dilation={dilations}"
            )
    x, has_batch = batched(input, rank, name)
    x = hold_sizes(name, x, dims=range(2, rank + 2))
    weight = hold_sizes(name, weight, dims=range(2, rank + 2))
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + more + 1
        for n, s, p, d, k, more in zip(
            x.shape[2:], strides, pads, dilations, weight.shape[2:], extras, strict=True
        )
    )
    if min(size) < 0:
        raise ShapeError(
            f"{name}: Given input size per channel: {list(x.shape[2:])}. Calculated output size "
            f"per channel: {list(size)}. Output size is too small; use less padding"
        )
    # The window count ignores output padding up to the stride; beyond it, the far padding shrinks.
    pairs = tuple(
        (p, p - more if more >= s else p) for p, more, s in zip(pads, extras, strides, strict=True)
    )
    result: Tensor = apply(_transposed(strides, pairs, dilations, groups, size), x, weight)
    if bias is not None:
        channels = weight.shape[1] * groups
        if bias.shape != (channels,):
            raise ShapeError(
                f"{name}: expected bias to be 1-dimensional with {channels} elements, but got bias "
                f"of size {list(bias.shape)} instead"
            )
        result = result + bias.reshape(-1, *(1,) * rank)
    return result if has_batch else result.squeeze(0)


@public(method=False)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv1d` in its input: each element spreads a kernel.

    Shapes: (batch, in, length) or without batch, weight (in, out / groups, kernel), bias (out,).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose1d.html

    >>> ad.conv_transpose1d(ad.tensor([[1., 2.]]), ad.tensor([[[1., 10.]]]), stride=2)
    tensor([[ 1., 10.,  2., 20.]])
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public(method=False)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv2d` in its input: each pixel spreads a kernel.

    Shapes: (batch, in, height, width) or without batch, weight (in, out / groups, kh, kw).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose2d.html

    >>> ad.conv_transpose2d(ad.ones(1, 1, 1, 2), ad.ones(1, 1, 2, 2))
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public(method=False)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv3d` in its input: each voxel spreads a kernel.

    Shapes: (batch, in, depth, height, width) or without batch, weight (in, out / groups, *kernel).
    Dtypes: all of one dtype.
    Errors: ShapeError where channels differ; InvalidArgument for an output padding too large.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose3d.html

    >>> ad.conv_transpose3d(ad.ones(1, 1, 1, 1, 1), ad.ones(1, 2, 2, 2, 2)).shape
    adjoint.Size([1, 2, 2, 2, 2])
    """
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
