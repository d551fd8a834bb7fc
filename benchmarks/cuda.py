"""Training steps and pointwise operations on a GPU beside PyTorch's eager execution.

`python -m benchmarks cuda` runs on CUDA; `--device torch` runs the same programs on the CPU, with
PyTorch's tensors as storage, in small sizes: it says that the programs run, and what our layers
around PyTorch's kernels cost, not what a GPU does. Compiled steps are compared with PyTorch's eager
execution and with `torch.compile(mode="reduce-overhead")`, which is of CUDA; what was not run says
so.

Each figure is measured interleaved with PyTorch in one process; the device has done all its work
before a clock is read. Bandwidths are compared with that of a copy on the same device.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

import adjoint as ad

from .timing import Ratio, compare, header, row
from .training import gpt_model


class Sizes:
    """What is run on a GPU; on the CPU, smaller ones."""

    def __init__(self, small: bool) -> None:
        self.gpt = (2, 128, 32, 2, 64) if small else (12, 768, 1024, 16, 50304)  # see gpt()
        self.gpt_heads = 4 if small else 12
        self.resnet = (8, 4, 32) if small else (64, 64, 224)  # width, batch, pixels
        self.elements = 1 << 20 if small else 1 << 27
        self.rounds, self.seconds = (5, 0.1) if small else (7, 0.1)


Wrap = Callable[[Any], Any]


def _itself(model: Any) -> Any:
    return model


def gpt(t: object, device: str, sizes: Sizes, wrap: Wrap = _itself) -> Callable[[], object]:
    """GPT, autocast to bfloat16, AdamW."""
    layers, width, length, batch, words = sizes.gpt
    model = gpt_model(t, words, length, width, sizes.gpt_heads, layers, head_bias=False).to(device)
    x = t.randint(0, words, (batch, length)).to(device)
    target = t.randint(0, words, (batch * length,)).to(device)
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-3, **fused(t, device))
    kind = x.device.type

    def loss_of(x: object, target: object) -> object:
        with t.autocast(kind, dtype=t.bfloat16):
            return t.nn.functional.cross_entropy(model(x), target)

    return training(wrap(loss_of), optimizer, x, target)


def fused(t: object, device: str) -> dict[str, bool]:
    """The option by which PyTorch's optimizers are one kernel; ours are without it."""
    return {"fused": True} if t is torch and device == "cuda" else {}


def classifying(
    t: Any, model: Any, optimizer: Any, x: Any, target: Any, wrap: Wrap
) -> Callable[[], object]:
    """A training step on one batch."""
    loss_of = wrap(lambda x, target: t.nn.functional.cross_entropy(model(x), target))
    return training(loss_of, optimizer, x, target)


def training(loss_of: Any, optimizer: Any, x: object, target: object) -> Callable[[], object]:
    """A step of an optimizer."""

    def step() -> object:
        loss = loss_of(x, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def resnet(t: object, device: str, sizes: Sizes, wrap: Wrap = _itself) -> Callable[[], object]:
    """ResNet-18, float32, SGD with momentum."""
    nn = t.nn
    width, batch, pixels = sizes.resnet

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
            self.short = nn.Identity()
            if stride > 1 or before != after:
                self.short = nn.Sequential(
                    nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                )

        def forward(self, x: object) -> object:
            y = nn.functional.relu(self.norm1(self.conv1(x)))
            return nn.functional.relu(self.norm2(self.conv2(y)) + self.short(x))

    stages = [(width * 2 ** max(i - 1, 0), width * 2**i, 1 + (i > 0)) for i in range(4)]
    blocks = [Block(*stage) for stage in stages for stage in (stage, (stage[1], stage[1], 1))]
    model = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width * 8, 1000),
    ).to(device)  # fmt: skip
    x, target = t.randn(batch, 3, pixels, pixels).to(device), (t.arange(batch) % 10).to(device)
    optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **fused(t, device))
    return classifying(t, model, optimizer, x, target, wrap)


def mlp(t: object, device: str, sizes: Sizes, wrap: Wrap = _itself) -> Callable[[], object]:
    """MLP 784-256-256-10, batch 64, Adam: small."""
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    ).to(device)
    x, target = t.randn(64, 784).to(device), (t.arange(64) % 10).to(device)
    optimizer = t.optim.Adam(model.parameters(), lr=1e-3, **fused(t, device))
    return classifying(t, model, optimizer, x, target, wrap)


