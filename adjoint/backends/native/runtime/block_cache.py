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
from typing import NamedTuple

from ....core import policy
from ....core.errors import Unsupported
from ...codegen.emit import Module, Reg
from . import object_code
from .shared_code import Writer, function

SMALLEST = policy.BLOCK_SMALLEST  # bytes; smaller requests go to NumPy's own handler
_OCTAVES = 24  # the largest block is below SMALLEST << _OCTAVES: 1 TiB
CLASSES = 8 * _OCTAVES  # eight sizes an octave: a block is at most an eighth larger than asked for
SLOTS = policy.BLOCK_SLOTS  # free blocks of one class
_LARGEST = SMALLEST << _OCTAVES - 1  # bytes; beyond, there may be no class
_MARGIN = 64  # small requests stay so far below SMALLEST that their blocks do, too
HUGE = 1 << 22  # bytes from which the system is asked for huge pages, as NumPy does


class Allocator(ctypes.Structure):
    """NumPy's PyDataMemAllocator."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class BlockCacheState(ctypes.Structure):
    """The counters and free blocks; sizes are those of the classes, in bytes."""

    _fields_ = (
        ("small", Allocator),  # serves small requests, and has nothing but libc's blocks
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


class BlockCacheCode(NamedTuple):
    """Addresses of the functions: those of a PyDataMemAllocator, with the State as context."""

    malloc: int  # void *(State *, size_t)
    calloc: int  # void *(State *, size_t, size_t)
    realloc: int  # void *(State *, void *, size_t)
    free: int  # void (State *, void *, size_t)
    trim: int  # void (State *, int64 target): frees blocks until `cached` is at most the target


_EXPONENT = SMALLEST.bit_length() - 1
_LIBRARY = (
    ("aligned_alloc", "ptr", ["i64", "i64"]), ("free", "void", ["ptr"]),
    ("malloc_usable_size", "i64", ["ptr"]), ("madvise", "i32", ["ptr", "i64", "i32"]),
    ("memset", "ptr", ["ptr", "i32", "i64"]), ("memcpy", "ptr", ["ptr", "ptr", "i64"]),
    ("llvm.ctlz.i64", "i64", ["i64", "i1"]),
    ("llvm.umul.with.overflow.i64", "{i64, i1}", ["i64", "i64"]),
)  # fmt: skip


# ---- classes of blocks ---------------------------------------------------------------------------


def _class_within(b: Writer, size: Reg) -> Reg:
    """The greatest class whose blocks are no larger than `size`, which is at least the smallest."""
    exponent = 63 - b.invoke("i64", "llvm.ctlz.i64", size, b.const("i1", 1))
    octave = b.binary("shl", exponent - _EXPONENT, 3)
    return octave | (b.binary("lshr", size, exponent - 3) & 7)


def _class_holding(b: Writer, size: Reg) -> Reg:
    """The least class whose blocks hold `size`."""
    least = b.compare("le", size, SMALLEST, unsigned=True)
    return b.select(least, 0, _class_within(b, size - 1) + 1)


def _size_of(b: Writer, kind: Reg) -> Reg:
    octave = b.binary("lshr", kind, 3)
    return b.binary("shl", (kind & 7) | 8, octave + (_EXPONENT - 3))


def _charge(b: Writer, block: Reg) -> Reg:
    """Bytes that a block counts for in `allocated`: its class's size, or 0 where it is too small or
    too large.
    """
    usable = b.invoke("i64", "malloc_usable_size", block)
    span = (SMALLEST << _OCTAVES) - SMALLEST
    ours = b.compare("lt", usable - SMALLEST, span, unsigned=True)
    return b.select(ours, _size_of(b, _class_within(b, usable)), 0)


# ---- the state -----------------------------------------------------------------------------------


def _field(b: Writer, state: Reg, name: str) -> Reg:
    """A counter."""
    return b.place("i64", state, getattr(BlockCacheState, name).offset)


def _of_class(b: Writer, state: Reg, name: str, kind: Reg) -> Reg:
    """Address of a size class's entry in an array of the state."""
    elem = "i32" if name == "count" else "i8"
    return b.place(elem, b.at(state, getattr(BlockCacheState, name).offset), kind, elem)


