"""Large arrays reuse freed memory: exactly counted, bounded, and never two owners of one block."""

from __future__ import annotations

import contextvars
import gc
import os
import pickle
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("llvmlite")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the memory handler needs Linux"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

from numpy._core.multiarray import get_handler_name  # noqa: E402

from adjoint.backends.native.runtime import array_memory, block_cache, object_code  # noqa: E402
from adjoint.backends.native.runtime.pool import Pool  # noqa: E402
from adjoint.core import arrays  # noqa: E402
from adjoint.core.errors import InvalidArgument  # noqa: E402
from tests.sweep import few_or_many  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def stats():
    """What has changed in `memory_stats()` since the test began; an empty cache of 64 MiB."""
    limit = array_memory.memory_stats()["limit"]
    gc.collect()
    array_memory.release_memory()
    array_memory.set_memory_limit(64 * MIB)
    array_memory.reset_peak()
    before = array_memory.memory_stats()
    before["peak"] = before["allocated"]

    def changes(*names):
        now = array_memory.memory_stats()
        absolute = ("cached", "limit")
        values = [now[name] - (0 if name in absolute else before[name]) for name in names]
        return values[0] if len(values) == 1 else tuple(values)

    yield changes
    array_memory.set_memory_limit(limit)


def block(size):
    return array_memory.empty(size, np.uint8)


def have_needed(size):
    """Let the process have needed so much, so that the cache makes no room for new blocks."""
    block(size)
    array_memory.release_memory()


