"""`ad.compile`: functions, and whole training steps, as native programs that take their place.

A program stands for the function as long as all is the same that decides what its Python does: the
form of the arguments, with shapes and dtypes of tensors and the values of what is none, the modes,
and what the code read elsewhere (`program/reads.py`). Where something differs another program is
captured, up to a number; after that the function runs eagerly, and says which value changes.
"""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..backends import native
from ..core import debug, policy
from ..core.device import CPU
from ..core.dtype import get_default_dtype
from ..core.errors import (
    AdjointError,
    InvalidArgument,
    InvalidType,
    LayoutError,
    RecordingError,
    Unsupported,
)
from ..core.mode import MODE, Mode, mode_with, observed
from ..core.overrides import FOLLOWED, is_apart
from ..core.spec import Size
from ..core.tensor_base import TensorBase
from ..eager.elements import order_in_memory
from ..graph.lazy import LazyValue, concrete
from ..inference.explained import Explanation, Timer
from ..nn import hooks
from ..nn.modules.module import Module
from ..ops.create.conversion import strided
from ..ops.random.random import is_following
from ..optim import optimizer
from ..optim.lr_scheduler import OPTIONS
from ..program.reads import PLAIN, Guards, Moved, Reads, Renewed, Slot, now, watched
from ..program.watch import place_of
from .capture import CAPTURING, Begun, Captured, NotReady, Reached, Varying, capture
from .course import OTHER, Entry
from .device_step import lowered
from .dropping import dropping
from .explained import explanation, report
from .nodes import Nodes, are_recorded
from .over import over
from .pieces import PiecewiseFunction
from .places import Learnt, Operands, Places, Settled, Written
from .reserve import Reserve
from .resizing import Changing, Resized, Template
from .signature import BY_VALUE, Signature, is_input, replaced, without_sizes
from .stages import Stages, name_inputs, stages_of
from .step import Compiled

__all__ = ["CompiledFunction", "CompiledModule", "compile"]

