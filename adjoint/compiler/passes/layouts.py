"""Blocked layouts: images in blocks of channels, as oneDNN's convolutions want them, from layer to
layer.

An image (n, channels, *size) in blocks of b is an array (n, channels / b, *size, b). A pass
rewrites convolutions, and the ops between them, to such arrays. At the border to other ops images
are converted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import native
from ...core import policy
from ...core.op import Op
from ...core.spec import Spec, prod
from ...ir.compute import compute
from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.pointwise import Elementwise
from ...ops.nn.convolution import Convolution, ConvolutionInput, ConvolutionOp
from ...ops.promotion import Cast
from ...ops.reduce.reduction import Reduction
from ...ops.shape.movement import Expand, Reshape

Shape = tuple[int, ...]


def in_blocks(shape: Shape, block: int) -> Shape:
    """The shape of an image in blocks of channels; an image of one channel has no blocks."""
    n, channels, *size = shape
    return (n, 1, *size, 1) if channels == 1 else (n, channels // block, *size, block)


def as_plain(shape: Shape) -> Shape:
    """The shape of an image whose shape in blocks is this one."""
    n, blocks, *size, block = shape
    return n, blocks * block, *size


@dataclass(eq=False, repr=False)
class Blocked(Op, abstract=True):
    """Conversion of an image to blocks of channels."""

    block: int

    def infer(self, x: Spec) -> Spec:
        """Spec with the channels in two dimensions."""
        return x.with_(shape=in_blocks(x.shape, self.block))

    def compute(self, xp: Any, x: np.ndarray) -> np.ndarray:
        """A view; the step that stores it copies."""
        n, channels, *size = x.shape
        parts = x.reshape(n, channels // self.block, self.block, *size)
        return np.moveaxis(parts, 2, -1)


@dataclass(eq=False, repr=False)
class Unblocked(Op, abstract=True):
    """Conversion of an image from blocks of channels."""

    def infer(self, x: Spec) -> Spec:
        """Spec with the channels in one dimension."""
        return x.with_(shape=as_plain(x.shape))

    def compute(self, xp: Any, x: np.ndarray) -> np.ndarray:
        """Copy the image."""
        return np.ascontiguousarray(np.moveaxis(x, -1, 2)).reshape(as_plain(x.shape))


@dataclass(eq=False, repr=False)
class BlockedConvolution(Op, abstract=True):
    """A convolution, or a transpose of one, whose images or values or both are in blocks of this
    size (0: not in blocks); weights are never.
    """

    base: ConvolutionOp
    images: int
    values: int
    library = "always"

    @property
    def name(self) -> str:
        """Name of the base."""
        return self.base.name

    def roles(self) -> tuple[int, ...]:
        """Block sizes of the two inputs, then of the output."""
        if isinstance(self.base, Convolution):
            return self.images, 0, self.values
        if isinstance(self.base, ConvolutionInput):
            return self.values, 0, self.images
        return self.images, self.values, 0

    def specs(self, x: Spec, y: Spec) -> tuple[Spec, Spec]:
        """Specs of the two inputs without blocks."""
        plain = (
            spec.with_(shape=as_plain(spec.shape)) if block else spec
            for spec, block in zip((x, y), self.roles(), strict=False)
        )
        return next(plain), next(plain)

    def infer(self, x: Spec, y: Spec, *bias: Spec) -> Spec:
        """Spec of the base's output, perhaps in blocks."""
        spec_out = self.base.infer(*self.specs(x, y), *bias)
        block = self.roles()[2]
        assert isinstance(spec_out, Spec)
        return spec_out.with_(shape=in_blocks(spec_out.shape, block)) if block else spec_out

    def compute(self, xp: Any, x: np.ndarray, y: np.ndarray, *bias: Any) -> np.ndarray:
        """Compute the base on plain arrays."""
        plain = [
            Unblocked().compute(xp, v) if block else v
            for v, block in zip((x, y), self.roles(), strict=False)
        ]
        result = compute(self.base, [*plain, *bias])
        block = self.roles()[2]
        return np.ascontiguousarray(Blocked(block).compute(xp, result)) if block else result


# ---- the pass ------------------------------------------------------------------------------------


@rewriting
def block_layouts(graph: Program) -> int:
    """Convert convolutions, and the elementwise ops and sums between them, to images in blocks of
    channels, where that saves more than the conversions at the borders cost. Returns how many
    convolutions.
    """
    if not native.load():
        return 0
    from ...backends.native.onednn import eager_convolution

    block = eager_convolution.block()
    return _Change(graph, block).made if block else 0


