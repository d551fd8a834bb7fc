"""Layers that learn their input's size on their first call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...ops.create.creation import empty
from ..parameter import UninitializedParameter, is_lazy
from . import batchnorm, conv, linear
from .module import Module

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin(Module):
    """A module that makes its parameters when it sees its first input, or the state to load, and
    then becomes `cls_to_become`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.lazy.LazyModuleMixin.html

    >>> layer = ad.nn.LazyLinear(3)
    >>> layer(ad.zeros(2, 5)).shape, layer
    (adjoint.Size([2, 3]), Linear(in_features=5, out_features=3, bias=True))
    """

    cls_to_become: Any
    size_name: str  # the attribute that the input decides; 0 until then

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(_initialize, with_kwargs=True)
        self._load_hook = self.register_load_state_dict_pre_hook(_initialize_from_state)

    def has_uninitialized_params(self) -> bool:
        """Whether the first input is still to come."""
        return bool(getattr(self, self.size_name) == 0)

    def reset_parameters(self) -> None:
        """Draw new initial values, once there is something to draw them for."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def _size_of(self, input: Any) -> int:
        """Read the size off an input."""
        raise NotImplementedError

    def _size_in(self, weight: Any) -> int:
        """Read the size off a weight that is to be loaded."""
        raise NotImplementedError

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters and buffers."""
        raise NotImplementedError

    def initialize_parameters(self, input: Any) -> None:
        """Make the parameters for inputs like this one."""
        self._make(self._size_of(input))
        self.reset_parameters()

    def _make(self, size: int) -> None:
        setattr(self, self.size_name, size)
        for name, shape in self._shapes(size).items():
            value = getattr(self, name)
            if is_lazy(value):
                value.materialize(shape)
            elif value is not None:
                setattr(self, name, empty(shape, dtype=value.dtype, device=value.device))

    def _become(self) -> None:
        for name in ("_initialize_hook", "_load_hook"):
            self.__dict__.pop(name).remove()
        self.__class__ = self.cls_to_become


def _initialize(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if module.has_uninitialized_params():
        module.initialize_parameters(*args, **kwargs)
    module._become()


def _initialize_from_state(module: Any, state: Any, prefix: str, *rest: Any) -> None:
    for name in ("weight", "running_mean"):
        value = state.get(prefix + name)
        if value is not None and value.ndim and module.has_uninitialized_params():
            module._make(module._size_in(value))


class _LazyConv(LazyModuleMixin):
    size_name = "in_channels"
    weight: Any
    bias: Any
    out_channels: int
    kernel_size: tuple[int, ...]
    rank: int
    groups: int
    transposed: bool

    def __init__(
        self, out_channels: int, kernel_size: Any, *args: Any, bias: bool = True, **kwargs: Any
    ) -> None:
        where: dict[str, Any] = {name: kwargs.get(name) for name in ("device", "dtype")}
        place = 4  # of `bias` among the arguments after kernel_size
        if len(args) > place:
            bias, args = args[place], (*args[:place], False, *args[place + 1 :])
        else:
            kwargs["bias"] = False
        super().__init__(0, 0, kernel_size, *args, **kwargs)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(**where)
        if bias:
            self.bias = UninitializedParameter(**where)

    def _size_of(self, input: Any) -> int:
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"Expected {self.rank + 1}D (unbatched) or {self.rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        size = int(input.shape[-self.rank - 1])
        if size % self.groups:
            raise InvalidArgument(f"in_channels={size} must be divisible by groups={self.groups}")
        return size

    def _size_in(self, weight: Any) -> int:
        return int(weight.shape[0] if self.transposed else weight.shape[1] * self.groups)

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        channels = (self.out_channels, size // self.groups)
        if self.transposed:
            channels = (size, self.out_channels // self.groups)
        return {"weight": (*channels, *self.kernel_size), "bias": (self.out_channels,)}


class _LazyNorm(LazyModuleMixin):
    size_name = "num_features"
    affine: bool
    track_running_stats: bool

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, track_running_stats, device=device, dtype=dtype)
        self.affine = affine
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _size_of(self, input: Any) -> int:
        return int(input.shape[1])

    def _size_in(self, weight: Any) -> int:
        return int(weight.shape[0])

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (size,))


class LazyLinear(LazyModuleMixin, linear.Linear):
    """Linear whose `in_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a Linear, whose
    formula it has.

    Args:
        out_features: Size of each output vector.
        bias: Whether to add a learned bias. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (..., in_features) -> (..., out_features).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyLinear.html

    >>> ad.nn.LazyLinear(3)(ad.zeros(2, 5)).shape
    adjoint.Size([2, 3])
    """

    cls_to_become = linear.Linear
    size_name = "in_features"

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _size_of(self, input: Any) -> int:
        return int(input.shape[-1])

    def _size_in(self, weight: Any) -> int:
        return int(weight.shape[-1])

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.out_features, size), "bias": (self.out_features,)}


class LazyConv1d(_LazyConv, conv.Conv1d):
    """Conv1d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a Conv1d, whose
    formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, length) -> (batch, out_channels, out), or without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv1d.html

    >>> ad.nn.LazyConv1d(5, 3)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 5, 2])
    """

    cls_to_become = conv.Conv1d


class LazyConvTranspose1d(_LazyConv, conv.ConvTranspose1d):
    """ConvTranspose1d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a ConvTranspose1d,
    whose formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension. Default: 0.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, length) -> (batch, out_channels, out), or without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose1d.html

    >>> ad.nn.LazyConvTranspose1d(5, 3)(ad.zeros(1, 2, 4)).shape
    adjoint.Size([1, 5, 6])
    """

    cls_to_become = conv.ConvTranspose1d


class LazyConv2d(_LazyConv, conv.Conv2d):
    """Conv2d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a Conv2d, whose
    formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, height, width) -> (batch, out_channels, out_height, out_width), or
    without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv2d.html

    >>> ad.nn.LazyConv2d(5, 3)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 5, 2, 2])
    """

    cls_to_become = conv.Conv2d


class LazyConvTranspose2d(_LazyConv, conv.ConvTranspose2d):
    """ConvTranspose2d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a ConvTranspose2d,
    whose formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension. Default: 0.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, height, width) -> (batch, out_channels, out_height, out_width), or
    without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose2d.html

    >>> ad.nn.LazyConvTranspose2d(5, 3)(ad.zeros(1, 2, 4, 4)).shape
    adjoint.Size([1, 5, 6, 6])
    """

    cls_to_become = conv.ConvTranspose2d


class LazyConv3d(_LazyConv, conv.Conv3d):
    """Conv3d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a Conv3d, whose
    formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width of the padding on both sides, an int or one per dimension; or "valid" for
            none, "same" for an output as large as the input (for stride 1). Default: 0.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        padding_mode: What the padding holds: "zeros", "reflect", "replicate" or "circular".
            Default: "zeros".
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, depth, height, width) -> (batch, out_channels, out_depth,
    out_height, out_width), or without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConv3d.html

    >>> ad.nn.LazyConv3d(5, 3)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 5, 2, 2, 2])
    """

    cls_to_become = conv.Conv3d


class LazyConvTranspose3d(_LazyConv, conv.ConvTranspose3d):
    """ConvTranspose3d whose `in_channels` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a ConvTranspose3d,
    whose formula it has.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Size of the kernels, an int or one per dimension.
        bias: Whether to add a learned bias. Default: True.
        stride: Distance between neighbouring windows, an int or one per dimension. Default: 1.
        padding: Width cut from both sides of the output, an int or one per dimension. Default: 0.
        output_padding: Width added to the end of each dimension of the output, an int or one per
            dimension. Default: 0.
        groups: Number of groups of channels that are convolved apart. Default: 1.
        dilation: Distance between neighbouring elements of a window, an int or one per dimension.
            Default: 1.
        padding_mode: "zeros", the only one.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (batch, in_channels, depth, height, width) -> (batch, out_channels, out_depth,
    out_height, out_width), or without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyConvTranspose3d.html

    >>> ad.nn.LazyConvTranspose3d(5, 3)(ad.zeros(1, 2, 4, 4, 4)).shape
    adjoint.Size([1, 5, 6, 6, 6])
    """

    cls_to_become = conv.ConvTranspose3d


class LazyBatchNorm1d(_LazyNorm, batchnorm.BatchNorm1d):
    """BatchNorm1d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a BatchNorm1d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, length).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm1d.html

    >>> layer = ad.nn.LazyBatchNorm1d()
    >>> layer(ad.randn(2, 3, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4]), 3)
    """

    cls_to_become = batchnorm.BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, batchnorm.BatchNorm2d):
    """BatchNorm2d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a BatchNorm2d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm2d.html

    >>> layer = ad.nn.LazyBatchNorm2d()
    >>> layer(ad.randn(2, 3, 4, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4, 4]), 3)
    """

    cls_to_become = batchnorm.BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, batchnorm.BatchNorm3d):
    """BatchNorm3d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a BatchNorm3d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. None: the plain mean of all
            batches. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: True.
        track_running_stats: Whether to keep running statistics. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, depth, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyBatchNorm3d.html

    >>> layer = ad.nn.LazyBatchNorm3d()
    >>> layer(ad.randn(2, 3, 4, 4, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4, 4, 4]), 3)
    """

    cls_to_become = batchnorm.BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)


class LazyInstanceNorm1d(_LazyInstanceNorm, batchnorm.InstanceNorm1d):
    """InstanceNorm1d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a InstanceNorm1d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, length).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm1d.html

    >>> layer = ad.nn.LazyInstanceNorm1d()
    >>> layer(ad.randn(2, 3, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4]), 3)
    """

    cls_to_become = batchnorm.InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, batchnorm.InstanceNorm2d):
    """InstanceNorm2d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a InstanceNorm2d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm2d.html

    >>> layer = ad.nn.LazyInstanceNorm2d()
    >>> layer(ad.randn(2, 3, 4, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4, 4]), 3)
    """

    cls_to_become = batchnorm.InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, batchnorm.InstanceNorm3d):
    """InstanceNorm3d whose `num_features` is that of its first input.

    The first call, or loading a state, makes the parameters; from then on it is a InstanceNorm3d,
    whose formula it has.

    Args:
        eps: Number added to the variance. Default: 1e-5.
        momentum: Share of the new statistics in the running ones. Default: 0.1.
        affine: Whether to have a learned weight and bias for each channel. Default: False.
        track_running_stats: Whether to keep running statistics. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        bias: Whether to have a bias, where `affine`. Default: True.

    Shapes: (batch, channels, depth, height, width).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyInstanceNorm3d.html

    >>> layer = ad.nn.LazyInstanceNorm3d()
    >>> layer(ad.randn(2, 3, 4, 4, 4)).shape, layer.num_features
    (adjoint.Size([2, 3, 4, 4, 4]), 3)
    """

    cls_to_become = batchnorm.InstanceNorm3d
