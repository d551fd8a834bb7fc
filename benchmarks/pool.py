"""The native backend's threads and memory: what a loop costs to start, a busy core, page faults."""

from __future__ import annotations

import contextvars
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from adjoint.backends.native.runtime import array_memory, object_code
from adjoint.backends.native.runtime.pool import Pool

from .timing import _time, compare, row

CODE = """
define void @nothing(i64 %begin, i64 %end, ptr %args) { ret void }

; Starts `times` loops of n chunks.
define void @repeat(ptr %run, ptr %state, ptr %kernel, i64 %n, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  call void %run(ptr %state, ptr %kernel, ptr null, i64 %n)
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %times
  br i1 %done, label %return, label %loop
return:
  ret void
}

; y = x * x + x; args: x, y, elements per chunk (a multiple of 16).
define void @polynomial(i64 %begin, i64 %end, ptr %args) {
entry:
  %y.at = getelementptr ptr, ptr %args, i64 1
  %length.at = getelementptr i64, ptr %args, i64 2
  %x = load ptr, ptr %args
  %y = load ptr, ptr %y.at
  %length = load i64, ptr %length.at
  %first = mul i64 %begin, %length
  %last = mul i64 %end, %length
  br label %vector
vector:
  %i = phi i64 [%first, %entry], [%next, %vector]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load <16 x float>, ptr %from, align 4
  %square = fmul <16 x float> %value, %value
  %sum = fadd <16 x float> %square, %value
  store <16 x float> %sum, ptr %to, align 4
  %next = add i64 %i, 16
  %done = icmp uge i64 %next, %last
  br i1 %done, label %return, label %vector
return:
  ret void
}
"""
SIZES = {"64 Ki": 1 << 16, "1 Mi": 1 << 20, "16 Mi": 1 << 24}
CHUNK = 1 << 13  # elements
ROUNDS = 15


class BusyProcess:
    """Another program that computes without end, once started."""

    def __init__(self) -> None:
        self.program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        time.sleep(0.2)
        self.program.send_signal(signal.SIGSTOP)

    @contextmanager
    def computing(self) -> Iterator[None]:
        self.program.send_signal(signal.SIGCONT)
        time.sleep(0.02)
        yield
        self.program.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        self.program.kill()
        self.program.wait()


def overhead(nothing: int, repeat: int) -> None:
    """What an empty loop takes: from machine code and from Python."""
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(repeat)
    print(f"\n{'Starting and ending an empty loop':44s} {'code ns':>10s} {'Python ns':>11s}")
    for threads in (1, 2, 4):
        with Pool(threads) as workers:
            run, state = workers.entry()
            inner, outer = [], []
            for _ in range(ROUNDS):
                call(run, state, nothing, threads, 100)
                loops = partial(call, run, state, nothing, threads, 10_000)
                inner.append(_time(loops, 1) / 10)
                outer.append(_time(partial(workers.run, nothing, 0, threads), 5000) * 1000)
            label = f"{threads} threads, a chunk each"
            print(f"{label:44s} {statistics.median(inner):10.0f} {statistics.median(outer):11.0f}")


def busy_core(polynomial: int, threads: int) -> None:
    """x * x + x beside PyTorch's one-pass `addcmul`, with all cores free and with one busy."""
    torch.set_num_threads(threads)
    busy = BusyProcess()
    for label, size in SIZES.items():
        x, y, theirs_y = torch.randn(size), torch.empty(size), torch.empty(size)
        args = np.array([x.data_ptr(), y.data_ptr(), CHUNK], np.int64)
        work = (polynomial, args.ctypes.data, size // CHUNK)
        with Pool(threads) as workers, Pool(1) as alone:
            for each in (workers, alone):
                each.entry()  # `run` is machine code from here on
            functions: dict[str, Callable[[], object]] = {
                "pool": partial(workers.run, *work),
                "one thread": partial(alone.run, *work),
                "PyTorch": partial(torch.addcmul, x, x, x, out=theirs_y),
            }
            quiet: dict[str, list[float]] = {name: [] for name in functions}
            loaded: dict[str, list[float]] = {name: [] for name in functions}
            for _ in range(ROUNDS):
                for name, function in functions.items():
                    calls = max(3, int(3e4 / _time(function, 3)))
                    quiet[name].append(_time(function, calls))
                    with busy.computing():
                        until = time.perf_counter() + 0.1
                        times = []
                        while time.perf_counter() < until:
                            times.append(_time(function, 1))
                        loaded[name].append(statistics.mean(times))
            assert torch.allclose(y, theirs_y, atol=1e-6)  # where x is -1, rounding is all there is
        title = f"x * x + x, {label} floats, {threads} threads"
        print(f"\n{title:44s} {'free us':>10s} {'one busy us':>11s} {'slowdown':>9s}  quartiles")
        for name in functions:
            pairs = zip(loaded[name], quiet[name], strict=True)
            slowdowns = statistics.quantiles((b / f for b, f in pairs), n=4)
            free, full = statistics.median(quiet[name]), statistics.median(loaded[name])
            print(
                f"{name:44s} {free:10.1f} {full:11.1f} {slowdowns[1]:9.2f}  "
                f"{slowdowns[0]:.2f} to {slowdowns[2]:.2f}",
                flush=True,
            )
    busy.end()


def _added(run: Callable[..., object], size: int) -> Callable[[], None]:
    """Two sums, both alive, so that NumPy needs memory for them."""
    x = run(np.ones, size, np.float32)

    def add() -> None:
        both = run(np.add, x, x), run(np.add, x, x)
        del both

    return add


def page_faults() -> None:
    """NumPy's `add` with reused memory (ours) and with NumPy's own allocator (theirs)."""
    title = "NumPy: two sums x + x"
    print(f"\n{title:44s} {'reused us':>10s} {'NumPy us':>11s} {'ratio':>7s}  quartiles")
    with np.errstate(all="ignore"):  # such contexts are what adjoint computes in
        ours, theirs = contextvars.copy_context().run, contextvars.copy_context().run
    array_memory.use_in(ours)
    for label, size in {"16": 16, "16 Ki": 1 << 14, **SIZES}.items():
        row(f"{label} floats", compare(_added(ours, size), _added(theirs, size)))
    program = """
import contextvars, resource
import numpy as np
from adjoint.backends.native.runtime import array_memory as memory
run = contextvars.Context().run
if {reuse}:
    memory.use_in(run)
x = run(np.ones, 1 << 24, np.float32)
for _ in range(20):
    y = run(np.add, x, x)
    z = run(np.multiply, y, run(np.add, y[: 1 << 23], 1)[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    peaks = {}
    for reuse in (True, False):
        command = [sys.executable, "-c", program.format(reuse=reuse)]
        peaks[reuse] = float(subprocess.run(command, capture_output=True, check=True).stdout)
    print(f"peak memory of a program with 16 Mi floats: {peaks[True]:.0f} MiB reused, "
          f"{peaks[False]:.0f} MiB not")  # fmt: skip


def main() -> None:
    """Print the tables."""
    nothing, repeat, polynomial = object_code.of_text(CODE, ["nothing", "repeat", "polynomial"])
    overhead(nothing, repeat)
    for threads in dict.fromkeys((2, os.cpu_count() or 1)):
        busy_core(polynomial, threads)
    page_faults()


if __name__ == "__main__":
    main()
