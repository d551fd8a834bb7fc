"""The memory cache's machine code: a NumPy memory handler that keeps freed blocks for reuse.

Every block comes from the C library's allocator and may at any time go back to it by `free`, so no
mistake about who owns a block can corrupt the heap. A block's class follows from the block alone
(`malloc_usable_size`), never from what a caller says its size was.

A free block is a pointer in a slot of its class; it is put there by compare-and-exchange with null
and taken by exchange with null. Whoever gets a pointer out of a slot owns the block: two threads
cannot, there is no lock to be left behind by a fork, and no block is ever looked into.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from string import Template
from typing import NamedTuple

from ....core import policy
from ....core.errors import Unsupported
from . import machine_code

SMALLEST = policy.BLOCK_SMALLEST  # bytes; smaller requests go to NumPy's own handler
_OCTAVES = 24  # the largest block is below SMALLEST << _OCTAVES: 1 TiB
CLASSES = 8 * _OCTAVES  # eight sizes an octave: a block is at most an eighth larger than asked for
SLOTS = policy.BLOCK_SLOTS  # free blocks of one class
_MARGIN = 64  # small requests stay so far below SMALLEST that their blocks do, too
_HUGE = 1 << 22  # bytes from which the system is asked for huge pages, as NumPy does


class State(ctypes.Structure):
    """The counters and free blocks; sizes are those of the classes, in bytes."""

    _fields_ = (
        ("limit", ctypes.c_int64),  # `cached` stays at or below
        ("cached", ctypes.c_int64),  # in slots, or about to be put there or just taken
        ("allocated", ctypes.c_int64),  # in arrays
        ("peak", ctypes.c_int64),  # the greatest `allocated` so far
        ("requests", ctypes.c_int64),  # how many large blocks were asked for
        ("reuses", ctypes.c_int64),  # how many of these came from the cache
        ("hand", ctypes.c_int64),  # the class at which eviction goes on
        ("count", ctypes.c_int32 * CLASSES),  # about how many slots are full: 0 where surely none
        ("recent", ctypes.c_int8 * CLASSES),  # 1: reused since eviction last came by
        ("given_up", ctypes.c_int8 * CLASSES),  # 1: evicted; 2: and missed; 3: again
        ("slots", ctypes.c_int64 * SLOTS * CLASSES),
    )


class Code(NamedTuple):
    """Addresses of the functions: those of a PyDataMemAllocator, with the State as context."""

    malloc: int  # void *(State *, size_t)
    calloc: int  # void *(State *, size_t, size_t)
    realloc: int  # void *(State *, void *, size_t)
    free: int  # void (State *, void *, size_t)
    trim: int  # void (State *, int64 target): frees blocks until `cached` is at most the target


class Allocator(ctypes.Structure):
    """NumPy's PyDataMemAllocator."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_CODE = Template("""
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i64 @malloc_usable_size(ptr)
declare i32 @madvise(ptr, i64, i32)
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)

; The greatest class whose blocks are no larger than %bytes, which is at least the smallest.
define internal i64 @class_within(i64 %bytes) {
  %zeros = call i64 @llvm.ctlz.i64(i64 %bytes, i1 true)
  %exponent = sub i64 63, %zeros
  %shift = sub i64 %exponent, 3
  %mantissa = lshr i64 %bytes, %shift
  %eighth = and i64 %mantissa, 7
  %octave = sub i64 %exponent, $smallest_exponent
  %first = shl i64 %octave, 3
  %class = or i64 %first, %eighth
  ret i64 %class
}

; The least class whose blocks hold %bytes.
define internal i64 @class_holding(i64 %bytes) {
  %first = icmp ule i64 %bytes, $smallest
  br i1 %first, label %least, label %other
least:
  ret i64 0
other:
  %less = sub i64 %bytes, 1
  %below = call i64 @class_within(i64 %less)
  %class = add i64 %below, 1
  ret i64 %class
}

define internal i64 @size_of(i64 %class) {
  %eighth = and i64 %class, 7
  %octave = lshr i64 %class, 3
  %mantissa = or i64 %eighth, 8
  %shift = add i64 %octave, $smallest_shift
  %size = shl i64 %mantissa, %shift
  ret i64 %size
}

; What %block counts for in `allocated`: its class's size, or 0 where it is too small or too large.
define internal i64 @charge(ptr %block) {
  %usable = call i64 @malloc_usable_size(ptr %block)
  %less = sub i64 %usable, $smallest
  %ours = icmp ult i64 %less, $span
  br i1 %ours, label %count, label %none
count:
  %class = call i64 @class_within(i64 %usable)
  %size = call i64 @size_of(i64 %class)
  ret i64 %size
none:
  ret i64 0
}

