"""Composites' hand-written routines bound to arrays that stay where they are: the machine code that
they call, one call after another, with nothing of Python between them. None where there is more to
a routine than that: what is packed (`PackedSequence`), narrow floats, results with gaps.
Eager calls do the same by the routines themselves: binding takes many times as long as a call.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.arrays import addresses
from ...codegen import Compiled, Kernel
from ..attention.eager_attention import Attention, summed_axes
from ..recurrent.eager_recurrent import Recurrent, SingleCell
from ..recurrent.packing import packing
from ..runtime.launch_list import Launch as Ready
from ..runtime.pool import default_pool
from .bound import Call, bound_copy, bound_kernel, bound_product, memory_of
from .scratch import Scratch

FLOAT32 = np.dtype(np.float32)
Calls = list[Call]


def bound_forward(
    routine: Any, arrays: Sequence[Any], outs: Sequence[Any], scratch: Scratch,
    constant: Sequence[bool] = (),
) -> Calls | None:  # fmt: skip
    """Calls that compute a routine's outputs, and the values kept for its gradient, into `outs`;
    `constant` says which arrays never change.
    """
    if not all(y.flags.c_contiguous for y in outs):
        return None
    if isinstance(routine, Attention) and routine.narrow is None:
        return _attention(routine, arrays, outs, scratch)
    if _is_layer(routine):
        return _Layer(routine, arrays, scratch).forward(outs, constant)
    return None


def bound_backward(
    routine: Any, arrays: Sequence[Any], outputs: Sequence[Any], kept: Sequence[Any],
    gs: Sequence[Any], outs: Sequence[Any], scratch: Scratch,
) -> Calls | None:  # fmt: skip
    """Calls that compute the gradients of the inputs that want one into `outs`; `gs` are the
    gradients of the outputs, or None.
    """
    if not all(y.flags.c_contiguous for y in (*outs, *outputs, *kept)):
        return None
    if isinstance(routine, Attention) and routine.narrow is None:
        return _attention_backward(routine, arrays, [*outputs, *gs], kept[0], outs, scratch)
    if _is_layer(routine):
        return _Layer(routine, arrays, scratch).backward(outputs[0], kept, gs, outs)
    return None


def _is_layer(routine: Any) -> bool:
    whole = isinstance(routine, Recurrent) and not isinstance(routine, SingleCell)
    return whole and not routine.packed and routine.layer.loops


def _ready(code: Any, chunks: int, numbers: bytes, arrays: Sequence[Any]) -> Ready:
    """A call of code that gets numbers, then the addresses of arrays."""
    first = len(numbers) // 8
    pointers = range(first, first + len(arrays))
    words = numbers + addresses(list(arrays))
    return Ready(code, chunks, words, pointers, chunks > 1, False, memory_of(arrays))


def _with_rows(arrays: Sequence[Any], scratch: Scratch) -> tuple[list[Any], Calls, Scratch]:
    """The arrays, those whose rows have gaps as copies; what copies them; what scratch is left."""
    gaps = [x for x in arrays if x.strides[-1] != x.itemsize]
    made, scratch = scratch.arrays([(x.shape, x.dtype) for x in gaps])
    calls = [call for y, x in zip(made, gaps, strict=True) for call in bound_copy(y, x)]
    copies = iter(made)
    with_rows = [x if x.strides[-1] == x.itemsize else next(copies) for x in arrays]
    return with_rows, calls, scratch


def _filled(target: Any, value: float) -> Calls:
    """Calls that set all elements to a value."""
    return bound_copy(target, np.broadcast_to(np.full(1, value, target.dtype), target.shape))


@functools.cache
def _summing(rank: int, axes: tuple[int, ...], dtype: str) -> Compiled:
    """A kernel that adds over axes."""
    kernel = Kernel(rank)
    kernel.output(kernel.sum(kernel.input(dtype), axes=axes))
    return Compiled(kernel)


@functools.cache
def _adding(dtype: str) -> Compiled:
    """A kernel that adds two matrices."""
    kernel = Kernel(2)
    kernel.output(kernel.input(dtype) + kernel.input(dtype))
    return Compiled(kernel)


def _sum(x: Any, axes: tuple[int, ...], out: Any) -> Calls:
    """Calls that sum an array over axes into `out`, which has the others."""
    shape = [n for axis, n in enumerate(x.shape) if axis not in axes]
    run = default_pool().run if x.size >= policy.PARALLEL else None
    return bound_kernel(_summing(x.ndim, axes, x.dtype.name), [x], [out.reshape(shape)], run=run)


# ---- attention -----------------------------------------------------------------------------------


def _attention(
    routine: Attention, arrays: Sequence[Any], outs: Sequence[Any], scratch: Scratch
) -> Calls:
    output, *total = outs
    given = [*arrays[:3], *(routine.masking(x) for x in arrays[3:])]
    (query, key, value, *mask), calls, scratch = _with_rows(given, scratch)
    if not total:
        total, scratch = scratch.arrays([((*routine.heads, routine.length, 1), FLOAT32)])
    operands = [query, key, value, *(mask or [query]), output, *total]
    code = routine.code.forward
    return [*calls, _ready(code, routine.chunks[0], routine.words_of(code, operands), operands)]


def _attention_backward(
    routine: Attention, arrays: Sequence[Any], ends: Sequence[Any], total: Any, outs: Sequence[Any],
    scratch: Scratch,
) -> Calls:  # fmt: skip
    """`ends`: the output and its gradient."""
    given = [*arrays[:3], *ends, *(routine.masking(x) for x in arrays[3:])]
    (query, key, value, output, g, *mask), calls, scratch = _with_rows(given, scratch)
    targets = iter(outs)
    wanted = [next(targets) if wants else None for wants in routine.wants[:3]]
    written: list[Any] = []  # by the kernel: gradients, of keys and values in parts
    shapes = [(1, *query.shape), *map(routine.shape_of_parts, (key, value))]
    parts, scratch = scratch.arrays([(shape, FLOAT32) for shape in shapes])
    for out, shape, part in zip(wanted, shapes, parts, strict=True):
        written.append(part if out is None or (1, *out.shape) != shape else out[None])
    operands = [
        query,
        key,
        value,
        *(mask or [query]),
        output,
        total,
        g,
        written[0][0],
        *written[1:],
    ]
    code = routine.code.backward
    calls.append(_ready(code, routine.chunks[1], routine.words_of(code, operands), operands))
    for out, part in zip(wanted, written, strict=True):
        if out is not None and not np.may_share_memory(out, part):
            axes = summed_axes(part.shape, out.shape)
            calls += _sum(part[..., : out.shape[-1]], axes, out)
    return calls


# ---- recurrent layers ----------------------------------------------------------------------------


class _Layer:
    """A recurrent layer in one direction, of sequences of one length."""

    def __init__(self, routine: Recurrent, arrays: Sequence[Any], scratch: Scratch) -> None:
        self.routine, self.scratch = routine, scratch
        self.given = dict(zip(routine.names, arrays, strict=True))
        self.calls: Calls = []
        of_step = routine.cell.gates * routine.hidden + routine.output + routine.inputs
        columns = routine.inputs + routine.output + 2 * routine.width * routine.lanes
        room = of_step * (3 * routine.order.total + 2 * columns)
        scratch(room * routine.dtype.itemsize)  # about all, so that it does not grow in steps

    def array(self, *shape: int) -> Any:
        """Memory that this call alone uses while it runs."""
        [memory], self.scratch = self.scratch.arrays([(shape, self.routine.dtype)])
        return memory

    def dense(self, x: Any) -> Any:
        """The array itself, or a copy of it where it is not row-major."""
        if x.flags.c_contiguous:
            return x
        copy = self.array(*x.shape)
        self.calls += bound_copy(copy, x)
        return copy

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """Appends the calls of a matrix product."""
        self.calls += bound_product("product", (a, b), out, self.scratch)

    def packed(self, name: str, gates: int, width: int, constant: bool = False) -> Any:
        """A weight as tiles read it."""
        routine = self.routine
        turned = name.endswith(".T")
        weight = self.given[name.removesuffix(".T")]
        weight = weight.T if turned else weight
        if constant:
            return routine.pack(weight, gates, width)
        groups, depth, _, tile = shape = routine.packed_shape(weight, gates, width)
        units = len(weight) // gates
        tiles = self.array(*shape)
        rest = units % tile
        if rest:
            self.calls += _filled(tiles[-1, :, :, rest:], 0.0)
        if routine.dtype == FLOAT32 and weight.strides[1] == weight.itemsize:
            numbers = struct.pack("5q", weight.strides[0], units, depth, gates, tile)
            self.calls.append(_ready(packing(), groups, numbers, (weight, tiles)))
            return tiles
        split = weight.reshape(gates, units, depth)  # a view: all units lie alike
        whole = units // tile
        main = split[:, : whole * tile].reshape(gates, whole, tile, depth)
        self.calls += bound_copy(tiles[:whole], main.transpose(1, 3, 0, 2))
        if rest:
            self.calls += bound_copy(
                tiles[-1, :, :, :rest], split[:, whole * tile :].transpose(2, 0, 1)
            )
        return tiles

    def loop(self, code: Any, strides: Sequence[int], table: Any, arrays: Sequence[Any]) -> None:
        """Appends the call that runs the steps, one after another; arrays that they do not use may
        be None.
        """
        routine = self.routine
        operands = [table, *(table if x is None else x for x in arrays)]
        words = routine.words(strides, table, arrays)
        numbers = words[: len(words) - 8 * len(operands)]
        self.calls.append(_ready(code, routine.chunks, numbers, operands))

    def forward(self, outs: Sequence[Any], constant: Sequence[bool]) -> Calls | None:
        """The output, the final states, and what the gradient reads."""
        routine, given = self.routine, self.given
        layer, cell, order = routine.layer, routine.cell, routine.order
        fixed = dict(zip(routine.names, constant or [False] * len(given), strict=True))
        states, kept = outs[1 : len(routine.outputs)], list(outs[len(routine.outputs) :])
        x, weight = given["x"], None
        if routine.early:
            rows = self.dense(x).reshape(order.total, routine.inputs)
            x = self.array(order.total, len(given["weight_ih"]))
            self.multiply(rows, given["weight_ih"].T, x)
        else:
            x = x if x.strides[-1] == x.itemsize else self.dense(x)
            weight = self.packed("weight_ih", cell.gates, routine.width, fixed["weight_ih"])
        c = states[1] if cell.has_c else None
        if c is not None:
            self.calls += bound_copy(c, given["c"])
        saved = kept.pop(0) if layer.saves and cell.saved else None
        cells = weight_out = None
        if layer.projected:
            cells = kept.pop(0) if layer.saves else self.array(order.total, routine.hidden)
            weight_out = self.packed("weight_hr", 1, routine.width_out, fixed["weight_hr"])
        output = outs[0].reshape(order.total, routine.output)
        state = self.packed("weight_hh", cell.gates, routine.width, fixed["weight_hh"])
        added = [self.dense(given[n]) if n in given else None for n in ("bias_ih", "bias_hh")]
        operands = [x, weight, state, *added, self.dense(given["h"]), c, output]
        strides = (*routine.strides(x, routine.early), 0)
        self.loop(routine.loop, strides, order.forward, [*operands, saved, cells, weight_out])
        return [*self.calls, *bound_copy(states[0], output[order.last_step])]

    def backward(
        self, output: Any, kept: Sequence[Any], gs: Sequence[Any], outs: Sequence[Any]
    ) -> Calls:
        """The gradients of the inputs that want one."""
        routine, given = self.routine, self.given
        layer, cell, order = routine.layer, routine.cell, routine.order
        wanted = [name for name in routine.names if routine.wants[name]]
        targets = dict(zip(wanted, outs, strict=True))
        g, last, *g_c = gs
        nothing = np.zeros((1, routine.output), routine.dtype)
        g = g if g is None or g.strides[-1] == g.itemsize else self.dense(g)
        last = None if last is None else self.dense(last)
        strides = (0, 0, 0) if g is None else routine.strides(g, False)
        begins = g_c[0] if cell.has_c else None
        carry = targets["c"] if "c" in targets else self.array(order.batch, routine.hidden)
        self.calls += _filled(carry, 0.0) if begins is None else bound_copy(carry, begins)
        of_inputs = self.array(order.total, cell.gates * routine.hidden)
        of_state = self.array(*of_inputs.shape) if cell.apart else of_inputs
        of_output = self.array(order.total, layer.projected)
        weight_out = None
        if layer.projected:
            weight_out = self.packed("weight_hr.T", 1, routine.width_back)
        operands = [
            nothing if g is None else g,
            self.packed("weight_hh.T", 1, routine.width_out),
            nothing if last is None else last,
            carry, kept[0] if kept else output, of_inputs, of_state, of_output, weight_out,
        ]  # fmt: skip
        steps = (*strides, 0 if last is None else last.strides[0])
        self.loop(routine.back, steps, order.backward, operands)
        if "x" in targets:
            self.multiply(of_inputs, given["weight_ih"], targets["x"].reshape(order.total, -1))
        if "h" in targets:
            self.multiply(of_state[order.first_step], given["weight_hh"], targets["h"])
            if cell.carries and not cell.has_c:
                adding = _adding(routine.dtype.name)
                self.calls += bound_kernel(adding, [targets["h"], carry], [targets["h"]])
        if "weight_hr" in targets:
            self.multiply(of_output.T, kept[1], targets["weight_hr"])
        by_inputs = [name for name in wanted if name in ("weight_ih", "bias_ih")]
        by_state = [name for name in wanted if name in ("weight_hh", "bias_hh")]
        if cell.apart:
            self.of_weights(of_inputs, by_inputs, output, targets)
            by_inputs = []
        self.of_weights(of_state, by_inputs + by_state, output, targets)
        return self.calls

    def of_weights(
        self, of_sums: Any, names: Sequence[str], output: Any, targets: dict[str, Any]
    ) -> None:
        """The gradients of weights and biases: see `Recurrent._of_weights`."""
        routine = self.routine
        total = routine.order.total
        sizes = {"weight_ih": routine.inputs, "weight_hh": routine.output}
        weights = [name for name in sizes if name in names]
        biases = [name for name in names if name not in sizes]
        many = total >= policy.RECURRENT_MANY
        width = sum(sizes[name] for name in weights)
        factors = self.array(total, width + bool(biases)) if many else None
        places, end = {}, 0
        for name in weights:
            start, end = end, end + sizes[name]
            places[name] = slice(start, end)
            part = self.array(total, sizes[name]) if factors is None else factors[:, start:end]
            if name == "weight_hh":
                self.put_before(output.reshape(total, -1), part)
            else:
                self.calls += bound_copy(part.reshape(self.given["x"].shape), self.given["x"])
            if factors is None:
                self.multiply(of_sums.T, part, targets[name])
        if factors is None:
            for name in biases:
                self.calls += _sum(of_sums, (0,), targets[name])
            return
        if biases:
            self.calls += _filled(factors[:, width:], 1.0)
        product = self.array(factors.shape[1], of_sums.shape[1])
        self.multiply(factors.T, of_sums, product)
        for name, at in places.items():
            self.calls += bound_copy(targets[name], product[at].T)
        for name in biases:
            self.calls += bound_copy(targets[name], product[width])

    def put_before(self, output: Any, to: Any) -> None:
        """The state before each row of each step."""
        batch = self.routine.order.batch
        first, rest = (slice(batch), slice(batch, None))
        before: slice = slice(-batch)
        if self.routine.order.times[0]:  # from the end
            first, rest, before = slice(-batch, None), slice(-batch), slice(batch, None)
        self.calls += bound_copy(to[first], self.given["h"])
        self.calls += bound_copy(to[rest], output[before])
