"""What can be seen and changed of a recorded graph: hooks on the tensors that nodes save.

Source: https://docs.pytorch.org/docs/stable/autograd.html#torch-autograd-graph
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph.node import Node
from .modes import _ModeSwitch

__all__ = ["Node", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks(_ModeSwitch):  # noqa: N801 - PyTorch's name
    """Inside, each tensor saved for backward is kept as `pack_hook(tensor)` and read as
    `unpack_hook` of that: to store it elsewhere, smaller, or not at all.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks

    >>> x = ad.ones(2, requires_grad=True)
    >>> with ad.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), ad.from_numpy):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        super().__init__()
        self.changes = {"saved_hooks": (pack_hook, unpack_hook)}


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's name
    """Inside, tensors saved for backward are kept on the CPU.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.save_on_cpu

    >>> x = ad.ones(2, requires_grad=True)
    >>> with ad.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda x: (x.device, x.cpu()), lambda kept: kept[1].to(kept[0]))
