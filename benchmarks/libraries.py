"""Matrix products, convolutions and pooling on arrays, against PyTorch at the same thread count.

python -m benchmarks.libraries [--threads 1 4] [--only matmul conv pool bf16] [--batch 1 32]

The float32 products of at most 64 cubed multiply-adds are NumPy's, all else is oneDNN's.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np

from .timing import Ratio, compare, header, row

Case = tuple[str, Callable[[], object], Callable[[], object]]

PRODUCTS = [
    *(((n, n), (n, n)) for n in (64, 128, 256, 512, 1024, 2048)),
    ((1, 1024), (1024, 1024)),
    ((8, 1024), (1024, 1024)),
    ((32, 1024), (1024, 4096)),
    ((64, 784), (784, 256)),
    ((64, 256), (256, 256)),
    ((64, 256), (256, 10)),
    ((768, 128), (128, 512)),
    ((4096, 64), (64, 64)),
    ((96, 64, 32), (96, 32, 64)),
    ((96, 64, 64), (96, 64, 32)),
    ((4, 8, 512, 64), (4, 8, 64, 512)),
    ((16, 256, 256), (16, 256, 256)),
]
# name, inputs, outputs, kernel, stride, padding, size
CONVOLUTIONS = [
    ("3-64 7x7/2 @224", 3, 64, 7, 2, 3, 224),
    ("64-64 3x3 @56", 64, 64, 3, 1, 1, 56),
    ("64-128 3x3/2 @56", 64, 128, 3, 2, 1, 56),
    ("64-128 1x1/2 @56", 64, 128, 1, 2, 0, 56),
    ("128-128 3x3 @28", 128, 128, 3, 1, 1, 28),
    ("128-256 3x3/2 @28", 128, 256, 3, 2, 1, 28),
    ("256-256 3x3 @14", 256, 256, 3, 1, 1, 14),
    ("256-512 3x3/2 @14", 256, 512, 3, 2, 1, 14),
    ("512-512 3x3 @7", 512, 512, 3, 1, 1, 7),
    ("LeNet 1-6 5x5 @28", 1, 6, 5, 1, 2, 28),
    ("LeNet 6-16 5x5 @14", 6, 16, 5, 1, 0, 14),
    ("3-16 3x3 @32", 3, 16, 3, 1, 1, 32),
    ("32-32 3x3 @32", 32, 32, 3, 1, 1, 32),
]
# name, channels, kernel, stride, padding, size
POOLS = [
    ("64 3x3/2 @112", 64, 3, 2, 1, 112),
    ("16 2x2/2 @32", 16, 2, 2, 0, 32),
    ("6 2x2/2 @28", 6, 2, 2, 0, 28),
    ("64 3x3/1 @56", 64, 3, 1, 1, 56),
    ("512 7x7/7 @7", 512, 7, 7, 0, 7),
]


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape, np.float32)


def _products(torch: object, narrow: bool) -> Iterator[Case]:
    import ml_dtypes

    from adjoint.backends.native.gemm.products import matmul

    for left, right in PRODUCTS:
        for transposes in ("nn", "nt", "tn"):
            a, b = (
                _array(*s) if t == "n" else _array(*s[:-2], s[-1], s[-2]).swapaxes(-1, -2)
                for s, t in zip((left, right), transposes, strict=True)
            )
            x, y = torch.from_numpy(a), torch.from_numpy(b)
            if narrow:
                a, b = (
                    np.asarray(v.swapaxes(-1, -2), ml_dtypes.bfloat16).swapaxes(-1, -2)
                    if t == "t"
                    else v.astype(ml_dtypes.bfloat16)
                    for v, t in zip((a, b), transposes, strict=True)
                )
                x, y = x.bfloat16(), y.bfloat16()
            name = f"{'x'.join(map(str, left))} @ {'x'.join(map(str, right))} {transposes}"
            yield (
                f"{'bf16 ' if narrow else ''}{name}",
                lambda a=a, b=b: matmul(a, b),
                lambda x=x, y=y: torch.matmul(x, y),
            )


def _convolutions(torch: object, batch: int, narrow: bool) -> Iterator[Case]:
    import ml_dtypes

    from adjoint.backends.native.onednn import eager_convolution as ours

    kind = ml_dtypes.bfloat16 if narrow else np.float32
    for name, inputs, outputs, k, s, p, n in CONVOLUTIONS:
        count = (n + 2 * p - k) // s + 1
        arrays = (
            _array(batch, inputs, n, n),
            _array(outputs, inputs, k, k),
            _array(batch, outputs, count, count),
        )
        tensors = [torch.from_numpy(v) for v in arrays]
        if narrow:
            tensors = [v.bfloat16() for v in tensors]
        x, w, y = (v.astype(kind, copy=False) for v in arrays)
        options = ((s, s), ((p, p), (p, p)), (1, 1), 1)

        def backward(mask, tensors=tensors, s=s, p=p):
            u, v, g = tensors
            return torch.ops.aten.convolution_backward(
                g, u, v, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, mask
            )

        def forward(tensors=tensors, s=s, p=p):
            return torch.conv2d(tensors[0], tensors[1], None, s, p)

        label = f"{'bf16 ' if narrow else ''}b{batch} {name}"
        yield (
            f"{label} forward",
            lambda x=x, w=w, o=options, c=count: ours.conv(x, w, None, *o, (c, c)),
            forward,
        )
        yield (
            f"{label} to images",
            lambda y=y, w=w, o=options, n=n: ours.conv_input(y, w, *o, (n, n)),
            lambda b=backward: b([True, False, False]),
        )
        yield (
            f"{label} to weights",
            lambda x=x, y=y, o=options, k=k: ours.conv_weight(x, y, *o, (k, k)),
            lambda b=backward: b([False, True, False]),
        )


def _pools(torch: object, batch: int) -> Iterator[Case]:
    from adjoint.backends.native.onednn import pooling_plans as ours

    for name, channels, k, s, p, n in POOLS:
        count = (n + 2 * p - k) // s + 1
        x, g = _array(batch, channels, n, n), _array(batch, channels, count, count)
        u, v = torch.from_numpy(x), torch.from_numpy(g)
        geometry = ((k, k), (s, s), ((p, p), (p, p)))
        size = (count, count)
        y = ours.max_pool(x, *geometry, (1, 1), size)
        _, at = torch.ops.aten.max_pool2d_with_indices(u, [k, k], [s, s], [p, p])

        def largest(u=u, k=k, s=s, p=p):
            return torch.ops.aten.max_pool2d_with_indices(u, [k, k], [s, s], [p, p])

        def largest_back(u=u, v=v, k=k, s=s, p=p, at=at):
            return torch.ops.aten.max_pool2d_with_indices_backward(
                v, u, [k, k], [s, s], [p, p], [1, 1], False, at
            )

        def mean(u=u, k=k, s=s, p=p):
            return torch.ops.aten.avg_pool2d(u, [k, k], [s, s], [p, p])

        def mean_back(u=u, v=v, k=k, s=s, p=p):
            return torch.ops.aten.avg_pool2d_backward(
                v, u, [k, k], [s, s], [p, p], False, True, None
            )

        label = f"b{batch} {name}"
        yield (
            f"{label} max",
            lambda x=x, o=geometry, c=size: ours.max_pool(x, *o, (1, 1), c),
            largest,
        )
        yield (
            f"{label} max to images",
            lambda x=x, y=y, g=g, o=geometry: ours.max_pool_input(x, y, g, *o, (1, 1)),
            largest_back,
        )
        yield (
            f"{label} max and to images",
            lambda x=x, g=g, o=geometry, c=size: ours.max_pool_input(
                x, ours.max_pool(x, *o, (1, 1), c), g, *o, (1, 1)
            ),
            lambda a=largest, b=largest_back: (a(), b()),
        )
        yield (f"{label} sum (mean)", lambda x=x, o=geometry, c=size: ours.sum_pool(x, *o, c), mean)
        yield (
            f"{label} sum (mean) to images",
            lambda g=g, o=geometry, c=size, n=n: ours.sum_pool_input(g, *o, c, (n, n)),
            mean_back,
        )


def cases(torch: object, only: list[str], batches: list[int]) -> Iterator[Case]:
    """What is compared."""
    if "matmul" in only:
        yield from _products(torch, False)
    if "conv" in only:
        for batch in batches:
            yield from _convolutions(torch, batch, False)
    if "pool" in only:
        for batch in batches:
            yield from _pools(torch, batch)
    if "bf16" in only:
        yield from _products(torch, True)
        yield from _convolutions(torch, batches[-1], True)


def measure(threads: int, only: list[str], batches: list[int], rounds: int) -> None:
    """One table; the process keeps this number of threads."""
    import torch

    torch.set_num_threads(threads)
    header(f"oneDNN and NumPy against PyTorch {torch.__version__}, {threads} threads")
    ratios = []
    for name, ours, theirs in cases(torch, only, batches):
        with torch.no_grad():
            result: Ratio = compare(ours, theirs, rounds=rounds, seconds=0.015)
        ratios.append(result.ratio)
        row(name, result)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    below = sum(r < 1 for r in ratios)
    print(f"{len(ratios)} rows, {below} below 1, geometric mean {mean:.2f}")


def main() -> None:
    """Each thread count in a process of its own: libraries read it when they are imported."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["matmul", "conv", "pool", "bf16"]
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=9)
    own = sys.argv[1:] if __name__ == "__main__" else []
    options = parser.parse_args(own)
    threads = [str(n) for n in options.threads]
    if (
        os.environ.get("ADJOINT_NUM_THREADS")
        == os.environ.get("OPENBLAS_NUM_THREADS")
        == threads[0]
    ):
        measure(options.threads[0], options.only, options.batch, options.rounds)
        threads = threads[1:]
    for n in threads:
        names = ("ADJOINT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        command = [sys.executable, "-m", "benchmarks.libraries", *own, "--threads", n]
        subprocess.run(command, env={**os.environ, **dict.fromkeys(names, n)}, check=True)


if __name__ == "__main__":
    main()
