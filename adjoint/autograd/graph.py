"""`autograd.graph`: hooks on recorded graphs and on the tensors that nodes save.

Source: https://docs.pytorch.org/docs/stable/autograd.html#torch-autograd-graph
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.tensor_type import Tensor
from ..runtime.node import Node
from .engine import at_end, is_at_end, will_run
from .modes import _ModeSwitch

__all__ = ["Node", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class MultiGradHandle:
    """Handle of `register_multi_grad_hook`: removes its hooks by `remove()` or at the end of a
    `with` block.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> MultiGradHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> MultiGradHandle:
    """Call `fn` once in each backward that reaches `tensors`: "all" calls it with a list of all
    their gradients (None where none arrives) after the last one, "any" with the first gradient.

    Errors: InvalidArgument for another mode; AutogradError for a tensor that does not require grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.graph.register_multi_grad_hook.html

    >>> a, b, c = (ad.ones(1, requires_grad=True) for _ in range(3))
    >>> handle = ad.autograd.graph.register_multi_grad_hook((a, b, c), print)
    >>> (a * b * 2).backward()
    [tensor([2.]), tensor([2.]), None]
    >>> handle.remove()
    """
    if mode not in ("all", "any"):
        raise InvalidArgument(
            f"register_multi_grad_hook: expects mode to be 'any' or 'all', got {mode!r}"
        )
    arrived: dict[int, Any] = {}  # gradients of the backward that runs now
    awaited = 0  # how many it brings

    def hook_of(i: int) -> Callable[[Any], None]:
        def hook(g: Tensor) -> None:
            nonlocal awaited
            if not is_at_end(end):
                arrived.clear()  # of a backward that failed
                at_end(end)
                awaited = sum(will_run(x._node) for x in tensors)
                if mode == "any":
                    fn(g)
            arrived[i] = g
            if len(arrived) == awaited:
                call()

        return hook

    def call() -> None:
        if mode == "all":
            fn([arrived.get(i) for i in range(len(tensors))])

    def end() -> None:
        if len(arrived) < awaited:  # no gradient came where one was awaited
            call()
        arrived.clear()

    return MultiGradHandle([x.register_hook(hook_of(i)) for i, x in enumerate(tensors)])


class saved_tensors_hooks(_ModeSwitch):  # noqa: N801 - PyTorch's name
    """Context manager: each tensor saved for backward is stored as `pack_hook(tensor)` and read by
    `unpack_hook`, for instance to store it elsewhere, smaller, or not at all.

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
    """Context manager: tensors saved for backward are kept on the CPU.

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
