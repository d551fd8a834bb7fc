"""Running an op's `compute` on arrays: choice of the backend, float32 for narrow floats, clear
errors.
"""

from __future__ import annotations

import contextvars
import functools
import math
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from ..core import dispatch_log, policy
from ..core.argument_errors import misplaced, settled
from ..core.arrays import signature
from ..core.device import device_of, namespace_of, space
from ..core.dtype import LOW_PRECISION, from_numpy_dtype
from ..core.errors import AdjointError, OutOfMemoryError, Unsupported
from ..core.mode import DEFAULT, MODE
from ..core.op import Op
from ..core.sized_tables import SizedTable
from ..core.spec import Spec, assert_possible
from . import executable
from .executable import known

_LOW_NUMPY = frozenset(d.numpy for d in LOW_PRECISION)
_FLOAT32 = np.dtype(np.float32)


R = TypeVar("R")
_inside = contextvars.ContextVar("whether ops compute here", default=False)


class _Quiet(threading.local):
    """Per-thread context in which NumPy reports no floating-point warnings, as in PyTorch.

    Entering a ready context costs a twentieth of `np.errstate`.
    """

    def __init__(self) -> None:
        with np.errstate(all="ignore"):
            self.run = contextvars.copy_context().run
        self.run(_inside.set, True)
        self.run(MODE.set, DEFAULT)  # the present one, and what it holds, may be soon over
        for prepare in _preparations:
            prepare(self.run)


_preparations: list[Callable[[Any], object]] = []
_quiet = _Quiet()


def prepare_contexts(prepare: Callable[[Any], object]) -> None:
    """Call `prepare(run)` for the context in which this thread's ops compute (`run` runs a function
    in it), and for those of threads started later.
    """
    _preparations.append(prepare)
    prepare(quietly)


def quietly(function: Callable[..., R], *args: Any) -> R:
    """Run `function(*args)` in the context in which ops compute; directly, if that is the current
    one (inside another op, a backward walk, or a graph's run).
    """
    return function(*args) if _inside.get() else _quiet.run(function, *args)


def spec_of(array: Any) -> Any:
    """The Spec of an array; a Python number is returned unchanged."""
    if hasattr(array, "dtype"):
        return Spec(tuple(array.shape), from_numpy_dtype(array.dtype), device_of(array))
    return array


# The native backend's way to compute an op on large NumPy arrays: (op, arrays) -> the result, or
# NotImplemented. Set by `backends.native`.
accelerate: Callable[[Op, list[Any]], Any] | None = None
# The namespace with which ops that only move elements write into large NumPy arrays, or None where
# NumPy's serves. Set with it.
moving: Callable[[], Any] | None = None
# Compiles a program of elementwise ops, given the arithmetic of its numbers, into a function from
# arrays to all outputs, or returns None. Set with it, at the first large op.
chained: Callable[[Any, Any], Any] | None = None
LARGE, SMALL = policy.LARGE, policy.SMALL

_ndarray = np.ndarray
_ASKED = frozenset(("", "moves", "draws"))
_ALWAYS = frozenset(("always", "product", "linear", "linear_input", "linear_weight"))


def compute(op: Op, arrays: list[Any]) -> Any:
    """The result of `op` on arrays and numbers: by the cached executable for such inputs, otherwise
    by `compute_anew`.
    """
    result = None if op.view else known(op, arrays)  # views are cached where they are made
    return compute_anew(op, arrays) if result is None else result


