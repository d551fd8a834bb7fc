"""Products, convolutions and pooling as a user calls them, forward and backward, against PyTorch.

python -m benchmarks.layers [--threads 1 2] [--only matmul linear conv depthwise transposed pool
bf16] [--batch 1 32]

Gradients are `autograd.grad` of the input, or of the weight and the bias; the graph is kept.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .timing import compare, header, row

Case = tuple[str, Callable[[], object], Callable[[], object]]

PRODUCTS = [
    *(((n, n), (n, n)) for n in (64, 128, 256, 512, 1024, 2048)),
    ((32, 64, 64), (32, 64, 64)),
    ((12, 4, 64, 32), (12, 4, 32, 64)),
    ((12, 4, 64, 64), (12, 4, 64, 32)),
    ((16, 256, 256), (16, 256, 256)),
    ((1, 1024), (1024, 1024)),
    ((1024, 1024), (1024, 1)),
    ((8, 1024), (1024, 1024)),
    ((4096, 64), (64, 64)),
]
# rows, inputs, outputs
LINEAR = [
    (1, 1024, 1024),
    (8, 1024, 1024),
    (64, 784, 256),
    (64, 256, 256),
    (64, 256, 10),
    (32, 128, 512),
    (768, 128, 512),
    (768, 512, 128),
    (768, 128, 384),
    (32, 1024, 4096),
]
# name, inputs, outputs, kernel, stride, padding, size
CONVOLUTIONS = [
    ("ResNet-18 3-64 7x7/2 @224", 3, 64, 7, 2, 3, 224),
    ("ResNet-18 64-64 3x3 @56", 64, 64, 3, 1, 1, 56),
    ("ResNet-18 64-128 3x3/2 @56", 64, 128, 3, 2, 1, 56),
    ("ResNet-18 64-128 1x1/2 @56", 64, 128, 1, 2, 0, 56),
    ("ResNet-18 128-128 3x3 @28", 128, 128, 3, 1, 1, 28),
    ("ResNet-18 128-256 3x3/2 @28", 128, 256, 3, 2, 1, 28),
    ("ResNet-18 128-256 1x1/2 @28", 128, 256, 1, 2, 0, 28),
    ("ResNet-18 256-256 3x3 @14", 256, 256, 3, 1, 1, 14),
    ("ResNet-18 256-512 3x3/2 @14", 256, 512, 3, 2, 1, 14),
    ("ResNet-18 256-512 1x1/2 @14", 256, 512, 1, 2, 0, 14),
    ("ResNet-18 512-512 3x3 @7", 512, 512, 3, 1, 1, 7),
    ("CIFAR 3-16 3x3 @32", 3, 16, 3, 1, 1, 32),
    ("CIFAR 16-16 3x3 @32", 16, 16, 3, 1, 1, 32),
    ("CIFAR 16-32 3x3/2 @32", 16, 32, 3, 2, 1, 32),
    ("CIFAR 32-32 3x3 @16", 32, 32, 3, 1, 1, 16),
    ("CIFAR 64-64 3x3 @8", 64, 64, 3, 1, 1, 8),
    ("CIFAR 64-64 3x3 @32", 64, 64, 3, 1, 1, 32),
    ("LeNet 1-6 5x5 @28", 1, 6, 5, 1, 2, 28),
    ("LeNet 6-16 5x5 @14", 6, 16, 5, 1, 0, 14),
]
# name, channels, kernel, stride, padding, size
DEPTHWISE = [
    ("32 3x3 @112", 32, 3, 1, 1, 112),
    ("96 3x3/2 @112", 96, 3, 2, 1, 112),
    ("192 3x3 @28", 192, 3, 1, 1, 28),
    ("960 3x3 @7", 960, 3, 1, 1, 7),
]
# name, inputs, outputs, kernel, stride, padding, size
TRANSPOSED = [
    ("512-256 4x4/2 @4", 512, 256, 4, 2, 1, 4),
    ("128-64 4x4/2 @16", 128, 64, 4, 2, 1, 16),
    ("64-3 4x4/2 @32", 64, 3, 4, 2, 1, 32),
]
# name, channels, kernel, stride, padding, size
POOLS = [
    ("64 3x3/2 @112", 64, 3, 2, 1, 112),
    ("16 2x2/2 @28", 16, 2, 2, 0, 28),
    ("6 2x2/2 @28", 6, 2, 2, 0, 28),
    ("64 3x3/1 @56", 64, 3, 1, 1, 56),
    ("512 7x7/7 @7", 512, 7, 7, 0, 7),
]
KINDS = ["matmul", "linear", "conv", "depthwise", "transposed", "pool", "bf16"]


class _Both:
    """The same tensors and calls in both frameworks."""

    def __init__(self) -> None:
        import torch

        import adjoint

        self.frameworks = (adjoint, torch)

    def tensors(self, *shapes: tuple[int, ...], narrow: bool = False) -> list[list[Any]]:
        """For each framework, leaves of these shapes."""
        found: list[list[Any]] = [[], []]
        for shape in shapes:
            array = np.random.default_rng(math.prod(shape)).standard_normal(shape, np.float32)
            for of, framework in zip(found, self.frameworks, strict=True):
                tensor = framework.tensor(array)
                if narrow:
                    tensor = tensor.to(framework.bfloat16)
                of.append(tensor.requires_grad_())
        return found

    def cases(
        self,
        label: str,
        call: Callable[..., Any],
        leaves: list[list[Any]],
        *wanted: tuple[str, int],
    ) -> Iterator[Case]:
        """Forward without a graph; then the gradient of each named leaf, of all behind it too where
        it is the weight.
        """

        def forward(i: int) -> Callable[[], object]:
            plain = [leaf.detach() for leaf in leaves[i]]
            return lambda: call(self.frameworks[i], *plain)

        yield f"{label} forward", forward(0), forward(1)
        for name, number in wanted:
            pair = []
            for framework, of in zip(self.frameworks, leaves, strict=True):
                result = call(framework, *of)
                seed = framework.ones_like(result)
                inputs = of[number:] if number else of[:1]
                grad = framework.autograd.grad
                pair.append(
                    lambda g=grad, y=result, x=inputs, s=seed: g(y, x, s, retain_graph=True)
                )
            yield f"{label} {name}", pair[0], pair[1]


INPUT, WEIGHT = ("to input", 0), ("to weight", 1)


def _products(both: _Both, narrow: bool) -> Iterator[Case]:
    for left, right in PRODUCTS:
        name = f"{'x'.join(map(str, left))} @ {'x'.join(map(str, right))}"
        leaves = both.tensors(left, right, narrow=narrow)
        yield from both.cases(name, lambda f, a, b: f.matmul(a, b), leaves, INPUT, WEIGHT)


def _linear(both: _Both, narrow: bool) -> Iterator[Case]:
    for rows, inputs, outputs in LINEAR:
        leaves = both.tensors((rows, inputs), (outputs, inputs), (outputs,), narrow=narrow)
        yield from both.cases(
            f"linear {rows}x{inputs}-{outputs}",
            lambda f, x, w, b: f.nn.functional.linear(x, w, b),
            leaves, INPUT, WEIGHT,
        )  # fmt: skip


def _convolutions(both: _Both, batch: int, narrow: bool) -> Iterator[Case]:
    for name, inputs, outputs, k, s, p, n in CONVOLUTIONS:
        leaves = both.tensors((batch, inputs, n, n), (outputs, inputs, k, k), narrow=narrow)
        yield from both.cases(
            f"b{batch} {name}",
            lambda f, x, w, s=s, p=p: f.nn.functional.conv2d(x, w, None, s, p),
            leaves, INPUT, WEIGHT,
        )  # fmt: skip


def _depthwise(both: _Both, batch: int) -> Iterator[Case]:
    for name, channels, k, s, p, n in DEPTHWISE:
        leaves = both.tensors((batch, channels, n, n), (channels, 1, k, k), (channels,))
        yield from both.cases(
            f"b{batch} depthwise {name}",
            lambda f, x, w, b, s=s, p=p, c=channels: f.nn.functional.conv2d(x, w, b, s, p, 1, c),
            leaves, INPUT, WEIGHT,
        )  # fmt: skip


def _transposed(both: _Both, batch: int) -> Iterator[Case]:
    for name, inputs, outputs, k, s, p, n in TRANSPOSED:
        leaves = both.tensors((batch, inputs, n, n), (inputs, outputs, k, k), (outputs,))
        yield from both.cases(
            f"b{batch} transposed {name}",
            lambda f, x, w, b, s=s, p=p: f.nn.functional.conv_transpose2d(x, w, b, s, p),
            leaves, INPUT, WEIGHT,
        )  # fmt: skip


def _pools(both: _Both, batch: int) -> Iterator[Case]:
    for name, channels, k, s, p, n in POOLS:
        leaves = both.tensors((batch, channels, n, n))
        for kind in ("max", "avg"):
            yield from both.cases(
                f"b{batch} {kind} pool {name}",
                lambda f, x, k=k, s=s, p=p, kind=kind: getattr(f.nn.functional, f"{kind}_pool2d")(
                    x, k, s, p
                ),
                leaves, INPUT,
            )  # fmt: skip


def cases(only: list[str], batches: list[int]) -> Iterator[Case]:
    """What is compared."""
    both = _Both()
    if "matmul" in only:
        yield from _products(both, False)
    if "linear" in only:
        yield from _linear(both, False)
    for batch in batches:
        if "conv" in only:
            yield from _convolutions(both, batch, False)
        if "depthwise" in only:
            yield from _depthwise(both, batch)
        if "transposed" in only:
            yield from _transposed(both, batch)
        if "pool" in only:
            yield from _pools(both, batch)
    if "bf16" in only:
        for name, ours, theirs in (*_products(both, True), *_linear(both, True)):
            yield f"bf16 {name}", ours, theirs


def measure(threads: int, only: list[str], batches: list[int], rounds: int) -> None:
    """One table; the process keeps this number of threads."""
    import torch

    torch.set_num_threads(threads)
    header(f"Layers against PyTorch {torch.__version__}, {threads} threads")
    found = []
    for name, ours, theirs in cases(only, batches):
        result = compare(ours, theirs, rounds=rounds, seconds=0.015)
        found.append((result.ratio, name))
        row(name, result)
    mean = math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found))
    below = [f"{name} {ratio:.2f}" for ratio, name in found if ratio < 1]
    print(f"{len(found)} rows, geometric mean {mean:.2f}; {len(below)} below 1: {', '.join(below)}")


def main() -> None:
    """Each thread count in a process of its own: libraries read it when they are imported."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=9)
    own = sys.argv[1:] if __name__ == "__main__" else []
    options = parser.parse_args(own)
    names = ("ADJOINT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    if len(options.threads) == 1 and {os.environ.get(name) for name in names} == {
        str(options.threads[0])
    }:
        measure(options.threads[0], options.only, options.batch, options.rounds)
        return
    for n in map(str, options.threads):
        command = [sys.executable, "-m", "benchmarks.layers", *own, "--threads", n]
        subprocess.run(command, env={**os.environ, **dict.fromkeys(names, n)}, check=True)


if __name__ == "__main__":
    main()
