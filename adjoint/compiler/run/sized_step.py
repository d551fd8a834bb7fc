"""Programs of other sizes, filled in from one that was lowered with symbols in the place of sizes.

The passes see the symbols: what they compute with them is written down, and what they decide by
them is a guard (`core/symbolic_sizes.py`). Where all guards hold for other sizes, these are put
into the program that the passes have made, which then is bound to memory like any other.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core import debug, fork_safety, policy
from ...core.errors import AdjointError, NotTraceable, Unsupported
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicFloat
from ...core.symbolic_sizes import Filling, KernelGraph
from ...ir.program import Node, Program, Value
from ...ops.elementwise.arithmetic import Add, Mul, Neg, Sub, TrueDivide
from ...ops.shape.movement import Expand, Reshape
from ...runtime.cells import users_frame
from ..capture.dynamic_shapes import ShapePolymorphicProgram
from ..capture.lifted_state import array_of
from ..capture.step_capture import Update
from ..capture.trace import Trace
from ..device.device_step import lowered
from ..guards.python_state import Guards
from ..passes.basic_passes import EXACT
from ..passes.kernels import Kernel, program_of_sizes
from .arena_pool import ArenaPool
from .segment import Segment
from .step import CompiledStep


def lowered_for(
    template: ShapePolymorphicProgram | None, captured: Trace | CompiledStep, guards: Guards,
    nearly: bool, reserve: ArenaPool,
) -> CompiledStep:  # fmt: skip
    """The executable of a captured step, or of one that `template` has for its sizes: see
    `ShapePolymorphicProgram.captured_for`. Sizes that fit none of the template's lowerings give it
    another.
    """
    if isinstance(captured, CompiledStep):
        captured.begin(reserve)
        return captured
    if template is not None and template.again and not nearly and not template.why_not:
        made = _lowered(template, guards)
        step = None if made is None else made.step(template.given)
        if made is not None and step is not None:
            template.lowerings.append(made)
            step.begin(reserve)
            return step
    return lowered(captured, guards, nearly, reserve)


def _lowered(template: ShapePolymorphicProgram, guards: Guards) -> SizedLowering | None:
    """The template lowered for sizes that decide as the present ones do; None where it cannot be,
    for a reason that the template keeps.
    """
    try:
        most = policy.SIZED_LOWERINGS
        if len(template.lowerings) >= most:
            warnings.warn(
                f"compile: sizes decide in more than {most} ways how a function is lowered; "
                "further ones of other ways take a lowering each: pad what varies",
                stacklevel=users_frame()[0],
            )
            raise Unsupported(f"sizes decide in more than {most} ways")
        return SizedLowering(template, guards)
    except (AdjointError, NotTraceable) as error:
        template.why_not = str(error) or type(error).__name__
        if "compile" in debug.on:
            debug.say("compile", f"lowered anew for each further size: {template.why_not}")
        return None


class _Sizing(Filling):
    """A `Filling` that knows floats computed from sizes, too, and notes what has no sizes."""

    def __init__(self, values: Sequence[object], made: dict[int, object] | None = None) -> None:
        super().__init__(values, made)
        self.plain: dict[int, object] = {}  # ops and specs without sizes, by their ids

    def _filled(self, x: object) -> object:
        if x is Ellipsis or isinstance(x, (np.dtype, np.generic, type)):
            return x
        if type(x) is SymbolicFloat:
            return self._noted(x, self._values[x.place])
        if type(x) is slice:
            return slice(self(x.start), self(x.stop), self(x.step))
        now = super()._filled(x)
        if not isinstance(x, (Op, Spec)):
            return now
        if self._made:
            self._made[id(x)] = now  # others have the same object
        elif now is x or (isinstance(x, Spec) and isinstance(now, Spec) and now.shape is x.shape):
            self.plain[id(x)] = now = x
        return now


class SizedLowering:
    """A captured step that passes have gone through with symbolic sizes, and the function from
    sizes to what takes their places.
    """

    def __init__(self, template: ShapePolymorphicProgram, guards: Guards) -> None:
        """Errors: Unsupported, or another refusal, for a step that asks for a size's value."""
        graph = KernelGraph()
        captured, self._operands = template.symbolic([graph.scalar(n) for n in template.given])
        if captured.inputs.streams or captured.assumptions.device.type != "cpu":
            raise Unsupported("a program that draws, or on a device")
        _assert_exact(captured.program, {value for value, _ in self._operands})
        self._step: CompiledStep = object.__new__(CompiledStep)
        self._step.lower(captured, guards, False)
        fill = _Sizing(graph.values)
        self._filled(fill)
        if graph.read:
            raise Unsupported(f"passes ask for the sizes {[*graph.read.values()]}")
        self._plain = fill.plain
        self._asked = fill.asked  # keeps alive what is known by its id
        # A zero behind them: a function of no sizes would give no tuple.
        self._run: Callable[..., Any] = graph.function([*fill.asked.values(), 0])
        graph.close()

    def step(self, sizes: Sequence[int]) -> CompiledStep | None:
        """The step for other sizes, bound to no memory yet; None where they decide otherwise."""
        values = self._run(*sizes)
        if values is None:
            return None
        return self._filled(self._filling(values), partial(self._filling_for, sizes))

    def _filling(self, values: Sequence[Any]) -> _Sizing:
        return _Sizing((), {**self._plain, **dict(zip(self._asked, values, strict=False))})

    def _filling_for(self, sizes: Sequence[int]) -> _Sizing:
        return self._filling(self._run(*sizes))

    def _filled(self, fill: _Sizing, again: Callable[[], _Sizing] | None = None) -> CompiledStep:
        copying = _Copying(fill, again)
        of, each = self._step, copying.value
        made = copy.copy(of)
        made.lock, made.filled = fork_safety.lock(), True
        made.parts = [copying.segment(part) for part in of.parts]
        captured = of.captured
        nodes = {node: copying.node(node) for node in captured.effects.updates}
        last = captured.gradients.step
        if last is not None:
            nodes[last] = copying.node(last)
        program = captured.program
        made.captured = captured._replace(
            program=Program(map(each, program.inputs), (), map(each, program.outputs)),
            inputs=captured.inputs._replace(states=list(captured.inputs.states)),
            effects=captured.effects._replace(
                updates=[nodes[node] for node in captured.effects.updates]
            ),
            gradients=captured.gradients._replace(step=None if last is None else nodes[last]),
        )
        made.wanting = list(of.wanting)
        for name in ("arguments", "states", "written", "gradients", "results", "tangents"):
            setattr(made, name, [each(x) for x in getattr(of, name)])
        made.seeds = () if last is None else nodes[last].outputs
        made.checked = {each(y): error for y, error in of.checked.items()}
        made.after = {each(y): tensor for y, tensor in of.after.items()}
        for value, operand in self._operands:
            each(value).array = array_of(fill(operand.size), operand.dtype)
        return made


