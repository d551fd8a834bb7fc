"""Several ops written into one kernel, as composites are before they are split at reductions.

What is moved is not copied: single positions, reversed axes and other shapes of inputs are further
inputs, views that a call takes; what an index picks is one, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....core.dispatch_log import reason_of
from ....core.errors import NotTraceable
from ....core.op import Op
from ....core.spec import Spec, broadcast_shapes, prod
from ....ir import compute as core_compute
from ....ir import program as form
from ....ir.partition import KernelOutput, cone
from ...codegen import KernelValue, split
from ...codegen.ir import REDUCTIONS
from ..runtime.launch import LaunchFunction
from .tracing import Traced, Tracer, TracingNamespace, _Function, _wide, elementwise, name_of

Dims: TypeAlias = "tuple[int, ...]"  # for each dimension of a value, an axis of the index space


_Taker: TypeAlias = "Callable[[Sequence[Any]], Any]"  # from all arrays that there are so far


class Picked(NamedTuple):
    """A further input: what `op` picks from the input `source` by the input `by`."""

    op: Any
    source: int
    by: int

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that it needs."""
        return (self.source, self.by)

    def shape(self, inputs: Sequence[Spec]) -> tuple[int, ...]:
        """Sizes of the picked array."""
        spec: Spec = self.op.infer(inputs[self.source], inputs[self.by])
        return spec.shape

    def taker(self) -> _Taker:
        """A function that picks the array from all arrays of a call."""
        op, source, by = self

        def take(arrays: Sequence[Any]) -> Any:
            return core_compute.compute(op, [arrays[source], arrays[by]])

        return take

    def alone(self, given: Sequence[Any]) -> LaunchFunction:
        """A function that picks the array from `source` and `by`, when these are like the `given`
        ones.
        """
        return lambda x, index: core_compute.compute(self.op, [x, index])


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
        """Sizes of the view."""
        shape = inputs[self.source].shape
        if type(self.item) is tuple:  # all of them, the other way round
            return shape
        return shape[: self.before] + shape[self.before + 1 :]

    def taker(self) -> _Taker:
        """A function that makes the view from all arrays of a call."""
        source, key = self.source, self._key()
        return lambda arrays: arrays[source][key]

    def alone(self, given: Sequence[Any]) -> LaunchFunction:
        """A function that makes the view from `source`."""
        return itemgetter(self._key())


class Shaped(NamedTuple):
    """A further input: the input `source` in another shape."""

    source: int
    sizes: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that it needs."""
        return (self.source,)

    def shape(self, inputs: Sequence[Spec]) -> tuple[int, ...]:
        """Sizes of the reshaped input."""
        return self.sizes

    def taker(self) -> _Taker:
        """A function that reshapes the input, from all arrays of a call."""
        source, sizes = self
        return lambda arrays: arrays[source].reshape(sizes)

    def alone(self, given: Sequence[Any]) -> LaunchFunction:
        """A function that reshapes `source`."""
        return methodcaller("reshape", self.sizes)


class CompositeNames(TracingNamespace):
    """Namespace for `op.compute` when several ops are one kernel, with functions that would not pay
    for one op.
    """

    moves = True  # what is moved need not be copied

    def __init__(self, tracer: Tracer, inputs: Sequence[Spec]) -> None:
        super().__init__(tracer)
        tracer.names = self
        self.inputs = inputs
        self.places: list[Dims] = []  # the dims of each input
        self.gathers: dict[Picked | _Part | Shaped, KernelValue] = {}  # further inputs
        self.placed: dict[int, tuple[int, Traced]] = {}  # what `place_at` made: its axis, from what
        self.add = _Sum(self)
        self.zeros = self._zeros  # type: ignore[method-assign]  # always the same object

    def next_op(self) -> None:
        """Each op may reduce over other axes; `partition.kernels` sorts them."""
        self.tracer.kernel.reduced = ()

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

    def _elsewhere(
        self, x: Any, dim: int, taken: Callable[[KernelValue], KernelValue]
    ) -> KernelValue:
        """The value of `x` at other positions along `dim`: computed again from inputs that are
        taken there.
        """
        copies: dict[int, KernelValue] = {}
        for v in cone([x.value], lambda v: dim not in v.axes):
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

    def _part(self, v: KernelValue, dim: int, item: Any) -> KernelValue:
        """A further input: a view of the input `v`."""
        source = v.attr[0]
        if source >= len(self.places):
            raise NotTraceable("a view of what is no input")
        dims = self.places[source]
        part = _Part(source, dims.index(dim), item)
        view = self.gathers.get(part)
        if view is None:
            axes = [d for d in v.axes if d != dim or type(item) is tuple]
            view = self.gathers[part] = self.tracer.kernel.input(v.attr[1], axes)
        return view

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

    def _gathered(self, op: Any, v: KernelValue, x: Any, index: Any) -> KernelValue:
        """A further input: what `op` picks from the input `v`, which lies as `x` does."""
        source, where = v.attr[0], index.value.attr[0]
        key = Picked(op, source, where)
        picked = self.gathers.get(key)
        if picked is None:
            if source >= len(self.inputs) or len(self.inputs[source].shape) != x.ndim:
                raise NotTraceable("an index into a broadcast tensor")
            shape = key.shape(self.inputs)
            axes = [d for d, n in zip(index.dims, shape, strict=True) if n != 1]
            picked = self.gathers[key] = self.tracer.kernel.input(v.attr[1], axes)
        return picked

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
        """A mask: where a random number of 32 bits is below a bound."""
        tracer = self.tracer
        if op.shape != tracer.space:
            raise NotTraceable("random numbers of another extent")
        tracer.ordered = True
        axes = range(len(tracer.space))
        several = [a for a in axes if tracer.space[a] != 1]
        numbers = tracer.kernel.random(several, seed.value, draw.value)
        words = Traced(tracer, numbers, op.shape, tuple(axes), np.dtype(np.uint32))
        bound = math.ceil(op.keep * 2.0**32)
        return elementwise("lt" if bound < 1 << 32 else "le", words, min(bound, (1 << 32) - 1))

    def _chosen(self, dim: int, ndim: int, axis: int, index: Any) -> Any:
        """A mask: where the position along `axis`, the space's `dim`, is the index; compared as
        int32, of which a vector holds twice as many.
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
    positions = []
    for axis, item in enumerate(key if isinstance(key, tuple) else (key,)):
        if type(item) is int:
            positions.append((axis, item))
        elif item is not Ellipsis and item != slice(0, shape[axis], 1):
            raise NotTraceable("a part")
    if len(positions) != 1:
        raise NotTraceable("a part")
    return positions[0]


