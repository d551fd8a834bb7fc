"""Ops on large arrays by generated kernels: what eager execution asks before NumPy."""

from __future__ import annotations

import copy
import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import dispatch_log, policy
from ....core.device import CPU
from ....core.dtype import bfloat16
from ....core.errors import AdjointError, NotTraceable
from ....core.op import Op
from ....core.scalar import Arithmetic
from ....core.spec import Spec
from ....kernels import Compiled
from ....program import compute as core_compute
from ....program.compute import quietly, spec_of
from ....program.executable import forgettable
from ....program.variants import Variants
from ..gemm import products
from ..onednn import api as onednn
from ..random import draws
from ..runtime import block_cache
from ..runtime.launch import Launcher, launcher
from ..runtime.pool import default_pool
from . import names, routines
from .kernel_table import KERNELS
from .scalars import ScalarTracer, has_lost_numbers, values_of
from .tracing import Traced, common_shape

ndarray = np.ndarray

_FLOAT32 = np.dtype(np.float32)
_programs: dict[Any, Program | str] = {}  # or the reason why there is none
_families: dict[Any, Variants] = {}


class Program:
    """One op on arrays of given shapes and dtypes, as a kernel."""

    __slots__ = (
        "arithmetic", "compiled", "launchers", "numbers", "op", "ordered", "parallel", "several",
        "shapes", "simple", "sources",
    )  # fmt: skip

    def __init__(self, op: Op, arrays: Sequence[Any], known: bool = False) -> None:
        """`known`: floats among the op's fields, and among the inputs, are part of the kernel; else
        they come with calls, in this order.
        """
        self.op = op
        shapes = [a.shape for a in arrays if type(a) is ndarray]
        tracer = ScalarTracer(common_shape(shapes))
        self.arithmetic = Arithmetic()
        symbolic = op if known else _with_scalars(op, self.arithmetic)
        symbols = [
            tracer.input(a.shape, a.dtype)
            if type(a) is ndarray
            else self.arithmetic.scalar(a)
            if type(a) is float and not known
            else a
            for a in arrays
        ]
        inferred = op.infer(*map(spec_of, arrays))
        self.several = not isinstance(inferred, Spec)
        specs = inferred if self.several else (inferred,)
        if any(spec.device != CPU for spec in specs):
            raise NotTraceable("a result on another device")
        found = symbolic.compute(tracer.names, *symbols)
        outputs = found if self.several else (found,)
        self.shapes = []
        for y, spec in zip(outputs, specs, strict=True):
            if not isinstance(y, Traced) or math.prod(y.shape) != math.prod(spec.shape):
                raise NotTraceable("a result that is no array")
            if tracer.ordered and (y.shape != spec.shape or tracer.space != spec.shape):
                raise NotTraceable("an order of memory of another shape")
            if list(y.dims) != sorted(y.dims):
                raise NotTraceable("a transposed result")
            tracer.kernel.output(y.value, str(spec.dtype.numpy))
            self.shapes.append(spec.shape)
        if not known and has_lost_numbers(tracer):
            raise NotTraceable("a number that was taken for known")
        self.sources = tracer.numbers
        self.numbers = values_of(self.sources, self.arithmetic.values)
        self.ordered = tracer.ordered
        self.compiled = Compiled(tracer.kernel)
        self.parallel = math.prod(tracer.space) >= policy.PARALLEL
        self.launchers: dict[Any, Launcher | None] = {}  # by the arrays' strides

    def with_numbers(self, floats: Sequence[float]) -> Program | None:
        """The same kernel for other floats; None where they decide on another."""
        values = self.arithmetic.run(floats)
        if values is None:
            return None
        other = copy.copy(self)
        other.numbers = values_of(self.sources, values)
        other.launchers = {}
        return other

    def __call__(self, op: Op, arrays: Sequence[Any]) -> Any:
        """The result; `op` is equal to the one that the program was made of."""
        given = [a for a in arrays if type(a) is ndarray]
        key = tuple([a.strides for a in given])
        launch = self.launchers.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            if len(self.launchers) >= policy.PROGRAMS:
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

    def once(self, arrays: Sequence[Any]) -> Any:
        """The result, where the same numbers may not come again: without a launcher."""
        return self._general([a for a in arrays if type(a) is ndarray])

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
    if type(found) is ndarray and found.nbytes >= block_cache.SMALLEST // 2:
        launch = functools.partial(quietly, launch)
    core_compute.remember(op, list(arrays), launch, found)