def in_child(function):
    """Fork; the child calls `function`; whether it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_counts_are_exact(stats):
    x = block(MIB)
    y = block(2 * MIB)
    assert stats("allocated", "cached", "peak") == (3 * MIB, 0, 3 * MIB)
    assert stats("requests", "reuses") == (2, 0)
    address = x.ctypes.data
    del x
    assert stats("allocated", "cached", "peak") == (2 * MIB, MIB, 3 * MIB)
    z = block(MIB)
    assert z.ctypes.data == address
    assert stats("allocated", "cached", "peak") == (3 * MIB, 0, 3 * MIB)
    assert stats("requests", "reuses") == (3, 1)
    del y, z
    assert stats("allocated", "cached", "peak") == (0, 3 * MIB, 3 * MIB)
    array_memory.release_memory()
    assert stats("allocated", "cached", "peak") == (0, 0, 3 * MIB)
    array_memory.reset_peak()
    assert stats("peak") == 0


@pytest.mark.parametrize("size", [65536, 65537, 73728, 73729, 100_000, 131072, MIB + 1, 5 * MIB])
def test_blocks_hold_what_was_asked_and_an_eighth_more_at_most(stats, size):
    x = block(size)
    x[:] = 1
    assert size <= stats("allocated") <= size * 9 / 8
    assert x.ctypes.data % 64 == 0
    again = stats("allocated")
    del x
    assert stats("allocated", "cached") == (0, again)


def test_classes_are_a_ladder_of_eighths():
    """Every class from the smallest on is reached, in order, by one request each."""
    sizes = [(8 + i % 8) << 13 + i // 8 for i in range(40)]
    for size in sizes:
        before = array_memory.memory_stats()["allocated"]
        x = block(size)
        assert array_memory.memory_stats()["allocated"] - before == size
        y = block(size - 1)
        assert array_memory.memory_stats()["allocated"] - before == 2 * size
        del x, y


def test_small_arrays_are_not_ours(stats):
    for size in (0, 1, 1000, 65536 - 65, 65536 - 64 - 1):
        x = block(size)
        assert x.size == size
        del x
    assert stats("requests", "allocated", "cached") == (0, 0, 0)


def test_only_prepared_contexts_are_served(stats):
    outside = np.empty(MIB, np.uint8)
    assert get_handler_name(outside) == "default_allocator"
    context = contextvars.copy_context()
    assert array_memory.use_in(context.run)
    inside = context.run(np.empty, MIB, np.uint8)
    assert get_handler_name(inside) == "adjoint"
    total = context.run(np.add, inside, inside)
    assert get_handler_name(total) == "adjoint"
    assert get_handler_name(np.add(inside, inside)) == "default_allocator"
    assert stats("allocated") == 2 * MIB
    del inside, total  # freed outside the context, by the handler that they came from
    assert stats("allocated", "cached") == (0, 2 * MIB)


def test_views_keep_the_block(stats):
    x = block(MIB)
    x[:] = np.arange(MIB) % 251
    view = x[5::7].reshape(-1)[3:]
    expected = view.copy()
    buffer = memoryview(x)
    exported = np.from_dlpack(x)
    del x
    others = [block(MIB) for _ in range(4)]
    for other in others:
        other[:] = 255
    np.testing.assert_array_equal(view, expected)
    assert stats("allocated") == 5 * MIB
    del view, buffer
    np.testing.assert_array_equal(
        exported[26::7][: len(expected)], expected[: len(exported[26::7])]
    )
    assert stats("allocated") == 5 * MIB
    del exported
    assert stats("allocated", "cached") == (4 * MIB, MIB)


def test_cycles_are_freed_when_collected(stats):
    holder = [block(MIB)]
    holder.append(holder)
    del holder
    assert stats("allocated") == MIB
    gc.collect()
    assert stats("allocated", "cached") == (0, MIB)


def test_resurrected_arrays_keep_their_block(stats):
    kept = []

    class Phoenix(np.ndarray):
        def __del__(self):
            if not kept:
                kept.append(self)

    x = array_memory._contexts.run(Phoenix, MIB, np.uint8)
    x[:] = 7
    del x
    other = block(MIB)
    other[:] = 1
    assert stats("allocated") == 2 * MIB
    assert (kept[0] == 7).all()


def test_pickles_are_arrays_of_their_own(stats):
    x = block(MIB)
    x[:] = 3
    data = pickle.dumps(x, protocol=5)
    y = pickle.loads(data)
    del x
    block(MIB)[:] = 9
    assert (y == 3).all()
    assert stats("allocated", "cached") == (0, MIB)


def test_resizing_moves_between_small_and_large(stats):
    x = block(1000)
    x[:] = np.arange(1000) % 251
    expected = x.copy()
    for size in (2 * MIB, 500_000, 70_000, 66_000, 3 * MIB, 2000, 65536, 65535, 1000):
        x.resize(size, refcheck=False)
        assert x.size == size
        np.testing.assert_array_equal(x[:1000], expected)
    del x
    assert stats("allocated") == 0
    assert stats("cached") > 0


def test_files_of_unknown_length(stats):
    """`fromiter` reallocates while it reads."""
    x = array_memory._contexts.run(np.fromiter, iter(range(300_000)), np.int64)
    np.testing.assert_array_equal(x, np.arange(300_000))
    del x
    assert stats("allocated") == 0


@pytest.mark.parametrize("size", [65536, MIB, 4 * MIB, 4 * MIB + 123, 9 * MIB + 1])
def test_zeros_are_zeros(stats, size):
    def zeros():
        return array_memory._contexts.run(np.zeros, size, np.uint8)

    dirty = [np.full(size, 255, np.uint8) for _ in range(3)]
    del dirty  # the C library may hand these out
    x = zeros()
    assert not x.any()
    x[:] = 255
    del x
    assert stats("reuses") == 0
    assert not zeros().any()
    assert stats("reuses") == 1


@pytest.mark.parametrize("shape", [(1 << 45,), (1 << 39,), (1 << 31, 1 << 31)])
@pytest.mark.parametrize("make", [np.empty, np.zeros])
def test_too_much_is_refused_and_changes_nothing(stats, make, shape):
    program = f"""
import resource
import numpy as np
from adjoint.backends.native.runtime import array_memory as memory
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
kept = memory.empty(1 << 20, np.uint8)
del kept
assert memory.memory_stats()["cached"] == 1 << 20
try:
    memory._contexts.run(np.{make.__name__}, {shape}, np.uint8)
