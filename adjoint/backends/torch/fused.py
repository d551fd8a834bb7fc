"""Several ops as few Triton kernels on PyTorch tensors: for CUDA, and on the CPU by Triton's
interpreter, for tests.

The ops are written down as they are for the host's kernels (`native.lowering.composite`), in the
same IR; `kernels.triton` writes that as text. A kernel is written again where tensors lie otherwise
in memory.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...core import policy
from ...core.errors import NotTraceable
from ...kernels import triton as text
from ...kernels.ir import REDUCTIONS, Kernel
from ...program.partition import kernels
from ...program.program import Program
from ..native.lowering.composite import Written, written
from ..native.lowering.composite_tracing import CompositeNames, guards_of, trace
from ..native.lowering.scalars import ScalarTracer, values_of
from ..native.lowering.tracing import common_shape
from .array import Array, torch_dtype

__all__ = ["Composite", "Rows", "reason_off"]

launches: list[int] = [0]  # kernels that were run, for the tests that count them


@functools.cache
def _triton() -> Any:
    """Triton, or why there is none."""
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported ({error}): pip install triton"
    return triton


def reason_off(device: Any) -> str:
    """Why there are no Triton kernels for tensors on a device of ours; "" where there are."""
    found = _triton()
    if isinstance(found, str):
        return found
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return ""
    return "Triton's kernels are for GPUs; TRITON_INTERPRET=1 lets its interpreter run them"


class _Stage(NamedTuple):
    """A kernel, and where among all arrays its inputs are."""

    written: Written
    arguments: tuple[int, ...]
    scalars: list[float]
    shapes: list[tuple[int, ...]]  # of its outputs
    dtypes: list[Any]
    made: dict[Any, tuple[Any, int, int]]  # by strides: the function, its programs and warps


class Composite:
    """A program of elementwise ops and reductions as Triton kernels that run one after another.

    Errors: NotTraceable for what cannot be written as kernels.
    """

    guards: tuple[Any, ...] = ()
    gathers: tuple[Any, ...] = ()

    def __init__(self, program: Program, name: str) -> None:
        inputs = [x.spec for x in program.inputs]
        space = common_shape([spec.shape for spec in inputs])
        if 0 in space:
            raise NotTraceable("nothing to compute")
        tracer = ScalarTracer(space)
        names = CompositeNames(tracer, inputs)
        outputs = [y.spec for y in program.outputs]
        wanted, _ = trace(names, program, outputs, (), [None] * len(inputs), set())
        if names.gathers or guards_of(program, set()):
            raise NotTraceable("what an index picks, or values that are looked at")
        parts = kernels(wanted, space, REDUCTIONS)
        self.name = re.sub(r"\W", "_", name)
        self.cuts = [part.reason for part in parts[1:]]
        place: dict[Any, int] = {("input", n): n for n in range(len(inputs))}
        count = len(inputs)
        self.stages: list[_Stage] = []
        for part in parts:
            each = written(part, tracer, space)
            arguments = tuple(place[load] for load in part.loads)
            for key in (*(("value", v.number) for v in part.outputs),
                        *(("output", j) for j, _ in part.results)):  # fmt: skip
                place[key] = count
                count += 1
            made = each.kernel.outputs
            self.stages.append(_Stage(
                each, arguments, values_of(each.sources),
                [tuple(each.sizes[a] for a in o.axes) for o in made],
                [torch_dtype(_numpy(o.dtype)) for o in made], {},
            ))  # fmt: skip
        self.outputs = [(place["output", j], w.shape) for j, w in enumerate(wanted)]
        for stage in self.stages:  # whether they can be written
            sizes = stage.written.sizes
            like = [_row_major([sizes[a] for a in v.axes]) for v in stage.written.kernel.inputs]
            self._written(stage, like)

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, row-major."""
        tensors = [x.tensor for x in arrays]
        for stage in self.stages:
            tensors += self._run(stage, [tensors[n] for n in stage.arguments])
        return [Array(tensors[n].reshape(shape)) for n, shape in self.outputs]

    def _run(self, stage: _Stage, given: Sequence[Any]) -> list[Any]:
        """A kernel's outputs."""
        key = tuple([t.stride() for t in given])
        known = stage.made.get(key)
        if known is None:
            strides = [
                [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1] for t in given
            ]
            source = self._written(stage, strides)
            known = _function(source.source, self.name), source.programs, source.warps
            if len(stage.made) >= policy.COMPOSITE_STRIDES:
                stage.made.clear()
            stage.made[key] = known
        function, programs, warps = known
        device = given[0].device
        made = [
            torch.empty(shape, dtype=dtype, device=device)
            for shape, dtype in zip(stage.shapes, stage.dtypes, strict=True)
        ]
        function[(programs,)](*given, *made, num_warps=warps, enable_fp_fusion=False)
        launches[0] += 1
        return made

    def _written(self, stage: _Stage, strides: Sequence[Sequence[int]]) -> text.Text:
        """The text of a stage."""
        kernel, _, sizes, _ = stage.written
        return text.write(kernel, sizes, strides, self.name, stage.scalars)

    def sources(self) -> list[str]:
        """The texts for row-major inputs."""
        found = []
        for stage in self.stages:
            sizes = stage.written.sizes
            like = [_row_major([sizes[a] for a in v.axes]) for v in stage.written.kernel.inputs]
            found.append(self._written(stage, like).source)
        return found


