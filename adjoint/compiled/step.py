"""A captured step made native: kernels, products and optimizers as one sequence, run on call."""

from __future__ import annotations

import collections
import copy
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from ..backends.native.runtime.memory import release_memory, zeros
from ..backends.native.runtime.pool import default_pool
from ..backends.native.runtime.sequence import Sequence as Calls
from ..core.device import device_of
from ..core.errors import NotTraceable, Unsupported
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from ..eager.arrays import address
from ..eager.elements import owner
from ..eager.record import parents_of
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..graph.lazy import concrete
from ..inference.algebra import exact_algebra, reassociate
from ..inference.batches import batch_products
from ..inference.buffers import aligned, placeholders
from ..inference.execution import Workspace
from ..inference.kernels import Kernel, fuse_kernels, keep_less
from ..inference.layers import accumulate_products, rectify_products
from ..inference.layouts import block_layouts
from ..inference.opening import (
    open_activations,
    open_narrow_gradients,
    open_outer_products,
    open_variances,
)
from ..inference.passes import (
    Folds,
    drop_dead,
    drop_expansions,
    drop_identities,
    fold_constants,
    inline_numbers,
    merge_equal,
)
from ..inference.recompute import root
from ..inference.rows import gather_rows
from ..inference.schedule import Schedule
from ..inference.steps import Step
from ..ops.index.advanced import Index, IndexSum
from ..ops.index.pick import Pick, PlaceAt
from ..program.program import Node, Program, Value, take_apart
from ..program.reads import Guards
from ..program.standing import Held, hold_items, hooks_of, want_gradients
from .arguments import Memory, are_alike, assert_apart, assert_ordered
from .backward import CompiledCall, Cotangents, Lease, history
from .capture import CAPTURING, Captured, Update
from .counting import Counted, Counter, Launch, launch_all
from .course import Course, Entry, Round, stands
from .handover import Argument, Fresh, Mover, copy_all
from .places import Result
from .renewal import follow
from .reserve import Reserve
from .routines import give_final_states

_COPIED = 1 << 14  # bytes of an argument below which it is copied
_BYTES_OF_CALL = 8 << 10  # 188 calls of a GPT take 1.5 MiB
_ELSEWHERE = (wrap(np.zeros(())), np.zeros(()), None)  # a tensor that has moved


Lowering = Callable[["Part"], None]


def unbound(values: Sequence[Value]) -> dict[Value, Any]:
    """An array for each value that calls find elsewhere, or that is copied."""
    arrays = placeholders((x.shape, x.spec.dtype.numpy) for x in values)
    return dict(zip(values, arrays, strict=True))


