"""The nodes of control flow: a branch, a scan, and a call; `loops.py` has those whose length values
decide.

Each runs bodies (`bodies.py`), whose programs are native, from Python. The gradient of a branch is
a branch over the bodies' derivatives, that of a scan a scan the other way, that of a call a call,
so these have gradients of every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtype import int64
from ..core.errors import ShapeError
from ..core.mode import MODE
from ..core.op import Op
from ..core.spec import Spec
from ..eager.dispatch import apply
from ..eager.tensors import wrap, zeros
from ..program.compute import quietly, spec_of
from .bodies import Body, Pullback, gradients, like, pullback
from .drawing import Drawing

_NOTHING = Drawing(None, ())  # is drawn
Places = Sequence[int]  # for each input of a body which one of the node's it is


class Flow(Op, abstract=True):
    """What the nodes have in common: outputs of known specs."""

    needs = "xs y"
    exact = True  # bodies convert narrow floats themselves

    def __init__(self, title: str, specs: Sequence[Spec], drawing: Drawing | None = None) -> None:
        """Behind `specs` there is an output for each generator of `drawing`, as there is an input:
        by how many draws those up to here are more than one for each draw and node.
        """
        self.title = title
        self.drawing = drawing or _NOTHING
        self.specs = (*specs, *[Spec((), int64)] * len(self.drawing))
        self.taken: tuple[Spec, ...] | None = None  # what it was recorded for
        self.n_outputs = len(self.specs)  # type: ignore[misc]

    @property
    def name(self) -> str:
        """That of the public function, or of its gradient."""
        return self.title

    def infer(self, *specs: Spec) -> Any:
        """Those of the bodies' outputs; bodies are of the shapes that the node was recorded for.

        Errors: ShapeError for others, which an edit of a graph may ask for.
        """
        self.taken = self.taken or specs
        if specs != self.taken:
            pairs = zip(self.taken, specs, strict=True)
            was, now = next((was, now) for was, now in pairs if was != now)
            raise ShapeError(
                f"{self.title}: recorded for {_shown(was)} and given {_shown(now)}; record it again"
            )
        return self.specs if len(self.specs) > 1 else self.specs[0]

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """In new memory."""
        outs = [xp.zeros(spec.shape, spec.dtype.numpy) for spec in self.specs]
        self.compute_into(arrays, outs)
        return tuple(outs) if len(outs) > 1 else outs[0]

    def compute_into(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """In memory that there is."""
        quietly(self.run, arrays, outs)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Fill `outs`."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def begin(self, arrays: Sequence[Any]) -> list[Any]:
        """Where the generators are, by the last inputs."""
        return self.drawing.begin(arrays[len(arrays) - len(self.drawing) :])

    def given(self, g: Any, y: Any) -> tuple[list[Any], Sequence[Any]]:
        """Gradients of the outputs, and the outputs, also where there is one only."""
        return ([g], [y]) if self.n_outputs == 1 else (list(g), y)


def fill(outs: Sequence[Any], found: Sequence[Any]) -> None:
    """Write what was found."""
    for out, x in zip(outs, found, strict=True):
        out[...] = x


def is_true(array: Any) -> bool:
    """What an array of one element decides."""
    return bool(array.reshape(()))


class Branch(Flow, abstract=True):
    """One of two bodies, by the first input."""

    def __init__(
        self,
        title: str,
        bodies: Sequence[Body],
        places: Sequence[Places],
        sources: Sequence[Sequence[int | None]],
        specs: Sequence[Spec],
        hints: Sequence[Sequence[int]] = ((), ()),
        drawing: Drawing | None = None,
    ) -> None:
        """`places` are among the inputs behind the first. `sources` say for each body which of what
        it gives each output is, None for zeros; `hints` which outputs its derivative takes.
        """
        super().__init__(title, specs, drawing)
        self.bodies, self.places, self.sources, self.hints = bodies, places, sources, hints

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """The body that is picked."""
        k = 0 if is_true(arrays[0]) else 1
        body, now = self.bodies[k], self.begin(arrays)
        with body.lock:
            given = [arrays[1 + n] for n in self.places[k]]
            found = body.run(given, None, self.drawing.of(k, now))
            now = self.drawing.behind(k, now, body.drew)
        count = len(self.sources[k])
        for out, source in zip(outs[:count], self.sources[k], strict=True):
            out[...] = 0 if source is None else found[source]
        fill(outs[count:], self.drawing.end(now))

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """A branch over the derivatives."""
        gs, ys = self.given(g, y)
        create = MODE.get().grad
        inputs = list(xs)
        pulls: list[Pullback] = []
        places: list[list[int]] = []

        def place(x: Any) -> int:
            inputs.append(x)
            return len(inputs) - 2

        arrived = {n: place(each) for n, each in enumerate(gs) if each is not None}
        for body, own, sources, hints in zip(
            self.bodies, self.places, self.sources, self.hints, strict=True
        ):
            of = {sources[n]: at for n, at in arrived.items()}
            back = pullback(body, [k in of for k in range(len(body.outputs))], create)
            kept = [place(ys[n]) for n in hints]
            met = [place(x) for x in back.outside]
            pulls.append(back)
            places.append([*own, *(of[k] for k in back.seeds), *kept, *met])
        reached = [
            {own[k]: n for n, k in enumerate(back.reached)}
            for own, back in zip(self.places, pulls, strict=True)
        ]
        ends = sorted({n for found in reached for n in found})
        results: list[Any] = [None] * len(xs)
        if ends:
            op = Branch(
                _backward(self.title), [back.body for back in pulls], places,
                [[found.get(n) for n in ends] for found in reached],
                [xs[1 + n].spec for n in ends],
            )  # fmt: skip
            found = apply(op, *inputs)
            several = found if type(found) is tuple else (found,)
            for n, each in zip(ends, several, strict=True):
                results[1 + n] = each
        return tuple(results)


class Call(Flow, abstract=True):
    """A body, whose inputs are the node's. For inputs of other shapes it is `made` again, where
    something makes it.
    """

    def __init__(
        self, title: str, body: Body, made: Callable[[Sequence[Spec]], Body] | None = None
    ) -> None:
        super().__init__(title, given_by(body))
        self.made = made
        self.bodies = {tuple([x.spec for x in body.inputs]): body}

    def body_for(self, specs: Sequence[Spec]) -> Body:
        """The body for inputs of these shapes and dtypes.

        Errors: ShapeError where it cannot be made.
        """
        key = tuple(specs)
        found = self.bodies.get(key)
        if found is None:
            if self.made is None:
                super().infer(*specs)
                return next(iter(self.bodies.values()))
            found = self.bodies[key] = self.made(key)
            if len(given_by(found)) != self.n_outputs:
                del self.bodies[key]
                raise ShapeError(
                    f"{self.title}: for these shapes it gives another number of tensors, or keeps "
                    "another one for its gradient; record it again"
                )
        return found

    def infer(self, *specs: Spec) -> Any:
        """Those of the body's outputs.

        Errors: those of `body_for`.
        """
        found = given_by(self.body_for(specs))
        return tuple(found) if len(found) > 1 else found[0]

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """In new memory."""
        found = quietly(self._body_of(arrays).run, arrays)
        return tuple(found) if len(found) > 1 else found[0]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """The body."""
        self._body_of(arrays).run(arrays, outs)

    def _body_of(self, arrays: Sequence[Any]) -> Body:
        return self.body_for([spec_of(x) for x in arrays])

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """A call of the derivative."""
        gs, ys = self.given(g, y)
        body = self.body_for([x.spec for x in xs])
        back = pullback(body, [each is not None for each in gs], MODE.get().grad)
        results: list[Any] = [None] * len(xs)
        if back.reached:
            seeds, kept = [gs[k] for k in back.seeds], [ys[n] for _, n in body.hints]
            op = Call(_backward(self.title), back.body)
            found = apply(op, *xs, *seeds, *kept, *back.outside)
            several = found if type(found) is tuple else (found,)
            for n, each in zip(back.reached, several, strict=True):
                results[n] = each
        return tuple(results)


def given_by(body: Body) -> list[Spec]:
    """The specs of all that a body gives."""
    return [*body.specs, *(value.spec for value in body.kept)]


class Scan(Flow, abstract=True):
    """A body that runs on what it carries and on each slice of some inputs, which come behind the
    carried ones; results lie side by side.
    """

    def __init__(
        self, title: str, body: Body, places: Places, carried: int, sliced: int, length: int,
        reverse: bool, keeps: bool, drawing: Drawing | None = None,
    ) -> None:  # fmt: skip
        """Of what the body gives the first are `carried` on. `keeps`: outputs at the end have what
        was carried into each iteration.
        """
        self.body, self.places = body, tuple(places)
        self.carried, self.sliced, self.length = carried, sliced, length
        self.reverse, self.keeps = reverse, keeps
        results = [*(y.spec for y in body.outputs), *(value.spec for value in body.kept)]
        last, more = results[:carried], results[carried:]
        kept = last if keeps else []
        long = [spec.with_(shape=(length, *spec.shape)) for spec in (*more, *kept)]
        super().__init__(title, [*last, *long], drawing)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """All iterations."""
        n, end = self.carried, len(self.body.outputs) + len(self.body.kept)
        carried, results, kept = outs[:n], outs[n:end], outs[end : end + n * self.keeps]
        slices, outside = arrays[n : n + self.sliced], arrays[n + self.sliced :]
        for out, x in zip(carried, arrays, strict=False):
            out[...] = x
        order, now = range(self.length), self.begin(arrays)
        with self.body.lock:
            for t in reversed(order) if self.reverse else order:
                for out, x in zip(kept, carried, strict=False):
                    out[t] = x
                rows = [x[t, ...] for x in slices]  # arrays, though of one element
                slots = [*carried, *rows, *outside]
                given = [slots[k] for k in self.places]
                into = [*carried, *(y[t, ...] for y in results)]
                self.body.run(given, into, self.drawing.of(0, now))
                now = self.drawing.behind(0, now, self.body.drew)
                outside = [None] * len(outside)
        fill(outs[len(outs) - len(self.drawing) :], self.drawing.end(now))

    def gradient(self, g: Any, xs: Any, y: Any) -> tuple[Any, ...]:
        """A scan the other way: it carries the gradients of what was carried, and sums of those of
        what is read in each iteration.
        """
        gs, ys = self.given(g, y)
        create = MODE.get().grad
        body, n, own = self.body, self.carried, self.places
        begin, end = n + self.sliced, len(body.outputs) + len(body.kept)
        carry = {slot: k for k, slot in enumerate(own) if slot < n and body.inputs[k]._node}
        whole = pullback(body, [True] * len(body.outputs), False)
        met = [own[k] for k in whole.reached if own[k] >= begin]
        rows = [own[k] for k in whole.reached if n <= own[k] < begin]
        of = {slot: k for k, slot in enumerate(own)}
        seeds = [
            k for k in range(n, len(body.outputs))
            if gs[k] is not None and body.outputs[k]._node is not None
        ]  # fmt: skip
        states = [k for k in range(n) if self.keeps and gs[end + k] is not None and k in carry]
        sizes = [len(carry), len(met), len(seeds), len(states)]
        given = [
            like(x, create)
            for x in (
                *(body.inputs[carry[slot]] for slot in carry),
                *(body.inputs[of[slot]] for slot in met),
                *(body.outputs[k] for k in seeds),
                *(body.inputs[carry[k]] for k in states),
            )
        ]

        def back(*given: Any) -> list[Any]:
            parts = iter(given)
            flowing, sums, arrived, beside = [[next(parts) for _ in range(m)] for m in sizes]
            pairs = [
                (body.outputs[slot], each)
                for slot, each in zip(carry, flowing, strict=True)
                if body.outputs[slot]._node is not None
            ]
            pairs += [(body.outputs[k], each) for k, each in zip(seeds, arrived, strict=True)]
            targets = [body.inputs[of[slot]] for slot in (*carry, *met, *rows)]
            found: list[Any] = [None] * len(targets)
            if pairs and targets:
                found = list(
                    gradients([y for y, _ in pairs], targets, [each for _, each in pairs], create)
                )
            for slot, each in zip(states, beside, strict=True):
                k = list(carry).index(slot)
                found[k] = each if found[k] is None else found[k] + each
            for k, total in enumerate(sums, len(carry)):
                found[k] = total if found[k] is None else total + found[k]
            return [
                wrap(np.zeros(x._data.shape, x._data.dtype)) if each is None else each
                for x, each in zip(targets, found, strict=True)
            ]

        made, outside = body.derived("_backward", given, True, create, back)
        states_before = list(ys[end : end + n * self.keeps])
        hints = [ys[k] for _, k in body.hints]
        sliced = [
            *states_before, *xs[n:begin], *(gs[k] for k in seeds),
            *(gs[end + k] for k in states), *hints,
        ]  # fmt: skip
        first = [gs[slot] if gs[slot] is not None else _zeros(xs[slot]) for slot in carry]
        first += [_zeros(xs[slot]) for slot in met]
        # Where each input of `made` is, among what is carried, sliced, and the same each time.
        m, width = len(first), len(sliced)
        slots = [m + slot if slot < begin else m + width + slot - begin for slot in own]
        count = len(seeds) + len(states)
        slots += range(m)
        slots += range(m + begin, m + begin + count)
        slots += range(m + begin + count, m + width)
        slots += range(m + width + len(xs) - begin, m + width + len(xs) - begin + len(outside))
        op = Scan(
            _backward(self.title), made, slots, m, width, self.length, not self.reverse, create
        )
        results: list[Any] = [None] * len(xs)
        if not (m or rows):
            return tuple(results)
        found = apply(op, *first, *sliced, *xs[begin:], *outside)
        several = found if type(found) is tuple else (found,)
        for slot, each in zip((*carry, *met, *rows), several, strict=False):
            results[slot] = each
        return tuple(results)


def _zeros(x: Any) -> Any:
    return zeros(x._data.shape, x._data.dtype, x.device)


def _shown(spec: Spec) -> str:
    return f"{spec.shape} {spec.dtype}"


def _backward(title: str) -> str:
    return title if title.endswith("_backward") else f"{title}_backward"
