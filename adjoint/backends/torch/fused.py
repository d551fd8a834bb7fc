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
from typing import Any, TypeAlias

import torch

from ...core import policy
from ...core.errors import NotTraceable
from ...core.sized_tables import SizedTable
from ...ir.partition import Device, kernels
from ...ir.program import Program
from ..codegen import triton as text
from ..codegen.ir import ITEMSIZE, NARROW, REDUCTIONS, Kernel
from ..native.lowering.composite_stages import written
from ..native.lowering.composite_tracing import CompositeNames, guards_of, trace
from ..native.lowering.scalars import ScalarTracer, values_of
from ..native.lowering.tracing import common_shape
from .array import Array, allocating, torch_dtype

__all__ = ["Composite", "Launch", "Rows", "bring", "function_of", "reason_off"]

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
    """The reason why there are no Triton kernels for tensors on a device of ours; "" where there
    are.
    """
    triton = _triton()
    if isinstance(triton, str):
        return triton
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "Triton's interpreter has the host's memory" if device.type == "cuda" else ""
    if device.type == "cuda":
        return ""
    return "Triton's kernels are for GPUs; TRITON_INTERPRET=1 lets its interpreter run them"


_Launching: TypeAlias = "tuple[Any, Any, text.Text, list[list[int]]]"


def _weigh(known: _Launching) -> int:
    return policy.EXECUTABLE_BYTES + 2 * len(known[2].source)