def _slot(b: Writer, state: Reg, kind: Reg, i: Reg) -> Reg:
    return b.place("ptr", b.at(state, BlockCacheState.slots.offset), kind * SLOTS + i, "ptr")


def _count_allocated(b: Writer, state: Reg, size: Reg) -> None:
    before = b.update("add", _field(b, state, "allocated"), size)
    b.update("max", _field(b, state, "peak"), before + size)


# ---- free blocks ---------------------------------------------------------------------------------


def _write_take(module: Module) -> None:
    """A free block of a class, or null."""
    with function(module, "internal ptr @take(ptr %state, i64 %kind)") as (b, state, kind):
        count = _of_class(b, state, "count", kind)
        with b.when(b.compare("ne", b.read(count), 0)), b.counting(SLOTS) as (i, _):
            slot = _slot(b, state, kind, i)
            with b.when(b.compare("ne", b.read(slot), 0)):
                block = b.update("xchg", slot, 0, "acquire")
                with b.when(b.compare("ne", block, 0)):
                    b.update("sub", count, 1)
                    b.update("sub", _field(b, state, "cached"), _size_of(b, kind))
                    b.ret(block)
        b.ret(b.const("ptr", 0))


def _write_evict(module: Module) -> None:
    """Gives one free block back to the C library, of a class not reused lately if there is one.
    Whether there was any. It has a bound on turns, so it ends whatever other threads do.
    """
    with function(module, "internal i1 @evict(ptr %state)") as (b, state):
        hand = _field(b, state, "hand")
        with b.counting(2 * CLASSES) as (_, next_turn):
            kind = b.binary("urem", b.read(hand), CLASSES)
            with b.when(b.compare("ne", b.read(_of_class(b, state, "count", kind)), 0)):
                recent = b.update("xchg", _of_class(b, state, "recent", kind), 0)
                with b.when(b.compare("eq", recent, 0)):
                    block = b.invoke("ptr", "take", state, kind)
                    with b.when(b.compare("ne", block, 0)):
                        b.invoke("void", "free", block)
                        b.update("or", _of_class(b, state, "given_up", kind), 1)
                        b.ret(b.const("i1", 1))
                    b.go(next_turn)
            b.update("add", hand, 1)
        b.ret(b.const("i1", 0))


def _write_trim(module: Module) -> None:
    with function(module, "void @trim(ptr %state, i64 %target)") as (b, state, target):
        cached = _field(b, state, "cached")
        with b.forever() as (_, enough):
            with b.when(b.read(cached) <= target):
                b.go(enough)
            with b.when(~b.invoke("i1", "evict", state)):
                b.go(enough)


# ---- allocation ----------------------------------------------------------------------------------


def _write_reuse(module: Module) -> None:
    """A block that holds so many bytes from the cache, or null; counts it as allocated."""
    with function(module, "internal ptr @reuse(ptr %state, i64 %bytes)") as (b, state, size):
        b.update("add", _field(b, state, "requests"), 1)
        with b.when(b.compare("ge", size, _LARGEST, unsigned=True)):  # these have no class
            b.ret(b.const("ptr", 0))
        kind = _class_holding(b, size)
        block = b.invoke("ptr", "take", state, kind)
        with b.when(b.compare("ne", block, 0)):
            b.write(_of_class(b, state, "recent", kind), 1)
            b.update("add", _field(b, state, "reuses"), 1)
            _count_allocated(b, state, _size_of(b, kind))
        b.ret(block)


def _make_way(b: Writer, state: Reg, kind: Reg, size: Reg) -> None:
    """Evicts, before a new block, what would take `allocated` and `cached` together beyond the peak
    of what was allocated. So a program that never repeats itself holds no more than it needs.

    But where sizes alternate, evicting one for the other would miss each time: a class that is
    asked for again after blocks of it were evicted, for the second time, evicts no others, and all
    stay. (The first time may be a step after one of another batch size, which does not come back.)
    """
    given_up = _of_class(b, state, "given_up", kind)
    times = b.read(given_up)
    with b.when(b.compare("ne", times, 3)):
        with b.when(b.compare("eq", times, 1)):
            b.write(given_up, 2)
        names = ("cached", "allocated", "peak")
        fields = [_field(b, state, name) for name in names]
        with b.forever() as (_, enough):
            cached, allocated, peak = map(b.read, fields)
            needed = allocated + size
            with b.when(needed + cached <= b.intrinsic("smax", needed, peak)):
                b.go(enough)
            with b.when(~b.invoke("i1", "evict", state)):
                b.go(enough)


