"""Loops of data-dependent length, whose gradient goes the other way, and the gradient of that."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dtype import int64
from ..core.errors import AutogradError
from ..core.mode import MODE
from ..core.spec import Spec
from ..eager.dispatch import apply
from .bodies import Body, Pullback, pullback
from .drawing import Drawing
from .flow import Flow, Places, fill, is_true


class Loop(Flow, abstract=True):
    """A body that runs on what it gave, as long as another one gives true. One output says which
    run it was, whose carried values are kept until its gradient has been computed, or the
    next run.
    """

    def __init__(
        self,
        test: Body,
        body: Body,
        places: Sequence[Places],
        specs: Sequence[Spec],
        wanting: Sequence[bool],
        drawing: Drawing | None = None,
    ) -> None:
        """The first inputs are carried, of these `specs`, some of which want gradients."""
        run = Spec((), int64)
        super().__init__("while_loop", [*specs, run], drawing)
        self.count = len(specs)
        self.test, self.body, self.places = test, body, places
        self.wanting = wanting
        self.latest: tuple[int, list[Any]] | None = None

    def history(self, arrays: Sequence[Any], keep: bool) -> tuple[list[Any], list[Any], list[Any]]:
        """What each iteration begins with, if that is to be kept, and where generators are then;
        and what is left in the end, of both.
        """
        count, drawing = self.count, self.drawing
        carried, now = list(arrays[:count]), self.begin(arrays)
        kept = []
        ahead, behind = [[arrays[n] for n in places if n >= count] for places in self.places]
        with self.test.lock, self.body.lock:
            while True:
                go = self.test.run([*carried, *ahead], None, drawing.of(0, now))[0]
                now = drawing.behind(0, now, self.test.drew)
                if not is_true(go):
                    break
                at = drawing.of(1, now)
                if keep:
                    kept.append((carried, at))
                carried = self.body.run([*carried, *behind], None, at)
                now = drawing.behind(1, now, self.body.drew)
                ahead, behind = [None] * len(ahead), [None] * len(behind)
        return kept, carried, now

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """All iterations."""
        kept, carried, now = self.history(arrays, any(self.wanting))
        number = next(_runs)
        if kept:  # the first one's may be memory that is used again
            first, at = kept[0]
            kept[0] = [x.copy() for x in first], at
        self.latest = number, kept
        fill(outs, (*carried, number, *self.drawing.end(now)))

    def take(self, number: int, arrays: Sequence[Any]) -> list[Any]:
        """What each iteration of a run began with; of an earlier run than the last, once more."""
        latest, self.latest = self.latest, None
        if latest is not None and latest[0] == number:
            return latest[1]
        return self.history(arrays, True)[0]

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """The derivative of the body, from the last iteration to the first."""
        back = pullback(self.body, self.wanting, MODE.get().grad, hints=False)
        gs = g[: self.count]
        op = LoopGradient(self, back, [each is not None for each in gs], xs)
        arrived = [each for each in gs if each is not None]
        found = apply(op, y[self.count], *xs, *arrived, *back.outside)
        own = iter(found if type(found) is tuple else (found,))
        wanted = set(op.ends)
        return tuple([next(own) if n in wanted else None for n in range(len(xs))])


_runs = itertools.count(1)


class LoopGradient(Flow, abstract=True):
    """The gradient of a `Loop`: of its inputs, and of what it gave."""

    def __init__(self, loop: Loop, back: Pullback, given: Sequence[bool], xs: Any) -> None:
        self.loop, self.back = loop, back
        self.given_ = tuple(given)
        self.count, self.inputs = len(given), len(xs)
        own = loop.places[1]
        self.reached = {own[k]: n for n, k in enumerate(back.reached)}
        carried = [n for n, wants in enumerate(loop.wanting) if wants]
        self.ends = [*carried, *sorted(n for n in self.reached if n >= self.count)]
        super().__init__("while_loop_backward", [xs[n].spec for n in self.ends])

    def parts(self, arrays: Sequence[Any]) -> tuple[Any, list[Any], list[Any], list[Any]]:
        """Of the inputs: what iterations began with, the loop's, gradients of what it gave, and
        what the derivative reads besides.
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
        """What the body reads besides what is carried."""
        return [xs[n] for n in self.loop.places[1] if n >= self.count]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Backward through all iterations."""
        kept, xs, gs, met = self.parts(arrays)
        _, gs, sums = self.walk(kept, xs, gs, met)
        fill(outs, [sums[n] if n in sums else gs[n] for n in self.ends])

    def walk(
        self, kept: Sequence[Any], xs: Sequence[Any], gs: list[Any], met: list[Any]
    ) -> tuple[list[Any], list[Any], dict[int, Any]]:
        """The gradients behind each iteration, the last one's first; those of what is carried in
        the beginning, and the sums of those of what each iteration reads.
        """
        outside = self.outside(xs)
        sums = {n: np.zeros_like(xs[n]) for n in self.ends if n >= self.count}
        body, behind = self.back.body, []
        with self.loop.body.lock, body.lock:
            for carried, at in reversed(kept):
                self.loop.body.draw_from(at)
                behind.append(gs)
                seeds = [gs[k] for k in self.back.seeds]
                found = body.run([*carried, *outside, *seeds, *met])
                outside, met = [None] * len(outside), [None] * len(met)
                for n, total in sums.items():
                    total += found[self.reached[n]]
                gs = [
                    found[self.reached[n]] if n in self.reached else np.zeros(x.shape, x.dtype)
                    for n, x in enumerate(carried)
                ]
        return behind, gs, sums

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """Forward through all iterations, then backward."""
        gs, _ = self.given(g, y)
        given = [each is not None for each in gs]
        op = LoopSecond(self, given, xs)
        found = apply(op, *xs, *(each for each in gs if each is not None))
        own = iter(found if type(found) is tuple else (found,))
        return tuple([next(own) if n in op.places else None for n in range(len(xs))])


class LoopSecond(Flow, abstract=True):
    """The gradient of a `LoopGradient`. That went from the last iteration to the first; so this
    goes from the first to the last through the derivative of the derivative, and with what comes of
    it for what each iteration began with, back through the derivative.
    """

    def __init__(self, first: LoopGradient, given: Sequence[bool], xs: Any) -> None:
        self.first, self.given_ = first, tuple(given)
        back = first.back
        outputs = [False] * len(back.body.outputs)
        for n, k in first.reached.items():
            outputs[k] = n < first.count or given[first.ends.index(n)]
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
        """Both ways."""
        first = self.first
        inputs, rest = arrays[: self.length], iter(arrays[self.length :])
        given = zip(first.ends, self.given_, strict=True)
        arrived = {n: next(rest) for n, has in given if has}
        kept, xs, gs, met = first.parts(inputs)
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
        self, kept: Any, xs: Any, gs: Any, met: Any, arrived: dict[int, Any], totals: dict[int, Any]
    ) -> list[list[Any]]:
        """Add up what the derivative of the derivative says; for what each iteration began with it
        is given back.
        """
        first, twice = self.first, self.twice
        behind, _, _ = first.walk(kept, xs, gs, met)
        seeds, count, own = first.back.seeds, first.count, first.loop.places[1]
        # The places of the derivative's inputs among the node's, behind what is carried.
        places = {k: 1 + own[k] for k in range(count, len(own))}
        places.update(enumerate(self.met, len(own) + len(seeds)))
        read = {k: n for n, k in first.reached.items()}
        flowing = [np.zeros(x.shape, x.dtype) for x in xs[:count]]
        flowing = [arrived.get(n, x) for n, x in enumerate(flowing)]
        beside: list[list[Any]] = []
        with first.loop.body.lock, twice.body.lock:
            for (carried, at), after in zip(kept, reversed(behind), strict=True):
                first.loop.body.draw_from(at)
                given = [*carried, *first.outside(xs), *(after[k] for k in seeds), *met]
                ends = [read[k] for k in twice.seeds]
                cotangents = [flowing[n] if n < count else arrived[n] for n in ends]
                found = twice.body.run([*given, *cotangents])
                parts = dict(zip(twice.reached, found, strict=True))
                beside.append([parts.get(k) for k in range(count)])
                for k in parts.keys() & places.keys():
                    totals[places[k]] += parts[k]
                flowing = [np.zeros(x.shape, x.dtype) for x in carried]
                for k, n in enumerate(seeds, len(own)):
                    flowing[n] = parts.get(k, flowing[n])
        for n, place in self.arrived.items():
            if place in totals:
                totals[place] += flowing[n]
        return beside

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """There is none."""
        raise AutogradError(
            "while_loop: trying to differentiate the gradient of its gradient, for which a loop of "
            "unknown length keeps too little; use scan, or a Python loop of fixed length"
        )


def _is_float(x: Any) -> bool:
    return x._data.dtype.kind in "fcV"
