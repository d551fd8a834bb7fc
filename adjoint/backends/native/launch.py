"""Calling a kernel at the cost of a C function: what a call needs is worked out once.

A launcher is a Python builtin for arrays of certain shapes, strides and dtypes. Its machine code
looks whether the arguments are such arrays, allocates the outputs through NumPy, runs the kernel
and returns them; for other arguments it returns None, and the caller asks in the general way.
Arguments that are no arrays are passed over: the caller knows that these numbers are the kernel's.
One function serves all kernels; what differs between them is in a record that the builtin owns.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from string import Template
from typing import Any, TypeAlias

import numpy as np

from ...compiler import Compiled
from ...compiler.run import Entry, Pair
from ...core.errors import Unsupported
from . import machine_code
from .pool import default_pool

__all__ = ["MOST", "Launcher", "View", "bare", "launcher", "rebased"]

Launcher: TypeAlias = Callable[..., Any]  # (*arrays) -> array, tuple of arrays, or None
View: TypeAlias = "tuple[int, int]"  # of which input, and how many bytes from its first element

_COUNTS = 10  # words of a record before the inputs
MOST = 16  # outputs of a kernel that is launched so
_HEADER = object.__basicsize__
_FIELDS = {  # of a NumPy array object, and of a bytes object; fixed by NumPy's and Python's ABI
    "type": _HEADER - 8,
    "data": _HEADER,
    "nd": _HEADER + 8,
    "dims": _HEADER + 16,
    "strides": _HEADER + 24,
    "descr": _HEADER + 40,
    "payload": bytes.__basicsize__ - 1,
}
_EMPTY = 184  # the place of PyArray_Empty in NumPy's table of C functions, fixed by its ABI

# The record, in words of 64 bits: counts of inputs, outputs, words before the pointers, words after
# them; the kernel, its chunks; the pool's run and state, or 0; 1 where the GIL is kept; how many
# arrays the kernel reads. For each input: dtype, number of dimensions, sizes, strides. For each
# output: dtype, number of dimensions, sizes. For each array that the kernel reads: the input that
# it is a view of, and how many bytes from its first element. Then the words. Behind them is one
# more, 0: code that sets it refuses the inputs, as if they were others.
_CODE = Template(r"""
@_Py_NoneStruct = external global i8
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @launch(ptr %own, ptr %args, i64 %count) {
entry:
  %results = alloca [$most x ptr]
  %arrays = alloca ptr, i64 %count
  %record = getelementptr i8, ptr %own, i64 $payload
  %inputs = load i64, ptr %record
  %outputs.at = getelementptr i64, ptr %record, i64 1
  %outputs = load i64, ptr %outputs.at
  %before.at = getelementptr i64, ptr %record, i64 2
  %before = load i64, ptr %before.at
  %after.at = getelementptr i64, ptr %record, i64 3
  %after = load i64, ptr %after.at
  %reads.at = getelementptr i64, ptr %record, i64 9
  %reads = load i64, ptr %reads.at
  %first = getelementptr i64, ptr %record, i64 10
  br label %args.head

args.head:  ; numbers among the arguments are known to the caller
  %arg = phi i64 [0, %entry], [%arg.next, %arg.done]
  %found = phi i64 [0, %entry], [%found.next, %arg.done]
  %arg.more = icmp ult i64 %arg, %count
  br i1 %arg.more, label %argument, label %args.over
argument:
  %arg.at = getelementptr ptr, ptr %args, i64 %arg
  %object = load ptr, ptr %arg.at
  %type.at = getelementptr i8, ptr %object, i64 $type
  %type = load ptr, ptr %type.at
  %is.array = icmp eq ptr %type, inttoptr (i64 $ndarray to ptr)
  br i1 %is.array, label %keep.array, label %arg.done
keep.array:
  %array.at = getelementptr ptr, ptr %arrays, i64 %found
  store ptr %object, ptr %array.at
  %found.more = add i64 %found, 1
  br label %arg.done
arg.done:
  %found.next = phi i64 [%found, %argument], [%found.more, %keep.array]
  %arg.next = add i64 %arg, 1
  br label %args.head
args.over:
  %as.many = icmp eq i64 %inputs, %found
  br i1 %as.many, label %inputs.head, label %other

inputs.head:
  %i = phi i64 [0, %args.over], [%i.next, %input.done]
  %at = phi ptr [%first, %args.over], [%at.next, %input.done]
  %i.more = icmp ult i64 %i, %inputs
  br i1 %i.more, label %array, label %allocate
array:
  %x.at = getelementptr ptr, ptr %arrays, i64 %i
  %x = load ptr, ptr %x.at
  %descr.at = getelementptr i8, ptr %x, i64 $descr
  %descr = load i64, ptr %descr.at
  %descr.wanted = load i64, ptr %at
  %descr.same = icmp eq i64 %descr, %descr.wanted
  %nd.at = getelementptr i8, ptr %x, i64 $nd
  %nd.short = load i32, ptr %nd.at
  %nd = zext i32 %nd.short to i64
  %nd.wanted.at = getelementptr i64, ptr %at, i64 1
  %nd.wanted = load i64, ptr %nd.wanted.at
  %nd.same = icmp eq i64 %nd, %nd.wanted
  %like = and i1 %descr.same, %nd.same
  br i1 %like, label %layout, label %other
layout:
  %dims.at = getelementptr i8, ptr %x, i64 $dims
  %dims = load ptr, ptr %dims.at
  %strides.at = getelementptr i8, ptr %x, i64 $strides
  %strides = load ptr, ptr %strides.at
  %dims.wanted = getelementptr i64, ptr %at, i64 2
  %strides.wanted = getelementptr i64, ptr %dims.wanted, i64 %nd
  br label %axis.head
axis.head:
  %j = phi i64 [0, %layout], [%j.next, %axis.done]
  %j.more = icmp ult i64 %j, %nd
  br i1 %j.more, label %axis, label %input.done
axis:
  %size.at = getelementptr i64, ptr %dims, i64 %j
  %size = load i64, ptr %size.at
  %size.wanted.at = getelementptr i64, ptr %dims.wanted, i64 %j
  %size.wanted = load i64, ptr %size.wanted.at
  %step.at = getelementptr i64, ptr %strides, i64 %j
  %step = load i64, ptr %step.at
  %step.wanted.at = getelementptr i64, ptr %strides.wanted, i64 %j
  %step.wanted = load i64, ptr %step.wanted.at
  %size.same = icmp eq i64 %size, %size.wanted
  %step.same = icmp eq i64 %step, %step.wanted
  %axis.same = and i1 %size.same, %step.same
  br i1 %axis.same, label %axis.done, label %other
axis.done:
  %j.next = add i64 %j, 1
  br label %axis.head
input.done:
  %at.next = getelementptr i64, ptr %strides.wanted, i64 %nd
  %i.next = add i64 %i, 1
  br label %inputs.head

allocate:
  br label %outputs.head
outputs.head:
  %o = phi i64 [0, %allocate], [%o.next, %output.done]
  %place = phi ptr [%at, %allocate], [%place.next, %output.done]
  %o.more = icmp ult i64 %o, %outputs
  br i1 %o.more, label %output, label %prepare
output:
  %y.descr = load ptr, ptr %place
  %y.nd.at = getelementptr i64, ptr %place, i64 1
  %y.nd = load i64, ptr %y.nd.at
  %y.nd.short = trunc i64 %y.nd to i32
  %y.dims = getelementptr i64, ptr %place, i64 2
  call void @Py_IncRef(ptr %y.descr)
  %y = call ptr inttoptr (i64 $empty to ptr)(i32 %y.nd.short, ptr %y.dims, ptr %y.descr, i32 0)
  %y.null = icmp eq ptr %y, null
  br i1 %y.null, label %undo, label %output.done
output.done:
  %y.at = getelementptr ptr, ptr %results, i64 %o
  store ptr %y, ptr %y.at
  %place.next = getelementptr i64, ptr %y.dims, i64 %y.nd
  %o.next = add i64 %o, 1
  br label %outputs.head
undo:  ; of a refusal, None; otherwise an exception is set
  %u = phi i64 [%o, %output], [%outputs, %several], [%outputs, %finish], [%u.next, %undo.one]
  %refused = phi i1 [false, %output], [false, %several], [true, %finish], [%refused, %undo.one]
  %u.more = icmp ugt i64 %u, 0
  br i1 %u.more, label %undo.one, label %undone
undo.one:
  %u.next = sub i64 %u, 1
  %u.at = getelementptr ptr, ptr %results, i64 %u.next
  %u.array = load ptr, ptr %u.at
  call void @Py_DecRef(ptr %u.array)
  br label %undo
undone:
  br i1 %refused, label %other, label %failed
failed:
  ret ptr null

prepare:
  %views.words = shl i64 %reads, 1
  %words.from = getelementptr i64, ptr %place, i64 %views.words
  %operands = add i64 %reads, %outputs
  %fixed = add i64 %before, %after
  %total = add i64 %operands, %fixed
  %with.status = add i64 %total, 1
  %words = alloca i64, i64 %with.status, align 64
  %status.at = getelementptr i64, ptr %words, i64 %total
  store i64 0, ptr %status.at
  %before.bytes = shl i64 %before, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %words, ptr align 8 %words.from,
                                   i64 %before.bytes, i1 0)
  %pointers = getelementptr i64, ptr %words, i64 %before
  br label %pointers.head
