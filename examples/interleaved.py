"""How the examples on graphs compare two programs: their numbers, and their times interleaved.

Not a program by itself.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import adjoint as ad


def gain(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 15, calls: int = 1
) -> float:
    """How many times longer `theirs()` takes than `ours()`: the median over alternating rounds.

    Other work on the machine slows both alike, so the ratio means something where a time does not.
    """

    def seconds(function: Callable[[], object]) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        return time.perf_counter() - begin

    ours(), theirs()  # what happens only once is not measured
    ratios: list[float] = []
    for _ in range(1 if os.environ.get("ADJOINT_SMOKE") else rounds):
        mine = seconds(ours)
        ratios.append(seconds(theirs) / mine)
    return statistics.median(ratios)


def in_steps(train: Callable[..., Any], steps: int, few: int) -> Any:
    """The model of `train(block, steps)` with the steps of a graph as its blocks.

    It returns a model and its losses. They must be those of eager execution; what was reused is
    printed, and the time of a `few` steps beside eager ones.
    """
    graph = ad.Graph()
    model, losses = train(graph.step, steps)
    twin, expected = train(contextlib.nullcontext, steps)
    print(f"largest difference from eager: {difference(model, losses, twin, expected):.1e}")
    stats = graph.stats()
    reused, known = stats["step_reused"], stats["step_ops"]
    print(f"{stats['steps']} steps; of {known} operations looked at, {reused} were reused")
    ratio = gain(
        lambda: train(graph.step, few), lambda: train(contextlib.nullcontext, few), rounds=5
    )
    print(f"gain over eager: {ratio:.2f}")
    return model


def difference(model, losses, twin, expected):
    """The largest difference of the losses and weights of two runs, which is at most 1e-6."""
    ours, theirs = model.state_dict(), twin.state_dict()
    assert len(losses) == len(expected) and ours.keys() == theirs.keys()
    found = max(
        *(abs(a - b) for a, b in zip(losses, expected, strict=True)),
        *((x - theirs[name]).abs().max().item() for name, x in ours.items()),
    )
    assert found <= 1e-6
    return found