class Part:
    """What lies between two steps of optimizers: a program, in memory of its own."""

    def __init__(
        self,
        inputs: Sequence[Value],
        nodes: Sequence[Node],
        wanted: Sequence[Value],
        nearly: bool = False,
        lower: Lowering | None = None,
    ) -> None:
        """`inputs` and `wanted` are values of the whole program, whose nodes are taken over.
        `nearly`: see `_optimize`; `lower` makes it what runs, native code by default.
        """
        self.inputs, self.wanted = list(inputs), list(wanted)
        own = {x: Value(x.spec, name=x.name) for x in inputs}
        self.views = set(own.values())  # what shows the memory of inputs, and is to follow it
        for node in nodes:
            node.inputs = tuple([own.get(x, x) if type(x) is Value else x for x in node.inputs])
            if node.op.view and node.inputs[0] in self.views:
                self.views.update(node.outputs)
        self.graph = Program(own.values(), nodes, wanted)
        self.cuts: list[tuple[str, str]] = []  # ops that begin another kernel, and why
        self.schedule: Any = None  # of native code
        _optimize(self, nearly)
        (lower or to_native_code)(self)
        runs = set(self.graph.nodes)
        kernels = [node.op for node in runs if isinstance(node.op, Kernel)]
        runs.update(node for op in kernels for node in op.program.nodes)
        take_apart(set(nodes) - runs)

    def let_go(self) -> None:
        """Of the memory that it has been bound to."""
        self.space: Any = None
        self.calls: list[Any] = []
        self.checks: list[Callable[[], None]] = []
        self.copies: list[tuple[Any, Any]] = []

    def bind(
        self, known: dict[Value, Any], places: dict[Value, Any],
        memory: Callable[[int], Any] = zeros, scratch: Any = None,
    ) -> None:  # fmt: skip
        """Connect the kernels to the arrays of values that are `known`, where what is wanted is
        added. `places` are arrays into which wanted values are to be written, if they can; for
        `memory` and `scratch` see `Workspace`.
        """
        self.let_go()
        graph = self.graph
        inputs = dict(zip(graph.inputs, self.inputs, strict=True))
        arrays = {x: known[source] for x, source in inputs.items()}
        made = {y for node in graph.nodes for y in node.outputs if not node.op.view}
        for value, y in zip(self.wanted, graph.outputs, strict=True):
            if value in places and y in made and graph.outputs.count(y) == 1:
                arrays[y] = places[value]
        self.schedule = Schedule(graph, None, lambda: None, arrays)
        space = Workspace(self.schedule, lambda: None, arrays, memory, scratch)
        self.space = space  # whose memory the calls only have addresses of
        self.calls = space.calls
        roots = self.schedule.roots
        alike: set[Value] = set()
        for value, y in zip(self.wanted, graph.outputs, strict=True):
            known[value] = array = space.arrays[y]
            follows = value in self.views and value not in places  # gradients are copies
            if roots.get(y, y) in inputs and not follows:
                known[value] = array.copy()
                self.copies.append((known[value], array))
                alike.add(y)
        checked = [
            step
            for step in self.schedule.steps
            if isinstance(step.op, Kernel) and step.op.composite.guards
        ]
        guards = [
            (guard, spec, step.values[n])
            for step in checked
            for guard, spec, n in step.op.composite.guards  # type: ignore[attr-defined]
        ]
        # A copy of an input is made only later: it is made for the check, too.
        looked = [
            (x, []) if roots.get(x, x) in inputs or x.array is not None else self._path(x)
            for *_, x in guards
        ]
        self.checks = [
            partial(_check, guard, spec, space.arrays[x], nodes)
            for (guard, spec, _), (x, nodes) in zip(guards, looked, strict=True)
        ]
        shown = space.shown.union(alike, (x for x, _ in looked))
        # Those of the inputs and of what is wanted whose arrays are used as such, not by addresses.
        used = shown.union(graph.outputs)  # which may be views of inputs
        self.shown = {inputs[y] for x in used if (y := roots.get(x, x)) in inputs}
        fixed = {roots.get(x, x) for x in shown}
        fixed.update(roots[y] for y in graph.outputs if roots.get(y, y) is not y)  # views of others
        self.shown.update(
            x for x, y in zip(self.wanted, graph.outputs, strict=True) if roots.get(y, y) in fixed
        )

    def lay_out(self, known: dict[Value, Any], read: Sequence[Value]) -> None:
        """Copy what a step behind reads and this part makes as a view with strides (a gradient that
        was expanded): formulas of optimizers go through rows.
        """
        for x in set(read).intersection(self.wanted):
            array = known[x]
            if not array.flags.c_contiguous:
                known[x] = np.empty(array.shape, array.dtype)
                self.copies.append((known[x], array))

    def _path(self, x: Value) -> tuple[Value, list[tuple[Any, int]]]:
        """The input, or constant, that a value comes from, and the nodes that lead from there."""
        path: list[tuple[Any, int]] = []
        while x.node is not None and x not in self.graph.inputs:
            path.insert(0, (x.node, x.index))
            x = x.node.inputs[0]
        return x, path

    def may_fail(self) -> bool:
        """Whether it may raise an error."""
        return bool(self.checks) or any(
            type(call) is not Calls or any(call.failing) for call in self.calls
        )

    def refused_behind(self, written: set[int]) -> dict[tuple[Value, int], None] | None:
        """What may be refused when it has written one of these arrays, by id: indices, and what all
        of each must be below; None where errors may have other reasons. Gradients of what an index
        has picked add to where that was, and refuse nothing that was not refused.
        """
        behind = False
        found: dict[tuple[Value, int], None] = {}
        taken: set[Any] = set()  # indices, with what they were found to be within
        by_call = iter(self.space.steps_by_call)
        for call in self.calls:
            for fails in call.failing if type(call) is Calls else (True,):
                steps = next(by_call)
                asked = _index_of(steps)
                if behind and fails and asked not in taken:
                    if asked is None:
                        return None
                    index, (_, sizes) = asked
                    found[index, min(sizes)] = None
                if asked is not None and isinstance(steps[0].op, Index):
                    taken.add(asked)
                outputs = [y for step in steps for y in step.outputs]
                behind = behind or any(id(self.space.arrays.get(y)) in written for y in outputs)
        return found

    def native_calls(self) -> list[Calls]:
        """Those that know their arrays by addresses."""
        return [call for call in self.calls if type(call) is Calls]

    def listed(self) -> list[tuple[tuple[Step, ...], bool, int]]:
        """What each call computes, whether it is machine code, and the number of the region in
        which threads go apart through it and others; 0 for those that are in none.
        """
        found: list[tuple[bool, int]] = []
        count = 0
        for call in self.space.calls:
            begin = len(found)
            found += [(True, 0)] * len(call) if isinstance(call, Calls) else [(False, 0)]
            for region in getattr(call, "regions", ()):
                count += 1
                found[begin + region.start : begin + region.stop] = [(True, count)] * len(region)
        return [(steps, *each) for steps, each in zip(self.space.steps_by_call, found, strict=True)]

    def run(self, observer: Any) -> None:
        """Check, then compute."""
        for check in self.checks:
            check()
        self.space.compute(observer)
        copy_all(self.copies)


