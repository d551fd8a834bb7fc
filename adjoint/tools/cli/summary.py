"""`adjoint summary`: a table of the model in a file, or of the one that a program makes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from .python_file import PythonFile

MOST = 40  # rows of tensors that are shown without --all


HELP = "print a table of the model in a file, or of a program's model"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("file", type=Path, metavar="FILE",
        help="a model file (.adjoint, .onnx, .param of pnnx), tensors (.ad, .safetensors, .pt, "
        ".npz), or a program (.py), to be run")  # fmt: skip
    add("arguments", nargs="*", metavar="ARGUMENT", help="for the program; after -- if with dashes")
    add("--of", metavar="NAME", help="the variable with the model (default: model, or the last)")
    add("--input", action="append", metavar="NAME|SHAPE", default=[],
        help="of a program: a variable, or a shape such as 8,3,32,32 for zeros; once for each "
        "input. Of a file: [NAME=]SHAPE, where the file does not say it")  # fmt: skip
    add("--all", action="store_true", help=f"all tensors, where there are more than {MOST}")
    add("--draw", type=Path, metavar="PICTURE", help="draw the graph: .svg, .html or .dot")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from .model_files import GRAPHS, WEIGHTS

    suffix = options.file.suffix
    if suffix in GRAPHS or suffix in WEIGHTS or options.file.is_dir():
        return _of_file(options, graph=suffix in GRAPHS)
    if suffix not in (".py", ""):
        known = ", ".join((".py", *GRAPHS, *WEIGHTS))
        raise InvalidArgument(f"{options.file.name}: known are {known}")
    return _of_program(options)


# ---- programs ------------------------------------------------------------------------------------


def _of_program(options: argparse.Namespace) -> int:
    """The table of the model that a program has made."""
    from ...nn import Module
    from ...reactive.view import summary as summarize

    if options.draw is not None:
        raise InvalidArgument("--draw is for model files; of a program's graph, `adjoint view`")
    program = PythonFile(options.file, options.arguments)
    program.run()
    if not options.input:
        models = program.variables(lambda value: isinstance(value, Module))
        tensors = program.variables(lambda value: isinstance(value, TensorBase))
        raise InvalidArgument(
            "a program's summary needs --input, once for each input of the model: a shape, or a "
            f"variable. {options.file.name} has the models {', '.join(models) or 'none'} and the "
            f"tensors {', '.join(tensors) or 'none'}"
        )
    model = program.find(options.of, ("model",), lambda value: isinstance(value, Module), "Module")
    print(summarize(model, *(_input(program, text) for text in options.input)))
    return 0


def _input(program: PythonFile, text: str) -> Any:
    """Zeros of the shape that `text` says, or else the variable."""
    from .model_files import shape_of

    shape = shape_of(text)
    return program.find(text, (), lambda value: True, "variable") if shape is None else shape


# ---- files ---------------------------------------------------------------------------------------


def _of_file(options: argparse.Namespace, graph: bool) -> int:
    from ...compiler.schedule.listing import size
    from .model_files import ModelGraph, read_graph, read_tensors

    path = options.file
    found: ModelGraph | None = read_graph(path) if graph else None
    tensors = dict(found.state_dict()) if found else read_tensors(path)
    print(f"{path.name}: {size(_bytes_of(path))}")
    if found is not None:
        print(f"inputs   {'; '.join(map(str, found.inputs))}")
        print(f"outputs  {', '.join(found.output_names)}")
    rows = [
        (name, x.dtype.name, " x ".join(map(str, x.shape)) or "scalar", f"{x.numel():,}")
        for name, x in tensors.items()
    ]
    shown = rows if options.all or len(rows) <= MOST else rows[: MOST // 2] + rows[-MOST // 2 :]
    lines = table(("tensor", "dtype", "shape", "elements"), shown)
    if len(shown) < len(rows):
        lines.insert(2 + MOST // 2, f"... {len(rows) - len(shown)} more (--all) ...")
    print("\n" + "\n".join(lines))
    total = sum(x.numel() for x in tensors.values())
    taken = sum(x.numel() * x.element_size() for x in tensors.values())
    print(f"\n{len(tensors)} tensors, {total:,} elements, {size(taken)}")
    if found is not None:
        counts = sorted(found.operators.items(), key=lambda item: (-item[1], item[0]))
        print("\n" + "\n".join(table(("operator", "nodes"), [(k, str(n)) for k, n in counts])))
        print(f"\n{sum(found.operators.values())} nodes, {len(counts)} kinds")
    if options.draw is not None:
        _draw(found, options)
    return 0


def _draw(found: Any, options: argparse.Namespace) -> None:
    """The frozen graph as a picture."""
    from ...compiler.freeze import freeze
    from .model_files import given_inputs

    if found is None:
        raise InvalidArgument("--draw: a file of tensors has no graph")
    if found.exported is not None:
        raise InvalidArgument("--draw: an exported program is compiled; draw what it was made from")
    program = freeze(found.module, *given_inputs(found, options.input))
    memory = program.memory
    from ...compiler.schedule.listing import size

    print(
        f"\nfrozen: {len(program.nodes)} nodes, intermediate values {size(memory.planned)} "
        f"({size(memory.without_reuse)} without reuse)"
    )
    print(f"drawn: {program.draw(options.draw)}")


def _bytes_of(path: Path) -> int:
    """The size of a file (a directory's files), and of the weights beside a `.param`."""
    paths: Iterable[Path] = path.iterdir() if path.is_dir() else (path,)
    beside = path.with_suffix(".bin")
    if path.suffix == ".param" and beside.is_file():
        paths = (path, beside)
    return sum(p.stat().st_size for p in paths if p.is_file())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; numbers to the right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [i > 0 and header[i] in ("elements", "nodes") for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ).rstrip()

    return [line(header), "  ".join("-" * width for width in widths), *map(line, rows)]
