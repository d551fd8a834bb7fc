"""Timing of statements, under PyTorch's names: `Timer`, its `Measurement`, tables of them.

Times are of so many threads as a timer is told, one by default, and of runs after a first warm-up.

Source: https://docs.pytorch.org/docs/stable/benchmark_utils.html

>>> from adjoint.utils import benchmark
>>> timer = benchmark.Timer("x + x", globals={"x": ad.ones(100)}, label="sum")
>>> timer.timeit(10).number_per_run
10
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import math
import statistics
import textwrap
import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...backends import threads
from ...core.argument_repr import argument_repr
from ...core.errors import InvalidArgument, Unsupported

__all__ = [
    "Colorize", "Compare", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit",
    "set_torch_threads", "timer", "trim_sigfig", "unit_to_english",
]  # fmt: skip

timer = timeit.default_timer

_UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"), "ms": (1e-3, "millisecond"),
          "s": (1.0, "second")}  # fmt: skip


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time of `t` seconds is best read, and how many seconds that unit is.

    >>> from adjoint.utils import benchmark
    >>> benchmark.select_unit(3e-5)
    ('us', 1e-06)
    """
    fitting = [(unit, scale) for unit, (scale, _) in _UNITS.items() if t >= scale]
    return fitting[-1] if fitting else ("ns", 1e-9)