# name: (operation on x and y, bytes moved for each byte of x)
POINTWISE = {
    "x + y": (lambda t, x, y: x + y, 3),
    "x * 2": (lambda t, x, y: x * 2, 2),
    "relu(x)": (lambda t, x, y: t.relu(x), 2),
    "gelu(x)": (lambda t, x, y: t.nn.functional.gelu(x), 2),
    "x.add_(y)": (lambda t, x, y: x.add_(y), 3),
    "softmax(x, -1)": (lambda t, x, y: x.softmax(-1), 2),
    "layer_norm(x)": (lambda t, x, y: t.nn.functional.layer_norm(x, (x.shape[-1],)), 2),
    "x.sum()": (lambda t, x, y: x.sum(), 1),
}


# name: (function of x and y, bytes moved for each byte of x)
GROUPS = {
    "tanh(x)*sigmoid(x) + exp(-x*x)*sin(x)": (
        lambda t, x, y: t.tanh(x) * t.sigmoid(x) + t.exp(-x * x) * t.sin(x), 2,
    ),
    "gelu(x + y) * x": (lambda t, x, y: t.nn.functional.gelu(x + y) * x, 3),
    "softmax(x * 3 + y, -1)": (lambda t, x, y: (x * 3 + y).softmax(-1), 3),
    "layer_norm(x + y) + x": (
        lambda t, x, y: t.nn.functional.layer_norm(x + y, (x.shape[-1],)) + x, 3,
    ),
    "(x * y).sum(-1)": (lambda t, x, y: (x * y).sum(-1), 2),
}  # fmt: skip

STEPS = (gpt, resnet, mlp)
RUNS = 5  # that are profiled
LISTED = 45  # kernels

SMALL = ("x + y", "gelu(x)", "x.add_(y)", "layer_norm(x)", "x.sum()")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda (as it is), or torch: on the CPU")
    parser.add_argument("--smoke", action="store_true", help="one round of each, to be tested")
    parser.add_argument(
        "--kernels", action="store_true", help="what compiled steps run on the GPU, and how long"
    )
    parser.add_argument("--steps", nargs="+", choices=[make.__name__ for make in STEPS])
    given = parser.parse_args()
    chosen = [make for make in STEPS if make.__name__ in (given.steps or make.__name__)]
    if given.device == "cuda" and not ad.cuda.is_available():
        print("There is no CUDA device; --device torch runs the same programs on the CPU.")
        for label in (*[_title(make) for make in STEPS], *GROUPS):
            print(f"compiled: {label:50s} not run")
        return
    theirs = "cuda" if given.device == "cuda" else "cpu"
    sizes = Sizes(small=given.device != "cuda")
    if given.smoke:
        sizes.rounds, sizes.seconds = 1, 0.001
    wait = torch.cuda.synchronize if given.device == "cuda" else _nothing
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"{os.cpu_count()} cores"
    print(f"Device {given.device!r} ({name}), PyTorch {torch.__version__}")
    if given.kernels:
        for make in chosen:
            kernels_of(make, given.device, theirs, sizes)
        return

    def measure(ours: Callable[[], object], other: Callable[[], object]) -> Ratio:
        def waited(function: Callable[[], object]) -> Callable[[], object]:
            def run() -> None:
                for _ in range(4):  # queued together, so that the host may run ahead
                    function()
                wait()

            return run

        found = compare(waited(ours), waited(other), sizes.rounds, sizes.seconds)
        return found._replace(ours=found.ours / 4, theirs=found.theirs / 4)

    header("Training steps")
    for make in chosen:
        ad.manual_seed(0)
        torch.manual_seed(0)
        steps = make(ad, given.device, sizes), make(torch, theirs, sizes)
        for step in steps:
            assert math.isfinite(step().item())
        row(_title(make), measure(*steps))
        if given.device == "cuda":
            row_of_memory(*steps)
        del steps

    compiled_steps(chosen, measure, given.device, theirs, sizes)
    for dtype in ("float32", "bfloat16"):
        compiled_groups(measure, given.device, theirs, sizes, dtype)

    header("One operation on 32 x 32 elements: the host's work")
    mine, other = (
        [t.ones(32, 32).to(d) for _ in range(2)] for t, d in ((ad, given.device), (torch, theirs))
    )
    for label in SMALL:
        run, _ = POINTWISE[label]
        row(label, measure(lambda: run(ad, *mine), lambda: run(torch, *other)))  # noqa: B023

    for dtype in ("float32", "bfloat16"):
        mine, other = (
            [t.ones(sizes.elements >> 10, 1 << 10, dtype=getattr(t, dtype)).to(d) for _ in range(2)]
            for t, d in ((ad, given.device), (torch, theirs))
        )
        a, b = mine[0], other[0]
        copying = measure(lambda a=a: a.clone(), lambda b=b: b.clone())
        size = 2 * mine[0].nbytes
        speed = size / copying.theirs * 1e6 / 1e9
        header(
            f"Pointwise, {sizes.elements >> 20} Mi elements of {dtype}; a copy: {speed:.0f} GB/s"
        )
        for label, (run, times) in POINTWISE.items():
            found = measure(lambda: run(ad, *mine), lambda: run(torch, *other))  # noqa: B023
            share = times * mine[0].nbytes / found.ours * 1e6 / 1e9 / speed
            row(f"{label} ({share:.0%} of a copy's bandwidth)", found)


