"""An hour of everything in one process: training, sizes and numbers that change, graphs, compiled
steps, files, loaders whose workers are killed.

Run: python -m tests.soak [--minutes 60] [--rounds N] [--every 25]

A round does one thing of each kind, drawn by its number alone, and gives a digest of all values.
After each round there are samples of what the process holds: resident memory, mappings, open files,
threads. From the second quarter of the rounds to the last they are to stay, and a fresh process,
in which nothing else has happened, is to get the same digest for every 25th round.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Muon")
WORKERS_EVERY = 10  # rounds between two loaders with workers, which take a second


# ---- what a round does: functions of a random generator, which give values -----------------------


def _optimizer(rng, model):
    kind = rng.choice(OPTIMIZERS)
    parameters = [p for p in model.parameters() if kind != "Muon" or p.ndim == 2]
    return getattr(ad.optim, kind)(parameters, lr=rng.uniform(0.001, 0.1))


def _model(rng, inputs, outputs):
    width = rng.randrange(1, 70)
    between = rng.choice([nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU])()
    more = rng.choice([nn.LayerNorm(width), nn.BatchNorm1d(width), nn.Dropout(rng.random() / 2)])
    return nn.Sequential(nn.Linear(inputs, width), more, between, nn.Linear(width, outputs))


def eagerly(rng):
    """Some steps of a network of any width on a batch of any size."""
    inputs, outputs, count = rng.randrange(1, 50), rng.randrange(1, 12), rng.randrange(2, 90)
    model = _model(rng, inputs, outputs)
    optimizer = _optimizer(rng, model)
    x, y = ad.randn(count, inputs), ad.randint(0, outputs, (count,))
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=rng.random() / 3)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), rng.uniform(0.1, 2))
        optimizer.step()
    return [loss, *model.parameters()]


def images(rng):
    """A convolution of any kind, by sums and by the largest."""
    channels, size, kernel = rng.randrange(1, 9), rng.randrange(5, 30), rng.choice([1, 3, 5])
    layer = nn.Conv2d(channels, rng.randrange(1, 9), kernel, stride=rng.choice([1, 2]), padding=1)
    x = ad.randn(rng.randrange(1, 5), channels, size, size, requires_grad=True)
    y = F.elu(layer(x), alpha=rng.uniform(0.5, 2))
    y = F.adaptive_avg_pool2d(y, 2) + F.adaptive_max_pool2d(y, 2)
    y.square().mean().backward()
    return [y, x.grad, *(p.grad for p in layer.parameters())]


def sequences(rng):
    """A recurrent network over a sequence of any length."""
    kind, width = rng.choice([nn.LSTM, nn.GRU, nn.RNN]), rng.randrange(1, 30)
    net = kind(rng.randrange(1, 20), width, batch_first=True, bidirectional=rng.random() < 0.3)
    x = ad.randn(rng.randrange(1, 9), rng.randrange(1, 20), net.input_size, requires_grad=True)
    y, _ = net(x)
    y.tanh().sum().backward()
    return [y, x.grad]


def arithmetic(rng):
    """Numbers that were never there before, on arrays of all orders of memory."""
    shape = [rng.randrange(1, 40) for _ in range(rng.randrange(1, 4))]
    x = ad.randn(*shape, requires_grad=True)
    y = x.transpose(0, -1) * rng.random() + rng.random()
    y = F.softplus(y, beta=rng.uniform(0.5, 3)).clamp(max=rng.uniform(1, 9)) ** rng.uniform(1, 3)
    z = (y.sum(0) + y.amax(-1).mean() * rng.random()).sum()
    z.backward()
    large = ad.ones(rng.randrange(1, 200_000)) * rng.random()
    return [y, x.grad, large.cumsum(0)[-1:]]


def recorded(rng):
    """The same in a lazy recording, read at its end."""
    with ad.lazy():
        return arithmetic(rng)


def graph(rng):
    """A graph whose input gets other sizes and values."""
    width = rng.randrange(1, 30)
    found = []
    with ad.Graph() as g:
        x = g.input(ad.randn(rng.randrange(1, 40), width))
        w = g.parameter(ad.randn(width, 3))
        loss = ((x @ w).tanh() * rng.random()).square().mean()
        loss.backward()
    for _ in range(4):
        x.set(ad.randn(rng.randrange(1, 40), width))
        found += [loss.snapshot(), w.grad.snapshot()]
    return found


def compiled(rng):
    """A compiled step, of which two sizes of batches come in turns."""
    model = _model(rng, 8, 3)
    optimizer = _optimizer(rng, model)

    @ad.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    sizes = [rng.randrange(2, 60) for _ in range(2)]
    losses = [step(ad.randn(n, 8), ad.randint(0, 3, (n,))) for n in (*sizes, *sizes)]
    return [*losses, *model.parameters()]


def files(rng):
    """A checkpoint, written and read."""
    model = _model(rng, rng.randrange(1, 40), 2)
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, rng.choice(["a.pt", "a.safetensors", "a.npz"]))
        ad.save(model.state_dict(), path)
        return list(ad.load(path).values())


def failures(rng):
    """Errors midway: of shapes, of memory that nobody has, of a hook."""
    x = ad.randn(rng.randrange(2, 30), 3, requires_grad=True)
    for wrong in (
        lambda: x @ ad.ones(4, 4),
        lambda: ad.ones(1, dtype=ad.uint8).expand(1 << 46).clone(),
        lambda: x.sum(7),
        lambda: _refusing(x),
    ):
        try:
            wrong()
        except (RuntimeError, MemoryError, IndexError, ZeroDivisionError):
            continue
        raise AssertionError("there is no error")
    return [x]


def _refusing(x):
    y = x * 2
    y.register_hook(lambda g: 1 // 0)
    y.sum().backward()


class Numbers(ad.data.Dataset):
    """Items that say in which process they were made."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        return ad.full((5,), float(n)), os.getpid()


