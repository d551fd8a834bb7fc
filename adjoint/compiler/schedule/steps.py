"""Steps: each computes a node by calls that are bound to arrays with fixed addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.fusion import HandWritten
from ...core.arrays import address
from ...core.op import Op
from ...ir.program import Value
from ...ops.elementwise.arithmetic import Add
from ...ops.index.slicing import Place, basic_index
from ...ops.nn.activation import Relu
from ...ops.shape.joining import Stack
from ..passes.batched_gemm import Products
from ..passes.kernels import Kernel
from ..passes.layouts import Blocked
from ..passes.static_layers import ADD, Layer
from .buffers import ALIGNMENT

if TYPE_CHECKING:
    from ...backends.native.lowering.scratch import Scratch

Calls = list[Callable[[], object]]


class Kept:
    """Scratch memory and objects that calls need besides their arrays."""

    def __init__(self, scratch: Scratch | None = None) -> None:
        from ...backends.native.lowering.scratch import Scratch

        self.scratch = scratch or Scratch()  # memory used by one call at a time
        self.alive: list[Any] = []

    def append(self, x: object) -> None:
        """Keep an object alive."""
        self.alive.append(x)


class Step:
    """Computes one node, on arrays with fixed addresses."""

    how = "compute"  # kind of step, in listings

    def __init__(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value]) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.values = tuple([x for x in self.inputs if isinstance(x, Value)])  # without numbers
        self.outputs = tuple(outputs)

    def moved(self, y: np.ndarray) -> list[tuple[Value, Any]]:
        """Inputs that are only moved to the output, each with the part of the output's array `y`
        that shows it.
        """
        return []

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: np.ndarray) -> bool:
        """Whether an output is computed as fast into memory with gaps, such as `target`."""
        return False

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Whether an output may be computed into the memory of an input."""
        return False

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """Whether its calls know arrays by address alone, so that they can be patched."""
        return False

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind the calls that compute the outputs to arrays; `kept` gets objects that must stay
        alive with them.
        """
        from ...backends.native.lowering.bound import bound_op

        inputs = [arrays[x] if isinstance(x, Value) else x for x in self.inputs]
        outs = [arrays[y] for y in self.outputs]
        bind = getattr(self.op, "bind", None)  # of a routine
        calls: Calls | None = None if bind is None else bind(inputs, outs, kept.scratch)
        return bound_op(self.op, inputs, outs) if calls is None else calls


class CopyStep(Step):
    """Copies the elements of the input to the output, whose shape may differ."""

    how = "copy"

    def moved(self, y: np.ndarray) -> list[tuple[Value, Any]]:
        """The input, if a view of the output with its shape exists."""
        [x] = self.values
        target = y if y.shape == x.shape else y.reshape(x.shape)
        return [(x, target)] if target is y or np.may_share_memory(target, y) else []

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: np.ndarray) -> bool:
        """Whether `target` can be shown with the input's shape."""
        return bool(self.moved(target))

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind one copy; the output is row-major where the shapes differ."""
        return _copies(self, arrays)


def _copies(step: Step, arrays: Mapping[Value, Any]) -> Calls:
    """Calls that copy the inputs of a step that only moves them, unless they are there already."""
    calls: Calls = []
    for x, target in step.moved(arrays[step.outputs[0]]):
        calls += _brought(arrays[x], target)
    return calls


def _brought(source: np.ndarray, target: np.ndarray) -> Calls:
    """Calls that copy an array to another, unless it is there already."""
    from ...backends.native.lowering.bound import bound_copy

    if address(source) == address(target) and source.strides == target.strides:
        return []
    return list(bound_copy(target, source))


class WindowsStep(Step):
    """Gathers the windows of a convolution's images as rows (im2col)."""

    how = "copy"

    def __init__(
        self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value], geometry: Any
    ) -> None:
        super().__init__(op, inputs, outputs)
        self.geometry = geometry

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind a copy into the middle of zeros, of which the windows are a view, and the copy of
        these.
        """
        from ...backends.native.lowering.bound import bound_copy
        from ...backends.native.onednn.fused_layers import windows_of

        (x,), (y,) = self.values, self.outputs
        middle, windows = windows_of(self.geometry)
        rows = arrays[y].reshape(windows.shape)
        return [*bound_copy(middle, arrays[x]), *bound_copy(rows, windows)]


class JoinStep(Step):
    """Concatenates or stacks arrays."""

    how = "NumPy"

    def moved(self, y: np.ndarray) -> list[tuple[Value, Any]]:
        """All inputs, with their parts of the output."""
        axis = self.op.axis % y.ndim  # type: ignore[attr-defined]
        parts: list[tuple[Value, Any]] = []
        start = 0
        lead: tuple[Any, ...] = (slice(None),) * axis
        for x in self.values:
            if isinstance(self.op, Stack):
                part = y[(*lead, start, ...)]  # an array, though of one element
                start += 1
            else:
                part = y[(*lead, slice(start, start + x.shape[axis]))]
                start += x.shape[axis]
            parts.append((x, part))
        return parts

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: np.ndarray) -> bool:
        """Always: it consists of copies."""
        return True

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind copies into the parts of the output."""
        return _copies(self, arrays)


