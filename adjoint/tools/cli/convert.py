"""`adjoint convert`: a model file in another format."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import InvalidArgument

HELP = "write a model file in another format"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("source", type=Path, metavar="FROM",
        help="tensors: .ad, .safetensors, .pt, .pth, .npz; graphs: .onnx, .param of pnnx; of an "
        ".adjoint file its tensors")  # fmt: skip
    add("target", type=Path, metavar="TO",
        help="tensors: .ad, .safetensors, .pt, .pth, .npz; graphs, simplified: .onnx")  # fmt: skip
    add("--input", action="append", metavar="[NAME=]SHAPE", default=[],
        help="the shape of an input, where a graph's file does not say it")  # fmt: skip
    add("--force", action="store_true", help="also where TO is FROM, which is then replaced")


def run(options: argparse.Namespace) -> int:
    """Read the one, write the other."""
    from .model_files import GRAPHS, WEIGHTS

    source, target = options.source, options.target
    if not source.is_file() and not source.is_dir():
        raise FileNotFoundError(f"{source}: no such file")
    if source.suffix not in (*GRAPHS, *WEIGHTS) and not source.is_dir():
        raise InvalidArgument(f"{source.name}: known are {', '.join((*GRAPHS, *WEIGHTS))}")
    if target.exists() and target.samefile(source) and not options.force:
        raise InvalidArgument(f"{target} is the file to be converted; --force replaces it")
    if target.suffix == ".onnx":
        _to_onnx(source, target, options.input)
    elif target.suffix in WEIGHTS:
        _to_tensors(source, target)
    elif target.suffix == ".adjoint":
        raise InvalidArgument("exported programs are made by adjoint.export; write .ad or .onnx")
    elif target.suffix == ".param":
        raise InvalidArgument("pnnx files are read, not written; write .onnx")
    else:
        known = ", ".join((".onnx", *WEIGHTS))
        raise InvalidArgument(f"{target.name}: the suffix says the format; written are {known}")
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


def _to_onnx(source: Path, target: Path, inputs: list[str]) -> None:
    """The graph with constants, batch normalization and dead nodes folded away."""
    from ...compiler.freeze import freeze
    from ...core.progress import progress
    from .model_files import given_inputs, read_graph

    with progress(total=3) as bar:
        graph = read_graph(source)
        if graph.exported is not None:
            raise InvalidArgument(
                f"{source.name}: an exported program is compiled; export its model with "
                "adjoint.onnx.export"
            )
        bar.update(1)
        program = freeze(graph.module, *given_inputs(graph, inputs))
        bar.update(1)
        program.save(target)


def _to_tensors(source: Path, target: Path) -> None:
    """All tensors, by name; other formats than `.npz` keep the containers around them."""
    from ... import io
    from .model_files import GRAPHS, read_tensors

    if source.suffix in GRAPHS or target.suffix == ".npz":
        tensors = read_tensors(source)
        if not tensors:
            raise InvalidArgument(f"{source.name} holds no tensors")
        io.save(tensors, target)
    else:
        io.save(io.load(source), target)
