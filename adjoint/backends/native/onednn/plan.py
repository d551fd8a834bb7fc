"""Plans: oneDNN primitives over the parts of arrays, which the pool's threads execute.

A plan is a list of phases, a phase a list of chunks, a chunk a list of steps; a step executes one
primitive. Chunks of one phase may run at once and in any order. A plan is built once for given
shapes and run with many arrays: each argument of a step says in which array (slot) its memory is,
and at which offset. A generated loop sets the addresses and executes the steps without the GIL.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import dispatch_log, policy
from ....core.arrays import address, addresses, array_at, call
from ....core.errors import InvalidArgument, Unsupported
from ....core.sized_tables import SizedTable
from ...codegen.emit import Module, Reg
from ..runtime import signals
from ..runtime.launch_list import Launch
from ..runtime.shared_code import Writer, function
from . import api as onednn
from .api import Descriptor, Primitive

SHARED, SCRATCH = -2, -1  # slots: memory of the whole call; memory of the thread at work
_ALIGNMENT = 64

# words of a phase; a chunk's records are those from its start to the next chunk's
_STATUS, _FREE, _PLACES, _STRIDES, _HANDLES, _HANDLE_RECORDS, _STEPS, _STEP_RECORDS = range(8)
_STREAMS, _CHUNKS, _SET_HANDLE, _EXECUTE, _SET_THREADS, _GET_THREADS, _WORDS = range(8, 15)
# words of a context; those of a call: context, first phase, how many arrays, their addresses, and
# the status of what failed
_TARGETS, _PHASES, _PHASE_TABLE, _POOL_RUN, _POOL_STATE, _RESULT, _CONTEXT_WORDS = range(7)


def _word(b: Writer, base: Reg, index: Reg | int) -> Reg:
    return b.get(b.place("i64", base, index, "i64"))


def _pointers(b: Writer, base: Reg, *indices: Reg | int) -> list[Reg]:
    return [b.get(b.place("ptr", base, index, "i64")) for index in indices]


def _write_chunks(module: Module) -> None:
    """Chunks `begin` to `end` of a phase, by one worker: it claims a bit of the mask of free
    workers, which gives it scratch memory and a stream of its own, and runs oneDNN on its thread
    alone, where no signal interrupts it.
    """
    header = "void @chunks(i64 %begin, i64 %end, ptr %phase)"
    with function(module, header) as (b, begin, end, phase):
        places, strides, handle_starts, handles, step_starts, steps, streams = _pointers(
            b, phase, _PLACES, _STRIDES, _HANDLES, _HANDLE_RECORDS, _STEPS, _STEP_RECORDS, _STREAMS
        )
        set_handle, execute, set_threads, get_threads = _pointers(
            b, phase, _SET_HANDLE, _EXECUTE, _SET_THREADS, _GET_THREADS
        )
        parallel, before = b.compare("ne", set_threads, 0), b.alloca("i32", 0, 0)
        mask, mine = b.place("i64", phase, _FREE, "i64"), b.alloca("i64")
        with b.forever() as (claim, claimed):
            free = b.read(mask)
            with b.when(b.compare("eq", free, 0)):
                b.go(claim)
            b.put(mine, free & -free)
            with b.when(b.replace(mask, free, free ^ b.get(mine), "acquire monotonic")):
                b.go(claimed)
        worker = b.invoke("i64", "llvm.cttz.i64", b.get(mine), b.const("i1", 1))
        stream = _word(b, streams, worker)
        with b.when(parallel):
            b.put(before, b.invoke("i32", get_threads))
            b.invoke("void", set_threads, b.const("i32", 1))
        unblocked = signals.block(b)
        with b.loop(begin, end) as chunk:
            with b.loop(*(_word(b, handle_starts, at) for at in (chunk, chunk + 1))) as h:
                memory, slot, offset = (_word(b, handles, h * 3 + k) for k in range(3))
                place = _word(b, places, slot) + offset + _word(b, strides, slot) * worker
                b.invoke("i32", set_handle, memory, place)
            with b.loop(*(_word(b, step_starts, at) for at in (chunk, chunk + 1))) as s:
                primitive, count, arguments = (_word(b, steps, s * 3 + k) for k in range(3))
                status = b.invoke("i32", execute, primitive, stream, count, arguments)
                with b.when(b.compare("ne", status, 0)):
                    failed = b.place("i64", phase, _STATUS, "i64")
                    b.write(failed, b.convert("zext", status, "i64"))
        signals.restore(b, unblocked)
        with b.when(parallel):
            b.invoke("void", set_threads, b.get(before))
        b.update("or", mask, b.get(mine), "release")


def _write_run(module: Module) -> None:
    """A call: all phases from the first on, one after another."""
    with function(module, "void @run(i64 %from, i64 %to, ptr %words)") as (b, _, _, words):
        [context] = _pointers(b, words, 0)
        targets, table, pool_run, pool_state = _pointers(
            b, context, _TARGETS, _PHASE_TABLE, _POOL_RUN, _POOL_STATE
        )
        with b.loop(0, _word(b, words, 2)) as i:
            b.put(b.place("i64", targets, i, "i64"), _word(b, words, i + 3))
        result, end = b.alloca("i64", 0, 0), b.label()
        with b.loop(_word(b, words, 1), _word(b, context, _PHASES)) as p:
            [phase] = _pointers(b, table, p)
            count = _word(b, phase, _CHUNKS)
            alone = b.compare("eq", count, 1)
            with b.when(alone):
                b.invoke("void", "chunks", b.const("i64", 0), b.const("i64", 1), phase)
            with b.when(~alone):
                chunks = Reg(b, "ptr", 0, "@chunks")
                b.invoke("void", pool_run, pool_state, chunks, phase, count)
            status = b.place("i64", phase, _STATUS, "i64")
            failed = b.get(status)
            with b.when(b.compare("ne", failed, 0)):
                b.put(status, 0)
                b.put(result, failed)
                b.go(end)
        b.start(end)
        b.put(b.place("i64", context, _RESULT, "i64"), b.get(result))
        b.put(b.place("i64", words, _word(b, words, 2) + 3, "i64"), b.get(result))


@functools.cache
def _run() -> int | None:
    """The address of the generated `run`; None without llvmlite."""
    from ..runtime import object_code

    try:
        [address] = object_code.library(__name__, _text, ["run"])
    except Unsupported:
        return None
    return address


def _text() -> str:
    module = Module()
    module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
    signals.add_functions(module)
    _write_chunks(module)
    _write_run(module)
    return str(module)


@functools.cache
def _pool() -> Any:
    from ..runtime import pool

    return pool.default_pool()


def threads() -> int:
    """Number of threads in the pool, the caller's among them."""
    return 1 if _run() is None else _pool().num_threads