class PlaceStep(Step):
    """Fills an array with a number, and copies the input into a part of it."""

    how = "copy"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind the fill, then the copy."""
        from ...backends.native.lowering.bound import bound_copy

        assert isinstance(self.op, Place)
        (x,), (y,) = self.values, self.outputs
        whole = arrays[y]
        filling = np.broadcast_to(np.asarray(self.op.value).astype(whole.dtype), whole.shape)
        part = whole[basic_index(self.op.items).key]
        return [*bound_copy(whole, filling), *bound_copy(part, arrays[x])]


class ProductStep(Step):
    """A matrix product of two values, or of a layer; it may be followed by ReLU, or be accumulated
    into a value, the last input.
    """

    how = "product"

    def __init__(self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value]) -> None:
        super().__init__(op, inputs, outputs)
        self.library, self.own, self.then = op.library, len(inputs), ""
        if isinstance(op, Layer):
            self.library, self.own, [(self.then, *_)] = op.base.library, op.own, op.following

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: np.ndarray) -> bool:
        """Whether generated code computes the product in any case."""
        from ...backends.native.lowering.bound import product_into

        operands = [arrays[x] for x in self.values[: self.own]]
        return self.then != ADD and product_into(self.library, operands, target) is not None

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """Whether generated code computes the product."""
        from ...backends.native.lowering.bound import product_into

        operands = [arrays[x] for x in self.values[: self.own]]
        return product_into(self.library, operands, arrays[self.outputs[0]], self.then) is not None

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Whether `x` is the value into which the product is accumulated."""
        *operands, added = self.values
        return (
            self.then == ADD
            and x is added
            and not any(np.may_share_memory(arrays[x], arrays[v]) for v in operands)
        )

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind generated code, NumPy or oneDNN to the output's memory."""
        from ...backends.native.lowering.bound import bound_op, bound_product, product_into

        arrays_of = [arrays[x] for x in self.values]
        operands, others = arrays_of[: self.own], arrays_of[self.own :]
        out = arrays[self.outputs[0]]
        within = product_into(self.library, operands, out, self.then) if self.then else None
        if within is not None:
            return [*(call for x in others for call in _brought(x, out)), within]
        if not others:
            calls = bound_product(self.library, operands, out, kept.scratch)
            return [*calls, *bound_op(Relu(), [out], [out])] if self.then else calls
        apart, scratch = kept.scratch.like(out)
        calls = bound_product(self.library, operands, apart, scratch)
        return [*calls, *bound_op(Add(), [*others, apart], [out])]


class ProductsStep(Step):
    """Several small products."""

    how = "product"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind generated code to the outputs' memory."""
        from ...backends.native.lowering.bound import bound_products

        assert isinstance(self.op, Products)
        each = [(op.library, [arrays[x] for x in xs]) for op, xs in self.op.divided(self.inputs)]
        calls, alive = bound_products(each, [arrays[y] for y in self.outputs])
        kept.append(alive)
        return calls


class WindowStep(Step):
    """A convolution, sums of windows, or the transpose of one of these."""

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind oneDNN to the output's memory."""
        from ...backends.native.lowering.bound_layers import bound_layer

        inputs = [arrays[x] for x in self.values]
        return bound_layer(self.op, inputs, arrays[self.outputs[0]], kept.scratch)


class BlockedStep(Step):
    """A convolution of images in blocks of channels."""

    how = "oneDNN"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind oneDNN to the output's memory."""
        from ...backends.native.lowering.bound import dense
        from ...backends.native.lowering.bound_layers import bound_blocked

        inputs, calls = dense([arrays[x] for x in self.values])
        return [*calls, *bound_blocked(self.op, inputs, arrays[self.outputs[0]], kept.scratch)]


