"""Kernels for in-place methods, which write the result over the tensor: made by capture, cached for
later calls.

The method's function is run once on symbols, for its arguments' shapes, strides and dtypes: what it
records becomes one kernel. Floats among the arguments come with each call, so that another rate is
not another kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ..backends import native
from ..core import dispatch_log, policy
from ..core.argument_errors import MISTAKES, explain
from ..core.arrays import signature
from ..core.dtype import LOW_PRECISION
from ..core.errors import NotTraceable
from ..core.mode import MODE
from ..core.op import Op
from ..core.symbolic_scalar import ScalarGraph
from ..core.symbolic_sizes import Filling, KernelGraph
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ir import compute
from ..ir.executable import Executable, find, forgettable, keep, keep_family
from ..ir.program import Program
from ..ir.variants import Variants
from ..ops.random.generators import counting, default_generator
from ..runtime.writes import write_known
from .capture import program_of, recording, symbol
from .plan_patterns import PlanPattern, PlanPatterns, Scalars
from .recording import execute_lazily


def _record(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    return execute_lazily(op, inputs)


vars(_record)["generator"] = counting(0)  # a method that draws does not count while it is captured
_NARROW = frozenset(d.numpy for d in LOW_PRECISION)


def write_anew(
    owner: object,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: tuple[Any, ...],
) -> bool:
    """Write `function(*args, **kwargs)` over the first of `args` by a newly compiled kernel.
    Otherwise, also where an error is due, do nothing and return False. `owner`, called `name`, has
    no cached kernel for the arguments, which are `given` as one sequence.
    """
    from ..core.deprecated_orders import in_present_order

    if in_present_order(name, args, kwargs) is not None:
        return False
    few = args[0]._data.size <= policy.SMALL
    if few or compute.accelerate is None or not native.load():
        return False
    kernel = _find(owner, name, function, args, kwargs, given)
    keep(signature(owner, given, MODE.get().grad, []), kernel)
    return bool(write_known(owner, name, given))


class _InPlaceWriter:
    """The compiled kernel of an in-place method for these arguments. Numbers of the types in
    `kinds` are passed with each call, converted as `kinds` says; other numbers are part of the
    kernel.

    Errors: NotTraceable where there is none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kinds: dict[type, type],
        arrays: Sequence[Any],
        graph: KernelGraph | None = None,
    ) -> None:
        """Capture and compile. `arrays` are those of the tensors among the arguments. With `graph`
        their sizes are symbols: `sized` makes the kernel for some.
        """
        every = (*args, *kwargs.values())
        self.kinds = kinds
        self.fixed = [None if type(y) in kinds else y for y in every if type(y) in _NUMBERS]
        arithmetic = ScalarGraph() if graph is None else graph
        numbers = iter([arithmetic.scalar(kinds[type(y)](y)) for y in every if type(y) in kinds])
        specs = list(map(compute.spec_of, arrays))
        if graph is not None:
            specs = [x.with_(shape=graph.sizes(x.shape)) for x in specs]
        symbols = list(map(symbol, specs))
        inputs = [x._data for x in symbols]
        remaining = iter(symbols)

        def known(y: object) -> object:
            if isinstance(y, TensorBase):
                return next(remaining)
            return next(numbers) if type(y) in kinds else y

        positional = list(map(known, args))
        named = {key: known(y) for key, y in kwargs.items()}
        with recording(executor=_record):
            y = function(*positional, **named)
        out = specs[0]
        if (
            not isinstance(y, TensorBase)
            or y._data.dtype != out.dtype.numpy
            or y._data.shape != out.shape
        ):
            raise NotTraceable("a result that the tensor does not take as it is")
        program = program_of(inputs, [y._data])
        self.draw = None
        if graph is None:
            self.draw, program = _drawn_first(program, arrays)
        if len(program.nodes) > 1 and any(x.dtype in _NARROW for x in arrays):
            raise NotTraceable("several ops, each of which rounds its result")
        self._compile(program, arrays, arithmetic)

    def _compile(self, program: Program, arrays: Sequence[Any], arithmetic: ScalarGraph) -> None:
        """Compile what is left of the program, if something is."""
        from ..backends.native.lowering.composite import Composite

        self.launcher, self.composite = None, None
        self.sources: list[Any] = []
        if program.nodes:
            self.composite = Composite(program, arithmetic=arithmetic)
            self.sources = self.composite.sources
        if isinstance(arithmetic, KernelGraph):
            if self.composite is None:
                raise NotTraceable("nothing to compute")
            return
        self.values: Scalars = arithmetic.function(self.sources)
        if self.composite is not None:
            self.launcher = self.composite.writer(arrays)

    def sized(
        self, fill: Filling, floats: Sequence[float], scalars: Scalars | None
    ) -> _InPlaceWriter:
        """The kernel for other sizes, which `fill` puts in the place of symbols, whose numbers
        `scalars` computes; `launcher` is to be set.
        """
        other = copy.copy(self)
        assert self.composite is not None
        other.composite = self.composite.sized(fill)
        if scalars is not None:
            other.values = scalars
        return other

    def with_numbers(self, numbers: Sequence[Any]) -> Executable | None:
        """The executable for these numbers; None where they do not match the kernel, or a decision
        comes out differently.
        """
        converted = []
        for y, fixed in zip(numbers, self.fixed, strict=True):
            if fixed is None:
                kind = self.kinds.get(type(y))
                if kind is None:
                    return None
                converted.append(kind(y))
            elif type(y) is not type(fixed) or y != fixed or str(y) != str(fixed):
                return None
        values = self.values(*converted)
        if values is None:
            return None
        then = None
        if self.launcher is not None:
            then = Executable(self.launcher.numbered(values), self, None, False)
        if self.draw is not None:
            return Executable(self.draw.run, self, None, False, None, default_generator, then)
        return then


