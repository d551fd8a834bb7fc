"""Attention for eager execution: what its machine code is called with (see attention_code.py)."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import dtype as dt
from ....core import policy
from ....core.arrays import address as place_of
from ....core.arrays import addresses
from ....core.errors import NotTraceable, Unsupported
from ....core.sized_tables import SizedTable
from ....core.spec import Spec
from ..runtime.pool import default_pool
from . import attention_code as machine
from . import tile_passes

FLOAT32 = np.dtype(np.float32)
WIDENED = (dt.float32, dt.bfloat16, dt.float16)
SPAN_FEATURES = 512  # blocks times features: what a kernel has on its stack is proportional to it

Shape = tuple[int, ...]


def plan(specs: Sequence[Spec], statics: Sequence[Any], wants: Sequence[bool]) -> Attention:
    """The routine for `attention(query, key, value, mask, is_causal, factor)`.

    bfloat16 and float16 are widened. Errors: NotTraceable for float64, few queries, large heads,
    more than three dimensions of heads, a mask that wants a gradient.
    """
    try:
        return Attention(specs, statics[-2], statics[-1], wants)
    except Unsupported as error:
        raise NotTraceable(str(error)) from None


def _weigh(words: bytes) -> int:
    return policy.KEY_BYTES + len(words)


class Attention:
    """Attention of tensors of certain shapes."""

    several = False
    differentiable = (0,)

    def __init__(
        self, specs: Sequence[Spec], causal: bool, factor: float, wants: Sequence[bool]
    ) -> None:
        query, key, value, *masks = specs
        self.length, self.features = query.shape[-2:]
        self.source, self.columns = value.shape[-2:]
        sizes = (self.length, self.source, self.features, self.columns)
        dtype = query.dtype
        if dtype not in WIDENED or key.dtype is not dtype or value.dtype is not dtype:
            raise NotTraceable("attention of another dtype than float32")
        if key.shape[-2:] != (self.source, self.features) or len(query.shape) < 2:
            raise NotTraceable("shapes that do not fit")
        if min(sizes) < 1 or self.length < policy.ATTENTION_FEW or max(sizes[2:]) > machine.LARGEST:
            raise NotTraceable("few queries or large heads")
        self.heads = query.shape[:-2]
        if len(self.heads) > 3 or 0 in self.heads:
            raise NotTraceable("dimensions of heads")
        scores = (*self.heads, self.length, self.source)
        if dtype is not dt.float32 and any(wants) and math.prod(scores) < policy.ATTENTION_MANY:
            raise NotTraceable("narrow floats, of which the library's products are faster")
        self.narrow = None if dtype is dt.float32 else dtype.numpy
        if not all(_broadcasts(x, self.heads) for x in (key.shape[:-2], value.shape[:-2])):
            raise NotTraceable("keys or values of more heads than the queries")
        self.mask = machine.NO_MASK
        if masks:
            kinds = {dt.bool_: machine.BOOL_MASK, dtype: machine.FLOAT_MASK}
            if masks[0].dtype not in kinds or wants[3] or not _broadcasts(masks[0].shape, scores):
                raise NotTraceable("a mask of another dtype or shape, or that wants a gradient")
            self.mask = kinds[masks[0].dtype]
        self.wants, self.differentiates = tuple(wants), any(wants)
        self.outputs = (Spec((*query.shape[:-1], self.columns), dtype, query.device),)
        total = Spec((*self.heads, self.length, 1), dt.float32, query.device)
        self.kept = (total,) if self.differentiates else ()
        self.whole = self.length >= policy.ATTENTION_WHOLE
        self.code = machine.code()
        heads = math.prod(self.heads)
        whole = -(-self.length // tile_passes.BLOCK)
        blocks = min(
            policy.ATTENTION_SPAN,
            SPAN_FEATURES // max(sizes[2:]),
            heads * whole // policy.ATTENTION_CHUNKS,
        )
        blocks = max(1, min(blocks, whole))
        spans = -(-whole // blocks)
        chunks = policy.ATTENTION_CHUNKS
        self.groups = max(1, min(-(-chunks // heads), chunks // 2, spans))
        self.chunks = (heads * spans, heads * self.groups)
        self.sizes = (
            *(1, 1, 1, *self.heads)[-2:], *sizes, blocks * tile_passes.BLOCK, spans, self.groups,
            int(causal), self.mask, machine.bits(factor),
        )  # fmt: skip
        # All but addresses, by the arrays' strides.
        self.words = SizedTable("words of attention", _weigh)

    def run(self, address: int, chunks: int, arrays: list[Any]) -> None:
        """Run a kernel."""
        default_pool().run(address, self.words_of(address, arrays) + addresses(arrays), chunks)

    def words_of(self, address: int, arrays: Sequence[Any]) -> bytes:
        """The kernel's argument words for arrays with these strides, without the arrays' addresses,
        which come last.
        """
        key = tuple([x.strides for x in arrays])
        words = self.words.find(key)
        if words is None:
            steps = [step for x in arrays for step in _steps(x)]
            if address == self.code.backward:
                steps += [x.strides[0] for x in arrays[-2:]]  # from group to group
            words = struct.pack(f"{len(self.sizes) + len(steps)}q", *self.sizes, *steps)
            self.words.put(key, words)
        return words

    def forward(self, arrays: list[Any], into: Any = None) -> tuple[list[Any], list[Any]]:
        """The output; kept is the logarithm of each query's sum of exponentials."""
        query, key, value = map(self._rows, arrays[:3])
        shape = (*self.heads, self.length, self.columns)
        fits = into is not None and self.narrow is None and into[0].strides[-1] == FLOAT32.itemsize
        output = into[0] if fits else _empty(shape, query, inside=True)
        fits = into is not None and self.differentiates and into[1].flags.c_contiguous
        total = into[1] if fits else np.empty((*self.heads, self.length, 1), FLOAT32)
        mask = self._rows(self.masking(arrays[3])) if self.mask else query
        self.run(self.code.forward, self.chunks[0], [query, key, value, mask, output, total])
        return [self._narrowed(output)], [total] if self.differentiates else []

    def backward(
        self, arrays: list[Any], outputs: list[Any], kept: list[Any], gs: list[Any]
    ) -> list[Any]:
        """Gradients of the query, the key and the value."""
        query, key, value, output, grad = map(self._rows, (*arrays[:3], outputs[0], gs[0]))
        mask = self._rows(self.masking(arrays[3])) if self.mask else query
        query_grad, *parts = self._beside(query, key, value)
        operands = [query, key, value, mask, output, kept[0], grad, query_grad, *parts]
        self.run(self.code.backward, self.chunks[1], operands)
        grads = [
            query_grad,
            *(_summed(p, x.shape) for p, x in zip(parts, (key, value), strict=True)),
        ]
        return [self._narrowed(grads[n]) if wants else None for n, wants in enumerate(self.wants)]

    def _rows(self, x: Any) -> Any:
        """An array of float32 (or bools) whose rows are contiguous."""
        if x.dtype == self.narrow:
            x = x.astype(FLOAT32)
        return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)

    def masking(self, x: Any) -> Any:
        """A mask whose rows have all keys."""
        if x.ndim < 2:
            x = x.reshape(1, -1)
        if x.shape[-1] != self.source:
            x = np.broadcast_to(x, (*x.shape[:-1], self.source))
        return x

    def _narrowed(self, x: Any) -> Any:
        """A result, of the dtype of the inputs."""
        return x if self.narrow is None else x.astype(self.narrow)

    def _beside(self, query: Any, key: Any, value: Any) -> list[Any]:
        """Memory for the gradients: in one piece, where the inputs are what there is in one, so
        that nobody has to join them again.
        """
        if (
            self.groups == 1
            and self.features % machine.FILLED == 0 == self.columns % machine.FILLED
        ):
            gradients = _like(query, key, value)
            if gradients is not None:
                return [gradients[0], gradients[1][None], gradients[2][None]]
        return [_empty(query.shape, query), self._parts(key), self._parts(value)]

    def _parts(self, x: Any) -> Any:
        """Memory for the gradients of keys or values: one part for each group of queries, rows of
        vectors.
        """
        groups, *shape = self.shape_of_parts(x)
        return _empty(tuple(shape), x)[None] if groups == 1 else np.empty((groups, *shape), FLOAT32)

    def shape_of_parts(self, x: Any) -> Shape:
        """The groups, the heads, and rows of whole vectors."""
        width = -(-x.shape[-1] // machine.FILLED) * machine.FILLED
        return (self.groups, *self.heads, x.shape[-2], width)


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether an array of a shape broadcasts to another."""
    tail = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _empty(shape: Shape, like: Any, inside: bool = False) -> Any:
    """An array that lies in memory as `like` does, but without gaps.

    With `inside`, where `like` is contiguous: heads inside of positions, as models want it.
    """
    sizes, axes = _order(shape, like.strides, inside)
    return np.empty(sizes, FLOAT32).transpose(axes) if axes else np.empty(sizes, FLOAT32)


def _like(*arrays: Any) -> list[Any] | None:
    """Empty arrays that lie in one piece of memory as `arrays` do, if these are all of one."""
    base = arrays[0].base
    if type(base) is not np.ndarray or any(x.base is not base for x in arrays):
        return None
    start = place_of(base)
    places = tuple([(x.shape, x.strides, place_of(x) - start) for x in arrays])
    if not base.flags.c_contiguous or not _fills(places, base.nbytes):
        return None
    memory = np.empty(base.nbytes // FLOAT32.itemsize, FLOAT32)
    return [np.ndarray(shape, FLOAT32, memory, at, strides) for shape, strides, at in places]


@functools.lru_cache(maxsize=1024)
def _fills(places: tuple[tuple[Shape, Shape, int], ...], size: int) -> bool:
    """Whether arrays of float32 with these shapes, strides and starts share out so many bytes."""
    if sum(math.prod(shape) for shape, *_ in places) * FLOAT32.itemsize != size:
        return False
    taken = np.zeros(size // FLOAT32.itemsize, FLOAT32)
    for shape, strides, at in places:
        np.ndarray(shape, FLOAT32, taken, at, strides)[...] = 1
    return bool(taken.all())


@functools.lru_cache(maxsize=1024)
def _order(shape: Shape, strides: Shape, inside: bool) -> tuple[Shape, Shape | None]:
    """The shape to allocate, and how to transpose that."""
    rank = len(shape)
    order = [*range(rank)]
    if len(strides) == rank and 0 not in strides:
        order[:-1] = sorted(order[:-1], key=lambda axis: -strides[axis])
    if order == sorted(order) and inside and rank > 3:
        order[-3:-1] = rank - 2, rank - 3
    if order == sorted(order):
        return shape, None
    back = tuple(sorted(range(rank), key=order.__getitem__))
    return tuple(shape[axis] for axis in order), back


def _steps(x: Any) -> list[int]:
    """Strides over three dimensions of heads (if there are fewer, 0) and over rows."""
    steps = [0 if n == 1 else s for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True)]
    return [*(0,) * (4 - len(steps)), *steps[-4:]]


def _summed(parts: Any, shape: Shape) -> Any:
    """The gradient of an array of some shape that was broadcast to heads, of groups' parts."""
    axes = summed_axes(parts.shape, shape)
    parts = parts[..., : shape[-1]]
    if axes == (0,) and len(parts) == 1:
        return parts[0]
    return parts.sum(axes).reshape(shape)


def summed_axes(parts: Shape, shape: Shape) -> tuple[int, ...]:
    """Axes of the groups' partial gradients that are summed, because an array of some shape was
    broadcast over them.
    """
    lead = len(parts) - len(shape)
    spread = (n + lead for n, size in enumerate(shape[:-2]) if size != parts[n + lead])
    return (*range(lead), *spread)
