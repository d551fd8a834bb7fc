"""Kernels, composites and products bound to arrays that stay where they are.

A program that runs many times on the same memory need not look at its arrays again: what a call
has to know of them is worked out once, here. Whoever calls what is returned keeps the arrays alive.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler import Compiled
from ...compiler.run import PAYLOAD
from ...core.compute import quietly
from .composite import Composite, NotTraceable
from .onednn_plan import planned, threads
from .products import _DTYPES, SMALL, _prepare, matmul

Call = Callable[[], object]


def bound_kernel(
    compiled: Compiled,
    arrays: Sequence[Any],
    outs: Sequence[Any],
    scalars: Sequence[float] = (),
    shape: Sequence[int] | None = None,
    run: Any = None,
) -> Call:
    """What computes `outs` from `arrays` by a kernel each time it is called.

    Errors: as for a call of the kernel.
    """
    entry: Any = compiled._prepare(arrays, outs, shape)
    if hasattr(entry, "resolve"):
        words = entry.head + entry.pack(*map(id, arrays), *map(id, outs), *scalars)
        if not entry.resolve(words):  # it has put the pointers into `words`, for good
            if run is not None and entry.chunks > 1:
                return lambda: run(entry.address, id(words) + PAYLOAD, entry.chunks)
            kernel = type(entry.launch)(entry.address)
            kernel.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p]
            kernel.restype = None
            first, last = ctypes.c_int64(0), ctypes.c_int64(entry.chunks)
            return functools.partial(kernel, first, last, words)
    options = {"out": tuple(outs), "scalars": scalars, "shape": shape, "run": run}
    return functools.partial(compiled, *arrays, **options)


def bound_composite(
    composite: Composite, arrays: Sequence[Any], outs: Sequence[Any]
) -> tuple[list[Call], list[Any]]:
    """What computes `outs` from `arrays` when called one after another, as often as wanted; and all
    arrays that must be kept alive as long.

    Errors: NotTraceable for composites that gather.
    """
    if composite.gathers:
        raise NotTraceable("gathers")
    known = list(arrays)
    for n, sizes in composite.squeezed:
        known[n] = known[n].reshape(sizes)
    results = {
        n: y.reshape(tuple(size for size in sizes if size != 1))
        for (n, sizes), y in zip(composite.outputs, outs, strict=True)
    }
    calls: list[Call] = []
    for stage in composite.stages:
        given = [known[n] for n in stage.arguments]
        count = len(stage.compiled.kernel.outputs)
        made = [results.get(n) for n in range(len(known), len(known) + count)]
        if any(y is None for y in made):  # what only later kernels read
            own = stage.compiled(*given, scalars=stage.numbers, shape=stage.shape)
            own = own if type(own) is tuple else (own,)
            made = [y if out is None else out for y, out in zip(own, made, strict=True)]
        known += made
        calls.append(
            bound_kernel(stage.compiled, given, made, stage.numbers, stage.shape, stage.run)
        )
    return calls, known


def bound_product(a: Any, b: Any, out: Any) -> Call:
    """What computes out = a @ b each time it is called."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    work = a.shape[-2] * a.shape[-1] * b.shape[-1] * math.prod(batch)
    if a.dtype in _DTYPES and work > SMALL and out.flags.c_contiguous:
        key = (
            "matmul", a.shape, a.strides, b.shape, b.strides, a.dtype.char, None, None, threads()
        )  # fmt: skip
        found = planned(key, lambda: _prepare(a, b, batch, None, None))
        if found is not None and not (found[1] or found[2]):
            return functools.partial(found[0].run, a, b, out)
    return functools.partial(quietly, matmul, a, b, out)