; A free block of %class, or null.
define internal ptr @take(ptr %state, i64 %class) {
entry:
  %counts = getelementptr i8, ptr %state, i64 $count
  %count.at = getelementptr i32, ptr %counts, i64 %class
  %count = load atomic i32, ptr %count.at monotonic, align 4
  %none = icmp eq i32 %count, 0
  br i1 %none, label %empty, label %search
search:
  %all = getelementptr i8, ptr %state, i64 $slots
  %first = mul i64 %class, $slots_per_class
  %slots = getelementptr ptr, ptr %all, i64 %first
  br label %slot
slot:
  %i = phi i64 [0, %search], [%i.next, %next]
  %slot.at = getelementptr ptr, ptr %slots, i64 %i
  %seen = load atomic ptr, ptr %slot.at monotonic, align 8
  %vacant = icmp eq ptr %seen, null
  br i1 %vacant, label %next, label %exchange
exchange:
  %block = atomicrmw xchg ptr %slot.at, ptr null acquire
  %lost = icmp eq ptr %block, null
  br i1 %lost, label %next, label %won
next:
  %i.next = add i64 %i, 1
  %end = icmp eq i64 %i.next, $slots_per_class
  br i1 %end, label %empty, label %slot
won:
  %fewer = atomicrmw sub ptr %count.at, i32 1 monotonic
  %size = call i64 @size_of(i64 %class)
  %cached.at = getelementptr i8, ptr %state, i64 $cached
  %before = atomicrmw sub ptr %cached.at, i64 %size monotonic
  ret ptr %block
empty:
  ret ptr null
}

; Gives one free block back to the C library, of a class not reused lately if there is one. Whether
; there was any. Called with a bound on turns, so it ends whatever other threads do.
define internal i1 @evict(ptr %state) {
entry:
  %hand.at = getelementptr i8, ptr %state, i64 $hand
  %counts = getelementptr i8, ptr %state, i64 $count
  %recents = getelementptr i8, ptr %state, i64 $recent
  br label %turn
turn:
  %turns = phi i64 [0, %entry], [%turns.next, %pass], [%turns.next, %spare], [%turns.next, %try]
  %over = icmp eq i64 %turns, $two_rounds
  br i1 %over, label %none, label %look
look:
  %turns.next = add i64 %turns, 1
  %hand = load atomic i64, ptr %hand.at monotonic, align 8
  %class = urem i64 %hand, $classes
  %count.at = getelementptr i32, ptr %counts, i64 %class
  %count = load atomic i32, ptr %count.at monotonic, align 4
  %vacant = icmp eq i32 %count, 0
  br i1 %vacant, label %pass, label %judge
pass:
  %moved = atomicrmw add ptr %hand.at, i64 1 monotonic
  br label %turn
judge:
  %recent.at = getelementptr i8, ptr %recents, i64 %class
  %recent = atomicrmw xchg ptr %recent.at, i8 0 monotonic
  %used = icmp ne i8 %recent, 0
  br i1 %used, label %spare, label %try
spare:
  %moved.on = atomicrmw add ptr %hand.at, i64 1 monotonic
  br label %turn
try:
  %block = call ptr @take(ptr %state, i64 %class)
  %lost = icmp eq ptr %block, null
  br i1 %lost, label %turn, label %give
give:
  call void @free(ptr %block)
  %given_ups = getelementptr i8, ptr %state, i64 $given_up
  %given_up.at = getelementptr i8, ptr %given_ups, i64 %class
  %given_up = atomicrmw or ptr %given_up.at, i8 1 monotonic
  ret i1 true
none:
  ret i1 false
}

define void @trim(ptr %state, i64 %target) {
entry:
  %cached.at = getelementptr i8, ptr %state, i64 $cached
  br label %look
look:
  %cached = load atomic i64, ptr %cached.at monotonic, align 8
  %more = icmp sgt i64 %cached, %target
  br i1 %more, label %one, label %return
one:
  %any = call i1 @evict(ptr %state)
  br i1 %any, label %look, label %return
return:
  ret void
}

define internal void @count_allocated(ptr %state, i64 %size) {
  %allocated.at = getelementptr i8, ptr %state, i64 $allocated
  %before = atomicrmw add ptr %allocated.at, i64 %size monotonic
  %now = add i64 %before, %size
  %peak.at = getelementptr i8, ptr %state, i64 $peak
  %peak = atomicrmw max ptr %peak.at, i64 %now monotonic
  ret void
}

