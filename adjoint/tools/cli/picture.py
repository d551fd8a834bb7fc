"""The demo's picture: how training went, and some digits with their predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .digits import History

INK, MUTED, GRID = "#1c2733", "#6b7785", "#e4e8ec"
BLUE, RED = "#2463c4", "#c8372d"
COLUMNS, ROWS = 6, 4


def draw(path: Path, history: History, images: Any, labels: Any, chances: Any) -> None:
    """Write the picture; `chances` are the network's probabilities."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    style = {
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with plt.rc_context(style):
        figure = plt.figure(figsize=(12, 5.6), dpi=150, facecolor="white")
        left, right = figure.subfigures(1, 2, width_ratios=(1, 1.18))
        _draw_curves(left, history)
        _draw_digits(right, images, labels, chances)
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)


def _draw_curves(panel: Any, history: History) -> None:
    panel.subplots_adjust(left=0.13, right=0.96, top=0.79, bottom=0.11, hspace=0.32)
    upper, lower = panel.subplots(2, 1, sharex=True)
    final = history.accuracies[-1]
    panel.text(0.13, 0.94, f"{final:.2%} of the test digits read correctly",
               fontsize=14, fontweight="bold", va="center")  # fmt: skip
    panel.text(0.13, 0.885, f"{len(history.losses)} steps of Adam in {history.seconds:.1f} s",
               color=MUTED, va="center")  # fmt: skip
    epochs = np.arange(1, len(history.losses) + 1) / history.steps_per_epoch
    upper.plot(epochs, history.losses, color=BLUE, alpha=0.25, linewidth=0.8)
    upper.plot(epochs, _smooth(history.losses), color=BLUE, linewidth=1.8)
    upper.set_yscale("log")
    upper.set_title("training loss", loc="left", fontsize=10, color=MUTED)
    ends = np.minimum(np.arange(1, len(history.accuracies) + 1), epochs[-1])
    percent = 100 * np.asarray(history.accuracies)
    lower.plot(ends, percent, color=BLUE, linewidth=1.8, marker="o", markersize=3.5)
    lower.annotate(
        f"{percent[-1]:.1f}", (ends[-1], percent[-1]), (0, -14), textcoords="offset points",
        ha="right", color=BLUE, fontweight="bold",
    )  # fmt: skip
    lower.set_title("test accuracy, %", loc="left", fontsize=10, color=MUTED)
    lower.set_ylim(min(90.0, float(percent.min()) - 2), 100.5)
    lower.set_xlabel("epoch")
    lower.xaxis.get_major_locator().set_params(integer=True)
    for axes in (upper, lower):
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.margins(x=0.02)
        axes.tick_params(length=0)


def _smooth(values: list[float], span: int = 15) -> Any:
    """A moving average whose ends use what there is."""
    window = np.ones(min(span, len(values)))
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")


def _draw_digits(panel: Any, images: Any, labels: Any, chances: Any) -> None:
    """The mistakes, then the right ones it was least sure of, then the surest of each digit."""
    guesses = chances.argmax(1)
    certainty = chances.max(1)
    wrong = np.flatnonzero(guesses != labels)
    wrong = wrong[np.argsort(-certainty[wrong], kind="stable")][: 2 * COLUMNS]
    right = np.flatnonzero(guesses == labels)
    right = right[np.argsort(certainty[right], kind="stable")]
    surest = [d for digit in range(10) for d in right[labels[right] == digit][-1:]]
    unsure = np.setdiff1d(right, surest, assume_unique=True)[: COLUMNS * ROWS]
    unsure = unsure[: COLUMNS * ROWS - len(wrong) - len(surest)]
    chosen = np.concatenate([wrong, unsure, surest]).astype(int)
    panel.text(0.02, 0.94, "What it sees", fontsize=14, fontweight="bold", va="center")
    mistakes = f"{len(wrong)} of its mistakes in red, then the" if len(wrong) else "The"
    text = f"{mistakes} digits it is least sure of, and the surest of each kind"
    panel.text(0.02, 0.885, text, color=MUTED, va="center")
    panel.subplots_adjust(left=0.02, right=0.98, top=0.83, bottom=0.07, wspace=0.1, hspace=0.38)
    grid = panel.subplots(ROWS, COLUMNS)
    for axes in grid.flat[len(chosen) :]:
        axes.set_axis_off()
    for axes, i in zip(grid.flat, chosen, strict=False):
        axes.imshow(images[i, 0], cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        mistaken = guesses[i] != labels[i]
        color = RED if mistaken else GRID
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(color)
            spine.set_linewidth(2 if mistaken else 1)
        text = f"{guesses[i]}, not {labels[i]}" if mistaken else f"{guesses[i]}"
        color = RED if mistaken else INK
        axes.set_xlabel(f"{text}   {certainty[i]:.0%}", fontsize=8.5, labelpad=3, color=color)