Measure = Callable[[Callable[[], object], Callable[[], object]], Ratio]


def _title(make: Callable[..., object]) -> str:
    return str(make.__doc__).rstrip(".")


def _fastest(function: Any) -> Any:
    """A model and its loss by `torch.compile`, the host's work recorded as CUDA graphs."""
    return torch.compile(function, mode="reduce-overhead")


def compiled_steps(
    chosen: Sequence[Any], measure: Measure, device: str, theirs: str, sizes: Sizes
) -> None:
    """Whole steps by `ad.compile`."""
    header("Compiled training steps")
    for make in chosen:
        ad.manual_seed(0)
        torch.manual_seed(0)
        step = ad.compile(make(ad, device, sizes))
        other = make(torch, theirs, sizes)
        for _ in range(4):  # compiled, and recorded
            assert math.isfinite(step().item())
        row(f"{_title(make)}: eager", measure(step, other))
        label = f"{_title(make)}: torch.compile"
        if device == "cuda":
            fast = make(torch, theirs, sizes, _fastest)
            for _ in range(4):
                assert math.isfinite(fast().item())
            row(label, measure(step, fast))
            row_of_memory(step, other)
        else:
            print(f"{label:44s} not run")
        for program in step.programs:
            print(f"  not one graph: {program.obstacles}" if program.obstacles else "  one graph")


def compiled_groups(measure: Measure, device: str, theirs: str, sizes: Sizes, dtype: str) -> None:
    """Groups of operations by `ad.compile`."""
    shape = sizes.elements >> 10, 1 << 10
    (a, b), (c, d) = (
        [t.ones(*shape, dtype=getattr(t, dtype)).to(place) for _ in range(2)]
        for t, place in ((ad, device), (torch, theirs))
    )
    copying = measure(lambda: a.clone(), lambda: c.clone())
    speed = 2 * a.nbytes / copying.theirs * 1e6 / 1e9
    header(
        f"Compiled groups, {sizes.elements >> 20} Mi elements of {dtype}; a copy: {speed:.0f} GB/s"
    )
    for label, (run, times) in GROUPS.items():
        torch.compiler.reset()
        mine = ad.compile(lambda x, y, run=run: run(ad, x, y))
        found = measure(lambda: mine(a, b), lambda: run(torch, c, d))  # noqa: B023
        share = times * a.nbytes / found.ours * 1e6 / 1e9 / speed
        row(f"{label} ({share:.0%}): eager", found)
        if device == "cuda":
            fast = _fastest(lambda x, y, run=run: run(torch, x, y))
            row("  torch.compile", measure(lambda: mine(a, b), lambda: fast(c, d)))  # noqa: B023
        else:
            print(f"{'  torch.compile':44s} not run")


def kernels_of(make: Callable[..., Any], device: str, theirs: str, sizes: Sizes) -> None:
    """Print the kernels of a compiled step and of `torch.compile`'s, the longest first."""
    ours = ad.compile(make(ad, device, sizes))
    for who, step in (("ours", ours), ("torch.compile", make(torch, theirs, sizes, _fastest))):
        for _ in range(6):  # compiled, and recorded
            step()
        torch.cuda.synchronize()
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profile:
            for _ in range(RUNS):
                step()
            torch.cuda.synchronize()
        found = sorted(profile.key_averages(), key=lambda e: -e.device_time_total)
        whole = sum(e.device_time_total for e in found) / RUNS
        print(f"\n{_title(make)}: {who}, {whole:.0f} us of kernels a step")
        for event in found[:LISTED]:
            each = event.device_time_total / RUNS
            print(f"{each:9.1f} us {event.count / RUNS:6.1f} times  {event.key[:110]}")
        left = sum(e.device_time_total for e in found[LISTED:]) / RUNS
        print(f"{left:9.1f} us in {len(found[LISTED:])} others", flush=True)


def row_of_memory(ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    """Print the most bytes that a step of each takes on the device."""
    peaks = []
    for step in (ours, theirs):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        peaks.append((torch.cuda.max_memory_allocated() - before) >> 20)
    print(f"{'  memory above what is held':44s} {peaks[0]:7d} MiB {peaks[1]:8d} MiB")


def _nothing() -> None:
    """The CPU has done its work when a call returns."""


if __name__ == "__main__":
    main()
