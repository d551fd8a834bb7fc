"""Checkpointing: compute a part of the model again in backward instead of storing what it saves.

Source: https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...amp import autocast_again
from ...autograd import backward
from ...autograd.function import Function
from ...autograd.graph import saved_tensors_hooks
from ...autograd.graph_function import state_of
from ...autograd.modes import enable_grad
from ...core.errors import AutogradError, InvalidArgument, Unsupported
from ...core.missing_names import refused
from ...ops.random.generators import get_rng_state, set_rng_state
from ...runtime.node import Leaf, Target, Version, assert_unchanged, next_order
from ...runtime.public import naming
from ...runtime.views import alias
from ...tensor import Tensor
from ._pytree import tree_leaves

__all__ = [
    "CheckpointPolicy",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "noop_context_fn",
    "set_device_states",
]

Contexts = tuple[Any, Any]  # entered around the first run and around each recomputation


class CheckpointPolicy(enum.Enum):
    """Policy for an operator's results: save, recompute or offload. Only the names exist here."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


create_selective_checkpoint_contexts = refused(
    "utils.checkpoint",
    "create_selective_checkpoint_contexts",
    "operators cannot be chosen among here; checkpoint() parts of the model",
)


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing.

    >>> from adjoint.utils.checkpoint import noop_context_fn
    >>> len(noop_context_fn())
    2
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The accelerators that tensors are on, and the states of their generators: none here.

    Errors: Unsupported for tensors of other devices than the CPU.

    >>> from adjoint.utils.checkpoint import get_device_states
    >>> get_device_states(ad.ones(2), 3)
    ([], [])
    """
    others = {str(x.device) for x in tree_leaves(args) if isinstance(x, Tensor)} - {"cpu", "meta"}
    if others:
        raise Unsupported(f"get_device_states: of {sorted(others)}; random.fork_rng keeps theirs")
    return [], []


@naming
def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Give accelerators the states of `get_device_states` back.

    Errors: Unsupported where there are some.

    >>> from adjoint.utils.checkpoint import get_device_states, set_device_states
    >>> set_device_states(*get_device_states(ad.ones(2)))
    """
    if devices or states:
        raise Unsupported(f"set_device_states: of the devices {list(devices)}; the CPU's generator")


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, which keeps only its inputs for backward and runs again there.

    The backward runs `function` again. Random numbers are drawn again alike where
    `preserve_rng_state`. With `use_reentrant`, the recomputed part runs a backward of its own,
    so only `backward()` without `inputs=` reaches the parameters, and only tensors among `args`
    themselves count as inputs. Unlike PyTorch, `use_reentrant` is False unless asked for; in a
    Graph, whose nodes are computed again anyway, it has no effect.

    Errors: AutogradError where the recomputation saves other tensors than the first run did, or
    where a tensor that the function was given, or that an operation in it saved, has been written
    in place since; InvalidArgument for keywords together with `use_reentrant`.
    Source: https://docs.pytorch.org/docs/stable/checkpoint.html#torch.utils.checkpoint.checkpoint

    >>> from adjoint.utils.checkpoint import checkpoint
    >>> x = ad.ones(2, requires_grad=True)
    >>> checkpoint(lambda v: v.exp() * v, x).sum().backward()
    >>> x.grad
    tensor([5.4366, 5.4366])
    """
    if debug:
        raise Unsupported("checkpoint: debug=True; compare the ops of two runs with detect_anomaly")
    if use_reentrant:
        if kwargs:
            raise InvalidArgument(
                f"checkpoint: Unexpected keyword arguments: {','.join(kwargs)}; pass "
                "use_reentrant=False"
            )
        if context_fn is not noop_context_fn:
            raise InvalidArgument(
                "checkpoint: Passing `context_fn` or `debug` is only supported when "
                "use_reentrant=False."
            )
        if state_of(args) is None:  # nodes of a Graph are recorded once, draws included
            return _Reentrant.apply(function, preserve_rng_state, *args)
    if determinism_check not in ("default", "none"):
        raise InvalidArgument(
            f"checkpoint: determinism_check should be 'default' or 'none', got "
            f"{determinism_check!r}"
        )
    first, again = context_fn()
    region = _Region(
        lambda: function(*args, **kwargs),
        [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)],
        again,
        preserve_rng_state,
        determinism_check == "default",
        early_stop,
    )
    begin = next_order()
    with saved_tensors_hooks(region.pack, region.unpack), first:
        found = function(*args, **kwargs)
    region.given += map(_Seen, _leaves_of(found, begin))
    return found


@naming
def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
) -> Any:
    """Run `functions` (a Sequential or a list) one after the other, in checkpointed segments.

    The last segment is not checkpointed: its backward comes first.

    Source: https://docs.pytorch.org/docs/stable/checkpoint.html#torch.utils.checkpoint.checkpoint_sequential

    >>> from adjoint.utils.checkpoint import checkpoint_sequential
    >>> x = ad.ones(2, requires_grad=True)
    >>> checkpoint_sequential([ad.exp, ad.tanh, ad.exp, ad.tanh], 2, x).sum().backward()
    >>> x.grad is None
    False
    """
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(part: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for step in part:
                x = step(x)
            return x

        return forward

    size = len(steps) // segments
    last = size * (segments - 1)
    for start in range(0, last, size or 1):
        part = steps[start : start + size]
        input = checkpoint(
            run(part), input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state
        )
    return run(steps[last:])(input)


def _leaves_of(outputs: Any, begin: int) -> list[Tensor]:
    """The leaves that the nodes of `outputs` read which were made since `begin` (an order)."""
    nodes: list[Target] = [
        x._node for x in tree_leaves(outputs) if isinstance(x, Tensor) and x._node is not None
    ]
    met = set(map(id, nodes))
    leaves = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, Leaf):
            tensor = node.tensor()
            if tensor is not None:
                leaves.append(tensor)
        elif node.order > begin:
            for parent in getattr(node, "parents", ()):
                if parent is not None and id(parent) not in met:
                    met.add(id(parent))
                    nodes.append(parent)
    return leaves


@contextlib.contextmanager
def _random_state(state: Any) -> Iterator[None]:
    """Draw random numbers from `state` on, then go back; None changes nothing."""
    if state is None:
        yield
        return
    outside = get_rng_state()
    set_rng_state(state)
    try:
        yield
    finally:
        set_rng_state(outside)


class _Stop(Exception):  # noqa: N818 - no error: ends a recomputation that has all it needs
    pass


class _Seen:
    """The version of a tensor when the region first ran; it does not keep the tensor's memory."""

    __slots__ = ("_changes", "count", "shape")

    def __init__(self, x: Tensor) -> None:
        if x._changes is None:  # it was never written
            x._changes = Version()
        self._changes, self.count, self.shape = x._changes, x._changes.count, x.shape

    def assert_unchanged(self) -> None:
        """Refuse a tensor that was written since: what is computed of it again would be another.

        Errors: AutogradError.
        """
        assert_unchanged("checkpoint", self, self.count)


