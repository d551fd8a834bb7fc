"""Running an op's `compute` on arrays: backend choice, float32 for narrow floats, clear errors."""

from __future__ import annotations

import contextvars
import functools
import math
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..core import dispatch_log, policy
from ..core.device import device_of, namespace_of, space
from ..core.dtype import LOW_PRECISION, from_numpy_dtype
from ..core.errors import AdjointError, OutOfMemoryError, Unsupported
from ..core.mistakes import misplaced
from ..core.mode import DEFAULT, MODE
from ..core.op import Op
from ..core.spec import Spec
from ..eager.arrays import signature
from . import executable
from .executable import known

_LOW_NUMPY = frozenset(d.numpy for d in LOW_PRECISION)
_FLOAT32 = np.dtype(np.float32)


_inside = contextvars.ContextVar("whether ops compute here", default=False)


class _Quiet(threading.local):
    """A context per thread in which NumPy reports no floating-point warnings, as PyTorch does.

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
    in it), and for those of threads to come.
    """
    _preparations.append(prepare)
    prepare(quietly)


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in the context in which ops compute; at once, where that is the present one
    (in the middle of another op, of a walk, or of a graph's run).
    """
    return function(*args) if _inside.get() else _quiet.run(function, *args)


def spec_of(array: Any) -> Any:
    """The Spec of an array; a Python number stands for itself."""
    if hasattr(array, "dtype"):
        return Spec(tuple(array.shape), from_numpy_dtype(array.dtype), device_of(array))
    return array


# What may compute an op on large NumPy arrays instead of NumPy: (op, arrays) -> the result, or
# NotImplemented. Set by `backends.native`.
accelerate: Callable[[Op, list[Any]], Any] | None = None
# The namespace with which ops that only move elements write into large NumPy arrays, or None where
# NumPy's serves. Set with it.
moving: Callable[[], Any] | None = None
# A program of elementwise ops with the arithmetic of its numbers -> what computes all outputs of
# arrays, or None. Set with it, at the first large op.
chained: Callable[[Any, Any], Any] | None = None
LARGE, SMALL = policy.LARGE, policy.SMALL

_ndarray = np.ndarray
_ASKED = frozenset(("", "moves", "draws"))
_ALWAYS = frozenset(("always", "product", "linear", "linear_input", "linear_weight"))


def compute(op: Op, arrays: list[Any]) -> Any:
    """What `op` computes from arrays and numbers: by what is known to compute it for such, else in
    the general way.
    """
    found = known(op, arrays)
    return compute_anew(op, arrays) if found is None else found


def compute_anew(op: Op, arrays: list[Any]) -> Any:
    """`op.compute` on `arrays`; where it fails, `op.infer` gets the chance to say why."""
    xp = None
    low = False
    large = op.library in _ALWAYS or op.grows
    enough = SMALL if op.library in _ASKED and not op.view else LARGE
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
    if op.strict:
        _assert_sound(op, arrays)
    try:
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
    except AdjointError:
        raise
    except Exception as error:
        for array in arrays:
            if array is None or isinstance(array, (str, list, tuple, dict)):
                raise misplaced(array, op.name, "input" if len(arrays) == 1 else "") from None
        op.infer(*map(spec_of, arrays))
        if isinstance(error, MemoryError):
            raise OutOfMemoryError(f"{op.name}: {error}; compute it in parts") from error
        raise


def _namespace(op: Op, array: Any) -> Any:
    try:
        return namespace_of(array)
    except Unsupported:
        raise misplaced(array, op.name, due="a tensor or a number") from None


def remember(op: Op, arrays: list[Any], launch: Callable[..., Any], result: Any) -> None:
    """Let eager execution call `launch`, which gave `result`, for such inputs of this op."""
    key = signature(op, arrays, False, [], None, True) if _is_kept(arrays, result) else None
    if key is not None:
        executable.keep(key, executable.Executable(launch, op, op, _records(op, result)))


def remember_numbered(
    op: Op, arrays: list[Any], launching: Callable[[list[Any]], Any], result: Any
) -> None:
    """Let it call `launching(numbers)` for inputs that differ from these in numbers, and for ops
    that differ in floats among their fields, which come first; None: for these it does not know.
    """
    numbers: list[Any] = []
    alike = op.without_numbers(numbers)
    key = signature(alike, arrays, False, [], None, True, numbers)
    if key is None or not _is_kept(arrays, result) or executable.find(key) is not None:
        return
    records = _records(op, result)

    def make(op: Op, numbers: list[Any]) -> Any:
        launch = launching(numbers)
        return None if launch is None else executable.Executable(launch, op, op, records)

    executable.keep_family(key, alike, make)


def _records(op: Op, result: Any) -> bool:
    """Whether a result may want a gradient; of several this is not asked."""
    return op.differentiable and type(result) is _ndarray and result.dtype.kind in "fcV"


def _is_kept(arrays: list[Any], result: Any) -> bool:
    """Whether calls with such inputs may go straight to what gave `result`: numbers must be of the
    arrays' kind, since others, and those beside narrow floats, are converted before.
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


# The same for random draws: (class, fields behind seed and draw but the device) -> the function of
# seed and draw that gives the array.
draws: dict[Any, Any] = {}
executable.forgettable(draws.clear)


def remember_draw(op: Op, draw: Callable[[int, int], Any]) -> None:
    """Let eager execution call `draw` for such an op without inputs on the CPU."""
    if len(draws) >= policy.LAUNCHERS:
        draws.clear()
    _, _, *fields, _ = op._attributes()
    draws[type(op), tuple(fields)] = draw


forget = executable.forget


def launcher_of(op: Op, xp: Any, alone: bool = False) -> Callable[..., Any]:
    """`op.compute` with a namespace, in the context in which ops compute; of what may give NumPy's
    element `alone`, that as an array.
    """
    if alone:
        return functools.partial(quietly, _as_array, op.compute, xp)
    return functools.partial(quietly, op.compute, xp)


def _as_array(compute: Callable[..., Any], xp: Any, *arrays: Any) -> Any:
    return np.asarray(compute(xp, *arrays))


_sound: dict[Any, Op] = {}  # ops, by identity, on arrays that `infer` had nothing against


def _assert_sound(op: Op, arrays: list[Any]) -> None:
    """What `infer` of a strict op says, which for the same op and specs is said once."""
    if not all(type(a) is _ndarray for a in arrays):
        op.infer(*map(spec_of, arrays))
        return
    key = (id(op), *[(a.shape, a.dtype) for a in arrays])
    if key not in _sound:
        op.infer(*map(spec_of, arrays))
        if len(_sound) >= policy.SOUND:
            _sound.clear()
        _sound[key] = op


def compute_elsewhere(op: Op, xp: Any, arrays: list[Any]) -> Any:
    """The same on another device: its namespace decides how narrow floats are computed."""
    if op.strict:
        op.infer(*map(spec_of, arrays))
    try:
        return xp.run(op, arrays)
    except AdjointError:
        raise
    except Exception:
        op.infer(*map(spec_of, arrays))
        raise


def write_arrays(op: Op, arrays: list[Any]) -> None:
    """`op.write` on `arrays`; where it fails, `op.infer` gets the chance to say why."""
    if op.strict:
        op.infer(*map(spec_of, arrays))
    xp = namespace_of(arrays[0])
    plain = type(xp) is ModuleType and arrays[0].size > SMALL
    if plain and op.library == "moves" and moving is not None:
        xp = moving() or xp
    try:
        quietly(op.write, xp, *arrays)
    except AdjointError:
        raise
    except Exception:
        op.infer(*map(spec_of, arrays))
        raise


def _widened(op: Op, arrays: list[Any]) -> tuple[list[Any], Any]:
    """The narrow floats of `arrays` as float32, and the specs of the outputs."""
    specs = op.infer(*map(spec_of, arrays))
    return [
        a.astype(_FLOAT32) if hasattr(a, "dtype") and a.dtype in _LOW_NUMPY else a for a in arrays
    ], specs


def _compute_and_round(op: Op, xp: Any, wide: list[Any], specs: Any) -> Any:
    result = op.compute(xp, *wide)
    if isinstance(specs, Spec):
        return np.asarray(result).astype(specs.dtype.numpy, copy=False)
    return tuple(
        np.asarray(r).astype(s.dtype.numpy, copy=False) for r, s in zip(result, specs, strict=True)
    )
