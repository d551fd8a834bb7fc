"""Ops on large arrays by generated kernels: what eager execution asks before NumPy."""

from __future__ import annotations

import math
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
from . import names, onednn
from .launch import Launcher, launcher
from .pool import default_pool
from .tracing import NotTraceable, Traced, Tracer

ndarray = np.ndarray
CHEAP = core_compute.CHEAP
PARALLEL = 32768  # elements from which threads share the work
_REMEMBERED = 4096

_FLOAT32 = np.dtype(np.float32)
_programs: dict[Any, Program | None] = {}  # None: NumPy's
_shared: list[Op] = []  # those whose launchers are known by their identity: they stay


class Program:
    """One op on arrays of given shapes and dtypes, as a kernel."""

    __slots__ = ("compiled", "launch", "numbers", "op", "run", "shapes")

    launch: Launcher | None  # for arrays that lie in memory as those of the last call did

    def __init__(self, op: Op, arrays: Sequence[Any]) -> None:
        self.op = op
        shapes = [a.shape for a in arrays if type(a) is ndarray]
        tracer = Tracer(broadcast_shapes(*shapes))
        symbols = [tracer.input(a.shape, a.dtype) if type(a) is ndarray else a for a in arrays]
        found = op.compute(tracer.names, *symbols)
        specs = op.infer(*map(spec_of, arrays))
        several = not isinstance(specs, Spec)
        outputs = found if several else (found,)
        self.shapes = []
        for y, spec in zip(outputs, specs if several else (specs,), strict=True):
            if not isinstance(y, Traced) or math.prod(y.shape) != math.prod(spec.shape):
                raise NotTraceable("a result that is no array")
            if list(y.dims) != sorted(y.dims):
                raise NotTraceable("a transposed result")
            tracer.kernel.output(y.value, str(spec.dtype.numpy))
            self.shapes.append(spec.shape)
        self.numbers = tracer.numbers
        self.compiled = Compiled(tracer.kernel)
        self.run = default_pool().run if math.prod(tracer.space) >= PARALLEL else None
        self.launch = None

    def __call__(self, op: Op, arrays: Sequence[Any]) -> Any:
        """The result; `op` is equal to that of the program."""
        given = [a for a in arrays if type(a) is ndarray]
        if self.launch is not None:
            found = self.launch(*given)
            if found is not None:
                return found
        found = self._general(given)
        self.launch = launcher(
            self.compiled, given, self.shapes, scalars=self.numbers, parallel=self.run is not None
        )
        return found
def accelerate(op: Op, arrays: Sequence[Any]) -> Any:
    """What `op` gives for NumPy arrays, by a library or a kernel; NotImplemented for what NumPy is
    to compute.
    """
    if op.library:
        dtype = arrays[0].dtype
        if dtype != _FLOAT32 and (dtype != bfloat16.numpy or not _takes_narrow(op)):
            return NotImplemented
        return quietly(op.compute, names, *arrays)
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
    return NotImplemented if program is None else quietly(program, arrays)


def _takes_narrow(op: Op) -> bool:
    """Whether the library computes bfloat16, accumulated in float32: products and convolutions."""
    return onednn.unavailable() is None and (op.library == "large" or "convolution" in op.name)


def _number(value: Any) -> Any:
    return (type(value), value)


_UNKNOWN: Any = object()


def _prepare(op: Op, arrays: Sequence[Any]) -> Program | None:
    if op.view or hasattr(op, "draw") or not all(map(_is_usable, arrays)):
        return None
    try:
        program = Program(op, arrays)
    except (NotTraceable, AdjointError, TypeError, AttributeError, ValueError, IndexError):
        return None  # it does what the tracer does not know
    size = max(a.size for a in arrays if type(a) is ndarray)
    cheap = program.compiled._cost < 4 and not program.compiled.kernel.reduced
    return None if cheap and size <= CHEAP else program


def _is_usable(x: Any) -> bool:
    if type(x) is not ndarray:
        return isinstance(x, (bool, int, float))
    return bool(x.dtype.kind != "c" and x.dtype.isnative)
