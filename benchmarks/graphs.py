"""Graphs of a thousand to a million nodes: what building costs, and what one changed input costs.

Nodes hold four float32 values, so that what is measured is the graph and not the arithmetic. All
times are CPU time of the process; medians of rounds that take turns with NumPy's own operations.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

import adjoint as ad
from adjoint.core import policy

from . import graph_backward, timing

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 15
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
JAX_LIMIT = 60  # seconds for compiling and running one function
clock = time.process_time


class Tree:
    """x / 2 + 3/4 of each input; products of pairs, down to one: log2(inputs) + 2 affected."""

    nodes_per_input = 4

    def build(self, xs: Sequence[Any]) -> list[Any]:
        """The outputs; `xs` are of any library."""
        level = [x * 0.5 + 0.75 for x in xs]
        while len(level) > 1:
            rest = level[-1:] if len(level) % 2 else []
            level = [a * b for a, b in zip(level[::2], level[1::2], strict=False)] + rest
        return level

    def at_once(self, x: Any, cat: Callable[[list[Any]], Any]) -> Any:
        """The same on one array of all inputs."""
        level = x * 0.5 + 0.75
        while len(level) > 1:
            rest = [level[-1:]] if len(level) % 2 else []
            even = len(level) // 2 * 2
            level = cat([level[:even:2] * level[1:even:2], *rest])
        return level

    def choose(self, n_inputs: int) -> tuple[int, int, list[int]]:
        """The input that changes, the one whose sensitivity is read, and the outputs read."""
        return n_inputs // 3, 2 * n_inputs // 3, [0]


class Windows:
    """Outputs of three neighbouring inputs each: 7 affected, whatever the size."""

    nodes_per_input = 5

    def build(self, xs: Sequence[Any]) -> list[Any]:
        """The outputs; `xs` are of any library."""
        h = [x * 0.5 + 0.75 for x in xs]
        return [a * b + c for a, b, c in zip(h, h[1:], h[2:], strict=False)]

    def at_once(self, x: Any, cat: Callable[[list[Any]], Any]) -> Any:
        """The same on one array of all inputs."""
        h = x * 0.5 + 0.75
        return h[:-2] * h[1:-1] + h[2:]

    def choose(self, n_inputs: int) -> tuple[int, int, list[int]]:
        """The input that changes, the one whose sensitivity is read, and the outputs read."""
        i = n_inputs // 3
        return i, i - 1, [i - 1, i - 2, i]


class Chain:
    """y = y * x + 1/2 along all inputs; the input 8 before the end changes: 16 affected."""

    nodes_per_input = 3

    def build(self, xs: Sequence[Any]) -> list[Any]:
        """The outputs; `xs` are of any library."""
        y = xs[0]
        for x in xs[1:]:
            y = y * x + 0.5
        return [y]

    at_once = None  # each step needs the one before

    def choose(self, n_inputs: int) -> tuple[int, int, list[int]]:
        """The input that changes, the one whose sensitivity is read, and the outputs read."""
        return n_inputs - 8, n_inputs - 12, [0]


SHAPES = {"tree": Tree(), "windows": Windows(), "chain": Chain()}


class Built:
    """A graph of a shape, with the tensors that a user holds: its inputs and outputs."""

    def __init__(self, shape: Any, size: int) -> None:
        n_inputs = size // shape.nodes_per_input
        self.changed, self.sensed, self.read = shape.choose(n_inputs)
        self.graph = ad.Graph()
        value = np.full(4, 0.5, np.float32)
        began = clock()
        self.inputs = [self.graph.input(value) for _ in range(n_inputs)]
        made_inputs = clock()
        self.inputs[self.sensed].requires_grad_()
        built = clock()
        self.outputs = shape.build(self.inputs)
        ended = clock()
        self.nodes = len(self.graph)
        self.us_per_input = (made_inputs - began) / n_inputs * 1e6
        self.us_per_node = (ended - built) / (self.nodes - n_inputs) * 1e6

    @property
    def asked(self) -> list[Any]:
        """The outputs that the changed input reaches."""
        return [self.outputs[i] for i in self.read]

    def updates(self, values: list[Any], targets: list[Any]) -> Callable[[], None]:
        """A function that sets the changed input to each of `values` and refreshes `targets`."""
        x = self.inputs[self.changed]
        forward = self.graph.forward

        def run() -> None:
            for value in values:
                x.set(value)
                forward(*targets)

        return run


@contextmanager
def without_gc() -> Iterator[None]:
    """Reference counts alone free memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds(function: Callable[[], Any]) -> float:
    """The CPU time of one call."""
    began = clock()
    function()
    return clock() - began


