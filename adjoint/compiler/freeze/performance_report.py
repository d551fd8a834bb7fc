"""Performance report of a program, step by step, as measured in one call."""

from __future__ import annotations

import functools
import itertools
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...backends.native.gemm.products import matmul
from ...core.device import device, transfer
from ...core.errors import UnknownColumn
from ...core.spec import prod
from ...core.tensor_base import TensorBase
from ...ir.program import Value, elements
from ...reactive.view.table import multiply_adds
from ...runtime.tensors import wrap
from ..passes.batched_gemm import Products
from ..passes.kernels import Kernel
from ..schedule.listing import size
from ..schedule.steps import Step

_SIDES = 384, 1024  # sizes of the peak's products: a busy machine interrupts short ones less
_ARRAY = 1 << 24  # elements of the array that is changed in place for the bandwidth


class LoopTurns(NamedTuple):
    """How the turns of a loop run."""

    called: tuple[str, ...] = ()  # ops for which Python is called in each turn
    records: str | None = None  # why they are not one function; "" where they are
    kept: str = ""  # how many bytes of them are kept for a gradient, and what


class KernelOps(NamedTuple):
    """Ops of a step, and where they are from."""

    fused: tuple[str, ...] = ()  # the ops of a kernel that has several, in order
    again: tuple[str, ...] = ()  # those of them that rematerialize values
    module: str = ""  # path of the module of the costliest op


class StepRow(NamedTuple):
    """Measurements of a kernel, a product, a host call, or an optimizer's step."""

    name: str
    how: str  # "kernel", "compute", "copy", ..., "optimizer"
    native: bool  # no Python runs
    operations: int  # on numbers; 0 where that is not known
    bytes: int  # size of its inputs and outputs
    seconds: float
    ops: KernelOps = KernelOps()
    apart: int = 0  # number of the parallel section that it belongs to; 0 for none
    turns: LoopTurns = LoopTurns()  # of a loop

    @property
    def fused(self) -> tuple[str, ...]:
        """Names of the ops of a kernel that has several, in order."""
        return self.ops.fused

    @property
    def again(self) -> tuple[str, ...]:
        """Names of those of them that rematerialize values."""
        return self.ops.again

    @property
    def module(self) -> str:
        """Path of the module of its costliest op, and how many others it computes for:
        "blocks.3.fc, +2"; the module of the forward, in a backward pass.
        """
        return self.ops.module

    @property
    def called(self) -> tuple[str, ...]:
        """Ops for which a loop calls Python in each turn."""
        return self.turns.called


class Peaks(NamedTuple):
    """Measured peak speed of the machine."""

    operations: float  # a second, in products of matrices
    bytes: float  # a second, read and written


