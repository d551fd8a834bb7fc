"""Other batch sizes than the traced one: where the batch is in every value, and what follows it.

pnnx writes sizes as numbers, the batch's among them: in reshapes, in expands, in constants that it
has computed. When a module is called with another batch, each value is compared with the shape that
it had when traced. The dimension that differs is `outer * batch * inner` elements long; reshapes
merge and split that, everything else carries it along. Whatever the file does not tell is an error,
never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...autograd.modes import no_grad
from ...autograd.recording import lazy
from ...core.errors import Unsupported
from ...ops.create.creation import zeros
from ...tensor import Tensor
from .operators import LAST, NATURAL
from .step import GraphStep, words

Shape = tuple[int, ...]


class BatchPosition(NamedTuple):
    """Place of the batch in a value: dimension `axis` has `outer * batch * inner` elements."""

    axis: int
    outer: int
    inner: int


Repeat = tuple[int, BatchPosition]  # an input, and where the batch is to be in it
LOST = BatchPosition(-1, 0, 0)  # it is somewhere, but not as a dimension's factor
BROADCAST = {
    "pnnx.Expression", "torch.where", "Tensor.masked_fill", "Tensor.expand_as", "torch.baddbmm",
    *(f"torch.{name}" for name in words("""
        eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor fmod
        remainder floor_divide mul sub add div maximum minimum max min atan2 pow logaddexp complex
        cross
    """)),
}  # fmt: skip
PRODUCTS = {"torch.matmul", "torch.bmm", "torch.baddbmm", "F.scaled_dot_product_attention"}
SAME_AXIS = {
    "torch.cat", "torch.stack", "torch.gather", "torch.scatter_add", "F.grid_sample",
    "Tensor.slice_copy", "Tensor.copy", "F.pairwise_distance", "aten::take_along_dim",
    "nn.MultiheadAttention",
}  # fmt: skip
# operators that may take a part of the batch, which shows where it is afterwards
PICKS = {
    **dict.fromkeys(words("""
        Tensor.select Tensor.slice torch.narrow torch.unbind torch.split torch.chunk
        torch.tensor_split torch.index_select aten::unsafe_chunk aten::unsafe_split
        aten::unsafe_split_with_sizes
    """), (None, LOST)),
    "Tensor.index": (None,),  # an index of bools takes what is there
}  # fmt: skip
JOINED = {"prim::TupleConstruct", "prim::ListConstruct", "prim::DictConstruct"}
STATES = {"nn.LSTM", "nn.GRU", "nn.RNN", "aten::lstm", "aten::gru", "aten::rnn_tanh",
          "aten::rnn_relu"}  # fmt: skip
RESHAPES = {"Tensor.reshape", "Tensor.view", "torch.reshape", "Tensor.unflatten", "torch.flatten",
            "Tensor.flatten", "Tensor.reshape_as", "Tensor.view_as"}  # fmt: skip
SQUEEZES = {"torch.squeeze", "Tensor.squeeze"}
# operators with sizes or places among their parameters
SIZED = {*RESHAPES, *PICKS, *SQUEEZES, "Tensor.expand", "Tensor.slice_copy", "Tensor.index_put",
         "F.affine_grid", "torch.as_strided"}  # fmt: skip


def batch_of(traced: Sequence[Sequence[int | None] | None], args: Sequence[Any]) -> Batch | None:
    """The batch, where it differs from the traced one; None where it does not, or where more
    differs.

    A size that was not frozen when the file was traced is that of the argument.
    """
    changes: set[tuple[int, int]] = set()
    places: list[BatchPosition | None] = []
    shapes: list[Shape] = []
    for known, x in zip(traced, args, strict=False):
        now = tuple(x.shape)
        if known is not None and len(known) != len(now):
            return None
        was = now if known is None else tuple(
            b if a is None else a for a, b in zip(known, now, strict=True)
        )  # fmt: skip
        axes = _differing(was, now)
        if axes is None or len(axes) > 1:
            return None
        places.append(BatchPosition(axes[0], 1, 1) if axes else None)
        changes.update((was[axis], now[axis]) for axis in axes)
        shapes.append(was)
    if len(changes) != 1 or len(args) != len(traced):
        return None
    ((before, size),) = changes
    return Batch(before, size, places, tuple(shapes)) if before else None


def shapes_of(module: Any, args: Sequence[Any], shapes: Sequence[Shape]) -> dict[str, Any]:
    """The shape of every value for inputs of these shapes; recorded, not computed."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()  # nothing must be written to running statistics
    try:
        with no_grad(), lazy():
            inputs = [
                zeros(1, dtype=x.dtype).expand(shape).clone()
                for x, shape in zip(args, shapes, strict=True)
            ]
            values = module._start(inputs)
            for step in module._steps:
                found = module._step(step, [values[name] for name in step.inputs])
                values.update(zip(step.outputs, found, strict=False))
            return {name: _shape(value) for name, value in values.items()}
    finally:
        for each, mode in modes:
            each.training = mode