def _write_fresh(module: Module) -> None:
    """A new block that holds so many bytes, on a cache line's boundary, or null; counts it as
    allocated.
    """
    with function(module, "internal ptr @fresh(ptr %state, i64 %bytes)") as (b, state, wanted):
        with b.when(b.compare("ge", wanted, _LARGEST, unsigned=True)):
            b.ret(b.const("ptr", 0))
        kind = _class_holding(b, wanted)
        request = b.const("i64", 64), _size_of(b, kind)
        _make_way(b, state, kind, request[1])
        slot = b.alloca("ptr", 0, b.invoke("ptr", "aligned_alloc", *request))
        with b.when(b.compare("eq", b.get(slot), 0)):
            b.invoke("void", "trim", state, b.const("i64", 0))
            b.put(slot, b.invoke("ptr", "aligned_alloc", *request))
            with b.when(b.compare("eq", b.get(slot), 0)):
                b.ret(b.const("ptr", 0))
        block = b.get(slot)
        _count_allocated(b, state, _charge(b, block))
        with b.when(b.compare("ge", request[1], HUGE, unsigned=True)):
            _advise(b, block, request[1], 14)  # MADVHUGEPAGE
        b.ret(block)


def _pages(b: Writer, block: Reg, size: Reg) -> tuple[Reg, Reg, Reg, Reg]:
    """The bounds of a block: its begin, its first whole page, the end of its last one, and its own
    end.
    """
    begin = b.convert("ptrtoint", block, "i64")
    end = begin + size
    return begin, (begin + (mmap.PAGESIZE - 1)) & -mmap.PAGESIZE, end & -mmap.PAGESIZE, end


def _advise(b: Writer, block: Reg, size: Reg, advice: int) -> Reg:
    """madvise for the whole pages of a block, which are several."""
    _, first, last, _ = _pages(b, block, size)
    at = b.convert("inttoptr", first, "ptr")
    return b.invoke("i32", "madvise", at, last - first, b.const("i32", advice))


def _is_small(b: Writer, size: Reg) -> Reg:
    return b.compare("lt", size, SMALLEST - _MARGIN, unsigned=True)


def _by_default(b: Writer, state: Reg, name: str, result: str, *arguments: Reg) -> Reg:
    """Calls the default allocator for small requests, which NumPy was given before."""
    base = BlockCacheState.small.offset
    places = [base + getattr(Allocator, field).offset for field in (name, "context")]
    function, context = (b.get(b.place("ptr", state, place)) for place in places)
    return b.invoke(result, function, context, *arguments)


def _write_malloc(module: Module) -> None:
    with function(module, "ptr @adjoint_malloc(ptr %state, i64 %bytes)") as (b, state, size):
        with b.when(_is_small(b, size)):
            b.ret(_by_default(b, state, "malloc", "ptr", size))
        block = b.invoke("ptr", "reuse", state, size)
        with b.when(b.compare("ne", block, 0)):
            b.ret(block)
        b.ret(b.invoke("ptr", "fresh", state, size))


def _write_calloc(module: Module) -> None:
    header = "ptr @adjoint_calloc(ptr %state, i64 %elements, i64 %element)"
    with function(module, header) as (b, state, *sizes):
        product = b.invoke("{i64, i1}", "llvm.umul.with.overflow.i64", *sizes)
        size = b.emit("i64", 0, f"extractvalue {{i64, i1}} {product.ref}, 0")
        zero, null = b.const("i32", 0), b.const("ptr", 0)
        with b.when(b.emit("i1", 0, f"extractvalue {{i64, i1}} {product.ref}, 1")):
            b.ret(null)
        with b.when(_is_small(b, size)):
            b.ret(_by_default(b, state, "calloc", "ptr", *sizes))
        slot = b.alloca("ptr", 0, b.invoke("ptr", "reuse", state, size))
        with b.when(b.compare("eq", b.get(slot), 0)):
            new = b.invoke("ptr", "fresh", state, size)
            b.put(slot, new)
            with b.when(b.compare("eq", new, 0)):
                b.ret(null)
            with b.when(b.compare("ge", size, HUGE, unsigned=True)):
                # Zeros that nobody touches cost no memory: whole pages are given back and come as
                # zeros.
                refused = _advise(b, new, size, 4)  # MADV_DONTNEED
                with b.when(b.compare("eq", refused, 0)):
                    begin, first, last, end = _pages(b, new, size)
                    b.invoke("ptr", "memset", new, zero, first - begin)
                    b.invoke("ptr", "memset", b.convert("inttoptr", last, "ptr"), zero, end - last)
                    b.ret(new)
        b.invoke("ptr", "memset", b.get(slot), zero, size)
        b.ret(b.get(slot))