def accelerate(op: Op, arrays: Sequence[Any]) -> Any:
    """What `op` gives for NumPy arrays, by a library or a kernel; NotImplemented for what NumPy is
    to compute.
    """
    if op.library:
        result = _by_library(op, arrays)
        if dispatch_log.on:
            way, reason = _LIBRARIES.get(op.library, "library"), ""
            if result is NotImplemented:
                way, reason = "NumPy", f"not the {way}'s dtypes, sizes or strides"
            dispatch_log.said(dispatch_log.named(op.name, arrays or [op]), way, reason)
        return result
    given, arrays = arrays, _with_floats(arrays)
    key = (op, *[(a.shape, a.dtype) if type(a) is ndarray else _number(a) for a in arrays])
    try:
        program = _programs.get(key)
    except TypeError:
        return NotImplemented  # an array among the op's fields
    if program is None:
        found = _with_new_numbers(op, arrays, key, given)
        if found is not NotImplemented:
            return found
        found = _with_other_whole_numbers(op, arrays)
        if found is not NotImplemented:
            return found
        program = _prepare(op, arrays)
        if len(_programs) >= policy.PROGRAMS:
            _programs.clear()
        _programs[key] = program
        if dispatch_log.on:
            what = dispatch_log.named(op.name, arrays)
            if isinstance(program, Program):
                dispatch_log.said(what, "kernel")
            else:
                dispatch_log.said(what, "NumPy", program)
    if isinstance(program, Program):
        return quietly(program, op, given)
    if dispatch_log.strict and _is_expected(op, program):
        op.infer(*map(spec_of, arrays))  # a user's error comes first
        dispatch_log.fell_back(dispatch_log.named(op.name, arrays), "NumPy", program)
    return NotImplemented


# (op, *shapes and dtypes) -> the program that takes whole numbers as arrays of one element, or why
# there is none; None where one number has come so far, which is part of its kernel.
_whole: dict[Any, Program | str | None] = {}


def _with_other_whole_numbers(op: Op, arrays: Sequence[Any]) -> Any:
    """The result beside whole numbers that change: they make no kernel each. NotImplemented for
    other inputs, and for the first numbers.
    """
    kinds = [a.dtype for a in arrays if type(a) is ndarray and a.dtype.kind in "iu"]
    if not kinds or int not in map(type, arrays):
        return NotImplemented
    key = (op, *[(a.shape, a.dtype) if type(a) is ndarray else type(a) for a in arrays])
    if key not in _whole:
        if len(_whole) >= policy.PROGRAMS:
            _whole.clear()
        _whole[key] = None
        return NotImplemented
    try:
        boxed = [np.asarray(a, kinds[0]) if type(a) is int else a for a in arrays]
    except OverflowError:
        return NotImplemented
    program = _whole[key]
    if program is None:
        program = _whole[key] = _prepare(op, boxed)
    return NotImplemented if isinstance(program, str) else quietly(program, op, boxed)


_LIBRARIES = {"moves": "routine", "draws": "generator"}  # others are called libraries


def _by_library(op: Op, arrays: Sequence[Any]) -> Any:
    """The same for ops that are marked as a library's or a routine's."""
    if op.library == "moves":
        if not op.exact and arrays[0].itemsize == 2:
            return NotImplemented
        return routines.computed(op, names, arrays)
    if op.library == "draws":
        if arrays and arrays[0].itemsize == 2:
            return NotImplemented
        return draws.computed(op, names, arrays)
    if op.library in products.LAUNCHERS:
        return products.accelerate(op, arrays, names)
    dtype = arrays[0].dtype
    if dtype != _FLOAT32 and (dtype != bfloat16.numpy or not _takes_narrow(op)):
        return NotImplemented
    return products.computed(op, arrays, names)


def _is_expected(op: Op, reason: str) -> bool:
    """Whether a kernel is expected: by `docs/kernels.md` the op is one, but for other reasons."""
    reasons = KERNELS.get(type(op).__name__) if dispatch_log.is_ours(op) else None
    return (
        reasons is not None
        and reason not in reasons
        and not reason.startswith((_OF_DTYPES, "NumPy is as fast"))
    )