class Explanation:
    """Report on the kernels of a program, in the order in which they run, as measured in
    one call.

    `rows` are those of the call; `backward` has those that run when gradients come in from outside
    (not timed). Each says which ops it has `fused`, and which of them rematerialize values
    (`again`). `cuts` say which op began another kernel, and why. `print` it.
    """

    def __init__(
        self, title: str, rows: Sequence[StepRow], backward: Sequence[StepRow],
        cuts: Sequence[tuple[str, str]], memory: int, without_reuse: int, reasons: Sequence[str],
        peaks: Peaks, gradients: int = 0,
    ) -> None:  # fmt: skip
        self.title = title
        self.rows = list(rows)
        self.backward = list(backward)
        self.cuts = list(cuts)
        self.memory = memory  # bytes of what lies between kernels, at its peak
        self.without_reuse = without_reuse
        self.reasons = list(reasons)  # why each program of the function was compiled
        self.peaks = _mended(peaks, rows)
        self.gradients = gradients  # bytes of those that leaves have after a call

    @property
    def host_calls(self) -> list[StepRow]:
        """Steps that Python runs between the kernels."""
        return [row for row in (*self.rows, *self.backward) if not row.native]

    def least(self, row: StepRow) -> float:
        """Lower bound of the seconds that a row takes, by its operations or bytes."""
        operations = row.operations if row.how in _PRODUCTS else 0
        return max(operations / self.peaks.operations, row.bytes / self.peaks.bytes)

    def share(self, row: StepRow) -> float:
        """Ratio of that lower bound to the measured time, at most 1."""
        return self.least(row) / row.seconds if row.seconds else 0.0

    def __repr__(self) -> str:
        return f"<Explanation of {self.title}: {len(self.rows)} steps; print it>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from ...reactive.view.notebook import of_text

        return of_text(self, str(self))

    def __str__(self) -> str:
        return self.table()

    def table(
        self, sort_by: str | None = "seconds", row_limit: int = 15, verbose: bool = False
    ) -> str:
        """The report as text: the steps of the call, the slowest first.

        `sort_by` names a number of a row ("seconds", "bytes", "operations") or "share", of which
        the least comes first; None leaves the order of the call. `row_limit` of -1 shows all steps.
        With `verbose` also: what was fused, why kernels are not one, threads, why each program was
        compiled.
        Errors: UnknownColumn for `sort_by` of something else.

        >>> step = ad.compile(lambda x: (x * 2).exp())
        >>> print(step.explain(ad.ones(4)).table(row_limit=1).splitlines()[3].split()[:2])
        ['mul_exp', 'kernel']
        """
        if sort_by is not None and sort_by not in _SORTS:
            raise UnknownColumn(f"table: sort_by={sort_by!r}; one of {', '.join(_SORTS)}")
        total = sum(row.seconds for row in self.rows)
        operations, memory = self.peaks.operations / 1e9, self.peaks.bytes / 1e9
        lines = [
            f"{self.title}: {len(self.rows)} steps in {total * 1e6:.1f} us (each timed alone), "
            f"{len(self.host_calls)} of them called by Python",
            f"  memory between them {size(self.memory)} ({size(self.without_reuse)} without "
            f"reuse); this machine: {operations:.0f} GFLOP/s, {memory:.0f} GB/s",
            f"  {'':40}  {'':9}  {'Mop':>9}  {'bytes':>9}  {'us':>8}  of time  of peak",
        ]
        ordered = self.rows
        if sort_by == "share":
            ordered = sorted(self.rows, key=self.share)
        elif sort_by is not None:
            ordered = sorted(self.rows, key=lambda row: -getattr(row, sort_by))
        shown = ordered if row_limit < 0 else ordered[:row_limit]
        for row in shown:
            of_time = f"{row.seconds / total:7.1%}" if total else ""
            lines.append(
                f"{_line(row)}  {row.seconds * 1e6:8.1f}  {of_time}  {self.share(row):7.1%}"
            )
        rest = len(ordered) - len(shown)
        if rest:
            took = sum(row.seconds for row in ordered[len(shown) :])
            lines.append(f"  and {rest} more, {took * 1e6:.1f} us (row_limit=-1 shows all)")
        if self.backward:
            lines.append("  when gradients of what was returned come in:")
            lines += map(_line, self.backward)
        if any(row.how == "optimizer" for row in self.rows):
            kept = size(self.gradients) if self.gradients else "none"
            lines.append(f"  gradients that are kept (.grad): {kept}")
        return "\n".join([*lines, *(self._reasons() if verbose else self._python())])

    def _python(self) -> list[str]:
        """Lines about loops: for which ops each turn calls Python, and how turns run."""
        lines: list[str] = []
        for row in (*self.rows, *self.backward):
            if row.called:
                names = ", ".join(row.called)
                lines.append(f"  Python is called in each turn of {row.name}, for {names}")
            why = row.turns.records
            if why is not None:
                how = f"go through records: {why}" if why else "are one function"
                lines.append(f"  turns of {row.name} {how}")
            if row.turns.kept:
                lines.append(f"  {row.name} keeps for its gradient {row.turns.kept}")
        return lines

    def _reasons(self) -> list[str]:
        """Lines about the reasons for the program as it is."""
        lines: list[str] = []
        rows = (*self.rows, *self.backward)
        again = [(row.name, row.again) for row in rows if row.again]
        for what, grouped in (
            ("fused", [(row.name, row.fused) for row in rows if row.fused]),
            ("computed again rather than kept", again),
        ):
            for (name, ops), count in Counter(grouped).items():
                lines.append(f"  {what}, {name} ({count}): {_counted(ops)}")
        lines += self._python()
        by_region = itertools.groupby(enumerate(rows, 1), lambda pair: pair[1].apart)
        regions = [[k for k, _ in pairs] for number, pairs in by_region if number]
        if regions:
            said = ", ".join(f"{region[0]} to {region[-1]}" for region in regions)
            lines.append(f"  threads go apart, with rows or steps of their own, through {said}")
        for (name, why), count in Counter(self.cuts).items():
            lines.append(f"  not in the kernel before, {name} ({count}): {why}")
        return [*lines, *(f"  compiled: {reason}" for reason in self.reasons)]


def _mended(peaks: Peaks, rows: Sequence[StepRow]) -> Peaks:
    """The peaks, or what a step reached that was faster: small arrays stay in the caches."""
    timed = [row for row in rows if row.seconds > 0]
    products = [row.operations / row.seconds for row in timed if row.how in _PRODUCTS]
    moved = [row.bytes / row.seconds for row in timed]
    return Peaks(max([peaks.operations, *products]), max([peaks.bytes, *moved]))


