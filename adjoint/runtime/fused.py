"""Decorators of public functions. `@fused`: a composite that eager execution may run as a few
kernels instead of op by op. `@checking`: a function whose checks are skipped for signatures seen
before. `@writing`: a function that also has an in-place form.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numpy as np

from ..core import policy
from ..core.argument_errors import MISTAKES, recovered
from ..core.device import CPU, get_default_device, is_device_array
from ..core.dtype import float32, get_default_dtype
from ..core.mode import MODE
from ..core.op import Op
from ..core.overrides import ABSENT, FOLLOWED, overridden
from ..core.sized_tables import SizedTable
from ..ir import compute
from ..ir.executable import forgettable
from ..ir.variants import Variants
from .call_cache import learn, learn_new, learn_view
from .dispatch import apply, run_known
from .public import (
    FUNCTIONS,
    METHODS,
    _with_numpy_names,
    in_place_doc,
    with_names,
    with_out,
    write_in_place,
)
from .writes import copied, in_place, is_copied_to

if TYPE_CHECKING:
    from ..core.tensor_base import TensorBase

F = TypeVar("F", bound=Callable[..., Any])

SMALLEST = policy.COMPOSITE_SMALLEST  # elements of the first argument from which kernels pay


@overload
def fused(function: F) -> F: ...
@overload
def fused(*, native: str, always: bool = ..., apart: bool = ...) -> Callable[[F], F]: ...
def fused(
    function: Any = None, *, native: str = "", always: bool = False, apart: bool = False
) -> Any:
    """Declare that `function` may run as kernels, forward and backward, derived from its ops.

    It takes positional arguments: tensors, the largest one first, and hashable values. It returns a
    tensor or a tuple of them, and does nothing else: no checks, warnings, draws or writes. What it
    means is what its ops mean; where they are recorded, or too small, or no kernel can be made,
    they run one by one.

    `native` names a module of `backends.native` for what cannot be derived, such as loops over
    time: its `plan(specs, statics, wants)` makes a `Routine` (see `autograd.fusion`). A recorder
    may take a composite as a whole: its `composite(declared, args)` returns the result, or
    NotImplemented. `always` says that it pays for tensors of every size; `apart` that compiled
    programs of the host compute it by its own ops, whatever routine there is.
    """
    if function is None:
        return functools.partial(_declare, native=native, always=always, apart=apart)
    return _declare(function, native, always, apart)


class Declared:
    """A composite, and the plans made for calls of it."""

    __slots__ = (
        "__weakref__", "always", "apart", "families", "function", "native", "patterns", "plans",
        "run",
    )  # fmt: skip

    run: Callable[..., Any]  # the public function, which calls this one or its kernels
    plans: SizedTable[Any]  # by arguments and casts: the fused op, or the reason why there is none
    families: SizedTable[Variants]  # variants of such ops, by the same without numbers
    patterns: dict[Any, Any]  # what makes such ops for any sizes, by the same without these, too

    def __init__(
        self, function: Callable[..., Any], native: str, always: bool, apart: bool = False
    ) -> None:
        self.function = function
        self.native = native
        self.always = always
        self.apart = apart
        self.plans = SizedTable("plans of composites", _weigh_plan)
        self.families = SizedTable("families of composites", _weigh_family)
        self.patterns = {}
        _every.add(self)


def _weigh_plan(plan: Any) -> int:
    """About how many bytes a plan takes, or the reason why there is none."""
    return policy.KEY_BYTES + getattr(plan, "sized_bytes", 0)


def _weigh_family(variants: Variants) -> int:
    return policy.KEY_BYTES + max(policy.COMPOSITE_BYTES, sum(map(_weigh_plan, variants.made)))


_every: weakref.WeakSet[Declared] = weakref.WeakSet()


def _forget() -> None:
    for declared in list(_every):
        declared.plans.clear()
        declared.families.clear()
        declared.patterns.clear()


forgettable(_forget)


def declared_with_routines() -> dict[str, Declared]:
    """The package's composites that have hand-written routines, by module and name."""
    return {
        f"{each.function.__module__}.{each.function.__qualname__}": each
        for each in list(_every)
        if each.native and each.function.__module__.startswith("adjoint.")
    }


def _declare(function: F, native: str, always: bool, apart: bool) -> F:
    declared = Declared(function, native, always, apart)

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        y = run_known(declared, args, True)
        if y is not None:
            return y
        if FOLLOWED:
            said = overridden(run, args, {})
            if said is not ABSENT:
                return said
        mode = MODE.get()
        try:
            if mode.fuses:
                data = args[0]._data
                few = compute.accelerate is None or (data.size < SMALLEST and not always)
                one_by_one = few and not is_device_array(data)
                if mode.observer is not None:
                    return mode.observer.composite(declared, args, one_by_one)
                return function(*args) if one_by_one else _execute(declared, args)
            whole = getattr(mode.executor, "composite", None)
            recorded = NotImplemented if whole is None else whole(declared, args)
            return function(*args) if recorded is NotImplemented else recorded
        except MISTAKES as error:
            return recovered(error, run, function, args, {})

    declared.run = run
    run.declared = declared  # type: ignore[attr-defined]
    return cast(F, run)