def dependents(targets: Sequence[Any], source: Any) -> int:
    """How many nodes above `targets` depend on `source`: from the edges to inputs alone, which
    updates do not use.
    """
    above, stack = set(), [y.node for y in targets]
    while stack:
        cell = stack.pop()
        if cell not in above:
            above.add(cell)
            stack.extend(x for x in cell.inputs if hasattr(x, "inputs"))
    affected = {source.node}
    for cell in sorted(above, key=lambda cell: cell.order):
        if not affected.isdisjoint(x for x in cell.inputs if hasattr(x, "inputs")):
            affected.add(cell)
    return len(affected) - 1


def refreshed(built: Built, targets: list[Any]) -> list[Any]:
    """The nodes that ran in one update, which are those that the edges say."""
    run = built.updates([np.full(4, 0.25, np.float32)], targets)
    run()
    with built.graph.events() as log:
        run()
    expected = dependents(targets, built.inputs[built.changed])
    if len(log.cells) != expected:
        raise AssertionError(f"{len(log.cells)} nodes ran, {expected} depend on the input")
    return list(log.cells)


def numpy_of(cells: list[Any], times: int) -> Callable[[], None]:
    """What NumPy alone does in `times` updates: the same functions on the same arrays."""
    steps = [
        (getattr(np, cell.op.ufunc), *(getattr(x, "array", x) for x in cell.inputs))
        for cell in cells
        if getattr(cell.op, "ufunc", "")
    ]

    def run() -> None:
        for _ in range(times):
            for function, a, b in steps:
                function(a, b)

    return run


def measure_memory(shape: Any, size: int) -> tuple[float, float, int]:
    """Bytes per node once recorded, once computed too; bytes left when dropped without gc."""
    Built(shape, 100).graph.forward()  # what is made once
    with without_gc():
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        built = Built(shape, size)
        nodes = built.nodes
        recorded = tracemalloc.get_traced_memory()[0] - before
        built.graph.forward(*built.outputs)
        computed = tracemalloc.get_traced_memory()[0] - before
        del built
        left = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    return recorded / nodes, computed / nodes, left


def measure_updates(built: Built) -> list[float]:
    """Nodes run, microseconds an update and a node, NumPy's a node, and the overhead a node: the
    median of the rounds, and of the quickest ones.
    """
    times = 200
    cells = refreshed(built, built.asked)
    values = [np.full(4, i / times, np.float32) for i in range(times)]
    ours, numpy = built.updates(values, built.asked), numpy_of(cells, times)
    rounds = [(seconds(ours), seconds(numpy)) for _ in range(ROUNDS)]
    each = 1e6 / (times * len(cells))
    update, alone = (statistics.median(t) for t in zip(*rounds, strict=True))
    overheads = [(a - b) * each for a, b in rounds]
    best = (min(a for a, _ in rounds) - min(b for _, b in rounds)) * each
    return [
        len(cells), update / times * 1e6, update * each, alone * each,
        statistics.median(overheads), best,
    ]  # fmt: skip


def measure_sensitivity(built: Built) -> list[float]:
    """With the gradient of one output by another input: nodes run, microseconds an update."""
    loss = built.asked[0].sum()
    recording = clock()
    (gradient,) = ad.autograd.grad(loss, [built.inputs[built.sensed]])
    recorded = clock() - recording
    targets = [*built.asked, gradient]
    times = 200
    cells = refreshed(built, targets)
    values = [np.full(4, i / times, np.float32) for i in range(times)]
    run = built.updates(values, targets)
    update = statistics.median(seconds(run) for _ in range(ROUNDS)) / times * 1e6
    return [len(cells), update, update / len(cells), recorded / built.nodes * 1e6]


