"""What thousands of training steps leave in memory, in a graph and eagerly.

Run: python -m tests.reactive.soak [--steps 10000] [--only NAME ...] [--living]

Each program of training_programs.py runs twice, eagerly and inside `graph.step()`, each time in a
process of its own. From a tenth of the steps to the last, three things may grow: tensors, objects
that Python's garbage collector knows, and resident memory. A program that keeps its losses in a
list grows in both runs, so what counts is how much more the graph's run grows than the eager one:
by some thousand objects, of values that the steps of the moment have noted, and a MiB.

With `--living` the loops of test_writers.py run instead, each turn inside `with graph:`.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import gc
import itertools
import multiprocessing
import os
import sys
import time

import adjoint as ad
from adjoint.core.tensor_base import TensorBase

from . import test_writers, training_programs
from .training_programs import PROGRAMS

LIVING = {f"living_{name}": loop for name, loop in test_writers.LOOPS.items()}
ONE_BLOCK = "all_steps_in_one_block"  # seen at its iterations, all others where they enter a block


def sample():
    """Tensors, objects, resident bytes."""
    gc.collect()
    objects = gc.get_objects()
    tensors = sum(isinstance(x, TensorBase) for x in objects)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return tensors, len(objects), pages * os.sysconf("SC_PAGE_SIZE")


def watch(name, in_graph, steps, connection):
    """Run a program, and send how much each of the three grew, and what its graph held."""
    graph = ad.Graph()
    blocks = contextlib.nullcontext
    if in_graph:
        blocks = (lambda: graph) if name in LIVING else graph.step
    samples, ticks = [], itertools.count()
    every = max(steps // 10, 1)

    def tick():
        if next(ticks) % every == 0:
            samples.append(sample())

    def block():
        tick()
        return blocks()

    def counted(*bounds):
        for i in builtins.range(*bounds):
            if bounds == (steps,):
                tick()
            yield i

    if name == ONE_BLOCK:
        training_programs.range = counted
        block = blocks
    began = time.perf_counter()
    (PROGRAMS | LIVING)[name](block, steps)
    seconds = time.perf_counter() - began
    growth = [last - first for first, last in zip(samples[1], samples[-1], strict=True)]
    connection.send((growth, graph.stats(), next(ticks), seconds))


def run(name, in_graph, steps, limit):
    """What `watch` sends from a process of its own; None where that takes longer than `limit`
    seconds, or fails: some programs diverge at last.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=watch, args=(name, in_graph, steps, theirs)
    )
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else None
    except EOFError:
        return None
    finally:
        process.terminate()
        process.join()


def verdict(eager, graph):
    """What of the graph's growth is neither the program's own nor within bounds."""
    more = [ours - own for ours, own in zip(graph, eager, strict=True)]
    bounds = {"tensors": 20, "objects": 5000, "bytes": 2**20}
    return [
        f"{extra} more {name}"
        for (name, bound), extra in zip(bounds.items(), more, strict=True)
        if extra > bound
    ]


def judged(name, steps, limit):
    """A line for one program, and whether it is flat; fewer steps where it is slow."""
    while True:
        runs = [run(name, in_graph, steps, limit) for in_graph in (False, True)]
        if None not in runs:
            break
        steps //= 10
        if steps < 100:
            return f"{name:<60} failed", False
    (eager, _, _, eager_seconds), (graph, stats, entered, seconds) = runs
    wrong = verdict(eager, graph)
    holds = stats["nodes"] > 100 if name in LIVING else stats["nodes"] or stats["bytes"]
    if holds:
        wrong.append(f"{stats['nodes']} nodes of {stats['bytes']} bytes")
    grew = "  ".join(f"{ours:>8} ({own:>8})" for ours, own in zip(graph, eager, strict=True))
    said = "LEAK: " + ", ".join(wrong) if wrong else "flat"
    times = f"{seconds:.0f} s ({eager_seconds:.0f} s)"
    return f"{name:<60} {steps:>6} {entered:>6}  {grew}  {times}  {said}", not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--living", action="store_true", help="loops inside `with graph:`")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--limit", type=float, default=180, help="seconds for a run")
    options = parser.parse_args()
    options.only = options.only or list(LIVING if options.living else PROGRAMS)
    print("program, steps, blocks; growth of tensors, objects, bytes (eagerly); time; verdict")
    leaking = []
    for name in options.only:
        line, flat = judged(name, options.steps, options.limit)
        print(line, flush=True)
        if not flat:
            leaking.append(name)
    print(f"{len(options.only) - len(leaking)} of {len(options.only)} are flat")
    sys.exit(bool(leaking))


if __name__ == "__main__":
    main()
