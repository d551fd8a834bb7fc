"""Programs of other sizes, filled in from one that was lowered with symbols in the place of sizes.

The passes see the symbols: what they compute with them is written down, and what they decide by
them is a guard (`core/symbolic_sizes.py`). Where all guards hold for other sizes, these are put
into the program that the passes have made, which then is bound to memory like any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...core import debug, fork_safety, policy
from ...core.errors import AdjointError, NotTraceable, Unsupported
from ...core.symbolic_scalar import SymbolicFloat
from ...core.symbolic_sizes import Filling, KernelGraph
from ...ir.program import Node, Program, Value
from ..capture.dynamic_shapes import ShapePolymorphicProgram, SizeInput
from ..capture.lifted_state import array_of
from ..capture.trace import Trace
from ..device.device_step import lowered
from ..guards.python_state import Guards
from ..passes.kernels import Kernel
from .arena_pool import ArenaPool
from .segment import Segment
from .step import CompiledStep


def lowered_for(
    template: ShapePolymorphicProgram | None, captured: Trace | CompiledStep, guards: Guards,
    nearly: bool, reserve: ArenaPool,
) -> CompiledStep:  # fmt: skip
    """The executable of a captured step, or of one that `template` has for its sizes: see
    `ShapePolymorphicProgram.captured_for`. Sizes that none of the template's programs fits give it
    another.
    """
    if isinstance(captured, CompiledStep):
        captured.begin(reserve)
        return captured
    if template is None or not template.again:
        return lowered(captured, guards, nearly, reserve)
    made = _lowered(template, guards, nearly)
    step = None if made is None else made.step(template.given)
    if made is None or step is None:
        return lowered(captured, guards, nearly, reserve)
    template.lowerings.append(made)
    step.begin(reserve)
    return step


def _lowered(
    template: ShapePolymorphicProgram, guards: Guards, nearly: bool
) -> SizedLowering | None:
    """The template lowered for sizes that decide as the present ones do; None where it cannot be."""
    if len(template.lowerings) >= policy.SIZED_LOWERINGS or nearly or template.why_not:
        return None
    try:
        return SizedLowering(template, guards)
    except (AdjointError, NotTraceable) as error:
        template.why_not = str(error) or type(error).__name__
        if "compile" in debug.on:
            debug.say("compile", f"lowered anew for each size: {error}")
        return None


class _Sizing(Filling):
    """A `Filling` that knows floats computed from sizes, too."""

    def _filled(self, x: object) -> object:
        if type(x) is SymbolicFloat:
            return self._noted(x, self._values[x.place])
        if type(x) is slice:
            ends = x.start, x.stop, x.step
            now = self(ends)
            return x if now is ends else slice(*now)
        return super()._filled(x)


class SizedLowering:
    """A captured step that passes have gone through with symbolic sizes, and the function from
    sizes to what takes their places.
    """

    def __init__(self, template: ShapePolymorphicProgram, guards: Guards) -> None:
        """Errors: Unsupported, or another refusal, for a step that asks for a size's value."""
        graph = KernelGraph()
        captured, self._operands = template.symbolic([graph.scalar(n) for n in template.given])
        if captured.inputs.streams or captured.assumptions.device.type != "cpu":
            raise Unsupported("compile: a program that draws, or on a device, for other sizes")
        self._step = CompiledStep.of_symbols(captured, guards)
        fill = _Sizing(graph.values)
        self._filled(fill)
        if graph.read:
            values = ", ".join(map(repr, graph.read.values()))
            raise Unsupported(f"compile: passes ask for the sizes {values}")
        self._asked = list(fill.asked)
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
        return _Sizing((), dict(zip(self._asked, values, strict=False)))

    def _filling_for(self, sizes: Sequence[int]) -> _Sizing:
        return self._filling(self._run(*sizes))

    def _filled(self, fill: _Sizing, again: Callable[[], _Sizing] | None = None) -> CompiledStep:
        copying = _Copying(fill, again)
        of, each = self._step, copying.value
        made = copy.copy(of)
        made.lock = fork_safety.lock()
        made.parts = [copying.segment(part) for part in of.parts]
        captured = of.captured
        nodes = {node: copying.node(node) for node in captured.effects.updates}
        last = captured.gradients.step
        if last is not None:
            nodes[last] = copying.node(last)
        program = captured.program
        made.captured = captured._replace(
            program=Program(map(each, program.inputs), (), map(each, program.outputs)),
            effects=captured.effects._replace(
                updates=[nodes[node] for node in captured.effects.updates]
            ),
            gradients=captured.gradients._replace(step=None if last is None else nodes[last]),
        )
        for name in ("arguments", "states", "written", "gradients", "results", "tangents"):
            setattr(made, name, [each(x) for x in getattr(of, name)])
        made.seeds = () if last is None else nodes[last].outputs
        made.checked = {each(y): error for y, error in of.checked.items()}
        made.after = {each(y): tensor for y, tensor in of.after.items()}
        made.others = [made]
        for value, operand in self._operands:
            each(value).array = array_of(fill(operand.size), operand.dtype)
        return made


def _program_of(kernel: Kernel, again: Callable[[], _Sizing]) -> Program:
    """The program of a kernel, in which sizes are filled in."""
    return kernel.program_of_sizes(again())


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
                made = Value(self.fill(x.spec), None, x.index, name=x.name)
            self._values[x] = made
        return made

    def node(self, node: Node) -> Node:
        """The copy of a node."""
        inputs = [self.value(x) if type(x) is Value else self.fill(x) for x in node.inputs]
        op = self.fill(node.op)
        if isinstance(op, Kernel) and isinstance(node.op, Kernel):
            op.late = partial(_program_of, node.op, self.again)
            if self.again is None:
                node.op.program_of_sizes(self.fill)  # what it will fill in
        made = Node(op, inputs, ())
        made.module = node.module
        made.outputs = tuple(map(self.value, node.outputs))
        for y in made.outputs:
            y.node = made
        return made

    def segment(self, part: Segment) -> Segment:
        """The copy of a segment."""
        made = copy.copy(part)
        graph = part.graph
        inputs = [self.value(x) for x in graph.inputs]
        nodes = [self.node(node) for node in graph.nodes]
        made.graph = Program(inputs, nodes, [self.value(y) for y in graph.outputs])
        made.graph.rows = self.fill(graph.rows)
        made.inputs = [self.value(x) for x in part.inputs]
        made.wanted = [self.value(x) for x in part.wanted]
        made.views = {self.value(x) for x in part.views}
        return made
