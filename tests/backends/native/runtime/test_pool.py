"""The thread pool: every chunk runs exactly once, whatever callers, forks and sizes do."""

from __future__ import annotations

import ctypes
import os
import random
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("llvmlite")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux"),
    # Python 3.12 and later warn of what these tests show to be safe.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

from adjoint.backends.native.runtime import cores, object_code, pool, worker_loop  # noqa: E402
from adjoint.backends.native.runtime.pool import Pool  # noqa: E402
from adjoint.core.errors import InvalidArgument, InvalidType  # noqa: E402
from tests.sweep import few_or_many  # noqa: E402

CODE = """
declare i32 @sched_yield()

; args[i] += 1 for each chunk i; not atomic, so a chunk that runs twice at a time may show, too.
define void @count(i64 %begin, i64 %end, ptr %args) {
entry:
  br label %chunk
chunk:
  %i = phi i64 [%begin, %entry], [%next, %chunk]
  %at = getelementptr i64, ptr %args, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %end
  br i1 %done, label %return, label %chunk
return:
  ret void
}

; Adds 1 to args[0] per chunk, and waits in each until it is args[1]; args[2]: gave up waiting.
define void @meet(i64 %begin, i64 %end, ptr %args) {
entry:
  %target.at = getelementptr i64, ptr %args, i64 1
  %target = load i64, ptr %target.at
  %old = atomicrmw add ptr %args, i64 1 seq_cst
  br label %look
look:
  %turn = phi i64 [0, %entry], [%turn.next, %again]
  %seen = load atomic i64, ptr %args seq_cst, align 8
  %met = icmp sge i64 %seen, %target
  br i1 %met, label %return, label %again
again:
  %ignored = call i32 @sched_yield()
  %turn.next = add i64 %turn, 1
  %enough = icmp eq i64 %turn.next, 20000000
  br i1 %enough, label %fail, label %look
fail:
  %failed.at = getelementptr i64, ptr %args, i64 2
  store atomic i64 1, ptr %failed.at seq_cst, align 8
  ret void
return:
  ret void
}

; Chunk 0 waits until args[0] is args[1]; every other chunk adds 1 to it; args[2]: gave up waiting.
define void @first_waits(i64 %begin, i64 %end, ptr %args) {
entry:
  %first = icmp eq i64 %begin, 0
  br i1 %first, label %wait, label %add
add:
  %length = sub i64 %end, %begin
  %old = atomicrmw add ptr %args, i64 %length seq_cst
  ret void
wait:
  %target.at = getelementptr i64, ptr %args, i64 1
  %target = load i64, ptr %target.at
  br label %look
look:
  %turn = phi i64 [0, %wait], [%turn.next, %again]
  %seen = load atomic i64, ptr %args seq_cst, align 8
  %met = icmp sge i64 %seen, %target
  br i1 %met, label %return, label %again
again:
  %ignored = call i32 @sched_yield()
  %turn.next = add i64 %turn, 1
  %enough = icmp eq i64 %turn.next, 20000000
  br i1 %enough, label %fail, label %look
fail:
  %failed.at = getelementptr i64, ptr %args, i64 2
  store atomic i64 1, ptr %failed.at seq_cst, align 8
  ret void
return:
  ret void
}

; Each chunk i runs a loop of its own: 8 chunks of `count`. args: run, state, count, counters.
define void @nested(i64 %begin, i64 %end, ptr %args) {
entry:
  %state.at = getelementptr ptr, ptr %args, i64 1
  %count.at = getelementptr ptr, ptr %args, i64 2
  %counters.at = getelementptr ptr, ptr %args, i64 3
  %run = load ptr, ptr %args
  %state = load ptr, ptr %state.at
  %count = load ptr, ptr %count.at
  %counters = load ptr, ptr %counters.at
  br label %chunk
chunk:
  %i = phi i64 [%begin, %entry], [%next, %chunk]
  %offset = mul i64 %i, 8
  %mine = getelementptr i64, ptr %counters, i64 %offset
  call void %run(ptr %state, ptr %count, ptr %mine, i64 8)
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %end
  br i1 %done, label %return, label %chunk
return:
  ret void
}

define i32 @weigh(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h) {
  %g10 = mul i64 %g, 10
  %h100 = mul i64 %h, 100
  %ab = add i64 %a, %b
  %abg = add i64 %ab, %g10
  %abgh = add i64 %abg, %h100
  %result = trunc i64 %abgh to i32
  ret i32 %result
}
"""


class Kernels:
    names = ("count", "meet", "first_waits", "nested", "weigh")
    count: int
    meet: int
    first_waits: int
    nested: int
    weigh: int


@pytest.fixture(scope="module")
def kernels():
    found = Kernels()
    for name, address in zip(Kernels.names, object_code.of_text(CODE, Kernels.names), strict=True):
        setattr(found, name, address)
    return found