; A block that holds %bytes from the cache, or null; counts it as allocated.
define internal ptr @reuse(ptr %state, i64 %bytes) {
entry:
  %requests.at = getelementptr i8, ptr %state, i64 $requests
  %request = atomicrmw add ptr %requests.at, i64 1 monotonic
  %possible = icmp ult i64 %bytes, $largest  ; larger ones have no class
  br i1 %possible, label %search, label %fail
search:
  %class = call i64 @class_holding(i64 %bytes)
  %block = call ptr @take(ptr %state, i64 %class)
  %none = icmp eq ptr %block, null
  br i1 %none, label %return, label %found
found:
  %recents = getelementptr i8, ptr %state, i64 $recent
  %recent.at = getelementptr i8, ptr %recents, i64 %class
  store atomic i8 1, ptr %recent.at monotonic, align 1
  %reuses.at = getelementptr i8, ptr %state, i64 $reuses
  %reuse = atomicrmw add ptr %reuses.at, i64 1 monotonic
  %size = call i64 @size_of(i64 %class)
  call void @count_allocated(ptr %state, i64 %size)
  br label %return
return:
  ret ptr %block
fail:
  ret ptr null
}

; Before a new block of %class: evicts what would take `allocated` and `cached` together beyond the
; peak of what was allocated. So a program that never repeats itself holds no more than it needs.
; But where sizes alternate, evicting one for the other would miss each time: a class that is asked
; for again after blocks of it were evicted, for the second time, evicts no others, and all stay.
; (The first time may be a step after one of another batch size, which does not come back.)
define internal void @make_way(ptr %state, i64 %class, i64 %size) {
entry:
  %given_ups = getelementptr i8, ptr %state, i64 $given_up
  %given_up.at = getelementptr i8, ptr %given_ups, i64 %class
  %given_up = load atomic i8, ptr %given_up.at monotonic, align 1
  %cached.at = getelementptr i8, ptr %state, i64 $cached
  %allocated.at = getelementptr i8, ptr %state, i64 $allocated
  %peak.at = getelementptr i8, ptr %state, i64 $peak
  %missed.again = icmp eq i8 %given_up, 3
  br i1 %missed.again, label %return, label %first
first:
  %missed = icmp eq i8 %given_up, 1
  br i1 %missed, label %note, label %look
note:
  store atomic i8 2, ptr %given_up.at monotonic, align 1
  br label %look
look:
  %cached = load atomic i64, ptr %cached.at monotonic, align 8
  %allocated = load atomic i64, ptr %allocated.at monotonic, align 8
  %peak = load atomic i64, ptr %peak.at monotonic, align 8
  %needed = add i64 %allocated, %size
  %total = add i64 %needed, %cached
  %new_peak = icmp sgt i64 %needed, %peak
  %bound = select i1 %new_peak, i64 %needed, i64 %peak
  %beyond = icmp sgt i64 %total, %bound
  br i1 %beyond, label %one, label %return
one:
  %any = call i1 @evict(ptr %state)
  br i1 %any, label %look, label %return
return:
  ret void
}

; A new block that holds %bytes, on a cache line's boundary, or null; counts it as allocated.
define internal ptr @fresh(ptr %state, i64 %bytes) {
entry:
  %possible = icmp ult i64 %bytes, $largest
  br i1 %possible, label %first, label %fail
first:
  %class = call i64 @class_holding(i64 %bytes)
  %size = call i64 @size_of(i64 %class)
  call void @make_way(ptr %state, i64 %class, i64 %size)
  %block1 = call ptr @aligned_alloc(i64 64, i64 %size)
  %none1 = icmp eq ptr %block1, null
  br i1 %none1, label %again, label %got
again:
  call void @trim(ptr %state, i64 0)
  %block2 = call ptr @aligned_alloc(i64 64, i64 %size)
  %none2 = icmp eq ptr %block2, null
  br i1 %none2, label %fail, label %got
got:
  %block = phi ptr [%block1, %first], [%block2, %again]
  %charge = call i64 @charge(ptr %block)
  call void @count_allocated(ptr %state, i64 %charge)
  %large = icmp uge i64 %size, $huge
  br i1 %large, label %advise, label %return
advise:
  %ignored = call i32 @advise_inner(ptr %block, i64 %size, i32 14)  ; MADV_HUGEPAGE
  br label %return
return:
  ret ptr %block
fail:
  ret ptr null
}

