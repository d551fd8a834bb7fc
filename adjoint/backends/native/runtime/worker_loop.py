"""The thread pool's machine code: how a loop is published, joined, shared out and ended.

`docs/threads.md` says why this is right; the comments in the code say which line does what for it.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import NamedTuple

from ....core.errors import Unsupported
from ...codegen.emit import Module, Reg
from . import object_code, signals
from .shared_code import Writer, function

MAX_THREADS = 256


class Share(ctypes.Structure):
    """One thread's part of the open loop, alone on its pair of cache lines."""

    _fields_ = (
        ("next", ctypes.c_int64),  # the first chunk that nobody has claimed; may pass `end`
        ("end", ctypes.c_int64),
        ("_apart", ctypes.c_int64 * 14),
    )


class WorkerLoopState(ctypes.Structure):
    """State that all threads share; zero is a pool without workers. Fields apart never share a
    line.
    """

    _fields_ = (
        # The loop. `gate`: bits 0-11 how many workers are inside, 12 the caller sleeps until they
        # have left, 13 open, 16-31 number of shares, 32-63 the loop's number. The rest is written
        # only while the gate is closed with nobody inside, and read only by the caller and by
        # those inside.
        ("gate", ctypes.c_int64),
        ("kernel", ctypes.c_int64),
        ("args", ctypes.c_int64),
        ("shares", ctypes.c_int64),
        ("step", ctypes.c_int64),  # chunks per claim
        ("_apart1", ctypes.c_int64 * 11),
        ("busy", ctypes.c_int32),  # 1 while a caller owns the loop
        ("_apart2", ctypes.c_int32 * 31),
        ("sleepers", ctypes.c_int64),  # bit i % 64: worker i sleeps, or is about to
        ("bell", ctypes.c_int32),  # changes whenever sleepers are woken: what they sleep on
        ("_apart3", ctypes.c_int32 * 29),
        ("threads", ctypes.c_int32),  # workers 1 to threads - 1 stay; others leave
        ("_pad", ctypes.c_int32),
        ("spin", ctypes.c_int64),  # nanoseconds that a worker looks out for a loop before it sleeps
        ("_apart4", ctypes.c_int64 * 14),
        ("share", Share * MAX_THREADS),
    )


class WorkerLoopCode(NamedTuple):
    """Addresses of the functions: their types in C."""

    run: int  # void (State *, void kernel(int64, int64, void *), void *args, int64 n_chunks)
    work: int  # void (State *, int64 index): returns when `threads` says that it shall leave
    ring: int  # void (State *): wakes all sleepers


class _Machine(NamedTuple):
    pause: str  # an intrinsic, and its arguments
    arguments: tuple[int, ...]
    futex: int  # number of the system call


_MACHINES = {
    "x86_64": _Machine("llvm.x86.sse2.pause", (), 202),
    "aarch64": _Machine("llvm.aarch64.isb", (15,), 98),
}

_INSIDE = 0xFFF
_WAITING = 1 << 12
_OPEN = 1 << 13
_FUTEX_PRIVATE = 128
_WAIT, _WAKE = 9 | _FUTEX_PRIVATE, 10 | _FUTEX_PRIVATE  # FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET


def _field(b: Writer, state: Reg, name: str, elem: str = "i64") -> Reg:
    return b.place(elem, state, getattr(WorkerLoopState, name).offset)


def _share(b: Writer, state: Reg, index: Reg) -> tuple[Reg, Reg]:
    """The first chunk of a share that nobody has claimed, and its end."""
    share = b.at(state, index * ctypes.sizeof(Share) + WorkerLoopState.share.offset)
    return b.place("i64", share, Share.next.offset), b.place("i64", share, Share.end.offset)


