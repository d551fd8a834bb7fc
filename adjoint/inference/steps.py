"""What computes a node: calls bound to arrays that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd.fusion import Written
from ..core.op import Op
from ..eager.arrays import address
from ..ops.elementwise.arithmetic import Add
from ..ops.index.slicing import Place, basic_index
from ..ops.nn.activation import Relu
from ..ops.shape.joining import Stack
from ..program.program import Value
from .batches import Products
from .buffers import ALIGNMENT
from .kernels import Kernel
from .layers import ADD, Layer
from .layouts import Blocked

Calls = list[Callable[[], object]]


class Kept:
    """What calls need beside their arrays."""

    def __init__(self, scratch: Any = None) -> None:
        from ..backends.native.lowering.scratch import Scratch

        self.scratch = scratch or Scratch()  # memory that one call at a time uses
        self.alive: list[Any] = []

    def append(self, x: Any) -> None:
        """Keep this alive."""
        self.alive.append(x)


class Step:
    """What one node does, on arrays that stay where they are."""

    how = "compute"  # as listings show it

    def __init__(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value]) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs that are no numbers."""
        return tuple(x for x in self.inputs if isinstance(x, Value))

    def moved(self, y: Any) -> list[tuple[Value, Any]]:
        """What is only moved to the output, and the part of its array `y` that shows it there."""
        return []

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: Any) -> bool:
        """Whether an output is computed as fast into memory with gaps, as `target` is."""
        return False

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Whether an output may be computed into the memory of an input."""
        return False

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """Whether its calls know arrays by their addresses alone, and may be told others."""
        return False

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """The calls that compute the outputs; what must be kept alive with them goes to `kept`."""
        from ..backends.native.lowering.bound import bound_op

        given = [arrays[x] if isinstance(x, Value) else x for x in self.inputs]
        outs = [arrays[y] for y in self.outputs]
        bind = getattr(self.op, "bind", None)  # of a routine
        calls: Calls | None = None if bind is None else bind(given, outs, kept.scratch)
        return bound_op(self.op, given, outs) if calls is None else calls


class CopyStep(Step):
    """The elements of the input, in the output's shape and memory."""

    how = "copy"

    def moved(self, y: Any) -> list[tuple[Value, Any]]:
        """The input, where the output lies so that it can be shown with its shape."""
        [x] = self.values
        target = y if y.shape == x.shape else y.reshape(x.shape)
        return [(x, target)] if target is y or np.may_share_memory(target, y) else []

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: Any) -> bool:
        """A copy does, to what shows the input's shape."""
        return bool(self.moved(target))

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """One copy; the output is row-major where the shapes differ."""
        return _copies(self, arrays)


def _copies(step: Step, arrays: Mapping[Value, Any]) -> Calls:
    """What moves the inputs of a step that does nothing else, but for those that are there."""
    calls: Calls = []
    for x, target in step.moved(arrays[step.outputs[0]]):
        calls += _brought(arrays[x], target)
    return calls


def _brought(source: Any, target: Any) -> Calls:
    """What brings an array to another, where it is not there."""
    from ..backends.native.lowering.bound import bound_copy

    if address(source) == address(target) and source.strides == target.strides:
        return []
    return list(bound_copy(target, source))


class WindowsStep(Step):
    """The windows of a convolution's images, as rows."""

    how = "copy"

    def __init__(
        self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value], geometry: Any
    ) -> None:
        super().__init__(op, inputs, outputs)
        self.geometry = geometry

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """A copy into the middle of zeros, of which the windows are a view; and their copy."""
        from ..backends.native.lowering.bound import bound_copy
        from ..backends.native.onednn.layers import windows_of

        (x,), (y,) = self.values, self.outputs
        middle, windows = windows_of(self.geometry)
        rows = arrays[y].reshape(windows.shape)
        return [*bound_copy(middle, arrays[x]), *bound_copy(rows, windows)]