def _elements(x: Value) -> int:
    return prod(x.shape)


class _Change:
    """State of the pass on one graph."""

    def __init__(self, graph: Program, block: int) -> None:
        self.graph, self.block, self.made = graph, block, 0
        self.home: dict[Value, Value] = {}  # union-find of images: one of the same group, or itself
        self.convolutions: dict[Node, BlockedConvolution] = {}
        self.users, self.outputs = graph.users(), set(graph.outputs)
        if not any(isinstance(node.op, ConvolutionOp) for node in graph.nodes):
            return
        for node in graph.nodes:
            self._relate(node)
        if self.convolutions:
            chosen = self._chosen()
            if chosen:
                self._rewrite(chosen)

    # Images that are in blocks together

    def _is_image(self, x: object) -> bool:
        return isinstance(x, Value) and len(x.shape) in (3, 4, 5) and self._fits(x.shape[1])

    def _fits(self, channels: int) -> bool:
        return channels > 0 and channels % self.block == 0

    def _find(self, x: Value) -> Value:
        while self.home.setdefault(x, x) is not x:
            x = self.home[x]
        return x

    def _join(self, values: list[Value]) -> None:
        first = self._find(values[0])
        for x in values[1:]:
            self.home[self._find(x)] = first

    def _relate(self, node: Node) -> None:
        """Join the images that a node reads or computes to one group, if it can work on blocks."""
        op = node.op
        if isinstance(op, ConvolutionOp):
            blocked = self._convolution(node)
            if blocked is not None:
                self.convolutions[node] = blocked
                self._join(self._images(node))
        elif self._follows(node):
            images = [x for x in node.values if self._is_image(x)]
            rank = max(len(x.shape) for x in images)
            images += [y for y in node.outputs if self._is_image(y)]
            self._join([x for x in images if len(x.shape) == rank])

    def _images(self, node: Node) -> list[Value]:
        """The images of a convolution that would be in blocks."""
        roles = self.convolutions[node].roles()
        return [x for x, b in zip((*node.values[:2], node.output), roles, strict=True) if b]

    def _convolution(self, node: Node) -> BlockedConvolution | None:
        """The blocked convolution that replaces a node; None where oneDNN cannot compute it on
        blocks.
        """
        from ...backends.native.onednn import eager_convolution

        op: Any = node.op
        values = (*node.values[:2], node.output)
        order = "xwy" if type(op) is Convolution else "xyw"
        of = dict(zip("ywx" if type(op) is ConvolutionInput else order, values, strict=True))
        if op.groups != 1 or any(x.spec.dtype.name != "float32" or 0 in x.shape for x in values):
            return None
        if of["x"].shape[0] < policy.BLOCKED_IMAGES or _elements(of["w"]) > policy.BLOCKED_WEIGHTS:
            return None
        images, values_block = (self.block if self._is_image(of[k]) else 0 for k in "xy")
        if not images and not values_block:
            return None
        made = BlockedConvolution(op, images, values_block)
        bias = len(node.values) > 2
        shapes = of["x"].shape, of["w"].shape, of["y"].shape
        plan = eager_convolution.plan_of_blocks(op, *shapes, bias, (images, values_block))
        return None if plan is None else made

    def _follows(self, node: Node) -> bool:
        """Whether a node can be rewritten to work on blocks of the images that it reads."""
        op, images = node.op, [x for x in node.values if self._is_image(x)]
        if len(node.outputs) != 1 or not images:
            return False
        y = node.output
        if isinstance(op, Reduction):
            return 1 not in op.axes and len(node.inputs) == 1
        if isinstance(op, Expand):
            return self._is_image(y) and len(y.shape) == len(images[0].shape)
        if not isinstance(op, (Elementwise, Cast)) or not self._is_image(y):
            return False
        return all(self._converts(x, y) for x in node.values)

    def _converts(self, x: Value, y: Value) -> bool:
        """Whether an operand of images `y` can be in blocks, or broadcasts over them."""
        lead = len(y.shape) - len(x.shape)
        return lead > 1 or x.shape[1 - lead] in (1, y.shape[1])

    # Choice of groups

    def _chosen(self) -> set[Value]:
        """Groups of images for which fewer elements are converted at borders than convolutions
        would convert themselves.
        """
        gain: dict[Value, int] = {}
        for node in self.convolutions:
            for x in self._images(node):
                group = self._find(x)
                gain[group] = gain.get(group, 0) + _elements(x)
        for x in self.home:
            group = self._find(x)
            if group in gain and prod(x.shape[2:]) > 1:
                gain[group] -= policy.BLOCKED_BORDER * _elements(x) * self._crosses(x)
        return {group for group, more in gain.items() if more > 0}

    def _crosses(self, x: Value) -> int:
        """Number of times that an image is converted at the border of its group."""
        made_outside = x.node is None or not self._is_written(x.node)
        read = x in self.outputs or any(not self._is_written(u) for u in self.users.get(x, ()))
        return made_outside + read

    def _is_written(self, node: Node) -> bool:
        return node in self.convolutions or self._follows(node)

    # Rewriting

    def _rewrite(self, chosen: set[Value]) -> None:
        self.nodes: list[Node] = []
        self.blocked: dict[Value, Value] = {}  # values in blocks, by the value before the pass
        self.plain: dict[Value, Value] = {}  # values without blocks, likewise
        members = {x for x in self.home if self._find(x) in chosen}
        for node in self.graph.nodes:
            if node in self.convolutions and not members.isdisjoint(self._images(node)):
                self._write_convolution(node)
            elif self._follows(node) and any(x in members for x in (*node.values, *node.outputs)):
                self._write(node)
            else:
                node.inputs = tuple(self._as_plain(x) for x in node.inputs)
                self.nodes.append(node)
        self.graph.outputs = [self._as_plain(y) for y in self.graph.outputs]
        self.graph.nodes = self.nodes

    def _add(self, op: Op, *inputs: Any) -> Value:
        node = make(op, *inputs)
        self.nodes.append(node)
        return node.output

    def _as_plain(self, x: object) -> Any:
        """A value without blocks, converted back if it is in blocks."""
        if not isinstance(x, Value) or (x not in self.plain and x not in self.blocked):
            return x
        if x not in self.plain:
            source = self.blocked[x]
            few = prod(x.shape[2:]) == 1
            self.plain[x] = self._add(Reshape(x.shape) if few else Unblocked(), source)
        return self.plain[x]

    def _in_blocks(self, x: Value) -> Value:
        """An image in blocks, converted if it is not."""
        if x not in self.blocked:
            few = prod(x.shape[2:]) == 1
            op = Reshape(in_blocks(x.shape, self.block)) if few else Blocked(self.block)
            self.blocked[x] = self._add(op, self.plain.setdefault(x, x))
        return self.blocked[x]

    def _write_convolution(self, node: Node) -> None:
        op = self.convolutions[node]
        roles = op.roles()
        inputs = [
            self._in_blocks(x) if block else self._as_plain(x)
            for x, block in zip(node.values[:2], roles, strict=False)
        ]
        y = self._add(op, *inputs, *map(self._as_plain, node.values[2:]))
        (self.blocked if roles[2] else self.plain)[node.output] = y
        self.made += 1

    def _write(self, node: Node) -> None:
        op, y = node.op, node.output
        if isinstance(op, Reduction):
            [x] = node.values
            if op.keepdims:
                self.blocked[y] = self._add(op, self._in_blocks(x))
            else:
                kept = self._add(replace(op, keepdims=True), self._in_blocks(x))
                self.plain[y] = self._without(kept, y)
            return
        if isinstance(op, Expand):
            op = Expand(in_blocks(y.shape, self.block))
        inputs = [self._operand(x, y) if isinstance(x, Value) else x for x in node.inputs]
        self.blocked[y] = self._add(op, *inputs)

    def _without(self, kept: Value, y: Value) -> Value:
        """Result of a sum over images in blocks, converted back to the shape of `y`."""
        few = prod(kept.shape[2:-1]) == 1
        whole = kept if few else self._add(Unblocked(), kept)
        return self._add(Reshape(y.shape), whole)

    def _operand(self, x: Value, y: Value) -> Value:
        """An operand that broadcasts to images `y` in blocks."""
        if self._is_image(x) and len(x.shape) == len(y.shape):
            return self._in_blocks(x)
        x = self._as_plain(x)
        if not x.shape:
            return x
        shape = (1,) * (len(y.shape) - len(x.shape)) + x.shape
        blocked_shape = in_blocks(shape, self.block)
        if shape[1] == 1 or prod(shape[2:]) == 1:
            return self._add(Reshape(blocked_shape), x)
        whole = x if x.shape == shape else self._add(Reshape(shape), x)
        return self._add(Blocked(self.block), whole)
