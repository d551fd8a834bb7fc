"""Compositions that are one operator in ONNX: batch and layer normalization.

A pattern names the result only; the nodes it makes superfluous go with the other dead ones.
"""

from __future__ import annotations

from typing import Any

from .capture import GraphValue
from .export import Exporter


def normalization(e: Exporter, v: GraphValue) -> str | None:
    """`v` as BatchNormalization or LayerNormalization, where it is (x - mean) * scale + bias."""
    if _kind(v) != "Add":
        return None
    for product, bias in (e.sources(v), e.sources(v)[::-1]):
        if _kind(product) != "Mul" or not isinstance(bias, GraphValue):
            continue
        factors = _factors(e, product)
        centred = [f for f in factors if _kind(f) == "Sub"]
        inverse = [f for f in factors if _kind(f) == "Rsqrt"]
        rest = [f for f in factors if _kind(f) not in ("Sub", "Rsqrt")]
        if len(centred) == len(inverse) == len(rest) == 1:
            found = _found(e, centred[0], inverse[0], rest[0], bias)
            if found is not None:
                return found
    return None


def _found(
    e: Exporter, centred: GraphValue, inverse: GraphValue, scale: GraphValue, bias: GraphValue
) -> str | None:
    x, mean = e.sources(centred)
    sums = e.sources(inverse)[0]
    if _kind(sums) != "Add" or not isinstance(x, GraphValue) or not isinstance(mean, GraphValue):
        return None
    variance, eps = e.sources(sums)
    if isinstance(eps, GraphValue) or not isinstance(variance, GraphValue) or x.dtype != bias.dtype:
        return None
    parts = [_vector(e, part) for part in (scale, bias, mean, variance)]
    channels = (*x.shape[1:2], *(1,) * (len(x.shape) - 2))
    if None not in parts and len(x.shape) > 1 and mean.shape == channels == bias.shape:
        names = [e.name(part) for part in (x, *parts)]
        return e.emit("BatchNormalization", names, epsilon=eps)
    if _kind(mean) != "Mean" or e.sources(mean)[0] != x or _kind(variance) != "Mean":
        return None
    square = e.sources(variance)[0]
    axes = mean.attribute("axes")
    trailing = tuple(range(len(x.shape) - len(axes), len(x.shape)))
    if (
        _kind(square) == "Mul"
        and e.sources(square) == (centred, centred)
        and axes == variance.attribute("axes") == trailing
        and scale.shape == bias.shape == x.shape[-len(axes) :]
        and _kind(scale) is _kind(bias) is None
    ):
        names = [e.name(part) for part in (x, scale, bias)]
        return e.emit("LayerNormalization", names, axis=-len(axes), epsilon=eps)
    return None


def _kind(v: Any) -> str | None:
    """The name of the op of a value; None for what was given."""
    return type(v.op).__name__ if isinstance(v, GraphValue) and v.op is not None else None


def _factors(e: Exporter, v: GraphValue) -> list[GraphValue]:
    """The values whose product `v` is; reshaped ones without their reshaping."""
    if _kind(v) == "Reshape" and _kind(e.sources(v)[0]) in ("Mul", "Rsqrt"):
        return _factors(e, e.sources(v)[0])
    sources = e.sources(v) if _kind(v) == "Mul" else ()
    if sources and all(isinstance(x, GraphValue) for x in sources):
        return [f for x in sources for f in _factors(e, x)]
    return [v]


def _vector(e: Exporter, v: GraphValue) -> GraphValue | None:
    """The given vector that `v` is, or is reshaped from."""
    if _kind(v) == "Reshape":
        v = e.sources(v)[0]
    return v if v.op is None and v.each[0].array is not None and len(v.shape) == 1 else None
