"""Plans: oneDNN primitives over the parts of arrays, which the pool's threads execute.

A plan is a list of phases, a phase a list of chunks, a chunk a list of steps; a step executes one
primitive. Chunks of one phase may run at once and in any order. A plan is built once for given
shapes and run with many arrays: each argument of a step says in which array (slot) its memory is,
and at which offset. A generated loop sets the addresses and executes the steps without the GIL.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from string import Template
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.errors import Unsupported
from . import api as onednn
from .api import Descriptor, Primitive

SHARED, SCRATCH = -2, -1  # slots: memory of the whole call; memory of the thread at work
_ALIGNMENT = 64

# NumPy's public C struct: the data pointer is the first field after the object's head.
_HEAD = object.__basicsize__

# words of a phase; a chunk's records are those from its start to the next chunk's
_STATUS, _FREE, _OBJECTS, _STRIDES, _HANDLES, _HANDLE_RECORDS, _STEPS, _STEP_RECORDS = range(8)
_HEAD_SIZE, _STREAMS, _CHUNKS, _SET_HANDLE, _EXECUTE, _SET_THREADS, _GET_THREADS, _WORDS = range(
    8, 16
)
# words of a context
_TARGETS, _PHASES, _PHASE_TABLE, _POOL_RUN, _POOL_STATE, _CONTEXT_WORDS = range(6)

_LOOP = Template("""
define i64 @word(ptr %base, i64 %index) alwaysinline {
  %at = getelementptr i64, ptr %base, i64 %index
  %value = load i64, ptr %at
  ret i64 %value
}
define ptr @pointer(ptr %base, i64 %index) alwaysinline {
  %value = call i64 @word(ptr %base, i64 %index)
  %result = inttoptr i64 %value to ptr
  ret ptr %result
}
; Chunks `begin` to `end` of a phase, by one worker: it claims a bit of the mask of free workers,
; which gives it scratch memory and a stream of its own, and runs oneDNN on its thread alone.
define void @chunks(i64 %begin, i64 %end, ptr %phase) {
entry:
  %mask_at = getelementptr i64, ptr %phase, i64 $FREE
  %handle_starts = call ptr @pointer(ptr %phase, i64 $HANDLES)
  %handles = call ptr @pointer(ptr %phase, i64 $HANDLE_RECORDS)
  %step_starts = call ptr @pointer(ptr %phase, i64 $STEPS)
  %steps = call ptr @pointer(ptr %phase, i64 $STEP_RECORDS)
  %objects = call ptr @pointer(ptr %phase, i64 $OBJECTS)
  %strides = call ptr @pointer(ptr %phase, i64 $STRIDES)
  %head = call i64 @word(ptr %phase, i64 $HEAD_SIZE)
  %streams = call ptr @pointer(ptr %phase, i64 $STREAMS)
  %set_handle = call ptr @pointer(ptr %phase, i64 $SET_HANDLE)
  %execute = call ptr @pointer(ptr %phase, i64 $EXECUTE)
  %set_threads = call ptr @pointer(ptr %phase, i64 $SET_THREADS)
  %get_threads = call ptr @pointer(ptr %phase, i64 $GET_THREADS)
  %parallel = icmp ne ptr %set_threads, null
  br label %claim
claim:
  %free = load atomic i64, ptr %mask_at monotonic, align 8
  %none = icmp eq i64 %free, 0
  br i1 %none, label %claim, label %take
take:
  %minus = sub i64 0, %free
  %bit = and i64 %free, %minus
  %rest = xor i64 %free, %bit
  %exchange = cmpxchg ptr %mask_at, i64 %free, i64 %rest acquire monotonic
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %claimed, label %claim
claimed:
  %worker = call i64 @llvm.cttz.i64(i64 %bit, i1 true)
  %stream = call i64 @word(ptr %streams, i64 %worker)
  br i1 %parallel, label %limit, label %chunk_head
limit:
  %before = call i32 %get_threads()
  call void %set_threads(i32 1)
  br label %chunk_head
chunk_head:
  %chunk = phi i64 [ %begin, %claimed ], [ %begin, %limit ], [ %next_chunk, %chunk_end ]
  %threads_before = phi i32 [ 0, %claimed ], [ %before, %limit ], [ %threads_before, %chunk_end ]
  %more_chunks = icmp slt i64 %chunk, %end
  br i1 %more_chunks, label %chunk_body, label %leave
chunk_body:
  %next_chunk = add i64 %chunk, 1
  %h_first = call i64 @word(ptr %handle_starts, i64 %chunk)
  %h_last = call i64 @word(ptr %handle_starts, i64 %next_chunk)
  br label %handle_head
handle_head:
  %h = phi i64 [ %h_first, %chunk_body ], [ %h_next, %handle_body ]
  %more_handles = icmp slt i64 %h, %h_last
  br i1 %more_handles, label %handle_body, label %step_start
handle_body:
  %h_index = mul i64 %h, 3
  %h_record = getelementptr i64, ptr %handles, i64 %h_index
  %memory = call i64 @word(ptr %h_record, i64 0)
  %slot = call i64 @word(ptr %h_record, i64 1)
  %offset = call i64 @word(ptr %h_record, i64 2)
  %object = call i64 @word(ptr %objects, i64 %slot)
  %field = add i64 %object, %head
  %field_at = inttoptr i64 %field to ptr
  %data = load i64, ptr %field_at
  %stride = call i64 @word(ptr %strides, i64 %slot)
  %own = mul i64 %stride, %worker
  %start = add i64 %data, %offset
  %address = add i64 %start, %own
  %set = call i32 %set_handle(i64 %memory, i64 %address)
  %h_next = add i64 %h, 1
  br label %handle_head
step_start:
  %s_first = call i64 @word(ptr %step_starts, i64 %chunk)
  %s_last = call i64 @word(ptr %step_starts, i64 %next_chunk)
  br label %step_head
step_head:
  %s = phi i64 [ %s_first, %step_start ], [ %s_next, %step_done ]
  %more_steps = icmp slt i64 %s, %s_last
  br i1 %more_steps, label %step_body, label %chunk_end
step_body:
  %s_index = mul i64 %s, 3
  %s_record = getelementptr i64, ptr %steps, i64 %s_index
  %primitive = call i64 @word(ptr %s_record, i64 0)
  %count = call i64 @word(ptr %s_record, i64 1)
  %arguments = call i64 @word(ptr %s_record, i64 2)
  %status = call i32 %execute(i64 %primitive, i64 %stream, i64 %count, i64 %arguments)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %failure, label %step_done
failure:
  %wide = zext i32 %status to i64
  %status_at = getelementptr i64, ptr %phase, i64 $STATUS
  store atomic i64 %wide, ptr %status_at monotonic, align 8
  br label %step_done
step_done:
  %s_next = add i64 %s, 1
  br label %step_head
chunk_end:
  br label %chunk_head
leave:
  br i1 %parallel, label %restore, label %release
restore:
  call void %set_threads(i32 %threads_before)
  br label %release
release:
  %returned = atomicrmw or ptr %mask_at, i64 %bit release
  ret void
}
declare i64 @llvm.cttz.i64(i64, i1)

declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; For Python: run(context, first phase, *arrays) -> status, without the GIL. The caller holds
; references to the arrays.
define ptr @run(ptr %own, ptr %args, i64 %count) {
entry:
  %context_object = load ptr, ptr %args
  %context = call ptr @PyLong_AsVoidPtr(ptr %context_object)
  %first_at = getelementptr ptr, ptr %args, i64 1
  %first_object = load ptr, ptr %first_at
  %first = call i64 @PyLong_AsLongLong(ptr %first_object)
  %targets = call ptr @pointer(ptr %context, i64 $TARGETS)
  %phase_count = call i64 @word(ptr %context, i64 $PHASES)
  %table = call ptr @pointer(ptr %context, i64 $PHASE_TABLE)
  %pool_run = call ptr @pointer(ptr %context, i64 $POOL_RUN)
  %pool_state = call ptr @pointer(ptr %context, i64 $POOL_STATE)
  br label %array_head
array_head:
  %i = phi i64 [ 2, %entry ], [ %i_next, %array_body ]
  %more_arrays = icmp slt i64 %i, %count
  br i1 %more_arrays, label %array_body, label %start
array_body:
  %array_at = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %array_at
  %slot = sub i64 %i, 2
  %target = getelementptr ptr, ptr %targets, i64 %slot
  store ptr %array, ptr %target
  %i_next = add i64 %i, 1
  br label %array_head
start:
  %thread = call ptr @PyEval_SaveThread()
  br label %phase_head
phase_head:
  %p = phi i64 [ %first, %start ], [ %p_next, %phase_done ]
  %more_phases = icmp slt i64 %p, %phase_count
  br i1 %more_phases, label %phase_body, label %end
phase_body:
  %phase = call ptr @pointer(ptr %table, i64 %p)
  %chunk_count = call i64 @word(ptr %phase, i64 $CHUNKS)
  %alone = icmp eq i64 %chunk_count, 1
  br i1 %alone, label %here, label %shared
here:
  call void @chunks(i64 0, i64 1, ptr %phase)
  br label %phase_done
shared:
  call void %pool_run(ptr %pool_state, ptr @chunks, ptr %phase, i64 %chunk_count)
  br label %phase_done
phase_done:
  %p_next = add i64 %p, 1
  %status_at = getelementptr i64, ptr %phase, i64 $STATUS
  %status = load i64, ptr %status_at
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %phase_head, label %failed
failed:
  store i64 0, ptr %status_at
  br label %end
end:
  %result = phi i64 [ 0, %phase_head ], [ %status, %failed ]
  call void @PyEval_RestoreThread(ptr %thread)
  %number = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %number
}
""")


@functools.cache
def _run() -> Any:
    """The generated `run`; None without llvmlite."""
    from ..runtime import machine_code

    names = {name[1:]: value for name, value in globals().items() if name[1:].isupper()}
    try:
        [address] = machine_code.load(_LOOP.substitute(names), ["run"])
    except Unsupported:
        return None
    return machine_code.builtin(address, "run", None)


@functools.cache
def _pool() -> Any:
    from ..runtime import pool

    return pool.default_pool()


def threads() -> int:
    """How many threads the pool has, the caller's among them."""
    return 1 if _run() is None else _pool().num_threads