class Rows:
    """An optimizer's formula on rows of tensors, written over some of them, as one kernel: where
    these are is in a table, and so are the formula's numbers, which change from run to run.

    Errors: NotTraceable for what is no kernel of Triton's.
    """

    def __init__(self, kernel: Kernel, columns: Sequence[int], name: str) -> None:
        if any(v.dtype != "float32" for v in kernel.scalars):
            raise NotTraceable("numbers of float64")
        self.name = re.sub(r"\W", "_", name)
        self.source = text.write_rows(kernel, columns, self.name)
        self.count = len(kernel.scalars)

    def bound(self, columns: Sequence[Sequence[Any]]) -> BoundRows:
        """The kernel for tensors that stay where they are.

        Errors: NotTraceable for tensors that are not contiguous, or of different sizes in a row.
        """
        return BoundRows(self, columns)


class BoundRows:
    """A kernel with its table."""

    def __init__(self, rows: Rows, columns: Sequence[Sequence[Any]]) -> None:
        self.tensors = list(zip(*columns, strict=True))  # alive as long as their addresses are
        for row in self.tensors:
            if not all(t.is_contiguous() and t.numel() == row[0].numel() for t in row):
                raise NotTraceable("tensors that are not contiguous, or of different sizes")
        device = self.tensors[0][0].device
        lengths = [row[0].numel() for row in self.tensors]
        blocks = [
            (n, start) for n, size in enumerate(lengths) for start in range(0, size, text.ROWS)
        ]
        self.programs = len(blocks)
        tables = (
            [t.data_ptr() for row in self.tensors for t in row], [n for n, _ in blocks],
            [start for _, start in blocks], lengths,
        )  # fmt: skip
        self.tables = [torch.tensor(x, dtype=torch.int64, device=device) for x in tables]
        self.numbers = torch.zeros(len(lengths) * rows.count, dtype=torch.float32, device=device)
        self.function = _function(rows.source, rows.name)

    def fill(self, numbers: Sequence[tuple[int, Sequence[float]]]) -> None:
        """The numbers for the next so many rows; the device takes them in its order."""
        values = [x for count, each in numbers for x in (*each,) * count]
        if values:
            host = torch.tensor(values, dtype=torch.float32)
            if self.numbers.is_cuda:
                host = host.pin_memory()
            self.numbers.copy_(host, non_blocking=True)

    def run(self) -> None:
        """Change the tensors."""
        if self.programs:
            self.function[(self.programs,)](*self.tables, self.numbers, num_warps=8,
                                            enable_fp_fusion=False)  # fmt: skip
            launches[0] += 1


def _numpy(name: str) -> Any:
    from ...kernels.run import NUMPY

    return NUMPY[name]


def _row_major(sizes: Sequence[int]) -> list[int]:
    steps = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return steps[::-1]


@functools.lru_cache(maxsize=policy.KERNELS)
def _function(source: str, name: str) -> Any:
    """The Triton function that a text defines. Triton reads the text of functions by their file's
    name, which `linecache` knows here.
    """
    place = f"<adjoint {name} {abs(hash(source)):x}>"
    linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
    known: dict[str, Any] = {"__name__": "adjoint.backends.torch.fused"}
    exec(compile(source, place, "exec"), known)
    return known[name]
