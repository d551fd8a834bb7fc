"""Event log of a graph: which nodes ran, were reused, or were cut off."""

from __future__ import annotations

from typing import Any

from ..runtime.cells import Cell, GraphState
from ..runtime.node import Item


class Log:
    """Log of what the nodes of a graph do during a `with graph.events() as log:` block.

    `ran`, `reused` and `cut` name the ops in the order of events (`ran` those that were computed,
    `reused` those whose inputs had not changed after all, `cut` those of `ran` whose value came out
    unchanged); `cells` and `times` (nanoseconds) are aligned with `ran`.

    >>> graph = ad.Graph()
    >>> x = graph.input(2.0)
    >>> y = x * 3 + 1
    >>> with graph.events() as log:
    ...     y.item()
    7.0
    >>> log.ran
    ['Mul', 'Add']
    """

    def __init__(self, state: GraphState) -> None:
        self.cells: list[Cell] = []
        self.times: list[int] = []
        self._reused: list[Cell] = []
        self._cut: list[Cell] = []
        self._state = state
        self._outer: Any = None

    def __enter__(self) -> Log:
        self._outer = self._state.observer
        self._state.observer = self
        return self

    def __exit__(self, *exc: Any) -> None:
        self._state.observer = self._outer

    @property
    def ran(self) -> list[str]:
        """The ops that were computed."""
        return _names(self.cells)

    @property
    def reused(self) -> list[str]:
        """The ops that turned out to be up to date."""
        return _names(self._reused)

    @property
    def cut(self) -> list[str]:
        """The ops that were recomputed to their former value."""
        return _names(self._cut)

    @property
    def total_time(self) -> float:
        """Seconds spent in the ops themselves."""
        return sum(self.times) / 1e9

    def clear(self) -> None:
        """Forget what was logged so far."""
        for each in (self.cells, self.times, self._reused, self._cut):
            each.clear()

    def __repr__(self) -> str:
        return f"<Log: ran {len(self.ran)}, reused {len(self.reused)}, cut {len(self.cut)}>"

    # ---- what graphs call ------------------------------------------------------------------------

    def on_run(self, cell: Cell, nanoseconds: int) -> None:
        """Called when a cell was computed."""
        self.cells.append(cell)
        self.times.append(nanoseconds)
        if self._outer is not None:
            self._outer.on_run(cell, nanoseconds)

    def on_reuse(self, cell: Cell) -> None:
        """Called when a stale cell turned out to be up to date."""
        self._reused.append(cell)
        if self._outer is not None:
            self._outer.on_reuse(cell)

    def on_cut(self, cell: Cell) -> None:
        """Called when a cell was recomputed to its former value."""
        self._cut.append(cell)
        if self._outer is not None:
            self._outer.on_cut(cell)


def _names(cells: list[Cell]) -> list[str]:
    ops = [cell.op for cell in cells if type(cell.op) is not Item]
    return [getattr(op, "__name__", type(op).__name__) for op in ops]
