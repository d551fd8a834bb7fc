"""Every operation at seven sizes against PyTorch, at the same thread count.

python -m benchmarks operations [--rows PATTERN] [--sizes N ...] [--threads N] [--quick] [--busy]

Each cell is PyTorch's time / ours, of the best of interleaved rounds each. `--busy` keeps one of
the cores in use busy with another process every other round, and prints how much slower each of the
two gets.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

import adjoint as ad
from adjoint.core.op import REGISTRY, snake_case
from adjoint.ops.elementwise.pointwise import Elementwise

from .timing import BusyCore

SIZES = {
    1: "1", 15: "15", 64: "64", 4096: "4 Ki", 65536: "64 Ki", 1 << 20: "1 Mi", 1 << 24: "16 Mi",
}  # fmt: skip
SECONDS = 0.002  # of one round of one framework, at least
LIMIT = 0.2  # seconds for a cell's rounds, where calls are slow

ELSEWHERE = ["elu", "gelu", "silu", "softplus", "mish"]  # in nn.functional: among the composites
DOMAIN = {"acosh": (1.1, 2.0), "polygamma": (0.5, 4.0), "lgamma": (0.5, 4.0)}

# What names in expressions stand for. n elements in all; m is as square a matrix as there is.
COMPOSITES = {
    "softmax": "F.softmax(x, -1)",
    "softmax of a vector": "F.softmax(v, 0)",
    "log_softmax": "F.log_softmax(x, -1)",
    "logsumexp": "t.logsumexp(x, -1)",
    "gelu": "F.gelu(x)",
    "gelu, tanh": "F.gelu(x, approximate='tanh')",
    "silu": "F.silu(x)",
    "mish": "F.mish(x)",
    "elu": "F.elu(x)",
    "leaky_relu": "F.leaky_relu(x)",
    "softplus": "F.softplus(x)",
    "hardswish": "F.hardswish(x)",
    "glu": "F.glu(x)",
    "layer_norm": "F.layer_norm(x, x.shape[1:], w, b)",
    "rms_norm": "F.rms_norm(x, x.shape[1:], w)",
    "group_norm": "F.group_norm(images, 2, cw, cb)",
    "batch_norm (N, C)": "F.batch_norm(x, None, None, w, b, training=True)",
    "batch_norm (N, C, H, W)": "F.batch_norm(images, None, None, cw, cb, training=True)",
    "normalize": "F.normalize(x, dim=-1)",
    "dropout": "F.dropout(x, 0.1, True)",
    "cross_entropy": "F.cross_entropy(x, labels)",
    "nll_loss": "F.nll_loss(x, labels)",
    "mse_loss": "F.mse_loss(x, y)",
    "l1_loss": "F.l1_loss(x, y)",
    "huber_loss": "F.huber_loss(x, y)",
    "smooth_l1_loss": "F.smooth_l1_loss(x, y)",
    "binary_cross_entropy": "F.binary_cross_entropy(positive, unit)",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(x, unit)",
    "kl_div": "F.kl_div(x, unit, reduction='batchmean')",
    "cosine_similarity": "F.cosine_similarity(x, y)",
}
REDUCED = ["sum", "mean", "amax", "amin", "prod", "any", "argmax", "var", "norm", "cumsum"]
MOVEMENT = {
    "gather": "t.gather(x, 1, columns)",
    "take_along_dim": "t.take_along_dim(x, columns, 1)",
    "index_select rows": "t.index_select(x, 0, labels)",
    "index_select columns": "t.index_select(x, 1, labels)",
    "x[rows]": "x[labels]",
    "x[mask]": "x[mask]",
    "embedding": "F.embedding(tokens, table)",
    "embedding, forward and backward": "grad(F.embedding(tokens, leaf_table), (leaf_table,))",
    "scatter": "t.scatter(x, 1, columns, y)",
    "scatter_add": "t.scatter_add(x, 1, columns, y)",
    "index_add": "t.index_add(x, 0, labels, y)",
    "index_put": "t.index_put(x, (labels,), y)",
    "where": "t.where(mask, x, y)",
    "masked_fill": "x.masked_fill(mask, 0.0)",
    "cat rows": "t.cat([x, y], 0)",
    "cat columns": "t.cat([x, y], 1)",
    "cat of eight": "t.cat([x, y, x, y, x, y, x, y], 0)",
    "stack": "t.stack([x, y])",
    "stack last": "t.stack([x, y], -1)",
    "t().contiguous()": "x.t().contiguous()",
    "permute(2, 0, 1).contiguous()": "cube.permute(2, 0, 1).contiguous()",
    "permute(0, 2, 1, 3).contiguous()": "heads.permute(0, 2, 1, 3).contiguous()",
    "clone": "x.clone()",
    "flip": "x.flip(-1)",
    "roll": "x.roll(3, -1)",
    "tril": "x.tril()",
    "repeat": "x.repeat(2, 1)",
    "pad": "F.pad(x, (1, 1, 1, 1))",
    "one_hot": "F.one_hot(labels, x.shape[1])",
    "sort": "x.sort(-1)",
    "argsort": "x.argsort(-1)",
    "topk": "x.topk(5, -1)",
    "copy_": "copied.copy_(x)",
    "zeros": "t.zeros(x.shape)",
    "arange": "t.arange(n)",
    "randn": "t.randn(x.shape)",
    "rand": "t.rand(x.shape)",
    "to(float64)": "x.to(t.float64)",
    "to(bfloat16)": "x.to(t.bfloat16)",
}
BESIDE = {  # measured where they are named only: limits of core/policy.py were chosen by them
    "add_": "copied.add_(y)",
    "index_add_": "copied.index_add_(0, labels, y)",
    "outer": "t.outer(w, b)",
    "cholesky": "t.linalg.cholesky(definite)",
    "inv": "t.linalg.inv(definite)",
    "solve": "t.linalg.solve(definite, systems)",
}


class Row(NamedTuple):
    """One operation: an expression in both frameworks."""

    family: str
    label: str
    expression: str


def rows() -> Iterator[Row]:
    """All that is measured."""
    yield from _elementwise()
    for label, expression in COMPOSITES.items():
        yield Row("composite", label, expression)
    for label, expression in COMPOSITES.items():
        first = re.search(r"\((\w+)", expression)
        assert first is not None
        leaves = [
            first[1],
            *(w for w in ("w", "b", "cw", "cb") if re.search(rf"\b{w}\b", expression)),
        ]
        changed = expression.replace(f"({first[1]}", f"(leaf_{first[1]}", 1)
        changed = re.sub(r"\b(c?[wb])\b", r"leaf_\1", changed)
        wanted = ", ".join(f"leaf_{leaf}" for leaf in leaves)
        yield Row("composite, forward and backward", label, f"grad({changed}, ({wanted},))")
    for name in REDUCED:
        what = "(x > 9)" if name == "any" else "near" if name == "prod" else "x"
        first = {"norm": "2, "}.get(name, "")
        yield Row("reduction", f"{name} over rows", f"{what}.{name}({first}0)")
        yield Row("reduction", f"{name} over columns", f"{what}.{name}({first}1)")
        middle = what.replace("x", "cube").replace("near", "near_cube")
        yield Row("reduction", f"{name} over the middle", f"{middle}.{name}({first}1)")
        if name == "cumsum":
            yield Row("reduction", "cumsum of a vector", "v.cumsum(0)")
        else:
            yield Row("reduction", f"{name} over all", f"{what}.{name}()")
    for label, expression in MOVEMENT.items():
        yield Row("movement", label, expression)


def beside() -> Iterator[Row]:
    """What is measured only where `--rows beside` or a label names it."""
    for label, expression in BESIDE.items():
        yield Row("beside the table", label, expression)


def _elementwise() -> Iterator[Row]:
    """One row for each elementwise primitive that PyTorch has under the same name."""
    for cls in REGISTRY.values():
        name = snake_case(cls.__name__)
        if not issubclass(cls, Elementwise) or name in ELSEWHERE or "polynomial" in name:
            continue
        for space in ("t", "t.special"):
            found = [_function(t, space, name) for t in (ad, torch)]
            if all(map(callable, found)) and (given := _arguments(found, name)):
                yield Row("elementwise", name, f"{space}.{name}({given})")
                break


def _function(t: Any, space: str, name: str) -> Any:
    return getattr(t if space == "t" else t.special, name, None)


def _arguments(functions: list[Any], name: str) -> str:
    """What both take: the first of some usual argument lists."""
    fixed = {
        "clamp": "x, -0.5, 0.5", "clamp_min": "x, 0.0", "clamp_max": "x, 0.0",
        "polygamma": "1, domain", "where": "mask, x, y", "lerp": "x, y, 0.3", "complex": "x, y",
        "round": "x", "logit": "unit",
    }  # fmt: skip
    real = "domain" if name in DOMAIN else "positive"
    usual = [
        real,
        f"{real}, unit",
        f"{real}, unit, x",
        "whole",
        "whole, shifts",
        "mask",
        "mask, other",
    ]
    for given in [fixed[name]] if name in fixed else usual:
        try:
            for t, function in zip((ad, torch), functions, strict=True):
                names = [part.strip() for part in given.split(",")]
                data = Data(t, 64, name)
                function(
                    *[
                        data[n] if n[0].isalpha() else float(n) if "." in n else int(n)
                        for n in names
                    ]
                )
        except (TypeError, RuntimeError, ValueError, NotImplementedError):
            continue
        return given
    return ""


# ---- inputs --------------------------------------------------------------------------------------


@lru_cache(maxsize=48)
def _array(kind: str, shape: tuple[int, ...], most: int = 0) -> np.ndarray:
    rng = np.random.default_rng([len(kind), *shape])
    size = math.prod(shape)
    if kind.endswith("normal"):
        found = rng.standard_normal(size, np.float32)
    elif kind.endswith("unit"):
        found = rng.random(size, np.float32) * 0.9 + 0.05
    elif kind == "mask":
        return (rng.random(size, np.float32) < 0.5).reshape(shape)
    elif kind == "int":
        return rng.integers(0, most, shape)
    else:
        return rng.integers(1, 30, shape, np.int32)
    return found.reshape(shape)


class Data(dict):
    """The inputs of one size for framework `t`, made when they are asked for."""

    def __init__(self, t: Any, n: int, label: str = "") -> None:
        super().__init__(t=t, n=n, F=t.nn.functional)
        self.label = label
        self.ones: dict[Any, Any] = {}  # cotangents, by shape
        side = 1 << (n.bit_length() - 1) // 2
        self.matrix = (3, 5) if n == 15 else (side, n // side)
        cubes = {1: (1, 1, 1), 15: (3, 1, 5), 64: (4, 4, 4)}
        self.cube = cubes.get(n) or (side // 4, 16, side // 4)
        self.images = (max(n // 1024, 1), 16, 8, 8) if n > 1024 else (2, 8, 2, 2)
        heads = (max(n // 4096, 1), 8, -(-min(n, 4096) // 128), 16)
        self.heads = heads if n > 64 else (2, 2, 4, 4)

    def __missing__(self, name: str) -> Any:
        found = self[name] = self._made(name)
        return found

    def _made(self, name: str) -> Any:
        t, n = self["t"], self["n"]
        if name == "grad":
            ones = self.ones

            def grad(y: Any, leaves: Any) -> Any:
                shape = tuple(y.shape)
                if shape not in ones:
                    ones[shape] = t.ones(shape)
                return t.autograd.grad(y, leaves, ones[shape])

            return grad
        if name.startswith("leaf_"):
            return self[name.removeprefix("leaf_")].detach().requires_grad_()
        if name == "domain":
            low, high = DOMAIN[self.label]
            return self["unit"] * (high - low) + low
        if name in ("near", "near_cube"):  # products that stay in range
            return self["unit_cube" if "cube" in name else "unit"] * 0.001 + 0.9995
        if name == "copied":
            return self["x"].clone()
        return t.from_numpy(self._numpy(name, n))

    def _numpy(self, name: str, n: int) -> np.ndarray:
        rows, columns = self.matrix
        channels = self.images[1]
        if name in ("x", "y", "v", "cube", "images", "heads", "table", "w", "b", "cw", "cb"):
            shape = {
                "v": (n,), "cube": self.cube, "images": self.images, "w": (columns,),
                "b": (columns,), "heads": self.heads, "cw": (channels,), "cb": (channels,),
            }.get(name, (rows, columns))  # fmt: skip
            return _array("other normal" if name == "y" else "normal", shape)
        if name in ("unit", "positive", "unit_cube"):
            shape = self.cube if name == "unit_cube" else self.matrix
            return _array("unit" if name == "unit" else "other unit", shape)
        if name in ("mask", "other"):
            return _array("mask", self.matrix)
        if name in ("labels", "tokens"):
            return _array("int", (rows,), min(rows, columns))
        if name == "columns":
            return _array("int", self.matrix, columns)
        if name in ("systems", "definite"):  # of 16 rows
            found = _array("normal", (max(n // 256, 1), 16, 16))
            return found if name == "systems" else found @ found.mT + np.eye(16, dtype=found.dtype)
        if name in ("whole", "shifts"):
            found = _array("whole", self.matrix)
            return found if name == "whole" else found % 5
        raise KeyError(name)


# ---- measuring -----------------------------------------------------------------------------------


class Cell(NamedTuple):
    """Microseconds a call, and PyTorch's over ours."""

    ours: float
    theirs: float
    ratio: float


