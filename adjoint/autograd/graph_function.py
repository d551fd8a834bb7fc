"""Custom Functions in a graph: a node whose gradient is the user's backward.

Where forward is made of operations, those are nodes too, and backward is recorded from the node's
saved tensors: it refreshes, and can be differentiated again. Where forward reads values (calls
NumPy, for instance), the whole forward is one node that runs it anew, and so is backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import AutogradError, Unsupported
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap, zeros
from ..graph.cells import Cell, State
from ..graph.lazy import concrete
from .recording import Recorder, record_cell, rewrite


def state_of(args: Sequence[Any]) -> State | None:
    """The graph that a Function called with `args` belongs to; None for no graph."""
    for x in args:
        if isinstance(x, TensorBase) and isinstance(x._data, Cell):
            return x._data.state
    executor = MODE.get().executor
    return executor.state if isinstance(executor, Recorder) else None


class Saved:
    """What `ctx.saved_tensors` gives."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.saved_tensors = tensors


class RecordedFunction(Op, abstract=True):
    """The results of forward, given first, with the user's backward as their gradient."""

    opaque = True
    exact = True

    def __init__(
        self,
        function: Any,
        ctx: Any,
        rule: Callable[..., Any],
        saved: Sequence[Any],
        count: int,
        places: Any,
    ) -> None:
        self.function = function
        self.ctx = ctx
        self.rule = rule  # gives one gradient for each argument
        self.saved = tuple(saved)  # tensors, None, or the number of an output
        self.n_outputs = count  # type: ignore[misc]
        self.places = places  # of the tensors among the arguments

    def infer(self, *specs: Any) -> Any:
        """The specs of the results."""
        return specs[0] if self.n_outputs == 1 else tuple(specs[: self.n_outputs])

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """The results as they are."""
        return arrays[0] if self.n_outputs == 1 else tuple(arrays[: self.n_outputs])

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """`backward(ctx, *g)`."""
        ys = (y,) if self.n_outputs == 1 else y
        given = [g] if self.n_outputs == 1 else list(g)
        if self.ctx.materialize_grads:
            given = [
                zeros(each.shape, each._data.dtype, each.device) if one is None else one
                for one, each in zip(given, ys, strict=True)
            ]
        saved = Saved(tuple(ys[s] if isinstance(s, int) else s for s in self.saved))
        self.ctx._node = lambda: saved
        found = self.rule(self.ctx, *given)
        return (None,) * self.n_outputs + tuple(found[i] for i in self.places)


def record_function(
    state: State,
    function: Any,
    ctx: Any,
    rule: Callable[..., Any],
    args: Sequence[Any],
    raw: Sequence[Any],
) -> tuple[Any, ...]:
    """The results `raw` of forward as results of one node, differentiated by `rule`."""
    places = [i for i, y in enumerate(raw) if isinstance(y, TensorBase)]
    numbers = {id(raw[i]): n for n, i in enumerate(places)}
    saved = [None if x is None else numbers.get(id(x), x) for x in ctx.to_save]
    tensors = [i for i, x in enumerate(args) if isinstance(x, TensorBase)]
    op = RecordedFunction(function, ctx, rule, saved, len(places), tensors)
    results = [wrap(raw[i]._data, raw[i]._node, raw[i]._changes) for i in places]
    ys = record_cell(state, op, (*results, *(x for x in args if isinstance(x, TensorBase))))
    outputs = list(raw)
    for i, y in zip(places, ys if isinstance(ys, tuple) else (ys,), strict=True):
        if any(raw[i] is x for x in ctx.non_differentiable):
            y._node = None
        if any(raw[i] is x for x in ctx.dirty_tensors):
            rewrite(raw[i], y)
            y = raw[i]
        outputs[i] = y
    ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
    return tuple(outputs)


