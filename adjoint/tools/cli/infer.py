"""`adjoint infer`: run a model file on arrays."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...core.errors import AdjointError, InvalidArgument, ShapeError
from ...core.progress import progress
from ...core.tensor_base import TensorBase

HELP = "run a model file (.adjoint, .onnx, .param of pnnx) on arrays"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add(
        "file",
        type=Path,
        metavar="FILE",
        help="the model: .adjoint, .onnx, or .param with .bin beside it",
    )
    add("--input", action="append", metavar="[NAME=]X.npy|SHAPE", default=[],
        help="an array, or a shape such as 1,3,224,224 for random numbers; once for each input "
        "(default: random numbers of the file's shapes)")  # fmt: skip
    add("--output", type=Path, metavar="Y.npy",
        help="where to write the output; several go to Y.0.npy, Y.1.npy, ..., or into "
        "Y.npz")  # fmt: skip
    add("--threads", type=int, metavar="N", help="threads (default: as many as processors)")
    add("--repeat", type=int, default=1, metavar="N", help="run it N times and print the times")
    add("--draw", type=Path, metavar="PICTURE", help="draw the frozen graph: .svg, .html or .dot")
    add("--listing", action="store_true", help="print the frozen program")


@no_grad()
def run(options: argparse.Namespace) -> int:
    """Freeze the model, run it, write or print its outputs."""
    from ...backends.threads import set_num_threads
    from .model_files import given_inputs, read_graph

    if options.repeat < 1:
        raise InvalidArgument("--repeat: at least 1")
    if options.output is not None and options.output.suffix not in (".npy", ".npz"):
        raise InvalidArgument(f"--output: {options.output.name!r} is neither .npy nor .npz")
    if options.threads is not None:
        set_num_threads(options.threads)
    graph = read_graph(options.file)
    inputs = given_inputs(graph, options.input)
    began = time.perf_counter()
    program, inputs, found = _prepared(graph, inputs, options)
    prepared = time.perf_counter() - began
    if options.listing:
        print(program)
    if options.draw is not None:
        print(f"drawn: {program.draw(options.draw)}")
    if options.repeat > 1:
        times = []
        for _ in progress(range(options.repeat)):
            began = time.perf_counter()
            program(*inputs)
            times.append((time.perf_counter() - began) * 1e3)
        print(
            f"{options.repeat} runs: median {statistics.median(times):.3f} ms, least "
            f"{min(times):.3f} ms; {prepared:.2f} s to prepare"
        )
    arrays = [x.numpy() for x in _flat(found)]
    names = _names(graph.output_names, len(arrays))
    if options.output is None:
        for name, y in zip(names, arrays, strict=True):
            print(f"{name}: {y.dtype} {y.shape}")
            print(np.array2string(y, threshold=20, precision=5, edgeitems=3))
        return 0
    for path in _write(options.output, names, arrays):
        print(f"written: {path}")
    return 0


def _prepared(graph: Any, inputs: list[Any], options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The program, its inputs as it takes them, and its first result.

    Errors: those of the model; they name inputs whose shapes are not those of the file.
    """
    from ...compiler.freeze import freeze
    from ...ops.create.memory import as_tensor
    from .model_files import shape_faults

    if graph.exported is not None and (options.draw is not None or options.listing):
        raise InvalidArgument("--draw, --listing: an exported program is compiled as it is")
    try:
        if graph.exported is not None:
            inputs = [as_tensor(x) for x in inputs]
            return graph.exported, inputs, graph.exported(*inputs)
        program = freeze(graph.module, *inputs)
        return program, inputs, program(*inputs)
    except AdjointError as error:
        faults = shape_faults(graph, inputs)
        if not faults:
            raise
        raise ShapeError(f"{faults}: {error}") from None


def _flat(found: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(found, TensorBase):
        return [found]
    parts = found.values() if isinstance(found, dict) else found or ()
    return [x for part in parts if part is not None for x in _flat(part)]


def _names(names: list[str], count: int) -> list[str]:
    return names if len(names) == count else [f"output {i}" for i in range(count)]


def _write(path: Path, names: list[str], arrays: list[Any]) -> list[Path]:
    """The files that now hold the outputs."""
    if path.suffix == ".npz":
        np.savez(path, **dict(zip(names, arrays, strict=True)))
        return [path]
    paths = [path]
    if len(arrays) > 1:
        paths = [path.with_suffix(f".{i}.npy") for i in range(len(arrays))]
    for target, y in zip(paths, arrays, strict=True):
        np.save(target, y)
    return paths
