"""The thread pool's machine code: how a loop is published, joined, shared out and ended.

`docs/threads.md` says why this is right; the comments in the code say which line does what for it.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from string import Template
from typing import NamedTuple

from ....core.errors import Unsupported
from . import machine_code

MAX_THREADS = 256


class Share(ctypes.Structure):
    """One thread's part of the open loop, alone on its pair of cache lines."""

    _fields_ = (
        ("next", ctypes.c_int64),  # the first chunk that nobody has claimed; may pass `end`
        ("end", ctypes.c_int64),
        ("_apart", ctypes.c_int64 * 14),
    )


class State(ctypes.Structure):
    """All that threads share; zero is a pool without workers. Fields apart never share a line."""

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


class Code(NamedTuple):
    """Addresses of the functions: their types in C."""

    run: int  # void (State *, void kernel(int64, int64, void *), void *args, int64 n_chunks)
    work: int  # void (State *, int64 index): returns when `threads` says that it shall leave
    ring: int  # void (State *): wakes all sleepers


class _Machine(NamedTuple):
    pause: str
    declare: str
    futex: int  # number of the system call


_MACHINES = {
    "x86_64": _Machine("call void @llvm.x86.sse2.pause()", "void @llvm.x86.sse2.pause()", 202),
    "aarch64": _Machine("call void @llvm.aarch64.isb(i32 15)", "void @llvm.aarch64.isb(i32)", 98),
}

