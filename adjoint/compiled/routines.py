"""Composites by their hand-written routines (`autograd.fusion.Written`) in a captured program: one
node forward, and one for their gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..autograd.fusion import Written, plan_for, routine_for
from ..core.errors import Unsupported
from ..core.mode import MODE
from ..core.op import Op
from ..core.sizes import all_known
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.dispatch import apply
from ..eager.fused import Declared, worthwhile
from ..eager.views import asked
from ..ops.index.slicing import Place
from ..ops.shape.movement import Permute
from ..program.compute import quietly
from ..program.program import Program, Value
from ..program.rewriting import rewriting


class Ahead(Op, abstract=True):
    """A routine forward: the composite's outputs, and behind them what its gradient wants kept."""

    needs = "xs"
    own_tokens = True

    def __init__(self, written: Written) -> None:
        self.written = written
        self.made = *written.outputs, *written.routine.kept
        self.n_outputs = len(self.made)  # type: ignore[misc]
        inputs = range(1, len(written.specs) + 1)
        self.tokens = (*(f"x{n}" for n in inputs), "y")  # type: ignore[misc]
        self.keeps_values = True  # type: ignore[misc]

    @property
    def name(self) -> str:
        """The composite's."""
        return self.written.function.__name__

    def infer(self, *specs: Spec) -> Any:
        """Those of the routine."""
        return bare(self.made)

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """By the routine."""
        outputs, kept = quietly(self.written.routine.forward, list(arrays))
        return bare((*outputs, *kept))

    def compute_into(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """The same, in memory that there is."""
        outputs, kept = quietly(self.written.routine.forward, list(arrays), list(outs))
        for out, found in zip(outs, (*outputs, *kept), strict=True):
            if not (np.may_share_memory(out, found) and out.strides == found.strides):
                np.copyto(out, found)

    def bind(self, arrays: Sequence[Any], outs: Sequence[Any], scratch: Any) -> Any:
        """The same as calls, where machine code is all that it is."""
        from ..backends.native.lowering.bound_routines import bound_forward

        return bound_forward(self.written.routine, arrays, outs, scratch)

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """By the routine; where the gradient's own graph is wanted, by the composite's body."""
        written = self.written
        *inputs, ys = saved
        if self.n_outputs == 1:
            g, ys = [g], [ys]
        gs = [g[i] for i in written.differentiable_outputs]
        if MODE.get().grad:
            return written._by_body(gs, inputs, MODE.get())
        behind = Behind(written, [each is not None for each in gs])
        found = apply(behind, *inputs, *ys, *(each for each in gs if each is not None))
        own = iter(found if type(found) is tuple else (found,))
        return tuple([next(own) if wants else None for wants in written.wants])


class Behind(Op, abstract=True):
    """A routine's gradients of the inputs that want one, from inputs, outputs, what was kept, and
    the gradients of outputs, as far as there are some.
    """

    def __init__(self, written: Written, given: Sequence[bool]) -> None:
        self.written = written
        self.given = tuple(given)
        self.n_outputs = sum(written.wants)  # type: ignore[misc]

    @property
    def name(self) -> str:
        """The composite's."""
        return f"{self.written.function.__name__}_backward"

    def infer(self, *specs: Spec) -> Any:
        """Those of the inputs."""
        pairs = zip(specs, self.written.wants, strict=False)
        return bare([spec for spec, wants in pairs if wants])

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """By the routine."""
        found = quietly(self.written.routine.backward, *self._parts(arrays))
        return bare([x for x, wants in zip(found, self.written.wants, strict=True) if wants])

    def bind(self, arrays: Sequence[Any], outs: Sequence[Any], scratch: Any) -> Any:
        """The same as calls, where machine code is all that it is."""
        from ..backends.native.lowering.bound_routines import bound_backward

        return bound_backward(self.written.routine, *self._parts(arrays), outs, scratch)

    def _parts(self, arrays: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Inputs, outputs, what was kept, and the gradients of outputs or None."""
        written = self.written
        places = len(written.specs), len(written.outputs), len(written.routine.kept)
        given = iter(arrays)
        inputs, outputs, kept = ([next(given) for _ in range(count)] for count in places)
        return inputs, outputs, kept, [next(given) if has else None for has in self.given]


@rewriting
def give_final_states(graph: Program) -> int:
    """Let a gradient that reaches only the last step of a recurrent layer's output, as that of
    `output[:, -1]` does, come in as that of the final state, which is the same: no zeros are
    written, and read, for all other steps. How many there were.
    """
    made = 0
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Behind) and op.given[:2] == (True, False):
            place = len(node.inputs) - sum(op.given)
            step = getattr(op.written.routine, "final", None)
            found = None if step is None else _of_step(node.inputs[place], step)
            if found is not None:
                node.op = Behind(op.written, (False, True, *op.given[2:]))
                node.inputs = (*node.inputs[:place], found, *node.inputs[place + 1 :])
                made += 1
    return made


def _of_step(g: Value, step: int) -> Value | None:
    """What is placed into one step of zeros, of shape (batch, units); None where `g`, of shape
    (steps, batch, units), is anything else.
    """
    axes = [0, 1, 2]  # where they are before they are permuted
    while g.node is not None and isinstance(g.node.op, Permute):
        axes = [g.node.op.axes[axis] for axis in axes]
        [g] = g.node.values
    op = None if g.node is None else g.node.op
    if not isinstance(op, Place) or op.value != 0 or axes[1] > axes[2]:
        return None
    whole = [(0, size, 1) for size in op.shape]
    wanted = [step if axis == axes[0] else each for axis, each in enumerate(whole)]
    if [*op.items, *whole[len(op.items) :]] != wanted:
        return None
    return g.node.values[0]  # type: ignore[union-attr]


def bare(found: Sequence[Any]) -> Any:
    """What an op gives: a tuple only of several."""
    return found[0] if len(found) == 1 else tuple(found)


def _is_one_kernel(name: str, place: Any) -> bool:
    """Whether a composite on a device is rather PyTorch's function than part of Triton kernels."""
    from ..backends.torch.fused import reason_off
    from ..backends.torch.routines import LIBRARIES

    return name in LIBRARIES or bool(reason_off(place))


def whole(declared: Declared, args: tuple[Any, ...]) -> tuple[Ahead, tuple[Any, ...]] | None:
    """A composite as one op with its inputs; None where its own ops are recorded."""
    mode = MODE.get()
    inputs = tuple(x for x in args if isinstance(x, TensorBase))
    if mode.casts:
        return None
    place = inputs[0].device
    if place.type == "cpu":
        if not declared.native or declared.apart or not worthwhile(declared, args):
            return None
    elif not _is_one_kernel(declared.function.__name__, place):
        return None
    wants = [mode.grad and x._node is not None for x in inputs]
    written = plan_for(declared.function, declared.native, args, inputs, wants)
    found = isinstance(written, Written) and written.routine.whole
    if not all(all_known(x._data.shape) for x in inputs):  # what was found there was a guess
        specs = tuple([x.spec for x in inputs])
        statics = tuple([NotImplemented if isinstance(x, TensorBase) else x for x in args])
        if not asked(partial(_is_whole, declared, specs, statics, wants)):
            return None
        if not found:
            raise Unsupported(f"compile: {declared.function.__name__} of sizes that are numbers")
    if not found:
        return None
    return Ahead(written), inputs  # type: ignore[arg-type]


def _is_whole(
    declared: Declared, specs: Any, statics: Any, wants: Sequence[bool], fill: Callable[[Any], Any]
) -> bool:
    """Whether there is a routine for inputs of such sizes, by which a program computes."""
    given = fill(specs), fill(statics), wants
    try:
        return bool(routine_for(declared.function, declared.native, *given).whole)
    except Exception:  # whatever says that there is none: see `plan_for`
        return False


def recorded(record: Callable[..., Any], declared: Declared, args: tuple[Any, ...]) -> Any:
    """What `record(op, inputs)` gives for a composite as one op; NotImplemented where its own ops
    are recorded.
    """
    routine = whole(declared, args)
    if routine is None:
        return NotImplemented
    op, inputs = routine
    found = record(op, inputs)
    results = found if type(found) is tuple else (found,)
    return results[: len(op.written.outputs)] if op.written.several else results[0]
