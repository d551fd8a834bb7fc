"""The cross entropy of many logits as Triton kernels, which read them once forward and once
backward and write nothing of their size but the gradient: PyTorch's keep their logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.dtype import float32
from ...core.errors import NotTraceable
from ...core.spec import Spec, prod
from ..codegen.ir import Kernel, KernelValue
from .array import Array, allocating
from .fused import Launch, reason_off

__all__ = ["CrossEntropy", "plan"]

LOGITS = 1 << 20  # below, PyTorch's kernels take less of the host's time


class CrossEntropy:
    """-log softmax(logits)[target] of each row, their sum or mean; see `autograd.fusion.Routine`.

    Logits may come in float16 or bfloat16 for the float32 that was planned: kernels compute in
    float32 either way, and the gradient has the dtype of the logits. A target out of range that is
    not `ignored` makes its row NaN.
    """

    whole = widens = True
    several = False
    differentiable = (0,)

    def __init__(self, logits: Spec, ignored: int, reduction: str, wants: Sequence[bool]) -> None:
        self.ignored, self.reduction, self.wants = ignored, reduction, tuple(wants)
        rows = Spec(logits.shape[:1], float32, logits.device)
        self.outputs = (rows if reduction == "none" else Spec((), float32, logits.device),)
        self.kept = (rows,) if any(wants) else ()  # logarithms of the sums of exponentials
        self.sizes = logits.shape
        self.kernels: dict[Any, tuple[Launch, Launch]] = {}
        self._kernels_for(torch.float32)

    def _kernels_for(self, dtype: Any) -> tuple[Launch, Launch]:
        """The kernels of the losses and of the gradient, for logits of a dtype."""
        launches = self.kernels.get(dtype)
        if launches is None:
            name = str(dtype).removeprefix("torch.")
            ahead, behind = _losses(name, self.ignored), _gradient(name, self.ignored)
            launches = self.kernels[dtype] = (
                Launch(ahead, self.sizes, (), "cross_entropy"),
                Launch(behind, self.sizes, (), "cross_entropy_backward"),
            )
        return launches

    @allocating
    def forward(self, arrays: list[Array], into: Any = None) -> tuple[list[Array], list[Any]]:
        """The loss, and what the gradient wants kept."""
        logits, target = (x.tensor for x in arrays)
        losses, logs = self._kernels_for(logits.dtype)[0]([logits, target])
        if self.reduction != "none":
            losses = losses.sum()
        if self.reduction == "mean":
            losses = losses / (target != self.ignored).sum()
        return [Array(losses)], [Array(logs)] if self.kept else []

    @allocating
    def backward(
        self, arrays: list[Array], outputs: list[Array], kept: list[Array], gs: list[Any]
    ) -> list[Any]:
        """The gradient of the logits."""
        logits, target = (x.tensor for x in arrays)
        scale = gs[0].tensor
        if self.reduction == "mean":
            scale = scale / (target != self.ignored).sum()
        given = [logits, target, kept[0].tensor, scale.expand(self.sizes[:1])]
        (gradient,) = self._kernels_for(logits.dtype)[1](given)
        return [Array(gradient), None]


def _losses(dtype: str, ignored: int) -> Kernel:
    """The losses of rows, and the logarithms of their sums of exponentials."""
    k = Kernel(rank=2)
    x, target = k.input(dtype), k.input("int64", axes=(0,))
    greatest = k.max(x, axes=(1,))
    picked = k.sum(k.where(_is_picked(k, target), x, 0.0), axes=(1,))
    logs = greatest + k.log(k.sum(k.exp(x - greatest), axes=(1,)))
    count = k.size((1,))
    outside = (target < 0) | (target >= count)
    k.output(k.where(k.eq(target, ignored), 0.0, k.where(outside, float("nan"), logs - picked)))
    k.output(logs)
    return k


def _gradient(dtype: str, ignored: int) -> Kernel:
    """Kernel of the gradient of the logits: of each row's loss, times the row's scale."""
    k = Kernel(rank=2)
    x, target = k.input(dtype), k.input("int64", axes=(0,))
    logs, scale = k.input("float32", axes=(0,)), k.input("float32", axes=(0,))
    scaled = (
        k.exp(x - logs) - k.where(_is_picked(k, target), 1.0, k.const(0.0, "float32"))
    ) * scale
    k.output(k.where(k.eq(target, ignored), 0.0, scaled), dtype)
    return k


def _is_picked(k: Kernel, target: KernelValue) -> KernelValue:
    equal: KernelValue = k.eq(k.index(1), target)
    return equal


def plan(
    specs: Sequence[Spec], statics: tuple[Any, ...], wants: Sequence[bool]
) -> CrossEntropy | None:
    """The routine of `_cross_entropy` of such arguments; None where it is PyTorch's."""
    _, _, weight, dim, ignored, reduction, smoothing = statics
    logits = specs[0]
    if reason_off(logits.device) or weight is not None or smoothing or any(wants[1:]):
        return None
    if dim != 1 or len(logits.shape) != 2 or logits.dtype is not float32:
        return None
    if prod(logits.shape) < max(LOGITS, 1):
        return None
    try:
        return CrossEntropy(logits, ignored, reduction, wants)
    except NotTraceable:
        return None
