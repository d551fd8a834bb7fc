"""Kernels that write a method's result over its tensor: made by capture, kept for calls to come.

The method's function is run once on symbols, for its arguments' shapes, strides and dtypes: what it
records becomes one kernel. Floats among the arguments come with each call, so that another rate is
not another kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends import native
from ..core import dispatch_log, policy
from ..core.dtype import LOW_PRECISION
from ..core.errors import NotTraceable
from ..core.mistakes import MISTAKES, explain
from ..core.mode import MODE
from ..core.op import Op
from ..core.scalar import Arithmetic
from ..core.tensor_base import TensorBase
from ..eager.arrays import signature
from ..eager.writes import write_known
from ..ops.random.random import counting, default_generator
from ..program import compute
from ..program.capture import program_of, recording, symbol
from ..program.executable import Executable, find, keep, keep_family
from ..program.program import Program
from ..program.variants import Variants
from .recording import execute_lazily


def _record(op: Op, inputs: tuple[Any, ...]) -> Any:
    return execute_lazily(op, inputs)


vars(_record)["generator"] = counting(0)  # a method that draws does not count while it is captured
_NARROW = frozenset(d.numpy for d in LOW_PRECISION)


def write_anew(owner: Any, name: str, function: Any, args: Any, kwargs: Any, given: Any) -> bool:
    """Write `function(*args, **kwargs)` over the first of `args` by a kernel, if there can be
    one; otherwise, also where an error is due, do nothing and return False. `owner`, called `name`,
    did not know one for the arguments, which are `given` as one sequence.
    """
    from ..core.older_orders import in_present_order

    if in_present_order(name, args, kwargs) is not None:
        return False
    few = args[0]._data.size <= policy.SMALL
    if few or compute.accelerate is None or not native.load():
        return False
    kernel = _find(owner, name, function, args, kwargs, given)
    keep(signature(owner, given, MODE.get().grad, []), kernel)
    return bool(write_known(owner, name, given))


class _Writer:
    """The kernel of a function of the first array and these arguments, for any numbers among them
    that are of `kinds`, which come with each call as what is said there; others are part of it.

    Errors: NotTraceable where there is none.
    """

    def __init__(
        self, function: Any, args: Any, kwargs: Any, kinds: dict[type, type], count: int
    ) -> None:
        """`count`: of all tensors among the arguments."""
        from ..backends.native.lowering.composite import Composite

        every = (*args, *kwargs.values())
        tensors = [x for x in every if isinstance(x, TensorBase)]
        if MODE.get().grad and any(x._node is not None for x in tensors):
            raise NotTraceable("a gradient is wanted")
        arrays = [x._data for x in tensors]
        if len(arrays) < count:
            raise NotTraceable("a sequence of tensors")
        if any(x.dtype.kind == "c" or not x.dtype.isnative for x in arrays):
            raise NotTraceable("complex numbers, or a foreign byte order")
        self.kinds = kinds
        self.fixed = [None if type(y) in kinds else y for y in every if type(y) in _NUMBERS]
        arithmetic = Arithmetic()
        symbols = [symbol(compute.spec_of(x)) for x in arrays]
        given = [x._data for x in symbols]
        remaining = iter(symbols)

        def known(y: Any) -> Any:
            if isinstance(y, TensorBase):
                return next(remaining)
            return arithmetic.scalar(kinds[type(y)](y)) if type(y) in kinds else y

        positional = list(map(known, args))
        named = {key: known(y) for key, y in kwargs.items()}
        with recording(executor=_record):
            y = function(*positional, **named)
        out = arrays[0]
        if (
            not isinstance(y, TensorBase)
            or y._data.dtype != out.dtype
            or y._data.shape != out.shape
        ):
            raise NotTraceable("a result that the tensor does not take as it is")
        program = program_of(given, [y._data])
        self.draw, program = _drawn_first(program, arrays)
        if len(program.nodes) > 1 and any(x.dtype in _NARROW for x in arrays):
            raise NotTraceable("several ops, each of which rounds its result")
        self.launcher, self.values = None, arithmetic.function(())
        if program.nodes:
            composite = Composite(program, arithmetic=arithmetic)
            self.launcher = composite.writer(arrays)
            self.values = arithmetic.function(composite.sources)

    def with_numbers(self, numbers: Sequence[Any]) -> Executable | None:
        """What launches it for these; None where they are, or decide on, another kernel."""
        given = []
        for y, fixed in zip(numbers, self.fixed, strict=True):
            if fixed is None:
                kind = self.kinds.get(type(y))
                if kind is None:
                    return None
                given.append(kind(y))
            elif type(y) is not type(fixed) or y != fixed or str(y) != str(fixed):
                return None
        values = self.values(*given)
        if values is None:
            return None
        found = None
        if self.launcher is not None:
            found = Executable(self.launcher.numbered(values), self, None, False)
        if self.draw is not None:
            return Executable(self.draw.run, self, None, False, None, default_generator, found)
        return found


def _drawn_first(program: Program, arrays: Sequence[Any]) -> tuple[Any, Program]:
    """What draws the random numbers over the first array with which the program begins, if it does,
    and the rest of the program, for which they are its input.
    """
    drawing = [node for node in program.nodes if node.op.library == "draws" and not node.inputs]
    if not drawing:
        return None, program
    if default_generator.twister is not None:
        raise NotTraceable("random numbers of PyTorch's generator")
    from ..backends.native.lowering import names
    from ..backends.native.random.draws import over

    [node, *others], [out, *more] = drawing, arrays
    if others or more or any(program.inputs[0] in each.inputs for each in program.nodes):
        raise NotTraceable("random numbers beside other values")
    if node.output.spec.shape != out.shape or node.output.spec.dtype.numpy != out.dtype:
        raise NotTraceable("random numbers that are converted")
    rest = [each for each in program.nodes if each is not node]
    return over(node.op, names, out), Program([node.output], rest, program.outputs)


def _find(owner: Any, name: str, function: Any, args: Any, kwargs: Any, given: Any) -> Executable:
    """What writes for arguments like these, made now if need be; it may be that nothing does."""
    numbers: list[Any] = []
    arrays: list[Any] = []
    key = signature(owner, given, MODE.get().grad, arrays, None, False, numbers)
    family = find(key)
    variants = Variants() if family is None else family.owner
    if family is None and numbers:
        keep_family(key, variants, lambda _, numbers: variants.find(numbers))

    def make() -> _Writer | str:
        reason = ""
        for kinds in _KINDS.get(arrays[0].dtype.kind, ({},)):
            try:
                return _Writer(function, args, kwargs, kinds, len(arrays))
            except Exception as error:
                if isinstance(error, MISTAKES):
                    explain(error, function, args, kwargs)
                reason = dispatch_log.reason_of(error, _find)
        return reason

    found = variants.find_or_make(numbers, make)
    reason = found if isinstance(found, str) else ""
    if dispatch_log.on:
        way = "a new array, copied" if reason else "kernel, in place"
        dispatch_log.said(dispatch_log.named(name, arrays), way, reason)
    return _NOTHING if reason else found


_NUMBERS = (int, float)
# Which numbers come with each call, by the kind of dtype that is written: the first that goes.
_FLOATS: tuple[dict[type, type], ...] = ({float: float, int: float}, {float: float}, {})
_KINDS = {"f": _FLOATS, "V": _FLOATS}  # V: bfloat16
_NOTHING = Executable(None, None, None, False)  # there is no kernel
