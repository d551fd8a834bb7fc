"""Several ops as few kernels: their computation is traced as a whole, then split at reductions.

A kernel reduces over one set of axes. So reductions over different axes are different kernels, and
what passes from one kernel to the next is only what reductions have made small: a row's mean and
deviation, say. What is as large as the inputs is computed again where it is needed, in registers,
from those and the inputs; that costs arithmetic, where memory would cost more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...compiler import Compiled, Kernel, Value, split
from ...compiler.ir import REDUCTIONS
from ...core import compute as core_compute
from ...core.compute import quietly
from ...core.errors import AdjointError
from ...core.op import Op
from ...core.spec import Spec, broadcast_shapes, prod
from . import block_cache
from .execution import PARALLEL
from .launch import Launcher, launcher
from .pool import default_pool
from .tracing import Names, NotTraceable, Traced, Tracer, _Reducer, _wide, elementwise, name_of

__all__ = ["Composite", "NotTraceable", "Ref", "Step", "launches"]

ndarray = np.ndarray
_REMEMBERED = 256  # combinations of strides that a composite keeps launchers for
launches: list[int] = [0]  # kernels that composites have run, for the tests that count them


class Ref(NamedTuple):
    """A value of the computation: an input, or the output of a step (which of them, if several)."""

    number: int  # inputs first, then steps
    item: int | None = None


Dims: TypeAlias = "tuple[int, ...]"  # for each dimension of a value, an axis of the index space


class Step(NamedTuple):
    """One op, on values and Python numbers."""

    op: Op
    args: tuple[Any, ...]


_Taker: TypeAlias = "Callable[[Sequence[Any]], Any]"  # from all arrays that there are so far


class _Picked(NamedTuple):
    """A further input: what `op` picks from the input `source` by the input `by`."""

    op: Any
    source: int
    by: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that it needs."""
        return (self.source, self.by)

    def shape(self, inputs: Sequence[Spec]) -> tuple[int, ...]:
        """Its sizes."""
        found: Spec = self.op.infer(inputs[self.source], inputs[self.by])
        return found.shape

    def taker(self) -> _Taker:
        """What gives it in a call."""
        op, source, by = self

        def take(arrays: Sequence[Any]) -> Any:
            x, index = arrays[source], arrays[by]
            launch = core_compute.launchers.get((id(op), x.shape, index.shape))
            found = None if launch is None else launch(x, index)
            return core_compute.compute(op, [x, index]) if found is None else found

        return take

    def alone(self, given: Sequence[Any]) -> Launcher:
        """What gives it for its own sources, when these are like the `given` ones."""
        x, index = given[self.source], given[self.by]
        launch = core_compute.launchers.get((id(self.op), x.shape, index.shape))
        return launch or (lambda x, index: core_compute.compute(self.op, [x, index]))


class _Part(NamedTuple):
    """A further input: a view of the input `source`."""

    source: int
    before: int  # dimensions before the one that is indexed
    item: Any  # a position there, or the steps of a slice

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that it needs."""
        return (self.source,)

    def _key(self) -> Any:
        """The index that NumPy takes."""
        item = slice(*self.item) if type(self.item) is tuple else self.item
        return (*[slice(None)] * self.before, item, Ellipsis)

    def shape(self, inputs: Sequence[Spec]) -> tuple[int, ...]:
        """Its sizes."""
        shape: tuple[int, ...] = np.broadcast_to(0, inputs[self.source].shape)[self._key()].shape
        return shape

    def taker(self) -> _Taker:
        """What gives it in a call."""
        source, key = self.source, self._key()
        return lambda arrays: arrays[source][key]

    def alone(self, given: Sequence[Any]) -> Launcher:
        """What gives it for its own source."""
        return itemgetter(self._key())


class _Shaped(NamedTuple):
    """A further input: the input `source` in another shape."""

    source: int
    sizes: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that it needs."""
        return (self.source,)

    def shape(self, inputs: Sequence[Spec]) -> tuple[int, ...]:
        """Its sizes."""
        return self.sizes

    def taker(self) -> _Taker:
        """What gives it in a call."""
        source, sizes = self
        return lambda arrays: arrays[source].reshape(sizes)

    def alone(self, given: Sequence[Any]) -> Launcher:
        """What gives it for its own source."""
        return methodcaller("reshape", self.sizes)


# Launchers, each with the places of its arguments, and the places of the outputs: the inputs come
# first, then what each launcher gives.
_Launching: TypeAlias = "tuple[list[tuple[Launcher, Dims]], Dims]"


