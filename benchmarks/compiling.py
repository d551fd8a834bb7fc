"""What it costs to compile kernels that no process has compiled before."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from typing import Any

EXPRESSIONS = {
    "add": "x + y",
    "exp": "x.exp()",
    "tanh": "x.tanh()",
    "gelu": "F.gelu(x)",
    "gelu, gradient": "F.gelu(x)",
    "variance of rows": "x.var(1)",
    "sum of rows": "x.sum(1)",
    "sum of columns": "x.sum(0)",
    "amax": "x.amax(1)",
    "softmax": "F.softmax(x, -1)",
    "softmax, gradient": "F.softmax(x, -1)",
    "layer_norm": "F.layer_norm(x, (256,), w, w)",
    "layer_norm, gradient": "F.layer_norm(x, (256,), w, w)",
    "cross_entropy": "F.cross_entropy(x, labels)",
    "cross_entropy, gradient": "F.cross_entropy(x, labels)",
    "batch_norm": "F.batch_norm(x, None, None, w, w, True)",
    "batch_norm, gradient": "F.batch_norm(x, None, None, w, w, True)",
}
REPEATS = 3


def measure() -> None:
    """For each expression, the kernels compiled and the processor time of all, in milliseconds."""
    import adjoint as ad
    from adjoint.backends.codegen import run

    spent: list[float] = []

    def timed(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            begin = time.thread_time()
            result = function(*args)
            spent.append(time.thread_time() - begin)
            return result

        return call

    run._load = timed(run._load)
    x, y, w = (ad.rand(*shape).requires_grad_() for shape in ((512, 256), (512, 256), (256,)))
    scope = {"F": ad.nn.functional, "x": x, "y": y, "w": w, "labels": ad.zeros(512).long()}
    (x * 2).sum().backward()  # LLVM itself is loaded
    for name, expression in EXPRESSIONS.items():
        spent.clear()
        if name.endswith("gradient"):
            result = eval(expression, scope)
            spent.clear()
            result.backward(ad.ones_like(result))
        else:
            with ad.no_grad():
                eval(expression, scope)
        print(f"{name};{len(spent)};{sum(spent) * 1e3}")


def main() -> None:
    """Print the table."""
    command = [sys.executable, "-c", "from benchmarks.compiling import measure; measure()"]
    environment = {**os.environ, "ADJOINT_CACHE_BYTES": "0", "ADJOINT_NUM_THREADS": "1"}
    rows: dict[str, list[tuple[int, float]]] = {}
    for _ in range(REPEATS):
        out = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
        for line in out.stdout.splitlines():
            name, kernels, spent = line.split(";")
            rows.setdefault(name, []).append((int(kernels), float(spent)))
    print("Compiling (processor time of the best of three processes, nothing on disk)")
    print(f"{'':24s}{'kernels':>8s}{'ms a kernel':>13s}")
    for name, found in rows.items():
        kernels, spent = min(found, key=lambda each: each[1])
        print(f"{name:24s}{kernels:8d}{spent / kernels:13.1f}")


if __name__ == "__main__":
    main()
