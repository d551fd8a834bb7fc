"""Ops on large arrays by generated kernels: what eager execution asks before NumPy."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import dispatch_log, policy
from ....core.dtype import bfloat16
from ....core.errors import AdjointError, NotTraceable
from ....core.op import Op
from ....core.sized_tables import SizedTable
from ....ir import compute as core_compute
from ....ir.compute import quietly, spec_of
from ....ir.executable import forgettable
from ....ir.variants import Variants
from ..gemm import products
from ..onednn import api as onednn
from ..random import random_draws
from ..runtime import block_cache
from ..runtime.launch import LaunchFunction, fitting, launcher, row_major
from ..runtime.pool import default_pool
from . import large_arrays as names
from . import machine_routines
from .kernel_patterns import KernelPattern, holds, numbers_of, pattern_key
from .kernel_table import KERNELS

ndarray = np.ndarray

_FLOAT32 = np.dtype(np.float32)
# By op, shapes, dtypes and numbers: what needs to know these, or the reason why there is none.
_programs: SizedTable[KernelCall | str] = SizedTable("kernels of ops")
# By the same but for the numbers: programs for others, too.
_families: SizedTable[Variants] = SizedTable("families of ops")
_patterns: dict[Any, Variants] = {}  # by the same but for sizes, too: kernels for others


class KernelCall:
    """One op on arrays of given shapes and dtypes, as a kernel, for some or for all numbers."""

    __slots__ = ("launchers", "parallel", "pattern", "scalars", "shapes", "values", "varies")

    def __init__(
        self, pattern: KernelPattern, numbers: Sequence[Any], shapes: Any, parallel: bool,
        values: Any,
    ) -> None:  # fmt: skip
        """The pattern for arrays that give results of these `shapes`; `values` computes its scalars
        from the floats of a call, of which those among `numbers` are the first.
        """
        self.pattern = pattern
        self.shapes = shapes
        self.parallel = parallel
        self.values = values
        self.varies = None in pattern.fixed
        self.scalars = values(*pattern.floats(numbers))
        # By the arrays' strides, for any numbers; there may be none for some.
        self.launchers: SizedTable[tuple[LaunchFunction | None]] = SizedTable(
            "launchers of kernels"
        )

    def with_numbers(self, numbers: Sequence[Any]) -> tuple[KernelCall, Sequence[float]] | None:
        """The program and the kernel's scalars for these; None where it is not their kernel."""
        pattern = self.pattern
        if not pattern.takes(numbers):
            return None
        scalars = self.values(*pattern.floats(numbers))
        return None if scalars is None else (self, scalars)

    def __call__(self, op: Op, arrays: Sequence[Any], scalars: Sequence[float]) -> Any:
        """The result."""
        pattern = self.pattern
        given = [a for a in pattern.boxed(arrays) if type(a) is ndarray]
        key = tuple([a.strides for a in given])
        if self.launchers.find(key) is None:
            launch = launcher(
                pattern.compiled, given, self.shapes, scalars=scalars, parallel=self.parallel,
                outs=self._outs(given),
            )  # fmt: skip
            self.launchers.put(key, (launch,))
        launch = self.launcher(key, scalars)
        result = None if launch is None else launch(*given)
        if result is not None:
            self._remember(op, arrays, key, launch, result)
            return result
        run = default_pool().run if self.parallel else None
        result = pattern.compiled(*given, out=self._outs(given), scalars=scalars, run=run)
        result = result if isinstance(result, tuple) else (result,)
        result = tuple([y.reshape(shape) for y, shape in zip(result, self.shapes, strict=True)])
        return result if pattern.several else result[0]

    def launcher(self, key: Any, scalars: Sequence[float]) -> Any:
        """The launcher for arrays of such strides; None where there is none yet."""
        kept = self.launchers.peek(key)
        launch = None if kept is None else kept[0]
        return launch.numbered(scalars) if launch is not None and self.scalars else launch

    def _remember(
        self, op: Op, arrays: Sequence[Any], key: Any, launch: LaunchFunction, result: Any
    ) -> None:
        """Makes eager execution call the launcher with arrays of these shapes and the same numbers;
        or, where they come with calls, with any.
        """
        if not op.kept:
            return
        results = result if self.pattern.several else (result,)
        large = any(y.nbytes >= block_cache.SMALLEST // 2 for y in results)
        if self.pattern.box is None:
            inputs = _with_floats(arrays)
            variants = _patterns.get(pattern_key(op, inputs, self.varies, None))
            if variants is not None:
                given = [a for a in arrays if type(a) is ndarray]
                made = _Sized(variants, inputs is not arrays, results, given)
                core_compute.remember_sized(op, list(arrays), made, result)
        if not self.varies:
            launch = functools.partial(quietly, launch) if large else launch
            core_compute.remember(op, list(arrays), launch, result)
            return
        family = _family(op, _with_floats(arrays))
        converts = _takes_floats(arrays)

        def launching(numbers: list[Any]) -> Any:
            result = family.find(_as_floats(numbers) if converts else numbers)
            return None if result is None else result[0].launching(key, result[1], large)

        core_compute.remember_numbered(op, list(arrays), launching, result)

    def launching(self, key: Any, scalars: Sequence[float], large: bool) -> Any:
        """The function that computes the op for its inputs, if they lie so; None where there is
        none yet.
        """
        launch, boxed = self.launcher(key, scalars), self.pattern.boxed
        if launch is None or (not large and self.pattern.box is None):
            return launch
        run = functools.partial(quietly, launch) if large else launch
        return run if self.pattern.box is None else lambda *arrays: run(*boxed(arrays))

    def _outs(self, given: Sequence[Any]) -> Any:
        """Row-major outputs, where the order of memory matters."""
        if not self.pattern.ordered:
            return None
        return [np.empty(shape, given[0].dtype) for shape in self.shapes]


class _Sized:
    """The launchers of one op for arrays of any sizes, by the patterns that there are."""

    __slots__ = ("_converts", "_itemsizes", "_row_major", "_variants")

    def __init__(
        self, variants: Variants, converts: bool, results: Sequence[Any], given: Sequence[Any]
    ) -> None:
        """`converts`: whole numbers are floats; `results` and `given` are arrays like those of a
        call, which lie as these do.
        """
        self._variants = variants
        self._converts = converts
        self._itemsizes = [y.itemsize for y in results]
        self._row_major = all(x.flags.c_contiguous for x in given)

    def __call__(self, numbers: list[Any], arrays: list[Any], sizes: list[int]) -> Any:
        """The launcher, and a function from other numbers to others, where there are some; None
        where no pattern serves.
        """
        if not self._row_major:
            sizes = [n for x in arrays for n in x.shape]
        given = _as_floats(numbers) if self._converts else numbers
        for pattern in self._variants.made:
            bound = pattern.run(*sizes)
            if bound is None:
                continue
            if pattern.refusal or (given and not pattern.takes(given)):
                return None
            (shapes, space, parallel), values = bound
            scalars = values(*pattern.floats(given)) if given else values()
            if scalars is not None:
                break
        else:
            return None
        kernel, launch, outs = pattern.compiled, None, None
        if pattern.ordered:  # outputs that are row-major, however the inputs lie
            outs = [np.empty(shape, arrays[0].dtype) for shape in shapes]
        else:
            if self._row_major:
                launch = row_major(
                    kernel, arrays, shapes, space, scalars=scalars, parallel=parallel
                )
            if launch is None:
                launch = fitting(kernel, arrays, shapes, space, scalars=scalars, parallel=parallel)
        if launch is None:
            launch = launcher(kernel, arrays, shapes, scalars=scalars, parallel=parallel, outs=outs)
        if launch is None:
            return None
        large = False
        for shape, itemsize in zip(shapes, self._itemsizes, strict=True):
            large = large or math.prod(shape) * itemsize >= block_cache.SMALLEST // 2
        whole = functools.partial(quietly, launch) if large else launch
        if not numbers:
            return whole, None

        def renumbered(numbers: list[Any]) -> Any:
            given = _as_floats(numbers) if self._converts else numbers
            scalars = values(*pattern.floats(given)) if pattern.takes(given) else None
            if scalars is None:
                return None
            other = launch.numbered(scalars) if scalars else launch
            return functools.partial(quietly, other) if large else other

        return whole, renumbered


def accelerate(op: Op, arrays: Sequence[Any]) -> Any:
    """Computes `op` for NumPy arrays by a library or a kernel; NotImplemented where NumPy is to
    compute it.
    """
    if op.library:
        result = _by_library(op, arrays)
        if dispatch_log.on:
            way, reason = _LIBRARIES.get(op.library, "library"), ""
            if result is NotImplemented:
                way, reason = "NumPy", f"not the {way}'s dtypes, sizes or strides"
            dispatch_log.said(dispatch_log.named(op.name, arrays or [op]), way, reason)
        return result
    if op.opaque:  # made for one graph, which a note of it would keep
        if dispatch_log.on:
            dispatch_log.said(dispatch_log.named(op.name, arrays), "NumPy", "a user's function")
        return NotImplemented
    given, arrays = arrays, _with_floats(arrays)
    key = (op, *[(a.shape, a.dtype) if type(a) is ndarray else _number(a) for a in arrays])
    try:
        program = _programs.find(key)
    except TypeError:
        return NotImplemented  # an array among the op's fields
    numbers = numbers_of(op, arrays)
    variant = None
    if program is None and numbers:
        variant = _family(op, arrays).find(numbers)
    if program is None and variant is None:
        program = _prepare(op, arrays)
        if isinstance(program, str) or not program.varies:
            _programs.put(key, program)
        if dispatch_log.on:
            what = dispatch_log.named(op.name, arrays)
            if isinstance(program, KernelCall):
                dispatch_log.said(what, "kernel")
            else:
                dispatch_log.said(what, "NumPy", program)
    if isinstance(program, KernelCall):
        variant = program, program.scalars
    if variant is not None:
        return quietly(variant[0], op, given, variant[1])
    if dispatch_log.strict and _is_expected(op, str(program)):
        op.infer(*map(spec_of, arrays))  # a user's error comes first
        dispatch_log.fell_back(dispatch_log.named(op.name, arrays), "NumPy", str(program))
    return NotImplemented


_LIBRARIES = {"moves": "routine", "draws": "generator"}  # others are called libraries


def _by_library(op: Op, arrays: Sequence[Any]) -> Any:
    """Computes an op that is marked as a library's or a routine's; NotImplemented where NumPy is to
    compute it.
    """
    if op.library == "moves":
        if not op.exact and arrays[0].itemsize == 2:
            return NotImplemented
        return machine_routines.computed(op, names, arrays)
    if op.library == "draws":
        if arrays and arrays[0].itemsize == 2:
            return NotImplemented
        return random_draws.computed(op, names, arrays)
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


def _family(op: Op, arrays: Sequence[Any]) -> Variants:
    """The programs of ops that differ from this one in numbers only."""
    key = (
        op.without_numbers([]),
        *[
            (a.shape, a.dtype) if type(a) is ndarray else type(a) if type(a) in _NUMBERS else a
            for a in arrays
        ],
    )
    variants = _families.find(key)
    if variants is None:
        variants = Variants()
        _families.put(key, variants)
    return variants


_NUMBERS = (int, float)


def _takes_floats(arrays: Sequence[Any]) -> bool:
    """Whether whole numbers beside such arrays are floats."""
    kinds = {a.dtype.kind for a in arrays if type(a) is ndarray}
    return "f" in kinds and not kinds - {"f", "b"}


def _as_floats(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arguments with whole numbers as floats, where a float holds them exactly."""
    return [float(a) if type(a) is int and -(1 << 53) <= a <= 1 << 53 else a for a in arrays]


def _with_floats(arrays: Sequence[Any]) -> Sequence[Any]:
    """The inputs with the floats that they are for whole numbers beside arrays of floats."""
    if int not in map(type, arrays) or not _takes_floats(arrays):
        return arrays
    return _as_floats(arrays)


def _made(op: Op, arrays: Sequence[Any]) -> KernelCall:
    """A program; if it can be, for any numbers. The first whole number beside integers is part of
    its kernel, which is faster, and only where others come one is made that takes them.
    """
    if not numbers_of(op, arrays):
        return pattern_call(op, arrays)
    family = _family(op, arrays)
    whole = [a.dtype for a in arrays if type(a) is ndarray and a.dtype.kind in "iu"]
    counts = whole and all(holds(whole[0], a) for a in arrays if type(a) is int)
    box = whole[0] if counts and family.made and int in map(type, arrays) else None
    if len(family.made) < policy.VARIANTS:
        try:
            program = pattern_call(op, arrays, True, box)
            family.made.append(program)
            return program
        except (NotTraceable, AdjointError):
            pass  # perhaps for these numbers, then
    return pattern_call(op, arrays)


def pattern_call(op: Op, arrays: Sequence[Any], vary: bool = False, box: Any = None) -> KernelCall:
    """A program of the pattern of these arrays, which is made where there is none.

    Errors: NotTraceable for what is no kernel.
    """
    numbers = numbers_of(op, arrays)
    sizes = [n for a in arrays if type(a) is ndarray for n in a.shape]
    key = pattern_key(op, arrays, vary, box)
    variants = _patterns.get(key)
    if variants is None:
        if len(_patterns) >= policy.PATTERNS:
            _patterns.clear()
        variants = _patterns[key] = Variants()
    for pattern in variants.made:
        bound = pattern.run(*sizes)
        if bound is not None and bound[-1](*pattern.floats(numbers)) is not None:
            break
    else:
        pattern = KernelPattern(op, arrays, vary, box)
        if len(variants.made) >= policy.SIZE_VARIANTS:
            variants.made.pop()
        variants.made.insert(0, pattern)
        bound = pattern.run(*sizes)
    if pattern.refusal:
        raise NotTraceable(pattern.refusal)
    (shapes, _, parallel), values = bound
    return KernelCall(pattern, numbers, shapes, parallel, values)


def _takes_narrow(op: Op) -> bool:
    """Whether the library computes bfloat16, accumulated in float32: convolutions."""
    return onednn.unavailable() is None and "convolution" in op.name


def _number(value: Any) -> Any:
    sign = math.copysign(1, value) if type(value) is float else 1  # 0.0 == -0.0
    return (type(value), value, sign)


_OF_DTYPES = "no kernel computes"  # how reasons begin that are the same for all ops


def _prepare(op: Op, arrays: Sequence[Any]) -> KernelCall | str:
    """The program, or why there is none."""
    if op.view:
        return "a view"
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
    _patterns.clear()
    _families.clear()


forgettable(_clear)


def _after_fork() -> None:
    """Makes the next call in a forked child start threads of its own."""
    core_compute.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
