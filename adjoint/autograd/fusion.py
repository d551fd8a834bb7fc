"""Running `@fused` composites as kernels: their graphs are captured once, by recording.

A composite is captured for the shapes and dtypes of its tensors, its other arguments, and which of
its tensors want gradients: its body runs on recorded values that have no array, and so does the
ordinary reverse walk from a cotangent that has none. The two graphs become kernels
(`backends.native.composite`); on the tape the composite is one node, which saves those inputs that
the backward kernels read. Where a graph of the gradient is wanted, it is the body that is
differentiated.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..backends import native as native_backend
from ..core import dispatch_log, policy
from ..core.arrays import signature
from ..core.device import device, is_device_array, space
from ..core.dtype import dtype
from ..core.errors import AdjointError, NotTraceable
from ..core.mode import MODE, Mode, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.symbolic_scalar import ScalarGraph
from ..core.symbolic_sizes import Filling, KernelGraph, all_known, guessing
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ir.compute import quietly
from ..ir.executable import Executable, keep_family, keep_sized, peek
from ..ir.passes import drawn, small
from ..ir.program import Program, Value
from ..ir.variants import Variants
from ..runtime import fused
from ..runtime.call_cache import keep_call
from ..runtime.cells import Cell
from ..runtime.lazy import LazyValue
from ..runtime.node import INFERENCE, Leaf, Node
from ..runtime.record import item, save_output, versions_of
from ..runtime.tensors import get_mode, wrap
from .capture import program_of, recording, symbol
from .engine import run_backward
from .plan_patterns import PlanPattern, PlanPatterns, Scalars
from .recording import execute_lazily
from .regions import record_composite

if TYPE_CHECKING:
    from ..backends.native.lowering.composite import Composite
    from .protocols import BackendArray, Casting

ndarray = np.ndarray
_UNKNOWN: Any = object()


def _record(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    return execute_lazily(op, inputs)


vars(_record)["writes"] = False  # a composite changes nothing: what shares memory does not matter


def execute(declared: fused.Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """The result of a composite on `args`, by its kernels where it has some: called by
    `runtime.fused`.
    """
    function = declared.function
    mode = get_mode()
    casting = mode.autocast if mode.casts else None
    if casting is not None and declared.native:
        return function(*args)
    inputs = [x for x in args if isinstance(x, TensorBase)]
    places: tuple[Any, ...] = ()
    if any(type(x._data) is not ndarray for x in inputs):
        state = next((x._data.state for x in inputs if isinstance(x._data, Cell)), None)
        if state is not None:
            return record_composite(state, declared, args)
        if casting is not None or not all(_is_array(x._data) for x in inputs):
            return function(*args)
        places = tuple([x.device for x in inputs])
    call = _key_of(args)
    if call is None:
        return function(*args)
    key = (places, casting and casting.signature, call)
    plan = declared.plans.find(key)
    family = None
    if plan is None:
        family = _family(declared, key)
        plan = None if family is None else family.find(_floats(args))
    if plan is None:
        wants = [mode.grad and x._node is not None for x in inputs]
        plan = _made(declared, args, inputs, wants, casting, family, call)
        if isinstance(plan, str) or not plan.symbols:
            family = None
            declared.plans.put(key, plan)
        if dispatch_log.on and not isinstance(plan, str):
            dispatch_log.said(_named(function, inputs), plan.way, plan.why)
    if isinstance(plan, str):
        result = function(*args)  # or an error, which comes first
        if dispatch_log.on or dispatch_log.strict:
            ordinary = not declared.native and not places and all(x._data.size for x in inputs)
            tell = dispatch_log.fell_back if ordinary else dispatch_log.said
            tell(_named(function, inputs), "its ops one by one", plan)
        return result
    result = plan.run(inputs)
    if mode.plain and plan.launch is not None:
        keep_call(declared, args, plan.launch, plan, plan.records)
        if family is not None:
            _keep_numbered(declared, args, family, plan)
        if plan.patterns is not None:
            _keep_sized(declared, args, plan)
    if mode.inference:
        for y in result if type(result) is tuple else (result,):
            y._changes = INFERENCE
    return result


_LASTING = (int, float, complex, str, np.generic, dtype, device, type)  # values that stay equal
WANTED: Any = object()  # in the key of a call, behind a tensor that wants a gradient


class _Key(NamedTuple):
    """Key of the plan for some arguments."""

    alike: tuple[Any, ...]  # what else there is: the same for any sizes and floats
    shapes: tuple[tuple[int, ...], ...]  # of the tensors
    floats: tuple[Any, ...]


def _key_of(args: Sequence[object]) -> _Key | None:
    """Key of the plan for these arguments; None where one may change without its key."""
    grad = get_mode().grad
    alike: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    floats: list[Any] = []
    for x in args:
        if isinstance(x, TensorBase):
            shapes.append(x._data.shape)
            alike += (x._data.ndim, x._data.dtype)
            if grad and x._node is not None:
                alike.append(WANTED)
        elif x is None:
            alike.append(None)
        elif type(x) is float:
            alike.append(float)
            floats.append(x or repr(x))  # 0.0 == -0.0
        elif type(x) is tuple or type(x) is list:
            alike += (type(x), len(x))
            for each in x:
                if not _lasts(each):
                    return None
                alike += _signed(each)
        elif _lasts(x):
            alike += _signed(x)
        else:
            return None
    return _Key(tuple(alike), tuple(shapes), tuple(floats))


def _lasts(x: object) -> bool:
    return x is None or isinstance(x, _LASTING) or type(x) is object


def _signed(x: object) -> tuple[type, object]:
    """Type and value, by which 0.0 and -0.0 differ."""
    signed = isinstance(x, (float, complex, np.inexact))
    return type(x), repr(x) if signed and not x else x


def _family(declared: fused.Declared, key: tuple[Any, Any, _Key]) -> Variants | None:
    """The plans for such arguments with any floats; None where there are none, or the composite has
    a routine.
    """
    places, casting, (alike, shapes, floats) = key
    if places or declared.native or not floats:
        return None
    others = alike, shapes
    variants = declared.families.find((casting, others))
    if variants is None:
        variants = Variants()
        declared.families.put((casting, others), variants)
    return variants


def _floats(args: tuple[Any, ...]) -> list[float]:
    return [x for x in args if type(x) is float]


def _keep_numbered(
    declared: fused.Declared, args: tuple[Any, ...], family: Variants, plan: Fused
) -> None:
    """Cache a family's plans, so that `run_known` launches them for such arguments with any
    floats.
    """
    numbers: list[Any] = []
    arrays: list[Any] = []
    key = signature(declared, args, get_mode().grad, arrays, None, False, numbers)
    if key is None or peek(key) is not None:
        return
    keep_family(key, declared, _numbered(family, plan, numbers, arrays))


def _numbered(
    family: Variants, plan: Fused, numbers: Sequence[Any], arrays: Sequence[Any]
) -> Callable[[object, list[Any]], Executable | None]:
    """A function that makes the executable of a family of plans, of which `plan` is one, for
    `arrays` and numbers like these, but other floats; None where there is none.
    """
    whole = [n for n in numbers if type(n) is int]
    strides = plan.forward.key_of(arrays)

    def make(declared: object, numbers: list[Any]) -> Executable | None:
        if [n for n in numbers if type(n) is int] != whole:
            return None
        plan = family.find([n for n in numbers if type(n) is float])
        launch = None if plan is None else plan.forward.launch_for(strides)
        return None if launch is None else Executable(launch, declared, plan, plan.records)

    return make


def _keep_sized(declared: fused.Declared, args: tuple[Any, ...], plan: Fused) -> None:
    """Cache the patterns of a plan, so that `run_known` launches what they have for such arguments
    of any sizes, and with any floats.
    """
    patterns = plan.patterns
    if patterns is None or (plan.several and len(plan.forward.outputs) == 1):
        return
    varies = bool(plan.symbols)
    if not varies and _floats(args):
        return  # they are part of the pattern, and not of the key
    least = 0 if declared.always else fused.SMALLEST

    def make(declared: object, numbers: list[Any], arrays: list[Any], _: list[int]) -> Any:
        if arrays[0].size < least or not all(x.size for x in arrays):
            return None
        floats = [n for n in numbers if type(n) is float] if varies else ()
        plan = patterns.find([n for x in arrays for n in x.shape], floats)
        if plan is None or isinstance(plan, str):
            return None
        launch = quietly(plan.forward.prepare, arrays)
        if launch is None:
            return None
        numbered = None
        if floats:
            family = Variants()
            family.made.append(plan)
            numbered = _numbered(family, plan, numbers, arrays)
        return Executable(launch, declared, plan, plan.records), numbered

    keep_sized(declared, args, make, get_mode().grad)


def _made(
    declared: fused.Declared,
    args: tuple[Any, ...],
    inputs: Sequence[Any],
    wants: Sequence[bool],
    casting: Casting | None,
    family: Variants | None,
    call: _Key,
) -> Fused | str:
    """A new plan, for any sizes and floats if possible; or the reason why there is none."""
    if not declared.native and all(type(x._data) is ndarray and x._data.size for x in inputs):
        if family is not None and len(family.made) < policy.VARIANTS:
            plan = _sized(declared, args, inputs, wants, casting, call, True)
            if not isinstance(plan, str):
                family.made.append(plan)
                return plan
        plan = _sized(declared, args, inputs, wants, casting, call, False)
        if not isinstance(plan, str):
            return plan
    if family is not None and len(family.made) < policy.VARIANTS and native_backend.load():
        try:
            kind = _kind(declared.function, Fused)
            made = kind(declared.function, args, inputs, wants, _bare(casting), ScalarGraph())
        except (NotTraceable, AdjointError) as error:  # perhaps for these floats, then
            if dispatch_log.on:
                what = _named(declared.function, inputs)
                dispatch_log.said(what, "kernels of these numbers only", error)
        else:
            family.made.append(made)
            return made
    return plan_for(declared.function, declared.native, args, inputs, wants, casting)


def _sized(
    declared: fused.Declared,
    args: tuple[Any, ...],
    inputs: Sequence[Any],
    wants: Sequence[bool],
    casting: Casting | None,
    call: _Key,
    varies: bool,
) -> Fused | str:
    """The plan by a pattern, which is made where there is none; or the reason why there is none.
    With `varies`, floats come with each call; otherwise they are part of the pattern.
    """
    if not native_backend.load():
        return "the native backend is off"
    key = varies, casting and casting.signature, call.alike, () if varies else call.floats
    patterns: PlanPatterns[Fused] | None = declared.patterns.get(key)
    if patterns is None:
        if len(declared.patterns) >= policy.PATTERNS:
            declared.patterns.clear()
        patterns = declared.patterns[key] = PlanPatterns()
    function = declared.function
    kind = _kind(function, Fused)

    def capture(graph: KernelGraph) -> Fused:
        return kind(function, args, inputs, wants, _bare(casting), graph, varies)

    def make() -> PlanPattern[Fused]:
        return PlanPattern(capture, lambda error: dispatch_log.reason_of(error, function))

    sizes = [n for shape in call.shapes for n in shape]
    plan = patterns.plan(sizes, _floats(args) if varies else (), make)
    if not isinstance(plan, str):
        plan.patterns = patterns if casting is None else None
    return plan


def _bare(casting: Casting | None) -> Casting | None:
    return casting and casting.without_cache()


def _named(function: Callable[..., Any], inputs: Sequence[Any]) -> str:
    return dispatch_log.named(function.__name__, [x._data for x in inputs])


def _is_array(data: object) -> bool:
    return type(data) is ndarray or is_device_array(data)


def plan_for(
    function: Callable[..., Any],
    native: str,
    args: tuple[Any, ...],
    inputs: Sequence[Any],
    wants: Sequence[bool],
    casting: Casting | None = None,
) -> Fused | str:
    """The composite as one op for inputs like these, its own ops converted by `casting` (autocast);
    or the reason why it has no kernels.
    """
    if inputs[0].device.type != "cpu":
        base: type[Fused] = DeviceFused
        if len({x.device for x in inputs}) != 1:
            return "inputs on several devices"
        if not getattr(space(inputs[0].device), "has_routines", False):
            return "the device's backend has no routines"
    else:
        base = HandWritten if native else Fused
        if not native_backend.load():
            return "the native backend is off"
    kind = _kind(function, base, native)
    try:
        return kind(function, args, inputs, wants, _bare(casting))
    except Exception as error:
        return dispatch_log.reason_of(error, function)


def _kind(function: Callable[..., Any], base: type[Fused], native: str = "") -> type[Fused]:
    """The class of a composite's plans, which has the composite's name."""
    name = "".join(word.capitalize() for word in function.__name__.split("_"))
    kind = _KINDS.get((name, base))
    if kind is None:
        members = {"__doc__": function.__doc__, "native": native}
        kind = _KINDS[name, base] = type(name, (base,), members, abstract=True)
    return kind


class Fused(Op, abstract=True):
    """A composite on inputs of given shapes and dtypes, as one op."""

    needs = "xs"  # of each plan: those inputs that its backward kernels read
    own_tokens = True

    # (*arrays) -> the results of `run` for arrays like the last ones, otherwise None.
    launch: Callable[..., Any] | None = None

    patterns: PlanPatterns[Any] | None = None  # it is made by
    _filling: tuple[Any, Filling, Sequence[float] | None]  # of a plan for other sizes: by what

    way = "kernels"  # as the dispatch log says it
    why = ""  # several: of the forward ones, of the backward ones

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        inputs: Sequence[Any],
        wants: Sequence[bool],
        casting: Casting | None = None,
        arithmetic: ScalarGraph | None = None,
        varies: bool = True,
    ) -> None:
        """Plan the composite. With `arithmetic`, floats among `args` are passed with each call (if
        `varies`), and sizes are symbols of a `KernelGraph`; otherwise they become part of the
        kernels.
        """
        self.function = function
        self.arithmetic = arithmetic
        self.casting = casting
        self.symbols: list[Any] = []  # of the floats that come with each call
        if arithmetic is not None and varies:
            self.symbols = [arithmetic.scalar(x) for x in args if type(x) is float]
        self.specs = tuple(x.spec for x in inputs)
        if isinstance(arithmetic, KernelGraph):
            self.specs = tuple(x.with_(shape=arithmetic.sizes(x.shape)) for x in self.specs)
        self.statics = tuple(_UNKNOWN if isinstance(x, TensorBase) else x for x in args)
        self.wants = tuple(wants)
        self._prepare()
        self.n_outputs = len(self.outputs)  # type: ignore[misc]
        whole = self.differentiable and not self.several
        self.records = whole and self.outputs[0].dtype.category >= 2
        self.keeps_values = bool(self.tokens)  # type: ignore[misc]

    def _prepare(self) -> None:
        """Compile the kernels from the ops that the body, and the reverse walk over it, record."""
        inputs = list(map(symbol, self.specs))
        leaves = []
        for x, wants in zip(inputs, self.wants, strict=True):
            leaf = Leaf(x) if wants else None
            x._node = x._leaf = leaf
            leaves.append(leaf)
        with recording(executor=_record, grad=True, autocast=self.casting):
            results_of_body = self.function(*self._numbered(self.filled(inputs)))
        self.several = type(results_of_body) is tuple
        ys = results_of_body if self.several else (results_of_body,)
        self.outputs = tuple(y.spec for y in ys)
        self.differentiable_outputs = [i for i, y in enumerate(ys) if y._node is not None]
        gs = [symbol(self.outputs[i]) for i in self.differentiable_outputs]
        gradients = {}
        if gs:
            with recording(executor=_record, grad=True):
                gradients = run_backward(
                    [
                        (ys[i]._node, g)
                        for i, g in zip(self.differentiable_outputs, gs, strict=True)
                    ],
                    retain_graph=False,
                    create_graph=False,
                    targets=[leaf for leaf in leaves if leaf is not None],
                    accumulate=False,
                )
        self.reached = [leaf is not None and leaf in gradients for leaf in leaves]
        reached = [gradients[leaf] for leaf in leaves if leaf in gradients]
        joint = program_of([x._data for x in (*inputs, *gs)], [y._data for y in (*ys, *reached)])
        ahead = joint.between(joint.inputs[: len(inputs)], joint.outputs[: len(ys)])
        results = joint.outputs[len(ys) :]
        kept = drawn(ahead) if reached else []
        further = small(ahead, results, policy.KEPT_SHARE, policy.KEPT_LARGE)
        try:
            self._make(joint, ahead, [*kept, *further], results)
        except (NotTraceable, AdjointError):
            if not further:
                raise
            self._make(joint, ahead, kept, results)

    def _numbered(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with symbols for those floats that come with each call."""
        if not self.symbols:
            return args
        numbers = iter(self.symbols)
        return [next(numbers) if type(x) is float else x for x in args]

    def sized(
        self, fill: Filling, floats: Sequence[float], scalars: Scalars | None
    ) -> Fused | None:
        """The plan with the same kernels for other sizes, which `fill` puts in the place of
        symbols, and floats, of which `scalars` computes those of its kernels; None where they
        decide otherwise.
        """
        values = None if scalars is None else scalars(*floats)
        if scalars is not None and values is None:
            return None
        other = self._with_floats(floats)
        ahead = len(self.forward.sources)
        other.forward = self.forward.sized(fill, values and values[:ahead])
        later = ("specs", "outputs", "backward") if self.differentiable else ("specs", "outputs")
        for name in later:  # which are filled in where they are asked for
            del vars(other)[name]
        other._filling = self, fill, values and values[ahead:]
        if scalars is not None:
            other.values = scalars
            return other
        for name in later:  # all that there is, for the pattern's function
            getattr(other, name)
        return other

    @functools.cached_property
    def specs(self) -> tuple[Spec, ...]:
        """The specs of the inputs."""
        like, fill, _ = self._filling
        return fill(like.specs)

    @functools.cached_property
    def outputs(self) -> tuple[Spec, ...]:
        """The specs of the results."""
        like, fill, _ = self._filling
        return fill(like.outputs)

    @functools.cached_property
    def backward(self) -> Composite | None:
        """The kernels of the gradient, if there is one."""
        like, fill, values = self._filling
        return None if like.backward is None else like.backward.sized(fill, values)

    @property
    def sized_bytes(self) -> int:
        """About how many bytes the plan takes beyond its kernels."""
        return (2 if self.differentiable else 1) * self.forward.sized_bytes

    def with_numbers(self, floats: Sequence[float]) -> Fused | None:
        """The plan with the same kernels for other floats among the arguments; None where a
        decision in the body comes out differently.
        """
        values = self.values(*floats)
        if values is None:
            return None
        other = self._with_floats(floats)
        other.forward = self.forward.with_numbers(values)
        if self.backward is not None:
            other.backward = self.backward.with_numbers(values[len(self.forward.sources) :])
        return other

    def _with_floats(self, floats: Sequence[float]) -> Fused:
        """A copy for other floats among the arguments, whose kernels are still these."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        if self.symbols and floats:
            numbers = iter(floats)
            other.statics = tuple([next(numbers) if type(x) is float else x for x in self.statics])
        other.launch = None
        return other

    def _make(
        self, joint: Program, ahead: Program, kept: Sequence[Value], results: Sequence[Value]
    ) -> None:
        """Compile the kernels; the forward ones also return the values `kept` for the backward
        ones.
        """
        count = len(ahead.inputs)
        sources = [*ahead.inputs, *kept, *joint.inputs[count:]]
        forward = joint.between(ahead.inputs, [*ahead.outputs, *kept])
        back = joint.between(sources, results) if results else None
        try:
            self._compile(forward, back, False)
        except (NotTraceable, AdjointError):
            self._compile(forward, back, True)
        reads = set() if self.backward is None else set(self.backward.reads)
        again = ahead.needed(kept)  # recomputed by the body
        reads |= {n for n, x in enumerate(ahead.inputs) if x in again}
        self.reads = tuple(sorted(n for n in reads if n < count))
        self.tokens = (  # type: ignore[misc]
            *(f"x{n + 1}" for n in self.reads),
            *(f"kept{i + 1}" for i in range(len(kept))),
        )
        # Positions of saved values and cotangents among the inputs of the backward kernels.
        self.places = (*self.reads, *range(count, len(sources)))

    def _compile(self, ahead: Program, back: Program | None, reshaped: bool) -> None:
        """Compile the kernels of both programs in one index space."""
        from ..backends.native.lowering.composite import Composite

        make = functools.partial(Composite, reshaped=reshaped, arithmetic=self.arithmetic)
        self.forward = forward = make(ahead)
        self.backward = None
        if back is not None:
            like = [forward.dims[i] for i in self.differentiable_outputs]
            like = [*forward.dims[len(self.outputs) :], *like]
            self.backward = make(back, like, space=forward.space)
        if self.arithmetic is not None:
            behind = self.backward.sources if self.backward is not None else []
            self.sources = [*forward.sources, *behind]
            if not isinstance(self.arithmetic, KernelGraph):
                self.values = self.arithmetic.function(self.sources)
        cuts = [
            ("forward", forward.cuts),
            ("backward", self.backward.cuts if self.backward else []),
        ]
        self.why = "; ".join(f"{way} cut before {cut}" for way, each in cuts for cut in each)
        self.differentiable = back is not None  # type: ignore[misc]

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """The specs of the outputs."""
        return self.outputs if self.several else self.outputs[0]

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """The results by the forward kernels."""
        self.forward.check(arrays)
        results = self.forward(arrays)
        return tuple(results[: self.n_outputs]) if self.several else results[0]

    def run(self, inputs: list[Any]) -> Tensor | tuple[Tensor, ...]:
        """The results on `inputs`, recorded on the tape where gradients are required."""
        arrays = [x._data for x in inputs]
        if self.forward.guards:
            self.forward.check(arrays)
        results = self.forward(arrays)
        self.launch = None if self.several and len(results) == 1 else self.forward.launch
        return self.finished(inputs, results)

    def finished(self, inputs: list[Any], results: Sequence[Any]) -> Tensor | tuple[Tensor, ...]:
        """The tensors of the arrays that the kernels computed from `inputs`."""
        if not self.differentiable and not self.several:
            return wrap(results[0])
        ys = [wrap(y) for y in results]
        if self.differentiable:
            drawn = ys[self.n_outputs :]
            del ys[self.n_outputs :]
            self._record(inputs, ys, [*[inputs[n] for n in self.reads], *drawn])
        return tuple(ys) if self.several else ys[0]

    def _record(self, inputs: Sequence[Any], ys: Sequence[Any], saved: list[Any]) -> None:
        """Set the node of the outputs."""
        versions = versions_of(saved)
        parents = tuple([x._node for x in inputs])
        if not self.several:
            y = ys[0]._data
            ys[0]._node = Node(self, parents, tuple(saved), versions, y.shape, y.dtype)
        else:
            node = Node(self, parents, tuple(saved), versions, (), None)
            for i in self.differentiable_outputs:
                ys[i]._node = item(node, i, ys[i]._data)

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """The gradients by the backward kernels; by the body where their own graph is needed."""
        gs = [g[i] for i in self.differentiable_outputs] if self.several else [g]
        mode = get_mode()
        operands = (*saved, *gs)
        arrays: list[Any] = [None] * (len(self.wants) - len(self.reads) + len(operands))
        plain = not mode.grad and mode.executor is None
        for place, x in zip(self.places, operands, strict=True):
            data = arrays[place] = None if x is None else x._data
            plain = plain and type(data) is ndarray
        if not plain:
            return self._by_body(gs, saved[: len(self.reads)], mode)
        gradients = self.backward(arrays)  # type: ignore[misc]
        if len(gradients) < len(self.reached):
            each = iter(gradients)
            return tuple([wrap(next(each)) if has else None for has in self.reached])
        return tuple(map(wrap, gradients))

    def _by_body(self, gs: Sequence[Any], saved: Sequence[Any], mode: Mode) -> tuple[Any, ...]:
        """The gradients of the composite's ops, which are run again; recorded on the tape if the
        mode requires it.
        """
        values = dict(zip(self.reads, saved, strict=True))
        inputs, targets = [], []
        for n, (spec, wants) in enumerate(zip(self.specs, self.wants, strict=True)):
            x = values.get(n)
            if x is None:  # no gradient depends on its value
                x = wrap(np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape))
            data = x._data
            node = Node(_Passing(), (x._node,), (), None, data.shape, data.dtype) if wants else None
            targets.append(node)
            inputs.append(wrap(data, node, x._changes))
        try:
            MODE.set(mode_with(mode, grad=True, autocast=self.casting))
            ys = self.function(*self.filled(inputs))
        finally:
            MODE.set(mode)
        if self.several:
            ys = [ys[i] for i in self.differentiable_outputs]
        else:
            ys = [ys]
        roots = [(y._node, g) for y, g in zip(ys, gs, strict=True) if g is not None]
        reached = run_backward(
            roots,
            retain_graph=mode.grad,
            create_graph=mode.grad,
            targets=[node for node in targets if node is not None],
            accumulate=False,
        )
        return tuple([None if node is None else reached.get(node) for node in targets])

    def filled(self, inputs: Sequence[Any]) -> list[Any]:
        """The arguments of the function, with `inputs` for its tensors."""
        tensors = iter(inputs)
        return [next(tensors) if x is _UNKNOWN else x for x in self.statics]


class Routine(Protocol):
    """A hand-written routine for a composite, made by `plan(specs, statics, wants)` of a module of
    `backends.native`.

    `specs` are those of the tensors among the arguments, `statics` all arguments with
    `NotImplemented` in the place of tensors, `wants` says which tensors want a gradient.
    Errors: `plan` raises NotTraceable for what it does not do; then the body runs.
    """

    outputs: tuple[Spec, ...]
    several: bool  # whether the composite returns a tuple
    differentiable: tuple[int, ...]  # the outputs that gradients come from
    kept: tuple[Spec, ...]  # further results of `forward`; missing in those of other devices

    whole: bool  # a program computes by this rather than by the composite's own ops

    def forward(
        self, arrays: list[Any], into: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and further values kept for `backward` (none, if no gradient is required);
        written into the arrays `into`, if there are some and the routine supports it.
        """

    def backward(
        self, arrays: list[Any], outputs: list[Any], kept: list[Any], gs: list[Any]
    ) -> list[Any]:
        """The gradient of each input that requires one, None for others. `gs` are the cotangents of
        the differentiable outputs: arrays of any strides, None for an output that got none.
        """


