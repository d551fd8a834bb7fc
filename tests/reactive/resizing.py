"""Record a function on inputs of a graph, set these to other sizes, compare with eager values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.core.errors import AdjointError
from adjoint.ops.shape.sizes import is_of_graph
from adjoint.runtime.dispatch import apply


def sizes_to_try(
    shapes: list[tuple[int, ...]], dims: Any = None
) -> Iterator[list[tuple[int, ...]]]:
    """Other shapes for arguments of these: one dimension of the first, of all that have its size
    there, or every dimension of that size, is one greater, twice as great or one smaller;
    only of `dims`, where these are given.
    """
    seen = {tuple(shapes)}
    first = next((shape for shape in shapes if shape), ())
    for dim, size in enumerate(first):
        if size == 0 or (dims is not None and dim not in dims):
            continue
        for new in (size + 1, 2 * size, size - 1):
            if new < 1:
                continue
            alone = list(shapes)
            alone[shapes.index(first)] = (*first[:dim], new, *first[dim + 1 :])
            there = [
                (*s[:dim], new, *s[dim + 1 :]) if len(s) > dim and s[dim] == size else s
                for s in shapes
            ]
            everywhere = [tuple([new if n == size else n for n in s]) for s in shapes]
            for each in (alone, there, everywhere):
                if tuple(each) not in seen:
                    seen.add(tuple(each))
                    yield each


def resized(array: Any, shape: tuple[int, ...]) -> Any:
    """The array's values again and again, or the first of them, in another shape."""
    for dim, (old, new) in enumerate(zip(array.shape, shape, strict=True)):
        if old != new:
            array = array.take(np.arange(new) % old, axis=dim)
    return np.ascontiguousarray(array).reshape(shape)


def tensors_in(value: Any) -> list[Any]:
    """The tensors of a nested value, in order."""
    if isinstance(value, ad.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


def of_nodes(op: Any, inputs: list[Any]) -> Any:
    """What an op gives."""
    return apply(op, *inputs)


def loss_of(found: Any) -> Any:
    """A number that gradients flow back from; None where there are none."""
    total = None
    for y in tensors_in(found):
        if y.requires_grad:
            y = y.abs() if y.is_complex() else y
            part = (y * y * 0.5 + y).nan_to_num().sum().double()
            total = part if total is None else total + part
    return total


def run(function: Callable[..., Any], tensors: list[Any]) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = function(*tensors)
        return found, loss_of(found)


def values_of(found: Any, loss: Any, tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """Arrays of the results and of the gradients."""
    ys = [np.array(y.detach().resolve_conj().numpy()) for y in tensors_in(found)]
    if loss is None:
        return ys, []
    for t in tensors:
        t.grad = None
    loss.backward()
    return ys, [
        np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in tensors if t.requires_grad
    ]


def difference(have: Any, want: Any, compare: bool, nodes: list[bool]) -> str:
    """How they differ; empty where they do not. A result that is no node is a value of its own."""
    for what, mine, others in zip(("result", "gradient"), have, want, strict=True):
        if len(mine) != len(others):
            return f"{len(mine)} {what}s for {len(others)}"
        for i, (a, b) in enumerate(zip(mine, others, strict=True)):
            if what == "result" and not nodes[i]:
                continue
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{what} {i} is {a.dtype}{a.shape} for {b.dtype}{b.shape}"
            tolerance = 1e-4 if a.dtype.itemsize < 8 and a.dtype.kind == "f" else 1e-7
            if (
                compare
                and a.dtype.kind != "V"
                and not np.allclose(a, b, tolerance, tolerance, equal_nan=True)
            ):
                return f"{what} {i} differs"
    return ""


def check(
    function: Callable[..., Any],
    tensors: list[Any],
    compare: bool = True,
    most: int = 100,
    dims: Any = None,
) -> tuple[list[str], int, int]:
    """Where a living graph shows something else than eager execution in other sizes; how often it
    agreed, and how often it refused.
    """
    faults: list[str] = []
    agreed = refused = 0
    arrays = [np.array(t.detach().resolve_conj().numpy()) for t in tensors]
    wanted = [t.requires_grad for t in tensors]
    for shapes in list(sizes_to_try([a.shape for a in arrays], dims))[:most]:
        new = [resized(a, s) for a, s in zip(arrays, shapes, strict=True)]
        plain = [ad.tensor(a, requires_grad=r) for a, r in zip(new, wanted, strict=True)]
        try:
            want = values_of(*run(function, plain), plain)
        except Exception:
            continue  # not a call that one may write
        graph = ad.Graph()
        inputs = [graph.input(a, requires_grad=r) for a, r in zip(arrays, wanted, strict=True)]
        try:
            with graph:
                found, loss = run(function, inputs)
        except AdjointError:
            return [], 0, 1  # no graph takes it
        except Exception as error:
            return [f"not recorded: {type(error).__name__}: {error}"[:300]], agreed, refused
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with graph.batch():
                    for x, a in zip(inputs, new, strict=True):
                        x.set(a)
                have = values_of(found, loss, inputs)
        except (AdjointError, IndexError, ValueError):
            refused += 1
            graph.check_invariants()
            continue
        graph.check_invariants()
        wrong = difference(have, want, compare, [is_of_graph(y) for y in tensors_in(found)])
        if wrong:
            faults.append(f"{[a.shape for a in arrays]} -> {shapes}: {wrong}")
        else:
            agreed += 1
    return faults, agreed, refused
