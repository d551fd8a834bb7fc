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
# By op, shapes, dtypes and numbers: what needs to know these, or the reason why there is none.
_programs: dict[Any, Program | str] = {}
_families: dict[Any, Variants] = {}  # by the same but for the numbers: programs for others, too


class Program:
    """One op on arrays of given shapes and dtypes, as a kernel, for some or for all numbers."""

    __slots__ = (
        "box", "compiled", "fixed", "launchers", "ordered", "parallel", "scalars", "several",
        "shapes", "values", "varies",
    )  # fmt: skip

    def __init__(self, op: Op, arrays: Sequence[Any], vary: bool = False, box: Any = None) -> None:
        """With `vary`, floats among the op's fields, and among the inputs, come with each call, in
        this order; other numbers are part of the kernel. With `box`, a dtype, the ints among the
        inputs come as arrays of one element.

        Errors: NotTraceable for what is no kernel.
        """
        self.box = box
        numbers = _numbers_of(op, arrays)
        arrays = self._boxed(arrays)
        shapes = [a.shape for a in arrays if type(a) is ndarray]
        tracer = ScalarTracer(common_shape(shapes))
        arithmetic = Arithmetic()
        symbolic = _with_scalars(op, arithmetic) if vary else op
        symbols = [
            tracer.input(a.shape, a.dtype)
            if type(a) is ndarray
            else arithmetic.scalar(a)
            if type(a) is float and vary
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
            written = tracer.kernel.output(y.value, str(spec.dtype.numpy))
            if math.prod(tracer.space[axis] for axis in written.axes) != math.prod(spec.shape):
                raise NotTraceable("a result smaller than an input it does not read")
            self.shapes.append(spec.shape)
        if vary and has_lost_numbers(tracer):
            raise NotTraceable("a number that was taken for known")
        self.scalars = values_of(tracer.numbers)  # for the numbers of now
        self.values = arithmetic.function(tracer.numbers)  # for others
        # Of each number: its value where that is part of the kernel, else None.
        self.fixed = [
            None if (vary if type(n) is float else box is not None) else n for n in numbers
        ]
        self.varies = None in self.fixed
        self.ordered = tracer.ordered
        self.compiled = Compiled(tracer.kernel)
        self.parallel = math.prod(tracer.space) >= policy.PARALLEL
        self.launchers: dict[Any, Launcher | None] = {}  # by the arrays' strides, for any numbers

    def with_numbers(self, numbers: Sequence[Any]) -> tuple[Program, Sequence[float]] | None:
        """Itself and the kernel's scalars for these; None where it is not their kernel."""
        given = []
        for n, fixed in zip(numbers, self.fixed, strict=True):
            if fixed is not None:
                if type(n) is not type(fixed) or n != fixed:
                    return None
            elif type(n) is float:
                given.append(n)
            elif self.box is None or not _holds(self.box, n):
                return None
        scalars = self.values(*given)
        return None if scalars is None else (self, scalars)

    def __call__(self, op: Op, arrays: Sequence[Any], scalars: Sequence[float]) -> Any:
        """The result."""
        given = [a for a in self._boxed(arrays) if type(a) is ndarray]
        key = tuple([a.strides for a in given])
        if key not in self.launchers:
            if len(self.launchers) >= policy.PROGRAMS:
                self.launchers.clear()
            self.launchers[key] = launcher(
                self.compiled,
                given,
                self.shapes,
                scalars=scalars,
                parallel=self.parallel,
                outs=self._outs(given),
            )
        launch = self.launcher(key, scalars)
        found = None if launch is None else launch(*given)
        if found is not None:
            self._remember(op, arrays, key, launch, found)
            return found
        run = default_pool().run if self.parallel else None
        found = self.compiled(*given, out=self._outs(given), scalars=scalars, run=run)
        found = found if isinstance(found, tuple) else (found,)
        found = tuple([y.reshape(shape) for y, shape in zip(found, self.shapes, strict=True)])
        return found if self.several else found[0]

    def launcher(self, key: Any, scalars: Sequence[float]) -> Any:
        """What launches it for arrays of such strides; None where that is not known."""
        launch = self.launchers.get(key)
        return launch.numbered(scalars) if launch is not None and self.scalars else launch

    def _remember(
        self, op: Op, arrays: Sequence[Any], key: Any, launch: Launcher, found: Any
    ) -> None:
        """Let eager execution call the launcher with arrays of these shapes and the same numbers;
        or, where they come with calls, with any.
        """
        if not op.kept:
            return
        results = found if self.several else (found,)
        large = any(y.nbytes >= block_cache.SMALLEST // 2 for y in results)
        if not self.varies:
            launch = functools.partial(quietly, launch) if large else launch
            core_compute.remember(op, list(arrays), launch, found)
            return
        family = _family(op, _with_floats(arrays))
        converts = _takes_floats(arrays)

        def launching(numbers: list[Any]) -> Any:
            found = family.find(_as_floats(numbers) if converts else numbers)
            return None if found is None else found[0].launching(key, found[1], large)

        core_compute.remember_numbered(op, list(arrays), launching, found)

    def launching(self, key: Any, scalars: Sequence[float], large: bool) -> Any:
        """What computes it for the op's inputs, if they lie so; None where that is not known."""
        launch = self.launcher(key, scalars)
        if launch is None or (not large and self.box is None):
            return launch
        run = functools.partial(quietly, launch) if large else launch
        return run if self.box is None else lambda *arrays: run(*self._boxed(arrays))

    def _boxed(self, arrays: Sequence[Any]) -> Sequence[Any]:
        if self.box is None:
            return arrays
        return [np.asarray(a, self.box) if type(a) is int else a for a in arrays]

    def _outs(self, given: Sequence[Any]) -> Any:
        """Row-major outputs, where the order of memory matters."""
        return [np.empty(shape, given[0].dtype) for shape in self.shapes] if self.ordered else None


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
    numbers = _numbers_of(op, arrays)
    found = None
    if program is None and numbers:
        found = _family(op, arrays).find(numbers)
    if program is None and found is None:
        program = _prepare(op, arrays)
        if isinstance(program, str) or not program.varies:
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
        found = program, program.scalars
    if found is not None:
        return quietly(found[0], op, given, found[1])
    if dispatch_log.strict and _is_expected(op, str(program)):
        op.infer(*map(spec_of, arrays))  # a user's error comes first
        dispatch_log.fell_back(dispatch_log.named(op.name, arrays), "NumPy", str(program))
    return NotImplemented


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


def _numbers_of(op: Op, arrays: Sequence[Any]) -> list[Any]:
    """The floats among the op's fields, then the numbers among its inputs."""
    return [
        *[getattr(op, name) for name in _float_fields(op)],
        *[a for a in arrays if type(a) is float or type(a) is int],
    ]


def _family(op: Op, arrays: Sequence[Any]) -> Variants:
    """The programs of ops that differ in numbers only, for such inputs but for the numbers."""
    key = (
        op.without_numbers([]),
        *[
            (a.shape, a.dtype) if type(a) is ndarray else type(a) if type(a) in _NUMBERS else a
            for a in arrays
        ],
    )
    found = _families.get(key)
    if found is None:
        if len(_families) >= policy.PROGRAMS:
            _families.clear()
        found = _families[key] = Variants()
    return found


_NUMBERS = (int, float)


def _takes_floats(arrays: Sequence[Any]) -> bool:
    """Whether whole numbers beside such arrays are floats."""
    kinds = {a.dtype.kind for a in arrays if type(a) is ndarray}
    return "f" in kinds and not kinds - {"f", "b"}


def _as_floats(arrays: Sequence[Any]) -> Sequence[Any]:
    """The same with the floats that whole numbers are, if they are such."""
    return [float(a) if type(a) is int and -(1 << 53) <= a <= 1 << 53 else a for a in arrays]


def _with_floats(arrays: Sequence[Any]) -> Sequence[Any]:
    """The inputs with the floats that they are for whole numbers beside arrays of floats."""
    if int not in map(type, arrays) or not _takes_floats(arrays):
        return arrays
    return _as_floats(arrays)


def _made(op: Op, arrays: Sequence[Any]) -> Program:
    """A program; if it can be, for any numbers. The first whole number beside integers is part of
    its kernel, which is faster, and only where others come one is made that takes them.
    """
    if not _numbers_of(op, arrays):
        return Program(op, arrays)
    family = _family(op, arrays)
    whole = [a.dtype for a in arrays if type(a) is ndarray and a.dtype.kind in "iu"]
    counts = whole and all(_holds(whole[0], a) for a in arrays if type(a) is int)
    box = whole[0] if counts and family.made and int in map(type, arrays) else None
    if len(family.made) < policy.VARIANTS:
        try:
            program = Program(op, arrays, True, box)
            family.made.append(program)
            return program
        except (NotTraceable, AdjointError):
            pass  # perhaps for these numbers, then
    return Program(op, arrays)


def _holds(dtype: Any, n: int) -> bool:
    """Whether a dtype of integers has this number."""
    low, high = _range(dtype)
    return low <= n <= high


@functools.cache
def _range(dtype: Any) -> tuple[int, int]:
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _takes_narrow(op: Op) -> bool:
    """Whether the library computes bfloat16, accumulated in float32: convolutions."""
    return onednn.unavailable() is None and "convolution" in op.name


def _number(value: Any) -> Any:
    sign = math.copysign(1, value) if type(value) is float else 1  # 0.0 == -0.0
    return (type(value), value, sign)


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


forgettable(_clear)


def _after_fork() -> None:
    """Let the next call start the child's threads."""
    core_compute.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
