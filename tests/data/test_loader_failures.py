"""DataLoader workers that raise, die or hang: reported at once, and nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import adjoint as ad
from adjoint import data
from adjoint.data import channel

from ..sweep import swept


class Bad(data.Dataset):
    """Item 1 misbehaves as told, item 2 takes a minute."""

    def __init__(self, what):
        self.what = what
        self.slow = multiprocessing.Value("i", 0)  # items 2 that a worker has done

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 1:
            self.what()
        if i == 2:
            time.sleep(60)
            self.slow.value += 1
        return ad.zeros(100, 100)


class Own(Exception):
    pass


def raise_local():
    class Local(Exception):
        pass

    raise Local("of a class that has no name")


def fail():
    raise Own("as it happens")


def lookup():
    return {}["k"]


def stop():
    raise StopIteration


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(7)


def leave_politely():
    sys.exit(8)


@pytest.mark.parametrize("persistent", [False, swept(True)])
@pytest.mark.parametrize(
    ("what", "error", "match"),
    [
        (fail, Own, r"(?s)Caught Own in DataLoader worker process 1.*in fail.*as it happens"),
        (raise_local, RuntimeError, "(?s)Caught Local in.*of a class that has no name"),
        (stop, RuntimeError, "(?s)Caught StopIteration in.*in stop"),
        (lookup, KeyError, r"(?s)process 1\.\nOriginal Traceback.*KeyError: 'k'"),
        (kill, RuntimeError, "killed by signal 9"),
        (leave, RuntimeError, "ended with code 7"),
        (leave_politely, RuntimeError, "ended with code 8"),
    ],
    ids=["raises", "raises local", "stops", "key", "killed", "_exit", "sys.exit"],
)
def test_failures_are_reported_although_another_worker_is_busy(what, error, match, persistent):
    # Worker 0 is asleep in item 2 when worker 1 fails in item 1.
    dataset = Bad(what)
    before = resources()
    loader = data.DataLoader(
        dataset, None, sampler=[0, 1, 2, 3], num_workers=2, persistent_workers=persistent
    )
    batches = iter(loader)
    with pytest.raises(error, match=match):
        for _ in range(2):  # a death is reported before batches that were made earlier
            next(batches)
    assert dataset.slow.value == 0
    with pytest.raises(StopIteration):
        next(batches)
    del batches, loader
    assert resources() == before


def test_a_death_is_reported_although_another_worker_is_waited_for():
    dataset = Bad(kill)
    loader = data.DataLoader(dataset, None, sampler=[2, 1], num_workers=2)
    with pytest.raises(RuntimeError, match="killed by signal 9"):
        next(iter(loader))
    assert dataset.slow.value == 0


def test_a_worker_killed_from_outside_between_passes():
    loader = data.DataLoader(range(100), num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 100
    killed = multiprocessing.active_children()[0]
    killed.kill()
    killed.join()
    with pytest.raises(RuntimeError, match="killed by signal 9"):
        list(loader)
    assert len(list(loader)) == 100  # with new workers


def resources():
    """Child processes and open files of this process."""
    gc.collect()
    return len(multiprocessing.active_children()), len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files")
@pytest.mark.parametrize("persistent", [False, True])
def test_nothing_leaks(persistent):
    def use():
        options = {"num_workers": 2, "persistent_workers": persistent}
        loader = data.DataLoader(data.TensorDataset(ad.ones(64, 64, 64)), 4, **options)
        kept = list(loader)
        for _ in loader:
            break
        assert len(kept) == 16

    use()
    before = resources()
    for _ in range(2):
        use()
    assert resources() == before


def test_many_large_batches_can_be_kept():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + channel.MOST_MAPPED + 20, before[1]))
    try:
        kept = list(data.DataLoader(data.TensorDataset(ad.ones(128, 100, 100)), num_workers=1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(kept) == 128 and all(x.sum().item() == 10_000 for (x,) in kept)


ORPHANS = """
import os, signal, sys, time
import adjoint as ad
class Slow(ad.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i): return os.getpid()
batches = iter(ad.data.DataLoader(Slow(), None, num_workers=2))
print(next(batches), next(batches), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_loop_is_killed():
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", ORPHANS], cwd=root, capture_output=True, text=True, timeout=600
    )
    workers = [int(pid) for pid in result.stdout.split()]
    assert len(workers) == 2, result.stderr
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Unreadable:
    def __reduce__(self):
        return (int, ("not a number",))


def test_an_answer_that_cannot_be_read_ends_the_pass():
    batches = iter(data.DataLoader([Unreadable()] * 4, None, num_workers=1))
    with pytest.raises(ValueError, match="not a number"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
