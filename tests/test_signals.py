"""Signals and forks at random moments: the next call works, and nothing has happened in part."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import fork_safety, policy
from adjoint.core.mode import DEFAULT, MODE
from adjoint.core.signal_deferral import DEFERRED, complete

from .native import needs_native
from .signal_storm import RATES, WORKLOADS
from .sweep import few_or_many

ROOT = Path(__file__).parent.parent
MALLOC_CHECKS = "libc_malloc_debug.so.0"  # glibc's, from 2.34 on a library of its own


def _checked() -> dict[str, str]:
    """The environment in which malloc looks for damage."""
    checks = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    return {**os.environ, **checks, "LD_PRELOAD": MALLOC_CHECKS}


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def handled(number: int, handler: Any) -> Any:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def raising(number: int, frame: Any) -> None:
    raise Interrupted


@pytest.mark.parametrize("name", WORKLOADS)
@few_or_many("count", 12, 125)
def test_a_storm_of_signals(name: str, count: int) -> None:
    """In the sweep, 1,000 signals over all workloads."""
    command = [sys.executable, "-m", "tests.signal_storm", name, str(count), str(count)]
    ended = subprocess.run(command, cwd=ROOT, env=_checked(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.rstrip().endswith("END")


def test_the_storm_notices_a_call_that_happens_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import signal_storm

    numbers = [0]

    def torn() -> signal_storm.Workload:
        here = [numbers[0]]
        numbers[0] += 1000  # the calm repetition begins elsewhere
        return lambda: here.__setitem__(0, here[0] + 1), lambda: str(here)

    monkeypatch.setitem(WORKLOADS, "torn", torn)
    monkeypatch.setitem(RATES, "torn", 100)
    kept = {each: signal.getsignal(each) for each in signal_storm.SIGNALS}
    try:
        with pytest.raises(AssertionError, match="in part"):
            signal_storm.storm("torn", 1, 0)
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)


def test_handlers_wait_until_a_block_ends() -> None:
    seen: list[str] = []
    with handled(signal.SIGUSR1, lambda *_: seen.append("handled")):
        with DEFERRED, DEFERRED:
            signal.raise_signal(signal.SIGUSR1)
            seen.append("inside")
        seen.append("behind")
    assert seen == ["inside", "handled", "behind"]


def test_what_a_handler_raises_appears_behind_the_block() -> None:
    seen = []
    with handled(signal.SIGUSR1, raising):
        with pytest.raises(Interrupted), DEFERRED:
            signal.raise_signal(signal.SIGUSR1)
            seen.append("inside")
        assert signal.getsignal(signal.SIGUSR1) is raising
    assert seen == ["inside"]


def test_a_handler_that_is_set_within_a_block_stays() -> None:
    def other(number: int, frame: Any) -> None:
        """Do nothing."""

    with handled(signal.SIGUSR1, raising):
        with DEFERRED:
            signal.signal(signal.SIGUSR1, other)
        assert signal.getsignal(signal.SIGUSR1) is other


def test_an_endless_loop_can_be_left_within_a_block() -> None:
    with handled(signal.SIGUSR1, raising):
        with pytest.raises(Interrupted), DEFERRED:
            signal.raise_signal(signal.SIGUSR1)
            while True:
                DEFERRED.poll()
        assert signal.getsignal(signal.SIGUSR1) is raising and DEFERRED.depth == 0


def test_a_compiled_loop_that_never_ends_is_interrupted() -> None:
    """Also one behind which an optimizer steps: the step has not happened then."""
    w = nn.Parameter(ad.ones(3))
    optimizer = ad.optim.SGD([w], 0.1)

    @ad.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (n,) = ad.while_loop(lambda n: n < 1, lambda n: (n * 1,), (x,))
        loss = (w * n).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(ad.tensor(2.0))
    before = w.tolist()
    with handled(signal.SIGALRM, raising):
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                step(ad.tensor(0.0))
            assert w.tolist() == before
    step(ad.tensor(2.0))
    assert w.tolist() != before


def test_all_actions_are_completed_whatever_they_raise() -> None:
    done: list[int] = []
    tries = [0]

    def once() -> None:
        tries[0] += 1
        if tries[0] == 1:
            raise Interrupted
        done.append(1)

    with pytest.raises(Interrupted):
        complete([once, lambda: done.append(2)])
    assert done == [1, 2]


@pytest.mark.parametrize("block", [ad.no_grad, lambda: ad.autocast("cpu"), ad.Graph])
def test_a_signal_at_each_call_around_a_block_leaves_the_mode(block: Any) -> None:
    """A KeyboardInterrupt wherever CPython delivers one: behind calls of C functions, and at the
    begin of Python's.
    """
    for at in range(60):
        count = [0]

        def profile(frame: Any, event: str, arg: Any, at: int = at, count: Any = count) -> None:
            if event in ("call", "c_return"):
                count[0] += 1
                if count[0] == at:
                    sys.setprofile(None)
                    raise Interrupted

        try:
            made = block()
            sys.setprofile(profile)
            with made:
                pass
        except Interrupted:
            pass
        finally:
            sys.setprofile(None)
        assert MODE.get() is DEFAULT, at


@contextlib.contextmanager
def another_thread(work: Any) -> Any:
    """Within it, another thread repeats `work`."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_handler_that_calls_anything_is_no_part_of_a_function_that_is_captured() -> None:
    opened = []

    def handler(number: int, frame: Any) -> None:
        with open(os.devnull) as file:
            opened.append(file.name)

    def send() -> None:
        time.sleep(0.0005)
        os.kill(os.getpid(), signal.SIGUSR1)

    def function(x: Any) -> Any:
        for _ in range(200):
            x = x * 1.5 - x
        return x

    with handled(signal.SIGUSR1, handler), another_thread(send):
        for n in range(1, 6):
            assert ad.compile(function)(ad.ones(n)).shape == (n,)
    assert opened and gc.isenabled() and sys.getprofile() is None