class Compiled:
    """A program for arguments of certain shapes and dtypes; one thread at a time runs it.

    Where its results have gradients, each call that may still ask for these has memory of its own:
    `others` are such programs, this one among them.
    """

    arrays: Any = np.ndarray  # what tensors hold
    course: Course | None = None  # where it is connected to the host's memory

    def __init__(
        self, captured: Captured, guards: Guards, nearly: bool = False,
        reserve: Reserve | None = None,
    ) -> None:  # fmt: skip
        """`nearly`: values may differ by rounding (`reassociate=True`); `reserve`: of programs that
        may run in turn.
        """
        self.guards = guards
        self.lock = threading.Lock()
        self.captured = captured
        graph = captured.program
        count, more = len(captured.written), len(captured.leaves)
        self.arguments = graph.inputs[: captured.arguments]
        self.states = graph.inputs[captured.arguments :]
        self.written = graph.outputs[:count]
        self.gradients = graph.outputs[count : count + more]
        end = len(graph.outputs) - len(captured.errors)
        last = end - len(captured.backward.sources)
        self.results = graph.outputs[count + more : last]
        self.tangents = graph.outputs[last:end]
        step = captured.backward.step
        self.seeds = () if step is None else step.outputs
        self.checked = dict(zip(graph.outputs[end:], captured.errors, strict=True))
        # What is computed between a call and its gradients belongs to that call.
        self.shares = reserve is not None and not self.tangents
        self.reserve = reserve if reserve is not None and self.shares else Reserve()
        if not set(graph.inputs).isdisjoint(self.gradients):
            raise Unsupported("compile: a gradient that is another tensor; give backward its clone")
        self.owned = self._owned(graph)
        self.wanting = [
            (x, wanted, hooks_of(x))
            for x, wanted in zip(captured.states, captured.wants, strict=True)
            if x is not None
        ]
        self._divide(graph, nearly)
        self.others = [self]
        self.lease: Any = lambda: None  # what a call has computed here, while it is wanted
        release_memory()  # of eager calls before, which would lie beside the program's
        self._bind()
        release_memory()  # of what compiling took

    def _owned(self, graph: Program) -> dict[int, Any]:
        """The states that are gradients of leaves, whatever tensors hold them."""
        used = {x for node in graph.nodes for x in node.values}.union(graph.outputs)
        return {
            n: x
            for n, (x, value) in enumerate(zip(self.captured.owners, self.states, strict=True))
            if x is not None and value in used
        }

    def _divide(self, graph: Program, nearly: bool) -> None:
        """Into parts, whose the nodes are then, and which let go of what they become kernels of."""
        roots = {y: root(y) for node in graph.nodes for y in node.outputs if node.op.view}
        self.parts = self._cut(graph, nearly)
        graph.nodes.clear()
        inputs = [*range(self.captured.arguments), *self.captured.states]
        of = {**dict(zip(graph.inputs, inputs, strict=True)), **self.after}
        behind = self.parts[-1].inputs if self.tangents else ()
        behind = list(dict.fromkeys(roots.get(x, x) for x in behind))
        self.kept = [of[x] for x in behind if of.get(x) is not None]  # read for gradients, too

    def _another(self) -> Compiled:
        """The same in other memory."""
        other = copy.copy(self)
        other.parts = [copy.copy(part) for part in self.parts]
        other._bind()
        self.others.append(other)
        return other

    def _lower(self, part: Part) -> None:
        """Make a part's ops kernels and calls of libraries."""
        to_native_code(part)

    def _keep_less(self, graph: Program, first: int) -> None:
        """For gradients that come in later, which are computed by nodes from this number on."""
        updates = [y for node in self.captured.updates for y in node.outputs]
        keep_less(graph, first, [*graph.inputs, *updates])

    def _cut(self, graph: Program, nearly: bool) -> list[Part]:
        """The parts between the steps of optimizers, each of which changes states where they are.

        Errors: Unsupported where what was there before such a step is read after it.
        """
        cotangents = self.captured.backward.step
        if cotangents is not None and self.tangents:
            self._keep_less(graph, graph.nodes.index(cotangents) + 1)
        groups: list[list[Node]] = [[]]
        self.after: dict[Value, Any] = {}  # of what optimizers have computed, the tensor
        changed: dict[Value, int] = {}  # by the part behind which their memory is written
        first = dict(zip(map(id, self.captured.states), self.states, strict=True))
        held = dict(first)  # at the moment
        for node in graph.nodes:
            if isinstance(node.op, Cotangents):
                groups.append([])
            elif isinstance(node.op, Update):
                for tensor, y in zip(node.op.written(), node.outputs, strict=True):
                    self.after[y] = tensor
                    for value in (first[id(tensor)], held[id(tensor)]):
                        changed.setdefault(value, len(groups) - 1)
                    held[id(tensor)] = y
                groups.append([])
            else:
                groups[-1].append(node)
        updates = [[*node.values] for node in self.captured.updates]
        ends = {*self.results, *self.gradients, *self.written, *self.checked, *self.tangents}
        parts = []
        for k, nodes in enumerate(groups):
            own = {y for node in nodes for y in node.outputs}
            read = dict.fromkeys(x for node in nodes for x in node.values if x not in own)
            if any(changed.get(x, k) < k for x in read):
                raise Unsupported(
                    "compile: a parameter's value from before an optimizer's step is used after it"
                )
            later = {x for group in groups[k + 1 :] for node in group for x in node.values}
            later.update(x for values in updates[k:] for x in values)
            wanted = [y for node in nodes for y in node.outputs if y in later or y in ends]
            inputs = [x for x in read if x.array is None]
            parts.append(Part(inputs, nodes, wanted, nearly, self._lower))
        return parts

    # ---- who runs it -----------------------------------------------------------------------------

    def __enter__(self) -> None:
        """Run it alone, and no other program on the same memory. Where another thread runs one,
        this one gets memory of its own: threads that call a function for several sizes go on side
        by side.

        Errors: Unsupported in the middle of such a program.
        """
        if self.reserve.in_use():
            raise Unsupported(
                "compile: the function is called while it runs, by a finalizer or by an operation "
                "that Python computes; call what it was made of there (its .function)"
            )
        self.lock.acquire()
        try:
            if not self.reserve.lock.acquire(blocking=False):
                self.reserve, self.shares, self.course = Reserve(), False, None
                self.reserve.lock.acquire()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        self.reserve.lock.release()
        self.lock.release()

    # ---- what it does ----------------------------------------------------------------------------

    def listed(self) -> list[list[tuple[tuple[Step, ...], bool, int]]]:
        """What each call of each part computes, whether it is machine code, and its region."""
        return [part.listed() for part in self.parts]

    def sizes(self) -> tuple[int, int]:
        """The bytes of what lies between kernels at its peak, and without reuse."""
        schedules = [part.schedule for part in self.parts]
        buffers = [buffer for each in schedules for buffer in each.buffers]
        return sum(each.layout.size for each in schedules), sum(aligned(b.size) for b in buffers)

    # ---- memory ----------------------------------------------------------------------------------

    def _state(self, n: int) -> Any:
        """The tensor that is a state now."""
        owner = self.captured.owners[n]
        return self.captured.states[n] if owner is None else owner._leaf.grad

    def _ordered(self) -> list[tuple[int, bool]]:
        """The arguments whose memory is to be in order in each call, now that states' is."""
        first = self.captured.arguments
        for n, begins in self.captured.ordered:
            if n >= first and (x := self._state(n - first)) is not None:
                assert_ordered(x._data, begins)
        return [each for each in self.captured.ordered if each[0] < first]

    def _bind(self) -> None:
        """Connect all kernels to the memory of now, which that of gradients is not a part of."""
        try:
            self._connect()
        except BaseException:
            self.bound = [_ELSEWHERE]  # so that the next run tries again
            raise

    def _let_go(self) -> None:
        """Of all memory of its own, before there is other."""
        self.course = None
        self.copies: list[tuple[int, Any]] = []
        self.steps: list[Any] = []  # of optimizers
        self.flowing: list[Fresh] = []
        self.returned: list[Any] = []
        for part in self.parts:
            part.let_go()

    def _connect(self) -> None:
        captured = self.captured
        self._let_go()
        threads = default_pool().num_threads
        self.bound = []
        known: dict[Value, Any] = {x: x.array for x in self.states if x.array is not None}
        owned: dict[Value, int] = {}  # gradients that are read where they are in each call
        taken = [*self.arguments, *self.seeds]
        for n, value in enumerate(self.states):
            if value.array is None and (captured.owners[n] is None or n in self.owned):
                x = self._state(n)
                if captured.owners[n] is not None and x._node is None:
                    owned[value] = n
                    continue
                known[value] = x._data
                self.bound.append((x, x._data, x._node))
        self.owning = [captured.owners[n] for n in owned.values()]
        self.ahead = parents_of(tuple(x for x, _, node in self.bound if node is not None))
        known.update((y, x._data) for y, x in self.after.items())
        known.update(unbound([*owned, *taken]))
        self.landing = self.reserve.landing(captured.leaves)
        homes = self.landing.homes
        places = {
            x: np.empty(x.shape, x.spec.dtype.numpy)
            for x in set(self.parts[-1].wanted).intersection(self.tangents)
            if x not in self.gradients and not is_small(x)
        }
        for value, home in zip(self.gradients, homes, strict=True):
            places.setdefault(value, home)
        for k, part in enumerate(self.parts):
            memory = zeros if self.tangents else partial(self.reserve.arena, k)
            part.bind(known, places, memory, self.reserve.scratch)
            if k < len(captured.updates):
                node = captured.updates[k]
                for earlier in self.parts[: k + 1]:
                    earlier.lay_out(known, node.values)
                arrays = [_array(known, x) for x in node.values]
                self.steps.append(_Optimizer(cast(Update, node.op), arrays))
        shown = set().union(*(part.shown for part in self.parts))
        calls = [call for part in self.parts for call in part.native_calls()]
        ends = {*self.results, *self.gradients, *self.written, *self.tangents}
        ends.update(x for node in captured.updates for x in node.values)
        inputs = [
            Argument(known[x], () if x in shown or x in ends or is_small(x) else calls)
            for x in taken
        ]
        self.inputs, self.cotangents = inputs[: len(self.arguments)], inputs[len(self.arguments) :]
        movable = {x for x, place in places.items() if known.get(x) is place}.difference(
            shown, self.gradients
        )
        movable -= {x for x in movable if self.tangents.count(x) != 1}
        self.flowing = [
            Fresh(_array(known, x), calls if x in movable else ()) for x in self.tangents
        ]
        skips = {node.values[-1] for node in captured.updates if cast(Update, node.op).skips}
        followed = [*calls, *self.steps]
        apart = self._apart(known, shown, skips)
        self.targets = [
            Argument(known[x], () if is_small(x) or x not in apart else followed) for x in owned
        ]
        self.copies, self.movers = [], []
        for k, (value, home) in enumerate(zip(self.gradients, homes, strict=True)):
            if known.get(value) is home and value in apart:
                self.movers.append((k, Mover(home, followed)))
            else:
                self.copies.append((k, _array(known, value)))
        written = [
            (n, _array(known, y))
            for n, y in zip(captured.written, self.written, strict=True)
            if y not in self.after
        ]
        numbers = set(owned.values())
        self.added = [(captured.owners[n], array) for n, array in written if n in numbers]
        self.writes = [
            (self._state(n), array) for n, array in written if n >= 0 and n not in numbers
        ]
        self.given_writes = [(~n, array) for n, array in written if n < 0]
        held, changed = [array for _, array, _ in self.bound], self._changed()
        assert_apart(held, changed)
        self.memory = Memory(held, changed, [n for n, _ in self.given_writes], self._ordered())
        self.returned = [_array(known, y) for y in self.results]
        made = [set(part.wanted) for part in self.parts]
        self.errors: list[list[Any]] = [[] for _ in self.parts]  # checks behind each part
        for y, error in self.checked.items():
            k = next((k for k, own in enumerate(made) if y in own), 0)
            self.errors[k].append((_array(known, y), error))
        fails = [
            part.may_fail() or bool(errors)
            for part, errors in zip(self.parts, self.errors, strict=True)
        ]
        grads = set(map(id, homes))
        # Whether errors come when gradients have been written: those that there are stay till then,
        # but where arguments say that there will be none.
        refused = [part.refused_behind(grads) for part in self.parts]
        known_ones = None if self.checked or any(fails[1:]) else self._indices(refused)
        self.late = known_ones is None or bool(known_ones)
        self.indices = list((known_ones or {}).items())
        moved, read = {k for k, _ in self.movers}, set(map(id, self.owned.values()))
        self.stay_if_sound = [id(x) in read for x in captured.leaves]
        self.stay = [
            stays or (self.late and k in moved) for k, stays in enumerate(self.stay_if_sound)
        ]
        parts = self.parts[:-1] if self.tangents else self.parts  # the last one: see `_back`
        steps = [*self.steps, None]
        rounds = []
        for k, part in enumerate(parts):
            step, undone = steps[k], any(fails[k + 1 :])
            only = step is not None and step is self.steps[-1] and not step.before
            rounds.append(Round(part, self.errors[k], step, undone, undone or not only))
        for part in self.parts:
            part.space.arrays.clear()  # what runs knows addresses, or has its own
        self.course = Course(self, rounds, threads)

    def _indices(
        self, refused: Sequence[dict[tuple[Value, int], None] | None]
    ) -> dict[int, int] | None:
        """The arguments of which all indices are that parts may refuse, and what these must be
        below; None where there are others, or other reasons for errors.
        """
        found: dict[int, int] = {}
        for part, indices in zip(self.parts, refused, strict=True):
            if indices is None:
                return None
            names = dict(zip(part.graph.inputs, part.inputs, strict=True))
            for index, below in indices:
                home = part.schedule.roots.get(index, index)
                if (array := home.array) is not None and (
                    array.size == 0 or 0 <= array.min() <= array.max() < below
                ):
                    continue
                value = names.get(home)
                if value is None or value not in self.arguments:
                    return None
                n = self.arguments.index(value)
                found[n] = min(below, found.get(n, below))
        return found

    def _apart(self, known: dict[Value, Any], shown: set[Value], skips: set[Value]) -> set[Value]:
        """Values whose memory may move: what uses it knows its address, and no other value that is
        used as an array shows it.
        """
        fixed = [*self.results, *self.written, *self.tangents, *self.checked, *skips]
        fixed += [x for x, count in collections.Counter(self.gradients).items() if count > 1]
        arrays = [known[x] for x in fixed if x in known]
        arrays += [array for part in self.parts for pair in part.copies for array in pair]
        owners = {id(owner(array)) for array in arrays}
        moved: dict[int, set[Value]] = {}
        for x in (*self.gradients, *(x for node in self.captured.updates for x in node.values)):
            if x in known:
                moved.setdefault(id(owner(known[x])), set()).add(x)
        return {
            x
            for x, array in known.items()
            if x not in shown and (own := id(owner(array))) not in owners
            and moved.get(own, {x}) == {x}
        }  # fmt: skip

    def _changed(self) -> list[Any]:
        """The arrays of states that are written where they are."""
        return [x._data for x in (*self.after.values(), *(x for x, _ in self.writes))]

    def assert_gradients_apart(self, arguments: Sequence[Any]) -> None:
        """Refuse gradients that are read where they are, and share memory with what is written, or
        are written and share memory.

        Errors: Unsupported.
        """
        arrays = [x._leaf.grad._data for x in self.owning]
        added = [x._leaf.grad._data for x, _ in self.added]
        held = [array for _, array, _ in self.bound]
        assert_apart([*held, *arrays], [*self._changed(), *added])
        Memory(arrays, added, self.memory.arguments).check(arguments)

    def restoring_gradients(self) -> Callable[[], None]:
        """What gives gradients whose memory has been taken their values back: the first step of an
        optimizer may fail when they have been written.
        """
        taken = [
            (g._data, g._data.copy())
            for x, g in zip(self.captured.leaves, self.landing.tensors, strict=True)
            if self.steps and x._leaf.grad is not None and x._leaf.grad._data is g._data
        ]

        def restore() -> None:
            for array, before in taken:
                array[...] = before

        return restore

    @property
    def bytes(self) -> int:
        """About how large the memory is that it has alone: Python's of what it runs, and what lies
        between kernels where calls wait for their gradients.
        """
        calls = sum(len(part.schedule.steps) for part in self.parts)
        layouts = sum(part.schedule.layout.size for part in self.parts)
        return (calls * _BYTES_OF_CALL + (0 if self.shares else layouts)) * len(self.others)

    def difference(self) -> str:
        """What is not as it was when it was captured, in words; '' where it fits."""
        captured = self.captured
        general = self.owned or captured.alike or captured.looked
        if not general and stands(
            self.wanting, self.bound, captured.presence, self.steps, self.guards
        ):
            return ""
        x = want_gradients(self.wanting)
        if x is not None:
            shape = tuple(x._data.shape)
            wanted = next(wanted for y, wanted, _ in self.wanting if y is x)
            if wanted is (x._node is not None):
                return f"hooks of a tensor of shape {shape} were added or removed"
            return f"requires_grad of a tensor of shape {shape} was {wanted}"
        for x, array, _ in self.bound:
            now = x._data
            if now is array:
                continue
            if (now.shape, now.dtype) != (array.shape, array.dtype):
                was = f"a state was {tuple(array.shape)} {array.dtype}"
                return f"{was} and is {tuple(now.shape)} {now.dtype}"
            if device_of(now) != device_of(array):
                return f"a tensor was on {device_of(array)} and is on {device_of(now)}"
        for x, present in captured.presence:
            if (x._leaf.grad is None) is present:
                had, has = ("a", "none") if present else ("no", "one")
                return f"a tensor of shape {tuple(x._data.shape)} had {had} gradient and has {has}"
        seen = set()
        for x in self.owned.values():
            g = x._leaf.grad
            if g is None or type(g._data) is not self.arrays or g._view is not None:
                return f"a tensor of shape {tuple(x._data.shape)} had a gradient and has none"
            if (g._data.shape, g._data.dtype) != (x._data.shape, x._data.dtype):
                return f"a gradient is {tuple(g._data.shape)} {g._data.dtype}"
            seen.add(id(g))
        if len(seen) < len(self.owned):
            return "two tensors have one gradient"
        for x, other in captured.alike:
            if x._data is not other._data and not are_alike(x._data, other._data):
                return f"two tensors of shape {tuple(x._data.shape)} showed the same memory"
        for x in self.varying():
            return f"values of a tensor of shape {tuple(x._data.shape)} that selects were changed"
        if not all(step.fits() for step in self.steps) and not self._follow():
            return "the state of an optimizer was replaced"
        return "" if self.guards.hold() else self.guards.difference()

    def _follow(self) -> bool:
        """Go on with other states of optimizers, where they are like those before."""
        with CAPTURING:
            if not follow(self):
                return False
            self._rebind()
            return all(step.fits() for step in self.steps)

    def _rebind(self) -> None:
        """Let the next run find other states."""
        self.bound[:] = [_ELSEWHERE]

    def varying(self) -> list[Any]:
        """Tensors whose values Python has read, and that hold others now."""
        return [
            x for x, array in self.captured.looked
            if type(x._data) is not np.ndarray or not np.array_equal(x._data, array)
        ]  # fmt: skip

    def run(self, arguments: list[Any], observer: Any = None, numbers: Sequence[Any] = ()) -> Any:
        """The results, some of which are `numbers`, and calls that are to be made: everything else
        is written.
        """
        with self:
            found, given = self._begin(arguments, observer, numbers)
        if not given:
            return found, given
        calls = zip(self.captured.calls, given, strict=True)
        return found, [partial(call, *args, **kwargs) for call, (args, kwargs) in calls]

    def _begin(self, arguments: list[Any], observer: Any, numbers: Sequence[Any]) -> Any:
        """A run, in memory that no call waits for."""
        if not self.tangents:
            return self._run(arguments, observer, None, numbers)
        free = next((each for each in self.others if each.lease() is None), None)
        program = free or self._another()
        lease = Lease()
        program.lease = weakref.ref(lease)
        return program._run(arguments, observer, lease, numbers)

    def _back(self, given: Sequence[Any]) -> list[Any]:
        """The gradients of what was taken, from those of the results; None where there are none."""
        arrived = {n for n, g in enumerate(given) if g is not None}
        with self:
            for target, g in zip(self.cotangents, given, strict=True):
                if g is None:
                    target.take(np.zeros(target.array.shape, target.array.dtype))
                else:
                    target.take(concrete(g))
            for stream, now in zip(self.captured.streams, self.drawing, strict=True):
                stream.now = now
            for flow in self.flowing:
                flow.begin()
            observer = MODE.get().observer
            self.parts[-1].run(observer)
            found = [
                flow.taken() if leading & arrived else None
                for flow, leading in zip(self.flowing, self.captured.backward.leading, strict=True)
            ]
            if observer is not None:
                observer.made(found)
            return [None if y is None else wrap(y) for y in found]

    def _history(self, arguments: list[Any], lease: Lease | None, results: list[Any]) -> Any:
        """The nodes of results, by number; none where gradients are not asked for."""
        if lease is None:
            return {}
        self.drawing = [stream.now for stream in self.captured.streams]
        numbers, sources = self.captured.backward[1:3]
        own = [arguments[x] if type(x) is int else x for x in sources]
        read = [arguments[k] if type(k) is int else k for k in self.kept]
        op = self._call(lease, len(numbers))
        nodes = history(op, lease, parents_of(tuple(own)), read, [results[n] for n in numbers])
        return dict(zip(numbers, nodes, strict=True))

    def _call(self, lease: Lease, count: int) -> CompiledCall:
        """What computes gradients for the node of a call with so many results that have some."""
        return CompiledCall(self._back, count)

    def entry(self, mode: Any, key: Sequence[Any], leaves: bool) -> Entry | None:
        """A short way to this program for calls that are like this one; None where more is to be
        done than its course.
        """
        more = self.tangents or self.captured.calls or self.course is None
        return None if more else Entry(self, mode, key, leaves)

    def _is_over(self) -> bool:
        """Whether memory is other than it was, or products were cut for other threads."""
        return self.course is None or self.course.is_over()

    def _run(
        self, arguments: list[Any], observer: Any, lease: Lease | None, numbers: Sequence[Any]
    ) -> Any:
        if self._is_over():
            with CAPTURING:  # perhaps it was another thread's symbols
                if self._is_over():
                    self._bind()
        return cast(Course, self.course).run(arguments, observer, lease, numbers)