def compute_anew(op: Op, arrays: list[Any]) -> Any:
    """The result of `op.compute` on `arrays`, without a cached executable. If it fails, `op.infer`
    is called to raise a clearer error.
    """
    xp = None
    low = large = False
    enough = _enough(op)
    for array in arrays:
        if type(array) is _ndarray or hasattr(array, "dtype"):
            if xp is None:
                xp = _namespace(op, array)
            if array.itemsize == 2 and array.dtype in _LOW_NUMPY:
                low = True
            if array.size > enough:
                large = True
    if xp is None:
        xp = space(op.device)
        large = op.library == "draws" and math.prod(op.shape) > SMALL  # type: ignore[attr-defined]
    if type(xp) is not ModuleType:
        return compute_elsewhere(op, xp, arrays)
    try:
        if op.strict:
            _assert_sound(op, arrays)
        if large and accelerate is not None:
            result = accelerate(op, arrays)
            if result is not NotImplemented:
                return result
        elif dispatch_log.on:
            why = f"at most {enough} elements" if accelerate else "no native backend"
            dispatch_log.said(dispatch_log.named(op.name, arrays), "NumPy", why)
        if low and not op.exact:
            return quietly(_compute_and_round, op, xp, *_widened(op, arrays))
        result = quietly(op.compute, xp, *arrays)
        alone = isinstance(result, np.generic)  # NumPy's element where there is one
        if alone:
            result = np.asarray(result)
        again = op.kept and not op.view
        if large and op.library:  # which decides by values too
            again = False
        if again and any(type(a) is _ndarray for a in arrays):
            remember(op, arrays, launcher_of(op, xp, alone), result)
        return result
    except AdjointError as error:
        settled(error)  # alone: not what NumPy has said before it
        raise
    except Exception as error:
        for array in arrays:
            if array is None or isinstance(array, (str, list, tuple, dict)):
                raise misplaced(array, op.name, "input" if len(arrays) == 1 else "") from None
        spec = refuse_inputs(op, map(spec_of, arrays))
        if isinstance(spec, Spec):
            assert_possible(spec.shape, op.name)
        if isinstance(error, MemoryError):
            raise OutOfMemoryError(f"{op.name}: {error}; compute it in parts") from error
        raise


def refuse_inputs(op: Op, specs: Iterable[Spec | None]) -> Spec | Sequence[Spec]:
    """Raise the error that `op.infer` has for such inputs, where it has one, as all that a
    traceback shows: what a backend has said of them, which is being handled, says less. Otherwise
    what it infers.
    """
    try:
        return op.infer(*specs)
    except AdjointError as error:
        settled(error)
        raise
    except Exception as error:
        raise error from None


def _namespace(op: Op, array: object) -> Any:
    try:
        return namespace_of(array)
    except Unsupported:
        raise misplaced(array, op.name, due="a tensor or a number") from None


def remember(op: Op, arrays: list[Any], launch: Callable[..., Any], result: object) -> None:
    """Cache `launch`, which computed `result`, for eager calls of this op with such inputs."""
    key = signature(op, arrays, False, [], None, True) if _is_kept(arrays, result) else None
    if key is not None:
        executable.keep(key, executable.Executable(launch, op, op, _records(op, result)))


def remember_numbered(
    op: Op, arrays: list[Any], launching: Callable[[list[Any]], Any], result: object
) -> None:
    """Cache `launching(numbers)`, which makes a launch function, for inputs that differ from these
    in their numbers only, and for ops that differ in float fields (those come first). It returns
    None for numbers that it does not support.
    """
    numbers: list[Any] = []
    alike = op.without_numbers(numbers)
    key = signature(alike, arrays, False, [], None, True, numbers)
    if key is None or not _is_kept(arrays, result) or executable.peek(key) is not None:
        return
    records = _records(op, result)

    def make(op: Op, numbers: list[Any]) -> executable.Executable | None:
        launch = launching(numbers)
        return None if launch is None else executable.Executable(launch, op, op, records)

    executable.keep_family(key, alike, make)


def remember_sized(
    op: Op, arrays: list[Any], launching: Callable[[list[Any], list[Any], list[int]], Any],
    result: object,
) -> None:  # fmt: skip
    """Cache `launching(numbers, arrays, sizes)`, which makes a launch function for arrays that
    differ from these in their sizes, and a function from other numbers to others, or None. It
    returns None for what it does not support. `sizes` are those of all arrays, with the strides of
    those that are not row-major.
    """
    if not op.kept or not _is_kept(arrays, result):
        return
    records, least = _records(op, result), _enough(op)

    def make(op: Op, numbers: list[Any], arrays: list[Any], sizes: list[int]) -> Any:
        if max(map(_size, arrays), default=0) <= least:
            return None
        made = launching(numbers, arrays, sizes)
        if made is None:
            return None
        launch, renumbered = made

        def make_numbered(op: Op, numbers: list[Any]) -> executable.Executable | None:
            launch = renumbered(numbers)
            return None if launch is None else executable.Executable(launch, op, op, records)

        more = None if renumbered is None else make_numbered
        return executable.Executable(launch, op, op, records), more

    executable.keep_sized(op, arrays, make)


_size = operator.attrgetter("size")


def _enough(op: Op) -> int:
    """How many elements an array must have more than, so that the native backend is asked."""
    if op.library in _ALWAYS or op.grows:
        return -1
    return SMALL if op.library in _ASKED and not op.view else LARGE