class Counters:
    """How often each chunk should have run, and did."""

    def __init__(self, size=256):
        self.expected = np.zeros(size, np.int64)
        self.counts = np.zeros(size, np.int64)
        self.address = self.counts.ctypes.data

    def run(self, workers, kernel, chunks):
        self.expected[:chunks] += 1
        workers.run(kernel, self.address, chunks)

    def check(self):
        np.testing.assert_array_equal(self.counts, self.expected)


def in_threads(function, count):
    """Run `function(i)` in `count` threads; what any of them raised is raised here."""
    errors = []

    def guarded(i):
        try:
            function(i)
        except BaseException as error:  # re-raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def busy_cores(count):
    """Other processes that keep cores busy."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def exit_code_of_child(function):
    """Fork; the child calls `function` and ends with 0 if it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_each_chunk_runs_exactly_once_in_100_000_random_loops(kernels):
    random_ = random.Random(0)
    counters = Counters()
    with Pool(4) as workers:
        for i in range(100_000):
            if i % 500 == 0:
                workers.set_num_threads(random_.randint(1, 6))
                workers.set_spin(random_.choice((0, 1, 100)))
            counters.run(workers, kernels.count, random_.randint(1, 100))
            if i % 10 == 0:  # what a loop did is there when it returns
                counters.check()
    counters.check()


DAWDLE = """
@chance = internal global i64 88172645463325252

; Now and then lets other threads go first, or passes some time.
define internal void @dawdle() {
entry:
  %old = load atomic i64, ptr @chance monotonic, align 8
  %product = mul i64 %old, 6364136223846793005
  %new = add i64 %product, 1442695040888963407
  store atomic i64 %new, ptr @chance monotonic, align 8
  %luck = lshr i64 %new, 59
  %yields = icmp ult i64 %luck, 2
  br i1 %yields, label %yield, label %wait
yield:
  %ignored = call i32 @sched_yield()
  ret void
wait:
  %waits = icmp ult i64 %luck, 6
  br i1 %waits, label %spin, label %return
spin:
  %i = phi i64 [0, %wait], [%next, %spin]
  %seen = load volatile i64, ptr @chance
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, 1000
  br i1 %done, label %return, label %spin
return:
  ret void
}
"""


def test_whatever_is_slow(kernels, monkeypatch):
    """The same machine code with a random delay before each atomic access: all races get wide."""
    lines = []
    for line in worker_loop.text(yield_after=1000, wait_spin=1000).splitlines():
        if re.search(r"= (cmpxchg|atomicrmw|load atomic) ", line):
            lines.append("  call void @dawdle()")
        lines.append(line)
    assert lines.count("  call void @dawdle()") > 15
    text = "\n".join(lines) + DAWDLE
    code = worker_loop.WorkerLoopCode(
        *object_code.of_text(text, worker_loop.WorkerLoopCode._fields)
    )
    monkeypatch.setattr(worker_loop, "code", lambda: code)
    with Pool(4) as workers:

        def caller(i):
            random_ = random.Random(i)
            counters = Counters()
            for j in range(3000):
                counters.run(workers, kernels.count, random_.randint(1, 30))
                counters.check()
                if i == 0 and j % 30 == 0:
                    workers.set_spin(random_.choice((0, 1, 20)))
                    workers.set_num_threads(random_.randint(2, 5))

        in_threads(caller, 3)


def test_large_loops_are_claimed_in_pieces(kernels):
    counters = Counters(1_000_003)
    with Pool(3) as workers:
        for chunks in (1_000_003, 999_999, 12_345, 49, 48, 47):
            counters.run(workers, kernels.count, chunks)
    counters.check()


def test_no_chunks_is_no_call():
    with Pool(2) as workers:
        workers.run(1, 0, 0)  # nothing could be called at this address
        workers.run(1, 0, -5)


def test_many_threads_call_at_once(kernels):
    with Pool(4) as workers:

        def caller(i):
            random_ = random.Random(i)
            counters = Counters()
            for _ in range(3000):
                counters.run(workers, kernels.count, random_.randint(1, 100))
                counters.check()

        in_threads(caller, 8)


def test_kernels_may_run_loops(kernels):
    chunks = 64
    counters = np.zeros(8 * chunks, np.int64)
    with Pool(4) as workers:
        run, state = workers.entry()
        args = np.array([run, state, kernels.count, counters.ctypes.data], np.int64)
        for _ in range(200):
            workers.run(kernels.nested, args.ctypes.data, chunks)
    assert (counters == 200).all()


@pytest.mark.parametrize("threads", [2, 4, 7])
def test_all_threads_take_part(kernels, threads):
    """Each chunk waits for all others to have begun, so each needs a thread of its own."""
    with Pool(threads) as workers:
        for spin in (1000, 0):
            workers.set_spin(spin)
            args = np.array([0, threads, 0], np.int64)
            time.sleep(0.002)  # without spin, the workers sleep by now
            workers.run(kernels.meet, args.ctypes.data, threads)
            assert args.tolist() == [threads, threads, 0]