class JoinStep(Step):
    """Arrays side by side."""

    how = "NumPy"

    def moved(self, y: Any) -> list[tuple[Value, Any]]:
        """Each input."""
        axis = self.op.axis % y.ndim  # type: ignore[attr-defined]
        found: list[tuple[Value, Any]] = []
        start = 0
        lead: tuple[Any, ...] = (slice(None),) * axis
        for x in self.values:
            if isinstance(self.op, Stack):
                part = y[(*lead, start, ...)]  # an array, though of one element
                start += 1
            else:
                part = y[(*lead, slice(start, start + x.shape[axis]))]
                start += x.shape[axis]
            found.append((x, part))
        return found

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: Any) -> bool:
        """Copies do."""
        return True

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Copies into the parts of the output."""
        return _copies(self, arrays)


class PlaceStep(Step):
    """An array filled with a number, and the input in a part of it."""

    how = "copy"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Fill all, then copy into the part."""
        from ..backends.native.lowering.bound import bound_copy

        assert isinstance(self.op, Place)
        (x,), (y,) = self.values, self.outputs
        whole = arrays[y]
        filling = np.broadcast_to(np.asarray(self.op.value).astype(whole.dtype), whole.shape)
        part = whole[basic_index(self.op.items).key]
        return [*bound_copy(whole, filling), *bound_copy(part, arrays[x])]


class ProductStep(Step):
    """A matrix product: of two values, or a layer's; ReLU may follow, or it is added to a value,
    the last one.
    """

    how = "product"

    def __init__(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value]) -> None:
        super().__init__(op, inputs, outputs)
        self.library, self.own, self.then = op.library, len(inputs), ""
        if isinstance(op, Layer):
            self.library, self.own, [(self.then, *_)] = op.base.library, op.own, op.following

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: Any) -> bool:
        """Generated code does, where it is what computes the product in any case."""
        from ..backends.native.lowering.bound import product_into

        given = [arrays[x] for x in self.values[: self.own]]
        return self.then != ADD and product_into(self.library, given, target) is not None

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """Calls of generated code do."""
        from ..backends.native.lowering.bound import product_into

        given = [arrays[x] for x in self.values[: self.own]]
        return product_into(self.library, given, arrays[self.outputs[0]], self.then) is not None

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """What it is added to."""
        *given, added = self.values
        return (
            self.then == ADD
            and x is added
            and not any(np.may_share_memory(arrays[x], arrays[v]) for v in given)
        )

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """By generated code, NumPy or oneDNN, into the output's memory."""
        from ..backends.native.lowering.bound import bound_op, bound_product, product_into

        arrays_of = [arrays[x] for x in self.values]
        given, others = arrays_of[: self.own], arrays_of[self.own :]
        out = arrays[self.outputs[0]]
        within = product_into(self.library, given, out, self.then) if self.then else None
        if within is not None:
            return [*(call for x in others for call in _brought(x, out)), within]
        if not others:
            calls = bound_product(self.library, given, out, kept.scratch)
            return [*calls, *bound_op(Relu(), [out], [out])] if self.then else calls
        apart, scratch = kept.scratch.like(out)
        calls = bound_product(self.library, given, apart, scratch)
        return [*calls, *bound_op(Add(), [*others, apart], [out])]


class ProductsStep(Step):
    """Several small products."""

    how = "product"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """By generated code, into the outputs' memory."""
        from ..backends.native.lowering.bound import bound_products

        assert isinstance(self.op, Products)
        each = [(op.library, [arrays[x] for x in xs]) for op, xs in self.op.divided(self.inputs)]
        calls, alive = bound_products(each, [arrays[y] for y in self.outputs])
        kept.append(alive)
        return calls


class WindowStep(Step):
    """A convolution, sums of windows, or the transpose of one of these."""

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """By oneDNN, into the output's memory."""
        from ..backends.native.lowering.bound_layers import bound_layer

        given = [arrays[x] for x in self.values]
        return bound_layer(self.op, given, arrays[self.outputs[0]], kept.scratch)


class BlockedStep(Step):
    """A convolution of images in blocks of channels."""

    how = "oneDNN"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """By oneDNN, into the output's memory."""
        from ..backends.native.lowering.bound import dense
        from ..backends.native.lowering.bound_layers import bound_blocked

        given, calls = dense([arrays[x] for x in self.values])
        return [*calls, *bound_blocked(self.op, given, arrays[self.outputs[0]], kept.scratch)]