def measure_torch(shape: Any, size: int) -> list[float | None]:
    """Microseconds of a full recompute in PyTorch: value, value and sensitivity, all at once."""
    n_inputs = size // shape.nodes_per_input
    changed, sensed, read = shape.choose(n_inputs)
    xs = [torch.full((4,), 0.5) for _ in range(n_inputs)]
    stacked = torch.full((n_inputs, 4), 0.5)
    value = torch.full((4,), 0.25)

    def recompute() -> None:
        xs[changed].copy_(value)
        shape.build(xs)

    def with_sensitivity() -> None:
        xs[changed].copy_(value)
        torch.autograd.grad(shape.build(xs)[read[0]].sum(), xs[sensed])

    def at_once() -> None:
        stacked[changed] = value
        shape.at_once(stacked, torch.cat)

    plain = _typical(recompute)
    xs[sensed].requires_grad_()
    both = _typical(with_sensitivity)
    return [plain, both, _typical(at_once) if shape.at_once is not None else None]


def _typical(function: Callable[[], None]) -> float:
    """The median microseconds of a call, after one that warms up."""
    first = seconds(function)
    n = 3 if first > 0.3 else ROUNDS
    return statistics.median(seconds(function) for _ in range(n)) * 1e6


def measure_jax(name: str, size: int, form: str) -> None:
    """Print, as JSON, seconds of compiling and microseconds of a full recompute in jitted JAX."""
    import jax
    import jax.numpy as jnp

    shape = SHAPES[name]
    n_inputs = size // shape.nodes_per_input
    changed, _, _ = shape.choose(n_inputs)
    value = jnp.full(4, 0.25, jnp.float32)
    if form == "nodes":
        xs = [jnp.full(4, 0.5, jnp.float32) for _ in range(n_inputs)]
        xs[changed] = value
        function: Any = jax.jit(shape.build)
        arguments = (xs,)
    else:

        def at_once(x: Any, i: int, value: Any) -> Any:
            x = x.at[i].set(value)
            if shape.at_once is not None:
                return x, shape.at_once(x, jnp.concatenate)
            return x, jax.lax.scan(lambda y, row: (y * row + 0.5, None), x[0], x[1:])[0]

        function = jax.jit(at_once, donate_argnums=0)
        arguments = (jnp.full((n_inputs, 4), 0.5, jnp.float32), changed, value)
    began = time.perf_counter()
    compiled = function.lower(*arguments).compile()
    compiling = time.perf_counter() - began

    def recompute() -> None:
        nonlocal arguments
        result = jax.block_until_ready(compiled(*arguments))
        if form != "nodes":
            arguments = (result[0], *arguments[1:])

    print(json.dumps([compiling, _typical(recompute)]))