_CODE = Template(r"""
declare $pause_declaration
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

define internal i64 @now() {
  %time = alloca {i64, i64}
  %error = call i32 @clock_gettime(i32 1, ptr %time)  ; CLOCK_MONOTONIC
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Sleeps until woken by a caller of @wake with a bit in common, unless %word is not %value any more.
define internal void @sleep(ptr %word, i32 %value, i32 %bits) {
  %result = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 $wait, i32 %value,
                                         ptr null, ptr null, i32 %bits)
  ret void
}

define internal void @wake(ptr %word, i32 %bits) {
  %result = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 $wake, i32 2147483647,
                                         ptr null, ptr null, i32 %bits)
  ret void
}

; Wakes the sleepers among %who: bit i % 64 for worker i.
define internal void @ring_some(ptr %state, i64 %who) {
  %bell = getelementptr i8, ptr %state, i64 $bell
  %before = atomicrmw add ptr %bell, i32 1 seq_cst
  %high = lshr i64 %who, 32
  %both = or i64 %who, %high
  %bits = trunc i64 %both to i32
  call void @wake(ptr %bell, i32 %bits)
  ret void
}

define void @ring(ptr %state) {
  call void @ring_some(ptr %state, i64 -1)
  ret void
}

; Runs chunks of the open loop: those of share %me, then what is left of each other share. When it
; returns, every chunk has been claimed. Only for the caller and for workers inside.
define internal void @take_chunks(ptr %state, i64 %me) {
entry:
  %kernel.at = getelementptr i8, ptr %state, i64 $kernel
  %args.at = getelementptr i8, ptr %state, i64 $args
  %shares.at = getelementptr i8, ptr %state, i64 $shares
  %step.at = getelementptr i8, ptr %state, i64 $step
  %kernel = load ptr, ptr %kernel.at
  %args = load ptr, ptr %args.at
  %shares = load i64, ptr %shares.at
  %step = load i64, ptr %step.at
  br label %visit
visit:
  %turn = phi i64 [0, %entry], [%turn.next, %exhausted]
  %sum = add i64 %me, %turn
  %over = icmp uge i64 %sum, %shares
  %wrapped = sub i64 %sum, %shares
  %index = select i1 %over, i64 %wrapped, i64 %sum
  %offset = mul i64 %index, $share_size
  %start = add i64 %offset, $share
  %next.at = getelementptr i8, ptr %state, i64 %start
  %end.at = getelementptr i8, ptr %next.at, i64 8
  %end = load i64, ptr %end.at
  br label %look
look:
  %seen = load atomic i64, ptr %next.at monotonic, align 8  ; a look does not take the line away
  %none = icmp sge i64 %seen, %end
  br i1 %none, label %exhausted, label %claim
claim:
  %begin = atomicrmw add ptr %next.at, i64 %step monotonic
  %late = icmp sge i64 %begin, %end
  br i1 %late, label %exhausted, label %chunks
chunks:
  %full = add i64 %begin, %step
  %short = icmp slt i64 %end, %full
  %stop = select i1 %short, i64 %end, i64 %full
  call void %kernel(i64 %begin, i64 %stop, ptr %args)
  br label %look
exhausted:
  %turn.next = add i64 %turn, 1
  %done = icmp eq i64 %turn.next, %shares
  br i1 %done, label %return, label %visit
return:
  ret void
}

define void @work(ptr %state, i64 %me) {
entry:
  %last.at = alloca i64                    ; number of the loop that this worker was in last
  store i64 -1, ptr %last.at
  %yielded.at = alloca i64                 ; when this worker last offered its core
  %born = call i64 @now()
  store i64 %born, ptr %yielded.at
  %idle.at = alloca i64                    ; when it last left a loop or woke
  %gate.at = getelementptr i8, ptr %state, i64 $gate
  %threads.at = getelementptr i8, ptr %state, i64 $threads
  %sleepers.at = getelementptr i8, ptr %state, i64 $sleepers
  %bell.at = getelementptr i8, ptr %state, i64 $bell
  %spin.at = getelementptr i8, ptr %state, i64 $spin
  %place = and i64 %me, 63
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %place32 = and i64 %me, 31
  %bit64 = shl i64 1, %place32
  %bit32 = trunc i64 %bit64 to i32
  store i64 %born, ptr %idle.at
  br label %look
look:
  %looks = phi i64 [0, %entry], [%looks.next, %pause], [0, %check], [0, %left], [0, %raced],
                   [0, %woken]
  %threads32 = load atomic i32, ptr %threads.at monotonic, align 4
  %threads = zext i32 %threads32 to i64
  %leave = icmp sge i64 %me, %threads
  br i1 %leave, label %return, label %regard
regard:
  %gate = load atomic i64, ptr %gate.at monotonic, align 8
  %open = call i1 @for_me(i64 %gate, i64 %me, ptr %last.at)
  br i1 %open, label %join, label %rest
rest:
  %looks.next = add i64 %looks, 1
  %often = icmp eq i64 %looks.next, 16
  br i1 %often, label %check, label %pause
pause:
  $pause
  br label %look
check:
  %idle = load i64, ptr %idle.at
  %moment = call i64 @now()
  %past = sub i64 %moment, %idle
  %spin = load atomic i64, ptr %spin.at monotonic, align 8
  %tired = icmp sgt i64 %past, %spin
  br i1 %tired, label %lie_down, label %look

join:
  ; Acquire: what the caller wrote before it opened this gate is seen. The exchange succeeds only
  ; on the very word that was judged, so the loop is open now, and the caller will wait for us.
  %joined = add i64 %gate, 1
  %exchange = cmpxchg ptr %gate.at, i64 %gate, i64 %joined acquire monotonic
  %success = extractvalue {i64, i1} %exchange, 1
  br i1 %success, label %inside, label %raced
raced:
  br label %look
inside:
  %number = lshr i64 %gate, 32
  store i64 %number, ptr %last.at
  call void @take_chunks(ptr %state, i64 %me)
  ; Release: who sees us gone sees what our kernels wrote. From here on nothing of the loop is read.
  %before = atomicrmw sub ptr %gate.at, i64 1 release
  %flags = and i64 %before, $inside_or_waiting
  %last = icmp eq i64 %flags, $last_and_waiting
  br i1 %last, label %tell, label %left_now
tell:
  call void @wake(ptr %gate.at, i32 -1)
  br label %left_now
left_now:
  %time = call i64 @now()
  store i64 %time, ptr %idle.at
  %yielded = load i64, ptr %yielded.at
  %since = sub i64 %time, %yielded
  %due = icmp sgt i64 %since, $yield_after
  br i1 %due, label %yield, label %left
yield:
  ; If another program wants this core, now is the moment: nobody waits for us outside a loop.
  store i64 %time, ptr %yielded.at
  %ignored = call i32 @sched_yield()
  br label %left
left:
  br label %look

lie_down:
  ; The bell is read before we announce ourselves, and the gate after: either we see the caller's
  ; loop, or the caller sees our bit and changes the bell, on which the sleep then fails.
  %bell = load atomic i32, ptr %bell.at seq_cst, align 4
  %announced = atomicrmw or ptr %sleepers.at, i64 %bit seq_cst
  %gate.now = load atomic i64, ptr %gate.at seq_cst, align 8
  %open.now = call i1 @for_me(i64 %gate.now, i64 %me, ptr %last.at)
  %threads.now32 = load atomic i32, ptr %threads.at seq_cst, align 4
  %threads.now = zext i32 %threads.now32 to i64
  %leave.now = icmp sge i64 %me, %threads.now
  %up = or i1 %open.now, %leave.now
  br i1 %up, label %woken, label %lie
lie:
  call void @sleep(ptr %bell.at, i32 %bell, i32 %bit32)
  br label %woken
woken:
  %cleared = atomicrmw and ptr %sleepers.at, i64 %others seq_cst
  %morning = call i64 @now()
  store i64 %morning, ptr %idle.at
  br label %look
return:
  ret void
}

; Whether worker %me has a share in the loop of %gate, the gate is open, and it was not in before.
define internal i1 @for_me(i64 %gate, i64 %me, ptr %last.at) {
  %flag = and i64 %gate, $open
  %open = icmp ne i64 %flag, 0
  %number = lshr i64 %gate, 32
  %last = load i64, ptr %last.at
  %new = icmp ne i64 %number, %last
  %shifted = lshr i64 %gate, 16
  %shares = and i64 %shifted, 65535
  %mine = icmp ult i64 %me, %shares
  %fresh = and i1 %open, %new
  %result = and i1 %fresh, %mine
  ret i1 %result
}

define void @run(ptr %state, ptr %kernel, ptr %args, i64 %n) {
entry:
  %gate.at = getelementptr i8, ptr %state, i64 $gate
  %busy.at = getelementptr i8, ptr %state, i64 $busy
  %threads.at = getelementptr i8, ptr %state, i64 $threads
  %sleepers.at = getelementptr i8, ptr %state, i64 $sleepers
  %threads32 = load atomic i32, ptr %threads.at monotonic, align 4
  %threads = zext i32 %threads32 to i64
  %few = icmp slt i64 %n, 2
  %lonely = icmp ult i64 %threads, 2
  %serial = or i1 %few, %lonely
  br i1 %serial, label %alone, label %attempt
alone:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %all, label %return
all:
  call void %kernel(i64 0, i64 %n, ptr %args)
  br label %return

attempt:
  ; Another caller has the workers, or one of our own kernels called: do a part alone, ask again.
  %from = phi i64 [0, %entry], [%to, %part_done]
  %own = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %owned = extractvalue {i32, i1} %own, 1
  br i1 %owned, label %publish, label %part
part:
  %sixteenth = sdiv i64 %n, 16
  %size = call i64 @at_least_one(i64 %sixteenth)
  %to.full = add i64 %from, %size
  %past = icmp slt i64 %n, %to.full
  %to = select i1 %past, i64 %n, i64 %to.full
  call void %kernel(i64 %from, i64 %to, ptr %args)
  br label %part_done
part_done:
  %finished = icmp eq i64 %to, %n
  br i1 %finished, label %return, label %attempt

publish:
  %kernel.at = getelementptr i8, ptr %state, i64 $kernel
  %args.at = getelementptr i8, ptr %state, i64 $args
  %shares.at = getelementptr i8, ptr %state, i64 $shares
  %step.at = getelementptr i8, ptr %state, i64 $step
  %left = sub i64 %n, %from
  %fewer = icmp ult i64 %left, %threads
  %shares = select i1 %fewer, i64 %left, i64 %threads
  %claims = mul i64 %shares, 16
  %step.full = udiv i64 %left, %claims
  %step = call i64 @at_least_one(i64 %step.full)
  store ptr %kernel, ptr %kernel.at
  store ptr %args, ptr %args.at
  store i64 %shares, ptr %shares.at
  store i64 %step, ptr %step.at
  %base = udiv i64 %left, %shares
  %extra = urem i64 %left, %shares
  br label %deal
deal:
  %s = phi i64 [0, %publish], [%s.next, %deal]
  %begin = phi i64 [%from, %publish], [%end, %deal]
  %longer = icmp ult i64 %s, %extra
  %one = zext i1 %longer to i64
  %length = add i64 %base, %one
  %end = add i64 %begin, %length
  %offset = mul i64 %s, $share_size
  %start = add i64 %offset, $share
  %next.at = getelementptr i8, ptr %state, i64 %start
  %end.at = getelementptr i8, ptr %next.at, i64 8
  store atomic i64 %begin, ptr %next.at monotonic, align 8
  store i64 %end, ptr %end.at
  %s.next = add i64 %s, 1
  %dealt = icmp eq i64 %s.next, %shares
  br i1 %dealt, label %open_gate, label %deal
open_gate:
  %gate.old = load atomic i64, ptr %gate.at monotonic, align 8
  %number = lshr i64 %gate.old, 32
  %number.next = add i64 %number, 1
  %high = shl i64 %number.next, 32
  %middle = shl i64 %shares, 16
  %low = or i64 %middle, $open
  %gate.new = or i64 %high, %low
  %closed = atomicrmw xchg ptr %gate.at, i64 %gate.new seq_cst
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %many = icmp ugt i64 %shares, 63
  %shift = and i64 %shares, 63
  %power = shl i64 1, %shift
  %below = sub i64 %power, 1
  %theirs = select i1 %many, i64 -1, i64 %below
  %who = and i64 %sleepers, %theirs
  %any = icmp ne i64 %who, 0
  br i1 %any, label %call_them, label %participate
call_them:
  call void @ring_some(ptr %state, i64 %who)
  br label %participate
participate:
  call void @take_chunks(ptr %state, i64 0)
  ; Every chunk is claimed. Close: from here on nobody enters, and those inside are counted.
  %open = atomicrmw and ptr %gate.at, i64 $not_open acquire
  %inside = and i64 %open, $inside
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %free, label %wait_from
wait_from:
  %began = call i64 @now()
  br label %wait
wait:
  %i = phi i64 [0, %wait_from], [%i.next, %wait_more], [0, %wait_check]
  $pause
  %gate = load atomic i64, ptr %gate.at acquire, align 8
  %inside.now = and i64 %gate, $inside
  %empty.now = icmp eq i64 %inside.now, 0
  br i1 %empty.now, label %free, label %still
still:
  %i.next = add i64 %i, 1
  %often = icmp eq i64 %i.next, 16
  br i1 %often, label %wait_check, label %wait_more
wait_more:
  br label %wait
wait_check:
  %moment = call i64 @now()
  %waited = sub i64 %moment, %began
  %long = icmp sgt i64 %waited, $wait_spin
  br i1 %long, label %block, label %wait
block:
  ; A worker inside is not running, or has much to do: our core is better given to somebody else.
  %asked = atomicrmw or ptr %gate.at, i64 $waiting acquire
  %inside.left = and i64 %asked, $inside
  %empty.left = icmp eq i64 %inside.left, 0
  br i1 %empty.left, label %free, label %doze
doze:
  %expected64 = or i64 %asked, $waiting
  %expected = trunc i64 %expected64 to i32
  call void @sleep(ptr %gate.at, i32 %expected, i32 -1)
  br label %block
free:
  store atomic i32 0, ptr %busy.at release, align 4
  br label %return
return:
  ret void
}

define internal i64 @at_least_one(i64 %x) {
  %small = icmp slt i64 %x, 1
  %result = select i1 %small, i64 1, i64 %x
  ret i64 %result
}
""")