class BlocksStep(Step):
    """Converts images to blocks of channels, or back."""

    how = "copy"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind one copy between two views in blocks."""
        from ...backends.native.lowering.bound import bound_copy

        source, target = arrays[self.values[0]], arrays[self.outputs[0]]
        if isinstance(self.op, Blocked):
            return bound_copy(target, self.op.compute(np, source))
        return bound_copy(Blocked(source.shape[-1]).compute(np, target), source)


class MaximaStep(Step):
    """Max pooling: the largest element of each window, with its index in the window."""

    how = "kernel"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind one kernel to both outputs."""
        from ...backends.native.lowering.bound_layers import bound_maxima

        (x,), (y, indices) = self.values, self.outputs
        return bound_maxima(self.op, arrays[x], arrays[y], arrays[indices])


class MaximaInputStep(Step):
    """Gradient of max pooling: each window's gradient is added where its maximum was. The inputs
    are gradients and indices.
    """

    how = "kernel"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind one kernel to the output's memory."""
        from ...backends.native.lowering.bound_layers import bound_maxima_input

        g, indices = self.values
        return bound_maxima_input(self.op, arrays[g], arrays[indices], arrays[self.outputs[0]])


class RoutineStep(Step):
    """A composite by its hand-written routine, whose results are copied."""

    how = "routine"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind native code, or else one Python call."""
        assert isinstance(self.op, HandWritten)
        from ...backends.native.lowering.bound import bound_routine
        from ...backends.native.lowering.bound_routines import bound_forward

        inputs = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        constant = [x.array is not None for x in self.values]
        calls = bound_forward(self.op.routine, inputs, outs, kept.scratch, constant)
        return [bound_routine(self.op.routine, inputs, outs)] if calls is None else calls


class KernelStep(Step):
    """A fused kernel."""

    how = "kernel"

    def writes(self, y: Value, arrays: Mapping[Value, Any], target: np.ndarray) -> bool:
        """Whether `target` has contiguous lines, and nothing is drawn, since draws come in the
        order of memory. Measured for softmax of 512 x 512, written as its transpose: 2.4 times as
        slow.
        """
        assert isinstance(self.op, Kernel)
        apart = [step for n, step in zip(target.shape, target.strides, strict=True) if n > 1]
        drawn = any(node.op.drawn for node in self.op.program.nodes)
        return not drawn and (not apart or apart[-1] < ALIGNMENT)

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Whether its loops read each element of `x` before they write it."""
        from ...backends.native.lowering.bound import may_overwrite

        assert isinstance(self.op, Kernel)
        inputs = [arrays[v] for v in self.values]
        outs = [arrays[x if v is y else v] for v in self.outputs]
        return may_overwrite(self.op.composite, inputs, outs)

    def by_address(self, arrays: Mapping[Value, Any]) -> bool:
        """Always: kernels know addresses alone."""
        return True

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind the kernel's code to the arrays' memory."""
        from ...backends.native.lowering.bound import bound_composite

        assert isinstance(self.op, Kernel)
        inputs = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        calls, alive = bound_composite(self.op.composite, inputs, outs)
        kept.append(alive)
        return calls


class LayerStep(Step):
    """A layer with its epilogue; `roles` (x, y, bias, added0, ...) has the values that it uses."""

    def __init__(
        self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value], layer: Any,
        roles: dict[str, Value],
    ) -> None:  # fmt: skip
        super().__init__(op, inputs, outputs)
        self.layer = layer
        self.roles = roles


class LibraryStep(LayerStep):
    """A layer by oneDNN; consecutive ones become one call."""

    how = "oneDNN"


class PanelsStep(LayerStep):
    """A product with prepacked constants and its epilogue, by generated code."""

    how = "panels"

    def overwrites(self, y: Value, x: Value, arrays: Mapping[Value, Any]) -> bool:
        """Whether `x` is the added operand, which is read only where the sum is written."""
        return x is self.roles.get("added0") and x is not self.roles["x"]

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Bind one call."""
        from ...backends.native.gemm import prepacked

        x, y, bias, added = (
            None if (v := self.roles.get(role)) is None
            else arrays[v] if v.array is None
            else np.ascontiguousarray(v.array)
            for role in ("x", "y", "bias", "added0")
        )  # fmt: skip
        return [prepacked.call(x, self.layer.w, y, bias, added, self.layer.epilogue)]