class Launch:
    """A kernel with the sizes of its axes and the values of its scalars, to be run on tensors.

    Errors: NotTraceable for what Triton has no function for.
    """

    def __init__(
        self, kernel: Kernel, sizes: Sequence[int], scalars: Sequence[float], name: str,
        order: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """`order`: of the axes of outputs in memory, outer ones first; as inputs lie, if None."""
        self.kernel, self.sizes, self.scalars = kernel, tuple(sizes), scalars
        self.order = order
        self.name = re.sub(r"\W", "_", name)
        made = kernel.outputs
        self.shapes = [tuple(self.sizes[a] for a in o.axes) for o in made]
        self.dtypes = [torch_dtype(_numpy(o.dtype)) for o in made]
        # By strides: the functions, and how outputs lie.
        self.made = SizedTable("launchers of a device", _weigh)
        self.written()  # whether it can be

    def written(
        self, strides: Sequence[Sequence[int]] | None = None, order: Sequence[int] | None = None
    ) -> text.Text:
        """The text for inputs that lie so, row-major ones, and outputs in that order."""
        if strides is None:
            axes = [v.axes for v in self.kernel.inputs]
            strides = [_row_major([self.sizes[a] for a in each]) for each in axes]
        return text.write(self.kernel, self.sizes, strides, self.name, self.scalars, order)

    def _order(self, strides: Sequence[Sequence[int]]) -> list[int]:
        """The axes as they lie in memory: of the first input that has them all."""
        every = list(range(self.kernel.rank))
        if self.order is not None:
            return list(self.order)
        for v, steps in zip(self.kernel.inputs, strides, strict=True):
            if len(v.axes) == len(every) and all(steps):
                return sorted(every, key=lambda a: -steps[a])
        return every

    def __call__(self, given: Sequence[Any], outs: Sequence[Any] = ()) -> list[Any]:
        """The outputs, which lie in memory as inputs do; these may have further dimensions of size
        1. Those that would lie as `outs` do are written there.
        """
        key = tuple([t.stride() for t in given])
        known = self.made.find(key)
        if known is None:
            strides = [
                list(t.stride()) if t.ndim == len(v.axes)
                else [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]
                for v, t in zip(self.kernel.inputs, given, strict=True)
            ]  # fmt: skip
            order = self._order(strides)
            written = self.written(strides, order)
            end = function_of(written.source, f"{self.name}_end") if written.shares else None
            made = [_strides(o.axes, self.sizes, order) for o in self.kernel.outputs]
            known = function_of(written.source, self.name), end, written, made
            self.made.put(key, known)
        function, end, how, made = known
        device = given[0].device
        outputs = [
            torch.empty_strided(shape, steps, dtype=dtype, device=device)
            if out is None or not _lies(out, shape, steps) else out
            for shape, steps, dtype, out in zip(
                self.shapes, made, self.dtypes, outs or [None] * len(made), strict=True
            )
        ]  # fmt: skip
        options = {"num_warps": how.warps, "enable_fp_fusion": False}
        if how.shares is None:
            function[(how.programs,)](*given, *outputs, **options)
        else:
            count, rows, dtypes, programs = how.shares
            reduced = [
                torch.empty(count, rows, dtype=torch_dtype(_numpy(dtype)), device=device)
                for dtype in dtypes
            ]
            function[(how.programs, count)](*given, *outputs, *reduced, **options)
            end[(programs,)](*given, *outputs, *reduced, **options)
        launches[0] += 1 + (how.shares is not None)
        return outputs


@allocating
def bring(x: Array, out: Array) -> None:
    """Copies the elements of `x` into the memory of `out`, in its dtype; where many lie otherwise
    or are of another, by a kernel of ours: PyTorch's takes several times as long then.
    """
    dtypes = str(x.dtype), str(out.dtype)
    t, to = x.tensor, out.tensor
    lies = all(a.tensor.is_contiguous() or a.is_channels_last() for a in (x, out))
    plain = {*dtypes} <= _FLOATS and x.shape == out.shape
    simple = t.stride() == to.stride() and dtypes[0] == dtypes[1]
    many = policy.BROUGHT <= t.numel() < text.OFFSETS
    if not (plain and lies and many) or simple or reason_off(t.device):
        out[...] = x
    else:
        _copying(x.shape, *dtypes, out.is_channels_last())([t], [to])


_FLOATS = {"float32", *NARROW}


@functools.lru_cache(maxsize=policy.KERNELS)
def _copying(shape: tuple[int, ...], dtype: str, to: str, channels_last: bool) -> Launch:
    kernel = Kernel(rank=len(shape))
    kernel.output(kernel.input(dtype), to)
    order = (0, 2, 3, 1) if channels_last else range(len(shape))
    return Launch(kernel, shape, (), "copy", order)


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
        parts = kernels(wanted, space, REDUCTIONS, Device(ITEMSIZE, text.shares_columns))
        self.cuts = [part.reason for part in parts[1:]]
        place: dict[Any, int] = {("input", n): n for n in range(len(inputs))}
        count = len(inputs)
        # Kernels, and where among all arrays their inputs are.
        self.stages: list[tuple[Launch, tuple[int, ...]]] = []
        for part in parts:
            each = written(part, tracer, space)
            arguments = tuple(place[load] for load in part.loads)
            for key in (*(("value", v.number) for v in part.outputs),
                        *(("output", j) for j, _ in part.results)):  # fmt: skip
                place[key] = count
                count += 1
            launch = Launch(each.kernel, each.sizes, values_of(each.sources), name)
            self.stages.append((launch, arguments))
        self.outputs = [(place["output", j], w.shape) for j, w in enumerate(wanted)]

    @allocating
    def __call__(self, arrays: Sequence[Array], outs: Sequence[Array | None] = ()) -> list[Array]:
        """The outputs; in the memory of `outs`, where there is some and they would lie alike."""
        tensors = [x.tensor for x in arrays]
        into = {
            n: out.tensor for (n, _), out in zip(self.outputs, outs, strict=False)
            if out is not None
        }  # fmt: skip
        for launch, arguments in self.stages:
            count = len(tensors)
            own = [into.get(n) for n in range(count, count + len(launch.shapes))] if into else ()
            tensors += launch([tensors[n] for n in arguments], own)
        results = [Array(tensors[n].reshape(shape)) for n, shape in self.outputs]
        for k, out in enumerate(outs):
            if out is not None and tensors[self.outputs[k][0]] is out.tensor:
                results[k] = out
        return results

    def sources(self) -> list[str]:
        """The texts for row-major inputs."""
        return [launch.written().source for launch, _ in self.stages]


class Rows:
    """An optimizer's formula on rows of tensors, written over some of them, as one kernel: where
    these are is in a table, and so are the formula's numbers, which change from run to run.

    Errors: NotTraceable for what is no kernel of Triton's.
    """

    def __init__(self, kernel: Kernel, columns: Sequence[int], name: str) -> None:
        if any(v.dtype != "float32" for v in kernel.scalars):
            raise NotTraceable("numbers of float64")
        self.name = re.sub(r"\W", "_", name)
        self.sources = [
            text.write_rows(kernel, columns, self.name, aligned) for aligned in (False, True)
        ]
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
        addresses = [t.data_ptr() for row in self.tensors for t in row]
        tables = (
            addresses, [n for n, _ in blocks], [start for _, start in blocks], lengths
        )  # fmt: skip
        self.tables = [torch.tensor(x, dtype=torch.int64, device=device) for x in tables]
        self.numbers = torch.zeros(len(lengths) * rows.count, dtype=torch.float32, device=device)
        aligned = all(x % text.ALIGNED == 0 for x in addresses)
        self.function = function_of(rows.sources[aligned], rows.name)

    def fill(self, numbers: Sequence[tuple[int, Sequence[float]]]) -> None:
        """Sets the numbers for the next rows; the device takes them in its order."""
        values = [x for count, each in numbers for x in (*each,) * count]
        if values:
            host = torch.tensor(values, dtype=torch.float32)
            if self.numbers.is_cuda:
                host = host.pin_memory()
            self.numbers.copy_(host, non_blocking=True)

    def run(self) -> None:
        """Change the tensors."""
        if self.programs:
            self.function[(self.programs,)](*self.tables, self.numbers, enable_fp_fusion=False)
            launches[0] += 1


def _numpy(name: str) -> Any:
    from ..codegen.run import NUMPY

    return NUMPY[name]


def _lies(t: Any, shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether a tensor, which may have further dimensions of size 1, has these strides."""
    own = [(n, s) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]
    return own == [(n, s) for n, s in zip(shape, steps, strict=True) if n != 1]


def _row_major(sizes: Sequence[int]) -> list[int]:
    steps = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= size
    return steps[::-1]


def _strides(axes: Sequence[int], sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """Strides of axes that are without gaps, outer ones first in the order given."""
    within = [a for a in order if a in axes]
    steps = dict(zip(within, _row_major([sizes[a] for a in within]), strict=True))
    return [steps[a] for a in axes]


@functools.lru_cache(maxsize=policy.KERNELS)
def function_of(source: str, name: str) -> Any:
    """The Triton function that a text defines. Triton reads the text of functions by their file's
    name, which `linecache` knows here.
    """
    place = f"<adjoint {name} {abs(hash(source)):x}>"
    linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
    known: dict[str, Any] = {"__name__": "adjoint.backends.torch.fused"}
    exec(compile(source, place, "exec"), known)
    return known[name]