def _index_of(steps: Sequence[Step]) -> tuple[Value, tuple[Any, Sequence[int]]] | None:
    """The index that a call may refuse, and what it must be within: axes and their sizes; None
    where errors may have other reasons.
    """
    if len(steps) != 1:
        return None
    op = steps[0].op
    if isinstance(op, (Index, IndexSum)):
        x, index = steps[0].values
        return index, op.bounds(x.spec)
    if isinstance(op, (Pick, PlaceAt)):
        x, index = steps[0].values
        size = op.classes if isinstance(op, PlaceAt) else x.shape[op.axis]
        return index, (op.axis, (size,))
    return None


def _check(guard: Any, spec: Any, array: Any, nodes: Sequence[tuple[Any, int]]) -> None:
    """Raise what an op raises for values that it refuses, of what nodes make of an array."""
    for node, index in nodes:
        found = node.op.compute(np, array, *node.inputs[1:])
        array = found[index] if isinstance(found, tuple) else found
    guard(spec, array)


def _array(known: dict[Value, Any], x: Value) -> Any:
    return x.array if x.array is not None else known[x]


def is_small(x: Value) -> bool:
    """Whether an argument is rather copied than read where it is."""
    return x.nbytes < _COPIED


def _optimize(part: Part, nearly: bool) -> None:
    """The passes that are about no device; with `nearly` also those that change rounding."""
    graph = part.graph
    fold_constants(graph, Folds())
    drop_identities(graph)
    drop_expansions(graph)
    exact_algebra(graph)
    if nearly:
        reassociate(graph)
    merge_equal(graph)
    inline_numbers(graph)
    drop_dead(graph)