def unit_to_english(u: str) -> str:
    """A unit's name.

    >>> from adjoint.utils import benchmark
    >>> benchmark.unit_to_english("us")
    'microsecond'
    """
    return _UNITS[u][1]


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to significant figures.

    >>> from adjoint.utils import benchmark
    >>> benchmark.trim_sigfig(3.14159, 2)
    3.1
    """
    return float(f"{x:.{n - 1}e}")


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements, each once, in the order in which they come first.

    >>> from adjoint.utils import benchmark
    >>> benchmark.ordered_unique([2, 1, 2])
    [2, 1]
    """
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Sets the number of threads inside a block.

    >>> from adjoint.utils import benchmark
    >>> with benchmark.set_torch_threads(1):
    ...     ad.get_num_threads()
    1
    """
    before = threads.get_num_threads()
    threads.set_num_threads(n)
    try:
        yield
    finally:
        threads.set_num_threads(before)


@dataclasses.dataclass(repr=False, frozen=True)
class TaskSpec:
    """Description of a timed task: its code and its labels."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    __repr__ = argument_repr

    @property
    def title(self) -> str:
        """The label, or else the statement, with the label below."""
        below = self.sub_label
        if self.label is None and "\n" in self.stmt:
            head = "stmt:" if below is None else f"stmt: ({below})"
            return f"{head}\n{textwrap.indent(self.stmt, '  ')}"
        name = self.stmt if self.label is None else self.label
        return f"{name}: {below}" if below else name

    def setup_str(self) -> str:
        """The setup, as a measurement shows it."""
        if self.setup in ("", "pass"):
            return ""
        if "\n" in self.setup:
            return "setup:\n" + textwrap.indent(self.setup, "  ")
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup, a line each."""
        parts = (self.title, self.description, self.setup_str())
        return "\n".join(f"{part}\n" if "\n" in part else part for part in parts if part)


@dataclasses.dataclass(repr=False)
class Measurement:
    """Times of a statement: `raw_times`, in seconds, are each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(f"Measurement has no attribute {name!r}", name=name, obj=self)

    @property
    def times(self) -> list[float]:
        """Times of one run, in seconds."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return statistics.fmean(self.times)

    def _quartiles(self) -> tuple[float, float]:
        first, third = np.quantile(self.times, (0.25, 0.75))
        return float(first), float(third)

    @property
    def iqr(self) -> float:
        """The range between the quartiles of `times`."""
        first, third = self._quartiles()
        return third - first

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the range between the quartiles is less than so much of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times differ so much that the measurement says so."""
        return not self.meets_confidence()

    @property
    def significant_figures(self) -> int:
        """Number of significant figures of the median, from the times between the quartiles."""
        times = sorted(self.times)
        count = len(times)
        middle = times[count // 4 : math.ceil(3 * count / 4)]
        doubt = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), 25e-9)
        return min(max(math.floor(math.log10(self.median / doubt)), 1), 4)

    @property
    def title(self) -> str:
        """Title of the timed task."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """Name of the measurement's row in a table."""
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count = len(self.raw_times)
        unit, scale = select_unit(self.median)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            first, third = (quartile / scale for quartile in self._quartiles())
            lines.append(f"  IQR:    {third - first:.2f} {unit} ({first:.2f} to {third:.2f})")
        runs = f"{self.number_per_run} runs {'per measurement' if count > 1 else ''},"
        lines.append(
            f"  {count} measurement{'s' * (count > 1)}, {runs} {self.num_threads} "
            f"thread{'s' * (self.num_threads > 1)}"
        )
        if self.has_warnings:
            spread = f"{self.iqr / self.median * 100:.1f}% of the median measurement."
            means = "suggests significant environmental influence."
            if self.meets_confidence(0.25):
                means = "could indicate system fluctuation."
            lines.append(f"  WARNING: Interquartile range is {spread}\n           This {means}")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement of each task, with the times of all, as of one run each."""
        times: dict[TaskSpec, list[float]] = {}
        for each in measurements:
            times.setdefault(each.task_spec, []).extend(each.times)
        return [Measurement(1, found, task) for task, found in times.items()]


class Timer:
    """Times a statement, a text, which sees `globals` and the framework as `torch`.

    Errors: InvalidArgument for a statement that is no text; Unsupported for statements in C++.
    Source: https://docs.pytorch.org/docs/stable/benchmark_utils.html#torch.utils.benchmark.Timer

    >>> from adjoint.utils import benchmark
    >>> timer = benchmark.Timer("torch.ones(n)", globals={"n": 3})
    >>> timer.blocked_autorange(min_run_time=0.001).median > 0
    True
    """

    __repr__ = argument_repr

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if not isinstance(stmt, str):
            raise InvalidArgument(
                f"benchmark.Timer: the statement is a text, got a {type(stmt).__name__}"
            )
        if str(getattr(language, "value", language)) not in ("0", "py", "python"):
            raise Unsupported("benchmark.Timer: statements in C++ are PyTorch's; write Python")
        if global_setup:
            raise InvalidArgument("benchmark.Timer: global_setup is of C++; use setup")
        stmt, setup = (textwrap.dedent(text).removeprefix("\n").rstrip() for text in (stmt, setup))
        seen = dict(globals or {})
        seen.setdefault("torch", importlib.import_module(__name__.partition(".")[0]))
        self._timer = timeit.Timer(stmt, setup, timer, seen)
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def _time(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: Sequence[float]) -> Measurement:
        return Measurement(number, list(times), self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """Measures `number` runs as one measurement; some runs before it are not counted."""
        with set_torch_threads(self._task_spec.num_threads):
            self._time(max(number // 100, 2))
            return self._measured(number, [self._time(number)])

    def _block(self, least: float) -> int:
        """Number of runs in a block, such that the clock's own time does not matter."""
        overhead = statistics.median(self._time(0) for _ in range(5))
        number = 1
        while True:
            taken = self._time(number)
            enough = taken > least or (taken >= least / 1000 and overhead <= taken * 1e-4)
            if enough or number >= 10**9:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measures blocks of runs until they took `min_run_time` seconds together."""
        return self._autorange(min_run_time, min_run_time, None, lambda times: True, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measurements of blocks of runs, until they agree: the range between quartiles is
        `threshold` of the median.
        """

        def agree(found: Measurement) -> bool:
            return len(found.raw_times) > 3 and found.meets_confidence(threshold)

        return self._autorange(0.05, min_run_time, max_run_time, agree, callback)

    def _autorange(
        self,
        block: float,
        least: float,
        most: float | None,
        done: Callable[[Measurement], bool],
        callback: Callable[[int, float], Any] | None,
    ) -> Measurement:
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(block)
            times: list[float] = []
            while True:
                times.append(self._time(number))
                if callback is not None:
                    callback(number, times[-1])
                found, total = self._measured(number, times), sum(times)
                if (total >= least and done(found)) or (most is not None and total > most):
                    return found

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: counts of instructions are of Valgrind's.

        Errors: Unsupported.
        """
        raise Unsupported("benchmark.Timer.collect_callgrind: use blocked_autorange, or a profile")


class Colorize(enum.Enum):
    """Scope of the comparison that colours show: nothing, a column, or a row."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


_SHADES = (  # from so many times the best on: as a terminal shows it
    (5, "\033[31m\033[1m"), (2, "\033[2m\033[91m"), (1.1, ""), (1.01, "\033[34m\033[1m"),
    (0, "\033[92m\033[1m"),
)  # fmt: skip