def killed_workers(rng):
    """A loader of which a worker is killed, and one that ends."""
    data = Numbers(rng.randrange(60, 100))  # more batches than are made ahead
    loader = ad.data.DataLoader(data, batch_size=rng.randrange(1, 5), num_workers=2)
    try:
        for k, (_, processes) in enumerate(loader):
            if k == 1:
                os.kill(int(processes[0]), signal.SIGKILL)
        raise AssertionError("a killed worker is no error")
    except RuntimeError:
        return [x for x, _ in loader]


KINDS = (eagerly, images, sequences, arithmetic, recorded, graph, compiled, files, failures)


# ---- rounds --------------------------------------------------------------------------------------


def round_of(number):
    """The digest of all values of a round."""
    digest = hashlib.sha256()
    kinds = [*KINDS, killed_workers] if number % WORKERS_EVERY == 0 else KINDS
    for kind in kinds:
        ad.manual_seed(number)
        for x in kind(random.Random(f"{number} {kind.__name__}")):
            values = np.ascontiguousarray(x.detach().numpy())
            digest.update(repr((values.shape, values.dtype)).encode() + values.tobytes())
    return digest.hexdigest()


def held():
    """What the process holds: MiB, mappings, open files, threads."""
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    with open("/proc/self/maps") as file:
        mappings = sum(1 for _ in file)
    files = len(os.listdir("/proc/self/fd"))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, mappings, files, threading.active_count()


def quiet(number):
    """The digest of a round in a process of its own."""
    command = [sys.executable, "-m", "tests.soak", "--round", str(number)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def grown(samples):
    """The medians of the second quarter of the samples and of the last, of each thing."""
    quarter = len(samples) // 4
    parts = samples[quarter : 2 * quarter], samples[-quarter:]
    return [tuple(statistics.median(x) for x in zip(*part, strict=True)) for part in parts]


def main(argv=None):
    """Rounds for so many minutes, or so many rounds; what they leave, and what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--round", type=int)
    options = parser.parse_args(argv)
    if options.round is not None:
        print(round_of(options.round))
        return 0
    end = time.monotonic() + 60 * options.minutes
    samples, digests = [], {}
    for number in range(options.rounds):
        if time.monotonic() > end:
            break
        found = round_of(number)
        if number % options.every == 0:
            digests[number] = found
        samples.append(held())
        if number % 200 == 0:
            print(f"round {number}: {samples[-1]}", flush=True)
    print(
        f"{len(samples)} rounds; MiB, mappings, files, threads; in the second quarter, in the last"
    )
    before, after = grown(samples)
    print(before, after, sep="\n")
    other = [number for number, found in digests.items() if quiet(number) != found]
    print(f"{len(digests)} rounds in processes of their own: {len(other)} differ {other[:20]}")
    return int(bool(other))


if __name__ == "__main__":
    sys.exit(main())