def to_native_code(part: Part) -> None:
    """The passes that lead to kernels and libraries of the host."""
    graph = part.graph
    if give_final_states(graph):
        drop_dead(graph)
    if block_layouts(graph):
        drop_identities(graph)
        drop_dead(graph)
    opened = open_activations(graph) + open_variances(graph)
    if opened + open_outer_products(graph) + open_narrow_gradients(graph):
        merge_equal(graph)
        drop_dead(graph)  # a variance of which only the mean is read
    shown = set(graph.inputs)
    for node in graph.nodes:
        if node.op.view and node.inputs[0] in shown:
            shown.update(node.outputs)
    rectify_products(graph)
    accumulate_products(graph)
    fuse_kernels(graph, shown, part.cuts, again=True)
    drop_dead(graph)
    batch_products(graph)
    gather_rows(graph)


class Stepping:
    """An optimizer's step in a program: what it depends on, and how it is undone."""

    def __init__(self, op: Update) -> None:
        self.op = op
        self.optimizer = op.optimizer
        self.groups = op.groups
        self.options = op.options
        self.held: list[Held] = []  # states, and options
        self.know_states()
        self.held.append(self._options())

    def know_states(self) -> None:
        """Know what states there are."""
        op = self.op
        self.written = op.written()
        self.kept: list[tuple[Any, Any, Any]] = []  # dicts, keys, and what they hold
        self.sizes: dict[int, int] = {}  # of states, by their ids
        for (_, parameters), (_, _, *kinds) in zip(op.groups, op.columns, strict=True):
            for i, p in enumerate(parameters):
                state = self.optimizer.state.get(p)
                self.kept.append((self.optimizer.state, p, state))
                self.sizes[id(state)] = len(state or ())
                names = [name for name in state or () if name not in self.optimizer.scalars]
                for name, kind in zip(names, kinds, strict=True):
                    self.kept.append((state, name, kind[i]))
        self.held[:1] = [self._states()]

    def _states(self) -> Held:
        """The states that it reads: whether they are the same is found by one look."""
        optimizer = self.optimizer
        named = [(optimizer.__dict__, "state", optimizer.state)]
        listed = [_listed(optimizer.state)]
        for held, key, value in self.kept:
            if type(held) is dict:
                named.append((held, key, value))
            elif held is not optimizer.state:
                listed.append(_listed(held))
        return Held(named, listed)

    def _options(self) -> Held:
        """The same for all options, which often change in each call."""
        self.asked = [_listed(group) for group, _ in self.groups]
        return Held([], self.asked)

    def fits(self) -> bool:
        """Whether the optimizer's state is what it was."""
        held, options = self.held
        if not held.hold():
            if self.kept and self.kept[0][0] is not self.optimizer.state:
                return False
            if not hold_items(self.kept):
                return False
            self.held[0] = self._states()
        if options.hold():
            return True
        for g, (group, parameters) in enumerate(self.groups):
            if _listed(group) != self.asked[g]:  # which may want other states
                states = [self.optimizer.state[p] for p in parameters if p in self.optimizer.state]
                self.optimizer.complete(group, states)
                if any(len(state) != self.sizes[id(state)] for state in states):
                    return False
        self.held[1] = self._options()
        return True

    def restoring(self, written: bool = True) -> Callable[[], None]:
        """What undoes the next step; its counts alone, where nothing is `written` if it fails."""
        optimizer = self.optimizer
        states = [optimizer.state.get(p) or {} for _, ps in self.groups for p in ps]
        scalars = [(state, name) for state in states for name in optimizer.scalars if name in state]
        plain = [(state, name, state[name]) for state, name in scalars]
        tensors = [x for _, _, x in plain if isinstance(x, TensorBase)]
        tensors += self.written if written else ()
        kept = [x._data.copy() for x in tensors]

        def restore() -> None:
            for state, name, value in plain:
                state[name] = value
            watched = announce(tensors, "step")
            for x, array in zip(tensors, kept, strict=True):
                x._data[...] = array
            for version in watched:
                version.bump("step")

        return restore

    def with_options(self, numbers: Sequence[Any], run: Callable[[], Any]) -> Any:
        """What `run` gives while some options are `numbers`."""
        kept = [(group, name, group[name]) for group, name, _ in self.options]
        for group, name, x in self.options:
            group[name] = numbers[x.place] if type(x) is Result else x
        try:
            return run()
        finally:
            for group, name, value in kept:
                group[name] = value


