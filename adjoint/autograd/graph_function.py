"""Custom Functions in a graph: a node whose gradient is the user's backward.

Where forward is made of operations, those are nodes too, and backward is recorded from the node's
saved tensors: it refreshes, and can be differentiated again. Where forward reads values (calls
NumPy, for instance), the whole forward is one node that runs it anew, and so is backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import AutogradError, Unsupported
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.cells import Cell, GraphState
from ..runtime.lazy import concrete
from ..runtime.tensors import wrap, zeros
from .graph_writes import rewrite
from .recording import Recorder, record_cell

if TYPE_CHECKING:
    from .function import Function, FunctionCtx, _FunctionCall
    from .protocols import BackendArray


def state_of(args: Sequence[Any]) -> GraphState | None:
    """The graph that a Function called with `args` belongs to; None for no graph."""
    for x in args:
        if isinstance(x, TensorBase) and isinstance(x._data, Cell):
            return x._data.state
    executor = MODE.get().executor
    return executor.state if isinstance(executor, Recorder) else None


class Saved:
    """Stand-in for a FunctionNode that `ctx.saved_tensors` reads from."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.saved_tensors = tensors


class RecordedFunction(Op, abstract=True):
    """The op of a recorded Function: passes the results of forward (its first inputs) through, with
    the user's backward as gradient.
    """

    opaque = True
    exact = True

    def __init__(
        self,
        function: type[Function],
        ctx: FunctionCtx,
        rule: Callable[..., Any],
        saved: Sequence[Any],
        count: int,
        places: Sequence[int],
    ) -> None:
        self.function = function
        self.ctx = ctx
        self.rule = rule  # gives one gradient for each argument
        self.saved = tuple(saved)  # tensors, None, or the number of an output
        self.n_outputs = count  # type: ignore[misc]
        self.places = places  # of the tensors among the arguments

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """The specs of the results."""
        return specs[0] if self.n_outputs == 1 else tuple(specs[: self.n_outputs])

    def compute(self, xp: Any, *arrays: BackendArray) -> BackendArray | tuple[BackendArray, ...]:
        """The results of forward, unchanged."""
        return arrays[0] if self.n_outputs == 1 else tuple(arrays[: self.n_outputs])

    def gradient(self, g: Any, y: Any) -> tuple[Any, ...]:
        """The gradients by `backward(ctx, *g)`."""
        ys = (y,) if self.n_outputs == 1 else y
        incoming = [g] if self.n_outputs == 1 else list(g)
        if self.ctx.materialize_grads:
            incoming = [
                zeros(each.shape, each._data.dtype, each.device) if one is None else one
                for one, each in zip(incoming, ys, strict=True)
            ]
        saved = Saved(tuple(ys[s] if isinstance(s, int) else s for s in self.saved))
        self.ctx._node = lambda: saved
        gradients = self.rule(self.ctx, *incoming)
        return (None,) * self.n_outputs + tuple(gradients[i] for i in self.places)