_ON_HOST = 'programs in files are of the host: move the model and its arguments with .to("cpu")'
_MODES = ("pieces", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(
    model: Any = None,
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
    shapes_spec: Any = None,
    fallback: str = "error",
    reassociate: bool = False,
    keep_grads: bool = True,
) -> Any:
    """A function, a module or a whole training step (forward, backward, optimizer) as one native
    program, captured at the first call; without `model`, a decorator.

    The same values, gradients, states and random numbers as without it. Calls with other dtypes or
    Python values compile anew, as does whatever the function's Python read elsewhere (attributes,
    variables, containers) and has changed: up to `recompile_limit` (16) programs. Other sizes are
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
    `options` (of inductor), `fullgraph` and `isolate_recompiles` give the same program. `name` is
    what profiles show.
    Errors: Unsupported for `shapes_spec`, and at the call for what cannot be captured;
    AutogradError for a backward through results whose history is over (an optimizer has stepped, a
    backward has run), or a second derivative; InvalidArgument and InvalidType for other arguments.
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
        pieces = PiecewiseFunction(model, name or _name(model))
        return CompiledModule(model, pieces) if isinstance(model, Module) else pieces
    if mode is not None and mode not in _MODES:
        raise InvalidArgument(f"compile: Unrecognized mode={mode!r}, should be one of: {_MODES}")
    if backend not in (None, "native", "inductor", "eager"):
        raise InvalidArgument(f"compile: Invalid backend: {backend!r}; 'native' or 'eager'")
    if shapes_spec is not None:
        raise Unsupported("compile: shapes_spec; sizes may change without it")
    if disable or backend == "eager":
        return model
    limit = policy.COMPILED_PROGRAMS if recompile_limit is None else recompile_limit
    called = name or _name(model)
    call = CompiledFunction(model, fallback, limit, called, dynamic, reassociate, keep_grads)
    return CompiledModule(model, call) if isinstance(model, Module) else call


class CompiledFunction:
    """A function for which programs stand: see `compile`."""

    # What other functions that read one do not follow: theirs is the function itself.
    _unread = frozenset(
        ("function", "reasons", "_fallback", "_limit", "_called", "_sizes", "_nearly", "_programs",
         "_body", "_calls", "_dropped", "_latest", "_learnt", "_leaves", "_eagerly", "_entry",
         "_reserve", "_resized", "_dynamic")
    )  # fmt: skip

    def __init__(
        self, function: Callable[..., Any], fallback: str, limit: int, name: str,
        dynamic: bool | None = None, reassociate: bool = False, keep_grads: bool = True,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.function = function
        self._keeps = keep_grads
        self._body = function if keep_grads else dropping(function)  # what is called
        self.reasons: list[str] = []  # why each program was compiled
        self._fallback, self._limit, self._called = fallback, limit, name
        self._dynamic = dynamic
        self._sizes = dynamic is not False  # whether programs that differ by sizes count as one
        self._nearly = reassociate
        self._programs: dict[Any, list[_Variant]] = {}
        self._calls = 0
        self._resized = Changing(dynamic)
        self._dropped: set[int] = set()  # hashes of signatures whose programs were
        self._latest: _Variant | None = None
        self._entry: Entry | None = None  # of a call like the last one
        self._learnt = Learnt()
        self._nodes = Nodes(function, name)
        self._reserve = Reserve()
        self._leaves = False  # leaves among the arguments are known by identity
        self._eagerly = ""  # why the function runs eagerly from now on

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        options = self._fallback, self._limit, self._called, self._dynamic, self._nearly
        return CompiledFunction, (self.function, *options, self._keeps)

    def __repr__(self) -> str:
        return f"<compiled {self._called}>"

    @property
    def programs(self) -> list[Compiled]:
        """Those that there are, the last used of each signature first."""
        return [each.program for found in self._programs.values() for each in found]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; all that it changes is changed."""
        mode = MODE.get()
        entry = self._entry
        if entry is not None:
            found = entry.run(mode, args, kwargs)
            if found is not OTHER:
                return found
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

    @property
    def _title(self) -> str:
        return f"Compiled#{self._called}"

    def over(self, loader: Iterable[Any]) -> Any:
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

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Call the function once more, and say what its program does: kernels with operations,
        bytes, time and share of the machine's measured peak, host calls, why kernels are not one,
        and memory. Each step is timed alone, which takes longer than the call.

        Errors: those of the call; Unsupported where it runs eagerly.

        >>> doubled = ad.compile(lambda x: (x * 2).exp())
        >>> [row.name for row in doubled.explain(ad.ones(4)).rows]
        ['mul_exp']
        """
        timer = Timer()
        if not self._eagerly:
            self._run(MODE.get(), args, kwargs, timer)
        if self._eagerly:
            raise Unsupported(f"explain: {self._called} runs eagerly: {self._eagerly}")
        if self._latest is None:
            raise Unsupported(
                f"explain: {self._called} ran eagerly, since its optimizers had no state before "
                "the first call; explain another one"
            )
        return explanation(self._called, self._latest.program, timer.seconds, self.reasons)

    def graph(self, *args: Any, **kwargs: Any) -> Stages:
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
        tensors, objects = signature.tensors, signature.objects
        reason = self._eagerly or (native.reason_off() if _on_host(tensors) else None)
        if reason:
            raise Unsupported(f"graph: {self._called} runs eagerly: {reason}")
        begun = Begun()
        try:
            with CAPTURING:
                variant = self._captured(MODE.get(), args, kwargs, tensors, objects, begun)
                captured, guards = variant.found
                name_inputs(captured, self.function, objects)
                made = partial(lowered, captured, guards, self._nearly)
                return stages_of(self._called, captured.program, made)
        except Reached:
            self._leaves, self._entry = True, None
            return self.graph(*args, **kwargs)
        except NotReady:
            raise Unsupported(
                f"graph: the optimizers of {self._called} have no state before the first call; "
                "call it once"
            ) from None
        except Unsupported as error:
            raise Unsupported(_told(error)) from error
        finally:
            begun.undo()

    def _run(self, mode: Mode, args: Any, kwargs: Any, observer: Any) -> Any:
        signature = Signature(self._leaves)
        signature.add_all(args)
        if kwargs:
            signature.add(kwargs)
        tensors = signature.tensors
        if FOLLOWED:
            why = _overrides(mode, tensors)
            if why and self._fallback == "eager":
                return self._give_up(why, args, kwargs)
            if why:
                raise Unsupported(f"compile: {why}")
        casts = mode.autocast.signature if mode.casts else None
        full = (
            tuple(signature.key), mode.grad, mode.inference, casts, get_default_dtype(),
            is_following(),
        )  # fmt: skip
        if (mode.executor is not None or not signature.host) and are_recorded(mode, tensors):
            if observer is not None and observer is not mode.observer:
                raise Unsupported("explain: an argument is of a graph; give its snapshot()")
            return self._recorded(full, args, kwargs, tensors, signature.objects)
        why = "" if signature.host else _sparse(tensors)
        if why and self._fallback == "eager":
            return self._give_up(why, args, kwargs)
        if why:
            raise LayoutError(f"compile: {why}")
        host = signature.host or _on_host(tensors)
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        found = self._fitting(full, tensors)
        if found is not None:
            variant = found[0]
            self._entry = variant.entry(mode, signature.key, self._leaves) if mode.plain else None
            return variant.run(*found[1:], observer)
        reason = native.reason_off() if host else None
        if reason is not None:
            return self._give_up(f"no native code: {reason}", args, kwargs)
        try:
            with Begun() as begun:
                with CAPTURING:
                    found = self._fitting(full, tensors)
                    if found is None:
                        objects = signature.objects
                        made = self._compiled(mode, full, args, kwargs, tensors, objects, begun)
                        given = made.fitting(tensors)
                        if given is None:
                            raise Unsupported("compile: the function changes what it depends on")
                        found = made, *given
                return found[0].run(*found[1:], observer)
        except Reached:
            self._leaves, self._entry = True, None
            return self._run(mode, args, kwargs, observer)
        except NotReady:  # an optimizer's first step differs from later ones, or may be skipped
            MODE.set(mode_with(mode, inlines=True))
            try:
                return self._body(*args, **kwargs)
            finally:
                MODE.set(mode)
        except Unsupported as error:
            told = _told(error)
            if self._fallback == "eager":
                return self._give_up(told.removeprefix("compile: "), args, kwargs)
            raise Unsupported(told) from error

    def _recorded(
        self, key: Any, args: Any, kwargs: Any, tensors: list[Any], objects: list[Any]
    ) -> Any:
        """The node of a call where something records."""
        leaves, nodes = self._leaves, self._nodes
        if nodes.inlined:
            return self._body(*args, **kwargs)

        def given(*symbols: Any) -> Any:
            found, named = replaced((args, kwargs), leaves, iter(symbols), {})
            return self._body(*found, **named)

        try:
            return nodes.apply(key, tensors, objects, given)
        except RecordingError as error:
            if self._fallback != "eager":
                raise
            nodes.inlined = True
            warnings.warn(f"{error}: so it is, from now on", stacklevel=4)
            return self._body(*args, **kwargs)

    def _fitting(self, key: Any, tensors: list[Any]) -> tuple[_Variant, list[Any], Any] | None:
        """The program of a signature for which all is as it was, its arguments and its numbers."""
        found = self._programs.get(key, ())
        for k, each in enumerate(found):
            given = each.fitting(tensors)
            if given is not None and not each.program.difference():
                if k:
                    self._programs[key] = [each, *found[:k], *found[k + 1 :]]
                self._latest = each
                self._calls += 1
                each.used = self._calls
                return each, *given
        return None

    def _count(self) -> int:
        """How many programs there are, those for other sizes not counted."""
        if not self._sizes:
            return len(self.programs)
        found: dict[Any, int] = {}
        for key, each in self._programs.items():
            alike = without_sizes(key)
            found[alike] = max(found.get(alike, 0), len(each))
        return sum(found.values())

    def _drop_some(self) -> None:
        """Forget programs that were not used for long, where there are many sizes."""
        while len(self._programs) > 1 and (
            len(self._programs) > policy.COMPILED_SIZES
            or sum(program.bytes for program in self.programs) > policy.COMPILED_BYTES
        ):
            oldest = min(self._programs, key=lambda key: max(v.used for v in self._programs[key]))
            del self._programs[oldest]
            self._dropped.add(hash(oldest))

    def _give_up(self, why: str, args: Any, kwargs: Any) -> Any:
        """Run eagerly, now and later."""
        self._eagerly = why
        if "compile" in debug.on:
            debug.say("compile", f"{self._called}: runs eagerly: {why}")
        warnings.warn(f"compile: {self._called} runs eagerly: {why}", stacklevel=4)
        self._programs.clear()
        self._latest = self._entry = None
        return self._body(*args, **kwargs)

    def _compiled(
        self, mode: Mode, key: Any, args: Any, kwargs: Any, tensors: list[Any], objects: list[Any],
        begun: Begun,
    ) -> _Variant:  # fmt: skip
        """A new program."""
        listing = _listing(mode, args, kwargs)
        why = "first call" if self._latest is None else self._difference(key, listing)
        form = without_sizes(key)
        alike = [each for each in self._programs if without_sizes(each) == form]
        is_resized = self._sizes and alike and key not in self._programs
        if self._count() >= self._limit and not is_resized:
            raise Unsupported(
                f"compile: {self._limit} programs were compiled, the last one because {why}; let "
                "what changes be a tensor, or give recompile_limit=..."
            )

        for each in self._programs.get(key, ()):
            self._learnt.add_others(each.program.guards.moved(), self._may_be_input)
            self._learnt.add_varying(each.program.varying(), False)
        variant = self._of_template(alike, tensors, listing)
        if variant is not None:
            why += "; what was captured stands for such sizes, too"
        else:
            places = self._resized.places(form, alike, tensors)
            variant = self._captured(mode, args, kwargs, tensors, objects, begun, places)
            if places:
                self._resized.learn(form, variant.template)
            variant.compile(self._nearly, listing, self._reserve)
        self._programs.setdefault(key, []).insert(0, variant)
        self._latest = variant
        self._calls += 1
        variant.used = self._calls
        self._drop_some()
        if hash(key) in self._dropped:
            self._dropped.clear()
            warnings.warn(
                f"compile: {self._called} is compiled again for sizes that it was compiled for "
                f"before ({why}); programs for {policy.COMPILED_SIZES} sizes and "
                f"{policy.COMPILED_BYTES >> 20} MiB are kept: pad what varies",
                stacklevel=5,
            )
        self.reasons.append(why)
        if "compile" in debug.on:
            number = len(self.reasons)
            debug.say("compile", report(self._called, number, why, listing, variant.program))
        return variant

    def _of_template(
        self, alike: Sequence[Any], tensors: list[Any], listing: dict[str, str]
    ) -> _Variant | None:
        """A program for other sizes of what was captured for some of the signatures that are
        `alike`, where all else is as it was; None where there is none.
        """
        asked: set[int] = set()  # ids of templates
        for other in reversed(alike):
            for each in self._programs[other]:
                template = each.template
                if template is None or id(template) in asked or each.program.difference():
                    continue
                asked.add(id(template))
                found = each.resized(tensors)
                if found is None or found.fitting(tensors) is None:
                    continue
                found.compile(self._nearly, listing, self._reserve)
                if not found.program.difference():
                    return found
        return None

    def captured(self, settled: Settled, mode: Mode, *args: Any, **kwargs: Any) -> Described:
        """What the function, which is `settled`, does with such arguments in a mode, to be written
        down.

        Errors: Unsupported for what cannot be captured, for objects among the arguments, and where
        the function sets places to something else.
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
            variant = _Variant(settled.learnt, self._leaves, tensors, objects)
            operands = variant.operands
            try:
                with CAPTURING:
                    found = variant.capture(self.function, settled, mode, args, kwargs)
                later = [x for x in variant.guards.later() if x.kind == "dict" or x.key in OPTIONS]
                numbers = [x for x in later if x.kind == "item" and type(now(x)) is float]
                if not settled.add(numbers):
                    break
            except (NotReady, Reached):
                raise
            except (Moved, Written) as error:
                if isinstance(error, Moved) and settled.add(error.slots):
                    continue
                raise Unsupported(
                    f"export: {str(error).removeprefix('compile: ')}; a file has numbers, and "
                    "tensors, which are written where they are: set no attributes but to numbers "
                    "where there are numbers, or to tensors of the same shape and dtype as before, "
                    "without a history (detach())"
                ) from error
            except Unsupported as error:
                raise Unsupported(_told(error)) from error
        if found.device != CPU:
            raise Unsupported(f"export: the function has tensors on {found.device}; {_ON_HOST}")
        return Described(found, variant.places, operands, later)

    def _captured(
        self, mode: Mode, args: Any, kwargs: Any, tensors: list[Any], objects: list[Any],
        begun: Begun, places: Sequence[tuple[int, int]] = (),
    ) -> _Variant:  # fmt: skip
        """What the function does with such arguments, and what that depends on: captured again
        where it turns out to set places that were not known, or to begin with an optimizer.
        At `places` sizes are numbers, where the function can do with these.
        """
        while True:
            variant = _Variant(self._learnt, self._leaves, tensors, objects, places)
            variant.operands.begun = begun
            try:
                variant.capture(self.function, self._body, mode, args, kwargs)
                return variant
            except Moved as error:
                if not self._learnt.add(error.slots, True):
                    raise
            except Written as error:
                if not self._learnt.add_written(error.slots):
                    raise
            except Varying as error:
                if not self._learnt.add_varying(error.tensors, True):
                    raise
            except NotReady as error:
                if error.skips or not begun.begin(error):
                    raise
            except Renewed as error:  # the function looks at optimizers that have no state yet
                raise NotReady(None, (), str(error)) from error
            except Reached:
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
                    raise

    def _may_be_input(self, x: Any) -> bool:
        return is_input(x, self._leaves)

    def _difference(self, key: Any, listing: dict[str, str]) -> str:
        """In which a call differs from those before, in words."""
        for each in self._programs.get(key, ()):
            return each.difference()
        before = self._latest.listing  # type: ignore[union-attr]
        for name in (*listing, *before):
            was, now = before.get(name, "nothing"), listing.get(name, "nothing")
            if was != now:
                return f"{name} was {was} and is {now}"
        return "another signature"


class Described(NamedTuple):
    """What is to be written down of a function."""

    captured: Captured
    places: Places  # of numbers that it sets; what they hold in the end is returned, too
    operands: Operands  # what is computed from these
    later: list[Slot]  # what it reads besides, and calls after each run change


class _Variant:
    """A program, and what it was compiled for."""

    program: Compiled
    listing: dict[str, str]
    found: tuple[Captured, Guards]  # until it is compiled
    used = 0  # the number of the call that used it last
    template: Template | None = None  # of programs for other sizes, where some are numbers

    def __init__(
        self, learnt: Learnt, leaves: bool, tensors: Sequence[Any], objects: Sequence[Any],
        places: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self._learnt, self._leaves = learnt, leaves
        self._given = list(tensors)
        self.objects = list(objects)  # kept: they are known by their ids
        self.operands = Operands()
        self.operands.varying = learnt.varying
        self._resized = places
        self.places = Places((), learnt, self.operands)
        self._signature: list[Any] = []
        self._values: Any = None

    def capture(self, function: Any, body: Any, mode: Mode, args: Any, kwargs: Any) -> Captured:
        """Capture `body`, which calls the function, with these arguments: what it does."""
        roots = [(f"argument {n}", x) for n, x in enumerate(self.objects)]
        roots += [("the hooks of all modules", hooks.USERS)]
        roots += [("the hooks of all optimizers", each) for each in optimizer.ON_ALL]
        run = partial(self._run, body, mode, args, kwargs)
        slots = list(self._learnt.slots.values())
        try:
            self.found = watched(function, roots, run, slots)
        finally:
            self.operands.close()
        captured, self.guards = self.found
        self._values = self.operands.function(captured.returned.numbers)
        if self.operands.resized is not None:
            self.template = Template(captured, self.operands.resized)
            if not self._fill(self._given):
                raise Unsupported("compile: sizes that are numbers in what knows them only")
        del self._given, self.operands
        return captured

    def _fill(self, tensors: Sequence[Any]) -> bool:
        """Be for arguments of these sizes, if what was captured stands for them."""
        assert self.template is not None
        captured = self.template.captured_for(tensors)
        if captured is not None:
            self.found = captured, self.guards
        return captured is not None

    def resized(self, tensors: Sequence[Any]) -> _Variant | None:
        """The same for arguments of other sizes; None where it cannot be."""
        if self.template is None:
            return None
        made = copy.copy(self)
        vars(made).pop("program")
        return made if made._fill(tensors) else None

    def compile(self, nearly: bool, listing: dict[str, str], reserve: Reserve) -> None:
        """Make the program of what was captured."""
        self.listing = listing
        self.program = lowered(*self.found, nearly, reserve)
        del self.found

    def _run(
        self, function: Any, mode: Mode, args: Any, kwargs: Any, slots: Sequence[Slot], reads: Reads
    ) -> Captured:
        places = self.places = Places(slots, self._learnt, self.operands)
        self.operands.reads = reads
        self.operands.resized = Resized(self._resized, len(self._given)) if self._resized else None
        held = places.values()
        signed, _ = places.split(held)
        leaves = self._leaves
        signature = Signature(leaves, self._given)
        signature.add_all(signed)
        tensors = signature.tensors
        self._signature += signature.key
        self.objects += signature.objects

        def given(*symbols_given: Any) -> Any:
            call = args, kwargs, signed
            found, named, symbols = replaced(call, leaves, iter(symbols_given), {})
            return places.during(lambda: function(*found, **named), held, iter(symbols))

        casts = mode.autocast.without_cache() if mode.casts else None  # symbols are not kept
        grad = mode.grad and not mode.inference
        return capture(given, tensors, grad, casts, self.operands)

    def fitting(self, tensors: list[Any]) -> tuple[list[Any], Any] | None:
        """All tensors that the program is given for these arguments, and the numbers among its
        results; None where places hold something else than it was compiled for.
        """
        places = self.places
        if not places.slots:
            return tensors, ()
        signed, numbers = places.split(places.values())
        signature = Signature(self._leaves, tensors)
        signature.add_all(signed)
        if signature.key != self._signature:
            return None
        given = signature.tensors
        _on_host(given)  # lazy ones are computed
        values = self._values(numbers)
        return None if values is None else ([*given, *values[0]], values[1])

    def difference(self) -> str:
        """Why it is not the program of a call of its signature, in words."""
        return self.program.difference() or self.places.difference() or "another form of a place"

    def entry(self, mode: Mode, key: list[Any], leaves: bool) -> Entry | None:
        """A short way for calls like one; None where places hold what counts, too."""
        return None if self.places.slots else self.program.entry(mode, key, leaves)

    def run(self, tensors: list[Any], numbers: Any, observer: Any) -> Any:
        """What the function returns; places hold what it leaves there."""
        found, calls = self.program.run(tensors, observer, numbers)
        if self.places.slots:
            found, left = found
            self.places.set(left)
        for call in calls:
            call()
        return found


class CompiledModule(Module):
    """A module whose calls are compiled: attributes are those of the module, `_orig_mod`."""

    def __init__(self, module: Module, call: CompiledFunction | PiecewiseFunction) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled_call"] = call
        del self.__dict__["training"]  # the module's is asked for

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's call, its hooks included."""
        return self._compiled_call(*args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """See `CompiledFunction.explain`."""
        found: Explanation = self._compiled_call.explain(*args, **kwargs)
        return found

    def graph(self, *args: Any, **kwargs: Any) -> Stages:
        """See `CompiledFunction.graph`."""
        found: Stages = self._compiled_call.graph(*args, **kwargs)
        return found

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

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod, self._compiled_call)


# ---- arguments -----------------------------------------------------------------------------------


def _listing(mode: Mode, args: Any, kwargs: Any) -> dict[str, str]:
    """All that the signature depends on, in words, by what it is called."""
    found = {
        "grad mode": str(mode.grad),
        "inference mode": str(mode.inference),
        "autocast": str(mode.autocast.signature if mode.casts else None),
        "the default dtype": str(get_default_dtype()),
        "random.follow_torch": str(is_following()),
    }

    def add(name: str, x: Any) -> None:
        if isinstance(x, TensorBase):
            wants = " that wants a gradient" if x._node is not None else ""
            where = "" if type(x._data) is np.ndarray else f" on {x.device}"
            order = "" if where else order_in_memory(x._data)
            steps = [step // x._data.itemsize for step in x._data.strides] if order else []
            lies = f" of strides {tuple(steps)}" if order else ""
            found[name] = f"{tuple(x._data.shape)} {x._data.dtype}{where}{lies}{wants}"
        elif isinstance(x, dict):
            for each, value in x.items():
                add(f"{name}[{each!r}]", value)
        elif isinstance(x, (list, tuple)) and type(x) is not Size:
            for n, value in enumerate(x):
                add(f"{name}[{n}]", value)
        elif type(x) in PLAIN or type(x) in BY_VALUE:
            found[name] = repr(x)
        else:
            found[name] = f"a {type(x).__name__} at {id(x):#x}"

    for n, x in enumerate(args):
        add(f"argument {n}", x)
    for name, x in kwargs.items():
        add(name, x)
    return found


def _overrides(mode: Mode, tensors: list[Any]) -> str:
    """Who is to be asked what functions do, where a call runs as a program; empty if nobody."""
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
    """Why arguments cannot be a program's; empty if they can."""
    for x in tensors:
        if x.layout is not strided:
            return (
                f"an argument is of layout {x.layout}, and sparse tensors are computed with "
                "eagerly alone; give its to_dense(), or call the function without compile"
            )
    return ""


def _on_host(tensors: list[Any]) -> bool:
    """Whether all tensors have arrays of the host's, now that lazy ones are computed."""
    for x in tensors:
        if isinstance(x._data, LazyValue):
            concrete(x)
    return all(type(x._data) is np.ndarray for x in tensors)


def _told(error: Unsupported) -> str:
    """What is said of something that cannot be captured: with the user's line."""
    text, place = str(error), place_of(error)
    told = text if text.startswith("compile: ") else f"compile: {text}"
    return told if place in told else told + place


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
