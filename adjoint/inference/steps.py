"""What computes a node: calls bound to arrays that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autograd.fusion import Written
from ..core.op import Op
from ..ops.index.slicing import Place, basic_index
from ..ops.shape.joining import Stack
from ..program.program import Value
from .batches import Products
from .kernels import Kernel
from .layouts import Blocked

Calls = list[Callable[[], object]]


class Kept:
    """What calls need beside their arrays."""

    def __init__(self) -> None:
        from ..backends.native.lowering.scratch import Scratch

        self.scratch = Scratch()  # memory that one call at a time uses
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

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """The calls that compute the outputs; what must be kept alive with them goes to `kept`."""
        from ..backends.native.lowering.bound import bound_op

        given = [arrays[x] if isinstance(x, Value) else x for x in self.inputs]
        return bound_op(self.op, given, [arrays[y] for y in self.outputs])


class CopyStep(Step):
    """The elements of the input, in the output's shape and memory."""

    how = "copy"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """One copy; the output is row-major where the shapes differ."""
        from ..backends.native.lowering.bound import bound_copy

        (x,), (y,) = self.values, self.outputs
        source, target = arrays[x], arrays[y]
        if source.shape != target.shape:
            target = target.reshape(source.shape)
        return bound_copy(target, source)


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

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """Copies into the parts of the output."""
        from ..backends.native.lowering.bound import bound_copy

        (y,) = self.outputs
        whole = arrays[y]
        axis = self.op.axis % whole.ndim  # type: ignore[attr-defined]
        calls: Calls = []
        start = 0
        lead: tuple[Any, ...] = (slice(None),) * axis
        for x in self.values:
            source = arrays[x]
            if isinstance(self.op, Stack):
                part = whole[(*lead, start, ...)]  # an array, though of one element
                start += 1
            else:
                part = whole[(*lead, slice(start, start + source.shape[axis]))]
                start += source.shape[axis]
            calls += bound_copy(part, source)
        return calls


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
    """A matrix product: of two values, or a layer's."""

    how = "product"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """By NumPy or oneDNN, into the output's memory."""
        from ..backends.native.lowering.bound import bound_product

        given = [arrays[x] for x in self.values]
        out = arrays[self.outputs[0]]
        return bound_product(self.op.library, given, out, kept.scratch)


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
        """One call."""
        assert isinstance(self.op, Written)
        from ..backends.native.lowering.bound import bound_routine

        given = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        constant = [x.array is not None for x in self.values]
        return [bound_routine(self.op.routine, given, outs, constant)]


class KernelStep(Step):
    """Several ops as one kernel."""

    how = "kernel"

    def bind(self, arrays: dict[Value, Any], kept: Kept) -> Calls:
        """The kernel's code, bound to the arrays' memory."""
        from ..backends.native.lowering.bound import bound_composite

        assert isinstance(self.op, Kernel)
        given = [arrays[x] for x in self.values]
        outs = [arrays[y] for y in self.outputs]
        calls, alive = bound_composite(self.op.composite, given, outs)
        kept.append(alive)
        return calls


class LibraryStep(Step):
    """A layer by oneDNN; layers that follow one another become one call."""

    how = "oneDNN"

    def __init__(
        self, op: Op, inputs: Sequence[Any], outputs: Sequence[Value], layer: Any,
        roles: dict[str, Value],
    ) -> None:  # fmt: skip
        super().__init__(op, inputs, outputs)
        self.layer = layer
        self.roles = roles