class Argument(NamedTuple):
    """Where an argument of an execution is: `offset` bytes into the array of a slot."""

    memory: Descriptor
    slot: int
    offset: int = 0


class Step(NamedTuple):
    """One execution."""

    primitive: Primitive
    arguments: dict[int, Argument]


Phases = Sequence[Sequence[Sequence[Step]]]


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Work(threading.local):
    """Each thread's work memory, kept between calls up to a bound."""

    def __init__(self) -> None:
        self.array = np.empty(0, np.uint8)

    def get(self, size: int) -> Any:
        """An array of at least `size` bytes that begins on a cache line."""
        if self.array.size >= size:
            return self.array
        array = aligned_bytes(size)
        if size <= policy.WORKSPACE_BYTES:
            self.array = array
        return array


_work, _temporary = _Work(), _Work()


def temporary(size: int) -> Any:
    """At least `size` bytes whose content lasts until this thread asks again."""
    return _temporary.get(size)


def aligned_bytes(size: int) -> Any:
    """Uninitialised bytes that begin on a cache line."""
    array = np.empty(size + _ALIGNMENT, np.uint8)
    start = -array.ctypes.data % _ALIGNMENT
    return array[start : start + size]


class _Memory(onednn._Owned):
    destroy = "dnnl_memory_destroy"