class HandWritten(Fused, abstract=True):
    """A composite for which `backends.native` has a hand-written routine."""

    native: str

    routine: Routine

    way = "routine"

    @property
    def sized_bytes(self) -> int:
        """About how many bytes the plan takes beyond the routine's code."""
        return policy.COMPOSITE_BYTES

    def _prepare(self) -> None:
        """Look up the routine, instead of compiling kernels."""
        with guessing(*(spec.shape for spec in self.specs)):
            statics = tuple([NotImplemented if x is _UNKNOWN else x for x in self.statics])
            self.routine = routine_for(self.function, self.native, self.specs, statics, self.wants)
            self.outputs = self._outputs()
        self.several = self.routine.several
        self.differentiable_outputs = list(self.routine.differentiable)
        self.reads = tuple(range(len(self.specs)))
        self.tokens = (  # type: ignore[misc]
            *(f"x{n + 1}" for n in self.reads),
            *(f"output{i + 1}" for i in range(len(self.outputs))),
            "kept",
        )

    def _outputs(self) -> tuple[Spec, ...]:
        """The output specs of the routine. For a device's library with symbolic sizes, those of the
        body, with which the routine's are compared once the sizes are known.
        """
        if not isinstance(self, DeviceFused) or all(all_known(spec.shape) for spec in self.specs):
            return self.routine.outputs
        with recording():
            results = self.function(*self.filled(list(map(symbol, self.specs))))
        return tuple(y.spec for y in (results if type(results) is tuple else (results,)))

    def resized(self, fill: Callable[[Any], Any]) -> Op:
        """The composite for inputs of other sizes, with the routine looked up again."""
        specs = fill(self.specs)
        statics = tuple([x if x is _UNKNOWN else fill(x) for x in self.statics])
        if specs is self.specs:
            return self
        made = copy.copy(self)
        made.specs, made.statics = specs, statics
        made._prepare()
        was, now = [
            (x.outputs, getattr(x.routine, "kept", ()), x.routine.whole) for x in (self, made)
        ]
        if fill(was) != now:
            raise NotTraceable("a routine that is another for other sizes")
        return made

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """The results by the routine."""
        results, _ = quietly(self.routine.forward, list(arrays))
        return tuple(results) if self.several else results[0]

    def run(self, inputs: list[Any]) -> Tensor | tuple[Tensor, ...]:
        """The results on `inputs`, recorded on the tape where gradients are required."""
        results, kept = quietly(self.routine.forward, [x._data for x in inputs])
        ys = [wrap(y) for y in results]
        if any(self.wants):
            saved = [*inputs, *map(save_output, ys), tuple(map(wrap, kept))]
            self._record(inputs, ys, saved)
        return tuple(ys) if self.several else ys[0]

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """The gradients by the routine; by the body where their own graph is needed."""
        gs = [g[i] for i in self.differentiable_outputs] if self.several else [g]
        count = len(self.specs)
        *operands, kept = saved
        mode = get_mode()
        if not _is_plain(mode, (*operands, *kept, *(g for g in gs if g is not None))):
            return self._by_body(gs, operands[:count], mode)
        arrays = [x._data for x in operands]
        gradients = quietly(
            self.routine.backward,
            arrays[:count],
            arrays[count:],
            [x._data for x in kept],
            [None if g is None else g._data for g in gs],
        )
        return tuple([None if each is None else wrap(each) for each in gradients])