class _Held:
    """Stands for one saved tensor of a region."""

    __slots__ = ("kind", "number", "seen")

    def __init__(self, number: int, x: Any) -> None:
        self.number = number  # the how-manieth tensor that the region saved
        self.kind = (tuple(x.shape), x.dtype)
        self.seen = _Seen(x)


class _Region:
    """A checkpointed call, whose saved tensors can be computed again.

    All tensors are recomputed when the first is asked for; each is dropped once it is used.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        given: Sequence[Tensor],
        again: Any,
        preserve_rng_state: bool,
        check: bool,
        early_stop: bool,
    ) -> None:
        self.call = call
        self.given = [_Seen(x) for x in given]
        self.again = again
        self.casting = autocast_again()
        self.state = get_rng_state() if preserve_rng_state else None
        self.check = check
        self.early_stop = early_stop
        self.count = 0  # tensors saved by the first run
        self.recomputed: dict[int, Any] = {}

    def pack(self, x: Any) -> _Held:
        """Keep only the number of `x`."""
        self.count += 1
        return _Held(self.count - 1, x)

    def unpack(self, held: _Held) -> Any:
        """The tensor with that number, computed again.

        Errors: AutogradError where what the function read was written since, or it does
        something else now.
        """
        if held.number not in self.recomputed:
            self._recompute()
        try:
            x = self.recomputed.pop(held.number)
        except KeyError:
            raise AutogradError(
                f"checkpoint: A different number of tensors was saved during the original forward "
                f"({self.count}) and recomputation (at most {held.number}); the function must do "
                "the same each time it is called"
            ) from None
        if x._changes is held.seen._changes:  # it was there before the region: read, not computed
            held.seen.assert_unchanged()
        if self.check and (tuple(x.shape), x.dtype) != held.kind:
            raise AutogradError(
                f"checkpoint: Recomputed values for the following tensors have different metadata "
                f"than during the forward pass: tensor {held.number} was {held.kind}, now "
                f"{(tuple(x.shape), x.dtype)}"
            )
        return x

    def _recompute(self) -> None:
        for seen in self.given:
            seen.assert_unchanged()
        count = 0
        found: dict[int, Any] = {}

        def keep(x: Any) -> Any:
            nonlocal count
            found[count] = alias(x)  # its data may be exchanged behind it
            count += 1
            if count == self.count and self.early_stop:
                raise _Stop
            return x

        with (
            _random_state(self.state),
            enable_grad(),
            saved_tensors_hooks(keep, lambda x: x),
            self.casting,
            self.again,
            contextlib.suppress(_Stop),
        ):
            self.call()
        if count != self.count:
            raise AutogradError(
                f"checkpoint: A different number of tensors was saved during the original forward "
                f"({self.count}) and recomputation ({count}); the function must do the same each "
                "time it is called"
            )
        self.recomputed = found


class _Reentrant(Function):
    """A checkpointed call whose backward runs it again and then a backward of that."""

    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any
    ) -> Any:
        """The value, with nothing recorded."""
        ctx.function = function
        ctx.casting = autocast_again()
        ctx.state = get_rng_state() if preserve_rng_state else None
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        ctx.seen = [_Seen(x) for x in tree_leaves(args) if isinstance(x, Tensor)]
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The inputs' gradients; parameters get theirs from the inner backward."""
        for seen in ctx.seen:
            seen.assert_unchanged()
        args = list(ctx.others)
        for i, x in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = x.detach().requires_grad_(x.requires_grad)
        with _random_state(ctx.state), enable_grad(), ctx.casting:
            found = ctx.function(*args)
        outputs = found if isinstance(found, tuple) else (found,)
        live = [
            (y, g)
            for y, g in zip(outputs, gradients, strict=True)
            if isinstance(y, Tensor) and y.requires_grad
        ]
        if not live:
            raise AutogradError(
                "checkpoint: none of output has requires_grad=True, this checkpoint() is not "
                "necessary"
            )
        backward([y for y, _ in live], [g for _, g in live])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in args))