class _WorkerLoopWriter:
    """Writes the functions for a machine; times in nanoseconds."""

    def __init__(self, machine: _Machine, yield_after: int, wait_spin: int) -> None:
        self.machine, self.yield_after, self.wait_spin = machine, yield_after, wait_spin
        self.module = Module()
        self.module.declare(machine.pause, "void", ["i32"] * len(machine.arguments))
        self.module.declare("syscall", "i64", ["i64", "..."])
        self.module.declare("clock_gettime", "i32", ["i32", "ptr"])
        self.module.declare("sched_yield", "i32", [])
        signals.add_functions(self.module)

    # ---- the system ----------------------------------------------------------------------------

    def pause(self, b: Writer) -> None:
        b.invoke("void", self.machine.pause, *(b.const("i32", x) for x in self.machine.arguments))

    def write_now(self) -> None:
        """Nanoseconds of CLOCK_MONOTONIC."""
        with function(self.module, "internal i64 @now()") as (b,):
            time = b.address(b.alloca("[2 x i64]"))
            b.invoke("i32", "clock_gettime", b.const("i32", 1), time)
            seconds, rest = (b.get(b.place("i64", time, offset)) for offset in (0, 8))
            b.ret(seconds * 1_000_000_000 + rest)

    def futex(self, b: Writer, word: Reg, how: int, value: Reg, bits: Reg) -> None:
        number, null = b.const("i64", self.machine.futex), b.const("ptr", 0)
        arguments = b.address(word), b.const("i32", how), value, null, null, bits
        b.invoke("i64 (i64, ...)", "syscall", number, *arguments)

    def sleep(self, b: Writer, word: Reg, value: Reg, bits: Reg) -> None:
        """Sleeps until woken with a bit in common, unless `word` is not `value` any more."""
        self.futex(b, word, _WAIT, value, bits)

    def wake(self, b: Writer, word: Reg, bits: Reg) -> None:
        self.futex(b, word, _WAKE, b.const("i32", 2**31 - 1), bits)

    def ring(self, b: Writer, state: Reg, who: Reg) -> None:
        """Wakes the sleepers among `who`: bit i % 64 for worker i."""
        bell = _field(b, state, "bell", "i32")
        b.update("add", bell, 1, "seq_cst")
        self.wake(b, bell, b.convert("trunc", who | b.binary("lshr", who, 32), "i32"))

    def write_ring(self) -> None:
        with function(self.module, "void @ring(ptr %state)") as (b, state):
            self.ring(b, state, b.const("i64", -1))

    # ---- a worker ------------------------------------------------------------------------------

    def write_take_chunks(self) -> None:
        """Runs chunks of the open loop: those of share `me`, then what is left of each other share.
        When it returns, every chunk has been claimed. Only for the caller and for workers inside.
        """
        header = "internal void @take_chunks(ptr %state, i64 %me)"
        with function(self.module, header) as (b, state, me):
            kernel, args = (b.get(_field(b, state, name, "ptr")) for name in ("kernel", "args"))
            shares, step = (b.get(_field(b, state, name)) for name in ("shares", "step"))
            with b.counting(shares) as (turn, _):
                place = me + turn
                over = b.compare("ge", place, shares, unsigned=True)
                first, end_at = _share(b, state, b.select(over, place - shares, place))
                end = b.get(end_at)
                with b.forever() as (_, exhausted):
                    with b.when(b.read(first) >= end):  # a look does not take the line away
                        b.go(exhausted)
                    begin = b.update("add", first, step)
                    with b.when(begin >= end):
                        b.go(exhausted)
                    b.invoke("void", kernel, begin, b.intrinsic("smin", begin + step, end), args)

    def for_me(self, b: Writer, gate: Reg, me: Reg, last: Reg) -> Reg:
        """Whether the gate is open, of a loop in which `me` has a share and in which it was not."""
        is_open = b.compare("ne", gate & _OPEN, 0)
        is_new = b.compare("ne", b.binary("lshr", gate, 32), b.get(last))
        shares = b.binary("lshr", gate, 16) & 0xFFFF
        return is_open & is_new & b.compare("lt", me, shares, unsigned=True)

    def write_work(self) -> None:
        with function(self.module, "void @work(ptr %state, i64 %me)") as (b, state, me):
            unblocked = signals.block(b)
            born = b.invoke("i64", "now")
            last = b.alloca("i64", 0, -1)  # number of the loop that this worker was in last
            yielded = b.alloca("i64", 0, born)  # when this worker last offered its core
            idle = b.alloca("i64", 0, born)  # when it last left a loop or woke
            looks = b.alloca("i64", 0, 0)
            gate, threads = _field(b, state, "gate"), _field(b, state, "threads", "i32")

            def leaves(order: str) -> Reg:
                return me >= b.convert("zext", b.read(threads, order), "i64")

            with b.forever() as (look, over):
                with b.when(leaves("monotonic")):
                    b.go(over)
                seen = b.read(gate)
                with b.when(self.for_me(b, seen, me, last)):
                    self.join(b, state, me, seen, last, idle, yielded)
                    b.put(looks, 0)
                    b.go(look)
                count = b.get(looks) + 1
                b.put(looks, count & 15)
                with b.when(b.compare("ne", count, 16)):
                    self.pause(b)
                    b.go(look)
                past = b.invoke("i64", "now") - b.get(idle)
                with b.when(past <= b.read(_field(b, state, "spin"))):
                    b.go(look)
                # The bell is read before we announce ourselves, and the gate after: either we see
                # the caller's loop, or the caller sees our bit and changes the bell, on which the
                # sleep then fails.
                bell, sleepers = _field(b, state, "bell", "i32"), _field(b, state, "sleepers")
                heard = b.read(bell, "seq_cst")
                bit = b.binary("shl", b.const("i64", 1), me & 63)
                b.update("or", sleepers, bit, "seq_cst")
                up = self.for_me(b, b.read(gate, "seq_cst"), me, last) | leaves("seq_cst")
                with b.when(~up):
                    bit32 = b.binary("shl", b.const("i64", 1), me & 31)
                    self.sleep(b, bell, heard, b.convert("trunc", bit32, "i32"))
                b.update("and", sleepers, bit ^ -1, "seq_cst")
                b.put(idle, b.invoke("i64", "now"))
            signals.restore(b, unblocked)

    def join(
        self, b: Writer, state: Reg, me: Reg, seen: Reg, last: Reg, idle: Reg, yielded: Reg
    ) -> None:
        """A worker's part in the loop of the gate that it has seen."""
        gate = _field(b, state, "gate")
        # Acquire: what the caller wrote before it opened this gate is seen. The exchange succeeds
        # only on the very word that was judged, so the loop is open now, and the caller will wait
        # for us.
        with b.when(b.replace(gate, seen, seen + 1, "acquire monotonic")):
            b.put(last, b.binary("lshr", seen, 32))
            b.invoke("void", "take_chunks", state, me)
            # Release: who sees us gone sees what our kernels wrote. From here on nothing of the
            # loop is read.
            before = b.update("sub", gate, 1, "release")
            with b.when(b.compare("eq", before & (_INSIDE | _WAITING), 1 | _WAITING)):
                self.wake(b, gate, b.const("i32", -1))
            time = b.invoke("i64", "now")
            b.put(idle, time)
            with b.when(time - b.get(yielded) > self.yield_after):
                # If another program wants this core, now is the moment: nobody waits for us
                # outside a loop.
                b.put(yielded, time)
                b.invoke("i32", "sched_yield")

    # ---- a caller ------------------------------------------------------------------------------

    def write_run(self) -> None:
        header = "void @run(ptr %state, ptr %kernel, ptr %args, i64 %n)"
        with function(self.module, header) as (b, state, kernel, args, n):
            threads = b.convert("zext", b.read(_field(b, state, "threads", "i32")), "i64")
            with b.when((n < 2) | b.compare("lt", threads, 2, unsigned=True)):
                with b.when(n > 0):
                    b.invoke("void", kernel, b.const("i64", 0), n, args)
                b.ret()
            done, busy = b.alloca("i64", 0, 0), _field(b, state, "busy", "i32")
            # Another caller has the workers, or one of our own kernels called: do a part alone, ask
            # again.
            with b.forever() as (_, owned):
                with b.when(b.replace(busy, 0, 1, "acquire monotonic")):
                    b.go(owned)
                begin, part = b.get(done), b.intrinsic("smax", b.binary("sdiv", n, 16), 1)
                end = b.intrinsic("smin", begin + part, n)
                b.invoke("void", kernel, begin, end, args)
                with b.when(b.compare("eq", end, n)):
                    b.ret()
                b.put(done, end)
            self.publish(b, state, kernel, args, b.get(done), n, threads)
            b.invoke("void", "take_chunks", state, b.const("i64", 0))
            # Every chunk is claimed. Close: from here on nobody enters, and those inside are
            # counted.
            gate = _field(b, state, "gate")
            with b.when(b.compare("ne", b.update("and", gate, ~_OPEN, "acquire") & _INSIDE, 0)):
                self.wait(b, gate)
            b.write(busy, 0, "release")

    def publish(
        self, b: Writer, state: Reg, kernel: Reg, args: Reg, first: Reg, n: Reg, threads: Reg
    ) -> None:
        """Deals the chunks from `first` on, opens the gate and wakes who has a share."""
        left = n - first
        shares = b.intrinsic("umin", left, threads)
        step = b.intrinsic("smax", b.binary("udiv", left, shares * 16), 1)
        for name, value in (("kernel", kernel), ("args", args), ("shares", shares), ("step", step)):
            b.put(_field(b, state, name, value.elem), value)
        base, extra = b.binary("udiv", left, shares), b.binary("urem", left, shares)
        with b.counting(shares) as (i, _):
            begin = first + base * i + b.intrinsic("umin", i, extra)
            longer = b.convert("zext", b.compare("lt", i, extra, unsigned=True), "i64")
            next_at, end_at = _share(b, state, i)
            b.write(next_at, begin)
            b.put(end_at, begin + base + longer)
        gate = _field(b, state, "gate")
        number = b.binary("shl", b.binary("lshr", b.read(gate), 32) + 1, 32)
        b.update("xchg", gate, number | b.binary("shl", shares, 16) | _OPEN, "seq_cst")
        asleep = b.read(_field(b, state, "sleepers"), "seq_cst")
        below = b.binary("shl", b.const("i64", 1), shares & 63) - 1
        who = asleep & b.select(b.compare("gt", shares, 63, unsigned=True), -1, below)
        with b.when(b.compare("ne", who, 0)):
            self.ring(b, state, who)

    def wait(self, b: Writer, gate: Reg) -> None:
        """Waits until no worker is inside."""
        began, empty = b.invoke("i64", "now"), b.label()
        with b.forever() as (_, tired):
            with b.counting(16):
                self.pause(b)
                with b.when(b.compare("eq", b.read(gate, "acquire") & _INSIDE, 0)):
                    b.go(empty)
            with b.when(b.invoke("i64", "now") - began > self.wait_spin):
                b.go(tired)
        # A worker inside is not running, or has much to do: our core is better given to somebody
        # else.
        with b.forever():
            asked = b.update("or", gate, _WAITING, "acquire")
            with b.when(b.compare("eq", asked & _INSIDE, 0)):
                b.go(empty)
            expected = b.convert("trunc", asked | _WAITING, "i32")
            self.sleep(b, gate, expected, b.const("i32", -1))
        b.start(empty)


