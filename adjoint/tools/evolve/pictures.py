"""What a run looks like: a table, pictures of the front and of scores, and a genome as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

import adjoint as ad

from .genome import Genome
from .network import ACTIVATIONS, levels_of

WIDTH, HEIGHT, MARGIN = 640, 420, 64
INK, MUTED, BLUE = "#1c2733", "#9aa5b1", "#2463c4"


def table(history: Sequence[dict[str, Any]]) -> str:
    """Records as a table, a row each."""
    names = list(history[0]) if history else ["no generation was evaluated"]
    rows = [[_short(record[name]) for name in names] for record in history]
    widths = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in [names, *rows]
    ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


# ---- pictures ------------------------------------------------------------------------------------


def front(selection: Any, evaluated: Sequence[Any], best: Sequence[Any], path: str | Path) -> None:
    """Write a picture of the first two objectives: the last generation, and the front as a line."""
    x, y = selection.names()[:2]
    signs = [-1.0 if each.startswith("-") else 1.0 for each in selection.objectives[:2]]
    others = selection.points(evaluated)[:, :2] * signs
    line = selection.points(best)[:, :2] * signs
    line = line[np.argsort(line[:, 0], kind="stable")]
    _write(path, others, line, x, y, f"front of {len(best)} after {len(evaluated)} evaluated")


def scores(history: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Write a picture of the best score of each generation, and the mean as dots."""
    mean = np.array([[record["generation"], record["mean"]] for record in history])
    best = np.array([[record["generation"], record["best"]] for record in history])
    _write(path, mean.reshape(-1, 2), best.reshape(-1, 2), "generation", "score", "best, mean")


def _write(
    path: str | Path, dots: np.ndarray, line: np.ndarray, x: str, y: str, title: str
) -> None:
    dots = dots[np.isfinite(dots).all(1)]
    line = line[np.isfinite(line).all(1)]
    points = np.concatenate([dots, line])
    low = points.min(0) if len(points) else np.zeros(2)
    high = points.max(0) if len(points) else np.ones(2)
    room = np.where(high > low, high - low, 1.0)
    inner = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])

    def place(group: np.ndarray) -> list[tuple[float, float]]:
        share = (group - low) / room * inner
        return [(MARGIN + a, HEIGHT - MARGIN - b) for a, b in share.tolist()]

    def text(at: tuple[float, float], words: str, anchor: str = "middle") -> str:
        return (
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    bottom = HEIGHT - MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{MARGIN} {MARGIN}V{bottom}H{WIDTH - MARGIN}" fill="none" stroke="{MUTED}"/>',
        *(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{MUTED}"/>' for a, b in place(dots)),
        '<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>'.format(
            BLUE, " ".join(f"{a:.1f},{b:.1f}" for a, b in place(line))
        ),
        *(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{BLUE}"/>' for a, b in place(line)),
        text((WIDTH / 2, MARGIN / 2), title),
        text((WIDTH / 2, HEIGHT - 16), x),
        text((8, MARGIN - 14), y, "start"),
        text((MARGIN, bottom + 20), _short(float(low[0]))),
        text((WIDTH - MARGIN, bottom + 20), _short(float(high[0]))),
        text((MARGIN - 6, bottom), _short(float(low[1])), "end"),
        text((MARGIN - 6, MARGIN + 5), _short(float(high[1])), "end"),
        "</svg>",
    ]
    Path(path).write_text("\n".join(parts) + "\n", encoding="utf-8")


# ---- a genome as a graph -------------------------------------------------------------------------


def graph_of(genome: Genome, inputs: Any = None) -> ad.Graph:
    """A genome as a living graph: inputs "x0", nodes "n2", weights "w5" and biases "b2" are nodes
    with names; what a recurrent connection reads is an input "n2 before".

    >>> import random
    >>> from adjoint import evolve
    >>> graph = evolve.graph_of(evolve.NEAT(2, 1).first(random.Random(0)))
    >>> sorted(graph.inputs), [name for name, _ in graph.named_parameters()]
    (['x0', 'x1'], ['b2', 'w0', 'w1'])
    """
    graph = ad.Graph()
    rows = ad.zeros(1, genome.inputs) if inputs is None else ad.as_tensor(inputs)
    values = {n: graph.input(rows[:, n].clone(), f"x{n}") for n in range(genome.inputs)}
    nodes = [n for level in levels_of(genome) for n in level]
    before: dict[int, ad.Tensor] = {}
    for n in nodes:
        total = graph.parameter(ad.tensor(genome.values[~n]), f"b{n}")
        for g, link in genome.enabled():
            if link.target != n or (link.source >= genome.inputs and link.source not in nodes):
                continue
            weight = graph.parameter(ad.tensor(genome.values[g]), f"w{g}")
            if link.recurrent and link.source not in before:
                before[link.source] = graph.input(ad.zeros(len(rows)), f"n{link.source} before")
            source = before[link.source] if link.recurrent else values[link.source]
            total = total + weight * source
        activation = genome.nodes[n]
        value = total * 1.0 if activation == "identity" else ACTIVATIONS[activation](total)
        values[n] = graph.name(value, f"n{n}")
    return graph