def _records(op: Op, result: object) -> bool:
    """Whether a result may require a gradient; False for several results."""
    return op.differentiable and type(result) is _ndarray and result.dtype.kind in "fcV"


def _is_kept(arrays: list[Any], result: object) -> bool:
    """Whether calls with such inputs may use the cached launch function that gave `result`: numbers
    must be of the arrays' kind, since others, and those beside narrow floats, are converted first.
    """
    results = result if type(result) is tuple else (result,)
    if not all(type(y) is _ndarray for y in results):
        return False
    numbers = [a for a in arrays if type(a) is not _ndarray]
    if not numbers or all(y.dtype in _WIDE for y in results):
        return True
    dtypes = {a.dtype for a in arrays if type(a) is _ndarray} - {_BOOL}
    if all(type(n) is int for n in numbers) and {d.kind for d in dtypes} == {"i"}:
        return True
    return bool(dtypes) and dtypes <= _WIDE


_WIDE = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_BOOL = np.dtype(bool)


# Cached random draws: (class, fields after seed and draw, but the device) -> a function from seed
# and draw to the array.
draws: SizedTable[Any] = SizedTable("draws")
executable.forgettable(draws.clear)


def remember_draw(op: Op, draw: Callable[[int, int], Any]) -> None:
    """Cache `draw` for eager calls of such an op without inputs on the CPU."""
    _, _, *fields, _ = op._attributes()
    draws.put((type(op), tuple(fields)), draw)


forget = executable.forget


def launcher_of(op: Op, xp: Any, alone: bool = False) -> Callable[..., Any]:
    """A function that runs `op.compute` with a namespace in the context in which ops compute. With
    `alone`, NumPy scalars that it may return become arrays.
    """
    if alone:
        return functools.partial(quietly, _as_array, op.compute, xp)
    return functools.partial(quietly, op.compute, xp)


def _as_array(compute: Callable[..., Any], xp: Any, *arrays: Any) -> np.ndarray:
    return np.asarray(compute(xp, *arrays))


# Ops, by identity, on arrays that `infer` had nothing against.
_sound: SizedTable[Op] = SizedTable("checked specs", lambda op: policy.KEY_BYTES)


def _assert_sound(op: Op, arrays: list[Any]) -> None:
    """Call `infer` of a strict op to check its inputs, once per op and specs."""
    if not all(type(a) is _ndarray for a in arrays):
        op.infer(*map(spec_of, arrays))
        return
    key = (id(op), *[(a.shape, a.dtype) for a in arrays])
    if _sound.find(key) is None:
        op.infer(*map(spec_of, arrays))
        _sound.put(key, op)


def compute_elsewhere(op: Op, xp: Any, arrays: list[Any]) -> Any:
    """The result of `op` on a device other than the host; the device's namespace decides how narrow
    floats are computed.
    """
    if op.strict:
        op.infer(*map(spec_of, arrays))
    try:
        return xp.run(op, arrays)
    except AdjointError as error:
        settled(error)
        raise
    except Exception:
        refuse_inputs(op, map(spec_of, arrays))
        raise


def write_arrays(op: Op, arrays: list[Any]) -> None:
    """Run `op.write` on `arrays`. If it fails, `op.infer` is called to raise a clearer error."""
    if op.strict:
        op.infer(*map(spec_of, arrays))
    xp = namespace_of(arrays[0])
    plain = type(xp) is ModuleType and arrays[0].size > SMALL
    if plain and op.library == "moves" and moving is not None:
        xp = moving() or xp
    try:
        quietly(op.write, xp, *arrays)
    except AdjointError as error:
        settled(error)
        raise
    except Exception:
        refuse_inputs(op, map(spec_of, arrays))
        raise


def _widened(op: Op, arrays: list[Any]) -> tuple[list[Any], Any]:
    """`arrays` with narrow floats converted to float32, and the specs of the outputs."""
    specs = op.infer(*map(spec_of, arrays))
    return [
        a.astype(_FLOAT32) if hasattr(a, "dtype") and a.dtype in _LOW_NUMPY else a for a in arrays
    ], specs


def _compute_and_round(
    op: Op, xp: Any, wide: list[Any], specs: Spec | Sequence[Spec]
) -> np.ndarray | tuple[np.ndarray, ...]:
    result = op.compute(xp, *wide)
    if isinstance(specs, Spec):
        return np.asarray(result).astype(specs.dtype.numpy, copy=False)
    return tuple(
        np.asarray(r).astype(s.dtype.numpy, copy=False) for r, s in zip(result, specs, strict=True)
    )