def _listed(x: dict[Any, Any]) -> tuple[Any, list[Any], list[Any]]:
    """A dict, its keys and its values, as `Held` takes them."""
    return x, list(x), list(x.values())


class _Optimizer(Stepping):
    """An optimizer's step on memory that stays where it is."""

    native = True

    def __init__(self, op: Update, arrays: Sequence[Any]) -> None:
        super().__init__(op)
        self.skip = arrays[-1] if op.skips else None
        places = {id(x): x._data for x in self.written}
        read = arrays[:-1] if op.skips else arrays
        own = [places.get(id(x), array) for x, array in zip(op.given(), read, strict=True)]
        # What the function has written to parameters before, which are changed where they are.
        pairs = zip(own, read, strict=True)
        self.before = [(place, array) for place, array in pairs if place is not array]
        given = iter(own)
        self.arrays = [[[next(given) for _ in column] for column in cs] for cs in op.columns]
        self.place = {id(p): i for _, ps in op.groups for i, p in enumerate(ps)}
        self.counted: Counted | None = None  # where all groups are counted in the short way
        self.laid: dict[Any, Any] = {}  # by group and parameters: names, rows, columns, dtypes
        self.followed: dict[int, _Followed] = {}  # arrays in whose place others are used, by id
        self.made: dict[Any, Launch] = {}

    def _layout(self, g: int, parameters: Any) -> tuple[Any, ...]:
        """For some parameters of a group: names of states, rows of its arrays, these, dtypes."""
        key = g, None if parameters is self.groups[g][1] else tuple(map(id, parameters))
        found = self.laid.get(key)
        if found is None:
            state = self.optimizer.state.get(parameters[0]) or ()
            names = tuple(name for name in state if name not in self.optimizer.scalars)
            rows = tuple(self.place[id(p)] for p in parameters)
            columns = [[column[i] for i in rows] for column in self.arrays[g]]
            found = names, rows, columns, tuple(column[0].dtype for column in columns)
            self.laid[key] = found
        return found

    def moving(self, array: Any) -> Callable[[int], None]:
        """What lets all kernels use what begins at an address instead of an array's memory."""
        return self.followed.setdefault(id(array), _Followed(array))

    def run(self, numbers: Sequence[Any]) -> None:
        """Count the step, and change everything; some options are `numbers` meanwhile."""
        if self.before:
            watched = announce(self.written, "step")
            for place, array in self.before:
                place[...] = array
            for version in watched:
                version.bump("step")
        if self.skip is not None and self.skip.item():
            return
        if self.options:
            self.with_options(numbers, self._run)
        else:
            self._run()

    def _run(self) -> None:
        if self.counted is None or not self.counted.run():
            launch_all(self._launches(), self.written)

    def _launches(self) -> list[Launch]:
        """The kernels, with the numbers of a step that is counted."""
        optimizer = self.optimizer
        parts: dict[Any, list[Any]] = {}
        for g, (group, parameters) in enumerate(self.groups):
            batches = optimizer._batches(group, parameters)
            for batch in batches:
                names, rows, columns, dtypes = self._layout(g, batch.parameters)
                found = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
                if isinstance(found, str):
                    raise Unsupported(f"compile: {found}")
                alone = len(batches) == 1 and _counts_alone(optimizer, batch)
                counter = Counter(batch, found[0]) if alone else None
                part = (g, rows), columns, (len(rows), found[1]), counter
                parts.setdefault(found[0], []).append(part)
        launches = []
        counters = []
        for formula, each in parts.items():
            places, columns, numbers, own = zip(*each, strict=True)
            launch = self._launch(formula, places, columns)
            launch.numbers = list(numbers)
            launches.append(launch)
            counters.append(own)
        known = all(None not in own for own in counters)
        self.counted = Counted(optimizer, self.written, launches, counters) if known else None
        return launches

    def _launch(self, formula: Any, places: Any, columns: Any) -> Launch:
        """The formula's kernel for some rows of groups, `places`."""
        made = self.made.get((formula, places))
        if made is None:
            joined = [[x for part in columns for x in part[k]] for k in range(len(columns[0]))]
            try:
                bound = formula.run.bound(joined)
            except NotTraceable as error:
                name = type(self.optimizer).__name__
                raise Unsupported(
                    f"compile: {name}.step on {error}; make parameters contiguous, or step "
                    "outside of the function"
                ) from error
            made = self.made[formula, places] = Launch(Calls([bound.call]), bound.fill)
            for x in (x for column in joined for x in column if id(x) in self.followed):
                self.followed[id(x)].add(bound.moving(x))
        return made


class _Followed:
    """Memory that kernels use in an array's place."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.at = address(array)
        self.moves: list[Callable[[int], None]] = []

    def add(self, move: Callable[[int], None]) -> None:
        """Another kernel has been bound to the array."""
        self.moves.append(move)
        move(self.at)

    def __call__(self, at: int) -> None:
        self.at = at
        for move in self.moves:
            move(at)


def _counts_alone(optimizer: Any, batch: Any) -> bool:
    """Whether all that a batch's state says of its numbers is its step's, in the host's memory."""
    if optimizer.scalars != ("step",) or "step" not in batch.states[0]:
        return False
    return all(
        isinstance(x := state["step"], TensorBase)
        and type(x._data) is np.ndarray
        and x._data.flags.writeable
        and x._node is None
        for state in batch.states
    )