def text(yield_after: int = 300_000, wait_spin: int = 1_000_000) -> str:
    """The pool's LLVM IR; times in nanoseconds.

    Errors: Unsupported where the system is not Linux or the processor is neither x86-64 nor ARM64.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.platform != "linux":
        raise Unsupported(f"a thread pool on {sys.platform} {platform.machine()}; it runs serially")
    code = _WorkerLoopWriter(machine, yield_after, wait_spin)
    for write in (
        code.write_now, code.write_ring, code.write_take_chunks, code.write_work, code.write_run,
    ):  # fmt: skip
        write()
    return str(code.module)


@functools.cache
def code() -> WorkerLoopCode:
    """The functions, compiled on first use."""
    return WorkerLoopCode(*object_code.library(__name__, text, WorkerLoopCode._fields))


def library_call(function_pointer: int, n_arguments: int) -> str:
    """LLVM IR of a kernel `loop` that calls a C function once per chunk.

    Chunk i has a record of n_arguments + 1 64-bit words at args + i * size: the arguments, and
    where the function's int result goes.
    """
    module = Module()
    with (
        function(module, "void @loop(i64 %begin, i64 %end, ptr %args)") as (b, begin, end, args),
        b.when(begin < end),
        b.counting(end - begin) as (i, _),
    ):
        record = b.at(args, (begin + i) * (8 * (n_arguments + 1)))
        places = [b.place("i64", record, k, "i64") for k in range(n_arguments + 1)]
        status = b.invoke("i32", b.const("ptr", function_pointer), *map(b.get, places[:-1]))
        b.put(places[-1], b.convert("sext", status, "i64"))
    return str(module)