pointers.head:
  %k = phi i64 [0, %prepare], [%k.next, %address]
  %k.more = icmp ult i64 %k, %operands
  br i1 %k.more, label %pointer, label %rest
pointer:
  %k.is.view = icmp ult i64 %k, %reads
  br i1 %k.is.view, label %view, label %new
view:
  %view.number = shl i64 %k, 1
  %view.at = getelementptr i64, ptr %place, i64 %view.number
  %view.input = load i64, ptr %view.at
  %view.input.at = getelementptr ptr, ptr %arrays, i64 %view.input
  %view.offset.at = getelementptr i64, ptr %view.at, i64 1
  %view.offset = load i64, ptr %view.offset.at
  br label %address
new:
  %new.number = sub i64 %k, %reads
  %new.at = getelementptr ptr, ptr %results, i64 %new.number
  br label %address
address:
  %k.at = phi ptr [%view.input.at, %view], [%new.at, %new]
  %k.offset = phi i64 [%view.offset, %view], [0, %new]
  %operand = load ptr, ptr %k.at
  %data.at = getelementptr i8, ptr %operand, i64 $data
  %data.first = load i64, ptr %data.at
  %data = add i64 %data.first, %k.offset
  %k.to = getelementptr i64, ptr %pointers, i64 %k
  store i64 %data, ptr %k.to
  %k.next = add i64 %k, 1
  br label %pointers.head