class DeviceFused(HandWritten, abstract=True):
    """A composite on a device other than the host, for which the device's library has a kernel."""


def routine_for(
    function: Callable[..., Any],
    native: str,
    specs: Sequence[Spec],
    statics: tuple[Any, ...],
    wants: Sequence[bool],
) -> Any:
    """The `Routine` of a composite on the device of its tensors.

    Errors: NotTraceable where there is none.
    """
    if specs[0].device.type == "cpu":
        module = importlib.import_module(f"adjoint.backends.native.{native}")
        return module.plan(specs, statics, wants)
    from ..backends.torch.routines import plan

    routine = plan(function.__name__, specs, statics, wants)
    if routine is None:
        raise NotTraceable("the device's library has no kernel for it")
    return routine


def _is_plain(mode: Mode, tensors: Sequence[Any]) -> bool:
    """Whether kernels may compute with `tensors`: nothing is recorded, all are arrays."""
    if mode.grad or mode.executor is not None:
        return False
    for x in tensors:
        if x is None or (type(x._data) is not ndarray and isinstance(x._data, LazyValue)):
            return False
    return True


# One class a composite: grad_fn shows its name.
_KINDS: dict[tuple[str, type[Fused]], type[Fused]] = {}


class _Passing(Op, abstract=True):
    """Identity op with a node of its own, at which differentiation of a body stops."""

    def compute(self, xp: Any, x: BackendArray) -> BackendArray:
        """The input."""
        return x

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The cotangent unchanged."""
        return (g,)