class Compare:
    """Tables of measurements: one of each label, a row of each `sub_label`, a column of each
    `description`.

    Source: https://docs.pytorch.org/docs/stable/benchmark_utils.html#torch.utils.benchmark.Compare

    >>> from adjoint.utils import benchmark
    >>> task = benchmark.TaskSpec("f(x)", "pass", label="f", sub_label="small", description="new")
    >>> benchmark.Compare([benchmark.Measurement(1, [2e-6], task)]).print()
    [------- f -------]
                 |  new
    1 threads: --------
          small  |  2.0
    <BLANKLINE>
    Times are in microseconds (us).
    <BLANKLINE>
    """

    __repr__ = argument_repr

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trims = False
        self._colors = Colorize.NONE
        self._warns = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements.

        Errors: InvalidArgument for anything else.
        """
        for result in results:
            if not isinstance(result, Measurement):
                raise InvalidArgument(
                    f"benchmark.Compare: Expected an instance of Measurement, got {type(result)}"
                )
            self._results.append(result)

    def trim_significant_figures(self) -> None:
        """Show only significant figures."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour numbers by how much more they are than the best of their column, or row."""
        self._colors = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark measurements whose times differ much."""
        self._warns = True

    def print(self) -> None:
        """Print the tables."""
        print(self)

    def __str__(self) -> str:
        tables: dict[str | None, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            tables.setdefault(result.label, []).append(result)
        return "\n".join(self._table(label, found) for label, found in tables.items())

    def _table(self, label: str | None, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(result.median for result in results))
        columns = ordered_unique(result.description for result in results)
        rows = ordered_unique((r.num_threads, r.env, r.as_row_name) for r in results)
        rows.sort(key=lambda row: (row[0], row[1] or ""))
        cells = {(r.num_threads, r.env, r.as_row_name, r.description): r for r in results}
        grid = [[cells.get((*row, column)) for column in columns] for row in rows]
        texts = [self._column([line[i] for line in grid], scale) for i in range(len(columns))]
        envs = {row[1] for row in rows}
        names = ["", *(self._name(row, i and rows[i - 1], envs) for i, row in enumerate(rows))]
        body = [list(line) for line in zip(*texts, strict=True)]
        heads = [column or "" for column in columns]
        widths = [
            max(len(name) for name in names),
            *(max(len(head), *map(len, text)) for head, text in zip(heads, texts, strict=True)),
        ]
        head = "  |  ".join(
            text.center(width) for text, width in zip(["", *heads], widths, strict=True)
        )
        lines = [head]
        for i, (row, line) in enumerate(zip(rows, body, strict=True)):
            if i == 0 or rows[i - 1][0] != row[0]:
                lines.append(f"{row[0]} threads: ".ljust(len(head), "-"))
            shown = [text.center(width) for text, width in zip(line, widths[1:], strict=True)]
            for j, result in enumerate(grid[i]):
                if result is not None and self._colors is not Colorize.NONE:
                    group = [g for g, other in zip(grid, rows, strict=True) if other[0] == row[0]]
                    beside = grid[i] if self._colors is Colorize.ROWWISE else [g[j] for g in group]
                    best = min(other.median for other in beside if other is not None)
                    shown[j] = _shaded(shown[j], result.median, best)
            lines.append("  |  ".join([names[i + 1].ljust(widths[0]), *shown]))
        title = f" {label or ''} ".center(len(head) - 2, "-")
        lines = [f"[{title}]", *lines, "", f"Times are in {unit_to_english(unit)}s ({unit})."]
        if self._warns and any(result.has_warnings for result in results):
            lines.append(
                "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."
            )
        return "\n".join([*lines, ""])

    @staticmethod
    def _name(row: tuple[int, str | None, str], before: Any, envs: set[str | None]) -> str:
        if len(envs) == 1:
            return f"      {row[2]}"
        width = max(len(env or "Unspecified env") for env in envs) + 4
        same = before and before[:2] == row[:2]
        env = "" if same else f"({row[1] or 'Unspecified env'})"
        return f"  {env.ljust(width)}{row[2]}"

    def _column(self, results: list[Measurement | None], scale: float) -> list[str]:
        there = [result for result in results if result is not None]
        digits = {id(r): math.ceil(math.log10(r.median / scale)) for r in there}
        decimals = 1
        if self._trims:
            decimals = min(max(r.significant_figures - digits[id(r)], 0) for r in there)
        width = max(digits.values()) + decimals + bool(decimals)
        warns = self._warns and any(result.has_warnings for result in there)
        found = []
        for result in results:
            if result is None:
                found.append(" " * (width + 7 * warns))
                continue
            value = result.median / scale
            if self._trims:
                value = trim_sigfig(value, result.significant_figures)
            spread = f" (! {result.iqr / result.median * 100:.0f}%)" if result.has_warnings else ""
            found.append(f"{value:>{width}.{decimals}f}" + (f"{spread:>7}" if warns else ""))
        return found


def _shaded(text: str, value: float, best: float) -> str:
    times = 1.0 if value <= best + 100e-9 else value / best
    shade = next(code for least, code in _SHADES if times >= least)
    return f"{shade}{text}\033[0m\033[0m" if shade else text