rest:
  %after.from = getelementptr i64, ptr %words.from, i64 %before
  %after.to = getelementptr i64, ptr %pointers, i64 %operands
  %after.bytes = shl i64 %after, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %after.to, ptr align 8 %after.from,
                                   i64 %after.bytes, i1 0)
  %kernel.at = getelementptr i64, ptr %record, i64 4
  %kernel = load ptr, ptr %kernel.at
  %chunks.at = getelementptr i64, ptr %record, i64 5
  %chunks = load i64, ptr %chunks.at
  %run.at = getelementptr i64, ptr %record, i64 6
  %run = load ptr, ptr %run.at
  %state.at = getelementptr i64, ptr %record, i64 7
  %state = load ptr, ptr %state.at
  %keep.at = getelementptr i64, ptr %record, i64 8
  %keep = load i64, ptr %keep.at
  %kept = icmp ne i64 %keep, 0
  br i1 %kept, label %quick, label %long
quick:
  call void %kernel(i64 0, i64 %chunks, ptr %words)
  br label %finish
long:
  %thread = call ptr @PyEval_SaveThread()
  %serial = icmp eq ptr %run, null
  br i1 %serial, label %alone, label %together
alone:
  call void %kernel(i64 0, i64 %chunks, ptr %words)
  br label %over
together:
  call void %run(ptr %state, ptr %kernel, ptr %words, i64 %chunks)
  br label %over
over:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %finish

finish:
  %status = load i64, ptr %status.at
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %deliver, label %undo
deliver:
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %results
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %outputs)
  %tuple.null = icmp eq ptr %tuple, null
  br i1 %tuple.null, label %undo, label %items.head
items.head:
  %n = phi i64 [0, %several], [%n.next, %item]
  %n.more = icmp ult i64 %n, %outputs
  br i1 %n.more, label %item, label %whole
item:
  %n.at = getelementptr ptr, ptr %results, i64 %n
  %n.array = load ptr, ptr %n.at
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %n, ptr %n.array)
  %n.next = add i64 %n, 1
  br label %items.head
whole:
  ret ptr %tuple

other:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}
""")


@functools.cache
def _address() -> int:
    """Of the machine code."""
    if sys.maxsize < 1 << 62 or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Unsupported("launchers need 64 bits and the GIL")
    api = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(api, None)
    table = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint64))
    text = _CODE.substitute(_FIELDS, most=MOST, ndarray=id(np.ndarray), empty=table[_EMPTY])
    return machine_code.load(text, ["launch"])[0]


@functools.cache
def _dtype(dtype: np.dtype[Any]) -> int:
    """The address of a dtype object, which stays."""
    machine_code.keep(dtype)
    return id(dtype)


def launcher(
    compiled: Compiled,
    given: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
    *,
    arrays: Sequence[np.ndarray] | None = None,
    views: Sequence[View] | None = None,
    scalars: Sequence[float] = (),
    shape: Sequence[int] | None = None,
    parallel: bool = False,
    outs: Sequence[np.ndarray] | None = None,
) -> Launcher | None:
    """A launcher of `compiled` for arrays like `given`; None where there can be none.

    `shapes` are those of the outputs, which may have more or fewer dimensions of size 1 than the
    kernel's own. `arrays` are what the kernel gets: of each `views` says what it is a view of; else
    they are views of `given`, in order, from their first element on. `outs` are row-major outputs,
    where the kernel is to write such ones however its inputs lie.
    """
    arrays = given if arrays is None else arrays
    views = [(n, 0) for n in range(len(given))] if views is None else views
    entry = compiled.entry(arrays, shape, outs)
    if isinstance(entry, Pair):
        return _pair(entry, given, arrays, views, shapes, scalars, parallel)
    dtypes = [compiled.dtype(k) for k in range(len(shapes))]
    outputs = list(zip(shapes, dtypes, strict=True))
    return _single(entry, given, views, outputs, scalars, parallel)


def _single(
    entry: Entry,
    given: Sequence[np.ndarray],
    views: Sequence[View],
    outputs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    scalars: Sequence[float],
    parallel: bool,
) -> Launcher | None:
    if not entry.row_major or not 1 <= len(outputs) <= MOST:
        return None
    operands = len(views) + len(outputs)
    after = entry.pack(*[0] * operands, *scalars)[8 * operands :]
    chunks = entry.chunks
    return bare(
        entry.address, chunks, given, outputs, entry.head, after, parallel, entry.quick, views
    )


def bare(
    address: int,
    chunks: int,
    given: Sequence[np.ndarray],
    outputs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    before: bytes,
    after: bytes,
    parallel: bool,
    quick: bool,
    views: Sequence[View] | None = None,
) -> Launcher:
    """A launcher of machine code whose words are `before`, the addresses of the elements of `views`
    (None: the inputs) and of the outputs, `after`, and one in which it refuses the inputs.
    """
    views = [(n, 0) for n in range(len(given))] if views is None else views
    run, state = default_pool().entry() if parallel and chunks > 1 else (0, 0)
    words = [len(given), len(outputs), len(before) // 8, len(after) // 8]
    words += [address, chunks, run, state, int(quick), len(views)]
    words += _inputs(given)
    for shape, dtype in outputs:
        words += [_dtype(dtype), len(shape), *shape]
    words += _flat(views)
    record = struct.pack(f"={len(words)}q", *words) + before + after
    return machine_code.builtin(_address(), "launch", record)  # type: ignore[no-any-return]


def _inputs(given: Sequence[np.ndarray]) -> list[int]:
    """What a record says of inputs."""
    words = []
    for x in given:
        words += [_dtype(x.dtype), x.ndim, *x.shape, *x.strides]
    return words


def rebased(
    launch: Launcher, given: Sequence[np.ndarray], views: Sequence[View]
) -> Launcher | None:
    """The launcher that takes arrays like `given`, and gives `launch` these `views` of them; None
    where `launch` is no machine code, or takes views itself.
    """
    record = getattr(launch, "__self__", None)
    if type(record) is not bytes:
        return None
    words = list(struct.unpack(f"={len(record) // 8}q", record))
    inputs, outputs, reads = words[0], words[1], words[_COUNTS - 1]
    at = _COUNTS
    for _ in range(inputs):
        at += 2 + 2 * words[at + 1]
    rest = at
    for _ in range(outputs):
        at += 2 + words[at + 1]
    if reads != len(views) or words[at : at + 2 * reads] != _flat((n, 0) for n in range(reads)):
        return None
    words[at : at + 2 * reads] = _flat(views)
    words = [len(given), *words[1:_COUNTS], *_inputs(given), *words[rest:]]
    record = struct.pack(f"={len(words)}q", *words)
    return machine_code.builtin(_address(), "launch", record)  # type: ignore[no-any-return]


def _flat(views: Iterable[View]) -> list[int]:
    return [word for view in views for word in view]


def _pair(
    pair: Pair,
    given: Sequence[np.ndarray],
    arrays: Sequence[np.ndarray],
    views: Sequence[View],
    shapes: Sequence[tuple[int, ...]],
    scalars: Sequence[float],
    parallel: bool,
) -> Launcher | None:
    """Of a reduction in two steps."""
    parts = pair.first.allocate()
    outputs = [(x.shape, x.dtype) for x in parts]
    first = _single(pair.first, given, views, outputs, scalars, parallel)
    further = [views[k] for k in pair.positions]
    second = launcher(
        pair.second,
        [*parts, *(given[n] for n, _ in further)],
        shapes,
        arrays=[
            *(x.transpose(pair.order) for x in parts),
            *(arrays[k] for k in pair.positions),
        ],
        views=[
            *((k, 0) for k in range(len(parts))),
            *((k, offset) for k, (_, offset) in enumerate(further, len(parts))),
        ],
        scalars=(*scalars, *pair.sizes),
        parallel=parallel,
    )
    if first is None or second is None:
        return None
    several = len(parts) > 1

    def launch(*operands: Any) -> Any:
        found = first(*operands)
        if found is None:
            return None
        found = found if several else (found,)
        if further:
            arrays = [x for x in operands if type(x) is np.ndarray]
            found = (*found, *[arrays[n] for n, _ in further])
        return second(*found)

    return launch