class _Wanted(NamedTuple):
    """An output of a computation: its value, the axes along which it has more than one element."""

    value: Value
    axes: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]


class Composite:
    """A computation on arrays of given shapes and dtypes, as kernels that run one after another.

    Errors: NotTraceable for what cannot be written as kernels.
    """

    def __init__(
        self,
        inputs: Sequence[Spec],
        steps: Sequence[Step],
        outputs: Sequence[tuple[Ref, Spec]],
        like: Sequence[Dims | None] = (),
        *,
        space: tuple[int, ...] | None = None,
        reshaped: bool = False,
    ) -> None:
        """`like`: the dims that the last inputs have in the index space that the others span, where
        they are not those of broadcasting. `space`: that space, where it is another's.

        With `reshaped`, inputs that are reshaped at once are further inputs, and reshapes that give
        outputs are not computed; the space is that of the inputs that are left.
        """
        places = [None] * (len(inputs) - len(like)) + list(like)
        graph = _Graph(list(inputs), steps, outputs, [])
        if reshaped:
            graph = _reshaped(graph)
        inputs, steps, outputs, shaped = graph
        every = [*inputs, *(inputs[x.source].with_(shape=x.sizes) for x in shaped)]
        unused = graph.unused() if reshaped else set()
        if space is None:
            known = len(inputs) - len(like)
            spanning = [x for n, x in enumerate(every[:known]) if n not in unused]
            spanning += every[len(inputs) :]
            space = broadcast_shapes(*(spec.shape for spec in spanning))
        if 0 in space:
            raise NotTraceable("nothing to compute")
        self.space = space
        tracer = Tracer(space)
        names = _Names(tracer, every)
        wanted, self.dims = _trace(names, graph, [*places, *[None] * len(shaped)], unused)
        self.gathers = list(names.gathers)
        self.takers = [x.taker() for x in self.gathers]
        picking = {x.op for x in self.gathers if type(x) is _Picked}
        self.guards = [
            (guard, spec, n if n < len(inputs) else shaped[n - len(inputs)].source)
            for guard, spec, n in _guards(every, steps, picking)
        ]
        drafts = _split(wanted, space)
        self.stages = [_Stage(draft, tracer, space) for draft in drafts]
        used = sorted({n for d in drafts for kind, n in d.loads if kind == "input"})
        sources = {n for x in self.gathers for n in x.sources}
        self.reads = tuple(sorted(n for n in {*used, *sources} if n < len(inputs)))
        place = {("input", n): n for n in used}  # where a kernel's argument is among the arrays
        count = len(inputs) + len(self.gathers)
        for draft, stage in zip(drafts, self.stages, strict=True):
            stage.arguments = tuple(place[load] for load in draft.loads)
            for value in draft.outputs:
                place["value", value.number] = count
                count += 1
            for j, _ in draft.results:
                place["output", j] = count
                count += 1
        self.outputs = [(place["output", j], w.shape) for j, w in enumerate(wanted)]
        self.squeezed = [
            (n, tuple(size for size in spec.shape if size != 1))
            for n, spec in enumerate(inputs)
            if n in used and 1 in spec.shape
        ]
        self.read = frozenset(self.reads)
        self.small = all(
            spec.dtype.itemsize * prod(spec.shape) < block_cache.SMALLEST // 2
            for _, spec in outputs
        )
        self.launchers: list[tuple[Launcher, Dims]] = []  # each with the places of its arguments
        self.results: Dims = ()  # the places of the outputs
        self.direct: Launcher | None = None  # the only one, where it takes all inputs as they are
        # (*inputs) -> the outputs by the launchers, checked: an array from `direct`, else a list;
        # None for inputs that lie otherwise.
        self.launch: Callable[..., Any] | None = None
        self.count = len(inputs)
        self.remembered: dict[Any, _Launching] = {}  # by strides
        self.sizes = [  # of what is further, without dimensions of size 1
            tuple(n for n in x.shape(every) if n != 1) for x in self.gathers
        ]

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs. Of the inputs those of `reads` are needed, the others may be None."""
        found = None if self.direct is None else self.direct(*arrays)
        if found is not None:
            launches[0] += 1
            return [found] if type(found) is ndarray else found  # type: ignore[no-any-return]
        if self.launchers:
            found = self._launch(arrays) if self.small else quietly(self._launch, arrays)
        return quietly(self._first, arrays) if found is None else found  # type: ignore[no-any-return]

    def _launch(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The outputs by the launchers of the last call; None for arrays that lie otherwise."""
        known = list(arrays)
        for launch, places in self.launchers:
            found = launch(*[known[n] for n in places])
            if type(found) is ndarray:
                known.append(found)
            elif found is None:
                return None
            else:
                known.extend(found)
        launches[0] += len(self.stages)
        return [known[n] for n in self.results]

    def _launch_checked(self, *arrays: Any) -> list[Any] | None:
        """The same, of all inputs, which are looked at first."""
        self.check(arrays)
        return self._launch(arrays) if self.small else quietly(self._launch, arrays)

    def _first(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs for arrays that lie as none did lately, and launchers for the next ones."""
        key = tuple([a.strides for n, a in enumerate(arrays) if n in self.read])
        known = self.remembered.get(key)
        if known is not None:
            self._use(*known)
            found = self._launch(arrays) if known[0] else None
            return self._run(list(arrays))[0] if found is None else found
        results, made = self._run(list(arrays))
        if len(self.remembered) >= _REMEMBERED:
            self.remembered.clear()
        known = self.remembered[key] = self._prepared(arrays, made)
        self._use(*known)
        return results

    def _prepared(self, arrays: Sequence[Any], made: list[Any]) -> _Launching:
        """What does for arrays like these what `_run` has done, which had all of `made`."""
        given = list(arrays)  # what launchers get: not squeezed
        for take in self.takers:
            given.append(take(given))
        first = len(arrays)
        views = {n: (n, 0) for n in range(first)}  # of inputs: need not be made
        for n, further in enumerate(self.gathers, first):
            if type(further) is not _Picked and further.source in views:
                source, view = given[further.source], given[n]
                if view.base is source or (view.base is not None and view.base is source.base):
                    root, offset = views[further.source]
                    views[n] = root, offset + view.ctypes.data - source.ctypes.data
        needed = {n for stage in self.stages for n in stage.arguments} - views.keys()
        for n, further in reversed(list(enumerate(self.gathers, first))):
            if n in needed:
                needed.update(further.sources)
        steps: list[tuple[Launcher, Dims]] = []
        place = {n: n for n in range(first)}  # where a launcher finds things
        for n, further in enumerate(self.gathers, first):
            if n in needed:
                place[n] = first + len(steps)
                steps.append((further.alone(given), tuple(place[x] for x in further.sources)))
        count = len(given)
        filled = first + len(steps)
        shapes = dict(self.outputs)
        for stage in self.stages:
            roots = [views.get(n, (n, 0)) for n in stage.arguments]
            sources = sorted({n for n, _ in roots})
            several = len(stage.compiled.kernel.outputs)
            launch = launcher(
                stage.compiled,
                [given[n] if n < len(given) else made[n] for n in sources],
                [shapes.get(n, made[n].shape) for n in range(count, count + several)],
                arrays=[made[n] for n in stage.arguments],
                views=[(sources.index(n), offset) for n, offset in roots],
                scalars=stage.numbers,
                shape=stage.shape,
                parallel=stage.run is not None,
                outs=stage.outs(),
            )
            if launch is None:
                return [], ()
            steps.append((launch, tuple(place[n] for n in sources)))
            for n in range(count, count + several):
                place[n] = filled
                filled += 1
            count += several
        return steps, tuple(place[n] for n, _ in self.outputs)

    def _use(self, steps: list[tuple[Launcher, Dims]], results: Dims) -> None:
        """Let the next call try these first."""
        self.launchers, self.results = steps, results
        self.direct = None
        self.launch = self._launch_checked if steps else None
        if len(steps) == 1 and results == tuple(range(self.count, self.count + len(results))):
            launch, places = steps[0]
            if places == self.reads:
                self.direct = launch if self.small else functools.partial(quietly, launch)
                if not self.guards and len(self.reads) == self.count:
                    self.launch = self.direct

    def check(self, arrays: Sequence[Any]) -> None:
        """Raise what the ops raise for values that they refuse: kernels do not look."""
        for guard, spec, n in self.guards:
            guard(spec, arrays[n])

    def _taken(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs that are taken from others."""
        known = list(arrays)
        for take in self.takers:  # also from each other
            known.append(take(known))
        return [
            y if y.shape == shape else y.reshape(shape)
            for y, shape in zip(known[len(arrays) :], self.sizes, strict=True)
        ]

    def _run(self, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs by general calls, and all arrays, the inputs squeezed."""
        further = self._taken(arrays)
        for n, shape in self.squeezed:
            arrays[n] = arrays[n].reshape(shape)
        arrays += further
        for stage in self.stages:
            found = stage.compiled(
                *[arrays[n] for n in stage.arguments],
                out=stage.outs(),
                scalars=stage.numbers,
                shape=stage.shape,
                run=stage.run,
            )
            if type(found) is ndarray:
                arrays.append(found)
            else:
                arrays.extend(found)
        launches[0] += len(self.stages)
        results = []
        for n, shape in self.outputs:
            y = arrays[n]
            results.append(y if y.shape == shape else y.reshape(shape))
        return results, arrays


# ---- tracing -------------------------------------------------------------------------------------


class _Names(Names):
    """What `op.compute` finds, when several ops are one kernel: also what would not pay for one."""

    moves = True  # what is moved need not be copied

    def __init__(self, tracer: Tracer, inputs: Sequence[Spec]) -> None:
        super().__init__(tracer)
        tracer.names = self
        self.inputs = inputs
        self.places: list[Dims] = []  # the dims of each input
        self.gathers: dict[_Picked | _Part | _Shaped, Value] = {}  # further inputs
        self.placed: dict[int, tuple[int, Traced]] = {}  # what `place_at` made: its axis, from what
        self.add = _Sum(self)
        self.zeros = self._zeros  # type: ignore[method-assign]  # always the same object

    def pick(self, op: Any, x: Any, index: Any) -> Any:
        """The entry of `x` at each index along an axis: what `x` is computed from is gathered, and
        computed with again.
        """
        axis = op.axis
        dim = x.dims[axis]
        given = self.inputs[index.value.attr[0]] if index.value.op == "input" else None
        if given is None or given.shape != index.shape or x.ndim != index.ndim:
            raise NotTraceable("an index that is computed")
        value = self._elsewhere(x, dim, lambda v: self._gathered(op, v, x, index))
        shape = broadcast_shapes(index.shape, tuple(1 if i == axis else n for i, n in
                                                    enumerate(x.shape)))  # fmt: skip
        dims = tuple(
            a if n == 1 else b for n, a, b in zip(index.shape, x.dims, index.dims, strict=True)
        )
        picked = Traced(self.tracer, value, shape, dims, x.dtype)
        return self.where(elementwise("ne", index, op.ignore), picked, 0)

    def _elsewhere(self, x: Any, dim: int, taken: Callable[[Value], Value]) -> Value:
        """The value of `x` at other positions along `dim`: computed again from inputs that are
        taken there.
        """
        copies: dict[int, Value] = {}
        for v in _cone([x.value], lambda v: dim not in v.axes):
            if dim not in v.axes:
                copies[v.number] = v
            elif v.op == "input":
                copies[v.number] = taken(v)
            elif v.op in REDUCTIONS or v.op in ("index", "random"):
                raise NotTraceable("an index into a reduction")
            else:
                copies[v.number] = split.copied(self.tracer.kernel, v, copies)
        return copies[x.value.number]

    def flip(self, x: Any, axis: tuple[int, ...]) -> Any:
        """The elements in reverse order."""
        if not isinstance(x, Traced) or len(axis) != 1:
            raise NotTraceable("flip")
        dim = x.dims[axis[0]]
        value = self._elsewhere(x, dim, lambda v: self._part(v, dim, (None, None, -1)))
        return Traced(self.tracer, value, x.shape, x.dims, x.dtype)

    def part(self, x: Traced, key: Any) -> Traced:
        """`x[key]`, where that is one position along a dimension."""
        axis, item = _position_in(key, x.shape)
        dim = x.dims[axis]
        value = self._elsewhere(x, dim, lambda v: self._part(v, dim, item))
        shape, dims = (
            tuple(n for i, n in enumerate(sizes) if i != axis) for sizes in (x.shape, x.dims)
        )
        return Traced(self.tracer, value, shape, dims, x.dtype)

    def _part(self, v: Value, dim: int, item: Any) -> Value:
        """A further input: a view of the input `v`."""
        source = v.attr[0]
        if source >= len(self.places):
            raise NotTraceable("a view of what is no input")
        dims = self.places[source]
        part = _Part(source, dims.index(dim), item)
        found = self.gathers.get(part)
        if found is None:
            axes = [d for d in v.axes if d != dim or type(item) is tuple]
            found = self.gathers[part] = self.tracer.kernel.input(v.attr[1], axes)
        return found

    def _zeros(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """The number 0; zeros over the whole space, to be written into."""
        if not shape:
            return 0
        space = self.tracer.space
        value = self.tracer.number(0, np.dtype(dtype))
        whole = Traced(self.tracer, value, space, tuple(range(len(space))), np.dtype(dtype))
        return whole.reshape(shape)

    def put(self, x: Traced, key: Any, part: Traced) -> None:
        """`x[key] = part`, where that is one position along a dimension."""
        axis, item = _position_in(key, x.shape)
        here = elementwise("eq", self._position(x, axis), item)
        shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
        dims = [*part.dims[:axis], x.dims[axis], *part.dims[axis:]]
        wide = Traced(self.tracer, part.value, shape, tuple(dims), part.dtype)
        x.value = self.where(here, wide, x).value

    def _gathered(self, op: Any, v: Value, x: Any, index: Any) -> Value:
        """A further input: what `op` picks from the input `v`, which lies as `x` does."""
        source, where = v.attr[0], index.value.attr[0]
        key = _Picked(op, source, where)
        found = self.gathers.get(key)
        if found is None:
            if source >= len(self.inputs) or len(self.inputs[source].shape) != x.ndim:
                raise NotTraceable("an index into a broadcast tensor")
            shape = key.shape(self.inputs)
            axes = [d for d, n in zip(index.dims, shape, strict=True) if n != 1]
            found = self.gathers[key] = self.tracer.kernel.input(v.attr[1], axes)
        return found

    def place_at(self, op: Any, g: Any, index: Any) -> Any:
        """Zeros with `g` at each index along an axis."""
        axis, dim = op.axis, index.dims[op.axis]
        if self.tracer.space[dim] != op.classes:
            raise NotTraceable("classes that are not in the space")
        # Indices are checked, so those that are not ignored are among the classes.
        g = self.where(elementwise("ne", index, op.ignore), g, 0)
        result = self.where(self._chosen(dim, index.ndim, axis, index), g, 0)
        self.placed[result.value.number] = (axis, g)
        return result

    def mask_at(self, op: Any, seed: Any, draw: Any) -> Any:
        """Where a random number of 32 bits is below a bound."""
        tracer = self.tracer
        if op.shape != tracer.space:
            raise NotTraceable("random numbers of another extent")
        tracer.ordered = True
        axes = range(len(tracer.space))
        several = [a for a in axes if tracer.space[a] != 1]
        numbers = tracer.kernel.random(several, seed.value, draw.value)
        found = Traced(tracer, numbers, op.shape, tuple(axes), np.dtype(np.uint32))
        bound = math.ceil(op.keep * 2.0**32)
        return elementwise("lt" if bound < 1 << 32 else "le", found, min(bound, (1 << 32) - 1))

    def _chosen(self, dim: int, ndim: int, axis: int, index: Any) -> Any:
        """Where the position along `axis`, the space's `dim`, is the index; compared as int32, of
        which a vector holds twice as many.
        """
        tracer = self.tracer
        shape = tuple(tracer.space[dim] if i == axis else 1 for i in range(ndim))
        dims = tuple(dim if i == axis else d for i, d in enumerate(index.dims))
        position = Traced(tracer, tracer.kernel.index(dim), shape, dims, np.dtype(np.int64))
        if shape[axis] < 1 << 31:
            # An ignored index is anything: none may wrap to a position.
            inside = elementwise("and", index >= 0, index < shape[axis])
            index = self.where(inside, index, -1)
            position, index = position.astype(np.int32), index.astype(np.int32)
        return elementwise("eq", position, index)


def _position_in(key: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, int]:
    """The dimension and the position that an index selects, if it is one along one dimension."""
    found = []
    for axis, item in enumerate(key):
        if type(item) is int:
            found.append((axis, item))
        elif item is not Ellipsis and item != slice(0, shape[axis], 1):
            raise NotTraceable("a part")
    if len(found) != 1:
        raise NotTraceable("a part")
    return found[0]


class _Sum(_Reducer):
    """`xp.add`, which knows what `place_at` has placed in each row."""

    def __init__(self, names: _Names) -> None:
        super().__init__("add", "sum")
        self.names = names

    def reduce(
        self, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        """The sum over `axis`."""
        placed = self.names.placed.get(x.value.number) if isinstance(x, Traced) else None
        if placed is not None and axis == (placed[0],):
            small = placed[1]
            return small if keepdims else self.names.squeeze(small, axis)
        return super().reduce(x, axis, dtype, out, keepdims)


def _guards(
    inputs: Sequence[Spec], steps: Sequence[Step], gathering: set[Op]
) -> list[tuple[Any, Spec, int]]:
    """What must be checked of input arrays before kernels run: (op.guard, its first input's spec,
    number of the input). Only an input can be checked, and its shape must be known.
    """
    guards: dict[Any, tuple[Any, Spec, int]] = {}
    specs: list[Any] = list(inputs)
    for step in steps:
        specs.append(
            step.op.infer(*[_at(specs, x) if isinstance(x, Ref) else x for x in step.args])
        )
        guard = getattr(step.op, "guard", None)
        if guard is not None and step.op not in gathering:  # which check by themselves
            ref = step.args[1]
            if ref.number >= len(inputs):
                raise NotTraceable("an index that is computed")
            guards.setdefault((step.op, ref), (guard, _at(specs, step.args[0]), ref.number))
    return list(guards.values())


class _Graph(NamedTuple):
    """What is to be computed."""

    inputs: list[Spec]
    steps: Sequence[Step]
    outputs: Sequence[tuple[Ref, Spec]]
    shaped: list[_Shaped]  # further inputs: their numbers follow those of the others

    def unused(self) -> set[int]:
        """The inputs that nothing is computed from."""
        refs = [ref for ref, _ in self.outputs]
        refs += [x for step in self.steps for x in step.args if isinstance(x, Ref)]
        return set(range(len(self.inputs))).difference(ref.number for ref in refs)


def _reshaped(graph: _Graph) -> _Graph:
    """The same computation without reshapes of inputs and of what becomes outputs, which lie in
    memory the same way.
    """
    inputs, steps, outputs, _ = graph
    first = len(inputs)
    found: dict[int, _Shaped] = {}  # steps that reshape inputs
    last: dict[int, Ref] = {}  # steps that reshape what was computed, and what that is
    for number, (op, args) in enumerate(steps, first):
        if op.name != "reshape":
            continue
        x, sizes = args[0], op.shape  # type: ignore[attr-defined]
        if x.number < first:
            found[number] = _Shaped(x.number, sizes)
        elif x.number in found:
            found[number] = _Shaped(found[x.number].source, sizes)
        else:
            last[number] = last.get(x.number, x)
    shaped = list(dict.fromkeys(found.values()))
    outputs = [(last.get(ref.number, ref), spec) for ref, spec in outputs]
    needed = {ref.number for ref, _ in outputs}
    for number in reversed(range(first, first + len(steps))):
        if number in needed and number not in found:
            needed.update(x.number for x in steps[number - first].args if isinstance(x, Ref))
    kept = [n for n in range(first, first + len(steps)) if n in needed and n not in found]
    place = {n: first + len(shaped) + k for k, n in enumerate(kept)}
    place |= {n: first + shaped.index(x) for n, x in found.items()}

    def moved(x: Any) -> Any:
        return Ref(place.get(x.number, x.number), x.item) if isinstance(x, Ref) else x

    renumbered = [Step(steps[n - first].op, tuple(map(moved, steps[n - first].args))) for n in kept]
    return _Graph(inputs, renumbered, [(moved(ref), spec) for ref, spec in outputs], shaped)


def _trace(
    names: _Names, graph: _Graph, places: Sequence[Dims | None], unused: set[int]
) -> tuple[list[_Wanted], list[Dims | None]]:
    """Write all steps into the tracer's kernel, which may then reduce over several sets of axes;
    the outputs, and the dims of each where it has some.
    """
    tracer = names.tracer
    kernel, rank = tracer.kernel, len(tracer.space)
    values: list[Any] = []
    for n, (spec, place) in enumerate(zip(names.inputs, places, strict=True)):
        if n in unused:
            kernel.input(name_of(spec.dtype.numpy), ())
            values.append(None)
            names.places.append(())
            continue
        dims = tuple(range(rank - len(spec.shape), rank)) if place is None else place
        axes = [d for d, n in zip(dims, spec.shape, strict=True) if n != 1]
        value = kernel.input(name_of(spec.dtype.numpy), axes)
        values.append(Traced(tracer, value, spec.shape, dims, _wide(spec.dtype.numpy)))
        names.places.append(dims)
        if n >= len(graph.inputs):
            names.gathers[graph.shaped[n - len(graph.inputs)]] = value
    for step in graph.steps:
        kernel.reduced = ()  # each step may reduce over other axes; `_split` sorts them
        values.append(traced(names, step, values))
    wanted: list[_Wanted] = []
    all_dims: list[Dims | None] = []
    for ref, spec in graph.outputs:
        y = _at(values, ref)
        if not isinstance(y, Traced) or prod(y.shape) != prod(spec.shape):
            raise NotTraceable("a result that is no array")
        if [n for n in y.shape if n != 1] != [n for n in spec.shape if n != 1]:
            tracer.ordered = True  # it will be reshaped
        sized = [(n, d) for n, d in zip(y.shape, y.dims, strict=True) if n != 1]
        axes = [d for _, d in sized]
        if axes != sorted(axes) or any(n != tracer.space[d] for n, d in sized):
            raise NotTraceable("a transposed result")
        name = name_of(spec.dtype.numpy)
        if _wide(spec.dtype.numpy) != y.dtype:
            raise NotTraceable(f"{y.dtype} for {name}")
        wanted.append(_Wanted(y.value, tuple(axes), name, spec.shape))
        all_dims.append(y.dims if y.shape == spec.shape else None)
    return wanted, all_dims


def traced(names: Names, step: Step, values: list[Any]) -> Any:
    """What a step computes from the values so far, written into the tracer's kernel.

    Errors: NotTraceable for what cannot be written there.
    """
    given = [_at(values, x) if isinstance(x, Ref) else x for x in step.args]
    try:
        return step.op.compute(names, *given)
    except (AdjointError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise NotTraceable(f"{step.op.name}: {error}") from None


def _at(values: list[Any], ref: Ref) -> Any:
    found = values[ref.number]
    return found if ref.item is None else found[ref.item]


# ---- splitting -----------------------------------------------------------------------------------


class _Draft:
    """A kernel to be: what it reduces over, what it computes, and what it loads."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes
        self.results: list[tuple[int, _Wanted]] = []  # outputs of the whole, with their numbers
        self.outputs: list[Value] = []  # what later kernels load
        self.loads: list[tuple[str, int]] = []  # ("input", position) or ("value", number)
        self.values: list[Value] = []  # in order; those that are loaded among them


def _split(wanted: Sequence[_Wanted], space: tuple[int, ...]) -> list[_Draft]:
    """The kernels that compute `wanted`, each value as soon as it can be."""
    values = _cone(w.value for w in wanted)
    needs: dict[int, frozenset[int]] = {}  # reductions that a value depends on, itself among them
    for v in values:
        own = {v.number} if v.op in REDUCTIONS else ()
        needs[v.number] = frozenset(own).union(*(needs[x.number] for x in v.inputs))
    drafts: list[_Draft] = []
    stage_of: dict[int, int] = {}
    remaining = [v for v in values if v.op in REDUCTIONS]
    while remaining:
        axes, group = _next_group(remaining, needs, set(stage_of))
        stage_of |= dict.fromkeys(group, len(drafts))
        drafts.append(_Draft(axes))
        remaining = [v for v in remaining if v.number not in group]
    home = {n: max((stage_of[r] for r in needs[n]), default=-1) for n in needs}
    whole = tuple(d for d, n in enumerate(space) if n != 1)
    simple: dict[tuple[int, ...], _Draft] = {}  # kernels without reductions, by what they span
    for j, w in enumerate(wanted):
        stage = home[w.value.number]
        if stage >= 0:
            draft = drafts[stage]
        elif drafts and w.axes == whole:
            draft = drafts[0]
        else:
            draft = simple.setdefault(w.axes, _Draft(()))
        draft.results.append((j, w))
    for i in reversed(range(len(drafts))):
        _fill(drafts[i], i, drafts, home)
    for draft in simple.values():
        _fill(draft, -1, drafts, home)
    return [*drafts, *simple.values()]


def _next_group(
    remaining: Sequence[Value], needs: dict[int, frozenset[int]], done: set[int]
) -> tuple[tuple[int, ...], set[int]]:
    """The reductions over one set of axes to do next: preferably all that there are of them."""
    choices = []
    for axes in dict.fromkeys(v.attr for v in remaining):
        group: set[int] = set()
        same = [v.number for v in remaining if v.attr == axes]
        for n in same:
            if needs[n] <= done | group | {n}:
                group.add(n)
        if group:
            choices.append((len(group) < len(same), min(group), axes, group))
    _, _, axes, group = min(choices, key=lambda choice: choice[:2])
    return axes, group


def _fill(draft: _Draft, i: int, drafts: Sequence[_Draft], home: dict[int, int]) -> None:
    """Decide what kernel number `i` computes and loads; earlier kernels must write the latter."""
    loaded = set()

    def is_loaded(v: Value) -> bool:
        if v.op == "input":
            return True
        earlier = home[v.number]
        return earlier >= 0 and earlier != i and not set(v.axes) & set(drafts[earlier].axes)

    for v in _cone([*(w.value for _, w in draft.results), *draft.outputs], is_loaded):
        draft.values.append(v)
        if v.op == "input":
            draft.loads.append(("input", v.attr[0]))
        elif is_loaded(v):
            loaded.add(v.number)
            draft.loads.append(("value", v.number))
            outputs = drafts[home[v.number]].outputs
            if v not in outputs:
                outputs.append(v)


def _cone(values: Iterable[Value], is_end: Any = None) -> list[Value]:
    """`values` and what they are computed from, up to what `is_end`, in order."""
    found: dict[int, Value] = {}
    stack = list(values)
    while stack:
        v = stack.pop()
        if v.number not in found:
            found[v.number] = v
            if is_end is None or not is_end(v):
                stack.extend(v.inputs)
    return [found[n] for n in sorted(found)]


class _Stage:
    """A kernel with what each call of it passes."""

    __slots__ = ("arguments", "compiled", "numbers", "ordered", "run", "shape", "sizes")

    arguments: tuple[int, ...]  # positions among inputs and what earlier kernels have written
    ordered: bool  # whether outputs are row-major, however the inputs lie

    def __init__(self, draft: _Draft, tracer: Tracer, space: tuple[int, ...]) -> None:
        self.ordered = tracer.ordered
        spanned = set(draft.axes).union(*(v.axes for v in draft.values))
        spanned.update(*(w.axes for _, w in draft.results))
        everywhere = tuple(d for d in sorted(spanned) if space[d] != 1)
        small = tuple(d for d in everywhere if d not in draft.axes)
        # The kernel has the axes that it spans only, so that what it writes has no others.
        place = {d: k for k, d in enumerate(sorted({*everywhere, *draft.axes}))}
        kernel = Kernel(len(place))
        kernel.reduced = tuple(place[d] for d in draft.axes)
        self.numbers: list[float] = []
        copies: dict[int, Value] = {}
        loaded = {n for kind, n in draft.loads if kind == "value"}
        for v in draft.values:
            axes = tuple(place[d] for d in v.axes)
            if v.op == "input":
                copies[v.number] = kernel.input(v.attr[1], axes)
            elif v.number in loaded:
                copies[v.number] = kernel.input(v.dtype, axes)
            elif v.op == "scalar":
                self.numbers.append(tracer.numbers[v.attr[0]])
                copies[v.number] = kernel.scalar(v.dtype)
            elif v.op in REDUCTIONS:
                copies[v.number] = kernel.reduce(v.op, copies[v.inputs[0].number], kernel.reduced)
            elif v.op == "index":
                copies[v.number] = kernel.index(place[v.attr[0]])
            elif v.op == "random":
                if v.axes != everywhere or all(w.axes != everywhere for _, w in draft.results):
                    raise NotTraceable("random numbers without a result of their extent")
                copies[v.number] = kernel.random(axes, *(copies[x.number] for x in v.inputs))
            else:
                copies[v.number] = split.copied(kernel, v, copies)
        for v in draft.outputs:
            if v.axes != small:
                raise NotTraceable("a small value that varies over fewer axes than its kernel")
            kernel.output(copies[v.number])
        for _, w in draft.results:
            if w.axes not in (small, everywhere):
                raise NotTraceable("results of different extent")
            kernel.output(copies[w.value.number], w.dtype, full=w.axes == everywhere)
        self.compiled = Compiled(kernel)
        known = {a for v in kernel.inputs for a in v.axes}
        self.sizes = sizes = tuple(space[d] for d in place)
        self.shape = None if known.issuperset(place[d] for d in everywhere) else sizes
        self.run = default_pool().run if prod(sizes) >= PARALLEL else None

    def outs(self) -> list[Any] | None:
        """Arrays for the outputs, where their order matters."""
        if not self.ordered:
            return None
        return [
            np.empty([self.sizes[a] for a in o.axes], self.compiled.dtype(k))
            for k, o in enumerate(self.compiled.kernel.outputs)
        ]