def test_what_a_stuck_thread_leaves_is_taken_by_others(kernels):
    """Share 0 belongs to the caller, who is stuck in its first chunk until all others have run."""
    with Pool(2) as workers:
        args = np.array([0, 31, 0], np.int64)
        workers.run(kernels.first_waits, args.ctypes.data, 32)
        assert args.tolist() == [31, 31, 0]


def test_threads_change_while_loops_run(kernels):
    with Pool(4) as workers:
        stop = threading.Event()

        def work(i):
            if i == 0:
                random_ = random.Random(0)
                for _ in range(60):
                    workers.set_num_threads(random_.randint(1, 8))
                    time.sleep(0.0005)
                stop.set()
                return
            counters = Counters()
            while not stop.is_set():
                counters.run(workers, kernels.count, 50)
                counters.check()

        in_threads(work, 3)
        assert 1 <= workers.num_threads <= 8


def test_closed_pools_have_no_threads_and_start_again(kernels):
    before = threading.active_count()
    counters = Counters()
    workers = Pool(5)
    assert threading.active_count() == before  # nothing before the first loop
    for _ in range(50):
        counters.run(workers, kernels.count, 20)
        assert threading.active_count() == before + 4
        workers.close()
        assert threading.active_count() == before
    counters.check()


def test_a_kept_run_goes_on_through_all_changes(kernels):
    counters = Counters()
    with Pool(2) as workers:
        workers.entry()
        run = workers.run
        for threads in (4, 1, 3):
            workers.set_num_threads(threads)
            counters.expected[:threads] += 1
            run(kernels.count, counters.address, threads)
            args = np.array([0, threads, 0], np.int64)
            run(kernels.meet, args.ctypes.data, threads)
            assert args.tolist() == [threads, threads, 0]
        assert exit_code_of_child(lambda: run(kernels.count, counters.address, 50)) == 0
    counters.expected[:50] += 1
    run(kernels.count, counters.address, 50)  # closed: the workers come back
    workers.close()
    counters.check()


def test_busy_cores(kernels):
    counters = Counters()
    with busy_cores(os.cpu_count() or 1), Pool(4) as workers:
        for i in range(2000):
            counters.run(workers, kernels.count, 1 + i % 97)
            counters.check()


@few_or_many("forks", 5, 30)
def test_forked_children_have_workers_of_their_own(forks, kernels):
    counters = Counters()
    with Pool(3) as workers:
        address = workers.entry()
        for i in range(forks):
            counters.run(workers, kernels.count, 30)

            def child(i=i):
                assert threading.active_count() == 1
                assert workers.entry() == address
                assert threading.active_count() == 3
                if i % 2:
                    workers.set_num_threads(2)
                for _ in range(20):
                    counters.run(workers, kernels.count, 60)
                counters.check()

            assert exit_code_of_child(child) == 0
        counters.check()


@few_or_many("forks", 5, 30)
def test_forks_while_other_threads_run_loops(forks, kernels):
    with Pool(4) as workers:
        done = threading.Event()

        def work(i):
            counters = Counters()
            if i:
                while not done.is_set():
                    counters.run(workers, kernels.count, 100)
                    counters.check()
                return
            try:
                for _ in range(forks):

                    def child():
                        for _ in range(10):
                            counters.run(workers, kernels.count, 100)
                        counters.check()

                    assert exit_code_of_child(child) == 0
            finally:
                done.set()

        in_threads(work, 4)


