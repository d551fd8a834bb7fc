"""In-place methods of large arrays as kernels, which write where the result shall be.

A method's function is run once on symbols, for its arguments' shapes, strides and dtypes: what it
records becomes one kernel. Floats among the arguments are symbols too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import native
from ..core import dispatch_log, policy
from ..core.dtype import LOW_PRECISION
from ..core.errors import NotTraceable
from ..core.handle import Handle
from ..core.mode import MODE
from ..core.op import Op
from ..core.scalar import Arithmetic
from ..eager.tensors import INFERENCE
from ..eager.writes import assert_writable, rebase
from ..ops.random.random import Generator
from ..program import compute
from ..program.capture import program_of, recording, symbol
from ..program.program import Program, Value
from ..program.program import make as make_node
from .recording import execute_lazily

ndarray = np.ndarray


def _record(op: Op, inputs: tuple[Any, ...]) -> Any:
    return execute_lazily(op, inputs)


vars(_record)["generator"] = Generator()  # a method that draws does not count while it is captured
_NARROW = frozenset(d.numpy for d in LOW_PRECISION)
_BY_NUMPY = frozenset(("add_", "sub_", "mul_", "div_"))  # as fast on one thread, if all is plain
_MEMBERS = (int, bool, str, type(None))  # arguments that are part of the kernel
_writers: dict[Any, list[Any] | str] = {}  # or the reason why there is no kernel


def write_by_kernel(
    x: Any, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Write `function(x, *args, **kwargs)` over `x` by one kernel, where nothing is recorded and
    there is one; otherwise, also where an error is due, do nothing and return False.
    """
    data = x._data
    mode = MODE.get()
    if type(data) is not ndarray or not mode.plain or compute.accelerate is None:
        return False
    if x._version is INFERENCE or (mode.grad and _has_history(x)):
        return False
    if name in _BY_NUMPY and not kwargs and not _has_threads():
        return False
    arrays, numbers = [data], []
    key: list[Any] = [name, data.shape, data.strides, data.dtype]
    for y in (*args, *kwargs.values()):
        if isinstance(y, Handle):
            other = y._data
            if type(other) is not ndarray or (mode.grad and y._node is not None):
                return False
            arrays.append(other)
            key += (other.shape, other.strides, other.dtype)
        elif type(y) is float:
            numbers.append(y)
            key.append(float)
        elif type(y) in _MEMBERS:
            key += (type(y), y)
        else:
            return False
    key += kwargs
    if not data.flags.writeable:
        return False

    def make() -> Any:
        return _writer_of(function, arrays, args, kwargs)

    return _run(tuple(key), arrays, numbers, make, x, name)


def _has_history(x: Any) -> bool:
    view = x._view
    return x._node is not None or (view is not None and view.base._node is not None)


def written_by_op(op: Op, arrays: Sequence[Any]) -> bool:
    """Write `op(*arrays)` over the first array, which is large, by the threads of a kernel."""
    if compute.accelerate is None or not _has_threads():
        return False
    key: list[Any] = [op]
    for x in arrays:
        key += (x.shape, x.strides, x.dtype) if type(x) is ndarray else (type(x),)
    given = [x for x in arrays if type(x) is ndarray]
    numbers = [x for x in arrays if type(x) is float]
    if len(given) + len(numbers) != len(arrays):
        return False

    def make() -> Any:
        from ..backends.native.lowering.writing import Writer

        arithmetic = Arithmetic()
        args = [
            Value(compute.spec_of(x)) if type(x) is ndarray else arithmetic.scalar(x)
            for x in arrays
        ]
        node = make_node(op, *args)
        return Writer(given, Program(node.values, [node], node.outputs), arithmetic)

    return _run(tuple(key), given, numbers, make)


def _has_threads() -> bool:
    if not native.load():
        return False
    from ..backends.native.lowering.writing import has_threads

    return has_threads()


def _run(
    key: Any,
    arrays: Sequence[Any],
    numbers: Sequence[float],
    make: Callable[[], Any],
    x: Any = None,
    name: str = "",
) -> bool:
    """Let a kernel of `key` write, one that is made now if need be; `x` is then seen to have been
    changed by `name`.
    """
    writers = _writers.get(key)
    if isinstance(writers, str):
        return False
    if writers is None:
        if len(_writers) >= policy.WRITERS:
            _writers.clear()
        writers = _writers[key] = []
    if x is not None:
        assert_writable(x, name)
    for writer in writers:
        if writer(arrays, numbers):
            break
    else:
        writer = _made(make) if len(writers) < policy.VARIANTS else "numbers that decide too much"
        if not isinstance(writer, str) and not writer(arrays, numbers):
            writer = "numbers of which it has no value"
        if dispatch_log.on:
            what = dispatch_log.named(name or f"write of {key[0].name}", arrays)
            way = "a new array, copied" if isinstance(writer, str) else "kernel, in place"
            dispatch_log.said(what, way, writer if isinstance(writer, str) else "")
        if isinstance(writer, str):
            _writers[key] = writer
            return False
        writers.insert(0, writer)
    if x is not None:
        rebase(x, None, name)
    return True


def _made(make: Callable[[], Any]) -> Any:
    """What `make` gives; the reason, where there is no kernel."""
    if not native.load():
        return "the native backend is off"
    try:
        return make()
    except Exception as error:
        return dispatch_log.reason_of(error, _made)


def _writer_of(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The kernel of a function of the first array and these arguments."""
    from ..backends.native.lowering.writing import Writer

    arithmetic = Arithmetic()
    symbols = [symbol(compute.spec_of(x)) for x in arrays]
    tensors = iter(symbols[1:])

    def known(y: Any) -> Any:
        if isinstance(y, Handle):
            return next(tensors)
        return arithmetic.scalar(y) if type(y) is float else y

    given = [x._data for x in symbols]
    positional = list(map(known, args))
    named = {key: known(y) for key, y in kwargs.items()}
    with recording(executor=_record):
        y = function(symbols[0], *positional, **named)
    out = arrays[0]
    if not isinstance(y, Handle) or y._data.dtype != out.dtype or y._data.shape != out.shape:
        raise NotTraceable("a result that the tensor does not take as it is")
    program = program_of(given, [y._data])
    if len(program.nodes) > 1 and any(x.dtype in _NARROW for x in arrays):
        raise NotTraceable("several ops, each of which rounds its result")
    return Writer(arrays, program, arithmetic)