class PlanArgument(NamedTuple):
    """Location of an argument of an execution: `offset` bytes into the array of a slot."""

    memory: Descriptor
    slot: int
    offset: int = 0


class PrimitiveStep(NamedTuple):
    """One execution of a primitive, with its arguments."""

    primitive: Primitive
    arguments: dict[int, PlanArgument]


# Bytes of machine code and state, measured over 700 plans of random sizes: a primitive takes 40 KiB
# (products by "brg" 160), a step of a plan 8. That is a plan's size within a factor of two.
_PRIMITIVE_BYTES, _BRG_BYTES, _STEP_BYTES, _PLAN_BYTES = 40 << 10, 160 << 10, 8 << 10, 4 << 10
# Implementations, by the beginnings of their names, which are given all memory that they use.
_TAKE_NONE = ("jit", "brg", "simple")
Phases = Sequence[Sequence[Sequence[PrimitiveStep]]]


def aligned(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Work(threading.local):
    """Work memory of each thread, kept between calls up to a bound."""

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
    """Memory of at least `size` bytes whose content lasts until this thread asks again."""
    return _temporary.get(size)


def aligned_bytes(size: int) -> Any:
    """Uninitialised bytes that begin on a cache line."""
    array = np.empty(size + _ALIGNMENT, np.uint8)
    start = -array.ctypes.data % _ALIGNMENT
    return array[start : start + size]


class _Memory(onednn._Owned):
    destroy = "dnnl_memory_destroy"


class _Context:
    """State of one call of a plan: memory objects, and the words of the phases."""

    def __init__(self, plan: OneDnnPlan) -> None:
        lib = onednn.library()
        self.what = plan.what
        self.streams: Any = ()
        self.memories: list[_Memory] = []
        self.kept: list[Any] = []
        slots = plan.slots + 2
        self.places = (ctypes.c_int64 * slots)()
        self.strides = (ctypes.c_int64 * slots)()
        self.strides[slots - 1] = plan.scratch
        streams = [
            lib.make("dnnl_stream_create", plan.what, lib.engine, 1) for _ in range(plan.workers)
        ]
        self.streams = (ctypes.c_int64 * plan.workers)(*(s.value or 0 for s in streams))
        self.phases = [self._phase(plan, phase) for phase in plan.phases]
        table = (ctypes.c_int64 * len(self.phases))(*(ctypes.addressof(p[0]) for p in self.phases))
        words = (ctypes.c_int64 * _CONTEXT_WORDS)()
        words[_TARGETS], words[_PHASE_TABLE] = map(ctypes.addressof, (self.places, table))
        words[_PHASES] = len(self.phases)
        if plan.parallel:
            words[_POOL_RUN], words[_POOL_STATE] = _pool().entry()
        self.kept.append(table)
        self.words = words
        place, count = ctypes.addressof(words), slots if plan.work else plan.slots
        self.heads = [struct.pack("3q", place, first, count) for first in range(len(self.phases))]

    def __del__(self) -> None:
        dll = onednn.library().dll
        for stream in self.streams:
            dll.dnnl_stream_destroy(ctypes.c_void_p(stream))

    def _phase(
        self, plan: OneDnnPlan, chunks: Sequence[Sequence[PrimitiveStep]]
    ) -> tuple[Any, ...]:
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
        words[_PLACES] = ctypes.addressof(self.places)
        words[_STRIDES] = ctypes.addressof(self.strides)
        words[_STREAMS] = ctypes.addressof(self.streams)
        words[_CHUNKS] = len(chunks)
        functions = [lib.dll.dnnl_memory_set_data_handle, lib.dll.dnnl_primitive_execute]
        functions += lib.threads or ()
        for word, each in zip(range(_SET_HANDLE, _WORDS), functions, strict=False):
            words[word] = ctypes.cast(each, ctypes.c_void_p).value or 0
        return words, handles, steps

    def run_serially(self, arrays: Sequence[Any], first: int) -> None:
        """Runs the phases one after another from Python, where no loop can be generated."""
        lib = onednn.library()
        bases = list(map(address, arrays))
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


class OneDnnPlan:
    """Phases over `slots` arrays, with work memory: `shared` bytes a call, `scratch` a worker."""

    def __init__(
        self, what: object, phases: Phases, slots: int, shared: int = 0, scratch: int = 0
    ) -> None:
        pads = {
            id(step.primitive): step.primitive.optional(onednn.QUERY_SCRATCHPAD)
            for phase in phases
            for chunk in phase
            for step in chunk
        }
        self.nbytes = _plan_bytes(phases)
        shared, scratch = aligned(shared), aligned(scratch)
        self.what, self.slots = what, slots
        self.scratch = scratch + aligned(max((p.size for p in pads.values() if p), default=0))
        self.workers = min(max(map(len, phases)), threads() + 1, 63)
        self.work = shared + self.scratch * self.workers
        # Whether the library may find no memory: its products of whole matrices take some.
        self.fails = not all(
            step.primitive.implementation.startswith(_TAKE_NONE)
            for phase in phases for chunk in phase for step in chunk
        )  # fmt: skip
        self.parallel = self.workers > 1 and _run() is not None and _pool().entry() is not None
        self.phases = [
            [[_placed(step, pads[id(step.primitive)], shared, scratch) for step in c] for c in p]
            for p in phases
        ]
        self._free: list[_Context] = []

    def run(self, *arrays: Any, first: int = 0) -> None:
        """Execute the phases from `first` on; the arrays are the slots, in order."""
        if len(arrays) != self.slots:
            raise InvalidArgument(f"{self.what}: {len(arrays)} arrays for {self.slots} slots")
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
            call(run, 1, context.heads[first] + addresses(arrays) + bytes(8), None, False)
            status = context.words[_RESULT]
            if status:
                onednn.library().check(status, self.what)
        self._free.append(context)

    def call(
        self, *arrays: Any, work: Any, instead: Callable[..., object] | None = None
    ) -> Launch | None:
        """A reusable call for arrays that keep their addresses, as machine code with memory objects
        of its own; None where nothing can be generated. `work`: at least `self.work` bytes, which
        begin on a cache line and are nobody else's while it runs; `instead` computes the same of
        such arrays, with no memory of its own, where the library finds none: no error comes then.
        """
        run = _run()
        if run is None:
            return None
        if len(arrays) != self.slots:
            raise InvalidArgument(f"{self.what}: {len(arrays)} arrays for {self.slots} slots")
        with onednn.single_threaded(onednn.library()):
            context = _Context(self)
        places = (*arrays, work, work) if self.work else arrays
        head = context.heads[0]
        first = len(head) // 8
        like = [(x.shape, x.dtype, x.strides) for x in arrays]

        def otherwise() -> None:
            status = context.words[_RESULT]
            if instead is None:
                onednn.library().check(status, self.what)
            else:
                word = onednn.library().word(status)
                dispatch_log.said(str(self.what), "computed by NumPy", f"oneDNN says {word}")
                places = zip(context.places, like, strict=False)
                instead(*(array_at(place, *each) for place, each in places))

        return Launch(
            run, 1, head + addresses(places) + bytes(8), range(first, first + len(places)), False,
            False, (self, context, work), otherwise, shows=False,
            fails=self.fails and instead is None, hires=self.parallel,
        )  # fmt: skip


def _plan_bytes(phases: Phases) -> int:
    """About how many bytes a plan takes: oneDNN tells it of none of its objects."""
    steps = [step for phase in phases for chunk in phase for step in chunk]
    primitives = {id(step.primitive): step.primitive for step in steps}.values()
    each = [
        _BRG_BYTES if primitive.implementation.startswith("brg") else _PRIMITIVE_BYTES
        for primitive in primitives
    ]
    return _PLAN_BYTES + sum(each) + _STEP_BYTES * len(steps)


def _placed(
    step: PrimitiveStep, pad: Descriptor | None, shared: int, scratch: int
) -> PrimitiveStep:
    """The step with its scratchpad, and scratch memory placed behind the shared."""
    arguments = {
        number: place._replace(offset=place.offset + shared) if place.slot == SCRATCH else place
        for number, place in step.arguments.items()
    }
    if pad is not None:
        arguments[onednn.SCRATCHPAD] = PlanArgument(pad, SCRATCH, shared + scratch)
    return PrimitiveStep(step.primitive, arguments)


def bytes_of(plan: Any) -> int:
    """About how many bytes what was planned takes, alone or with what belongs to it."""
    each = plan if isinstance(plan, tuple) else (plan,)
    return sum((x.nbytes for x in each if isinstance(x, OneDnnPlan)), _PLAN_BYTES)


def _weigh(kept: tuple[Any]) -> int:
    return bytes_of(kept[0])


_plans = SizedTable("plans of oneDNN", _weigh)


def release_memory() -> None:
    """Give back all plans and this thread's work memory; they come back with the next calls."""
    _plans.clear()
    for work in (_work, _temporary):
        work.array = np.empty(0, np.uint8)


def planned(key: Hashable, build: Callable[..., Any], *arguments: Any) -> Any:
    """The plan of this key, build(*arguments) when first asked for; None where that is Unsupported.

    Plans are kept in the budget of all that is kept by size.
    """
    kept = _plans.find(key)
    if kept is None:
        there = onednn.unavailable() is None
        with onednn.single_threaded(onednn.library()) if there else contextlib.nullcontext():
            kept = _plans.find(key)  # another thread may have been quicker
            if kept is None:
                try:
                    kept = (build(*arguments),)
                except Unsupported:
                    kept = (None,)
                _plans.put(key, kept)
    return kept[0]
