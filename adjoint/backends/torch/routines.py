"""Ops and composites that PyTorch computes in one kernel, composites with their gradients.

An op of LIBRARY is computed by that function instead of by its own `compute`, of which it is the
value. A composite of COMPOSITES runs as the function, and PyTorch derives its gradient; where the
gradient's own graph is wanted, the composite's body runs as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - PyTorch's name for it

from ...core.dtype import dtype as Dtype  # noqa: N812
from ...core.dtype import float32
from ...core.errors import IndexingError
from ...core.spec import Spec
from . import losses
from .array import NUMPY, Array, allocating, torch_dtype

aten = torch.ops.aten


def _linear(op: Any, x: Any, w: Any, bias: Any = None) -> Any:
    fits = x.is_floating_point() and w.ndim == 2 and (bias is None or bias.ndim == 1)
    return F.linear(x, w, bias) if fits else None


def _linear_input(op: Any, g: Any, w: Any) -> Any:
    return torch.matmul(g, w) if g.is_floating_point() and w.ndim == 2 else None


def _linear_weight(op: Any, g: Any, x: Any) -> Any:
    if not g.is_floating_point() or g.ndim < 2 or g.ndim != x.ndim:
        return None
    return torch.mm(g.flatten(0, -2).t(), x.flatten(0, -2))


# By the name of the op's class: (op, *tensors) -> tensor, or None where it does not apply.
LIBRARY: dict[str, Callable[..., Any]] = {
    "Linear": _linear, "LinearInput": _linear_input, "LinearWeight": _linear_weight,
    "Relu": lambda op, x: torch.relu(x) if x.is_floating_point() else None,
    "Gelu": lambda op, x: F.gelu(x, approximate="tanh" if op.tanh else "none"),
    "Silu": lambda op, x: None if x.is_complex() else F.silu(x),
    "Mish": lambda op, x: F.mish(x),
    "Softplus": lambda op, x: F.softplus(x, op.beta, op.threshold),
    "Softmax": lambda op, x: torch.softmax(x, op.axes[0]) if op.axes else None,
    "LogSoftmax": lambda op, x: torch.log_softmax(x, op.axes[0]) if op.axes else None,
    "Sum": lambda op, x: (
        torch.sum(x, op.axes, op.keepdims, dtype=x.dtype) if op.axes and x.ndim else None
    ),
    "Mean": lambda op, x: torch.mean(x, op.axes, op.keepdims) if op.axes and x.ndim else None,
}  # fmt: skip


# ---- composites ----------------------------------------------------------------------------------


class NoKernel(Exception):  # noqa: N818 - says what there is not
    """PyTorch has no kernel for a composite of these arguments."""


def _standardize(x: Any, weight: Any, bias: Any, axes: tuple[int, ...], eps: float) -> Any:
    _assert_one_dtype(x, weight, bias)
    first = x.ndim - len(axes)
    shape = tuple(x.shape[first:])
    trailing = axes == tuple(range(first, x.ndim))
    if not trailing or any(t is not None and tuple(t.shape) != shape for t in (weight, bias)):
        raise NoKernel
    return F.layer_norm(x, shape, weight, bias, eps)


def _standardize_channels(x: Any, weight: Any, bias: Any, eps: float, tell: bool) -> Any:
    _assert_batch_norm(x, weight, bias)
    if not tell:
        return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    if x.dtype not in (torch.float32, torch.float64):
        raise NoKernel
    channels = x.shape[1]
    mean, variance = torch.zeros(2, channels, dtype=x.dtype, device=x.device).unbind()
    y = F.batch_norm(x, mean, variance, weight, bias, True, 1.0, eps)
    count = x.numel() // channels
    return y, mean, variance * ((count - 1) / count)


def _standardize_channels_by(
    x: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float
) -> Any:
    _assert_batch_norm(x, mean, variance, weight, bias)
    if mean.requires_grad or variance.requires_grad:
        raise NoKernel
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)


def _assert_batch_norm(x: Any, *parameters: Any) -> None:
    """Refuse batch norm of channels with one value, or with arguments that are not one number for
    each.
    """
    _assert_one_dtype(x, *parameters)
    if x.ndim < 2 or not x.numel() > x.shape[1] > 0:
        raise NoKernel
    if any(t is not None and tuple(t.shape) != (x.shape[1],) for t in parameters):
        raise NoKernel


def _standardize_groups(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    _assert_one_dtype(x, weight, bias)
    if not x.numel() > x.shape[0] * groups > 0:
        raise NoKernel
    return F.group_norm(x, groups, weight, bias, eps)


def _assert_one_dtype(*tensors: Any) -> None:
    if len({t.dtype for t in tensors if t is not None}) != 1:
        raise NoKernel


def _scale_by_root(x: Any, weight: Any, axes: tuple[int, ...], eps: float) -> Any:
    _assert_one_dtype(x, weight)
    first = x.ndim - len(axes)
    if axes != tuple(range(first, x.ndim)):
        raise NoKernel
    return F.rms_norm(x, tuple(x.shape[first:]), weight, eps)


def attention(query: Any, key: Any, value: Any, mask: Any, causal: bool, factor: float) -> Any:
    """softmax(factor q k^T) v."""
    _assert_one_dtype(query, key, value)
    if mask is not None or query.ndim != 4 or not query.shape[:2] == key.shape[:2]:
        raise NoKernel  # a row that may attend to nothing is 0 here
    if causal and query.shape[-2] > key.shape[-2]:
        raise NoKernel
    return F.scaled_dot_product_attention(query, key, value, None, 0.0, causal, scale=factor)


def _cross_entropy(
    logits: Any, target: Any, weight: Any, dim: int, ignore: int, reduction: str, smoothing: float
) -> Any:
    if dim != 1 or logits.ndim < 2 or not logits.numel():
        raise NoKernel
    try:
        return F.cross_entropy(logits, target, weight, None, ignore, None, reduction, smoothing)
    except IndexError as error:
        raise IndexingError(f"cross_entropy: {error}") from None


def _mse(x: Any, target: Any, weight: Any, reduction: str) -> Any:
    _assert_one_dtype(x, target)
    if weight is not None or x.shape != target.shape or not x.numel():
        raise NoKernel
    return F.mse_loss(x, target, reduction=reduction)


def _one_axis(axes: tuple[int, ...]) -> int:
    if len(axes) != 1:
        raise NoKernel
    return axes[0]


def _real(function: Callable[..., Any], further: bool = True) -> Callable[..., Any]:
    """Routine for real tensors of one dtype only, and without gradients unless `further`."""

    def run(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if not further and any(t.requires_grad for t in tensors):
            raise NoKernel  # PyTorch knows no derivative
        _assert_one_dtype(*tensors)
        if tensors[0].is_complex() or any(t.shape != tensors[0].shape for t in tensors):
            raise NoKernel
        return function(*args)

    return run


# By the name of the composite: the same function of tensors; NoKernel where it does not apply.
COMPOSITES: dict[str, Callable[..., Any]] = {
    "_standardize": _standardize,
    "_standardize_channels": _standardize_channels,
    "_standardize_channels_by": _standardize_channels_by,
    "_standardize_groups": _standardize_groups,
    "_scale_by_root": _scale_by_root,
    "attention": attention,
    "_cross_entropy": _cross_entropy,
    "_mse": _mse,
    "_gelu_gradient": _real(
        lambda g, x, tanh: aten.gelu_backward(g, x, approximate="tanh" if tanh else "none")
    ),
    "_silu_gradient": _real(aten.silu_backward, further=False),
    "_mish_gradient": _real(aten.mish_backward, further=False),
    "_softplus_gradient": _real(aten.softplus_backward),
    "_softmax_gradient": _real(
        lambda g, y, axes: aten._softmax_backward_data(g, y, _one_axis(axes), y.dtype)
    ),
    "_log_softmax_gradient": _real(
        lambda g, y, axes: aten._log_softmax_backward_data(g, y, _one_axis(axes), y.dtype)
    ),
}


# Those that libraries compute by algorithms of their own, or in fewer passes than kernels which are
# written for what lies around them: compiled programs leave them to PyTorch.
LIBRARIES = frozenset((
    "attention", "_standardize_channels", "_standardize_channels_by", "_standardize_groups",
    "_cross_entropy",
))  # fmt: skip


class TorchTape:
    """PyTorch's graph of one run, from the inputs that want gradients to the outputs."""

    __slots__ = ("dtype", "inputs", "outputs", "shape")

    def __init__(self, inputs: list[Any], outputs: list[Any]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.shape, self.dtype = (), NUMPY[torch.float32]  # as the data of a tensor


class Routine:
    """A composite of given arguments as PyTorch's function; see `autograd.fusion.Routine`."""

    whole = True

    def __init__(
        self,
        function: Callable[..., Any],
        specs: Sequence[Spec],
        statics: tuple[Any, ...],
        wants: Sequence[bool],
    ) -> None:
        self.function, self.statics, self.wants = function, statics, tuple(wants)
        tried = [
            torch.empty(s.shape, dtype=torch_dtype(s.dtype.numpy), device="meta") for s in specs
        ]
        for t, wanted in zip(tried, wants, strict=True):
            t.requires_grad_(wanted)
        results = self._call(tried)
        self.several = isinstance(results, tuple)
        ys = results if isinstance(results, tuple) else (results,)
        self.outputs = tuple(Spec(tuple(y.shape), _dtype(y.dtype), specs[0].device) for y in ys)
        self.differentiable = tuple(i for i, y in enumerate(ys) if y.requires_grad)
        self.kept = (Spec((), float32, specs[0].device),) if any(wants) else ()  # `TorchTape`

    def _call(self, tensors: Sequence[Any]) -> Any:
        rest = iter(tensors)
        return self.function(*(next(rest) if s is NotImplemented else s for s in self.statics))

    @allocating
    def forward(self, arrays: list[Array]) -> tuple[list[Array], list[Any]]:
        """The outputs, and PyTorch's graph where a gradient is wanted."""
        if not any(self.wants):
            results = self._call([x.tensor for x in arrays])
            return [Array(y) for y in (results if self.several else (results,))], []
        leaves = [
            x.tensor.detach().requires_grad_() if wanted else x.tensor
            for x, wanted in zip(arrays, self.wants, strict=True)
        ]
        with torch.enable_grad():
            results = self._call(leaves)
        ys = list(results if self.several else (results,))
        graph = TorchTape([t for t, wanted in zip(leaves, self.wants, strict=True) if wanted], ys)
        return [Array(y.detach()) for y in ys], [graph]

    @allocating
    def backward(
        self, arrays: list[Array], outputs: list[Array], kept: list[Any], gs: list[Any]
    ) -> list[Any]:
        """Gradients by PyTorch's graph, which stays as long as the node keeps it. It runs in this
        thread, as handing the work to a thread of the device and waiting for it would cost more
        than its launch.
        """
        (graph,) = kept
        pairs = [
            (graph.outputs[i], g.tensor)
            for i, g in zip(self.differentiable, gs, strict=True)
            if g is not None
        ]
        with torch.autograd.set_multithreading_enabled(False):
            gradients = iter(torch.autograd.grad(
                [y for y, _ in pairs], graph.inputs, [g for _, g in pairs], retain_graph=True,
                allow_unused=True,
            ))  # fmt: skip
        result: list[Any] = []
        for wanted in self.wants:
            g = next(gradients) if wanted else None
            result.append(None if g is None else Array(g))
        return result


def _dtype(kind: Any) -> Dtype:
    from ...core.dtype import from_numpy_dtype

    return from_numpy_dtype(NUMPY[kind])


def plan(
    name: str, specs: Sequence[Spec], statics: tuple[Any, ...], wants: Sequence[bool]
) -> Routine | losses.CrossEntropy | None:
    """The routine of the composite `name`; None where there is none for such arguments."""
    if name == "_cross_entropy" and (ours := losses.plan(specs, statics, wants)) is not None:
        return ours
    function = COMPOSITES.get(name)
    if function is None:
        return None
    try:
        return Routine(function, specs, statics, wants)
    except (NoKernel, RuntimeError, NotImplementedError, ValueError):
        return None  # and what is wrong with the arguments, the body itself will say