_clock = [time.perf_counter]  # on one thread, that thread's own time: others may use the core


def _time(function: Callable[[], object], calls: int) -> float:
    clock = _clock[0]
    begin = clock()
    for _ in range(calls):
        function()
    return (clock() - begin) / calls


def _prepared(row: Row, n: int) -> tuple[list[Callable[[], object]], list[int], int]:
    """The two functions, how often to call each in a round, and the number of rounds."""
    functions = [eval(f"lambda: {row.expression}", Data(t, n, row.label)) for t in (ad, torch)]
    for function in functions:
        function()
    once = [_time(f, 1) for f in functions]
    if max(once) < LIMIT / 20:
        once = [min(_time(f, 1) for _ in range(3)) for f in functions]
    calls = [max(1, int(SECONDS / max(t, 1e-7))) for t in once]
    total = sum(t * k for t, k in zip(once, calls, strict=True))
    return functions, calls, max(1, int(LIMIT / total))


def measure(row: Row, n: int, rounds: int) -> Cell:
    """Both in turns."""
    functions, calls, most = _prepared(row, n)
    gc.collect()
    gc.disable()
    try:
        times = [
            [_time(f, k) for f, k in zip(functions, calls, strict=True)]
            for _ in range(min(rounds, most))
        ]
    finally:
        gc.enable()
    ours, theirs = (min(column) * 1e6 for column in zip(*times, strict=True))
    return Cell(ours, theirs, theirs / ours)