def _assert_exact(program: Program, operands: set[Value]) -> None:
    """Check that what is computed from sizes alone, which is folded where they are known, has the
    same bits in a kernel.

    Errors: Unsupported.
    """
    if not operands.isdisjoint(program.outputs):
        raise Unsupported("a size is returned, or is an optimizer's")
    reached = set(operands)
    for node in program.nodes:
        values = node.values
        if isinstance(node.op, Update) and not reached.isdisjoint(values):
            raise Unsupported("a size is an optimizer's")
        others = [x for x in values if x not in reached]
        if len(others) == len(values) or any(x.array is None for x in others):
            continue
        specs = [x.spec for x in (*values, *node.outputs)]
        if not isinstance(node.op, _ROUNDED_ONCE) or any(s.dtype.name not in EXACT for s in specs):
            raise Unsupported(f"{node.op.name} of a size")
        reached.update(node.outputs)


_ROUNDED_ONCE = (Add, Sub, Mul, TrueDivide, Neg, Reshape, Expand)


def _program_of(kernel: Kernel, again: Callable[[], _Sizing]) -> Program:
    """The program of a kernel, in which sizes are filled in."""
    return program_of_sizes(kernel.program, again())


class _Copying:
    """Copies of a lowered program's parts, in which sizes are filled in."""

    def __init__(self, fill: _Sizing, again: Callable[[], _Sizing] | None) -> None:
        """`again` gives an equal filling, long after."""
        self.fill, self.again = fill, again
        self._values: dict[Value, Value] = {}

    def value(self, x: Value) -> Value:
        """The copy of a value; a constant is its own."""
        made = self._values.get(x)
        if made is None:
            made = x
            if x.array is None:
                made = Value.like(x, self.fill(x.spec))
            self._values[x] = made
        return made

    def node(self, node: Node) -> Node:
        """The copy of a node."""
        fill, value = self.fill, self.value
        op = fill(node.op)
        if isinstance(op, Kernel) and isinstance(node.op, Kernel):
            if self.again is None:
                program_of_sizes(node.op.program, fill)  # what it will fill in
                node.op.across = []
            elif op is not node.op:
                op.late = partial(_program_of, node.op, self.again)
        made = Node(op, [value(x) if type(x) is Value else fill(x) for x in node.inputs], ())
        made.module = node.module
        made.outputs = tuple(map(value, node.outputs))
        for y in made.outputs:
            y.node = made
        return made

    def segment(self, part: Segment) -> Segment:
        """The copy of a segment."""
        made = copy.copy(part)
        graph, value = part.graph, self.value
        nodes = [self.node(node) for node in graph.nodes]
        made.graph = Program(map(value, graph.inputs), nodes, map(value, graph.outputs))
        made.graph.rows = self.fill(graph.rows)
        made.inputs = [value(x) for x in part.inputs]
        made.wanted = [value(x) for x in part.wanted]
        made.views = {value(x) for x in part.views}
        return made
