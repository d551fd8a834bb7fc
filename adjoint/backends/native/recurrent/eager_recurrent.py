"""One layer of a recurrent network in one direction, forward and backward: `nn.functional`'s
`recurrent_layer` by the loops of `recurrent_loop` and products of whole matrices.

The forward loop multiplies a step's input and state by the packed weights. The backward loop gives
the gradients of those sums for every step; the gradients of weights, biases and inputs are products
and sums of all steps at once.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.arrays import addresses
from ....core.errors import NotTraceable, Unsupported
from ....core.spec import Spec, prod
from ..gemm.products import matmul
from ..indexing.copies import copied
from ..runtime.pool import default_pool
from .cells import CELLS, Cell
from .loop import RecurrentLoop, backward, forward
from .packing import packing
from .tiles import Format

LAYER = ("x", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", "h", "c")  # arguments
CELL = ("x", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h", "c")
DTYPES = ("float32", "float64")

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def plan(specs: Sequence[Spec], statics: Sequence[Any], wants: Sequence[bool]) -> Recurrent:
    """The routine for inputs like these: see `autograd.fusion.Routine`.

    Errors: NotTraceable for dtypes without code, cells without a batch, and shapes that do not fit
    each other.
    """
    names = LAYER if len(statics) > len(CELL) + 1 else CELL
    places = [name for name, x in zip(names, statics, strict=False) if x is NotImplemented]
    kind, *options = statics[len(names) :]
    given = dict(zip(places, specs, strict=True))
    dtypes = {spec.dtype.name for spec in specs}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        raise NotTraceable(f"a recurrent layer of {', '.join(sorted(dtypes))}")
    wanted = dict(zip(places, wants, strict=True))
    shapes = {name: spec.shape for name, spec in given.items()}
    try:
        if options:
            _check_shapes(shapes, CELLS[kind], options[1])
            return Recurrent(given, wanted, kind, *options)
        batch, hidden = shapes["x"][:1], shapes["weight_hh"][1:]
        for name in ("h", "c") if CELLS[kind].has_c else ("h",):
            shapes.setdefault(name, batch + hidden)  # of zeros
        _check_shapes(shapes, CELLS[kind], batch)
        return SingleCell(given, wanted, kind)
    except Unsupported as error:
        raise NotTraceable(str(error)) from None


def _check_shapes(
    shapes: dict[str, tuple[int, ...]], cell: Cell, sizes: tuple[int, ...] | None
) -> None:
    """Refuse what the machine code, which does not look, would read beyond the end of."""
    x, h, weight = shapes["x"], shapes["h"], shapes["weight_hh"]
    if len(x) != (3 if sizes is None else 2) or 0 in x or len(h) != 2 or len(weight) != 2:
        raise NotTraceable(f"a recurrent layer of {x}, {h}, {weight}")
    rows, output, features = weight[0], h[1], x[-1]
    hidden = rows // cell.gates
    fitting = {
        "x": x if sizes is None else (sum(sizes), features),
        "weight_ih": (rows, features),
        "weight_hh": (hidden * cell.gates, output),
        "bias_ih": (rows,),
        "bias_hh": (rows,),
        "weight_hr": (output, hidden),
        "h": (x[1] if sizes is None else sizes[0], output),
        "c": (h[0], hidden),
    }
    wrong = [name for name, shape in shapes.items() if shape != fitting[name]]
    projects = "weight_hr" in shapes
    ordered = sizes is None or all(m >= n > 0 for m, n in itertools.pairwise((*sizes[:1], *sizes)))
    if wrong or ("c" in shapes) != cell.has_c or not ordered or rows == 0:
        raise NotTraceable(f"a recurrent layer of {shapes}, sizes {sizes}: {wrong}")
    if (projects and not cell.has_c) or (not projects and output != hidden):
        raise NotTraceable(f"a recurrent layer with a state of {output} for {hidden} units")


class _Order:
    """The steps in the order of computation, and where their rows are in arrays of all rows."""

    def __init__(self, sizes: Sequence[int], reverse: bool) -> None:
        self.rows = np.array(sizes, np.int64)
        self.starts = np.cumsum(self.rows) - self.rows
        self.times = np.arange(len(sizes))[:: -1 if reverse else 1]
        self.batch = int(self.rows[0])
        self.total = int(self.rows.sum())
        end = int(self.starts[self.times[-1]])
        self.last_step = slice(end, end + self.batch)  # for sequences of the same length
        begin = int(self.starts[self.times[0]])
        self.first_step = slice(begin, begin + self.batch)
        self.forward = self._table(self.times)
        self.backward = self._table(self.times[::-1])

    def _table(self, times: Array) -> Array:
        rows, starts = self.rows[times], self.starts[times]
        before = np.concatenate([[0], np.minimum(rows[1:], rows[:-1])])
        start_before = np.concatenate([[0], starts[:-1]])
        return np.stack([rows, before, starts, start_before, times], 1)  # see TABLE

    @functools.cached_property
    def before(self) -> Array:
        """The row of the step before for each row of a step, where the rows of the initial state
        are the first ones.
        """
        rows_before = np.empty(self.total, np.int64)
        for rows, before, start, start_before, _ in self.forward:
            rows_before[start : start + rows] = np.arange(rows)
            rows_before[start : start + before] += self.batch + start_before
        return rows_before

    @functools.cached_property
    def first(self) -> Array:
        """The row of each sequence in its first step, in the order of computation."""
        first_rows = np.empty(self.batch, np.int64)
        first_rows[self.before[self.before < self.batch]] = np.flatnonzero(self.before < self.batch)
        return first_rows

    @functools.cached_property
    def last(self) -> Array:
        """The row of each sequence in its last step, in the order of computation."""
        last_rows = np.empty(self.batch, np.int64)
        for rows, _, start, _, _ in self.forward:
            last_rows[:rows] = np.arange(start, start + rows)
        return last_rows


class Recurrent:
    """A `Routine` for inputs of given shapes."""

    several = True

    def __init__(
        self,
        specs: dict[str, Spec],
        wants: dict[str, bool],
        kind: str,
        reverse: bool,
        sizes: tuple[int, ...] | None,
    ) -> None:
        self.names, self.wants = tuple(specs), wants
        x = specs["x"]
        self.cell = CELLS[kind]
        self.packed = sizes is not None
        rows_of_steps = sizes or (x.shape[1],) * x.shape[0]
        self.order = _order(tuple(map(int, rows_of_steps)), reverse)
        # The step whose output is the final state, of sequences of the same length.
        self.final = None if self.packed else 0 if reverse else len(rows_of_steps) - 1
        batch = sizes[0] if sizes else x.shape[1]
        self.output, self.inputs = int(specs["weight_hh"].shape[1]), int(x.shape[-1])
        self.hidden = int(specs["weight_hh"].shape[0]) // self.cell.gates
        projected = self.output if "weight_hr" in specs else 0
        self.dtype = x.dtype.numpy
        grad = any(wants.values())
        loops = len(self.order.rows) > 1
        self.whole = loops  # one step is two products and kernels, without Python between them
        large = (
            int(specs["weight_ih"].shape[0]) * self.inputs * self.dtype.itemsize
            > policy.RECURRENT_LARGE
        )
        self.early = not loops or self.order.batch <= (
            policy.RECURRENT_FEW_LARGE if large else policy.RECURRENT_FEW
        )
        inputs = 0 if self.early else self.inputs
        biases = "bias_ih" in specs, "bias_hh" in specs
        self.layer = RecurrentLoop(
            kind, x.dtype.name, inputs, self.hidden, projected, grad, loops, biases
        )
        form = Format(x.dtype.name)
        self.lanes = form.lanes
        self.width = form.width(self.hidden, self.cell.sums)  # of tiles: cells, forward
        self.width_back = form.width(self.hidden, 1)  # cells, backward
        self.width_out = form.width(self.output, 1)  # outputs
        self.loop = forward(self.layer)
        self.back = backward(self.layer) if grad else None
        output = Spec((*x.shape[:-1], self.output), x.dtype, x.device)
        final = output.with_(shape=(batch, self.output))
        c = final.with_(shape=(batch, self.hidden))
        self.outputs: tuple[Spec, ...] = (output, final, c) if self.cell.has_c else (output, final)
        self.differentiable = tuple(range(len(self.outputs))) if grad else ()
        rows = prod(output.shape[:-1])
        saved: list[tuple[int, ...]] = []
        saved += [(rows, self.cell.saved, self.hidden)] if self.cell.saved else []
        saved += [(rows, self.hidden)] if projected else []
        self.kept = tuple([output.with_(shape=shape) for shape in saved if self.layer.saves])
        self.chunk = max(policy.RECURRENT_CHUNK, -(-self.order.batch // 64))
        self.chunks = -(-self.order.batch // self.chunk)

    # Forward -------------------------------------------------------------------------------------

    def forward(
        self, arrays: list[Array], into: list[Array] | None = None
    ) -> tuple[list[Array], list[Array]]:
        """The output, the final states; and what the gradient reads."""
        given = dict(zip(self.names, arrays, strict=True))
        layer, cell, order = self.layer, self.cell, self.order
        x, weight = given["x"], None
        if self.early:
            x = matmul(x.reshape(order.total, self.inputs), given["weight_ih"].T)
        else:
            x = _rows(x)
            weight = self.pack(given["weight_ih"], cell.gates, self.width)
        h = np.ascontiguousarray(given["h"])
        c = given["c"].copy() if cell.has_c else None
        place = self._places(into)
        output = place(0, (order.total, self.output))
        saved, cells, weight_out = None, None, None
        if layer.saves and cell.saved:
            saved = place(len(self.outputs), (order.total, cell.saved, self.hidden))
        if layer.projected:
            cells = np.empty((order.total, self.hidden), self.dtype)
            weight_out = self.pack(given["weight_hr"], 1, self.width_out)
        self._run(
            self.loop,
            (*self.strides(x, self.packed or self.early), 0),
            order.forward,
            x,
            weight,
            self.pack(given["weight_hh"], cell.gates, self.width)
            if layer.loops
            else matmul(h, given["weight_hh"].T),
            *biases(given),
            h,
            c,
            output,
            saved,
            cells,
            weight_out,
        )
        last = output[order.last] if self.packed else output[order.last_step].copy()
        outputs = [output.reshape(self.outputs[0].shape), last]
        if c is not None:
            outputs.append(c)
        return outputs, [x for x in (saved, cells) if x is not None and layer.saves]

    def _places(self, into: list[Array] | None) -> Callable[[int, tuple[int, ...]], Array]:
        """Memory of a shape: that of array number n of `into`, or new."""

        def place(n: int, shape: tuple[int, ...]) -> Array:
            if into is None or not into[n].flags.c_contiguous:
                return np.empty(shape, self.dtype)
            return into[n].reshape(shape)

        return place

    # Backward ------------------------------------------------------------------------------------

    def backward(
        self, arrays: list[Array], outputs: list[Array], kept: list[Array], gs: list[Array | None]
    ) -> list[Array | None]:
        """The gradients of the inputs that want one."""
        given = dict(zip(self.names, arrays, strict=True))
        cell, order = self.cell, self.order
        g, last, *g_c = gs
        nothing = np.zeros((1, self.output), self.dtype)
        strides = (0, 0, 0)
        if g is not None:
            g = _rows(g)
            strides = self.strides(g, self.packed)
        if last is not None:
            last = np.ascontiguousarray(last)
        if cell.has_c and g_c[0] is not None:
            carry = np.array(g_c[0], order="C")
        else:
            carry = np.zeros((order.batch if cell.carries else 1, self.hidden), self.dtype)
        of_inputs = np.empty((order.total, cell.gates * self.hidden), self.dtype)
        of_state = np.empty_like(of_inputs) if cell.apart else of_inputs
        of_output = np.empty((order.total, self.layer.projected), self.dtype)
        weight_out = None
        if self.layer.projected:
            weight_out = self.pack(given["weight_hr"].T, 1, self.width_back)
        self._run(
            self.back,
            (*strides, 0 if last is None else last.strides[0]),
            order.backward,
            nothing if g is None else g,
            self.pack(given["weight_hh"].T, 1, self.width_out) if self.layer.loops else None,
            nothing if last is None else last,
            carry,
            kept[0] if kept else outputs[0],
            of_inputs,
            of_state,
            of_output,
            weight_out,
        )
        computations: dict[str, Callable[[], Array]] = {
            "x": lambda: matmul(of_inputs, given["weight_ih"]).reshape(given["x"].shape),
            "h": lambda: self._of_first(of_state, given["weight_hh"], carry),
            "c": lambda: carry,
            "weight_hr": lambda: matmul(of_output.T, kept[1]),
        }
        wanted = [name for name in self.names if self.wants[name]]
        gradients = {name: computations[name]() for name in wanted if name in computations}
        by_inputs = [name for name in wanted if name in ("weight_ih", "bias_ih")]
        by_state = [name for name in wanted if name in ("weight_hh", "bias_hh")]
        if cell.apart:
            gradients |= self._of_weights(of_inputs, by_inputs, given, outputs[0])
            by_inputs = []
        gradients |= self._of_weights(of_state, by_inputs + by_state, given, outputs[0])
        return [gradients.get(name) for name in self.names]

    def _of_weights(
        self, of_sums: Array, names: Sequence[str], given: Arrays, output: Array
    ) -> Arrays:
        """The gradients of weights and biases, where they have the gradients of these sums.

        Of many rows, in one product: biases are the weights of a one. It is made transposed, which
        is quicker by more than it takes to put it right.
        """
        total = self.order.total
        sizes = {"weight_ih": self.inputs, "weight_hh": self.output}
        weights = [name for name in sizes if name in names]
        biases = [name for name in names if name not in sizes]
        many = total >= policy.RECURRENT_MANY
        width = sum(sizes[name] for name in weights)
        factors = np.empty((total, width + bool(biases)) if many else 0, self.dtype)
        gradients, places, end = {}, {}, 0
        for name in weights:
            start, end = end, end + sizes[name]
            places[name] = slice(start, end)
            part = factors[:, start:end] if many else np.empty((total, sizes[name]), self.dtype)
            if name == "weight_hh":
                self._put_before(given.get("h"), output, part)
            elif self.packed:
                part[...] = given["x"]
            else:  # it may have any strides
                part.reshape(given["x"].shape)[...] = given["x"]
            if not many:
                gradients[name] = matmul(of_sums.T, part)
        if not many:
            return gradients | {name: of_sums.sum(0) for name in biases}
        factors[:, width:] = 1
        product = matmul(factors.T, of_sums)
        gradients = {name: copied(product[at].T, "C") for name, at in places.items()}
        return gradients | {name: product[width].copy() for name in biases}

    def _put_before(self, h: Array | None, output: Array, to: Array) -> None:
        """Write the state before each row of each step."""
        assert h is not None
        order = self.order
        batch = order.batch
        output = output.reshape(order.total, self.output)
        if self.packed:
            np.concatenate([h, output]).take(order.before, 0, out=to)
        elif order.times[0]:
            to[:-batch], to[-batch:] = output[batch:], h
        else:
            to[:batch], to[batch:] = h, output[:-batch]

    def _of_first(self, of_state: Array, weight: Array, carry: Array) -> Array:
        """The gradient of the initial state."""
        gradient: Array = matmul(of_state[self.order.first], weight)
        if self.cell.carries and not self.cell.has_c:
            gradient += carry
        return gradient

    # Both ----------------------------------------------------------------------------------------

    def strides(self, x: Array, packed: bool) -> tuple[int, int, int]:
        """Strides from step to step, between rows of all steps, and between rows of a step."""
        if packed:
            return 0, x.strides[0], x.strides[0]
        return x.strides[0], 0, x.strides[1]

    def pack(self, weight: Array, gates: int, width: int) -> Array:
        """Weights as tiles read them: of each group of units, each column, of each gate."""
        units, depth = len(weight) // gates, weight.shape[1]
        packed = _aligned(self.packed_shape(weight, gates, width), self.dtype)
        tile = packed.shape[-1]
        groups, rest = divmod(units, tile)
        if rest:
            packed[groups, :, :, rest:] = 0
        if self.dtype == np.float32 and weight.strides[1] == weight.itemsize:
            numbers = struct.pack("5q", weight.strides[0], units, depth, gates, tile)
            default_pool().run(packing(), numbers + addresses((weight, packed)), len(packed))
            return packed
        split = weight.reshape(gates, units, depth)
        main = split[:, : groups * tile].reshape(gates, groups, tile, depth)
        packed[:groups] = main.transpose(1, 3, 0, 2)
        if rest:
            packed[groups, :, :, :rest] = split[:, groups * tile :].transpose(2, 0, 1)
        return packed

    def packed_shape(self, weight: Array, gates: int, width: int) -> tuple[int, ...]:
        """The groups, the columns, the gates, and the units of a group."""
        tile = width * self.lanes
        return -(-(len(weight) // gates) // tile), weight.shape[1], gates, tile

    def _run(self, loop: Any, strides: Sequence[int], table: Array, *arrays: Array | None) -> None:
        """Run a loop over all chunks; arrays that it does not use may be None."""
        default_pool().run(loop.address, self.words(strides, table, arrays), self.chunks)

    def words(self, strides: Sequence[int], table: Array, arrays: Sequence[Array | None]) -> bytes:
        """The loop's argument words for these arrays."""
        numbers = struct.pack(f"{len(strides) + 2}q", len(table), self.chunk, *strides)
        return numbers + addresses([table, *(table if x is None else x for x in arrays)])