def slowdown(row: Row, n: int, rounds: int, core: BusyCore) -> Cell:
    """How much slower each gets while a core is busy; ratio: theirs over ours meanwhile."""
    functions, calls, most = _prepared(row, n)
    calls = [10 * k for k in calls]  # longer than a time slice
    quiet, busy = [], []
    for _ in range(min(rounds, max(most // 20, 2))):
        quiet.append([_time(f, k) for f, k in zip(functions, calls, strict=True)])
        with core.busy():
            busy.append([_time(f, k) for f, k in zip(functions, calls, strict=True)])
    ours, theirs = (
        statistics.median(b[k] / q[k] for b, q in zip(busy, quiet, strict=True)) for k in (0, 1)
    )
    return Cell(ours, theirs, statistics.median(b[1] / b[0] for b in busy))


def _is_valid(row: Row, n: int) -> bool:
    """Whether PyTorch takes so few elements: no batch norm of one, say."""
    try:
        eval(row.expression, Data(torch, n, row.label))
    except (IndexError, RuntimeError, ValueError):
        return False
    return True


def _slow(smaller: Cell | None) -> bool:
    return smaller is not None and max(smaller.ours, smaller.theirs) > LIMIT / 16 * 1e6


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(chosen: list[Row], sizes: list[int], rounds: int, core: BusyCore | None) -> None:
    """Measure and print."""
    busy = core is not None
    cells: dict[tuple[Row, int], Cell] = {}
    width = 12 if busy else 8
    family = ""
    for row in chosen:
        if row.family != family:
            family = row.family
            print(f"\n{family:44s}" + "".join(f"{SIZES.get(n, n):>{width}}" for n in sizes))
        line = f"{row.label:44s}"
        for n in sizes:
            if cells and n > 1 << 20 and _slow(cells.get((row, n // 16))):
                line += " " * (width - 1) + "-"  # it would take seconds
                continue
            if n < 64 and not _is_valid(row, n):
                line += " " * (width - 1) + "-"
                continue
            cell = measure(row, n, rounds) if core is None else slowdown(row, n, rounds, core)
            cells[row, n] = cell
            line += f"{cell.ours:6.2f}{cell.theirs:6.2f}" if busy else f"{cell.ratio:8.2f}"
        print(line, flush=True)
    print(f"\n{'geometric means':44s}" + "".join(f"{SIZES.get(n, n):>{width}}" for n in sizes))
    for name in [*dict.fromkeys(row.family for row in chosen), "all"]:
        line = f"{name:44s}"
        for n in sizes:
            found = [c for (row, k), c in cells.items() if k == n and name in (row.family, "all")]
            ours = _mean([c.ours for c in found])
            line += f"{ours:6.2f}{_mean([c.theirs for c in found]):6.2f}" if busy else ""
            line += "" if busy else f"{_mean([c.ratio for c in found]):8.2f}"
        if not busy:
            found = [c for (row, _), c in cells.items() if name in (row.family, "all")]
            line += f"   all {_mean([c.ratio for c in found]):.2f}"
        print(line)
    if busy:
        ours, theirs = (max(c[k] for c in cells.values()) for k in (0, 1))
        print(f"our greatest slowdown {ours:.2f}, PyTorch's {theirs:.2f}")
        return
    below = sorted(
        (c.ratio, row.label, row.family, n, c) for (row, n), c in cells.items() if c.ratio < 1
    )
    print(f"\n{len(cells)} cells, {len(below)} below 1.0 (ours us, PyTorch us):")
    for ratio, label, kind, n, c in below:
        print(f"{ratio:6.2f}  {label} ({kind}), {SIZES.get(n, n)}: {c.ours:.1f} {c.theirs:.1f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks operations", description=__doc__)
    parser.add_argument("--rows", default="", help="a pattern of families and labels")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--threads", type=int, default=ad.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="three rounds, without 16 Mi elements")
    parser.add_argument("--busy", action="store_true", help="slowdown while one core is busy")
    options = parser.parse_args()
    sizes = [n for n in options.sizes if not options.quick or n < 1 << 24]
    if options.busy and options.sizes == list(SIZES):
        sizes = [65536, 1 << 20]
    pattern = re.compile(options.rows)
    if options.threads == 1 and not options.busy:
        _clock[0] = time.thread_time
    ad.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    print(f"PyTorch {torch.__version__} time / our time, {options.threads} threads")
    with BusyCore(options.threads) if options.busy else contextlib.nullcontext() as core:
        every = [*rows(), *(beside() if options.rows else ())]
        chosen = [row for row in every if pattern.search(f"{row.family}: {row.label}")]
        table(chosen, sizes, 3 if options.quick else 7, core)


if __name__ == "__main__":
    main()