_INSIDE = 0xFFF
_WAITING = 1 << 12
_OPEN = 1 << 13
_FUTEX_PRIVATE = 128


def text(yield_after: int = 300_000, wait_spin: int = 20_000) -> str:
    """The pool's LLVM IR; times in nanoseconds.

    Errors: Unsupported where the system is not Linux or the processor is neither x86-64 nor ARM64.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.platform != "linux":
        raise Unsupported(f"a thread pool on {sys.platform} {platform.machine()}; it runs serially")
    offsets = {name: getattr(State, name).offset for name, _ in State._fields_}
    return _CODE.substitute(
        {name: offset for name, offset in offsets.items() if not name.startswith("_")},
        share_size=ctypes.sizeof(Share),
        pause=machine.pause,
        pause_declaration=machine.declare,
        futex=machine.futex,
        wait=9 | _FUTEX_PRIVATE,  # FUTEX_WAIT_BITSET
        wake=10 | _FUTEX_PRIVATE,  # FUTEX_WAKE_BITSET
        open=_OPEN,
        not_open=~_OPEN,
        inside=_INSIDE,
        waiting=_WAITING,
        inside_or_waiting=_INSIDE | _WAITING,
        last_and_waiting=1 | _WAITING,
        yield_after=yield_after,
        wait_spin=wait_spin,
    )


@functools.cache
def code() -> Code:
    """The functions, compiled on first use."""
    return Code(*machine_code.load(text(), Code._fields))


def library_call(function: int, n_arguments: int) -> str:
    """LLVM IR of a kernel `loop` that calls a C function once per chunk.

    Chunk i has a record of n_arguments + 1 64-bit words at args + i * size: the arguments, and
    where the function's int result goes.
    """
    types = ", ".join(["i64"] * n_arguments)
    loads, names = [], []
    for i in range(n_arguments):
        loads.append(f"  %at{i} = getelementptr i64, ptr %record, i64 {i}")
        loads.append(f"  %word{i} = load i64, ptr %at{i}")
        names.append(f"i64 %word{i}")
    body = "\n".join(loads)
    return f"""
define void @loop(i64 %begin, i64 %end, ptr %args) {{
entry:
  %function = inttoptr i64 {function} to ptr
  %none = icmp sge i64 %begin, %end
  br i1 %none, label %return, label %chunk
chunk:
  %i = phi i64 [%begin, %entry], [%i.next, %chunk]
  %offset = mul i64 %i, {8 * (n_arguments + 1)}
  %record = getelementptr i8, ptr %args, i64 %offset
{body}
  %status = call i32 ({types}) %function({", ".join(names)})
  %wide = sext i32 %status to i64
  %status.at = getelementptr i64, ptr %record, i64 {n_arguments}
  store i64 %wide, ptr %status.at
  %i.next = add i64 %i, 1
  %done = icmp eq i64 %i.next, %end
  br i1 %done, label %return, label %chunk
return:
  ret void
}}
"""
