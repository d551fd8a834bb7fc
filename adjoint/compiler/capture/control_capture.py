"""The capture of functions of `cond`, `while_loop` or `scan`, and the node that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.dual import Dual, follows_tangents
from ...autograd.levels import Leveled
from ...autograd.recording import Recorder
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.tensor_base import TensorBase
from ...core.tree import TreeSpec, parts_of
from ...runtime.dispatch import apply
from ...runtime.node import INFERENCE
from .body_recorder import Scope, like
from .body_state import BodyState
from .capturing import Capturing
from .random_state import ControlFlowDraws
from .subgraphs import Subgraph, captured, leading

if TYPE_CHECKING:
    from ..guards.state_snapshot import StateSnapshot
    from .control_flow_ops import ControlFlow


class Capture:
    """Traces the bodies of one call, and applies the node that runs them."""

    def __init__(self, title: str, tensors: Sequence[Any]) -> None:
        mode = MODE.get()
        for x in tensors:
            if x.device.type != "cpu":
                raise Unsupported(
                    f"{title}: a tensor on {x.device}, where control flow is captured; move it by "
                    ".cpu(), or call it eagerly"
                )
        self.title = title
        # Tangents flow where gradients are off.
        self.grad = (mode.grad and not mode.inference) or follows_tangents(tensors)
        self.autocast = mode.autocast.without_cache() if mode.casts else None
        # In a graph, gradients may be requested later.
        self.in_graph = mode.executor is None or isinstance(mode.executor, Recorder)
        self.met: list[list[Any]] = []  # outside tensors that each body has captured

    def wants(self, x: TensorBase) -> bool:
        """Whether a gradient of a tensor may be wanted: here, or outside of a transform in which
        this is.
        """
        return self.grad and (self.in_graph or _has_history(x))

    def made(
        self, function: Callable[..., Any], arguments: Sequence[Any],
        reads: StateSnapshot | None = None, users: Callable[..., Any] | None = None,
    ) -> Subgraph:  # fmt: skip
        """Trace a function that gives a list of tensors, and note what it captured; `users` is what
        the user gave, which may not change Python state.
        """
        around = MODE.get().executor
        snapshot = around.snapshot if isinstance(around, Capturing) else None
        state = None if users is None else BodyState(self.title, users, snapshot)
        body, outside = captured(
            self.title,
            arguments,
            function,
            arguments,
            Scope(),
            self.grad,
            self.wants,
            self.autocast,
            reads,
        )
        if state is not None:
            state.assert_same()
        self.met.append(outside)
        return body

    def body(
        self, function: Callable[..., Any], given: TreeSpec, tensors: Sequence[Any], name: str,
        carried: bool = False,
    ) -> tuple[Subgraph, TreeSpec]:  # fmt: skip
        """Trace a user's function for symbols like `tensors`: the body, and the form of what it
        returns. Tensors that are `carried` may get a history on the way.
        """
        forms: list[TreeSpec] = []

        def run(*args: Any) -> list[Any]:
            result = function(*given.unflatten(args))
            parts, form = parts_of(result, f"{self.title}: {name} gives")
            forms.append(form)
            return parts

        arguments = [like(x, self.grad if carried else self.wants(x)) for x in tensors]
        return self.made(run, arguments, users=function), forms[0]

    def merged(self, first: int) -> tuple[list[Any], list[list[int]]]:
        """Captured outside tensors of all bodies, each once, and for each body the numbers of its
        inputs among the `first` tensors and these.
        """
        every = {id(x): x for met in self.met for x in met}
        number_of = {key: first + n for n, key in enumerate(every)}
        return list(every.values()), [
            [*range(first), *(number_of[id(x)] for x in met)] for met in self.met
        ]

    def settled(self, body: Subgraph, carried: Sequence[Any]) -> list[bool]:
        """For each output whether it requires a gradient. Carried tensors may come to require one
        in an iteration, so this is a fixed point.
        """
        count = len(carried)
        inputs = body.inputs
        live = {x._node for x in inputs[count:]}
        live |= {x._node for x, own in zip(inputs, carried, strict=False) if self.wants(own)}
        live.discard(None)
        reached = [leading(y) for y in body.outputs]
        changes = True
        while changes:
            changes = False
            for x, nodes in zip(inputs[:count], reached, strict=False):
                if x._node is not None and x._node not in live and not live.isdisjoint(nodes):
                    live.add(x._node)
                    changes = True
        wanting = [not live.isdisjoint(nodes) for nodes in reached]
        wanting[:count] = [x._node in live for x in inputs[:count]]
        for x in (*inputs[:count], *body.outputs):
            if x._node is not None and live.isdisjoint(leading(x)):
                x._node = None
        return wanting

    def drawing(self, *bodies: Subgraph) -> ControlFlowDraws:
        """Register the draws of a node with these bodies."""
        streams = getattr(MODE.get().executor, "streams", None)
        return ControlFlowDraws(streams, [body.streams for body in bodies])

    def applied(self, op: ControlFlow, inputs: Sequence[Any], wanting: Sequence[bool]) -> list[Any]:
        """Apply a node: its first outputs, with a history where `wanting` says so. It saves its
        inputs, so those made in inference mode, which ops may not save, are cloned.
        """
        if self.grad:
            inputs = [x.clone() if x._changes is INFERENCE else x for x in inputs]
        result = apply(op, *inputs, *op.drawing.given)
        several = result if type(result) is tuple else (result,)
        op.drawing.leave(several[len(several) - len(op.drawing) :])
        for y, wants in zip(several, wanting, strict=False):
            if not (wants or self.in_graph):
                y._node = None
        return list(several[: len(wanting)])


def _has_history(x: Any) -> bool:
    """Whether a tensor, or what it wraps at levels outside, has a history or a tangent."""
    while True:
        if x._node is not None:
            return True
        data = x._data
        if not isinstance(data, Leveled):
            return False
        if isinstance(data, Dual) and data.tangent is not None:
            return True
        x = data.inner