@few_or_many("forks", 5, 20)
def test_forks_while_threads_come_and_go(forks, kernels):
    with Pool(4) as workers:
        done = threading.Event()

        def work(i):
            counters = Counters()
            if i:
                while not done.is_set():
                    workers.close()
                    counters.run(workers, kernels.count, 10)
                counters.check()
                return
            try:
                for _ in range(forks):
                    assert exit_code_of_child(lambda: counters.run(workers, kernels.count, 9)) == 0
            finally:
                done.set()

        in_threads(work, 2)


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "import os; os._exit(0)"])
def test_programs_end_while_loops_run(ending):
    """When a program ends, a daemon thread is in a loop and workers are in it, spin or sleep."""
    program = f"""
import atexit, ctypes, threading, time
from adjoint.backends.native.runtime import object_code, pool
[address] = object_code.of_text("define void @k(i64 %a, i64 %b, ptr %c) {{ ret void }}", ["k"])
workers = pool.Pool(4)
def loops():
    while True:
        workers.run(address, 0, 100)
thread = threading.Thread(target=loops, daemon=True)
thread.start()
others = pool.Pool(3)
others.run(address, 0, 3)
pool.run(address, 0, 3)
atexit.register(others.run, address, 0, 3)
time.sleep(0.05)
{ending}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_loops_without_workers(kernels, monkeypatch):
    """Where there is no machine code for the workers, loops are serial."""

    def missing():
        raise worker_loop.Unsupported("no pool here")

    monkeypatch.setattr(worker_loop, "code", missing)
    counters = Counters()
    workers = Pool(4)
    for chunks in (0, 1, 77):
        counters.run(workers, kernels.count, chunks)
    counters.check()


def test_library_functions_run_once_a_record(kernels):
    weigh = pool.library_loop(kernels.weigh, 8)
    records = np.zeros((500, 9), np.int64)
    records[:, :8] = np.random.default_rng(0).integers(-1000, 1000, (500, 8))
    records[:, 8] = 12345
    before = records.copy()
    with Pool(4) as workers:
        workers.run(weigh, records.ctypes.data, len(records))
    np.testing.assert_array_equal(records[:, :8], before[:, :8])
    a, b, *_, g, h = before[:, :8].T
    np.testing.assert_array_equal(records[:, 8], a + b + 10 * g + 100 * h)


def test_library_functions_of_the_c_library():
    library = ctypes.CDLL(None)
    getpid, memcmp = (
        ctypes.cast(library[name], ctypes.c_void_p).value for name in ("getpid", "memcmp")
    )
    statuses = np.zeros((10, 1), np.int64)
    pool.run(pool.library_loop(getpid, 0), statuses.ctypes.data, 10)
    assert (statuses == os.getpid()).all()
    words = [b"same", b"past", b"zero"]
    other = b"same"
    pointers = [ctypes.cast(word, ctypes.c_void_p).value for word in (*words, other)]
    records = np.array([[p, pointers[3], 4, 99] for p in pointers[:3]], np.int64)
    pool.run(pool.library_loop(memcmp, 3), records.ctypes.data, 3)
    assert np.sign(records[:, 3]).tolist() == [0, -1, 1]


def test_library_loops_are_made_once(kernels):
    assert pool.library_loop(kernels.weigh, 8) == pool.library_loop(kernels.weigh, 8)
    with pytest.raises(InvalidArgument, match="library_loop"):
        pool.library_loop(0, 1)
    with pytest.raises(InvalidArgument, match="-1 arguments"):
        pool.library_loop(kernels.weigh, -1)


@pytest.mark.parametrize(
    "arguments", [(), (1, 2), (0, 0, 1), ("a", 0, 1), (1.5, 0, 1), (1, 0, None)]
)
def test_wrong_calls_are_refused(arguments):
    with Pool(2) as workers:
        workers.entry()
        with pytest.raises(TypeError):
            workers.run(*arguments)


def test_wrong_thread_counts_are_refused():
    with pytest.raises(InvalidArgument, match="from 1 to 256, not 0"):
        Pool(0)
    workers = Pool(2)
    with pytest.raises(InvalidType, match="not bool"):
        workers.set_num_threads(True)
    with pytest.raises(InvalidArgument, match="not 257"):
        workers.set_num_threads(257)
    with pytest.raises(InvalidArgument, match="set_spin"):
        workers.set_spin(-1)
    assert workers.num_threads == 2


def test_default_number_of_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("ADJOINT_NUM_THREADS", raising=False)
    assert cores.default_num_threads() == cores.usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert cores.default_num_threads() == 3
    monkeypatch.setenv("ADJOINT_NUM_THREADS", "5")
    assert cores.default_num_threads() == 5
    for wrong in ("0", "-1", "many", "2.5"):
        monkeypatch.setenv("ADJOINT_NUM_THREADS", wrong)
        with pytest.raises(InvalidArgument, match=f"ADJOINT_NUM_THREADS={wrong}"):
            cores.default_num_threads()


class System:
    """A made-up system's files under a folder."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    @property
    def cores(self):
        return cores.usable_cores(str(self.root))


def test_usable_cores_follow_affinity_hyperthreads_and_quotas(tmp_path, monkeypatch):
    system = System(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert system.cores == 8  # no files: processors count as cores
    for i in range(8):
        path = f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list"
        system.write(path, f"{i % 4},{i % 4 + 4}")
    assert system.cores == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4}, raising=False)
    assert system.cores == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    system.write("proc/self/cgroup", "0::/a/b")
    system.write("sys/fs/cgroup/a/b/cpu.max", "max 100000")
    assert system.cores == 4
    system.write("sys/fs/cgroup/a/cpu.max", "350000 100000")
    assert system.cores == 3
    system.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000")
    assert system.cores == 1
    system.write("proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/c\n0::/")
    assert system.cores == 4
    system.write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "200000")
    system.write("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000")
    assert system.cores == 2
    system.write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1")
    assert system.cores == 4