def run_jax(name: str, size: int, form: str) -> list[float] | None:
    """`measure_jax` in a process of its own with one thread; None where it takes too long, or JAX
    is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        return None
    command = [sys.executable, "-m", "benchmarks.graphs", name, str(size), form]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "XLA_FLAGS": ONE_THREAD, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            timeout=JAX_LIMIT,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def _row(label: str, values: Sequence[float | None], width: int = 11) -> None:
    print(f"{label:18s}" + "".join(f"{_text(v):>{width}s}" for v in values), flush=True)


def _head(title: str, columns: Sequence[str], width: int = 11) -> None:
    print(f"\n{title}\n{'':18s}" + "".join(f"{c:>{width}s}" for c in columns), flush=True)


def measure_building(shape: Any, size: int) -> list[float]:
    """Microseconds: a recorded node (median, best, with the gc on), NumPy's operation meanwhile, an
    input; of all nodes: computing and freeing one.
    """
    with_gc = Built(shape, size).us_per_node
    a = np.full(4, 0.5, np.float32)
    made, alone, given = [], [], []
    with without_gc():
        for _ in range(max(2, min(9, 300_000 // size))):
            built = Built(shape, size)
            made.append(built.us_per_node)
            given.append(built.us_per_input)
            alone.append(seconds(lambda: [a * a for _ in range(1000)]) * 1e3)
            computing = seconds(lambda b=built: b.graph.forward(*b.outputs))
            nodes = built.nodes
            began = clock()
            del built
            freeing = clock() - began
    typical = [statistics.median(made), min(made), with_gc]
    each = [computing / nodes * 1e6, freeing / nodes * 1e6]
    return [*typical, statistics.median(alone), statistics.median(given), *each]


def _building(cases: list[tuple[str, int]]) -> None:
    _head(
        "Recording, computing and freeing (us a node); bytes a node",
        (
            *("a node", "best", "gc on", "NumPy", "an input", "compute", "free"),
            *("recorded", "computed", "left"),
        ),
        10,
    )
    for name, size in cases:
        shape = SHAPES[name]
        _row(f"{name} {size:,}", [*measure_building(shape, size), *measure_memory(shape, size)], 10)


def _updating(cases: list[tuple[str, int]]) -> None:
    _head(
        "One input changes: nodes run, us; overhead a node beyond NumPy; recording of the gradient",
        (
            *("nodes run", "an update", "a node", "NumPy", "overhead", "best"),
            *("with grad:", "an update", "a node", "recording"),
        ),
    )
    for name, size in cases:
        with without_gc():
            built = Built(SHAPES[name], size)
            label = f"{name} {built.nodes:,}"
            _row(label, [*measure_updates(built), *measure_sensitivity(built)])
            del built


def _recomputing(cases: list[tuple[str, int]]) -> None:
    _head(
        "Full recompute (us); JAX: seconds of compiling, then us; -: over 60 s, or no such form",
        ("PyTorch", "and grad", "vectorised", "JAX nodes:", "", "vectorised:", ""),
    )
    compiles = dict.fromkeys(SHAPES, True)
    for name, size in cases:
        row = measure_torch(SHAPES[name], size)
        by_nodes = run_jax(name, size, "nodes") if compiles[name] else None
        compiles[name] = by_nodes is not None
        vectorised = run_jax(name, size, "vectorised")
        _row(f"{name} {size:,}", [*row, *(by_nodes or (None, None)), *(vectorised or (None, None))])


CHAINED = (16, 1_000, 90_000, 1_000_000)


def _chains() -> None:
    timing.header("A hundred elementwise nodes after a change, and the same operations in PyTorch")

    def run(x: Any) -> Any:
        y = x
        for _ in range(25):
            y = (y * 0.99 + x).tanh() - 0.1
        return y

    for size in CHAINED:
        values = [np.random.default_rng(n).random(size, np.float32) for n in range(2)]
        graph = ad.Graph()
        with graph:
            x = graph.input(ad.tensor(values[0]))
            y = run(x)
        given = [ad.tensor(v) for v in values], [torch.tensor(v) for v in values]
        ours, theirs = (itertools.cycle(each) for each in given)

        def update(x: Any = x, y: Any = y, ours: Any = ours) -> None:
            x.set(next(ours))
            y.numpy()

        for _ in range(2 * policy.CHAIN_SEEN):
            update()
        result = timing.compare(update, lambda theirs=theirs: run(next(theirs)))
        timing.row(f"{size:,} elements", result)


SHARED = (4, 4_096)
SHARES = (0.005, 0.05, 0.1, 0.25, 0.5, 1.0)


def _shares() -> None:
    """A thousand nodes of which a share is affected, against recomputing all of them elsewhere."""
    shape, n_inputs = SHAPES["windows"], 200
    build: Any = shape.build
    for size in SHARED:
        graph = ad.Graph()
        values = [np.full(size, i / 10, np.float32) for i in range(10)]
        inputs = [graph.input(values[0]) for _ in range(n_inputs)]
        outputs = build(inputs)
        theirs = [torch.full((size,), 0.5) for _ in range(n_inputs)]

        def updates(
            count: int,
            graph: Any = graph,
            xs: Any = inputs,
            ys: Any = outputs,
            values: Any = values,
        ) -> Any:
            given = itertools.cycle(values)

            def run() -> None:
                value = next(given)
                for x in xs[:count]:
                    x.set(value)
                graph.forward(*ys)

            return run  # noqa: B023 - a function of its own

        ways = {f"{share:.1%}": updates(max(1, int(share * n_inputs))) for share in SHARES}
        compiled = torch.compile(build)
        peers = {
            "PyTorch": lambda xs=theirs: build(xs),
            "torch.compile": lambda xs=theirs, run=compiled: run(xs),
        }
        if importlib.util.find_spec("jax") is not None:
            os.environ["XLA_FLAGS"] = ONE_THREAD
            os.environ["JAX_PLATFORMS"] = "cpu"
            import jax

            jitted, arrays = jax.jit(build), [jax.numpy.full(size, 0.5) for _ in range(n_inputs)]
            peers["JAX jit"] = lambda f=jitted, xs=arrays: jax.block_until_ready(f(xs))
        each: dict[str, list[float]] = {name: [] for name in (*ways, *peers)}
        first = {name: _elapsed(run) for name, run in (ways | peers).items()}
        with without_gc():
            for _ in range(2 * ROUNDS + 1):
                for name, run in (ways | peers).items():
                    each[name].append(_elapsed(run) * 1e6)
        typical = {name: statistics.median(times) for name, times in each.items()}
        _head(f"{len(graph):,} nodes of {size:,} floats (us): by the share that is affected", ways)
        _row("adjoint", [typical[name] for name in ways])
        for name in peers:
            shares = [0.0, *SHARES]
            costs = [typical[w] for w in (next(iter(ways)), *ways)]
            even = float(np.interp(typical[name], costs, shares))
            print(
                f"{name:18s}{_text(typical[name]):>11s} for all of it, after {first[name]:.1f} s; "
                f"as long as adjoint with {even:.0%} affected"
            )


def _elapsed(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _steps() -> None:
    timing.header("Training steps in `graph.step()`, and the same in PyTorch")

    def made(t: Any, block: Any, frozen: bool, width: int) -> Callable[[], None]:
        t.manual_seed(0)
        layers = [t.nn.Linear(width, width), t.nn.Tanh(), t.nn.Linear(width, width), t.nn.Tanh()]
        backbone, head = t.nn.Sequential(*layers), t.nn.Linear(width, 10)
        parameters = [*head.parameters()]
        if frozen:
            backbone.requires_grad_(False)
        else:
            parameters += backbone.parameters()
        optimizer = t.optim.SGD(parameters, lr=0.01)
        x, y, loss_of = t.randn(64, width), t.arange(64) % 10, t.nn.CrossEntropyLoss()

        def run() -> None:
            with block():
                loss = loss_of(head(backbone(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return run

    for width in (16, 512):
        for frozen in (True, False):
            what = f"{width} wide, {'frozen backbone' if frozen else 'all trained'}"
            theirs = made(torch, nullcontext, frozen, width)
            for label, reuse in (("default", None), ("reuse=True", True), ("eager", "")):
                graph = ad.Graph()
                block = nullcontext if reuse == "" else lambda: graph.step(reuse)  # noqa: B023
                timing.row(
                    f"{what}, {label}", timing.compare(made(ad, block, frozen, width), theirs)
                )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks graphs")
    parser.add_argument(
        "--only", choices=("backward", "chains", "shares", "steps"), help="that table alone"
    )
    only = parser.parse_args().only
    torch.set_num_threads(1)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    ad.set_num_threads(1)
    tables = {
        "backward": graph_backward.main,
        "chains": _chains,
        "steps": _steps,
        "shares": _shares,
    }
    for name, table in tables.items():
        if only in (None, name):
            table()
    if only is None:
        cases = [(name, size) for name in SHAPES for size in SIZES]
        _building(cases)
        _updating(cases)
        _recomputing(cases)


if __name__ == "__main__":
    measure_jax(sys.argv[1], int(sys.argv[2]), sys.argv[3])
