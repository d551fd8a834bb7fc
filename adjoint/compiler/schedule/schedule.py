"""Scheduling of a static graph: which step computes each node, in which order, and where its
results lie.

Values are NumPy arrays in planned buffers; views are arrays that show them. Images for oneDNN's
layers have channels-last layout: as arrays, these are transposed views of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ...autograd.fusion import HandWritten
from ...backends import native
from ...core import policy
from ...core.device import namespace_of
from ...core.dtype import uint8
from ...core.errors import Unsupported
from ...ir.program import Node, Program, Value
from ...ops.index.slicing import Place
from ...ops.linalg.matmul import Linear
from ...ops.nn.averaging import SumPool, SumPoolInput
from ...ops.nn.convolution import Convolution, ConvolutionInput, ConvolutionWeight
from ...ops.nn.pooling import MaxPool, MaxPoolInput
from ...ops.shape.joining import Cat, Stack
from ...ops.shape.movement import Reshape
from ...runtime.lazy import run
from ..passes.basic_passes import SAME, Same
from ..passes.batched_gemm import Products
from ..passes.kernels import Kernel
from ..passes.layouts import Blocked, BlockedConvolution, Unblocked
from ..passes.static_layers import BIAS, Layer, as_epilogue, as_library, is_product
from . import buffers
from .barrier_free import has_rows, stretches
from .copy_elision import destinations
from .donation import overwritten
from .steps import (
    BlockedStep,
    BlocksStep,
    CopyStep,
    JoinStep,
    KernelStep,
    LibraryStep,
    MaximaInputStep,
    MaximaStep,
    PanelsStep,
    PlaceStep,
    ProductsStep,
    ProductStep,
    RoutineStep,
    Step,
    WindowsStep,
    WindowStep,
)

Order = tuple[int, ...]  # of the dimensions in memory; () means row-major
_WINDOWS = (Convolution, ConvolutionInput, ConvolutionWeight, SumPool, SumPoolInput)
_LAYERS = (Layer, Convolution, ConvolutionInput, Linear, MaxPool, SumPool)


class Schedule:
    """The steps and buffers of a graph. `placed` has arrays of values outside of the arena: inputs
    that are read in place, with their layout, and results that are written where they are needed,
    row-major.
    """

    def __init__(
        self,
        graph: Program,
        packing: Any,
        tell: Callable[[], object],
        placed: Mapping[Value, Any] = MappingProxyType({}),
    ) -> None:
        self.graph = graph
        self.placed = frozenset(placed)
        self.packing = packing  # None without oneDNN
        self.steps: list[Step] = []
        self.roots: dict[Value, Value] = {}  # the value whose memory a view shows
        self.orders: dict[Value, Order] = {}  # layouts of values that have memory of their own
        self.views: list[Node] = []
        self._nowhere = buffers.Nowhere()
        self._model: dict[Value, Any] = {x: x.array for x in graph.constants()}
        self._moved: dict[tuple[Value, Order], Value] = {}
        self._places: dict[Any, Value] = {}  # indices of maxima, by images, maxima and options
        self._users = graph.users()
        for x in graph.inputs:
            if x in self.placed:  # perhaps a view, of which not all views are views of its memory
                self.orders[x], self._model[x] = (), placed[x]
            else:
                self._allocate(x, self._wanted_order(x))
        for node in graph.nodes:
            self._add(node)
            tell()
        self.destinations = destinations(
            self.steps, self._model, self.roots, self.placed, graph.outputs
        )
        self._follow_destinations()
        self.overwritten = overwritten(
            self.steps, self._model, self.roots, self.placed, graph.outputs
        )
        self._plan()
        for each in (self._model, self._moved, self._places, self._users):
            each.clear()
        del self._nowhere

    # ---- choice of steps -------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        op = node.op
        if op.view and self._as_view(node):
            return
        step: Step | None = None
        if isinstance(op, _LAYERS) and self.packing is not None:
            step = self._library(node)
        if step is not None:
            self.steps.append(step)
            return
        if isinstance(op, (MaxPool, MaxPoolInput)) and self._add_maxima(node):
            return
        kind: type[Step] = Step
        order: Order = ()
        if isinstance(op, HandWritten):
            kind = RoutineStep
        elif isinstance(op, Kernel):
            kind, order = KernelStep, self._kernel_order(node)
        elif isinstance(op, (Reshape, Same)):
            kind = CopyStep
        elif isinstance(op, Place):
            kind = PlaceStep
        elif isinstance(op, _WINDOWS) and native.load():
            kind = WindowStep
        elif isinstance(op, Products):
            kind = ProductsStep
        elif isinstance(op, BlockedConvolution):
            kind = BlockedStep
        elif isinstance(op, (Blocked, Unblocked)):
            kind = BlocksStep
        elif is_product(node):
            kind = ProductStep
        elif isinstance(op, (Cat, Stack)) and self._joins(node):
            kind = JoinStep
            first = self._model[node.values[0]]
            if isinstance(op, Cat) and _is_last(first) and not first.flags.c_contiguous:
                order = _last(first.ndim)
        for y in node.outputs:
            self._allocate(y, order)
        self.steps.append(kind(op, node.inputs, node.outputs))

    def _as_view(self, node: Node) -> bool:
        """Register a node whose results show its input's memory; False where they do not."""
        x = node.inputs[0]
        source = self._model[x]
        views = shown(node, self._model)
        if source.size and not all(np.may_share_memory(source, y) for y in views):
            return False
        for y, array in zip(node.outputs, views, strict=True):
            self._model[y] = array
            self.roots[y] = self.roots.get(x, x)
        self.views.append(node)
        return True

    def _add_maxima(self, node: Node) -> bool:
        """Add a step for max pooling, or for its gradient; False where generated code does not have
        it, or has not kept the indices.
        """
        from ...backends.native.lowering.bound_layers import windows_of

        op: Any = node.op
        x, *rest = node.values
        y = rest[0] if rest else node.output
        same_specs = all(g.spec == y.spec for g in rest)
        values = self._nowhere.array(y.shape, y.spec.dtype.numpy)
        if not (native.load() and same_specs and windows_of(op, self._model[x], values)):
            return False
        key = x, y, op.options
        if isinstance(op, MaxPool):
            indices = self._places[key] = Value(y.spec.with_(dtype=uint8))
            self.steps.append(MaximaStep(op, node.inputs, (y, indices)))
        elif key in self._places:
            self.steps.append(MaximaInputStep(op, (rest[1], self._places[key]), node.outputs))
        else:
            return False
        for each in self.steps[-1].outputs:
            self._allocate(each, ())
        return True

    def _joins(self, node: Node) -> bool:
        return all(x.spec.dtype is node.output.spec.dtype for x in node.values)

    def _kernel_order(self, node: Node) -> Order:
        """Layout of a kernel's results: channels last if an input of the same shape has that, or if
        the layers that read it want it.
        """
        shape = node.outputs[0].shape
        if len(shape) < 3 or any(y.shape != shape for y in node.outputs):
            return ()
        same = [self._model[x] for x in node.values if x.shape == shape]
        if any(_is_last(a) and not a.flags.c_contiguous for a in same):
            return _last(len(shape))
        if any(a.flags.c_contiguous for a in same):
            return ()
        return self._wanted_order(node.outputs[0])

    def _wanted_order(self, x: Value) -> Order:
        """Layout that the layers that read a value want."""
        if self.packing is None or len(x.shape) < 3 or x.spec.dtype.name != "float32":
            return ()
        users = self._users.get(x, ())
        spatial = [
            isinstance(getattr(node.op, "base", node.op), _LAYERS)
            and not isinstance(getattr(node.op, "base", node.op), Linear)
            for node in users
        ]
        return _last(len(x.shape)) if spatial and all(spatial) else ()

    # ---- oneDNN ----------------------------------------------------------------------------------

    def _library(self, node: Node) -> Step | None:
        """The oneDNN step for a layer; None where oneDNN does not support it."""
        from ...backends.native.onednn import api as onednn

        op = node.op if isinstance(node.op, Layer) else Layer(node.op, len(node.inputs), ())
        following = as_library(op)
        inputs = node.values
        if following is None or any(x.spec.dtype.name != "float32" for x in inputs):
            return None
        if len(inputs) != len(node.inputs) or any(0 in x.shape for x in inputs):
            return None
        try:
            with onednn.single_threaded(onednn.library()):  # the pool's threads share the work
                if isinstance(op.base, Linear):
                    return self._product(node, op, following)
                return self._spatial(node, op, following)
        except Unsupported:
            return None

    def _product(self, node: Node, op: Layer, following: list[Any]) -> Step | None:
        x, w, *bias = node.values[: op.own]
        if w.array is None or (bias and (bias[0].array is None or bias[0].shape != w.shape[:1])):
            return None
        rows = int(np.prod(x.shape[:-1]))
        return self._by_product(node, op, following, rows, w.array, "columns", np.transpose, ())

    def _by_product(
        self, node: Node, op: Layer, following: list[Any], rows: int, w: np.ndarray, key: str,
        matrix: Callable[[Any], Any], order: Order, bias: Value | None = None,
        reads: Value | None = None,
    ) -> Step:  # fmt: skip
        """A layer as a product of `rows` rows with a constant matrix, which `matrix` makes of `w`
        (cached by `key`): with prepacked weights where that is faster, else by oneDNN.
        """
        from ...backends.native.gemm import prepacked
        from ...backends.native.onednn import fused_layers as onednn_layers

        epilogue = as_epilogue(op)
        layer: Any
        if rows <= policy.PANELS_ROWS and epilogue is not None and prepacked.is_available():
            packed = self.packing.once(w, f"{key} in panels", lambda w: prepacked.packed(matrix(w)))
            layer = prepacked.PackedProduct(rows, packed, epilogue)
        else:
            made = self.packing.once(w, key, matrix)
            layer = onednn_layers.product(rows, made, op.own > 2, following, self.packing)
        return self._step(node, op, layer, order, bias, reads)

    def _spatial(self, node: Node, op: Layer, following: list[Any]) -> Step | None:
        from ...backends.native.onednn import fused_layers as onednn_layers
        from ...backends.native.onednn.convolution_plans import ConvolutionGeometry
        from ...backends.native.onednn.pooling_plans import PoolingGeometry as Windows

        base: Any = op.base
        x, y = node.values[0], node.output
        order = _last(len(x.shape))
        if isinstance(base, Convolution):
            w, *bias = node.values[1 : op.own]
            if w.array is None or (bias and bias[0].array is None):
                return None
            geometry = ConvolutionGeometry(
                x.shape[0], x.shape[1], w.shape[0], x.shape[2:], w.shape[2:], y.shape[2:],
                base.stride, base.padding, base.dilation, base.groups, np.dtype(np.float32),
            )  # fmt: skip
            if onednn_layers.is_dense(geometry):
                return self._dense(node, op, geometry, following)
            pointwise = onednn_layers.is_pointwise(geometry)
            few = geometry.batch * int(np.prod(geometry.count)) <= policy.PANELS_ROWS
            if onednn_layers.is_streamed(geometry) or (pointwise and few):
                return self._by_columns(node, op, geometry, following)
            layer = onednn_layers.convolution(
                geometry, w.array, bool(bias), following, self.packing
            )
            return self._step(node, op, layer, order)
        if isinstance(base, ConvolutionInput):
            w = node.values[1]
            if w.array is None:
                return None
            geometry = ConvolutionGeometry(
                y.shape[0], y.shape[1], w.shape[0], y.shape[2:], w.shape[2:], x.shape[2:],
                base.stride, base.padding, base.dilation, base.groups, np.dtype(np.float32),
            )  # fmt: skip
            biased = op.following[:1] == ((BIAS, 0.0, 0.0),)
            layer = onednn_layers.deconvolution(geometry, w.array, biased, following, self.packing)
            return self._step(node, op, layer, order)
        if max(getattr(base, "dilation", (1,))) > 1 or len(x.shape) != len(base.kernel) + 2:
            return None
        windows = Windows(
            x.shape[0] * x.shape[1], x.shape[2:], base.kernel, base.stride, base.padding,
            y.shape[2:],
        )  # fmt: skip
        largest = isinstance(base, MaxPool)
        layer = onednn_layers.pooling(x.shape[0], x.shape[1], windows, largest, following)
        return self._step(node, op, layer, order)

    def _dense(self, node: Node, op: Layer, geometry: Any, following: list[Any]) -> Step:
        """A convolution of images that are hardly larger than its kernel, as one product."""
        from ...backends.native.onednn import fused_layers as onednn_layers

        w, *bias = node.values[1 : op.own]
        positions = int(np.prod(geometry.count))
        repeated = None
        if bias:
            vector = self.packing.once(bias[0].array, positions, lambda x: np.tile(x, positions))
            repeated = Value(bias[0].spec.with_(shape=vector.shape), array=vector)
        return self._by_product(
            node, op, following, geometry.batch, w.array, str(replace(geometry, batch=0)),
            lambda w: onednn_layers.dense_weights(geometry, w), _last(len(node.output.shape)),
            repeated,
        )  # fmt: skip

    def _by_columns(self, node: Node, op: Layer, geometry: Any, following: list[Any]) -> Step:
        """A convolution as the product of its windows with the weights (im2col), which are read
        once.
        """
        from ...backends.native.onednn import fused_layers as onednn_layers

        x, w = node.values[:2]
        order = _last(len(node.output.shape))
        rows = geometry.batch * int(np.prod(geometry.count))
        windows = None
        if not onednn_layers.is_pointwise(geometry):
            windows = Value(x.spec.with_(shape=(rows, int(np.prod(w.shape[1:])))))
            self._allocate(windows, ())
            self.steps.append(WindowsStep(SAME, (self._moved_to(x, order),), (windows,), geometry))
        return self._by_product(
            node, op, following, rows, w.array, "rows", onednn_layers.window_weights, order,
            reads=windows,
        )  # fmt: skip

    def _step(
        self,
        node: Node,
        op: Layer,
        layer: Any,
        order: Order,
        bias: Value | None = None,
        reads: Value | None = None,
    ) -> Step:
        """The layer's step, behind the copies that bring its inputs into `order`. `bias` and
        `reads` replace the node's own bias and input.
        """
        from ...backends.native.onednn.fused_layers import FusedLayer as Connected

        own = op.own + (op.following[:1] == ((BIAS, 0.0, 0.0),))  # constants among them
        x, *constants = node.values[:own]
        moved = reads or self._moved_to(x, order)
        operands = [self._moved_to(v, order) for v in node.values[own:]]
        roles = {"x": moved, "y": node.output}
        if len(constants) > 1:
            roles["bias"] = bias or constants[1]
        roles.update((f"added{i}", v) for i, v in enumerate(operands))
        self._allocate(node.output, order)
        kind = LibraryStep if isinstance(layer, Connected) else PanelsStep
        return kind(op, (moved, *constants, *operands), node.outputs, layer, roles)

    def _moved_to(self, x: Value, order: Order) -> Value:
        """The value, or a copy of it, dense in this order of dimensions."""
        array = self._model[x]
        if (array.transpose(order) if order else array).flags.c_contiguous:
            return x
        moved = self._moved.get((x, order))
        if moved is None:
            moved = self._moved[x, order] = Value(x.spec)
            self._allocate(moved, order)
            self.steps.append(CopyStep(SAME, (x,), (moved,)))
        return moved

    # ---- memory ----------------------------------------------------------------------------------

    def _allocate(self, x: Value, order: Order) -> None:
        self.orders[x] = order
        self._model[x] = dense(self._nowhere.array(x.shape, x.spec.dtype.numpy), order)

    def _follow_destinations(self) -> None:
        """Update `roots` for values whose copies are elided, and for views of them."""
        for value, step, *_ in self.destinations:
            self.roots[value] = self.roots.get(step.outputs[0], step.outputs[0])
        self.roots.update((x, self.roots.get(root, root)) for x, root in self.roots.items())

    def _plan(self) -> None:
        """Compute lifetimes and offsets of the buffers."""
        begin = dict.fromkeys([x for x in self.graph.inputs if x not in self.placed], -1)
        end = dict.fromkeys(begin, -1)
        for i, step in enumerate(self.steps):
            for y in step.outputs:
                root = self.roots.get(y, y)
                if root not in self.placed:
                    begin.setdefault(root, i)
                    end[root] = i
            for x in step.values:
                root = self.roots.get(x, x)
                if root.array is None and root not in self.placed:
                    end[root] = i
        for y in self.graph.outputs:
            root = self.roots.get(y, y)
            if root.array is None and root not in self.placed:
                end[root] = len(self.steps)
        self.owners = list(begin)
        rows = self.graph.rows
        self.buffers = [
            buffers.Buffer(max(1, x.nbytes), begin[x], end[x], rows if has_rows(x, rows) else 0)
            for x in self.owners
        ]
        self.layout = buffers.plan(self.buffers, *(stretches(self.steps, rows) if rows else ()))
        self.numbers = {x: i for i, x in enumerate(self.owners)}


def shown(node: Node, arrays: Mapping[Value, Any]) -> tuple[Any, ...]:
    """The results of a node that shows its input's memory, on arrays."""
    op = node.op
    given = [arrays.get(x) if isinstance(x, Value) else x for x in node.inputs]
    if type(given[0]) is np.ndarray and not op.strict and op.n_outputs == 1:
        result = op.compute(namespace_of(given[0]), *given)
        if type(result) is np.ndarray:
            return (result,)
    result = run(op, given)
    return result if type(result) is tuple else (result,)


def dense(array: np.ndarray, order: Order) -> np.ndarray:
    """The memory of a row-major array, as an array of the same shape whose dimensions are in
    `order`.
    """
    if not order:
        return array
    shape = tuple(array.shape[a] for a in order)
    return array.reshape(-1)[: array.size].reshape(shape).transpose(np.argsort(order))


def _last(ndim: int) -> Order:
    """Channels-last order of an image's dimensions."""
    return (0, *range(2, ndim), 1)


def _is_last(array: np.ndarray) -> bool:
    return array.ndim >= 3 and bool(array.transpose(_last(array.ndim)).flags.c_contiguous)