def _float_fields(op: Op) -> list[str]:
    """The names of the op's fields that hold floats."""
    fields = getattr(type(op), "__dataclass_fields__", ())
    return [name for name in fields if type(getattr(op, name)) is float]


def _with_scalars(op: Op, arithmetic: Arithmetic) -> Op:
    """The op with symbols for the floats among its fields."""
    names = _float_fields(op)
    if not names:
        return op
    other = copy.copy(op)
    vars(other).update((name, arithmetic.scalar(getattr(op, name))) for name in names)
    return other


def _floats(op: Op, arrays: Sequence[Any]) -> list[float]:
    """The floats among the op's fields, then those among its inputs."""
    return [
        *[getattr(op, name) for name in _float_fields(op)],
        *[a for a in arrays if type(a) is float],
    ]


def _family(op: Op, arrays: Sequence[Any]) -> Variants:
    """The programs of ops that differ in floats only, for such inputs but for the floats."""
    kind: Any = op
    if _float_fields(op):
        kind = (type(op), *[float if type(x) is float else _number(x) for x in op._attributes()])
    key = (
        kind,
        *[
            (a.shape, a.dtype) if type(a) is ndarray else float if type(a) is float else _number(a)
            for a in arrays
        ],
    )
    found = _families.get(key)
    if found is None:
        if len(_families) >= policy.PROGRAMS:
            _families.clear()
        found = _families[key] = Variants()
    return found


def _with_floats(arrays: Sequence[Any]) -> Sequence[Any]:
    """The inputs with the floats that they are for whole numbers beside arrays of floats."""
    if int not in map(type, arrays):
        return arrays
    kinds = {a.dtype.kind for a in arrays if type(a) is ndarray}
    if "f" not in kinds or kinds - {"f", "b"}:
        return arrays
    return [float(a) if type(a) is int and -(1 << 53) <= a <= 1 << 53 else a for a in arrays]


def _with_new_numbers(op: Op, arrays: Sequence[Any], key: Any, given: Sequence[Any]) -> Any:
    """The result by a kernel that is there for other floats; NotImplemented where there is none.
    `given` are the inputs as the user has them.

    Numbers that come twice in a row get a program, and with it a launcher, of their own.
    """
    floats = _floats(op, arrays)
    if not floats:
        return NotImplemented
    program, again = _family(op, arrays).find(floats, key)
    if program is None:
        return NotImplemented
    program.op = op
    if not again:
        return quietly(program.once, arrays)
    _programs[key] = program
    return quietly(program, op, given)


def _made(op: Op, arrays: Sequence[Any]) -> Program:
    """A program; if it can be, for any floats."""
    if _floats(op, arrays):
        family = _family(op, arrays)
        if len(family.made) < policy.VARIANTS:
            try:
                program = Program(op, arrays)
                family.made.append(program)
                return program
            except (NotTraceable, AdjointError):
                pass  # perhaps for these floats, then
    return Program(op, arrays, known=True)


def _takes_narrow(op: Op) -> bool:
    """Whether the library computes bfloat16, accumulated in float32: convolutions."""
    return onednn.unavailable() is None and "convolution" in op.name


def _number(value: Any) -> Any:
    sign = math.copysign(1, value) if type(value) is float else 1  # 0.0 == -0.0
    return (type(value), value, sign)


_UNKNOWN: Any = object()
_OF_DTYPES = "no kernel computes"  # how reasons begin that are the same for all ops


def _prepare(op: Op, arrays: Sequence[Any]) -> Program | str:
    """The program, or why there is none."""
    if op.view:
        return "a view"
    if op.opaque:
        return "a user's function"
    unusable = [_kind(x) for x in arrays if not _is_usable(x)]
    if unusable:
        return f"{_OF_DTYPES} {unusable[0]}"
    try:
        return _made(op, arrays)
    except Exception as error:
        return dispatch_log.reason_of(error, op)


def _kind(x: Any) -> str:
    return str(x.dtype) if type(x) is ndarray else type(x).__name__


def _is_usable(x: Any) -> bool:
    if type(x) is not ndarray:
        return isinstance(x, (bool, int, float))
    return bool(x.dtype.kind != "c" and x.dtype.isnative)


def _clear() -> None:
    _programs.clear()
    _families.clear()
    _whole.clear()


forgettable(_clear)


def _after_fork() -> None:
    """Let the next call start the child's threads."""
    core_compute.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
