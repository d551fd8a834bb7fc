"""Hand-written routines of composites (`autograd.fusion.Written`) as ops of a captured program: one
node forward, and one for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...autograd.fusion import HandWritten, plan_for, routine_for
from ...core.device import device
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_sizes import all_known
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ir.compute import quietly
from ...ir.program import Program, Value
from ...ir.rewriting import rewriting
from ...ops.index.slicing import Place
from ...ops.shape.movement import Permute
from ...runtime.dispatch import apply
from ...runtime.fused import Declared, worthwhile
from ...runtime.views import asked

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray
    from ...backends.native.lowering.scratch import Scratch

    R = TypeVar("R")


class RoutineForward(Op, abstract=True):
    """Forward of a routine: the composite's outputs, and behind them the values kept for its
    gradient.
    """

    needs = "xs"
    own_tokens = True

    def __init__(self, written: HandWritten) -> None:
        self.written = written
        self.made = *written.outputs, *written.routine.kept
        self.n_outputs = len(self.made)  # type: ignore[misc]
        inputs = range(1, len(written.specs) + 1)
        self.tokens = (*(f"x{n}" for n in inputs), "y")  # type: ignore[misc]
        self.keeps_values = True  # type: ignore[misc]

    @property
    def name(self) -> str:
        """Name of the composite."""
        return self.written.function.__name__

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the routine's outputs."""
        return bare(self.made)

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Run the routine in new memory."""
        outputs, kept = quietly(self.written.routine.forward, list(arrays))
        return bare((*outputs, *kept))

    def compute_into(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the routine into `outs`."""
        outputs, kept = quietly(self.written.routine.forward, list(arrays), list(outs))
        for out, array in zip(outs, (*outputs, *kept), strict=True):
            if not (np.may_share_memory(out, array) and out.strides == array.strides):
                np.copyto(out, array)

    def bind(
        self, arrays: Sequence[Any], outs: Sequence[Any], scratch: Scratch
    ) -> list[Any] | None:
        """Bind the routine to memory as a list of native calls, if it consists of such."""
        from ...backends.native.lowering.bound_routines import bound_forward

        return bound_forward(self.written.routine, arrays, outs, scratch)

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """Gradients by the routine; by the composite's body where they must be differentiable."""
        written = self.written
        *inputs, ys = saved
        if self.n_outputs == 1:
            g, ys = [g], [ys]
        gs = [g[i] for i in written.differentiable_outputs]
        if MODE.get().grad:
            return written._by_body(gs, inputs, MODE.get())
        backward = RoutineBackward(written, [each is not None for each in gs])
        result = apply(backward, *inputs, *ys, *(each for each in gs if each is not None))
        own = iter(result if type(result) is tuple else (result,))
        return tuple([next(own) if wants else None for wants in written.wants])