_SORTS = ("seconds", "operations", "bytes", "share")
_PRODUCTS = ("product", "oneDNN", "panels")


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name} ({n})" if n > 1 else name for name, n in Counter(names).items())


def _line(row: StepRow) -> str:
    name = f"{row.module}: {row.name}" if row.module else row.name
    name = name if len(name) <= 40 else f"{name[:37]}..."
    count = f"{row.operations / 1e6:9.3f}" if row.operations else f"{'--':>9}"
    return f"  {name:40}  {row.how:9}  {count}  {size(row.bytes):>9}"


class Timer:
    """Observer (see `core.mode`) that times the steps of a call one by one."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def step(self, steps: Sequence[Step], run: Callable[[], object]) -> None:
        """Time one call, which computes `steps`."""
        begin = time.perf_counter()
        run()
        self.seconds.append(time.perf_counter() - begin)

    def around(
        self, name: str, function: Callable[[], object], args: object, kwargs: object
    ) -> None:
        """Time an optimizer's step."""
        self.step((), function)


def rows_of(calls: Iterable[tuple[Sequence[Step], bool, float, int]]) -> list[StepRow]:
    """Rows of the report from calls: their steps, whether they are native code, the seconds, and
    the parallel section (see `StepRow`). Consecutive calls of one step become one row.
    """
    rows = []
    for steps, group in itertools.groupby(calls, operator.itemgetter(0)):
        _, native, seconds, apart = zip(*group, strict=True)
        rows.append(_row(steps, all(native), sum(seconds), max(apart)))
    return rows


def _row(steps: Sequence[Step], native: bool, seconds: float, apart: int) -> StepRow:
    values: dict[Value, None] = {}
    for step in steps:
        values.update(dict.fromkeys((*step.values, *step.outputs)))
    moved = sum(prod(x.shape) * x.spec.dtype.itemsize for x in values)
    names = dict.fromkeys(step.op.name for step in steps)
    operations = sum(map(_operations, steps))
    kernels = [step.op for step in steps if isinstance(step.op, Kernel)]
    nodes = [node for kernel in kernels for node in kernel.program.nodes]
    again = [kernel.program.nodes[k] for kernel in kernels for k in kernel.again]
    called = dict.fromkeys(name for step in steps for name in getattr(step.op, "called", ()))
    turns = [each for step in steps if (each := getattr(step.op, "turns", None)) is not None]
    kept = [each for step in steps if (each := getattr(step.op, "kept_turns", None)) is not None]
    return StepRow(
        "_".join(names), steps[0].how, native and not called, operations, moved, seconds,
        KernelOps(
            tuple(node.op.name for node in nodes) if nodes[1:] else (),
            tuple(node.op.name for node in again), max(steps, key=_operations).outputs[0].module,
        ), apart,
        LoopTurns(
            tuple(called), next(iter(turns), None),
            ", ".join(f"{size(count)}: {what}" for count, what in kept),
        ),
    )  # fmt: skip


def _operations(step: Step) -> int:
    op = step.op
    if isinstance(op, Kernel):
        return sum(map(elements, op.shown.nodes))
    if isinstance(op, Products):
        each = zip(op.divided(step.inputs), step.outputs, strict=True)
        return 2 * sum(int(multiply_adds(one, inputs, y)) for (one, inputs), y in each)
    return 2 * multiply_adds(op, step.inputs, step.outputs[0])


@functools.cache
def peaks(device: device) -> Peaks:
    """Measure the peak speed of a device, once: of matrix products and of changing a large array,
    in float32.
    """
    sides: list[Any] = [wrap(np.ones((side, side), np.float32)) for side in _SIDES]
    x: Any = wrap(np.ones(_ARRAY, np.float32))
    function: Callable[[Any, Any], Any] = matmul
    wait: Callable[[], object] = bool
    if device.type != "cpu":
        *sides, x = (wrap(transfer(y._data, device)) for y in (*sides, x))
        function, wait = operator.matmul, partial(waited, x)
    products = 0.0
    for side, a in zip(_SIDES, sides, strict=True):
        tries = range(5 * (_SIDES[-1] // side) ** 2)
        least = min(_time(partial(function, a._data, a._data), wait) for _ in tries)
        products = max(products, 2 * side**3 / least)
    change = min(_time(lambda: x.mul_(0.5), wait) for _ in range(5))
    return Peaks(products, 2 * x._data.nbytes / change)


def waited(x: TensorBase) -> None:
    """Wait until the device of a tensor has finished its work."""
    x._data.reshape(-1)[:1].item()


def _time(run: Callable[[], object], wait: Callable[[], object]) -> float:
    wait()
    begin = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - begin
