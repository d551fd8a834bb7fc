"""Convolution as three ops that are adjoints of each other: its result, input and weight."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ..elementwise.namespace import conj
from ..samples import array, strided
from .windows import Pairs, Sizes, reference_windows, window_count

__all__: list[str] = []


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
        """Convolutions with g in place of the images."""
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
        """Reference value by the matrix of the convolution."""
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
        """Convolutions with g in place of the weight."""
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
        """Reference value by the matrix of the convolution."""
        shape = (y.shape[1], x.shape[1] // self.groups, *self.kernel)
        return _reference_transpose(
            self, shape, lambda w: _reference_conv(self, x, w.astype(x.dtype)), y
        )