class RoutineBackward(Op, abstract=True):
    """Backward of a routine: gradients of the inputs that want one, computed from inputs, outputs,
    kept values, and those gradients of outputs that are `given`.
    """

    def __init__(self, written: HandWritten, given: Sequence[bool]) -> None:
        self.written = written
        self.given = tuple(given)
        self.n_outputs = sum(written.wants)  # type: ignore[misc]

    @property
    def name(self) -> str:
        """Name of the composite's gradient."""
        return f"{self.written.function.__name__}_backward"

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the inputs that want a gradient."""
        pairs = zip(specs, self.written.wants, strict=False)
        return bare([spec for spec, wants in pairs if wants])

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Run the routine in new memory."""
        gradients = quietly(self.written.routine.backward, *self._parts(arrays))
        return bare([x for x, wants in zip(gradients, self.written.wants, strict=True) if wants])

    def bind(
        self, arrays: Sequence[Any], outs: Sequence[Any], scratch: Scratch
    ) -> list[Any] | None:
        """Bind the routine to memory as a list of native calls, if it consists of such."""
        from ...backends.native.lowering.bound_routines import bound_backward

        return bound_backward(self.written.routine, *self._parts(arrays), outs, scratch)

    def _parts(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Split the inputs: inputs of the composite, its outputs, kept values, and gradients of
        outputs or None.
        """
        written = self.written
        counts = len(written.specs), len(written.outputs), len(written.routine.kept)
        rest = iter(arrays)
        inputs, outputs, kept = ([next(rest) for _ in range(count)] for count in counts)
        return inputs, outputs, kept, [next(rest) if has else None for has in self.given]


@rewriting
def give_final_states(graph: Program) -> int:
    """Rewrite a gradient that reaches only the last step of a recurrent layer's output, as that of
    `output[:, -1]` does, to the gradient of the final state, which is the same: no zeros are
    written and read for the other steps. Returns how many there were.
    """
    made = 0
    for node in graph.nodes:
        op = node.op
        if isinstance(op, RoutineBackward) and op.given[:2] == (True, False):
            number = len(node.inputs) - sum(op.given)
            step = getattr(op.written.routine, "final", None)
            g = node.inputs[number]
            own_step = None
            if step is not None and _is_placed(g):
                if not all(all_known(spec.shape) for spec in op.written.specs):
                    raise Unsupported("a step of a recurrent layer, of which sizes say the number")
                own_step = _of_step(g, step)
            if own_step is not None:
                node.op = RoutineBackward(op.written, (False, True, *op.given[2:]))
                node.inputs = (*node.inputs[:number], own_step, *node.inputs[number + 1 :])
                made += 1
    return made


def _is_placed(g: Value) -> bool:
    """Whether a value is placed into a whole, or a permutation of that."""
    while g.node is not None and isinstance(g.node.op, Permute):
        [g] = g.node.values
    return g.node is not None and isinstance(g.node.op, Place)


def _of_step(g: Value, step: int) -> Value | None:
    """The value that `g`, of shape (steps, batch, units), places into step `step` of zeros; None
    where `g` is anything else.
    """
    axes = [0, 1, 2]  # of `g`, in the order before the permutations
    while g.node is not None and isinstance(g.node.op, Permute):
        axes = [g.node.op.axes[axis] for axis in axes]
        [g] = g.node.values
    op = None if g.node is None else g.node.op
    if not isinstance(op, Place) or op.value != 0 or axes[1] > axes[2]:
        return None
    whole = [(0, size, 1) for size in op.shape]
    expected = [step if axis == axes[0] else each for axis, each in enumerate(whole)]
    if [*op.items, *whole[len(op.items) :]] != expected:
        return None
    return g.node.values[0]  # type: ignore[union-attr]


def bare(outputs: Sequence[R]) -> R | tuple[R, ...]:
    """Result of an op: a tuple only if there are several outputs."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _is_one_kernel(name: str, device: device) -> bool:
    """Whether a composite on a device runs as PyTorch's function rather than in Triton kernels."""
    from ...backends.torch.fused import reason_off
    from ...backends.torch.routines import LIBRARIES

    return name in LIBRARIES or bool(reason_off(device))


def whole(
    declared: Declared, args: tuple[Any, ...]
) -> tuple[RoutineForward, tuple[Any, ...]] | None:
    """The routine of a composite as one op, with its inputs; None where its own ops are
    recorded.
    """
    mode = MODE.get()
    inputs = tuple(x for x in args if isinstance(x, TensorBase))
    if mode.casts:
        return None
    device = inputs[0].device
    if device.type == "cpu":
        if not declared.native or declared.apart or not worthwhile(declared, args):
            return None
    elif not _is_one_kernel(declared.function.__name__, device):
        return None
    wants = [mode.grad and x._node is not None for x in inputs]
    written = plan_for(declared.function, declared.native, args, inputs, wants)
    has_routine = isinstance(written, HandWritten) and written.routine.whole
    if not all(all_known(x._data.shape) for x in inputs):  # the plan was made for example sizes
        specs = tuple([x.spec for x in inputs])
        statics = tuple([NotImplemented if isinstance(x, TensorBase) else x for x in args])
        if not asked(partial(_is_whole, declared, specs, statics, wants)):
            return None
        if not has_routine:
            raise Unsupported(f"compile: {declared.function.__name__} of sizes that are numbers")
    if not has_routine:
        return None
    return RoutineForward(written), inputs  # type: ignore[arg-type]


def _is_whole(
    declared: Declared,
    specs: Sequence[Spec],
    statics: Sequence[Any],
    wants: Sequence[bool],
    fill: Callable[[Any], Any],
) -> bool:
    """Whether there is a routine for inputs of these sizes."""
    arguments = fill(specs), fill(statics), wants
    try:
        return bool(routine_for(declared.function, declared.native, *arguments).whole)
    except Exception:  # whatever says that there is none: see `plan_for`
        return False


def recorded(
    record: Callable[..., Any], declared: Declared, args: tuple[Any, ...]
) -> Tensor | tuple[Tensor, ...]:
    """Record a composite as one op by `record(op, inputs)`; NotImplemented where its own ops are
    recorded.
    """
    routine = whole(declared, args)
    if routine is None:
        return NotImplemented
    op, inputs = routine
    outputs = record(op, inputs)
    results = outputs if type(outputs) is tuple else (outputs,)
    return results[: len(op.written.outputs)] if op.written.several else results[0]