; madvise for the whole pages among %bytes at %block, which are several pages.
define internal i32 @advise_inner(ptr %block, i64 %bytes, i32 %advice) {
  %begin = ptrtoint ptr %block to i64
  %begin.up = add i64 %begin, $page_rest
  %first = and i64 %begin.up, $page_mask
  %end = add i64 %begin, %bytes
  %last = and i64 %end, $page_mask
  %length = sub i64 %last, %first
  %pages = inttoptr i64 %first to ptr
  %result = call i32 @madvise(ptr %pages, i64 %length, i32 %advice)
  ret i32 %result
}

define ptr @adjoint_malloc(ptr %state, i64 %bytes) {
  %small = icmp ult i64 %bytes, $threshold
  br i1 %small, label %default, label %large
default:
  %function = inttoptr i64 $default_malloc to ptr
  %context = inttoptr i64 $default_context to ptr
  %small.block = call ptr %function(ptr %context, i64 %bytes)
  ret ptr %small.block
large:
  %block = call ptr @reuse(ptr %state, i64 %bytes)
  %none = icmp eq ptr %block, null
  br i1 %none, label %new, label %return
return:
  ret ptr %block
new:
  %new.block = call ptr @fresh(ptr %state, i64 %bytes)
  ret ptr %new.block
}

define ptr @adjoint_calloc(ptr %state, i64 %elements, i64 %element) {
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %elements, i64 %element)
  %bytes = extractvalue {i64, i1} %product, 0
  %overflow = extractvalue {i64, i1} %product, 1
  br i1 %overflow, label %fail, label %fits
fits:
  %small = icmp ult i64 %bytes, $threshold
  br i1 %small, label %default, label %large
default:
  %function = inttoptr i64 $default_calloc to ptr
  %context = inttoptr i64 $default_context to ptr
  %small.block = call ptr %function(ptr %context, i64 %elements, i64 %element)
  ret ptr %small.block
large:
  %block = call ptr @reuse(ptr %state, i64 %bytes)
  %none = icmp eq ptr %block, null
  br i1 %none, label %new, label %clear
new:
  %new.block = call ptr @fresh(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %new.block, null
  br i1 %failed, label %fail, label %made
made:
  %untouched = icmp uge i64 %bytes, $huge
  br i1 %untouched, label %drop, label %clear
drop:
  ; Zeros that nobody touches cost no memory: whole pages are given back and come as zeros.
  %refused = call i32 @advise_inner(ptr %new.block, i64 %bytes, i32 4)  ; MADV_DONTNEED
  %kept = icmp ne i32 %refused, 0
  br i1 %kept, label %clear, label %edges
edges:
  %begin = ptrtoint ptr %new.block to i64
  %begin.up = add i64 %begin, $page_rest
  %first = and i64 %begin.up, $page_mask
  %head = sub i64 %first, %begin
  %cleared.head = call ptr @memset(ptr %new.block, i32 0, i64 %head)
  %end = add i64 %begin, %bytes
  %last = and i64 %end, $page_mask
  %tail = sub i64 %end, %last
  %tail.at = inttoptr i64 %last to ptr
  %cleared.tail = call ptr @memset(ptr %tail.at, i32 0, i64 %tail)
  ret ptr %new.block
clear:
  %zeros = phi ptr [%block, %large], [%new.block, %made], [%new.block, %drop]
  %cleared = call ptr @memset(ptr %zeros, i32 0, i64 %bytes)
  ret ptr %zeros
fail:
  ret ptr null
}

