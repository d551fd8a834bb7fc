"""Several ops as few kernels: their computation is traced as a whole, then cut at reductions as
`program.partition` says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from ....core import policy
from ....core.errors import NotTraceable
from ....core.sized_tables import SizedTable
from ....core.spec import prod
from ....core.symbolic_scalar import ScalarGraph
from ....core.symbolic_sizes import SYMBOLS, all_known, is_size
from ....ir.compute import quietly
from ....ir.partition import PlannedKernel, kernels
from ....ir.passes import unused_inputs, without_reshapes
from ....ir.program import Program
from ....ir.program import Value as Given
from ....ir.program import Value as Known
from ...codegen.ir import REDUCTIONS
from ..runtime import block_cache
from ..runtime.launch import LaunchFunction, fitting, launcher, rebased, row_major, writer
from .composite_stages import Stage, reading
from .composite_tracing import CompositeNames, Dims, Picked, Shaped, guards_of, trace  # fmt: skip
from .scalars import ScalarTracer, has_lost_numbers, values_of
from .tracing import common_shape

ndarray = np.ndarray
launches: list[int] = [0]  # kernels that composites have run, for the tests that count them


# A launcher, and where its arguments are: the place of the only one, or what takes several of them;
# and which kernel it launches, -1 for what takes values from others.
_Step: TypeAlias = "tuple[LaunchFunction, int, Callable[[Sequence[Any]], Any] | None, int]"
# Launchers, and the places of the outputs: the inputs come first, then what each launcher gives.
_Launching: TypeAlias = "tuple[list[_Step], Dims]"


def _weigh(launching: _Launching) -> int:
    return policy.KEY_BYTES + len(launching[0]) * policy.EXECUTABLE_BYTES


def _step(launch: LaunchFunction, places: Sequence[int], stage: int = -1) -> _Step:
    return launch, places[0], itemgetter(*places) if len(places) > 1 else None, stage


class Composite:
    """A computation on arrays of given shapes and dtypes, as kernels that run one after another.

    Errors: NotTraceable for what cannot be written as kernels.
    """

    latest: _Launching  # one object: another thread may put another in its place
    direct: LaunchFunction | None  # the only one, where it takes all inputs as they are
    # (*inputs) -> the outputs by the launchers, checked: an array from `direct`, else a list; None
    # for inputs that lie otherwise.
    launch: Callable[..., Any] | None
    _known: tuple[Any, _Launching] | None  # launchers for the strides that came first
    _others: SizedTable[_Launching] | None  # for further ones
    program: Program | None = None  # where it is known by that; keeps the ops

    def __init__(
        self,
        program: Program,
        like: Sequence[Dims | None] = (),
        *,
        space: tuple[int, ...] | None = None,
        reshaped: bool = False,
        arithmetic: ScalarGraph | None = None,
    ) -> None:
        """`like`: the dims that the last inputs have in the index space that the others span, where
        they are not those of broadcasting. `space`: that space, where it is another's.

        With `reshaped`, inputs that are reshaped at once are further inputs, and reshapes that give
        outputs are not computed; the space is that of the inputs that are left. The program's
        numbers are known, or of `arithmetic`.
        """
        inputs = [x.spec for x in program.inputs]
        specs = [y.spec for y in program.outputs]
        places = [None] * (len(inputs) - len(like)) + list(like)
        shaped: list[Shaped] = []
        unused: set[int] = set()
        if reshaped:
            program, further = without_reshapes(program)
            shaped = [Shaped(*each) for each in further]
            unused = unused_inputs(program)
        every = [x.spec for x in program.inputs]
        if space is None:
            known = len(inputs) - len(like)
            spanning = [x for n, x in enumerate(every[:known]) if n not in unused]
            spanning += every[len(inputs) :]
            space = common_shape([spec.shape for spec in spanning])
        if 0 in space:
            raise NotTraceable("nothing to compute")
        self.space = space
        tracer = ScalarTracer(space)
        names = CompositeNames(tracer, every)
        places += [None] * len(shaped)
        wanted, self.dims = trace(names, program, specs, shaped, places, unused)
        if arithmetic is not None and has_lost_numbers(tracer):
            raise NotTraceable("a number that was taken for known")
        self.gathers = list(names.gathers)
        self.takers = [x.taker() for x in self.gathers]
        picking = {x.op for x in self.gathers if type(x) is Picked}
        self.guards = [
            (guard, spec, n if n < len(inputs) else shaped[n - len(inputs)].source)
            for guard, spec, n in guards_of(program, picking)
        ]
        parts = kernels(wanted, space, REDUCTIONS)
        self.cuts = [part.reason for part in parts[1:]]  # why there is more than one kernel
        self.stages = [Stage(part, tracer, space) for part in parts]
        tracer.close()
        self.sources = [x for stage in self.stages for x in stage.sources]  # of all numbers
        self.varies = not SYMBOLS.isdisjoint(map(type, self.sources))
        self._fill(values_of(self.sources))
        used = sorted({n for part in parts for kind, n in part.loads if kind == "input"})
        sources = {n for x in self.gathers for n in x.sources}
        self.reads = tuple(sorted(n for n in {*used, *sources} if n < len(inputs)))
        results = self._connect(parts, used, len(inputs) + len(self.gathers))
        self.outputs = [(results[j], w.shape) for j, w in enumerate(wanted)]
        self.squeezed = [
            (n, tuple(size for size in spec.shape if size != 1))
            for n, spec in enumerate(inputs)
            if n in used and 1 in spec.shape
        ]
        self.read = frozenset(self.reads)
        self.nbytes = [spec.dtype.itemsize * prod(spec.shape) for spec in specs]
        self.count = len(inputs)
        self.sizes = [  # of what is further, without dimensions of size 1
            tuple(n for n in x.shape(every) if n != 1) for x in self.gathers
        ]
        if all_known(self.nbytes):
            self._begin()

    def _begin(self) -> None:
        """Prepares for calls, now that the sizes are known."""
        self.small = all(n < block_cache.SMALLEST // 2 for n in self.nbytes)
        self._known = self._others = None
        self._forget_launch()

    def sized(self, fill: Callable[[Any], Any], values: Sequence[float] | None = None) -> Composite:
        """A composite with the same kernels for other sizes, which `fill` puts in the place of
        symbols, and other numbers, where `values` are those of `sources`.
        """
        other = object.__new__(Composite)
        vars(other).update(vars(self))
        other.space, other.nbytes = fill(self.space), fill(self.nbytes)
        other.outputs = [(n, fill(shape)) for n, shape in self.outputs]
        if self.squeezed:
            other.squeezed = [(n, fill(shape)) for n, shape in self.squeezed]
        if self.guards:
            other.guards = [(fill(g.__self__).guard, fill(spec), n) for g, spec, n in self.guards]
        if self.gathers:
            other.sizes = [fill(shape) for shape in self.sizes]
            other.gathers = [fill(x) for x in self.gathers]
            other.takers = [x.taker() for x in other.gathers]
        other.stages = [stage.sized(fill) for stage in self.stages]
        if values is not None:
            other._fill(values)
        other._begin()
        return other

    def _connect(
        self, parts: Sequence[PlannedKernel], used: Sequence[int], count: int
    ) -> dict[int, int]:
        """Tell each kernel where its arguments are among the arrays of a call, and return where
        each result will be. The first `count` arrays are the inputs, of which `used` are read, and
        what is taken from others; behind them is what the kernels give.
        """
        place = {("input", n): n for n in used}
        first = count - len(self.gathers)
        for part, stage in zip(parts, self.stages, strict=True):
            stage.arguments = tuple(place[load] for load in part.loads)
            stage.reading = reading(stage.arguments, self.gathers, first)
            given = [("value", value.number) for value in part.outputs]
            given += [("output", j) for j, _ in part.results]
            for name in given:
                place[name] = count
                count += 1
        return {j: n for (kind, j), n in place.items() if kind == "output"}

    def _forget_launch(self) -> None:
        """Have the next call look for its launchers."""
        self.latest = [], ()
        self.direct = self.launch = None

    def _fill(self, values: Sequence[float]) -> None:
        """Gives each kernel its numbers, which are the next ones of `values`."""
        remaining = iter(values)
        self.numbers = [[next(remaining) for _ in stage.sources] for stage in self.stages]

    def with_numbers(self, values: Sequence[float]) -> Composite:
        """A composite with the same kernels for other numbers, where `values` are those of
        `sources`.
        """
        if not self.varies:
            return self
        other = object.__new__(Composite)
        vars(other).update(vars(self))
        other._fill(values)
        other._forget_launch()
        return other

    def launch_for(self, key: Any) -> Callable[..., Any] | None:
        """The launch for arrays with such a key; None where there is none yet."""
        known = self._find(key)
        if known is not None:
            self._use(*known)
        return None if known is None else self.launch

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs. Of the inputs those of `reads` are needed, the others may be None."""
        direct = self.direct
        outputs = None if direct is None else direct(*arrays)
        if outputs is not None:
            launches[0] += 1
            return [outputs] if type(outputs) is ndarray else outputs  # type: ignore[no-any-return]
        outputs = self._launch(arrays) if self.small else quietly(self._launch, arrays)
        return quietly(self._first, arrays) if outputs is None else outputs  # type: ignore[no-any-return]

    def _launch(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The outputs by the launchers of the last call; None for arrays that lie otherwise."""
        steps, results = self.latest
        if not steps:
            return None
        known = list(arrays)
        for launch, place, taking, _ in steps:
            made = launch(known[place]) if taking is None else launch(*taking(known))
            if type(made) is ndarray:
                known.append(made)
            elif made is None:
                return None
            else:
                known.extend(made)
        launches[0] += len(self.stages)
        return [known[n] for n in results]

    def _launch_checked(self, *arrays: Any) -> Any:
        """The outputs by the launchers of the last call, after the guards of the inputs; a single
        output as itself.
        """
        if self.guards:
            self.check(arrays)
        outputs = self._launch(arrays) if self.small else quietly(self._launch, arrays)
        return outputs if outputs is None or len(outputs) > 1 else outputs[0]

    def _first(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs for arrays that lie as none did lately, by launchers for such arrays."""
        key = self.key_of(arrays)
        known = self._find(key)
        if known is None:
            known = self._prepared(arrays)
            self._remember(key, known)
        self._use(*known)
        outputs = self._launch(arrays)
        return self._run(list(arrays)) if outputs is None else outputs

    def prepare(self, arrays: Sequence[Any]) -> Callable[..., Any] | None:
        """The launch for arrays like these, which are large enough, without running it."""
        known = self._prepared(arrays)
        self._remember(self.key_of(arrays), known)
        self._use(*known)
        return self.launch

    def _find(self, key: Any) -> _Launching | None:
        """The launchers for arrays with such a key; None where there are none yet."""
        if self._known is not None and self._known[0] == key:
            return self._known[1]
        return None if self._others is None else self._others.find(key)

    def _remember(self, key: Any, known: _Launching) -> None:
        """Keep launchers: those that come first with the composite, further ones in the budget."""
        if self._known is None or self._known[0] == key:
            self._known = key, known
            return
        if self._others is None:
            self._others = SizedTable("launchers of composites", _weigh)
        self._others.put(key, known)

    @property
    def sized_bytes(self) -> int:
        """About how many bytes it takes beyond its kernels, with its first launchers."""
        return policy.COMPOSITE_BYTES + len(self.stages) * policy.EXECUTABLE_BYTES

    def key_of(self, arrays: Sequence[Any]) -> Any:
        """The key of a launch: the strides of those arrays that are read."""
        return tuple([a.strides for n, a in enumerate(arrays) if n in self.read])

    def _prepared(self, arrays: Sequence[Any]) -> _Launching:
        """Launchers that do for arrays like these what `_run` does."""
        if all(a.flags.c_contiguous for a in arrays if a is not None):
            whole = self._row_major(arrays)
            if whole is not None:
                return whole, tuple([n - len(self.gathers) for n, _ in self.outputs])
        given = list(arrays)  # what launchers get: not squeezed
        for take in self.takers:
            given.append(take(given))
        first = len(arrays)
        made = self._squeezed(given, first)
        views = {n: (n, 0) for n in range(first)}  # of inputs: need not be made
        for n, further in enumerate(self.gathers, first):
            if type(further) is not Picked and further.source in views:
                source, view = given[further.source], given[n]
                if view.base is source or (view.base is not None and view.base is source.base):
                    root, offset = views[further.source]
                    views[n] = root, offset + view.ctypes.data - source.ctypes.data
        needed = {n for stage in self.stages for n in stage.arguments} - views.keys()
        based: dict[int, tuple[LaunchFunction, Dims]] = {}
        for n, further in reversed(list(enumerate(self.gathers, first))):
            if n not in needed:
                continue
            launch, sources = further.alone(given), further.sources
            if views.keys() >= set(sources):
                roots = [views[x] for x in sources]
                inputs = tuple(sorted({x for x, _ in roots}))
                placed = [(inputs.index(x), offset) for x, offset in roots]
                whole = rebased(launch, [given[x] for x in inputs], placed)
                if whole is not None:
                    launch, sources = whole, inputs
            based[n] = launch, sources
            needed.update(sources)
        steps: list[_Step] = []
        place = {n: n for n in range(first)}  # where a launcher finds things
        for n in sorted(based):
            launch, sources = based[n]
            steps.append(_step(launch, [place[x] for x in sources]))
            place[n] = first + len(steps) - 1
        count = first + len(steps)
        for k in range(len(self.stages)):
            before = len(made)
            launch, arguments = self._launcher(k, given, made, views)
            if launch is None:
                return [], ()
            steps.append(_step(launch, [place[n] for n in arguments], k))
            for n in range(before, len(made)):
                place[n] = count
                count += 1
        return steps, tuple(place[n] for n, _ in self.outputs)

    def _row_major(self, arrays: Sequence[Any]) -> list[_Step] | None:
        """The launchers for row-major arrays; None where it is not as simple as that."""
        known = list(arrays)  # what launchers get: not squeezed
        shapes: list[Any] = [a if a is None else a.shape for a in arrays]
        for n, shape in self.squeezed:
            shapes[n] = shape
        shapes += self.sizes
        final = dict(self.outputs)
        steps: list[_Step] = []
        for stage, numbers in zip(self.stages, self.numbers, strict=True):
            if stage.ordered or stage.reading is None:
                return None
            own = stage.shapes()
            inputs, views = stage.reading
            launch = row_major(
                stage.compiled, [known[n] for n in inputs],
                [final.get(n, shape) for n, shape in enumerate(own, len(shapes))], stage.sizes,
                arrays=[shapes[n] for n in stage.arguments], views=views, scalars=numbers,
                parallel=stage.run is not None,
            )  # fmt: skip
            if launch is None:
                return None
            steps.append(_step(launch, inputs, len(steps)))
            known += [np.empty(shape, stage.compiled.dtype(k)) for k, shape in enumerate(own)]
            shapes += own
        return steps

    def _launcher(
        self, k: int, given: Sequence[Any], made: list[Any], views: Mapping[int, tuple[int, int]]
    ) -> tuple[LaunchFunction | None, Sequence[int]]:
        """The launcher of a kernel, which gets views of what is `given` and what kernels before it
        have `made`, and which of all arrays it takes; arrays like its outputs are added.
        """
        stage = self.stages[k]
        roots = [views.get(n, (n, 0)) for n in stage.arguments]
        inputs = sorted({n for n, _ in roots})
        operands = [made[n] for n in stage.arguments]
        likes = [given[n] if n < len(given) else made[n] for n in inputs]
        places = [(inputs.index(n), offset) for n, offset in roots]
        numbers, parallel = self.numbers[k], stage.run is not None
        final = dict(self.outputs)
        own = stage.shapes()
        shapes = [final.get(n, shape) for n, shape in enumerate(own, len(made))]
        launch = None
        if not stage.ordered:
            launch = fitting(
                stage.compiled, likes, shapes, stage.sizes, arrays=operands, views=places,
                scalars=numbers, parallel=parallel,
            )  # fmt: skip
        if launch is not None:
            outputs = [np.empty(shape, stage.compiled.dtype(i)) for i, shape in enumerate(own)]
        else:
            entry, outputs = stage.entry(operands)
            launch = launcher(
                stage.compiled, likes, shapes, arrays=operands, views=places, scalars=numbers,
                parallel=parallel, entry=entry,
            )  # fmt: skip
        made += outputs
        return launch, inputs

    def _use(self, steps: list[_Step], results: Dims) -> None:
        """Stores launchers that the next call tries first, with its own numbers."""
        if self.varies:
            steps = [
                (launch if k < 0 else launch.numbered(self.numbers[k]), place, taking, k)
                for launch, place, taking, k in steps
            ]
        self.latest = steps, results
        self.direct = None
        self.launch = self._launch_checked if steps else None
        if len(steps) == 1 and results == tuple(range(self.count, self.count + len(results))):
            launch, place, taking, _ = steps[0]
            if (taking(range(self.count)) if taking else (place,)) == self.reads:
                self.direct = launch if self.small else functools.partial(quietly, launch)
                if not self.guards and len(self.reads) == self.count:
                    self.launch = self.direct

    def writer(self, arrays: Sequence[Any]) -> LaunchFunction:
        """A launcher that writes the only output over the first of arrays like these; its numbers,
        those of `sources`, are to be set.

        Errors: NotTraceable for what is not one elementwise kernel.
        """
        out = arrays[0]
        stage, *more = self.stages
        if more or self.gathers or self.guards or stage.compiled.kernel.reduced:
            raise NotTraceable("more than one kernel, a reduction, or an index")
        given = list(arrays)
        for n, shape in self.squeezed:
            given[n] = given[n].reshape(shape)
        seen = out.reshape([size for size in out.shape if size != 1])
        return writer(
            stage.compiled, arrays, [given[n] for n in stage.arguments], stage.arguments, seen,
            stage.shape, stage.run is not None,
        )  # fmt: skip

    def check(self, arrays: Sequence[Any]) -> None:
        """Raise what the ops raise for values that they refuse: kernels do not look."""
        for guard, spec, n in self.guards:
            guard(spec, arrays[n])

    def _squeezed(self, arrays: Sequence[Any], first: int) -> list[Any]:
        """The inputs, of which there are `first`, and what is taken from them, as kernels get
        them.
        """
        squeezed = list(arrays)
        for n, shape in self.squeezed:
            squeezed[n] = arrays[n].reshape(shape)
        for n, shape in enumerate(self.sizes, first):
            if arrays[n].shape != shape:
                squeezed[n] = arrays[n].reshape(shape)
        return squeezed

    def _run(self, arrays: list[Any]) -> list[Any]:
        """The outputs by general calls."""
        first = len(arrays)
        for take in self.takers:  # also from each other
            arrays.append(take(arrays))
        arrays = self._squeezed(arrays, first)
        for stage, numbers in zip(self.stages, self.numbers, strict=True):
            made = stage.compiled(
                *[arrays[n] for n in stage.arguments],
                out=stage.outs(),
                scalars=numbers,
                shape=stage.shape,
                run=stage.run,
            )
            if type(made) is ndarray:
                arrays.append(made)
            else:
                arrays.extend(made)
        launches[0] += len(self.stages)
        results = []
        for n, shape in self.outputs:
            y = arrays[n]
            results.append(y if y.shape == shape else y.reshape(shape))
        return results


_in_use: WeakValueDictionary[Any, Composite] = WeakValueDictionary()


def composite_of(program: Program) -> tuple[Composite, Program]:
    """The composite that computes a program by kernels, and its program: one for all equal
    programs, while it is in use. A network of equal layers, or a loop that was unrolled, is written
    down once.

    Errors: NotTraceable for what cannot be written as kernels.
    """
    values = [*program.inputs, *(y for node in program.nodes for y in node.outputs)]
    symbols: list[Any] = [n for x in values for n in x.spec.shape if is_size(n)]
    if symbols:
        return Composite(program, arithmetic=symbols[0].arithmetic), program
    key = _structure_of(program)
    if key is None:
        return Composite(program), program
    made = _in_use.get(key)
    if made is None:
        made = Composite(program)
        made.program = program.copied({x: Given(x.spec) for x in program.inputs})
        made = _in_use.setdefault(key, made)
    assert made.program is not None
    return made, made.program


def _structure_of(program: Program) -> Any:
    """A key that is equal for programs of the same ops on the same operands; None where that is not
    known.
    """
    place = {x: n for n, x in enumerate(program.inputs)}
    key: list[Any] = [tuple([x.spec for x in program.inputs])]
    for node in program.nodes:
        name = id(node.op)
        key.append(name)
        for x in node.inputs:
            number = place.get(x) if isinstance(x, Known) else None
            if number is None:
                if type(x) not in (bool, int, float):
                    return None  # a constant array
                key.append((type(x), repr(x)))  # -0.0 is not 0.0
            else:
                key.append(number)
        for y in node.outputs:
            place[y] = len(place)
            key.append(y.spec)
    return (*key, tuple([place[y] for y in program.outputs]))


def chained(program: Program, arithmetic: ScalarGraph) -> Composite | None:
    """The composite that computes all outputs of elementwise ops as one kernel; None where it takes
    several.

    Errors: NotTraceable where there is none.
    """
    made = Composite(program, arithmetic=arithmetic)
    return None if made.cuts or made.gathers or made.guards else made