class OpaqueForward(Op, abstract=True):
    """A Function whose forward reads values: runs the whole of it."""

    opaque = True
    strict = False

    def __init__(self, function: Any, args: Sequence[Any], specs: Sequence[Spec]) -> None:
        self.function = function
        self.args = tuple(None if isinstance(x, TensorBase) else x for x in args)
        self.places = [i for i, x in enumerate(args) if isinstance(x, TensorBase)]
        self.specs = tuple(specs)
        self.n_outputs = len(specs)  # type: ignore[misc]

    def infer(self, *specs: Any) -> Any:
        """As forward gave when it was recorded."""
        return self.specs[0] if self.n_outputs == 1 else self.specs

    def arguments(self, arrays: Sequence[Any], leaves: bool) -> tuple[list[Any], list[Any]]:
        """All arguments, and the tensors among them."""
        tensors = [wrap(a) for a in arrays]
        if leaves:
            for x in tensors:
                if x._data.dtype.kind in "fcV":
                    x.requires_grad_()
        args = list(self.args)
        for i, x in zip(self.places, tensors, strict=True):
            args[i] = x
        return args, tensors

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """What forward gives."""
        args, _ = self.arguments(arrays, False)
        found = _eagerly(lambda: self.function.apply(*args))
        ys = [concrete(y) for y in found if isinstance(y, TensorBase)]
        return ys[0] if self.n_outputs == 1 else tuple(ys)

    def gradient(self, g: Any, xs: Any) -> tuple[Any, ...]:
        """One node that runs forward and backward."""
        given = (g,) if self.n_outputs == 1 else g
        seeds = [
            zeros(s.shape, s.dtype.numpy, s.device) if one is None else one
            for one, s in zip(given, self.specs, strict=True)
        ]
        state = state_of((*seeds, *xs))
        assert state is not None
        found = record_cell(state, OpaqueBackward(self), (*seeds, *xs))
        return found if isinstance(found, tuple) else (found,)


class OpaqueBackward(Op, abstract=True):
    """The gradients of an OpaqueForward."""

    opaque = True

    def __init__(self, forward: OpaqueForward) -> None:
        self.forward = forward
        self.n_outputs = len(forward.places)  # type: ignore[misc]

    def infer(self, *specs: Any) -> Any:
        """The inputs' specs."""
        found = specs[self.forward.n_outputs :]
        return found[0] if self.n_outputs == 1 else tuple(found)

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """What backward gives; zeros for None."""
        from .gradients import grad

        count = self.forward.n_outputs
        args, tensors = self.forward.arguments(arrays[count:], True)

        def run() -> list[Any]:
            found = self.forward.function.apply(*args)
            ys = found if isinstance(found, tuple) else (found,)
            pairs = [
                (y, wrap(g))
                for y, g in zip(
                    [y for y in ys if isinstance(y, TensorBase)], arrays[:count], strict=True
                )
                if y._node is not None
            ]
            leaves = [x for x in tensors if x._node is not None]
            grads = grad([y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
            by_leaf = {id(x): g for x, g in zip(leaves, grads, strict=True)}
            return [by_leaf.get(id(x)) for x in tensors]

        found = _eagerly(run)
        results = [
            concrete(zeros(x.shape, x._data.dtype, x.device) if g is None else g)
            for x, g in zip(tensors, found, strict=True)
        ]
        return results[0] if self.n_outputs == 1 else tuple(results)

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """Refused."""
        raise AutogradError(
            f"{self.forward.function.__name__}: its forward reads values, so in a Graph its "
            "backward is computed as a whole and cannot be differentiated; write both in "
            "operations on tensors"
        )


def _eagerly(function: Callable[[], Any]) -> tuple[Any, ...]:
    """What `function` returns, as a tuple, run eagerly."""
    mode = MODE.get()
    MODE.set(mode_with(DEFAULT, grad=True))
    try:
        found = function()
    finally:
        MODE.set(mode)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def record_opaque(
    state: State, function: Any, args: Sequence[Any], raw: Sequence[Any]
) -> tuple[Any, ...]:
    """The results of a forward that reads values, as those of one node that runs it."""
    if not all(isinstance(y, TensorBase) for y in raw):
        raise Unsupported(
            f"{function.__name__}: its forward reads values and returns what is no tensor, which a "
            "Graph cannot record; return tensors only, or compute with operations"
        )
    op = OpaqueForward(function, args, [y.spec for y in raw])  # type: ignore[attr-defined]
    ys = record_cell(state, op, tuple(x for x in args if isinstance(x, TensorBase)))
    return ys if isinstance(ys, tuple) else (ys,)