# ---- forks -------------------------------------------------------------------------------------


def test_a_fork_has_all_locks_and_gives_them_back() -> None:
    mine = fork_safety.lock()
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with mine:
            held.set()
            go.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if mine.acquire(blocking=False) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert time.monotonic() - began > 0.1  # it has waited for the other thread
    thread.join()
    assert mine.acquire(blocking=False)
    mine.release()


def test_a_lock_that_is_held_for_long_is_anew_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FORK_PATIENCE", 0.05)
    mine = fork_safety.lock()
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with mine:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if mine.acquire(blocking=False) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not mine.acquire(blocking=False)  # the parent's thread has it still
    go.set()
    thread.join()


def _forks(count: int, child: Any) -> int:
    """How many of so many children hang."""
    hung = 0
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                child()
            finally:
                os._exit(0)
        hung += os.waitpid(pid, 0)[1] != 0
    return hung


@few_or_many("count", 4, 60)
@pytest.mark.parametrize("work", ["call", "compile", "backward"])
def test_children_of_a_process_whose_threads_work_do_not_hang(work: str, count: int) -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.GELU(), nn.Linear(40, 5))
    x = ad.randn(20, 30)
    known, other = ad.compile(lambda x: model(x).softmax(-1)), ad.compile(lambda x: (x * 2).exp())
    known(x), other(x)
    numbers = [0]

    def compiles() -> None:
        numbers[0] += 1
        factor = numbers[0]
        ad.compile(lambda x: (x * factor).sum() + factor)(x[: factor % 20 + 1])

    def backward() -> None:
        model(x).sum().backward()

    def child() -> None:
        known(x), other(x), compiles(), backward()
        ((x[:7] @ x[:7].t()).exp().cumsum(0) * 3).sum().item()

    run = {"call": lambda: known(x), "compile": compiles, "backward": backward}[work]
    given_up = fork_safety.given_up[0]
    with another_thread(run), another_thread(run):
        assert _forks(count, child) == 0
    assert fork_safety.given_up[0] == given_up  # each got all locks in time


@needs_native
def test_what_a_handler_raises_leaves_the_lock_of_llvm_free() -> None:
    """The lock that finalizers of its objects take, too, wherever they run."""
    import llvmlite.binding as llvm

    (ad.ones(3000) * 2.5 + 1).sum()  # LLVM is ready to use
    lock = llvm.ffi.lib._lock

    class Alarmed(Exception):
        pass

    def alarm(number: int, frame: Any) -> None:
        raise Alarmed

    before = signal.signal(signal.SIGALRM, alarm)
    rng, raised = random.Random(0), 0
    try:
        while raised < 300:
            with contextlib.suppress(Alarmed):
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-4))
                while True:
                    with lock:
                        raised += 0
            raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    other = threading.Thread(target=llvm.get_default_triple, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()
