"""Ops of control flow: a branch, a scan, and a call of a sub-graph. `loops.py` has loops of
data-dependent length.

Each op runs its bodies (`subgraphs.py`), which are native programs, from Python. The gradient of a
branch is a branch over the bodies' derivatives. That of a scan is a scan in the other direction,
and that of a call a call, so there are gradients of every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.batching import one_by_one
from ...autograd.dual import follows_tangents
from ...core import policy
from ...core.dtype import int64
from ...core.errors import NotTraceable, ShapeError
from ...core.mode import MODE
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ir.compute import quietly, spec_of
from ...runtime.dispatch import apply
from ...runtime.tensors import zeros
from . import machine_loop
from .loop_lowering import BranchMachine, ScanMachine, mask_of
from .loop_products import summed
from .machine_loop import bytes_of
from .random_state import ControlFlowDraws
from .scan_vjp import scan_pullback
from .subgraphs import Subgraph, SubgraphVJP, pullback

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray
    from ...backends.native.lowering.scratch import Scratch
    from .machine_loop import MachineLoop

_NOTHING = ControlFlowDraws(None, ())  # of nodes that draw no random numbers
Places = Sequence[int]  # for each input of a body the number of the node's input that it is


class ControlFlow(Op, abstract=True):
    """Base class of control-flow ops, whose outputs have known specs."""

    needs = "xs y"
    exact = True  # bodies convert narrow floats themselves

    def __init__(
        self, title: str, specs: Sequence[Spec], drawing: ControlFlowDraws | None = None
    ) -> None:
        """For each generator of `drawing` there is an output behind `specs`, as there is a last
        input: the extra draws up to here, beyond one for each draw and node.
        """
        self.title = title
        self.drawing = drawing or _NOTHING
        self.specs = (*specs, *[Spec((), int64)] * len(self.drawing))
        self.taken: tuple[Spec, ...] | None = None  # specs of inputs that it was recorded for
        self.n_outputs = len(self.specs)  # type: ignore[misc]

    @property
    def name(self) -> str:
        """Name of the public function, or of its gradient."""
        return self.title

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the outputs. Inputs have the specs that the node was recorded for.

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

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Compute the outputs in new memory."""
        outs = [xp.zeros(spec.shape, spec.dtype.numpy) for spec in self.specs]
        self.compute_into(arrays, outs)
        return tuple(outs) if len(outs) > 1 else outs[0]

    def compute_into(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute the outputs into `outs`."""
        quietly(self.run, arrays, outs)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Compute the outputs into `outs`, on behalf of the other two."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def subgraphs(self) -> Sequence[Subgraph]:
        """The bodies that a run may run."""
        return ()

    @property
    def called(self) -> tuple[str, ...]:
        """Ops for which Python is called in each turn, or whenever a branch is picked."""
        names: dict[str, None] = {}
        for body in self.subgraphs():
            names.update(dict.fromkeys(body.called))
            for node in body.program().nodes:
                names.update(dict.fromkeys(getattr(node.op, "called", ())))
        return tuple(names)

    @property
    def turns(self) -> str | None:
        """Why turns go through records rather than are one function; "" where they are, None where
        there are none.
        """
        said = [body.by_records for body in self.subgraphs() if body.by_records is not None]
        return said[0] if said else None

    def bind(
        self, arrays: Sequence[Any], outs: Sequence[Any], scratch: Scratch
    ) -> list[Any] | None:
        """Calls of machine code that compute the outputs of arrays that stay where they are; None
        where Python is needed to begin or to end.
        """
        if len(self.drawing) or not machine_loop.is_available():
            return None
        loop = self.lowered(arrays)
        return None if loop is None else loop.bound(arrays, outs)

    def lowered(self, arrays: Sequence[Any]) -> MachineLoop | None:
        """A new loop in machine code, with memory of its own; None where Python is needed, as
        above.
        """
        return None

    def batch(self, size: int, flags: Sequence[bool], *inputs: Any) -> Any:
        """The results on a batch, by bodies of batches; for each entry alone, where a body cannot
        be recorded again.
        """
        from .control_batches import batched  # above this file

        try:
            results = batched(self, size, flags, inputs)
        except NotTraceable:
            specs = self.specs if self.n_outputs > 1 else self.specs[0]
            return one_by_one(self, size, flags, inputs, specs)
        return tuple(results) if self.n_outputs > 1 else results[0]

    def begin(self, arrays: Sequence[Any]) -> list[Any]:
        """States of the generators, which the last inputs tell."""
        return self.drawing.begin(arrays[len(arrays) - len(self.drawing) :])

    def given(self, g: Any, y: Any) -> tuple[list[Any], Sequence[Any]]:
        """Gradients of the outputs, and the outputs, as sequences also if there is only one."""
        return ([g], [y]) if self.n_outputs == 1 else (list(g), y)


def fill(outs: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Copy arrays into `outs`."""
    for out, x in zip(outs, arrays, strict=True):
        out[...] = x


def is_true(array: Any) -> bool:
    """Truth of an array of one element."""
    return bool(array.reshape(()))


class Branch(ControlFlow, abstract=True):
    """Runs one of two bodies, chosen by the first input."""

    def __init__(
        self,
        title: str,
        bodies: Sequence[Subgraph],
        places: Sequence[Places],
        sources: Sequence[Sequence[int | None]],
        specs: Sequence[Spec],
        hints: Sequence[Sequence[int]] = ((), ()),
        drawing: ControlFlowDraws | None = None,
    ) -> None:
        """`places` are numbers of inputs behind the first. `sources` say for each body which of its
        outputs each output of the node is, None for zeros; `hints` which outputs its derivative
        reads.
        """
        super().__init__(title, specs, drawing)
        self.bodies, self.places, self.sources, self.hints = bodies, places, sources, hints

    def subgraphs(self) -> Sequence[Subgraph]:
        """The two bodies."""
        return self.bodies

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the chosen body."""
        k = 0 if is_true(arrays[0]) else 1
        body, now = self.bodies[k], self.begin(arrays)
        with body.lock:
            inputs = [arrays[1 + n] for n in self.places[k]]
            computed = body.run(inputs, None, self.drawing.of(k, now))
            now = self.drawing.behind(k, now, body.drew)
        count = len(self.sources[k])
        for out, source in zip(outs[:count], self.sources[k], strict=True):
            out[...] = 0 if source is None else computed[source]
        fill(outs[count:], self.drawing.end(now))

    def lowered(self, arrays: Sequence[Any]) -> MachineLoop | None:
        """The branch in machine code; None for a predicate that it cannot look at."""
        dtype = arrays[0].dtype
        return BranchMachine(self, dtype, len(arrays)).loop if mask_of(dtype) else None

    def gradient(self, g: Any, xs: Sequence[Any], y: Any) -> tuple[Any, ...]:
        """A branch over the bodies' derivatives."""
        gs, ys = self.given(g, y)
        create = differentiated(xs)
        inputs = list(xs)
        pulls: list[SubgraphVJP] = []
        input_numbers: list[list[int]] = []

        def place(x: object) -> int:
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
            input_numbers.append([*own, *(of[k] for k in back.seeds), *kept, *met])
        reached = [
            {own[k]: n for n, k in enumerate(back.reached)}
            for own, back in zip(self.places, pulls, strict=True)
        ]
        ends = sorted({n for output_of in reached for n in output_of})
        results: list[Any] = [None] * len(xs)
        if ends:
            op = Branch(
                _backward(self.title), [back.body for back in pulls], input_numbers,
                [[output_of.get(n) for n in ends] for output_of in reached],
                [xs[1 + n].spec for n in ends],
            )  # fmt: skip
            result = apply(op, *inputs)
            several = result if type(result) is tuple else (result,)
            for n, each in zip(ends, several, strict=True):
                results[1 + n] = each
        return tuple(results)


class Call(ControlFlow, abstract=True):
    """Runs a body, whose inputs are the node's. For inputs of other shapes the body is traced again
    by `made`, if there is one.
    """

    def __init__(
        self, title: str, body: Subgraph, made: Callable[[Sequence[Spec]], Subgraph] | None = None
    ) -> None:
        super().__init__(title, given_by(body))
        self.made = made
        self.bodies = {tuple([x.spec for x in body.inputs]): body}

    def body_for(self, specs: Sequence[Spec]) -> Subgraph:
        """The body for inputs of these shapes and dtypes, traced if it is new.

        Errors: ShapeError where it cannot be made.
        """
        key = tuple(specs)
        body = self.bodies.get(key)
        if body is None:
            if self.made is None:
                super().infer(*specs)
                return next(iter(self.bodies.values()))
            body = self.bodies[key] = self.made(key)
            if len(given_by(body)) != self.n_outputs:
                del self.bodies[key]
                raise ShapeError(
                    f"{self.title}: for these shapes it gives another number of tensors, or keeps "
                    "another one for its gradient; record it again"
                )
        return body

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the body's outputs.

        Errors: those of `body_for`.
        """
        outputs = given_by(self.body_for(specs))
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Compute the outputs in new memory."""
        outputs = quietly(self._body_of(arrays).run, arrays)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the body for inputs like `arrays`."""
        self._body_of(arrays).run(arrays, outs)

    def _body_of(self, arrays: Sequence[Any]) -> Subgraph:
        return self.body_for([spec_of(x) for x in arrays])

    def gradient(self, g: Any, xs: Sequence[Any], y: Any) -> tuple[Any, ...]:
        """A call of the body's derivative."""
        gs, ys = self.given(g, y)
        body = self.body_for([x.spec for x in xs])
        back = pullback(body, [each is not None for each in gs], differentiated(xs))
        results: list[Any] = [None] * len(xs)
        if back.reached:
            seeds, kept = [gs[k] for k in back.seeds], [ys[n] for _, n in body.hints]
            op = Call(_backward(self.title), back.body)
            result = apply(op, *xs, *seeds, *kept, *back.outside)
            several = result if type(result) is tuple else (result,)
            for n, each in zip(back.reached, several, strict=True):
                results[n] = each
        return tuple(results)


def given_by(body: Subgraph) -> list[Spec]:
    """Specs of all that a body computes: outputs and kept values."""
    return [*body.specs, *(value.spec for value in body.kept)]


class Scan(ControlFlow, abstract=True):
    """Runs a body on carried values and on each slice of some inputs, which follow the carried
    ones; results are stacked.
    """

    def __init__(
        self, title: str, body: Subgraph, places: Places, carried: int, sliced: int, length: int,
        reverse: bool, keeps: bool, drawing: ControlFlowDraws | None = None,
    ) -> None:  # fmt: skip
        """The first `carried` outputs of the body are carried on. If `keeps`, the last outputs are
        the values that were carried into each iteration.
        """
        self.body, self.places = body, tuple(places)
        self.carried, self.sliced, self.length = carried, sliced, length
        self.reverse, self.keeps = reverse, keeps
        results = [*(y.spec for y in body.outputs), *(value.spec for value in body.kept)]
        last, more = results[:carried], results[carried:]
        kept = last if keeps else []
        long = [spec.with_(shape=(length, *spec.shape)) for spec in (*more, *kept)]
        super().__init__(title, [*last, *long], drawing)

    keeping = ""  # what is kept of all turns for a gradient, as `explain` says it

    @property
    def kept_turns(self) -> tuple[int, str] | None:
        """How many bytes are kept of all turns for a gradient, and what; None where nothing is."""
        if not self.keeping:
            return None
        specs = self.specs[len(self.body.outputs) : len(self.specs) - len(self.drawing)]
        return sum(map(bytes_of, specs)), self.keeping

    def subgraphs(self) -> Sequence[Subgraph]:
        """The body."""
        return (self.body,)

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run all iterations: in machine code, where there is a backend for it."""
        now: Sequence[Any] = self.begin(arrays)
        end = len(outs) - len(self.drawing)
        given = arrays[: len(arrays) - len(self.drawing)]
        with self.body.lock:
            if machine_loop.is_available():
                machine = self.machine(len(given))
                now = machine.run(given, outs[:end], self.drawing, now, self.length)
            else:
                now = self.iterate(given, outs, now)
        fill(outs[end:], self.drawing.end(now))

    def lowered(self, arrays: Sequence[Any]) -> MachineLoop | None:
        """A new loop in machine code."""
        return ScanMachine(self, len(arrays)).loop

    def machine(self, given: int) -> ScanMachine:
        """The loop in machine code, for so many inputs: it runs scans of any length but 0."""
        some = self.length > 0
        key = given, self.places, self.carried, self.sliced, some, self.reverse, self.keeps
        machines = self.body.machines
        if key not in machines:
            machines[key] = ScanMachine(self, given)
        machine: ScanMachine = machines[key]
        return machine

    def iterate(
        self, arrays: Sequence[Any], outs: Sequence[Any], now: Sequence[Any]
    ) -> Sequence[Any]:
        """Run all iterations from Python. Returns the states of the generators at the end."""
        n, end = self.carried, len(self.body.outputs) + len(self.body.kept)
        carried, results, kept = outs[:n], outs[n:end], outs[end : end + n * self.keeps]
        slices, outside = arrays[n : n + self.sliced], arrays[n + self.sliced :]
        for out, x in zip(carried, arrays, strict=False):
            out[...] = x
        order = range(self.length)
        for t in reversed(order) if self.reverse else order:
            for out, x in zip(kept, carried, strict=False):
                out[t] = x
            rows = [x[t, ...] for x in slices]  # arrays, though of one element
            slots = [*carried, *rows, *outside]
            inputs = [slots[k] for k in self.places]
            into = [*carried, *(y[t, ...] for y in results)]
            self.body.run(inputs, into, self.drawing.of(0, now))
            now = self.drawing.behind(0, now, self.body.drew)
            outside = [None] * len(outside)
        return now

    def gradient(self, g: Any, xs: Sequence[Any], y: Any) -> tuple[Any, ...]:
        """A scan in the other direction. It carries the gradients of carried values, and sums of
        the gradients of tensors that each iteration reads.
        """
        gs, ys = self.given(g, y)
        create = differentiated(xs)
        body, n = self.body, self.carried
        begin, end = n + self.sliced, len(body.outputs) + len(body.kept)
        step, made, outside, ops = scan_pullback(self, gs, create)
        states_before = list(ys[end : end + n * self.keeps])
        hints = [ys[k] for _, k in body.hints]
        sliced = [
            *states_before, *xs[n:begin], *(gs[k] for k in step.seeds),
            *(gs[end + k] for k in step.states), *hints,
        ]  # fmt: skip
        first = [gs[slot] if gs[slot] is not None else _zeros(xs[slot]) for slot in step.carry]
        first += [_zeros(xs[slot]) for slot in step.met]
        m, width = len(first), len(sliced)
        places = step.places(begin, width, len(xs) - begin, len(outside))
        op = ops.get(self.length)
        if op is None:  # one for each length: what is known of an op is known by its identity
            if len(ops) >= policy.SCAN_FORMS:
                ops.clear()
            op = ops[self.length] = Scan(
                _backward(self.title), made, places, m, width, self.length, not self.reverse, create
            )
        results: list[Any] = [None] * len(xs)
        several: Sequence[Any] = ()
        if m or step.rows or step.stacked:
            result = apply(op, *first, *sliced, *xs[begin:], *outside)
            several = result if type(result) is tuple else (result,)
        for slot, each in zip((*step.carry, *step.met, *step.rows), several, strict=False):
            results[slot] = each
        stacks = dict(zip(step.stacked, several[m + len(step.rows) :], strict=False))
        stacks.update((number, sliced[slot]) for number, slot in step.known.items())
        stacks.update((id(value), y) for (value, _), y in zip(body.hints, hints, strict=True))
        for slot, pairs in step.products.items():
            factors = [(stacks[a], stacks[b]) for a, b in pairs]
            results[slot] = summed(factors, xs[slot].shape) if pairs else _zeros(xs[slot])
        return tuple(results)


def differentiated(xs: Sequence[Any]) -> bool:
    """Whether derivatives of a gradient may be wanted."""
    return MODE.get().grad or follows_tangents(xs)


def _zeros(x: TensorBase) -> Tensor:
    return zeros(x._data.shape, x._data.dtype, x.device)


def _shown(spec: Spec) -> str:
    return f"{spec.shape} {spec.dtype}"


def _backward(title: str) -> str:
    return title if title.endswith("_backward") else f"{title}_backward"