class BlocksStep(Step):
    """Images brought into blocks of channels, or back."""

    how = "copy"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """One copy between two views in blocks."""
        from ..backends.native.lowering.bound import bound_copy

        source, target = arrays[self.values[0]], arrays[self.outputs[0]]
        if isinstance(self.op, Blocked):
            return bound_copy(target, self.op.compute(np, source))
        return bound_copy(Blocked(source.shape[-1]).compute(np, target), source)


class MaximaStep(Step):
    """The largest element of each window, with its place in the window."""

    how = "kernel"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Both outputs at once."""
        from ..backends.native.lowering.bound_layers import bound_maxima

        (x,), (y, places) = self.values, self.outputs
        return bound_maxima(self.op, arrays[x], arrays[y], arrays[places])


class MaximaInputStep(Step):
    """Images with each window's gradient at the place of its maximum; the inputs are both."""

    how = "kernel"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Into the output's memory."""
        from ..backends.native.lowering.bound_layers import bound_maxima_input

        g, places = self.values
        return bound_maxima_input(self.op, arrays[g], arrays[places], arrays[self.outputs[0]])


class RoutineStep(Step):
    """A composite by its hand-written routine, whose results are copied."""

    how = "routine"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Machine code, or one call."""
        assert isinstance(self.op, Written)
        from ..backends.native.lowering.bound import bound_routine
        from ..backends.native.lowering.bound_routines import bound_forward

        given = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        constant = [x.array is not None for x in self.values]
        calls = bound_forward(self.op.routine, given, outs, kept.scratch, constant)
        return [bound_routine(self.op.routine, given, outs)] if calls is None else calls


class KernelStep(Step):
    """Several ops as one kernel."""

    how = "kernel"

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: Any) -> bool:
        """Where lines are written one after another, and nothing is drawn, which comes in the order
        of memory. Measured for softmax of 512 x 512, written as its transpose: 2.4 times as slow.
        """
        assert isinstance(self.op, Kernel)
        apart = [step for n, step in zip(target.shape, target.strides, strict=True) if n > 1]
        drawn = any(node.op.drawn for node in self.op.program.nodes)
        return not drawn and (not apart or apart[-1] < ALIGNMENT)

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Where its loops read each element before they write it."""
        from ..backends.native.lowering.bound import may_overwrite

        assert isinstance(self.op, Kernel)
        given = [arrays[v] for v in self.values]
        outs = [arrays[x if v is y else v] for v in self.outputs]
        return may_overwrite(self.op.composite, given, outs)

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """All kernels do."""
        return True

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """The kernel's code, bound to the arrays' memory."""
        from ..backends.native.lowering.bound import bound_composite

        assert isinstance(self.op, Kernel)
        given = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        calls, alive = bound_composite(self.op.composite, given, outs)
        kept.append(alive)
        return calls


class LayerStep(Step):
    """A layer with what follows it; `roles` (x, y, bias, added0, ...) has the values it uses."""

    def __init__(
        self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value], layer: Any,
        roles: dict[str, Value],
    ) -> None:  # fmt: skip
        super().__init__(op, inputs, outputs)
        self.layer = layer
        self.roles = roles


class LibraryStep(LayerStep):
    """A layer by oneDNN; layers that follow one another become one call."""

    how = "oneDNN"


class PanelsStep(LayerStep):
    """A product with constants that lie in panels, and what follows it, by generated code."""

    how = "panels"

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """What is added is read where the sum is written, and nowhere else."""
        return x is self.roles.get("added0") and x is not self.roles["x"]

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """One call."""
        from ..backends.native.gemm import panels

        x, y, bias, added = (
            None if (v := self.roles.get(role)) is None
            else arrays[v] if v.array is None
            else np.ascontiguousarray(v.array)
            for role in ("x", "y", "bias", "added0")
        )  # fmt: skip
        return [panels.call(x, self.layer.w, y, bias, added, self.layer.epilogue)]