def record_function(
    state: GraphState,
    function: type[Function],
    ctx: FunctionCtx,
    rule: Callable[..., Any],
    args: Sequence[Any],
    raw: Sequence[Any],
) -> tuple[Any, ...]:
    """Record the results `raw` of forward as results of one node, differentiated by `rule`."""
    places = [i for i, y in enumerate(raw) if isinstance(y, TensorBase)]
    numbers = {id(raw[i]): n for n, i in enumerate(places)}
    ctx.assert_savable()
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
    """The op of a Function whose forward reads values: runs the whole forward."""

    opaque = True
    strict = False

    def __init__(self, function: _FunctionCall, args: Sequence[Any], specs: Sequence[Spec]) -> None:
        self.function = function
        self.args = tuple(None if isinstance(x, TensorBase) else x for x in args)
        self.places = [i for i, x in enumerate(args) if isinstance(x, TensorBase)]
        self.specs = tuple(specs)
        self.n_outputs = len(specs)  # type: ignore[misc]

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """The specs of the results when forward was recorded."""
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

    def compute(self, xp: Any, *arrays: BackendArray) -> BackendArray | tuple[BackendArray, ...]:
        """The results of forward."""
        args, _ = self.arguments(arrays, False)
        results = _eagerly(lambda: self.function.apply(*args))
        ys = [concrete(y) for y in results if isinstance(y, TensorBase)]
        return ys[0] if self.n_outputs == 1 else tuple(ys)

    def gradient(self, g: Any, xs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """The gradients as results of one node that runs forward and backward."""
        incoming = (g,) if self.n_outputs == 1 else g
        seeds = [
            zeros(s.shape, s.dtype.numpy, s.device) if one is None else one
            for one, s in zip(incoming, self.specs, strict=True)
        ]
        state = state_of((*seeds, *xs))
        assert state is not None
        gradients = record_cell(state, OpaqueBackward(self), (*seeds, *xs))
        return gradients if isinstance(gradients, tuple) else (gradients,)


class OpaqueBackward(Op, abstract=True):
    """The gradients of an OpaqueForward."""

    opaque = True

    def __init__(self, forward: OpaqueForward) -> None:
        self.forward = forward
        self.n_outputs = len(forward.places)  # type: ignore[misc]

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """The inputs' specs."""
        input_specs = specs[self.forward.n_outputs :]
        return input_specs[0] if self.n_outputs == 1 else tuple(input_specs)

    def compute(self, xp: Any, *arrays: BackendArray) -> BackendArray | tuple[BackendArray, ...]:
        """The results of backward; zeros for None.

        Errors: Unsupported where it draws random numbers.
        """
        from ..ops.random.generators import default_generator
        from .gradients import grad

        count = self.forward.n_outputs
        args, tensors = self.forward.arguments(arrays[count:], True)

        def run() -> list[Any]:
            results_of_forward = self.forward.function.apply(*args)
            ys = (
                results_of_forward
                if isinstance(results_of_forward, tuple)
                else (results_of_forward,)
            )
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

        draws = default_generator.draws
        gradients = _eagerly(run)
        if default_generator.draws != draws:
            raise Unsupported(
                f"{self.forward.function.__name__}: its forward reads values and its backward "
                "draws random numbers, which a Graph would draw again where a gradient was only "
                "released; draw outside, or write both in operations on tensors"
            )
        results = [
            concrete(zeros(x.shape, x._data.dtype, x.device) if g is None else g)
            for x, g in zip(tensors, gradients, strict=True)
        ]
        return results[0] if self.n_outputs == 1 else tuple(results)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Raises AutogradError: backward is computed as a whole."""
        raise AutogradError(
            f"{self.forward.function.__name__}: its forward reads values, so in a Graph its "
            "backward is computed as a whole and cannot be differentiated; write both in "
            "operations on tensors"
        )


def _eagerly(function: Callable[[], Any]) -> tuple[Any, ...]:
    """The results of `function`, run eagerly, as a tuple."""
    mode = MODE.get()
    try:
        MODE.set(mode_with(DEFAULT, grad=True))
        result = function()
    finally:
        MODE.set(mode)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def record_opaque(
    state: GraphState, function: _FunctionCall, args: Sequence[Any], raw: Sequence[Any]
) -> tuple[Any, ...]:
    """Record the results of a forward that reads values as results of one node that runs it."""
    if not all(isinstance(y, TensorBase) for y in raw):
        raise Unsupported(
            f"{function.__name__}: its forward reads values and returns what is no tensor, which a "
            "Graph cannot record; return tensors only, or compute with operations"
        )
    op = OpaqueForward(function, args, [y.spec for y in raw])  # type: ignore[attr-defined]
    ys = record_cell(state, op, tuple(x for x in args if isinstance(x, TensorBase)))
    return ys if isinstance(ys, tuple) else (ys,)