def _write_free_large(module: Module) -> None:
    with function(module, "internal void @free_large(ptr %state, ptr %block)") as (b, state, block):
        size = _charge(b, block)
        with b.when(b.compare("ne", size, 0)):
            b.update("sub", _field(b, state, "allocated"), size)
            limit, cached = b.read(_field(b, state, "limit")), _field(b, state, "cached")
            with b.when(size <= limit):
                room = limit - size
                b.invoke("void", "trim", state, room)
                # Reserved before it is put, so that `cached` never is less than what the slots
                # hold.
                with b.when(b.update("add", cached, size) <= room):
                    _put(b, state, block, _class_within(b, size))
                b.update("sub", cached, size)
        b.invoke("void", "free", block)


def _put(b: Writer, state: Reg, block: Reg, kind: Reg) -> None:
    """Returns, the block being in a slot, where one is vacant."""
    count = _of_class(b, state, "count", kind)
    with b.counting(SLOTS) as (i, _):
        slot = _slot(b, state, kind, i)
        with b.when(b.compare("eq", b.read(slot), 0)):
            b.update("add", count, 1)  # first: a count of 0 means that every slot is empty
            with b.when(b.replace(slot, 0, block, "release monotonic")):
                b.ret()
            b.update("sub", count, 1)


def _write_free(module: Module) -> None:
    header = "void @adjoint_free(ptr %state, ptr %block, i64 %bytes)"
    with function(module, header) as (b, state, block, size):
        with b.when(_is_small(b, size)):
            _by_default(b, state, "free", "void", block, size)
            b.ret()
        with b.when(b.compare("ne", block, 0)):
            b.invoke("void", "free_large", state, block)


def _write_realloc(module: Module) -> None:
    header = "ptr @adjoint_realloc(ptr %state, ptr %block, i64 %bytes)"
    with function(module, header) as (b, state, block, size):
        with b.when(b.compare("eq", block, 0)):
            b.ret(b.invoke("ptr", "adjoint_malloc", state, size))
        usable = b.invoke("i64", "malloc_usable_size", block)
        was_small = b.compare("lt", usable, SMALLEST, unsigned=True)
        with b.when(was_small & _is_small(b, size)):
            b.ret(_by_default(b, state, "realloc", "ptr", block, size))
        new = b.invoke("ptr", "adjoint_malloc", state, size)
        with b.when(b.compare("ne", new, 0)):
            b.invoke("ptr", "memcpy", new, block, b.intrinsic("umin", size, usable))
            with b.when(was_small):
                b.invoke("void", "free", block)
                b.ret(new)
            b.invoke("void", "free_large", state, block)
        b.ret(new)


def text() -> str:
    """The handler's LLVM IR.

    Errors: Unsupported where the system is not Linux.
    """
    if sys.platform != "linux":
        raise Unsupported(f"reusing memory on {sys.platform}; NumPy's own allocator goes on")
    module = Module()
    for name, result, parameters in _LIBRARY:
        module.declare(name, result, list(parameters))
    for write in (_write_take, _write_evict, _write_trim, _write_reuse, _write_fresh):
        write(module)
    for write in (_write_free_large, _write_malloc, _write_calloc, _write_realloc, _write_free):
        write(module)
    return str(module)


@functools.cache
def code() -> BlockCacheCode:
    """The functions."""
    names = [name if name == "trim" else f"adjoint_{name}" for name in BlockCacheCode._fields]
    return BlockCacheCode(*object_code.library(__name__, text, names))
