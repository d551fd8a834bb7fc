"""Loops of data-dependent length, with gradients to second order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtype import int64
from ...core.errors import AutogradError
from ...core.signal_deferral import DEFERRED
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...runtime.dispatch import apply
from . import machine_loop
from .control_flow_ops import ControlFlow, Places, differentiated, fill, is_true
from .loop_lowering import Stack, WhileGradientMachine, WhileMachine
from .random_state import ControlFlowDraws
from .subgraphs import Subgraph, SubgraphVJP, pullback

if TYPE_CHECKING:
    from .machine_loop import MachineLoop


class Loop(ControlFlow, abstract=True):
    """Repeats a body on its own results as long as another body gives true. One output identifies
    the run, whose carried values are kept until its gradient has been computed, or the next run.
    """

    def __init__(
        self,
        test: Subgraph,
        body: Subgraph,
        places: Sequence[Places],
        specs: Sequence[Spec],
        wanting: Sequence[bool],
        drawing: ControlFlowDraws | None = None,
    ) -> None:
        """The first inputs are carried, with these `specs`; `wanting` says which require
        gradients.
        """
        run = Spec((), int64)
        super().__init__("while_loop", [*specs, run], drawing)
        self.count = len(specs)
        self.test, self.body, self.places = test, body, places
        self.wanting = wanting
        self.latest: tuple[int, Any] | None = None

    def history(self, arrays: Sequence[Any], keep: bool) -> tuple[list[Any], list[Any], list[Any]]:
        """Run the loop. Returns the carried values and generator states at the begin of each
        iteration, if `keep`, then the carried values and generator states at the end.
        """
        count, drawing = self.count, self.drawing
        carried, now = list(arrays[:count]), self.begin(arrays)
        kept = []
        read, body_read = [[arrays[n] for n in own if n >= count] for own in self.places]
        with self.test.lock, self.body.lock:
            while True:
                DEFERRED.poll()
                go = self.test.run([*carried, *read], None, drawing.of(0, now))[0]
                now = drawing.behind(0, now, self.test.drew)
                if not is_true(go):
                    break
                at = drawing.of(1, now)
                if keep:
                    kept.append((carried, at))
                carried = self.body.run([*carried, *body_read], None, at)
                now = drawing.behind(1, now, self.body.drew)
                read, body_read = [None] * len(read), [None] * len(body_read)
        return kept, carried, now

    def subgraphs(self) -> Sequence[Subgraph]:
        """The test and the body."""
        return self.test, self.body

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run all iterations: in machine code, where there is a backend for it."""
        keep, end = any(self.wanting), self.count + 1
        kept: Any = None
        if machine_loop.is_available():
            kept, now = self.run_machine(arrays, outs[:end], keep)
        else:
            kept, carried, now = self.history(arrays, keep)
            if kept:  # the first one's may be memory that is used again
                first, at = kept[0]
                kept[0] = [x.copy() for x in first], at
            fill(outs[:end], (*carried, next(_runs)))
        self.latest = int(outs[self.count]), kept
        fill(outs[end:], self.drawing.end(now))

    def run_machine(
        self, arrays: Sequence[Any], outs: Sequence[Any], keep: bool
    ) -> tuple[Stack | None, list[Any]]:
        """Run all iterations in machine code. Returns what each began with, if that is to be kept,
        and the states of the generators at the end.
        """
        given = arrays[: len(arrays) - len(self.drawing)]
        machines, key = self.body.machines, (self.test, *map(tuple, self.places), len(given), keep)
        with self.test.lock, self.body.lock:
            if key not in machines:
                machines[key] = WhileMachine(self, len(given), keep)
            machine: WhileMachine = machines[key]
            return machine.run(given, outs, self.drawing, self.begin(arrays))

    def lowered(self, arrays: Sequence[Any]) -> MachineLoop | None:
        """A new loop in machine code. What its last run kept is found by the run's number."""
        keep = any(self.wanting)
        machine = WhileMachine(self, len(arrays), keep)
        if keep:
            self.body.bound[machine.name] = machine
        return machine.loop

    def take(self, number: int, arrays: Sequence[Any]) -> Any:
        """Values at the begin of each iteration of run `number`: a `Stack`, or a list of carried
        values and states of generators. The run is repeated unless it was the last one.
        """
        latest, self.latest = self.latest, None
        if latest is not None and latest[0] == number:
            return latest[1]
        machine = self.body.bound.get(number >> 32)
        stack = None if machine is None else machine.stack_of(number)
        if stack is not None:
            return stack
        if machine_loop.is_available():
            outs = [np.empty(spec.shape, spec.dtype.numpy) for spec in self.specs[: self.count + 1]]
            return self.run_machine(arrays, outs, True)[0]
        return self.history(arrays, True)[0]

    def gradient(self, g: Sequence[Any], xs: Sequence[Any], y: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients of the inputs, computed by the body's derivative from the last iteration to the
        first.
        """
        back = pullback(self.body, self.wanting, differentiated(xs), hints=False)
        gs = g[: self.count]
        op = LoopGradient(self, back, [each is not None for each in gs], xs)
        arrived = [each for each in gs if each is not None]
        result = apply(op, y[self.count], *xs, *arrived, *back.outside)
        own = iter(result if type(result) is tuple else (result,))
        with_gradient = set(op.ends)
        return tuple([next(own) if n in with_gradient else None for n in range(len(xs))])


_runs = itertools.count(1)


class LoopGradient(ControlFlow, abstract=True):
    """Gradient of a `Loop`: a loop over its iterations from the last to the first."""

    def __init__(
        self, loop: Loop, back: SubgraphVJP, has_gradient: Sequence[bool], xs: Sequence[Any]
    ) -> None:
        self.loop, self.back = loop, back
        self.given_ = tuple(has_gradient)
        self.count, self.inputs = len(has_gradient), len(xs)
        own = loop.places[1]
        self.reached = {own[k]: n for n, k in enumerate(back.reached)}
        carried = [n for n, wants in enumerate(loop.wanting) if wants]
        self.ends = [*carried, *sorted(n for n in self.reached if n >= self.count)]
        super().__init__("while_loop_backward", [xs[n].spec for n in self.ends])

    def parts(self, arrays: Sequence[Any]) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """Split the inputs: what the iterations began with, the loop's inputs, gradients of its
        outputs, and tensors that the derivative reads besides.
        """
        number, *arrays = arrays
        rest = iter(arrays[self.inputs :])
        gs = [
            next(rest) if has else np.zeros(x.shape, x.dtype)
            for x, has in zip(arrays, self.given_, strict=False)
        ]
        xs = arrays[: self.inputs]
        return self.loop.take(int(number), xs), xs, gs, list(rest)

    def outside(self, xs: Sequence[Any]) -> list[Any]:
        """Inputs that the body reads besides carried values."""
        return [xs[n] for n in self.loop.places[1] if n >= self.count]

    def subgraphs(self) -> Sequence[Subgraph]:
        """The body's derivative."""
        return (self.back.body,)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Go backward through all iterations: in machine code, where there is a backend for it."""
        kept, xs, gs, met = self.parts(arrays)
        if isinstance(kept, Stack):
            self.run_machine(kept, [*self.outside(xs), *gs, *met], outs)
            return
        _, gs, sums = self.walk(kept, xs, gs, met)
        fill(outs, [sums[n] if n in sums else gs[n] for n in self.ends])

    def run_machine(self, stack: Stack, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Go backward through all iterations in machine code."""
        body, loop = self.back.body, self.loop
        key = loop.body, *loop.places[1], self.given_, *self.ends
        with loop.body.lock, body.lock:
            if key not in body.machines:
                body.machines[key] = WhileGradientMachine(self)
            machine: WhileGradientMachine = body.machines[key]
            machine.run(stack, arrays, outs)

    def walk(
        self, kept: Sequence[Any], xs: Sequence[Any], gs: list[Any], met: list[Any]
    ) -> tuple[list[Any], list[Any], dict[int, Any]]:
        """Go backward through the iterations `kept`. Returns the gradients that arrived at each of
        them, the last one's first, those of the initial carried values, and the summed gradients of
        inputs that all iterations read.
        """
        outside = self.outside(xs)
        sums = {n: np.zeros_like(xs[n]) for n in self.ends if n >= self.count}
        body, arrived = self.back.body, []
        with self.loop.body.lock, body.lock:
            for carried, at in reversed(kept):
                self.loop.body.draw_from(at)
                arrived.append(gs)
                seeds = [gs[k] for k in self.back.seeds]
                computed = body.run([*carried, *outside, *seeds, *met])
                outside, met = [None] * len(outside), [None] * len(met)
                for n, total in sums.items():
                    total += computed[self.reached[n]]
                gs = [
                    computed[self.reached[n]] if n in self.reached else np.zeros(x.shape, x.dtype)
                    for n, x in enumerate(carried)
                ]
        return arrived, gs, sums

    def gradient(self, g: Any, xs: Sequence[Any], y: Any) -> tuple[Any, ...]:
        """Second derivative: forward through all iterations, then backward."""
        gs, _ = self.given(g, y)
        has_gradient = [each is not None for each in gs]
        op = LoopSecond(self, has_gradient, xs)
        result = apply(op, *xs, *(each for each in gs if each is not None))
        own = iter(result if type(result) is tuple else (result,))
        return tuple([next(own) if n in op.places else None for n in range(len(xs))])


class LoopSecond(ControlFlow, abstract=True):
    """Gradient of a `LoopGradient`. That goes from the last iteration to the first, so this goes
    from the first to the last through the derivative of the derivative. Its results for the carried
    values of each iteration are then passed back through the derivative.
    """

    def __init__(
        self, first: LoopGradient, has_gradient: Sequence[bool], xs: Sequence[Any]
    ) -> None:
        self.first, self.given_ = first, tuple(has_gradient)
        back = first.back
        outputs = [False] * len(back.body.outputs)
        for n, k in first.reached.items():
            outputs[k] = n < first.count or has_gradient[first.ends.index(n)]
        self.twice = pullback(back.body, outputs, False, hints=False)
        if self.twice.outside:
            raise AutogradError(
                "while_loop: the derivative of its gradient reads tensors that neither of them "
                "reads; use scan, or a Python loop of fixed length"
            )
        arrived = [n for n, has in enumerate(first.given_) if has]
        self.arrived = {n: 1 + first.inputs + k for k, n in enumerate(arrived)}
        self.met = range(1 + first.inputs + len(arrived), len(xs))
        own = [1 + n for n in range(first.inputs)]
        kinds = [n for n in (*own, *self.arrived.values(), *self.met) if _is_float(xs[n])]
        self.places = {n: k for k, n in enumerate(kinds)}
        self.length = len(xs)
        super().__init__("while_loop_backward_backward", [xs[n].spec for n in kinds])

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Go forward, then backward."""
        first = self.first
        inputs, rest = arrays[: self.length], iter(arrays[self.length :])
        arriving = zip(first.ends, self.given_, strict=True)
        arrived = {n: next(rest) for n, has in arriving if has}
        kept, xs, gs, met = first.parts(inputs)
        kept = kept.listed() if isinstance(kept, Stack) else kept
        totals = {n: np.zeros(inputs[n].shape, inputs[n].dtype) for n in self.places}
        beside = self._forward(kept, xs, gs, met, arrived, totals)
        back = [np.zeros(x.shape, x.dtype) for x in xs[: first.count]]
        for each, more in zip(reversed(kept), reversed(beside), strict=True):
            _, back, sums = first.walk([each], xs, back, met)
            for n, total in sums.items():
                totals[1 + n] += total
            back = [x if y is None else x + y for x, y in zip(back, more, strict=True)]
        for n, x in enumerate(back):
            if 1 + n in totals:
                totals[1 + n] += x
        fill(outs, [totals[n] for n in self.places])

    def _forward(
        self,
        kept: Sequence[Any],
        xs: Sequence[Any],
        gs: list[Any],
        met: list[Any],
        arrived: dict[int, Any],
        totals: dict[int, Any],
    ) -> list[list[Any]]:
        """Run the derivative of the derivative through all iterations, adding to `totals`. Returns
        the gradients that belong to the carried values of each iteration.
        """
        first, twice = self.first, self.twice
        arrived_at, _, _ = first.walk(kept, xs, gs, met)
        seeds, count, own = first.back.seeds, first.count, first.loop.places[1]
        # Numbers of the derivative's inputs among the node's, except for carried ones.
        slot_of = {k: 1 + own[k] for k in range(count, len(own))}
        slot_of.update(enumerate(self.met, len(own) + len(seeds)))
        read = {k: n for n, k in first.reached.items()}
        flowing = [np.zeros(x.shape, x.dtype) for x in xs[:count]]
        flowing = [arrived.get(n, x) for n, x in enumerate(flowing)]
        beside: list[list[Any]] = []
        with first.loop.body.lock, twice.body.lock:
            for (carried, at), after in zip(kept, reversed(arrived_at), strict=True):
                first.loop.body.draw_from(at)
                inputs = [*carried, *first.outside(xs), *(after[k] for k in seeds), *met]
                ends = [read[k] for k in twice.seeds]
                cotangents = [flowing[n] if n < count else arrived[n] for n in ends]
                computed = twice.body.run([*inputs, *cotangents])
                parts = dict(zip(twice.reached, computed, strict=True))
                beside.append([parts.get(k) for k in range(count)])
                for k in parts.keys() & slot_of.keys():
                    totals[slot_of[k]] += parts[k]
                flowing = [np.zeros(x.shape, x.dtype) for x in carried]
                for k, n in enumerate(seeds, len(own)):
                    flowing[n] = parts.get(k, flowing[n])
        for n, slot in self.arrived.items():
            if slot in totals:
                totals[slot] += flowing[n]
        return beside

    def gradient(self, g: Any, xs: Sequence[Any], y: Any) -> tuple[Any, ...]:
        """Refused: third derivatives are not supported."""
        raise AutogradError(
            "while_loop: trying to differentiate the gradient of its gradient, for which a loop of "
            "unknown length keeps too little; use scan, or give max_steps="
        )


def _is_float(x: TensorBase) -> bool:
    return x._data.dtype.kind in "fcV"