except (MemoryError, ValueError):
    print("refused", memory.memory_stats()["allocated"])
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout == "refused 0\n", output.stderr


@pytest.mark.parametrize("way", ["malloc", "calloc", "realloc"])
def test_no_block_is_looked_for_that_is_larger_than_all_classes(way):
    """In a table that ends before: what lies behind it are marks of the blocks reused lately."""
    program = f"""
import numpy as np
import adjoint as ad
from adjoint.backends.native.runtime import array_memory as memory
for exponent in range(20, 25):
    for eighth in range(8):
        for _ in range(2):
            memory.empty((1 << exponent) * (8 + eighth) // 8, np.uint8)
ways = {{
    "malloc": lambda n: ad.ones(1, dtype=ad.uint8).expand(n).clone(),
    "calloc": lambda n: memory._contexts.run(np.zeros, n, np.uint8),
    "realloc": lambda n: memory._contexts.run(
        memory.empty(1 << 20, np.uint8).resize, n, refcheck=False
    ),
}}
refused = 0
for exponent in range(41, 63):
    try:
        ways["{way}"](1 << exponent)
    except (MemoryError, ad.ShapeError):  # of more elements than memory has addresses
        refused += 1
print(refused, memory.memory_stats()["allocated"])
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout == "22 0\n", (output.returncode, output.stderr[-1000:])


def test_the_cache_is_bounded(stats):
    array_memory.set_memory_limit(4 * MIB)
    blocks = [block(MIB) for _ in range(10)]
    assert stats("allocated") == 10 * MIB
    while blocks:
        blocks.pop()
        assert stats("cached") <= 4 * MIB
    assert stats("allocated", "cached", "limit") == (0, 4 * MIB, 4 * MIB)
    array_memory.set_memory_limit(MIB + 5)
    assert stats("cached") == MIB
    del blocks[:]
    block(2 * MIB)  # larger than the whole cache may be
    assert stats("cached") == MIB
    array_memory.set_memory_limit(0)
    block(MIB)
    assert stats("cached") == 0


def test_sizes_out_of_use_make_room(stats):
    have_needed(32 * MIB)
    array_memory.set_memory_limit(8 * MIB)
    old = [block(MIB) for _ in range(8)]
    del old
    assert stats("cached") == 8 * MIB
    for _ in range(8):
        new = [block(MIB // 2) for _ in range(8)]
        del new
    reuses = stats("reuses")
    new = [block(MIB // 2) for _ in range(8)]
    assert stats("reuses") == reuses + len(new)


def test_sizes_in_use_stay(stats):
    """Second chance: eviction passes by what was reused since it last came by."""
    have_needed(32 * MIB)
    array_memory.set_memory_limit(8 * MIB)
    for _ in range(2):
        hot = [block(MIB) for _ in range(2)]
        del hot
    cold = [block(2 * MIB) for _ in range(3)]
    del cold
    assert stats("cached") == 8 * MIB
    array_memory._STATE.hand = 0  # smaller sizes first
    large = block(4 * MIB)
    del large
    assert stats("cached") == 8 * MIB
    reuses = stats("reuses")
    again = [block(MIB), block(MIB), block(2 * MIB), block(4 * MIB)]
    assert stats("reuses") == reuses + len(again)
    assert stats("cached") == 0


def test_passes_hold_no_more_than_they_need_until_they_are_known_to_come_again(stats):
    def one_pass():
        for size in (1, 2, 4):
            blocks = [block(size * MIB) for _ in range(4 // size)]
            yield stats("allocated") + stats("cached")
            del blocks

    assert list(one_pass()) == [4 * MIB, 4 * MIB, 4 * MIB]
    assert list(one_pass()) == [4 * MIB, 4 * MIB, 4 * MIB]  # the first may have been another's
    assert stats("reuses") == 0
    assert max(one_pass()) == 12 * MIB  # no size is given up for another a third time
    missed = stats("requests") - stats("reuses")
    list(one_pass())
    assert stats("requests") - stats("reuses") == missed
    array_memory.release_memory()
    assert list(one_pass()) == [4 * MIB, 4 * MIB, 4 * MIB]


def test_more_blocks_of_one_size_than_slots(stats):
    blocks = [block(65536) for _ in range(block_cache.SLOTS + 10)]
    assert stats("allocated") == 65536 * len(blocks)
    del blocks
    assert stats("allocated", "cached") == (0, 65536 * block_cache.SLOTS)


@pytest.mark.parametrize("limit", [0, MIB, 64 * MIB])
def test_no_block_has_two_owners(stats, limit):
    """Threads make, view, hand over and drop arrays, each stamped all over with its own number."""
    array_memory.set_memory_limit(limit)
    numbers = iter(range(1, 1 << 40))
    lock = threading.Lock()
    shared: list[tuple[int, np.ndarray]] = []
    errors: list[str] = []

    def check(number, x):
        if x[0] != number or x[-1] != number or x[len(x) // 2] != number:
            errors.append(f"{number} became {x[0]}, {x[-1]}")

    def work(seed):
        random_ = random.Random(seed)
        mine: list[tuple[int, np.ndarray]] = []
        for step in range(1500):
            action = random_.random()
            if action < 0.5:
                with lock:
                    number = next(numbers)
                x = array_memory.empty(
                    random_.choice((8192, 8200, 9216, 20_000, 131_072)), np.int64
                )
                x[::512] = x[-1] = x[0] = x[len(x) // 2] = number
                mine.append((number, x))
            elif action < 0.6 and mine:
                number, x = mine.pop(random_.randrange(len(mine)))
                mine.append((number, x[:: len(x) // 2]) if len(x) % 2 else (number, x[:]))
            elif action < 0.7 and mine:
                with lock:  # dies in whatever thread takes it
                    shared.append(mine.pop(random_.randrange(len(mine))))
            elif action < 0.8:
                with lock:
                    if shared:
                        mine.append(shared.pop(random_.randrange(len(shared))))
            elif mine:
                check(*mine.pop(random_.randrange(len(mine))))
            if step % 100 == 0 and seed == 0:
                array_memory.release_memory()
        for number, x in mine:
            check(number, x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while shared:
        check(*shared.pop())
    assert not errors
    assert stats("allocated") == 0
    assert stats("cached") <= limit


def test_the_lists_of_blocks_under_threads_without_the_gil(stats):
    """Machine code calls the handler from the pool's threads at once: get, stamp, check, free."""
    text = """
; args: malloc, free, state, failures. Chunk i holds 2 blocks of a size that depends on i.
define void @churn(i64 %begin, i64 %end, ptr %args) {
entry:
  %free.at = getelementptr ptr, ptr %args, i64 1
  %state.at = getelementptr ptr, ptr %args, i64 2
  %failures.at = getelementptr i64, ptr %args, i64 3
  %malloc = load ptr, ptr %args
  %free = load ptr, ptr %free.at
  %state = load ptr, ptr %state.at
  br label %chunk
chunk:
  %i = phi i64 [%begin, %entry], [%next, %chunk]
  %kind = urem i64 %i, 3
  %extra = mul i64 %kind, 10000
  %size = add i64 %extra, 65536
  %a = call ptr %malloc(ptr %state, i64 %size)
  %b = call ptr %malloc(ptr %state, i64 %size)
  %b.stamp = xor i64 %i, -1
  store volatile i64 %i, ptr %a
  store volatile i64 %b.stamp, ptr %b
  %a.seen = load volatile i64, ptr %a
  %b.seen = load volatile i64, ptr %b
  %a.wrong = icmp ne i64 %a.seen, %i
  %b.wrong = icmp ne i64 %b.seen, %b.stamp
  %wrong = or i1 %a.wrong, %b.wrong
  %count = zext i1 %wrong to i64
  %old = atomicrmw add ptr %failures.at, i64 %count monotonic
  call void %free(ptr %state, ptr %a, i64 %size)
  call void %free(ptr %state, ptr %b, i64 %size)
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %end
  br i1 %done, label %return, label %chunk
return:
  ret void
}
"""
    [churn] = object_code.of_text(text, ["churn"])
    allocator = array_memory._cache().allocator
    args = np.array([allocator.malloc, allocator.free, allocator.context, 0], np.int64)
    with Pool(4) as workers:
        for limit in (64 * MIB, 3 * 65536, 0):
            array_memory.set_memory_limit(limit)
            workers.run(churn, args.ctypes.data, 200_000 if limit else 5000)
            assert stats("allocated") == 0
            assert stats("cached") <= limit
    assert args[3] == 0


