"""`ad.compile`: functions and whole training steps as native programs that take their place.

A program replaces the function while its guards hold: the structure of the arguments, with shapes
and dtypes of tensors and the values of other arguments, the modes, and the Python state that the
code read elsewhere (`compiler/guards/`). Where a guard fails another program is
captured, up to a limit; after that the function runs eagerly, and says which value changes.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from ..autograd.function import Opaque
from ..backends import native
from ..core import debug, policy, sized_tables
from ..core.checked_modules import watch_modules
from ..core.device import CPU
from ..core.dtype import get_default_dtype
from ..core.elements import order_in_memory
from ..core.errors import (
    AdjointError,
    InvalidArgument,
    InvalidType,
    LayoutError,
    RecordingError,
    Unsupported,
)
from ..core.mode import MODE, Mode, mode_with, observed, switched
from ..core.overrides import FOLLOWED, is_apart
from ..core.signal_deferral import DEFERRED, complete
from ..core.sized_tables import SizedTable
from ..core.tensor_base import TensorBase
from ..core.tracebacks import cut
from ..core.tree import named_arguments
from ..nn import hooks
from ..nn.modules.module import Module
from ..ops.create.conversion import strided
from ..ops.random.generators import is_following
from ..optim import optimizer
from ..optim.learning_rate import OPTIONS
from ..runtime.cells import users_frame
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import Node
from ..runtime.public import naming
from ..runtime.tensors import wrap
from .bound import BoundWhenRead, P, R
from .capture.call_ops import CallOps, are_recorded
from .capture.differentiation import Differentiation
from .capture.drop_grads import dropping
from .capture.dynamic_shapes import ChangingSizes, ShapePolymorphicProgram, SymbolicArgumentSizes
from .capture.graph_breaks import FragmentedFunction
from .capture.lifted_state import (
    LiftedState,
    LiftedStateHistory,
    RestoredState,
    RetraceWritten,
    ScalarInputs,
)
from .capture.loader_loop import over
from .capture.step_capture import (
    CAPTURING,
    InitializedOptimizers,
    RetraceVarying,
    RetraceWithLeaves,
    RunEagerlyFirst,
    capture,
)
from .capture.trace import Trace
from .device.device_step import lowered
from .freeze.performance_report import Explanation, Timer
from .guards.code_observer import place_of
from .guards.number_arguments import NumberArguments
from .guards.python_state import Guards, watched
from .guards.retraces import RetraceOnCache, RetraceOnRenewal, RetraceToFollow, RetraceToLift
from .guards.signature import BY_VALUE, Signature, called, is_input, replaced, without_sizes
from .guards.slot_values import now
from .guards.slots import PLAIN, GuardSource
from .guards.state_snapshot import StateSnapshot
from .guards.tensor_identity import assert_apart, reached_otherwise, told_apart
from .report.explanation import explanation, report
from .report.pass_trace import PassTrace, name_inputs, stages_of
from .report.refusals import with_others
from .run.arena_pool import ArenaPool
from .run.bound_call import OTHER, FastPath
from .run.derivatives import Derivatives
from .run.sized_step import lowered_for
from .run.step import CompiledStep

if TYPE_CHECKING:
    from ..autograd.protocols import StepObserver

__all__ = ["CompiledFunction", "CompiledModule", "compile"]

_ON_HOST = 'programs in files are of the host: move the model and its arguments with .to("cpu")'
_MODES = ("pieces", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@naming
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
    fallback: str = "error",
    reassociate: bool = False,
    keep_grads: bool = True,
) -> Any:
    """A function, a module or a whole training step (forward, backward, optimizer) as one native
    program, captured at the first call; without `model`, a decorator.

    The same values, gradients, states and random numbers as without it. Calls with other dtypes or
    Python values compile anew, as does whatever the function's Python read elsewhere (attributes,
    variables, containers) and has changed: up to `recompile_limit` (16) programs, past which calls
    run eagerly, with one warning (whatever `fallback` says), or an error with `fullgraph=True`. At
    4 and at 8 programs a warning names what changes. Other sizes are
    any number of programs, of which those used last are kept: from its second size on a dimension
    is a number of what is captured, which stands for others, too; with `dynamic=True` from the
    first call on, with `dynamic=False` never, and each size counts. What cannot be captured is an
    error that names the line; with `fallback="eager"` the function then runs eagerly, with one
    warning; with `mode="pieces"` Python runs in each call, and what it records between reads runs
    as programs. `reassociate=True` allows other roundings: numbers are merged, divisions become
    products, sums are scaled instead of what is summed.
    With `keep_grads=False` no memory is kept for gradients of what optimizers change within the
    function: `.grad` is None after each call, as if it ended with their `zero_grad()`.
    `backend="eager"` and `disable=True` compile nothing; "inductor" means "native"; other `mode`s,
    `options` (of inductor) and `isolate_recompiles` give the same program. `name` is
    what profiles show.
    Errors: Unsupported for `shapes_spec`, and at the call for what cannot be captured;
    AutogradError for a backward through results whose history is over (an optimizer has stepped, a
    backward has run), or a second derivative of what was changed since the call; InvalidArgument
    and InvalidType for other arguments.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.compile.html

    >>> layer = ad.nn.Linear(2, 1)
    >>> optimizer = ad.optim.SGD(layer.parameters(), lr=0.1)
    >>> @ad.compile
    ... def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = ((layer(x) - y) ** 2).mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> x, y = ad.randn(8, 2), ad.randn(8, 1)
    >>> losses = [step(x, y).item() for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """
    if model is None:
        return partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, name=name, disable=disable, recompile_limit=recompile_limit,
            isolate_recompiles=isolate_recompiles, shapes_spec=shapes_spec, fallback=fallback,
            reassociate=reassociate, keep_grads=keep_grads,
        )  # fmt: skip
    if not callable(model):
        raise InvalidType(f"compile: expected a function or a module, got {type(model).__name__}")
    if dynamic is not None and type(dynamic) is not bool:
        raise InvalidType(f"compile: dynamic={dynamic!r}; it is True, False or None")
    if fallback not in ("error", "eager"):
        raise InvalidArgument(f"compile: fallback={fallback!r}; it is 'error' or 'eager'")
    if not keep_grads and (mode == "pieces" or disable or backend == "eager"):
        if isinstance(model, Module):
            raise InvalidArgument(
                "compile: keep_grads=False for a module that is not captured; compile the step"
            )
        model = dropping(model)
    if mode == "pieces" and not (disable or backend == "eager"):
        pieces = FragmentedFunction(model, name or _name(model))
        return CompiledModule(model, pieces) if isinstance(model, Module) else pieces
    if mode is not None and mode not in _MODES:
        raise InvalidArgument(f"compile: Unrecognized mode={mode!r}, should be one of: {_MODES}")
    if backend not in (None, "native", "inductor", "eager"):
        raise InvalidArgument(f"compile: Invalid backend: {backend!r}; 'native' or 'eager'")
    if shapes_spec is not None:
        raise Unsupported("compile: shapes_spec; sizes may change without it")
    if disable or backend == "eager":
        return model
    watch_modules()
    limit = policy.COMPILED_PROGRAMS if recompile_limit is None else recompile_limit
    called = name or _name(model)
    call = CompiledFunction(
        model, fallback, limit, called, dynamic, reassociate, keep_grads, fullgraph
    )
    return CompiledModule(model, call) if isinstance(model, Module) else call


class RecompileLimit(Unsupported):
    """Error: a call needs a program, and a function has as many as it may have."""


def _weigh(variant: _Variant) -> int:
    return variant.program.bytes


class CompiledFunction(BoundWhenRead[P, R]):
    """A function that is run by captured programs: see `compile`."""

    # Attributes that are not guarded where another function reads this one: it reads the function.
    _unread = frozenset(
        ("function", "reasons", "_fallback", "_limit", "_called", "_sizes", "_nearly", "_programs",
         "_body", "_calls", "_dropped", "_latest", "_learnt", "_leaves", "_eagerly", "_entry",
         "_reserve", "_resized", "_dynamic", "_numbers", "_full", "_fullgraph", "_filled",
         "_changes", "_failures", "_warned", "_forms", "_bytes", "_kept", "_turns")
    )  # fmt: skip

    def __init__(
        self, function: Callable[P, R], fallback: str, limit: int, name: str,
        dynamic: bool | None = None, reassociate: bool = False, keep_grads: bool = True,
        fullgraph: bool = False,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.function = function
        self._keeps = keep_grads
        self._body: Callable[..., R] = function if keep_grads else dropping(function)  # called
        self._numbers = NumberArguments()
        self._full = False  # whether the limit was met
        self._filled = 0  # how many captures have filled an lru_cache of the user's
        self.reasons: list[str] = []  # why each program was compiled
        self._failures: Counter[str] = Counter()  # of guards, by what is guarded
        self._changes: list[str] = []  # the reasons of those that the limit counts
        self._warned = 0  # the number of programs at which a warning came last
        self._fallback, self._limit, self._called = fallback, limit, name
        self._fullgraph = fullgraph
        self._dynamic = dynamic
        self._sizes = dynamic is not False  # whether programs that differ by sizes count as one
        self._nearly = reassociate
        self._programs: dict[Any, list[_Variant]] = {}
        # The signatures of programs by their form, and the most programs that one of them has.
        self._forms: dict[Any, tuple[dict[Any, None], int]] = {}
        self._bytes = 0  # of all programs, when each was added
        self._calls = 0
        # Programs that were filled in for a further size, by signature: cheap to make again. They
        # are in the budget of all that is kept by size; what that drops is dropped here, too.
        self._kept: SizedTable[_Variant] = SizedTable("compiled sizes", _weigh)
        self._turns = 0  # of that budget, by which programs were dropped
        self._resized = ChangingSizes(dynamic)
        self._dropped: set[int] = set()  # hashes of signatures whose programs were dropped
        self._latest: _Variant | None = None
        self._entry: FastPath | None = None  # fast path for calls like the last one
        self._learnt = LiftedStateHistory()
        self._nodes = CallOps(function, name)
        self._reserve = ArenaPool()
        self._leaves = False  # leaves among the arguments are known by identity
        self._eagerly = ""  # why the function runs eagerly from now on

    def __reduce__(self) -> tuple[Any, ...]:
        options = self._fallback, self._limit, self._called, self._dynamic, self._nearly
        return CompiledFunction, (self.function, *options, self._keeps, self._fullgraph)

    def __repr__(self) -> str:
        return f"<compiled {self._called}>"

    @property
    def programs(self) -> list[CompiledStep]:
        """The programs compiled so far, the last used of each signature first."""
        return [each.program for variants in self._programs.values() for each in variants]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, by a program where possible: the same result and the same side
        effects.
        """
        mode = MODE.get()
        entry = self._entry
        if entry is not None:
            result: R = entry.run(mode, args, kwargs)
            if result is not OTHER:
                return result
        try:
            if mode.executor is not None or mode.saved_hooks is not None or mode.anomaly:
                if are_recorded(mode, ()) and mode.saved_hooks is None and not mode.anomaly:
                    return self._run(mode, args, kwargs, None)
                return self._body(*args, **kwargs)  # each op is recorded, or looked at
            if mode.inlines:
                return self._body(*args, **kwargs)
            if self._eagerly:
                return observed(self._title, self._body, *args, **kwargs)
            if mode.observer is not None:
                return observed(self._title, self._run, mode, args, kwargs, mode.observer)
            return self._run(mode, args, kwargs, None)
        except Exception as error:
            cut(error)
            raise

    @property
    def _title(self) -> str:
        return f"Compiled#{self._called}"

    def over(self, loader: Iterable[object]) -> Any:
        """Call the function with each batch of a loader (of a tuple or list its items as
        arguments); what is returned is stacked: a loss becomes the losses of all steps.

        The loader's workers make the next batches meanwhile. Every step has been made where a
        later one fails.
        Shapes: results of every call alike; they get a first dimension for the calls.
        Errors: those of the calls; ShapeError for results that cannot be stacked; InvalidArgument
        for a loader without batches.

        >>> data = ad.data.TensorDataset(ad.arange(6.0))
        >>> ad.compile(lambda x: x.sum()).over(ad.data.DataLoader(data, batch_size=2))
        tensor([1., 5., 9.])
        """
        return over(self, loader, self._called)

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Call the function once more, and say what its program does, the slowest steps first:
        kernels with operations, bytes, time and share of the machine's measured peak, host calls
        and memory; `table(verbose=True)` has the reasons, too. Each step is timed alone, which
        takes longer than the call. A function that changes nothing is called 5 times, and the
        least time of each step counts; one that does (a training step) once.

        Errors: those of the call; Unsupported where it runs eagerly. After a refusal the error has
        all others that the function's code would be refused for, as far as reading it tells.

        >>> doubled = ad.compile(lambda x: (x * 2).exp())
        >>> [row.name for row in doubled.explain(ad.ones(4)).rows]
        ['mul_exp']
        """
        taken: list[list[float]] = []
        while not self._eagerly and len(taken) < (
            policy.EXPLAINED if self._changes_nothing() else 1
        ):
            timer = Timer()
            try:
                self._run(MODE.get(), args, kwargs, timer)
            except Unsupported as error:
                raise Unsupported(with_others(str(error), self.function)) from error
            taken.append(timer.seconds)
        if self._eagerly:
            told = f"explain: {self._called} runs eagerly: {self._eagerly}"
            raise Unsupported(with_others(told, self.function))
        if self._latest is None:
            raise Unsupported(
                f"explain: {self._called} ran eagerly, since its optimizers had no state before "
                "the first call; explain another one"
            )
        least = [min(each) for each in zip(*taken, strict=True)]
        return explanation(self._called, self._latest.program, least, self.reasons)

    def _changes_nothing(self) -> bool:
        """Whether a call of the last program leaves all but what it returns as it was."""
        if self._latest is None or self._learnt.slots or self._latest.arguments.any:
            return False
        whole = self._latest.program.captured
        return not any((*whole.effects._replace(options=0), whole.inputs.streams))

    def graph(self, *args: P.args, **kwargs: P.kwargs) -> PassTrace:
        """The program for a call like this one before its passes and after each: a table to print,
        `stages`, and pictures (`draw`). The function's Python runs once on symbols, and the passes
        again; nothing is called, and nothing changes.

        Errors: Unsupported for what cannot be captured, or runs eagerly.

        >>> doubled = ad.compile(lambda x: (x * 1 * 2).exp())
        >>> stages = doubled.graph(ad.ones(4))
        >>> [node.op.name for node in stages["captured"].program.nodes]
        ['mul', 'mul', 'exp']
        >>> [node.op.name for node in stages["drop_identities"].program.nodes]
        ['mul', 'exp']
        >>> [node.op.name for node in stages["runs"].program.nodes]
        ['mul_exp']
        """
        signature = Signature(self._leaves)
        signature.add_all((*args, kwargs))
        objects = signature.objects
        reason = self._eagerly or (native.unusable() if _on_host(signature.tensors) else None)
        if reason:
            raise Unsupported(f"graph: {self._called} runs eagerly: {reason}")
        begun = InitializedOptimizers()
        try:
            with CAPTURING:
                variant = self._captured(MODE.get(), args, kwargs, signature, begun)
                captured, guards = variant.found
                name_inputs(captured, self.function, objects)
                made = partial(lowered, captured, guards, self._nearly)
                return stages_of(self._called, captured.program, made)
        except RetraceWithLeaves:
            self._leaves, self._entry = True, None
            return self.graph(*args, **kwargs)
        except RunEagerlyFirst:
            raise Unsupported(
                f"graph: the optimizers of {self._called} have no state before the first call; "
                "call it once"
            ) from None
        except Unsupported as error:
            raise Unsupported(_told(error)) from error
        finally:
            complete([begun.undo])

    def _run(
        self,
        mode: Mode,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        observer: StepObserver | None,
    ) -> Any:
        numbers = self._numbers
        if not numbers.vary or mode.executor is not None:
            return self._run_with(mode, args, kwargs, (args, kwargs), observer)
        with numbers.lock:  # they are held until the call is over
            taken = numbers.taken(args, kwargs)
            return self._run_with(mode, *taken, (args, kwargs), observer)

    def _run_with(
        self,
        mode: Mode,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        given: tuple[tuple[object, ...], dict[str, object]],
        observer: StepObserver | None,
    ) -> Any:
        """Run the call by a program. `given` are the arguments, of which `args` and `kwargs` have
        marks for the numbers that vary.
        """
        signature = self._signature(args, kwargs)
        tensors = signature.tensors
        why = _overrides(mode, tensors) if FOLLOWED else ""
        if why:
            return self._refused(Unsupported(f"compile: {why}"), given)
        casts = None if mode.autocast is None else mode.autocast.settings
        full = (
            tuple(signature.key), mode.grad, mode.inference, casts, get_default_dtype(),
            is_following(),
        )  # fmt: skip
        if (mode.executor is not None or not signature.host) and are_recorded(mode, tensors):
            if observer is not None and observer is not mode.observer:
                raise Unsupported("explain: an argument is of a graph; give its snapshot()")
            if self._numbers.vary and mode.executor is None:
                signature = self._signature(*given)
                full = (tuple(signature.key), *full[1:])
            return self._recorded(full, *given, tensors, signature.objects)
        why = "" if signature.host else _sparse(tensors)
        if why:
            return self._refused(LayoutError(f"compile: {why}"), given)
        host = signature.host or _on_host(tensors)
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        match = self._fitting(full, tensors)
        if match is not None:
            variant = match[0]
            self._entry = variant.entry(mode, signature.key, self._leaves) if mode.plain else None
            return variant.run(*match[1:], observer, signature.containers)
        reason = native.unusable() if host else None
        if reason is not None:
            return self._give_up(f"no native code: {reason}", *given)
        if self._full:
            return observed(self._title, self._body, *given[0], **given[1])
        if self._numbers.learn(*given, full[1:], self._leaves):
            return self._run(mode, *given, observer)
        return self._run_new(mode, full, args, kwargs, given, signature, observer)

    def _signature(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Signature:
        """The signature of a call."""
        signature = Signature(self._leaves)
        signature.add_all(args)
        if kwargs:
            signature.add(kwargs)
        return signature

    def _refused(
        self, error: Unsupported, given: tuple[tuple[object, ...], dict[str, object]]
    ) -> object:
        """Run eagerly from now on, if the user wants that where no program is possible.

        Errors: the given one otherwise.
        """
        if self._fallback != "eager":
            raise error
        return self._give_up(str(error).removeprefix("compile: "), *given)

    def _run_new(
        self,
        mode: Mode,
        key: tuple[object, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        given: tuple[tuple[object, ...], dict[str, object]],
        signature: Signature,
        observer: StepObserver | None,
    ) -> object:
        """Run the call by a program that is compiled for it; eagerly once, or from now on, where
        that is not possible.
        """
        try:
            return self._compiled_and_run(mode, key, args, kwargs, signature, observer)
        except RetraceWithLeaves:
            self._leaves, self._entry = True, None
            return self._run(mode, *given, observer)
        except RunEagerlyFirst:  # a first step differs from later ones, or may be skipped
            try:
                MODE.set(mode_with(mode, inlines=True))
                return self._body(*given[0], **given[1])
            finally:
                MODE.set(mode)
        except RecompileLimit as error:
            if self._fullgraph:
                raise
            self._full = True
            warnings.warn(f"{error}; other calls run eagerly", stacklevel=users_frame()[0])
            return self._body(*given[0], **given[1])
        except Unsupported as error:
            told = _told(error)
            if self._fallback == "eager":
                return self._give_up(told.removeprefix("compile: "), *given)
            error.args = (told,)
            raise error from None

    def _compiled_and_run(
        self,
        mode: Mode,
        key: tuple[object, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        signature: Signature,
        observer: StepObserver | None,
    ) -> object:
        """Run a call by a program that is compiled for it, if no other thread has done so."""
        begun = InitializedOptimizers()
        try:
            with CAPTURING:
                match = self._fitting(key, signature.tensors)
                if match is None:
                    made = self._compiled(mode, key, args, kwargs, signature, begun)
                    inputs = made.fitting(signature.tensors)
                    if inputs is None:
                        raise Unsupported("compile: the function changes what it depends on")
                    match = made, *inputs
            with DEFERRED:  # what optimizers begin with stays where the run has happened
                result: object = match[0].run(*match[1:], observer, signature.containers)
                begun.keep()
            return result
        except BaseException:
            complete([begun.undo])
            raise

    def _recorded(
        self,
        key: tuple[object, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        tensors: list[Any],
        objects: list[Any],
    ) -> object:
        """Apply the function as one node of a graph or lazy recording."""
        leaves, nodes = self._leaves, self._nodes
        if nodes.inlined:
            return self._body(*args, **kwargs)

        def given(*symbols: Any) -> object:
            copies: dict[int, Any] = {}
            positional, named = replaced((args, kwargs), leaves, iter(symbols), copies)
            result, written = called(self._body, positional, named, _containers(copies))
            if written:
                raise Unsupported(
                    "it writes to a list or dict among its arguments, which a node does not do "
                    "again; return what it puts there"
                )
            return result

        try:
            return nodes.apply(key, tensors, objects, given)
        except RecordingError as error:
            if self._fallback != "eager":
                raise
            nodes.inlined = True
            warnings.warn(f"{error}: so it is, from now on", stacklevel=users_frame()[0])
            return self._body(*args, **kwargs)

    def _fitting(
        self, key: tuple[object, ...], tensors: list[Any]
    ) -> tuple[_Variant, list[Any], Any, Sequence[Any]] | None:
        """The program of a signature whose guards hold, with its arguments, its numbers and those
        of lifted state; None without one.
        """
        variants = self._programs.get(key, ())
        for k, each in enumerate(variants):
            inputs = each.fitting(tensors)
            if inputs is not None and not each.program.difference():
                if k:
                    self._programs[key] = [each, *variants[:k], *variants[k + 1 :]]
                if each.program.filled:
                    self._kept.find(key)
                self._latest = each
                self._calls += 1
                each.used = self._calls
                return each, *inputs
        return None

    def _count(self) -> int:
        """Number of programs, where those that differ only by sizes count as one."""
        if not self._sizes:
            return len(self.programs)
        return sum(most for _, most in self._forms.values())

    def _add(self, key: tuple[object, ...], form: Any, variant: _Variant) -> None:
        """Keep a program."""
        each = self._programs.setdefault(key, [])
        each.insert(0, variant)
        keys, most = self._forms.get(form, ({}, 0))
        keys[key] = None
        self._forms[form] = keys, max(most, len(each))
        self._bytes += variant.program.bytes
        if variant.program.filled:
            self._kept.put(key, variant)
        self._latest = variant
        self._calls += 1
        variant.used = self._calls

    def _drop_some(self) -> None:
        """Forget programs of further sizes that the budget of sizes has dropped, and the least
        recently used ones where there are many.
        """
        if self._turns != sized_tables.turns():
            self._turns = sized_tables.turns()
            for key, variants in list(self._programs.items()):
                kept = self._kept.peek(key)
                if self._latest not in variants and any(
                    each.program.filled and each is not kept for each in variants
                ):
                    self._forget(key)
        if self._calls % policy.COMPILED_COUNTED == 0 or self._bytes > policy.COMPILED_BYTES:
            self._bytes = sum(program.bytes for program in self.programs)  # some have grown
        while len(self._programs) > 1 and (
            len(self._programs) > policy.COMPILED_SIZES or self._bytes > policy.COMPILED_BYTES
        ):
            oldest = min(self._programs, key=lambda key: max(v.used for v in self._programs[key]))
            self._forget(oldest)
            self._dropped.add(hash(oldest))

    def _forget(self, key: Any) -> None:
        """Drop the programs of a signature."""
        self._bytes -= sum(v.program.bytes for v in self._programs.pop(key))
        self._kept.pop(key)
        form = without_sizes(key)
        keys, most = self._forms.pop(form)
        del keys[key]
        if keys:
            if most > 1:
                most = max(len(self._programs[key]) for key in keys)
            self._forms[form] = keys, most

    def _give_up(self, why: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run eagerly, now and from now on, with a warning."""
        self._eagerly = why
        if "compile" in debug.on:
            debug.say("compile", f"{self._called}: runs eagerly: {why}")
        told = f"compile: {self._called} runs eagerly: {why}"
        warnings.warn(told, stacklevel=users_frame()[0])
        self._programs.clear()
        self._kept.clear()
        self._forms.clear()
        self._bytes = 0
        self._latest = self._entry = None
        return self._body(*args, **kwargs)

    def _compiled(
        self, mode: Mode, key: tuple[object, ...], args: tuple[object, ...],
        kwargs: dict[str, object], signature: Signature, begun: InitializedOptimizers,
    ) -> _Variant:  # fmt: skip
        """Capture and compile a new program, or instantiate one for other sizes of an earlier
        capture.
        """
        listing = _listing(mode, args, kwargs)
        why = "first call" if self._latest is None else self._difference(key, listing)
        form = without_sizes(key)
        same_form = list(self._forms[form][0]) if form in self._forms else []
        is_resized = self._sizes and same_form and key not in self._programs
        count = self._count()
        if count >= self._limit and not is_resized:
            raise RecompileLimit(
                f"compile: {self._called} has {self._limit} programs, and would need another one "
                f"because {why}; let what changes be a tensor, or give recompile_limit=..."
            )

        self._learnt.add(self._numbers.slots(), False)
        for each in self._programs.get(key, ()):
            self._learnt.add_others(each.program.guards.moved(), self._may_be_input)
            self._learnt.add_varying(each.program.varying(), False)
        tensors = signature.tensors
        variant = self._of_template(same_form, tensors, listing)
        if variant is not None:
            why += "; what was captured stands for such sizes, too"
        else:
            symbolic_sizes = self._resized.places(form, same_form, tensors)
            variant = self._captured(mode, args, kwargs, signature, begun, symbolic_sizes)
            if symbolic_sizes:
                self._resized.learn(form, variant.template)
            variant.compile(self._nearly, listing, self._reserve)
        self._add(key, form, variant)
        self._drop_some()
        if hash(key) in self._dropped:
            self._dropped.clear()
            warnings.warn(
                f"compile: {self._called} is compiled again for sizes that it was compiled for "
                f"before ({why}); programs for {policy.COMPILED_SIZES} sizes and "
                f"{policy.COMPILED_BYTES >> 20} MiB are kept: pad what varies",
                stacklevel=users_frame()[0],
            )
        self.reasons.append(why)
        if self._count() > count > 0:
            self._warn_of_changes(why, count + 1)
        if "compile" in debug.on:
            number = len(self.reasons)
            debug.say("compile", report(self._called, number, why, listing, variant.program))
        return variant

    def _warn_of_changes(self, why: str, count: int) -> None:
        """Warn at two numbers of programs, below the limit, and say what the programs differ by."""
        self._changes.append(why)
        first = policy.COMPILED_WARNED
        if self._warned >= count or count not in (first, 2 * first) or count >= self._limit:
            return
        self._warned = count
        warnings.warn(
            f"compile: {self._called} has {count} programs, since this changes: "
            f"{_summed(self._changes)}; compiling takes longer than a call: let what changes be a "
            f"tensor; past {self._limit} programs (recompile_limit) calls "
            f"{'are an error' if self._fullgraph else 'run eagerly'}",
            stacklevel=users_frame()[0],
        )

    def _of_template(
        self, same_form: Sequence[Any], tensors: list[Any], listing: dict[str, str]
    ) -> _Variant | None:
        """Instantiate an earlier capture for other sizes: one of a signature of the same form,
        whose guards hold. None where there is none.
        """
        asked: set[int] = set()  # ids of templates
        for other in reversed(same_form):
            for each in self._programs[other]:
                template = each.template
                if template is None or id(template) in asked or each.program.difference():
                    continue
                asked.add(id(template))
                variant = each.resized(tensors)
                if variant is None or variant.fitting(tensors) is None:
                    continue
                variant.compile(self._nearly, listing, self._reserve)
                if not variant.program.difference():
                    return variant
        return None

    def captured(
        self, settled: RestoredState, mode: Mode, *args: object, **kwargs: object
    ) -> Described:
        """Trace the function, which is `settled`, for these arguments in a mode, in order to export
        it.

        Errors: Unsupported for what cannot be captured, for objects among the arguments, and where
        the function sets attributes to other things than tensors and numbers.
        """
        signature = Signature(self._leaves)
        signature.add_all((args, kwargs))
        tensors, objects = signature.tensors, signature.objects
        if objects:
            raise Unsupported(
                f"export: an argument is, or holds, a {type(objects[0]).__name__}; the function is "
                "to find objects and parameters in its own variables, and to take tensors and "
                "constants"
            )
        if not _on_host(tensors):
            raise Unsupported(f"export: an argument is not in the host's memory; {_ON_HOST}")
        while True:
            variant = _Variant(settled.learnt, signature)
            variant.arguments.own = False  # a file's results are new ones
            operands = variant.operands
            try:
                with CAPTURING:
                    trace = variant.capture(self.function, settled, mode, args, kwargs)
                later = [x for x in variant.guards.later() if x.kind == "dict" or x.key in OPTIONS]
                numbers = [x for x in later if x.kind == "item" and type(now(x)) is float]
                if not settled.add(numbers):
                    break
            except (RunEagerlyFirst, RetraceWithLeaves):
                raise
            except RetraceToFollow as error:
                if not settled.learnt.follow(error.names):
                    raise Unsupported(_told(error)) from error
            except (RetraceToLift, RetraceWritten) as error:
                if isinstance(error, RetraceToLift) and settled.add(error.slots):
                    continue
                raise Unsupported(
                    f"export: {str(error).removeprefix('compile: ')}; a file has numbers, and "
                    "tensors, which are written where they are: set no attributes but to numbers "
                    "where there are numbers, or to tensors of the same shape and dtype as before, "
                    "without a history (detach())"
                ) from error
            except Unsupported as error:
                raise Unsupported(_told(error)) from error
        if variant.arguments.any:
            raise Unsupported(
                "export: the function writes to a list or dict among its arguments; return what it "
                "puts there"
            )
        if trace.assumptions.device != CPU:
            device = trace.assumptions.device
            raise Unsupported(f"export: the function has tensors on {device}; {_ON_HOST}")
        return Described(trace, variant.places, operands, later)

    def _captured(
        self, mode: Mode, args: tuple[object, ...], kwargs: dict[str, object], signature: Signature,
        begun: InitializedOptimizers, places: Sequence[tuple[int, int]] = (),
    ) -> _Variant:  # fmt: skip
        """Trace the function for these arguments, with its guards. It is retraced while it turns
        out to set attributes that were not yet lifted, or to need an optimizer's state. Sizes at
        `places` are symbolic, where the function allows it.
        """
        given_up = self._learnt.given_up()
        while True:
            variant = _Variant(self._learnt, signature, places)
            variant.operands.begun = begun
            try:
                variant.capture(
                    self.function, self._numbers.given(self._body), mode, args, kwargs,
                    self._numbers.held,
                )  # fmt: skip
                return variant
            except RetraceToLift as error:
                if not self._learnt.add(error.slots, True):
                    raise
            except RetraceToFollow as error:
                if not self._learnt.follow(error.names):
                    raise
            except RetraceWritten as error:
                if not self._learnt.add_written(error.slots):
                    raise
            except RetraceVarying as error:
                if not self._learnt.add_varying(error.tensors, True):
                    raise
            except RunEagerlyFirst as error:
                if error.skips or not begun.begin(error):
                    raise
            except RetraceOnRenewal as error:  # it looks at optimizers that have no state yet
                raise RunEagerlyFirst(None, (), str(error)) from error
            except RetraceOnCache as error:
                self._filled += 1
                if self._filled > policy.CACHE_FILLS:
                    raise
                raise RunEagerlyFirst(None, (), str(error)) from error
            except RetraceWithLeaves:
                raise
            except Exception as error:
                if places:  # an error of the function's own comes again
                    if "compile" in debug.on:
                        debug.say("compile", f"sizes are no numbers: {error!r}")
                    places = ()
                    continue
                learnt = self._learnt
                if not isinstance(error, (AdjointError, TypeError, ValueError)) or not (
                    learnt.give_up_varying() or learnt.give_up_numbers()
                ):
                    learnt.take_back(given_up)  # it was not for them
                    raise

    def _may_be_input(self, x: object) -> bool:
        return is_input(x, self._leaves)

    def _difference(self, key: tuple[object, ...], listing: dict[str, str]) -> str:
        """Reason, in words, why a call needs another program."""
        for each in self._programs.get(key, ()):
            return self._failure(each)
        before = self._latest.listing  # type: ignore[union-attr]
        for name in (*listing, *before):
            was, now = before.get(name, "nothing"), listing.get(name, "nothing")
            if was != now:
                return f"{name} was {was} and is {now}"
        return "another signature"

    def _failure(self, variant: _Variant) -> str:
        """Reason why a program does not hold: which guard fails, read where, and how often."""
        why = variant.difference()
        if why != variant.program.guards.difference():
            return why
        path, line = variant.program.guards.reader()
        self._failures[path] += 1
        count = self._failures[path]
        often = f"; it has changed {count} times" if count > 1 else ""
        return f"{why}, read{line}{often}" if line else f"{why}{often}"


class Described(NamedTuple):
    """A captured function with the state that an export writes down."""

    captured: Trace
    places: LiftedState  # lifted numbers that it sets, whose last values are returned, too
    operands: ScalarInputs  # computations on these numbers
    later: list[GuardSource]  # other state that it reads and that calls after each run change


class _Variant:
    """A compiled program, with the guards and lifted state for which it was compiled."""

    program: CompiledStep
    listing: dict[str, str]
    found: tuple[Any, Guards]  # until it is compiled
    used = 0  # the number of the call that used it last
    template: ShapePolymorphicProgram | None = (
        None  # for programs of other sizes, where some are symbolic
    )

    def __init__(
        self, learnt: LiftedStateHistory, signature: Signature,
        places: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.learnt, self.leaves = learnt, signature.leaves
        self.given = list(signature.tensors)
        self._containers = list(signature.containers)
        self.objects = list(signature.objects)  # kept alive, since they are guarded by id
        self.operands = ScalarInputs()
        self.arguments = self.operands.arguments
        self.operands.varying = learnt.varying
        self._resized = places
        self.places = LiftedState((), learnt, self.operands)
        self.slots: Sequence[GuardSource] = ()  # all that is lifted, where that is known
        self.levels: Sequence[Differentiation] = ()  # where it computes gradients only
        self.stand_ins: Sequence[Any] = ()  # for its arguments, then
        self.signature: list[Any] = []
        self.told_apart: frozenset[int] = frozenset()  # ids of tensors that no argument may be
        self.values: Any = None

    def capture(
        self,
        function: Callable[..., Any],
        body: Callable[..., Any],
        mode: Mode,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        numbers: dict[Any, Any] | None = None,
    ) -> Trace:
        """Trace `body`, which calls the function, with these arguments; `numbers` among them are
        lifted state.
        """
        self._derivation = _Derivation(self, function, body, mode, (args, kwargs), numbers)
        roots = [(f"argument {n}", x) for n, x in enumerate(self.objects)]
        if numbers:
            roots.append(("the arguments", numbers))
        roots += [("the hooks of all modules", hooks.USERS)]
        roots += [("the hooks of all optimizers", each) for each in optimizer.ON_ALL]
        run = partial(self._run, body, mode, args, kwargs)
        slots = self.slots or list(self.learnt.slots.values())
        try:
            learnt = self.learnt
            self.found = watched(function, roots, run, slots, learnt.names, learnt.lookups)
        finally:
            complete([self.operands.close])
        captured, self.guards = self.found
        self.values = self.operands.function(captured.outputs.numbers)
        if self.operands.resized is not None:
            self.template = ShapePolymorphicProgram(captured, self.operands.resized)
            if not self._fill(self.given):
                raise Unsupported("compile: sizes that are numbers in what knows them only")
        self.arguments.end()
        del self.given, self._containers, self.operands
        return captured

    def _fill(self, tensors: Sequence[Any]) -> bool:
        """Use the capture for the sizes of these arguments; False where it does not allow them."""
        assert self.template is not None
        captured = self.template.captured_for(tensors)
        if captured is not None:
            self.found = captured, self.guards
        return captured is not None

    def resized(self, tensors: Sequence[Any]) -> _Variant | None:
        """Copy for arguments of other sizes; None where the capture does not allow them."""
        if self.template is None:
            return None
        made = copy.copy(self)
        vars(made).pop("program")
        return made if made._fill(tensors) else None

    def compile(self, nearly: bool, listing: dict[str, str], reserve: ArenaPool) -> None:
        """Lower the captured program to one that runs."""
        self.listing = listing
        self.program = lowered_for(self.template, *self.found, nearly, reserve)
        if self.program.tangents:
            derivation = self._derivation.of(self, nearly)
            self.program.derivatives = Derivatives(derivation, derivation.count)
        del self.found

    def _run(
        self,
        function: Callable[..., Any],
        mode: Mode,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        slots: Sequence[GuardSource],
        reads: StateSnapshot,
    ) -> Trace:
        places = self.places = LiftedState(slots, self.learnt, self.operands)
        self.learnt.lookups = reads.lookups
        self.operands.reads = reads
        self.operands.resized = (
            SymbolicArgumentSizes(self._resized, len(self.given)) if self._resized else None
        )
        current = places.values()
        arguments = self.arguments
        signed, _ = places.split(current)
        leaves = self.leaves
        signature = Signature(leaves, self.given)
        signature.add_all(signed)
        tensors = signature.tensors
        self.signature += signature.key
        self.objects += signature.objects

        def given(*symbols_given: Any) -> object:
            call = args, kwargs, signed
            copies: dict[int, Any] = {}
            positional, named, symbols = replaced(call, leaves, iter(symbols_given), copies)
            containers = [copies[id(x)] for x in self._containers]
            arguments.begin(containers, self.objects)

            def run() -> object:
                result, arguments.written = called(function, positional, named, containers)
                for n in arguments.written:
                    if reads.has_met(self._containers[n]):
                        kind = type(containers[n]).__name__
                        raise Unsupported(
                            f"compile: the function writes to a {kind} among its arguments that it "
                            "also reaches in another way; use one of them"
                        )
                return arguments.with_contents(result)

            result = places.during(run, current, iter(symbols))
            asks.append(self.operands.has_targets)  # before the gradients of its results
            return result

        asks: list[bool] = []
        casts = mode.autocast and mode.autocast.without_cache()  # symbols are not kept
        grad = mode.grad and not mode.inference
        self.count = len(tensors)
        inputs = self.stand_ins or tensors
        try:
            trace = capture(given, inputs, grad, casts, self.operands, self.levels)
        except LookupError:  # of a tensor that is a key, perhaps
            assert_apart(tensors, told_apart(reads, slots))
            raise
        self.told_apart = told_apart(reads, slots)
        if asks[-1] and any(x.requires_grad for x in tensors):
            self.told_apart |= reached_otherwise(reads, slots)
        assert_apart(tensors, self.told_apart)
        return trace

    def fitting(self, tensors: list[Any]) -> tuple[list[Any], Any, Sequence[Any]] | None:
        """All tensor inputs of the program for these arguments, the numbers among its results, and
        those of lifted state; None where lifted state differs from what it was compiled for.
        """
        places, held = self.places, self.told_apart
        if held and any(id(x) in held for x in tensors):
            return None
        if not places.slots:
            return tensors, (), ()
        signed, numbers = places.split(places.values())
        signature = Signature(self.leaves, tensors)
        signature.add_all(signed)
        if signature.key != self.signature:
            return None
        inputs = signature.tensors
        if held and any(id(x) in held for x in inputs):
            return None
        _on_host(inputs)  # lazy ones are computed
        values = self.values(numbers)
        return None if values is None else ([*inputs, *values[0]], values[1], numbers)

    def difference(self) -> str:
        """Reason, in words, why a call of the same signature needs another program."""
        return self.program.difference() or self.places.difference() or "another form of a place"

    def entry(self, mode: Mode, key: list[Any], leaves: bool) -> FastPath | None:
        """Fast path for calls like this one; None where lifted state must be looked at, or Python
        does more.
        """
        if self.places.slots or self.arguments.any or self.guards.warned or self.told_apart:
            return None
        return self.program.entry(mode, key, leaves)

    def run(
        self, tensors: list[TensorBase], numbers: Sequence[object], lifted: Sequence[object],
        observer: StepObserver | None, containers: Sequence[object],
    ) -> Any:  # fmt: skip
        """Run the program, write lifted state and the caller's `containers` back, and return what
        the function returns.
        """
        for each in self.guards.warned:  # first, since a filter may make it an error
            each.give()
        arguments = self.arguments
        if not (self.places.slots or self.program.captured.effects.calls or arguments.any):
            return self.program.run(tensors, observer, numbers, lifted)[0]
        with DEFERRED:  # a call happens with what Python does behind it, or not at all
            more = containers if arguments.returned else ()
            result, calls = self.program.run(tensors, observer, (*numbers, *more), lifted)
            if self.places.slots:
                result, left = result
                self.places.set(left)
            result = arguments.write(result, containers)
            for call in calls:
                call()
        return result


class _Derivation:
    """Captures and lowers programs that differentiate the function of a variant for its arguments:
    see `Derivatives`. It keeps no tensors of the call for which the variant was captured.
    """

    places: LiftedState
    signature: list[Any]
    count: int  # of tensors that are arguments
    nearly: bool

    def __init__(
        self, variant: _Variant, function: Callable[..., Any], body: Callable[..., Any], mode: Mode,
        call: tuple[object, object], numbers: dict[Any, Any] | None,
    ) -> None:  # fmt: skip
        self._learnt, self._leaves = variant.learnt, variant.leaves
        self._function, self._body, self._numbers = function, body, numbers
        self._mode = mode if mode.observer is None else mode_with(mode, observer=None)
        self._settings = get_default_dtype(), is_following()
        blanks = map(_blank, variant.given)
        self._call = replaced(call, self._leaves, blanks, {})

    def of(self, variant: _Variant, nearly: bool) -> _Derivation:
        """Copy for a variant that has been captured."""
        made = copy.copy(self)
        made.nearly, made.places = nearly, variant.places
        made.signature, made.count = variant.signature, variant.count
        return made

    def __call__(
        self, levels: Sequence[Differentiation], arguments: Sequence[Any]
    ) -> tuple[CompiledStep, Any]:
        """A program that differentiates at these levels, and the function for its numbers.

        Errors: Unsupported.
        """
        if self._settings != (get_default_dtype(), is_following()):
            raise Unsupported("the default dtype, or follow_torch, was changed since the call")
        stand_ins = [_stand_in(x) for x in arguments]
        args, kwargs = replaced(self._call, self._leaves, iter(stand_ins), {})
        signature = Signature(self._leaves)
        signature.add_all(args)
        if kwargs:
            signature.add(kwargs)
        variant = _Variant(self._learnt, signature)
        variant.levels, variant.stand_ins = levels, stand_ins
        variant.slots = self.places.slots
        with CAPTURING, switched(self._mode):
            variant.capture(self._function, self._body, self._mode, args, kwargs, self._numbers)
            if variant.signature != self.signature:
                raise Unsupported("lifted state has another form than when the function was called")
            return lowered(*variant.found, self.nearly), variant.values


def _blank(x: TensorBase) -> Any:
    """A tensor of the shape and dtype of `x` without memory of its own."""
    return wrap(np.broadcast_to(np.zeros((), x._data.dtype), tuple(x._data.shape)))


def _stand_in(x: Any) -> Any:
    """A tensor like `x`, with its attributes, for tracing: a computed one if `x` has a history."""
    node = None
    if x._node is not None:
        node = Node(Opaque("a tensor for tracing"), (), (), None, x._data.shape, x._data.dtype)
    made = wrap(x._data, node)
    made.__dict__.update(x.__dict__)
    return made


class CompiledModule(Module, Generic[P, R]):
    """A module whose calls are compiled; all attributes are those of the module, `_orig_mod`."""

    def __init__(
        self, module: Module, call: CompiledFunction[P, R] | FragmentedFunction[P, R]
    ) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled_call"] = call
        del self.__dict__["training"]  # so that the module's is read

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the module, its hooks included."""
        result: R = self._compiled_call(*args, **kwargs)
        return result

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """See `CompiledFunction.explain`."""
        explained: Explanation = self._compiled_call.explain(*args, **kwargs)
        return explained

    def graph(self, *args: P.args, **kwargs: P.kwargs) -> PassTrace:
        """See `CompiledFunction.graph`."""
        stages: PassTrace = self._compiled_call.graph(*args, **kwargs)
        return stages

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules")
        if modules is None or name in modules:
            return super().__getattr__(name)
        return getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules") or {}
        if "_orig_mod" in modules and name not in ("_orig_mod", "_call_hooks"):
            setattr(modules["_orig_mod"], name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._orig_mod, self._compiled_call)


# ---- arguments -----------------------------------------------------------------------------------


def _listing(mode: Mode, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, str]:
    """Description of everything that the signature depends on, by name."""
    described = {
        "grad mode": str(mode.grad),
        "inference mode": str(mode.inference),
        "autocast": str(mode.autocast and mode.autocast.settings),
        "the default dtype": str(get_default_dtype()),
        "random.follow_torch": str(is_following()),
    }

    by_identity = dataclasses.is_dataclass
    for name, x in named_arguments(args, kwargs, by_identity):
        if isinstance(x, TensorBase):
            wants = " that wants a gradient" if x._node is not None else ""
            where = "" if type(x._data) is np.ndarray else f" on {x.device}"
            order = "" if where else order_in_memory(x._data)
            steps = [step // x._data.itemsize for step in x._data.strides] if order else []
            lies = f" of strides {tuple(steps)}" if order else ""
            described[name] = f"{tuple(x._data.shape)} {x._data.dtype}{where}{lies}{wants}"
        elif type(x) in PLAIN or type(x) in BY_VALUE:
            described[name] = repr(x)
        else:
            described[name] = f"a {type(x).__name__} at {id(x):#x}"
    return described


def _summed(reasons: Sequence[str]) -> str:
    """The last of the reasons for each thing that changed, with how often it did."""
    by_thing: dict[str, list[str]] = {}
    for each in reasons:
        change = each.partition("; it has changed ")[0]
        by_thing.setdefault(each.partition(" was ")[0], []).append(change)
    said = [
        each[-1] if len(each) == 1 else f"{each[-1]} ({len(each)} times)"
        for each in by_thing.values()
    ]
    return "; ".join(said)


def _containers(copies: dict[int, object]) -> list[object]:
    """The lists and dicts among what `replaced` has made."""
    return [x for x in copies.values() if type(x) in (list, dict)]


def _overrides(mode: Mode, tensors: list[Any]) -> str:
    """Reason why a function override prevents a program; empty if nothing does."""
    if mode.overrides is not None and mode.overrides[1]:
        name = type(mode.overrides[1][-1]).__name__
        return (
            f"the mode of functions {name} is on, and a program calls none; open it inside of the "
            "function, or call the function outside of it"
        )
    for x in tensors:
        if is_apart(x):
            return (
                f"an argument is of the subclass {type(x).__name__}, and programs are given plain "
                "tensors; give x.as_subclass(Tensor), and make it one of the subclass inside"
            )
    return ""


def _sparse(tensors: list[Any]) -> str:
    """Reason why a program cannot take these arguments; empty if it can."""
    for x in tensors:
        if x.layout is not strided:
            return (
                f"an argument is of layout {x.layout}, and sparse tensors are computed with "
                "eagerly alone; give its to_dense(), or call the function without compile"
            )
    return ""


def _on_host(tensors: list[Any]) -> bool:
    """Whether all tensors, after computing lazy ones, have arrays of the host."""
    for x in tensors:
        if isinstance(x._data, LazyValue):
            concrete(x)
    return all(type(x._data) is np.ndarray for x in tensors)


def _told(error: Unsupported) -> str:
    """Message of an error about what cannot be captured, with the user's line."""
    text, line = str(error), place_of(error)
    told = text if text.startswith("compile: ") else f"compile: {text}"
    return told if line in told else told + line


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