class SingleCell(Recurrent):
    """A single step of a recurrent cell, which gives nothing but the state after it. The state
    before it is zeros where it is not given.
    """

    def __init__(self, specs: dict[str, Spec], wants: dict[str, bool], kind: str) -> None:
        super().__init__(specs, wants, kind, False, specs["x"].shape[:1])
        self.outputs, self.differentiable = self.outputs[1:], self.differentiable[:-1]
        self.shape = self.order.batch, self.hidden
        rows = self.cell.gates * self.hidden
        work = self.order.batch * rows * max(self.inputs, self.hidden)
        self.multiply = (
            np.matmul if work <= policy.PRODUCT_SMALL else matmul
        )  # which would ask that each time
        self.stride = rows * self.dtype.itemsize

    def forward(
        self, arrays: list[Array], into: list[Array] | None = None
    ) -> tuple[list[Array], list[Array]]:
        """The state; and what the gradient reads."""
        given = dict(zip(self.names, arrays, strict=True))
        h, c, saved = given.get("h"), None, None
        h = np.zeros(self.shape, self.dtype) if h is None else np.ascontiguousarray(h)
        if self.cell.has_c:
            c = given["c"].copy() if "c" in given else np.zeros(self.shape, self.dtype)
        if self.layer.saves and self.cell.saved:
            shape = self.shape[0], self.cell.saved, self.hidden
            saved = self._places(into)(len(self.outputs), shape)
        output = self._places(into)(0, self.shape)
        self._run(
            self.loop,
            (0, self.stride, self.stride, 0),
            self.order.forward,
            self.multiply(given["x"], given["weight_ih"].T),
            None,
            self.multiply(h, given["weight_hh"].T),
            *biases(given),
            h,
            c,
            output,
            saved,
            None,
            None,
        )
        return [output] if c is None else [output, c], [] if saved is None else [saved]

    def backward(
        self, arrays: list[Array], outputs: list[Array], kept: list[Array], gs: list[Array | None]
    ) -> list[Array | None]:
        """The gradients of the inputs that want one."""
        return super().backward(arrays, outputs, kept, [None, *gs])

    def _put_before(self, h: Array | None, output: Array, to: Array) -> None:
        """Write the state before."""
        to[...] = 0 if h is None else h


@functools.lru_cache(maxsize=256)
def _order(sizes: tuple[int, ...], reverse: bool) -> _Order:
    return _Order(sizes, reverse)


def biases(given: Arrays) -> list[Array | None]:
    """Biases of the input's and of the state's products, None for those that are missing."""
    vectors = [given.get(name) for name in ("bias_ih", "bias_hh")]
    return [x if x is None else np.ascontiguousarray(x) for x in vectors]


def _rows(x: Array) -> Array:
    """x, with rows that are contiguous."""
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)


def _aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Memory that begins on a cache line."""
    count = math.prod(shape)
    room = np.empty(count + 64 // dtype.itemsize, dtype)
    start = -room.ctypes.data % 64 // dtype.itemsize
    return room[start : start + count].reshape(shape)