define internal void @free_large(ptr %state, ptr %block) {
entry:
  %size = call i64 @charge(ptr %block)
  %foreign = icmp eq i64 %size, 0
  br i1 %foreign, label %give, label %discount
discount:
  %allocated.at = getelementptr i8, ptr %state, i64 $allocated
  %less = atomicrmw sub ptr %allocated.at, i64 %size monotonic
  %limit.at = getelementptr i8, ptr %state, i64 $limit
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %never = icmp sgt i64 %size, %limit
  br i1 %never, label %give, label %make_room
make_room:
  %cached.at = getelementptr i8, ptr %state, i64 $cached
  %room = sub i64 %limit, %size
  call void @trim(ptr %state, i64 %room)
  ; Reserved before it is put, so that `cached` never is less than what the slots hold.
  %before = atomicrmw add ptr %cached.at, i64 %size monotonic
  %full = icmp sgt i64 %before, %room
  br i1 %full, label %unreserve, label %search
search:
  %class = call i64 @class_within(i64 %size)
  %all = getelementptr i8, ptr %state, i64 $slots
  %first = mul i64 %class, $slots_per_class
  %slots = getelementptr ptr, ptr %all, i64 %first
  br label %slot
slot:
  %i = phi i64 [0, %search], [%i.next, %next]
  %slot.at = getelementptr ptr, ptr %slots, i64 %i
  %seen = load atomic ptr, ptr %slot.at monotonic, align 8
  %vacant = icmp eq ptr %seen, null
  br i1 %vacant, label %exchange, label %next
exchange:
  ; Counted first: a count of 0 means that every slot is empty.
  %counts = getelementptr i8, ptr %state, i64 $count
  %count.at = getelementptr i32, ptr %counts, i64 %class
  %more = atomicrmw add ptr %count.at, i32 1 monotonic
  %put = cmpxchg ptr %slot.at, ptr null, ptr %block release monotonic
  %done = extractvalue {ptr, i1} %put, 1
  br i1 %done, label %return, label %taken
taken:
  %fewer = atomicrmw sub ptr %count.at, i32 1 monotonic
  br label %next
next:
  %i.next = add i64 %i, 1
  %end = icmp eq i64 %i.next, $slots_per_class
  br i1 %end, label %unreserve, label %slot
unreserve:
  %after = atomicrmw sub ptr %cached.at, i64 %size monotonic
  br label %give
give:
  call void @free(ptr %block)
  br label %return
return:
  ret void
}

define void @adjoint_free(ptr %state, ptr %block, i64 %bytes) {
entry:
  %small = icmp ult i64 %bytes, $threshold
  br i1 %small, label %default, label %check
default:
  %function = inttoptr i64 $default_free to ptr
  %context = inttoptr i64 $default_context to ptr
  call void %function(ptr %context, ptr %block, i64 %bytes)
  ret void
check:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %return, label %large
large:
  call void @free_large(ptr %state, ptr %block)
  br label %return
return:
  ret void
}

define ptr @adjoint_realloc(ptr %state, ptr %block, i64 %bytes) {
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %make, label %measure
make:
  %made = call ptr @adjoint_malloc(ptr %state, i64 %bytes)
  ret ptr %made
measure:
  %usable = call i64 @malloc_usable_size(ptr %block)
  %was_small = icmp ult i64 %usable, $smallest
  %is_small = icmp ult i64 %bytes, $threshold
  %both = and i1 %was_small, %is_small
  br i1 %both, label %default, label %move
default:
  %function = inttoptr i64 $default_realloc to ptr
  %context = inttoptr i64 $default_context to ptr
  %small.block = call ptr %function(ptr %context, ptr %block, i64 %bytes)
  ret ptr %small.block
move:
  %new = call ptr @adjoint_malloc(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %return, label %copy
copy:
  %shrinks = icmp ult i64 %bytes, %usable
  %length = select i1 %shrinks, i64 %bytes, i64 %usable
  %copied = call ptr @memcpy(ptr %new, ptr %block, i64 %length)
  br i1 %was_small, label %give, label %keep
give:
  call void @free(ptr %block)
  br label %return
keep:
  call void @free_large(ptr %state, ptr %block)
  br label %return
return:
  ret ptr %new
}
""")


def text(small: Allocator) -> str:
    """The handler's LLVM IR; `small` serves small requests and has nothing but libc's blocks.

    Errors: Unsupported where the system is not Linux.
    """
    if sys.platform != "linux":
        raise Unsupported(f"reusing memory on {sys.platform}; NumPy's own allocator goes on")
    page = mmap.PAGESIZE
    offsets = {name: getattr(State, name).offset for name, _ in State._fields_}
    exponent = SMALLEST.bit_length() - 1
    return _CODE.substitute(
        offsets,
        smallest=SMALLEST,
        smallest_exponent=exponent,
        smallest_shift=exponent - 3,
        largest=SMALLEST << _OCTAVES - 1,
        span=(SMALLEST << _OCTAVES) - SMALLEST,
        threshold=SMALLEST - _MARGIN,
        classes=CLASSES,
        two_rounds=2 * CLASSES,
        slots_per_class=SLOTS,
        huge=_HUGE,
        page_rest=page - 1,
        page_mask=-page,
        default_context=small.context or 0,
        default_malloc=small.malloc,
        default_calloc=small.calloc,
        default_realloc=small.realloc,
        default_free=small.free,
    )


@functools.cache
def code(small: tuple[int, ...]) -> Code:
    """The functions, compiled on first use; `small` are the fields of an Allocator."""
    names = [name if name == "trim" else f"adjoint_{name}" for name in Code._fields]
    return Code(*machine_code.load(text(Allocator(*small)), names))
