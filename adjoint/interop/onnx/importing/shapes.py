"""ONNX's constants and operators on shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.dtype import from_numpy_dtype
from ....ops.create.creation import full
from .imported_node import F, ImportedNode, ad, axes_of, axis_in, host, ints, operator, t


@operator("Constant")
def _(n: ImportedNode) -> Any:
    for name, dtype in (("value", None), ("value_float", np.float32), ("value_floats", np.float32),
                        ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if name in n.attributes:
            return np.array(n.attributes[name], dtype)
    raise n.unsupported("a constant of this kind")


@operator("ConstantOfShape")
def _(n: ImportedNode, shape: Any) -> Any:
    sizes = ints(shape)
    n.check_size(sizes)
    value = n.get("value")
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return full(sizes, fill[0].item(), dtype=from_numpy_dtype(fill.dtype))


@operator("Range")
def _(n: ImportedNode, start: Any, stop: Any, step: Any) -> Any:
    first, last, by = (host(x).reshape(()) for x in (start, stop, step))
    count = max(math.ceil((last.item() - first.item()) / by.item()), 0)
    n.check_size([count])
    return (first + np.arange(count) * by).astype(first.dtype)


operator("Shape")(lambda n, x: np.array(x.shape, np.int64)[n.get("start", 0) : n.get("end")])
operator("Size")(lambda n, x: np.array(math.prod(x.shape), np.int64))


@operator("Reshape")
def _(n: ImportedNode, x: Any, shape: Any = None) -> Any:
    sizes = n.get("shape") if shape is None else ints(shape)
    if not n.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return t(x).reshape(sizes)


@operator("Flatten")
def _(n: ImportedNode, x: Any) -> Any:
    axis = n.get("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise IndexError(f"axis {axis} of a tensor of {x.ndim} dimensions")
    axis = axis + x.ndim if axis < 0 else axis
    return t(x).reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


operator("Transpose")(lambda n, x: t(x).permute(n.get("perm", list(range(x.ndim))[::-1])))


@operator("Squeeze")
def _(n: ImportedNode, x: Any, axes: Any = None) -> Any:
    found = axes_of(n, axes, x.ndim)
    if found is None:
        return t(x).squeeze()
    if any(x.shape[axis] != 1 for axis in found):
        raise ValueError(f"squeezing axes {found} of shape {tuple(x.shape)}")
    return t(x).reshape([size for i, size in enumerate(x.shape) if i not in found])


@operator("Unsqueeze")
def _(n: ImportedNode, x: Any, axes: Any = None) -> Any:
    given = n.get("axes") if axes is None else ints(axes)
    rank = x.ndim + len(given)
    places = {axis_in(axis, rank) for axis in given}
    if len(places) != len(given):
        raise ValueError(f"axes {given} repeat")
    rest = iter(x.shape)
    return t(x).reshape([1 if i in places else next(rest) for i in range(rank)])


operator("Concat")(lambda n, *xs: ad.cat([t(x) for x in xs], axis_in(n.get("axis"), xs[0].ndim)))


@operator("Split")
def _(n: ImportedNode, x: Any, sizes: Any = None) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    given = n.get("split") if sizes is None else ints(sizes)
    if given is None:
        count = len(n.outputs)
        each = -(-x.shape[axis] // count)
        given = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return tuple(ad.split(t(x), given, axis))


@operator("Slice", tensors=1)
def _(n: ImportedNode, x: Any, *given: Any) -> Any:
    given += (None,) * (4 - len(given))
    starts, ends, axes, steps = (
        n.get(name) if each is None else ints(each)
        for name, each in zip(("starts", "ends", "axes", "steps"), given, strict=True)
    )
    axes = list(range(len(starts))) if axes is None else axes
    key: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        axis = axis_in(axis, x.ndim)
        places = range(*slice(start, end, step).indices(x.shape[axis]))
        if step > 0:
            key[axis] = slice(places.start, max(places.stop, places.start), step)
        else:
            x = x.index_select(axis, t(np.array(places, np.int64)))
    return x[tuple(key)]


@operator("Expand")
def _(n: ImportedNode, x: Any, shape: Any) -> Any:
    sizes = np.broadcast_shapes(tuple(x.shape), tuple(ints(shape)))
    n.check_size(sizes)
    return t(x).expand(sizes)


@operator("Tile")
def _(n: ImportedNode, x: Any, repeats: Any) -> Any:
    counts = ints(repeats)
    n.check_size([a * b for a, b in zip(x.shape, counts, strict=True)])
    return t(x).repeat(counts)


@operator("Pad", tensors=1)
def _(n: ImportedNode, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    given = n.get("pads") if pads is None else ints(pads)
    places = list(range(x.ndim)) if axes is None else [axis_in(a, x.ndim) for a in ints(axes)]
    if len(given) != 2 * len(places):
        raise ValueError(f"{len(given)} pads for {len(places)} axes")
    pairs = {axis: (given[i], given[i + len(places)]) for i, axis in enumerate(places)}
    n.check_size([size + sum(pairs.get(i, ())) for i, size in enumerate(x.shape)])
    mode = n.get("mode", "constant")
    if mode == "constant":
        fill = n.get("value", 0.0) if value is None else host(value).reshape(()).item()
        flat = [pad for i in reversed(range(x.ndim)) for pad in pairs.get(i, (0, 0))]
        return F.pad(x, flat, value=fill)
    for axis, (low, high) in pairs.items():
        if low or high:
            size = x.shape[axis]
            kept = np.arange(size)[max(-low, 0) : size - max(-high, 0)]
            wide = np.pad(kept, (max(low, 0), max(high, 0)), mode=mode)
            x = x.index_select(axis, t(wide))
    return x


@operator("Trilu")
def _(n: ImportedNode, x: Any, k: Any = None) -> Any:
    diagonal = 0 if k is None else int(host(k).reshape(()))
    return (ad.triu if n.get("upper", 1) else ad.tril)(t(x), max(min(diagonal, 1 << 40), -1 << 40))


@operator("DepthToSpace")
def _(n: ImportedNode, x: Any) -> Any:
    b, c, h, w = x.shape
    r = n.get("blocksize")
    if n.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(t(x), r)
    parts = t(x).reshape(b, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(b, c // (r * r), h * r, w * r)


@operator("SpaceToDepth")
def _(n: ImportedNode, x: Any) -> Any:
    b, c, h, w = x.shape
    r = n.get("blocksize")
    parts = t(x).reshape(b, c, h // r, r, w // r, r)
    first = n.get("mode", "DCR") == "CRD"  # channels before the places in a block
    parts = parts.permute(0, 1, 3, 5, 2, 4) if first else parts.permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(b, c * r * r, h // r, w // r)


@operator("EyeLike")
def _(n: ImportedNode, x: Any) -> Any:
    rows, columns = x.shape
    dtype = t(x).dtype.numpy if n.get("dtype") is None else n.dtype("dtype")
    return np.eye(rows, columns, n.get("k", 0)).astype(dtype)