class _Context:
    """What one call of a plan needs for itself: memory objects, and the words of the phases."""

    def __init__(self, plan: Plan) -> None:
        lib = onednn.library()
        self.what = plan.what
        self.streams: Any = ()
        self.memories: list[_Memory] = []
        self.kept: list[Any] = []
        slots = plan.slots + 2
        self.objects = (ctypes.c_int64 * slots)()
        self.strides = (ctypes.c_int64 * slots)()
        self.strides[slots - 1] = plan.scratch
        streams = [
            lib.make("dnnl_stream_create", plan.what, lib.engine, 1) for _ in range(plan.workers)
        ]
        self.streams = (ctypes.c_int64 * plan.workers)(*(s.value or 0 for s in streams))
        self.phases = [self._phase(plan, phase) for phase in plan.phases]
        table = (ctypes.c_int64 * len(self.phases))(*(ctypes.addressof(p[0]) for p in self.phases))
        words = (ctypes.c_int64 * _CONTEXT_WORDS)()
        words[_TARGETS], words[_PHASE_TABLE] = map(ctypes.addressof, (self.objects, table))
        words[_PHASES] = len(self.phases)
        if plan.parallel:
            words[_POOL_RUN], words[_POOL_STATE] = _pool().entry()
        self.kept += (table, words)
        self.address = ctypes.addressof(words)

    def __del__(self) -> None:
        dll = onednn.library().dll
        for stream in self.streams:
            dll.dnnl_stream_destroy(ctypes.c_void_p(stream))

    def _phase(self, plan: Plan, chunks: Sequence[Sequence[Step]]) -> tuple[Any, ...]:
        """The words; the records of handles and steps."""
        lib = onednn.library()
        handles: list[int] = []
        steps: list[int] = []
        handle_starts, step_starts = [0], [0]
        for chunk in chunks:
            for step in chunk:
                arguments = (onednn.ExecutionArgument * len(step.arguments))()
                for i, (number, place) in enumerate(step.arguments.items()):
                    memory = _Memory(
                        lib.make(
                            "dnnl_memory_create", plan.what, place.memory.handle, lib.engine, None
                        )
                    )
                    self.memories.append(memory)
                    value = memory.handle.value or 0
                    arguments[i].argument, arguments[i].memory = number, value
                    handles += (value, place.slot % (plan.slots + 2), place.offset)
                self.kept.append(arguments)
                steps += (
                    step.primitive.handle.value or 0,
                    len(arguments),
                    ctypes.addressof(arguments),
                )
            handle_starts.append(len(handles) // 3)
            step_starts.append(len(steps) // 3)
        tables = [
            (ctypes.c_int64 * len(t))(*t) for t in (handle_starts, handles, step_starts, steps)
        ]
        self.kept += tables
        words = (ctypes.c_int64 * _WORDS)()
        words[_FREE] = (1 << plan.workers) - 1
        words[_HANDLES : _STEP_RECORDS + 1] = [ctypes.addressof(t) for t in tables]
        words[_OBJECTS] = ctypes.addressof(self.objects)
        words[_STRIDES] = ctypes.addressof(self.strides)
        words[_STREAMS] = ctypes.addressof(self.streams)
        words[_HEAD_SIZE], words[_CHUNKS] = _HEAD, len(chunks)
        functions = [lib.dll.dnnl_memory_set_data_handle, lib.dll.dnnl_primitive_execute]
        functions += lib.threads or ()
        for word, function in zip(range(_SET_HANDLE, _WORDS), functions, strict=False):
            words[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return words, handles, steps

    def run_serially(self, arrays: Sequence[Any], first: int) -> None:
        """What the generated loop does, where nothing can be generated."""
        lib = onednn.library()
        bases = [onednn.address(array) for array in arrays]
        with onednn.single_threaded(lib):
            for _, handles, steps in self.phases[first:]:
                for i in range(0, len(handles), 3):
                    memory, slot, offset = handles[i : i + 3]
                    lib.dll.dnnl_memory_set_data_handle(memory, bases[slot] + offset)
                for i in range(0, len(steps), 3):
                    primitive, length, arguments = steps[i : i + 3]
                    status = lib.dll.dnnl_primitive_execute(
                        primitive, self.streams[0], length, arguments
                    )
                    lib.check(status, self.what)


class Plan:
    """Phases over `slots` arrays, with work memory: `shared` bytes a call, `scratch` a worker."""

    def __init__(
        self, what: str, phases: Phases, slots: int, shared: int = 0, scratch: int = 0
    ) -> None:
        pads = {
            id(step.primitive): step.primitive.optional(onednn.QUERY_SCRATCHPAD)
            for phase in phases
            for chunk in phase
            for step in chunk
        }
        shared, scratch = aligned(shared), aligned(scratch)
        self.what, self.slots = what, slots
        self.scratch = scratch + aligned(max((p.size for p in pads.values() if p), default=0))
        self.workers = min(max(map(len, phases)), threads() + 1, 63)
        self.work = shared + self.scratch * self.workers
        self.parallel = self.workers > 1 and _run() is not None
        self.phases = [
            [[_placed(step, pads[id(step.primitive)], shared, scratch) for step in c] for c in p]
            for p in phases
        ]
        self._free: list[_Context] = []

    def run(self, *arrays: Any, first: int = 0) -> None:
        """Execute the phases from `first` on; the arrays are the slots, in order."""
        try:
            context = self._free.pop()
        except IndexError:
            with onednn.single_threaded(onednn.library()):
                context = _Context(self)
        if self.work:
            work = _work.get(self.work)
            arrays = (*arrays, work, work)
        run = _run()
        if run is None:
            context.run_serially(arrays, first)
        else:
            if self.parallel:
                _pool().entry()  # hires workers where a fork or a change has left some missing
            status = run(context.address, first, *arrays)
            if status:
                onednn.library().check(status, self.what)
        self._free.append(context)


def _placed(step: Step, pad: Descriptor | None, shared: int, scratch: int) -> Step:
    """The step with its scratchpad, and scratch memory placed behind the shared."""
    arguments = {
        number: place._replace(offset=place.offset + shared) if place.slot == SCRATCH else place
        for number, place in step.arguments.items()
    }
    if pad is not None:
        arguments[onednn.SCRATCHPAD] = Argument(pad, SCRATCH, shared + scratch)
    return Step(step.primitive, arguments)


_plans: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()


def release_memory() -> None:
    """Give back all plans and this thread's work memory; they come back with the next calls."""
    _plans.clear()
    for work in (_work, _temporary):
        work.array = np.empty(0, np.uint8)


def planned(key: Hashable, build: Callable[..., Any], *arguments: Any) -> Any:
    """The plan of this key, build(*arguments) when first asked for; None where that is Unsupported.

    The plans used last are kept.
    """
    try:
        plan = _plans[key]
        _plans.move_to_end(key)
    except KeyError:
        there = onednn.unavailable() is None
        with onednn.single_threaded(onednn.library()) if there else contextlib.nullcontext():
            if key in _plans:  # another thread was quicker
                return _plans[key]
            try:
                plan = build(*arguments)
            except Unsupported:
                plan = None
            _plans[key] = plan
            while len(_plans) > policy.ONEDNN_PLANS:
                _plans.popitem(last=False)
    return plan