def _differing(shape: Sequence[int], other: Sequence[int]) -> list[int] | None:
    """The dimensions in which shapes differ; None where their numbers do."""
    if len(shape) != len(other):
        return None
    return [i for i, (a, b) in enumerate(zip(shape, other, strict=True)) if a != b]


class Batch:
    """One run with a batch of `now` where the file was traced with `before`."""

    def __init__(
        self, before: int, now: int, inputs: list[BatchPosition | None], traced: tuple[Shape, ...]
    ) -> None:
        self.before = before
        self.now = now
        self.inputs = inputs
        self.traced = traced  # the shapes of the inputs
        self.plan: list[tuple[GraphStep, list[Repeat]]] = []  # of every step, how it is run
        self.lasting = True  # whether the plan holds for every batch of this size
        self.shapes: dict[str, Any] = {}  # of the values, as they were traced
        self.places: dict[str, Any] = {}  # a Place, None, or a list of these for a list

    # ---- a step ----------------------------------------------------------------------------------

    def begin(self, shapes: dict[str, Any], names: Iterable[str]) -> None:
        """Start: only the inputs depend on the batch."""
        self.shapes = shapes
        self.places = dict(zip(names, self.inputs, strict=True))

    def run(
        self, step: GraphStep, inputs: list[Any], call: Callable[..., tuple[Any, ...]]
    ) -> dict[str, Any]:
        """Runs a step and returns its outputs by name; the plan keeps how it was run."""
        bound = step
        if step.numbers and step.kind not in RESHAPES:
            bound, inputs = step.bound(inputs)
        places = [self.places.get(name) for name in bound.inputs]
        batched = any(place is not None for place in _flat(places))
        repeats: list[Repeat] = []
        run = bound
        if batched and step.kind not in JOINED:
            self._assert_known(bound, places)
            repeats = self._repeats(bound, inputs, places)
            inputs = self.repeated(bound, inputs, repeats)
            run = self._resized(bound, inputs, places)
        found = dict(zip(run.outputs, call(run, inputs), strict=False))
        for name, value in found.items():
            self.places[name] = (
                places if step.kind in JOINED
                else self._followed(run, places, self.shapes.get(name), value)
            )  # fmt: skip
            lost = PICKS.get(step.kind, ())
            if batched and any(place in lost for place in _flat([self.places[name]])):
                raise self._refusal(step, "it takes some rows of the batch")
        self.lasting = self.lasting and (bound is step or (run is bound and not repeats))
        self.plan.append((step if run is bound else run, repeats))
        return found

    def _assert_known(self, step: GraphStep, places: list[Any]) -> None:
        if LOST in _flat(places) and step.kind in SIZED:
            raise self._refusal(step, "the file does not tell where the batch is in its input")
        if step.kind == "torch.as_strided":
            raise self._refusal(step, "it takes elements by their place in memory")

    def _refusal(self, step: GraphStep, why: str) -> Unsupported:
        return Unsupported(
            f"pnnx: {step.label}, traced for a batch of {self.before}, cannot run with one of "
            f"{self.now}: {why}; trace it with this batch"
            + (", or with 2 or more" if self.before == 1 else "")
        )

    # ---- sizes that are parameters ---------------------------------------------------------------

    def _resized(self, step: GraphStep, inputs: list[Any], places: list[Any]) -> GraphStep:
        """The step with sizes for this batch."""
        place, kind = places[0], step.kind
        if not isinstance(place, BatchPosition):
            return step
        before, shape = self.shapes[step.inputs[0]], tuple(inputs[0].shape)
        params = step.params
        if kind in RESHAPES and len(inputs) == 1:
            if kind not in ("torch.flatten", "Tensor.flatten"):
                size = self._reshaped(step, before, place)[1]
                return step.changed({"shape": size}, "Tensor.reshape")
        elif kind == "Tensor.expand" and len(inputs) == 1:
            key = "sizes" if "sizes" in params else "shape"
            sizes = list(params[key])
            at = place.axis + len(sizes) - len(before)
            if sizes[at] == before[place.axis]:
                sizes[at] = shape[place.axis]
            return step.changed({key: tuple(sizes)})
        elif kind in SQUEEZES:
            return self._squeezed(step, before, place)
        elif kind == "F.affine_grid":
            return step.changed({"size": (shape[0], *params["size"][1:])})
        elif kind == "torch.split" and self._dim(params, before) == place.axis:
            given = params["split_size_or_sections"]
            sizes = [given] if isinstance(given, int) else list(given)
            part = self.before * place.inner
            if any(size % part for size in sizes):
                raise self._refusal(step, "it splits the batch")
            scaled = [size // part * self.now * place.inner for size in sizes]
            new = scaled[0] if isinstance(given, int) else tuple(scaled)
            return step.changed({"split_size_or_sections": new})
        elif kind == "torch.narrow" and self._dim(params, before) == place.axis:
            if params["start"] == 0 and params["length"] == before[place.axis]:
                return step.changed({"length": shape[place.axis]})
        elif kind in ("Tensor.slice", "Tensor.slice_copy"):
            return self._whole(step, before, place)
        return step

    @staticmethod
    def _dim(params: dict[str, Any], shape: Shape) -> int:
        dim = params.get("dim") or 0
        return int(dim + len(shape) if dim < 0 else dim)

    def _whole(self, step: GraphStep, before: Shape, place: BatchPosition) -> GraphStep:
        """A slice of the whole batch, with the end that it had, ends where this batch does."""
        given = step.params.get("dims") or (step.params.get("dim"),)
        dims = [d + len(before) if d is not None and d < 0 else d for d in given]
        if place.axis not in dims:
            return step
        i, changed = dims.index(place.axis), {}
        for key, many in (("end", False), ("ends", True)):
            end: Any = step.params.get(key)
            value = end[i] if many and end is not None else end
            if value is not None and value not in NATURAL and value >= before[place.axis]:
                changed[key] = (*end[:i], LAST, *end[i + 1 :]) if many else LAST
        return step.changed(changed) if changed else step

    def _squeezed(self, step: GraphStep, before: Shape, place: BatchPosition) -> GraphStep:
        """A squeeze of what had one element when it was traced: a batch of one stays."""
        given = step.params.get("dim")
        dims = (
            range(len(before)) if given is None else given if isinstance(given, tuple) else (given,)
        )
        dropped = sorted(d % len(before) for d in dims if before[d] == 1)
        if place.axis in dropped:
            raise self._refusal(step, "it drops the batch")
        return step.changed({"dim": tuple(dropped)}, "torch.squeeze")

    def _reshaped(
        self, step: GraphStep, before: Shape, place: BatchPosition
    ) -> tuple[BatchPosition, Shape]:
        """Place of the batch after a reshape, and the shape for this one."""
        after = self.shapes[step.outputs[0]]
        found = _moved(before, place, after, self.before)
        if found is None:
            raise self._refusal(
                step, f"reshaping {before} to {after} does not tell where the batch goes"
            )
        size = list(after)
        size[found.axis] = found.outer * self.now * found.inner
        return found, tuple(size)

    # ---- values that do not depend on the batch but have its size --------------------------------

    def _repeats(self, step: GraphStep, inputs: list[Any], places: list[Any]) -> list[Repeat]:
        """The inputs without the batch that have its size, and where they do."""
        batched = [
            (place, len(self.shapes[name]))
            for name, place in zip(step.inputs, places, strict=True)
            if isinstance(place, BatchPosition)
        ]
        if not batched or (len(batched) == len(inputs) and step.kind not in STATES):
            return []
        found: dict[int, BatchPosition] = {}
        for i, x in enumerate(inputs):
            if isinstance(x, Tensor) and places[i] is None:
                for place, rank in batched:
                    at = self._aligned(step, i, place, rank, x.ndim)
                    if at is not None and self._has_size(step, x, at):
                        found[i] = at
            elif isinstance(x, list) and step.kind in STATES and i == 1 and x:
                constant = all(place is None for place in _flat([places[i]]))
                if constant and self._has_size(step, x[0], BatchPosition(1, 1, 1)):
                    found[i] = BatchPosition(1, 1, 1)
        return list(found.items())

    def _has_size(self, step: GraphStep, x: Any, at: BatchPosition) -> bool:
        size = at.outer * self.before * at.inner
        spread = size == 1 and step.kind in BROADCAST | PRODUCTS  # by broadcasting
        return bool(x.shape[at.axis] == size and not spread)

    def _aligned(
        self, step: GraphStep, i: int, place: BatchPosition, rank: int, own: int
    ) -> BatchPosition | None:
        """Place of the batch in an input of `own` dimensions, beside one that has it."""
        kind = step.kind
        if kind in STATES:
            return BatchPosition(own - 2, 1, 1) if i in (1, 2) and own >= 2 else None
        if kind in SAME_AXIS:
            if step.keys[i].endswith("mask"):
                return None
            dim = step.params.get("dim")
            joined = kind == "torch.cat" and dim is not None and dim % rank == place.axis
            return None if joined or place.axis >= own else place
        if kind in BROADCAST or kind in PRODUCTS:
            axis = place.axis - rank + own
            if axis < 0 or (kind in PRODUCTS and rank - place.axis < 3):
                return None
            return BatchPosition(axis, place.outer, place.inner)
        return None

    def repeated(self, step: GraphStep, inputs: list[Any], repeats: list[Repeat]) -> list[Any]:
        """The inputs, those named repeated for this batch."""
        if not repeats:
            return inputs
        inputs = list(inputs)
        for i, at in repeats:
            given = inputs[i]
            inputs[i] = (
                [self._repeated(step, i, x, at) for x in given] if isinstance(given, list)
                else self._repeated(step, i, given, at)
            )  # fmt: skip
        return inputs

    def _repeated(self, step: GraphStep, i: int, x: Any, at: BatchPosition) -> Any:
        """`x`, of which all rows must be equal, for this batch."""
        needed = at.outer * self.now * at.inner
        parts = (at.outer, self.before, at.inner)
        apart = x.reshape(*x.shape[: at.axis], *parts, *x.shape[at.axis + 1 :])
        one = apart.narrow(at.axis + 1, 0, 1)
        if self.before > 1:
            with no_grad():
                same = bool(((apart == one) | ((apart != apart) & (one != one))).all().item())
            if not same:
                raise self._refusal(
                    step, f"its operand {step.inputs[i][:60]!r} has other values for each of them"
                )
        sizes = list(apart.shape)
        sizes[at.axis + 1] = self.now
        return one.expand(sizes).reshape(*x.shape[: at.axis], needed, *x.shape[at.axis + 1 :])

    # ---- what comes out --------------------------------------------------------------------------

    def _followed(self, step: GraphStep, places: list[Any], before: Any, value: Any) -> Any:
        """Place of the batch in an output."""
        if isinstance(value, list):
            known = before if isinstance(before, list) else [None] * len(value)
            return [self._followed(step, places, b, v) for b, v in zip(known, value, strict=False)]
        if not isinstance(value, Tensor) or all(place is None for place in _flat(places)):
            return None
        axes = _differing(before, value.shape) if before is not None else None
        if axes == []:
            return None
        if LOST in _flat(places):
            return LOST
        first = next(place for place in _flat(places) if place is not None)
        if step.kind in RESHAPES and isinstance(places[0], BatchPosition):
            place = _moved(self.shapes[step.inputs[0]], places[0], before, self.before)
            return (
                LOST
                if place is None
                else self._if_fits(place, before[place.axis], value.shape[place.axis])
            )
        if axes is None or len(axes) > 1:
            return LOST
        axis, was, now = axes[0], before[axes[0]], value.shape[axes[0]]
        for place in _flat(places):
            if place is not None and self._fits(place, was, now):
                return BatchPosition(axis, place.outer, place.inner)
        if step.kind == "torch.cat" and all(p is not None and p.inner == 1 for p in places):
            return self._if_fits(BatchPosition(axis, sum(p.outer for p in places), 1), was, now)
        if step.kind == "aten::embedding_bag":
            return self._if_fits(BatchPosition(axis, 1, 1), was, now)
        if step.kind == "torch.repeat_interleave":
            return self._if_fits(
                BatchPosition(axis, first.outer, was // (first.outer * self.before)), was, now
            )
        if step.kind in ("torch.split", "torch.chunk", "torch.tensor_split", "Tensor.repeat",
                         "torch.tile"):  # fmt: skip
            return self._if_fits(
                BatchPosition(axis, was // (self.before * first.inner), first.inner), was, now
            )
        return LOST

    def _fits(self, place: BatchPosition, was: int, now: int) -> bool:
        factor = place.outer * place.inner
        return (factor * self.before, factor * self.now) == (was, now)

    def _if_fits(self, place: BatchPosition, was: int, now: int) -> BatchPosition:
        return place if self._fits(place, was, now) else LOST


def _moved(before: Shape, place: BatchPosition, after: Shape, batch: int) -> BatchPosition | None:
    """Place of the batch after a reshape: it varies with the stride `S` over `P` outer elements."""
    axis, outer, inner = place
    outside = math.prod(before[:axis]) * outer  # P
    stride = math.prod(before[axis + 1 :]) * inner  # S
    if batch == 1:
        return _moved_one(before, place, after, outside, stride)
    step = math.prod(after)
    for j, size in enumerate(after):
        if not size:
            return None
        step //= size
        if stride % step == 0 and size % (batch * (stride // step)) == 0:
            return BatchPosition(j, size // (batch * (stride // step)), stride // step)
    return None


def _moved_one(
    before: Shape, place: BatchPosition, after: Shape, outside: int, stride: int
) -> BatchPosition | None:
    """The batch's place after a reshape of a batch of one, which leaves no trace but its place
    between its neighbours.
    """
    axis, outer, inner = place
    single = outer == inner == 1
    if single and before[:axis] == after[:axis] and after[axis : axis + 1] == (1,):
        return BatchPosition(axis, 1, 1)
    at = [j for j, n in enumerate(after) if n == 1 and math.prod(after[j + 1 :]) == stride]
    if outside == 1:  # the outermost: a dimension of its own, or the first factor of the first
        if at:
            return BatchPosition(at[0], 1, 1)
        first = math.prod(after[1:])
        return (
            BatchPosition(0, 1, stride // first)
            if after and first and stride % first == 0
            else None
        )
    return BatchPosition(at[0], 1, 1) if len(at) == 1 else None


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return [_shape(v) for v in value] if isinstance(value, (list, tuple)) else None


def _flat(places: Any) -> list[Any]:
    """The places of values and of lists of values, in one list."""
    found: list[Any] = []
    for place in places:
        if isinstance(place, list):
            found += _flat(place)
        else:
            found.append(place)
    return found
