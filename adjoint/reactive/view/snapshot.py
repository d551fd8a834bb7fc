"""Snapshot: a graph at one moment, in the form from which every drawing is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

Kind = Literal["input", "parameter", "frozen", "constant", "op", "boundary"]
State = Literal["fresh", "stale", "released", "never", "none"]

SAMPLE = 1 << 16  # elements of a larger array that statistics read
BINS = 24


class Edge(NamedTuple):
    """An edge of a snapshot: the value of `source` is an input of `target`, both indices into
    `nodes`.
    """

    source: int
    target: int
    position: int  # which input of the target


@dataclass(frozen=True)
class Statistics:
    """Statistics of the finite elements of an array; None where there are no such elements."""

    count: int  # elements of the array
    sampled: int  # elements that were read; fewer than `count` for large arrays
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    nan: int  # among those read
    infinite: int  # among those read
    histogram: tuple[int, ...]  # counts of equal bins from `low` to `high`; () without elements


def statistics_of(array: Any, sample: int = SAMPLE, bins: int = BINS) -> Statistics:
    """Statistics of an array; if it has more than `sample` elements, of a random sample (the same
    each time).

    Complex numbers count by magnitude.

    >>> from adjoint.view.snapshot import statistics_of
    >>> found = statistics_of(np.array([1.0, 3.0, np.nan]))
    >>> found.mean, found.std, found.nan, sum(found.histogram)
    (2.0, 1.0, 1, 2)
    """
    array = np.asarray(array)
    count = int(array.size)
    if count > sample:
        array = array.flat[np.random.default_rng(0).integers(0, count, sample)]
    if array.dtype.kind == "c":
        array = np.abs(array)
    values = array.ravel().astype(np.float64)  # a sum of float16 or int8 would overflow
    finite = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    infinite = len(values) - len(finite) - nan
    if not len(finite):
        return Statistics(count, len(values), None, None, None, None, nan, infinite, ())
    low, high = float(finite.min()), float(finite.max())
    middle, spread = low / 2 + high / 2, high / 2 - low / 2
    scaled = (finite - middle) / spread if spread > 0 else np.zeros_like(finite)
    histogram = np.bincount(((scaled + 1) * (bins / 2)).astype(int).clip(0, bins - 1), None, bins)
    mean, std = float(scaled.mean()), float(scaled.std())  # within [-1, 1]: squares are safe
    return Statistics(
        count, len(values), middle + mean * spread, std * spread, low, high, nan, infinite,
        tuple(map(int, histogram)),
    )  # fmt: skip


@dataclass
class NodeInfo:
    """Description of one node; unknown facts are None or empty."""

    id: int  # unique, and the same in later snapshots of the same graph
    op: str  # name of the op; of a node without one, its kind
    label: str = ""  # the user's name for it
    kind: Kind = "op"
    attributes: dict[str, str] = field(default_factory=dict)
    module: str = ""  # path of the module that it belongs to, such as "encoder.0.conv"
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    state: State = "none"
    version: int | None = None
    time_us: float | None = None  # of the last run
    runs: int | None = None
    source: str = ""  # the user's line, "file.py:12  y = x * w"
    value: Callable[[], Any] | None = None  # gives the array, or None once it is gone
    gradient: Callable[[], Any] | None = None

    @property
    def title(self) -> str:
        """The label, or else the op."""
        return self.label or self.op

    def statistics(self, sample: int = SAMPLE) -> Statistics | None:
        """Statistics of the value; None where it is not available."""
        array = self.value() if self.value is not None else None
        return None if array is None else statistics_of(array, sample)

    def grad_norm(self) -> float | None:
        """The Euclidean norm of the gradient; None where it is not available."""
        array = self.gradient() if self.gradient is not None else None
        if array is None:
            return None
        array = np.abs(np.asarray(array)) if array.dtype.kind == "c" else np.asarray(array)
        values = array.ravel()
        largest = float(np.abs(values).max(initial=0))
        if not 0 < largest < np.inf:
            return largest
        return largest * float(np.sqrt(np.square(values / largest, dtype=np.float64).sum()))


@dataclass
class Snapshot:
    """A graph at one moment: nodes in topological order, and the edges between them.

    Made by `tensor.graph()`. Values are looked at when a drawing asks for them, so the snapshot
    keeps alive what it shows.

    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> graph = (x * 2).sum().graph()
    >>> [node.op for node in graph.nodes]
    ['input', 'mul', 'sum']
    """

    nodes: list[NodeInfo]
    edges: list[Edge]
    title: str = "graph"

    def to_dot(self) -> str:
        """The graph in Graphviz's language.

        Source: https://graphviz.org/doc/info/lang.html

        >>> print(ad.tensor(1.0, requires_grad=True).graph().to_dot().splitlines()[0])
        digraph "graph" {
        """
        from .dot import to_dot

        return to_dot(self)

    def to_svg(self) -> str:
        """The drawing of `to_dot()` by Graphviz's `dot`.

        Errors: Unsupported where `dot` is not installed.
        """
        from .dot import to_svg

        return to_svg(self)

    def to_html(self) -> str:
        """The interactive page as text."""
        from .page import to_html

        return to_html(self)

    def save_html(self, path: Any) -> Path:
        """Write the interactive page: one file that needs no network; returns its path."""
        target = Path(path)
        target.write_text(self.to_html(), encoding="utf-8")
        return target

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from .notebook import of_graph

        return of_graph(self, self)

    def __repr__(self) -> str:
        nodes, edges = len(self.nodes), len(self.edges)
        return (
            f"<Snapshot {self.title!r}: {nodes} node{'s'[: nodes != 1]}, "
            f"{edges} edge{'s'[: edges != 1]}>"
        )