def test_forked_children_have_copies(stats):
    have_needed(32 * MIB)
    x = block(MIB)
    x[:] = 1
    for size in (MIB, 2 * MIB):
        block(size)[:] = 2

    def child():
        assert stats("allocated", "cached") == (MIB, 3 * MIB)
        y = block(MIB)
        y[:] = 5
        z = block(2 * MIB)
        z[:] = 6
        assert stats("cached", "reuses") == (0, 2)
        assert (x == 1).all()
        array_memory.release_memory()

    for _ in range(10):
        assert in_child(child)
    assert stats("allocated", "cached", "reuses") == (MIB, 3 * MIB, 0)
    assert (x == 1).all()


@few_or_many("forks", 5, 30)
def test_forks_while_threads_allocate(forks, stats):
    done = threading.Event()

    def churn():
        while not done.is_set():
            blocks = [block(MIB) for _ in range(3)]
            del blocks

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(forks):
            assert in_child(lambda: [block(MIB).fill(1) for _ in range(20)])
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_arrays_may_outlive_everything():
    """Arrays in globals, cycles, threads and finalizers when the interpreter ends."""
    program = """
import atexit, sys, threading, time
import numpy as np
from adjoint.backends.native.runtime import array_memory as memory
kept = [memory.empty(1 << 20, np.uint8) for _ in range(5)]
kept.append(kept)
sys.kept = [memory.empty(1 << 20, np.uint8)]
class Late:
    def __del__(self):
        x = memory.empty(1 << 20, np.uint8)
        x[:] = 1
late = Late()
atexit.register(memory.release_memory)
def churn():
    while True:
        memory.empty(1 << 20, np.uint8)[:] = 1
threading.Thread(target=churn, daemon=True).start()
time.sleep(0.05)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_call_in_the_middle_of_a_call_is_served(stats):
    """As by a finalizer: the context cannot be entered again, but it is the current one."""
    x = array_memory._contexts.run(lambda: array_memory.empty(MIB, np.uint8))
    assert get_handler_name(x) == "adjoint"


def test_the_limit_comes_from_the_switch(monkeypatch):
    def limit_with(value):
        program = (
            "from adjoint.backends.native.runtime import array_memory as memory\n"
            "print(memory.memory_stats()['limit'])"
        )
        return subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, env={**os.environ, "ADJOINT_MEMORY_CACHE": value},
        )  # fmt: skip

    assert limit_with("123456").stdout == "123456\n"
    assert limit_with("0").stdout == "0\n"
    memory_size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert int(limit_with("").stdout) == memory_size // 8
    assert "ADJOINT_MEMORY_CACHE=lots: expected a number of bytes" in limit_with("lots").stderr


def test_wrong_limits_are_refused(stats):
    for wrong in (-1, (1 << 62) + 1):
        with pytest.raises(InvalidArgument, match="set_memory_limit"):
            array_memory.set_memory_limit(wrong)
    assert stats("limit") == 64 * MIB


def test_places_in_numpys_table_are_those_of_its_header():
    header = os.path.join(np.get_include(), "numpy", "__multiarray_api.h")
    with open(header) as file:
        text = file.read()
    place = text.split("#define PyDataMem_SetHandler", 1)[1].split("PyArray_API[", 1)[1]
    assert int(place.split("]")[0]) == arrays._ABI["set"]
    place = text.split("#define PyDataMem_GetHandler", 1)[1].split("PyArray_API[", 1)[1]
    assert int(place.split("]")[0]) == arrays._ABI["get"]