def checking(function: F) -> F:
    """Declare a public function that only checks its arguments and returns (op or composite,
    *inputs) to apply. Where that is not enough (to warn, say), it returns a tensor.

    Called again with arguments like those of a call that was launched, it need not check.
    """
    accepting = _with_numpy_names(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        call_args = with_names(args, kwargs) if kwargs else args
        y = run_known(function, call_args, True)
        if y is not None:
            return y
        if FOLLOWED:
            said = overridden(run, args, kwargs)
            if said is not ABSENT:
                return said
        try:
            checked = accepting(*args, **kwargs)
            if type(checked) is not tuple:
                return checked
            what, *inputs = checked
            y = apply(what, *inputs) if isinstance(what, Op) else what(*inputs)
        except MISTAKES as error:
            return recovered(error, run, function, args, kwargs)
        learn(function, call_args, what, inputs)
        return y

    return cast(F, run)


def viewing(function: F) -> F:
    """Declare a public function that usually returns a view of its first argument by one op.

    Called again with arguments like those of a call that did, it need not look at them.
    """

    accepting = _with_numpy_names(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        y = None if kwargs else run_known(function, args, True)
        if y is not None:
            return y
        if FOLLOWED:
            said = overridden(run, args, kwargs)
            if said is not ABSENT:
                return said
        try:
            y = accepting(*args, **kwargs)
        except MISTAKES as error:
            return recovered(error, run, function, args, kwargs)
        if not kwargs:
            learn_view(function, args, y)
        return y

    return cast(F, run)


drawing_for: list[int] = [0]  # how many draws for tensors of graphs are being made, anywhere


def creating(function: F, *, draw: tuple[type[Op], Any] | None = None) -> F:
    """Declare a public function that makes a tensor from its arguments alone; or from random
    numbers, all of which are one `draw` of their shape and dtype: an op, and the generator that it
    draws from.

    Called again with such arguments, it need not look at them: of a small tensor, which is all that
    pays, the elements are copied, or drawn.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        usual = get_default_dtype() is float32 and get_default_device() is CPU
        if draw is not None and drawing_for[0]:
            usual = False
        call_args = with_names(args, kwargs) if kwargs else args
        y = run_known(function, call_args) if usual else None
        if y is not None:
            return y
        if FOLLOWED:
            said = overridden(run, args, kwargs)
            if said is not ABSENT:
                return said
        try:
            y = function(*args, **kwargs)
        except MISTAKES as error:
            return recovered(error, run, function, args, kwargs)
        if usual and MODE.get().plain and not kwargs.get("pin_memory"):  # which a copy has not
            learn_new(function, call_args, y, draw)
        return y

    return cast(F, run)


def writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare two public functions from one that checks its arguments and returns (op, tensor,
    *inputs).

    The function itself applies the op; the method with a trailing underscore writes over the tensor
    by a kernel or, where there is none, lets `op.write` change the tensor's own memory, which costs
    what is written and not the tensor's size. Of a small one it copies what the function gives.
    """
    name = function.__name__
    apart = checking(function)

    def general(self: Any, *args: Any, **kwargs: Any) -> Any:
        few = compute.accelerate is not None and 0 < self._data.size <= policy.WRITE_FEW
        if few and not kwargs and is_copied_to(self, args):
            y = apart(self, *args)
            if copied(self, y, f"{name}_"):
                return self
        op, tensor, *inputs = function(self, *args, **kwargs)
        return write_in_place(f"{name}_", op, tensor, *inputs)

    method = functools.update_wrapper(in_place(f"{name}_", apart, general), function)
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = in_place_doc(name)
    FUNCTIONS[name] = METHODS[name] = apart
    METHODS[f"{name}_"] = method
    return with_out(apart)


def is_fusing(x: TensorBase) -> bool:
    """Whether a composite of `x` runs as kernels on the host here, if it has any."""
    return MODE.get().fuses and type(x._data) is np.ndarray and pays((x,))


def worthwhile(declared: Declared, args: tuple[Any, ...]) -> bool:
    """Whether a composite of such arguments may have kernels, and is large enough to look for
    them.
    """
    return compute.accelerate is not None and (declared.always or args[0]._data.size >= SMALLEST)


def pays(args: tuple[Any, ...]) -> bool:
    """Whether kernels are available and the arguments large enough for them."""
    return compute.accelerate is not None and args[0]._data.size >= SMALLEST


def _one_by_one(declared: Declared, args: tuple[Any, ...]) -> Any:
    return declared.function(*args)


_execute: Callable[[Declared, tuple[Any, ...]], Any] = _one_by_one


def connect(execute: Callable[[Declared, tuple[Any, ...]], Any]) -> None:
    """Set the function that runs fused composites (called once, where the layers are wired
    together).
    """
    global _execute
    _execute = execute
