"""Ops on large arrays by generated kernels: what eager execution asks before NumPy."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler import Compiled
from ...core import compute as core_compute
from ...core.compute import quietly, spec_of
from ...core.dtype import bfloat16
from ...core.errors import AdjointError
from ...core.op import Op
from ...core.spec import Spec, broadcast_shapes
from . import block_cache, names, onednn, products
from .launch import Launcher, launcher
from .pool import default_pool
from .tracing import NotTraceable, Traced, Tracer

ndarray = np.ndarray
PARALLEL = 32768  # elements from which threads share the work
PATIENCE = 3  # attempts at kernels for an op, until it is left to NumPy where arrays are small
_REMEMBERED = 4096

_FLOAT32 = np.dtype(np.float32)
_programs: dict[Any, Program | None] = {}  # None: NumPy's
_failures: dict[type[Op], float] = {}  # how often no kernel was made
_shared: list[Op] = []  # those whose launchers are known by their identity: they stay


class Program:
    """One op on arrays of given shapes and dtypes, as a kernel."""

    __slots__ = (
        "compiled",
        "launchers",
        "numbers",
        "op",
        "ordered",
        "parallel",
        "several",
        "shapes",
        "simple",
    )

    def __init__(self, op: Op, arrays: Sequence[Any]) -> None:
        self.op = op
        shapes = [a.shape for a in arrays if type(a) is ndarray]
        tracer = Tracer(broadcast_shapes(*shapes))
        symbols = [tracer.input(a.shape, a.dtype) if type(a) is ndarray else a for a in arrays]
        found = op.compute(tracer.names, *symbols)
        specs = op.infer(*map(spec_of, arrays))
        self.several = not isinstance(specs, Spec)
        outputs = found if self.several else (found,)
        self.shapes = []
        for y, spec in zip(outputs, specs if self.several else (specs,), strict=True):
            if not isinstance(y, Traced) or math.prod(y.shape) != math.prod(spec.shape):
                raise NotTraceable("a result that is no array")
            if tracer.ordered and (y.shape != spec.shape or tracer.space != spec.shape):
                raise NotTraceable("an order of memory of another shape")
            if list(y.dims) != sorted(y.dims):
                raise NotTraceable("a transposed result")
            tracer.kernel.output(y.value, str(spec.dtype.numpy))
            self.shapes.append(spec.shape)
        self.numbers = tracer.numbers
        self.ordered = tracer.ordered
        self.compiled = Compiled(tracer.kernel)
        self.parallel = math.prod(tracer.space) >= PARALLEL
        self.launchers: dict[Any, Launcher | None] = {}  # by the arrays' strides

    def __call__(self, op: Op, arrays: Sequence[Any]) -> Any:
        """The result; `op` is equal to the one that the program was made of."""
        given = [a for a in arrays if type(a) is ndarray]
        key = tuple([a.strides for a in given])
        launch = self.launchers.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            if len(self.launchers) >= _REMEMBERED:
                self.launchers.clear()
            launch = self.launchers[key] = launcher(
                self.compiled,
                given,
                self.shapes,
                scalars=self.numbers,
                parallel=self.parallel,
                outs=self._outs(given),
            )
        found = None if launch is None else launch(*given)
        if found is not None:
            if op is self.op:
                _remember(op, arrays, launch, found)
            return found
        return self._general(given)

    def _outs(self, given: Sequence[Any]) -> Any:
        """Row-major outputs, where the order of memory matters."""
        return [np.empty(shape, given[0].dtype) for shape in self.shapes] if self.ordered else None

    def _general(self, given: Sequence[Any]) -> Any:
        """By a call of the kernel."""
        run = default_pool().run if self.parallel else None
        found = self.compiled(*given, out=self._outs(given), scalars=self.numbers, run=run)
        found = found if isinstance(found, tuple) else (found,)
        found = tuple([y.reshape(shape) for y, shape in zip(found, self.shapes, strict=True)])
        return found if self.several else found[0]


def _remember(op: Op, arrays: Sequence[Any], launch: Launcher, found: Any) -> None:
    """Let eager execution call the launcher of an op that is kept for good, as those without fields
    are, with arrays of these shapes and the same numbers.
    """
    key = (id(op), *[a.shape if type(a) is ndarray else a for a in arrays])
    if any(type(a) is not ndarray and not a for a in arrays):
        return  # 0.0 and -0.0 are equal
    if len(_shared) >= _REMEMBERED:
        core_compute.launchers.clear()
        _shared.clear()
    _shared.append(op)
    outputs = found if type(found) is tuple else (found,)
    if any(y.nbytes >= block_cache.SMALLEST // 2 for y in outputs):
        launch = functools.partial(quietly, launch)
    core_compute.launchers[key] = launch


def accelerate(op: Op, arrays: Sequence[Any]) -> Any:
    """What `op` gives for NumPy arrays, by a library or a kernel; NotImplemented for what NumPy is
    to compute.
    """
    if op.library == "moves":
        if not op.exact and arrays[0].itemsize == 2:
            return NotImplemented
        return quietly(op.compute, names, *arrays)
    if op.library in products.LAUNCHERS:
        return products.accelerate(op, arrays, names)
    if op.library:
        dtype = arrays[0].dtype
        if dtype != _FLOAT32 and (dtype != bfloat16.numpy or not _takes_narrow(op)):
            return NotImplemented
        return products.computed(op, arrays, names)
    try:
        key = (op, *[(a.shape, a.dtype) if type(a) is ndarray else _number(a) for a in arrays])
        program = _programs.get(key, _UNKNOWN)
    except TypeError:
        return NotImplemented
    if program is _UNKNOWN:
        program = _prepare(op, arrays)
        if len(_programs) >= _REMEMBERED:
            _programs.clear()
        _programs[key] = program
    return NotImplemented if program is None else quietly(program, op, arrays)


def _takes_narrow(op: Op) -> bool:
    """Whether the library computes bfloat16, accumulated in float32: convolutions."""
    return onednn.unavailable() is None and "convolution" in op.name


def _number(value: Any) -> Any:
    sign = math.copysign(1, value) if type(value) is float else 1  # 0.0 == -0.0
    return (type(value), value, sign)


_UNKNOWN: Any = object()
_NOT_KNOWN = (
    NotTraceable, AdjointError, AttributeError, IndexError, KeyError, TypeError, ValueError,
)  # fmt: skip


def _prepare(op: Op, arrays: Sequence[Any]) -> Program | None:
    if op.view or hasattr(op, "draw"):
        core_compute.unknown.add(type(op))
        return None
    if not all(map(_is_usable, arrays)):
        return None
    kind = type(op)
    try:
        program = Program(op, arrays)
    except _NOT_KNOWN:
        # It does what the tracer does not know; perhaps always.
        _failures[kind] = _failures.get(kind, 0) + 1
        if _failures[kind] == PATIENCE:
            core_compute.unknown.add(kind)
        return None
    _failures[kind] = -math.inf
    return program


def _is_usable(x: Any) -> bool:
    if type(x) is not ndarray:
        return isinstance(x, (bool, int, float))
    return bool(x.dtype.kind != "c" and x.dtype.isnative)


def _after_fork() -> None:
    """Let the next call start the child's threads."""
    _programs.clear()
    core_compute.launchers.clear()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