def _drawn_first(program: Program, arrays: Sequence[Any]) -> tuple[Any, Program]:
    """The draw of random numbers over the first array, if the program begins with one; and the rest
    of the program, which takes them as its input.
    """
    drawing = [node for node in program.nodes if node.op.library == "draws" and not node.inputs]
    if not drawing:
        return None, program
    if default_generator.twister is not None:
        raise NotTraceable("random numbers of PyTorch's generator")
    from ..backends.native.lowering import large_arrays
    from ..backends.native.random.random_draws import over

    [node, *others], [out, *more] = drawing, arrays
    if others or more or any(program.inputs[0] in each.inputs for each in program.nodes):
        raise NotTraceable("random numbers beside other values")
    if node.output.spec.shape != out.shape or node.output.spec.dtype.numpy != out.dtype:
        raise NotTraceable("random numbers that are converted")
    rest = [each for each in program.nodes if each is not node]
    return over(node.op, large_arrays, out), Program([node.output], rest, program.outputs)


def _find(
    owner: object,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: tuple[Any, ...],
) -> Executable:
    """The executable for arguments like these, compiled if need be; `_NOTHING` if there is no
    kernel.
    """
    numbers: list[Any] = []
    arrays: list[Any] = []
    key = signature(owner, given, MODE.get().grad, arrays, None, False, numbers)
    family = find(key)
    variants = Variants() if family is None else family.owner
    if family is None and numbers:
        keep_family(key, variants, lambda _, numbers: variants.find(numbers))

    def make() -> _InPlaceWriter | str:
        reason = ""
        for kinds in _KINDS.get(arrays[0].dtype.kind, ({},)):
            try:
                own = _arrays_of((*args, *kwargs.values()), len(arrays))
                made = _by_pattern(owner, function, args, kwargs, kinds, own)
                return made or _InPlaceWriter(function, args, kwargs, kinds, own)
            except Exception as error:
                if isinstance(error, MISTAKES):
                    explain(error, function, args, kwargs)
                reason = dispatch_log.reason_of(error, _find)
        return reason

    executable = variants.find_or_make(numbers, make)
    reason = executable if isinstance(executable, str) else ""
    if dispatch_log.on:
        way = "a new array, copied" if reason else "kernel, in place"
        dispatch_log.said(dispatch_log.named(name, arrays), way, reason)
    return _NOTHING if reason else executable


def _arrays_of(every: Sequence[Any], count: int) -> list[Any]:
    """The arrays of the tensors among arguments, of which there are `count`.

    Errors: NotTraceable for what no kernel writes.
    """
    tensors = [x for x in every if isinstance(x, TensorBase)]
    if MODE.get().grad and any(x._node is not None for x in tensors):
        raise NotTraceable("a gradient is wanted")
    arrays = [x._data for x in tensors]
    if len(arrays) < count:
        raise NotTraceable("a sequence of tensors")
    if any(x.dtype.kind == "c" or not x.dtype.isnative for x in arrays):
        raise NotTraceable("complex numbers, or a foreign byte order")
    return arrays


def _by_pattern(
    owner: object,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kinds: dict[type, type],
    arrays: list[Any],
) -> _InPlaceWriter | None:
    """The kernel by a pattern for any sizes, which is made where there is none; None where it is to
    be made for these.
    """
    every = (*args, *kwargs.values())
    numbers = [x for x in every if type(x) in _NUMBERS]
    without = signature(owner, every, False, [], None, False, [], [])
    if without is None or not all(x.size for x in arrays):
        return None
    if any(type(x) is float and float not in kinds for x in numbers):
        return None
    key = owner, tuple(kwargs), tuple(kinds), without
    patterns = _patterns.get(key)
    if patterns is None:
        if len(_patterns) >= policy.PATTERNS:
            _patterns.clear()
        patterns = _patterns[key] = PlanPatterns()

    def capture(graph: KernelGraph) -> _InPlaceWriter:
        return _InPlaceWriter(function, args, kwargs, kinds, arrays, graph)

    floats = [kinds[type(x)](x) for x in numbers if type(x) in kinds]
    sizes = [n for x in arrays for n in x.shape]
    made = patterns.plan(sizes, floats, lambda: PlanPattern(capture, str))
    if isinstance(made, str) or made.composite is None:
        return None
    made.launcher = made.composite.writer(arrays)
    return made


# By method and arguments without sizes.
_patterns: dict[Any, PlanPatterns[_InPlaceWriter]] = {}
forgettable(_patterns.clear)

_NUMBERS = (int, float)
# Types of numbers passed with each call, by the kind of dtype that is written: the first that works
# is taken.
_FLOATS: tuple[dict[type, type], ...] = ({float: float, int: float}, {float: float}, {})
_KINDS = {"f": _FLOATS, "V": _FLOATS}  # V: bfloat16
_NOTHING = Executable(None, None, None, False)  # there is no kernel