class _Sum(_Function):
    """`xp.add`, which knows what `place_at` has placed in each row."""

    def __init__(self, names: CompositeNames) -> None:
        super().__init__("add", "add", "sum")
        self.names = names

    def reduce(
        self,
        x: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        """The sum over `axis`."""
        placed = self.names.placed.get(x.value.number) if isinstance(x, Traced) else None
        if placed is not None and axis == (placed[0],):
            small = placed[1]
            return small if keepdims else self.names.squeeze(small, axis)
        return super().reduce(x, axis, dtype, out, keepdims, **options)


def guards_of(program: form.Program, gathering: set[Op]) -> list[tuple[Any, Spec, int]]:
    """Checks of input arrays before kernels run: (op.guard, its first input's spec, number of the
    input). Only an input can be checked, and its shape must be known.
    """
    place = {x: n for n, x in enumerate(program.inputs)}
    guards: dict[Any, tuple[Any, Spec, int]] = {}
    for node in program.nodes:
        guard = getattr(node.op, "guard", None)
        if guard is not None and node.op not in gathering:  # which check by themselves
            x, index = node.inputs[:2]
            if index not in place:
                raise NotTraceable("an index that is computed")
            guards.setdefault((node.op, index), (guard, x.spec, place[index]))
    return list(guards.values())


def trace(
    names: CompositeNames,
    program: form.Program,
    specs: Sequence[Spec],
    shaped: Sequence[Shaped],
    places: Sequence[Dims | None],
    unused: set[int],
) -> tuple[list[KernelOutput], list[Dims | None]]:
    """Write all nodes into the tracer's kernel, which may then reduce over several sets of axes;
    the outputs, of these specs, and the dims of each where it has some.
    """
    tracer = names.tracer
    kernel, rank = tracer.kernel, len(tracer.space)
    given: list[Any] = []
    first = len(program.inputs) - len(shaped)
    for n, (spec, place) in enumerate(zip(names.inputs, places, strict=True)):
        if n in unused:
            kernel.input(name_of(spec.dtype.numpy), ())
            given.append(None)
            names.places.append(())
            continue
        dims = tuple(range(rank - len(spec.shape), rank)) if place is None else place
        axes = [d for d, n in zip(dims, spec.shape, strict=True) if n != 1]
        value = kernel.input(name_of(spec.dtype.numpy), axes)
        given.append(Traced(tracer, value, spec.shape, dims, _wide(spec.dtype.numpy)))
        names.places.append(dims)
        if n >= first:
            names.gathers[shaped[n - first]] = value
    values = traced(names, program, given)
    wanted: list[KernelOutput] = []
    all_dims: list[Dims | None] = []
    for output, spec in zip(program.outputs, specs, strict=True):
        y = values[output]
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
        wanted.append(KernelOutput(y.value, tuple(axes), name, spec.shape))
        all_dims.append(y.dims if y.shape == spec.shape else None)
    return wanted, all_dims


def traced(
    names: TracingNamespace, program: form.Program, given: Sequence[Any]
) -> dict[form.Value, Any]:
    """Traces a program into the tracer's kernel, with `given` for its inputs, and maps each of its
    values to the traced one.

    Errors: NotTraceable for what cannot be written there.
    """
    values: dict[form.Value, Any] = dict(zip(program.inputs, given, strict=True))
    for node in program.nodes:
        names.next_op()
        args = [values[x] if isinstance(x, form.Value) else x for x in node.inputs]
        try:
            computed = node.op.compute(names, *args)
        except Exception as error:
            raise NotTraceable(f"{node.op.name}: {reason_of(error, node.op)}") from None
        results = (computed,) if len(node.outputs) == 1 else computed
        values.update(zip(node.outputs, results, strict=True))
    return values
