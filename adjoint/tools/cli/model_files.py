"""Files that hold models: what the commands `infer`, `convert` and `summary` read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np

from ...core.dtype import by_name
from ...core.errors import CheckpointError, InvalidArgument
from ...core.spec import Spec
from ...tensor import Tensor

GRAPHS = (".adjoint", ".onnx", ".param")  # files that say what to compute
WEIGHTS = (".ad", ".safetensors", ".pt", ".pth", ".npz")  # files that hold tensors only


class Input(NamedTuple):
    """A file's description of an input; a size that may vary is None or a name."""

    name: str
    shape: tuple[Any, ...] | None
    dtype: str | None

    def spec(self) -> Spec:
        """The input's spec, with 1 for sizes that may vary."""
        if self.shape is None or self.dtype is None:
            raise InvalidArgument(
                f"the file does not say the shape of {self.name!r}; give --input "
                f"{self.name}=SHAPE, such as {self.name}=1,3,224,224"
            )
        sizes = tuple(n if isinstance(n, int) else 1 for n in self.shape)
        return Spec(sizes, by_name(self.dtype))

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join("?" if n is None else str(n)
                                                         for n in self.shape)  # fmt: skip
        return f"{self.name}: {self.dtype or '?'} ({sizes})"


class ModelGraph(NamedTuple):
    """A file with a graph: the module that it is, its inputs, its operators counted."""

    module: Any
    inputs: list[Input]
    operators: Counter[str]
    exported: Any = None  # the program of an exported file, which is compiled as it is

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, where the file has them."""
        return list(getattr(self.module, "output_names", ()))

    def state_dict(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        return dict(self.module.state_dict())


def read_graph(path: Path) -> ModelGraph:
    """A file that says what to compute.

    Errors: those of `onnx.load`, `pnnx.load` and `export.load`; InvalidArgument for files that hold
    tensors only.
    """
    if path.suffix == ".onnx":
        return _onnx(path)
    if path.suffix == ".adjoint":
        return _exported(path)
    if path.suffix == ".param":
        return _pnnx(path)
    if path.suffix in WEIGHTS:
        raise InvalidArgument(
            f"{path.name} holds tensors but not what to compute with them; export the model "
            "(adjoint.export), as ONNX (torch.onnx.export, adjoint.onnx.export) or with pnnx"
        )
    raise InvalidArgument(f"{path.name}: known are {', '.join(GRAPHS)} files")


def _onnx(path: Path) -> ModelGraph:
    from ...interop.onnx.files import DTYPES, read_model
    from ...interop.onnx.model import OnnxModule

    proto, directory = read_model(path)
    module = OnnxModule(proto, directory)
    known = set(module.input_names)
    inputs = []
    for x in proto.graph.input:
        if x.name not in known:
            continue
        tensor = x.type.tensor_type
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in tensor.shape.dim
            )
        dtype = DTYPES.get(tensor.elem_type)
        inputs.append(Input(x.name, shape, None if dtype is None else str(dtype)))
    return ModelGraph(module, inputs, Counter(node.op_type for node in proto.graph.node))


def _exported(path: Path) -> ModelGraph:
    from ...compiler import export

    program = export.load(path)
    inputs = [Input(name, spec.shape, spec.dtype.name) for name, spec in program.inputs()]
    return ModelGraph(program.module(), inputs, Counter(), program)


def _pnnx(path: Path) -> ModelGraph:
    from ...interop import pnnx

    module = pnnx.load(path)
    inputs = []
    for name, traced in zip(module.input_names, module.input_types, strict=True):
        shape, dtype = (None, None) if traced is None else traced
        inputs.append(Input(name, shape, dtype))
    return ModelGraph(module, inputs, Counter(step.kind for step in module._steps))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors in a file, nested ones under names with dots."""
    from ... import io

    if path.suffix in GRAPHS:
        return read_graph(path).state_dict()
    found: dict[str, Tensor] = {}
    _collect(io.load(path), "", found)
    return found


def _collect(value: Any, name: str, found: dict[str, Tensor]) -> None:
    if isinstance(value, Tensor):
        found[name or "tensor"] = value
    elif isinstance(value, dict):
        for key, part in value.items():
            _collect(part, f"{name}.{key}" if name else str(key), found)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            _collect(part, f"{name}.{i}" if name else str(i), found)


def read_array(path: Path) -> Any:
    """The array in a `.npy` file, of which no more is read than the file has."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, TypeError, EOFError, OverflowError, SyntaxError, TokenError,
            RecursionError) as error:  # fmt: skip
        raise CheckpointError(f"{path}: not a .npy file of numbers: {error}") from error
    if not isinstance(array, np.ndarray):
        raise CheckpointError(f"{path}: an archive; give .npy files, one for each input")
    return array


def shape_faults(graph: ModelGraph, inputs: list[Any]) -> str:
    """The inputs whose shapes are not those that the file says, for an error message."""
    faults = []
    for declared, x in zip(graph.inputs, inputs, strict=True):
        sizes = declared.shape
        if sizes is None or (
            len(sizes) == x.ndim
            and all(n == m or not isinstance(n, int) for n, m in zip(sizes, x.shape, strict=True))
        ):
            continue
        faults.append(
            f"input {declared.name!r} is of shape {tuple(x.shape)}, the file says {declared}"
        )
    return "; ".join(faults)


def shape_of(text: str) -> tuple[int, ...] | None:
    """The sizes in a text such as `1,3,224,224`; None for any other."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        return None
    return tuple(map(int, parts))


def given_inputs(graph: ModelGraph, texts: list[str]) -> list[Any]:
    """The arrays for a graph's inputs, from `x.npy`, `name=x.npy`, or shapes of random numbers;
    inputs that are not given get random numbers of the file's shape.
    """
    names = [x.name for x in graph.inputs]
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        if not sign or name not in names:
            left = [n for n in names if n not in found]
            if sign and not Path(text).exists():
                raise InvalidArgument(f"no input {name!r}; there are {', '.join(names)}")
            if not left:
                raise InvalidArgument(f"{len(names)} inputs ({', '.join(names)}), one more given")
            name, rest = left[0], text
        declared = graph.inputs[names.index(name)]
        shape = shape_of(rest)
        if shape is None:
            found[name] = _converted(read_array(Path(rest)), declared)
        else:
            dtype = declared.dtype or "float32"
            found[name] = _random(Spec(shape, by_name(dtype)))
    return [found[x.name] if x.name in found else _random(x.spec()) for x in graph.inputs]


def _converted(array: Any, declared: Input) -> Any:
    """The array in the dtype that the file wants, where that loses no integers."""
    if declared.dtype is None or str(array.dtype) == declared.dtype:
        return array
    wanted = by_name(declared.dtype).numpy
    if array.dtype.kind in "f" and wanted.kind in "fV":
        with np.errstate(all="ignore"):  # too large is infinite
            return array.astype(wanted)
    if np.can_cast(array.dtype, wanted, "safe"):
        return array.astype(wanted)
    raise InvalidArgument(
        f"{declared.name}: the model takes {declared.dtype}, the array is {array.dtype}"
    )


def _random(spec: Spec) -> Any:
    """Numbers to try a model with, the same each time; integers are zeros."""
    if not spec.dtype.is_floating_point:
        return np.zeros(spec.shape, spec.dtype.numpy)
    return np.random.default_rng(0).standard_normal(spec.shape).astype(spec.dtype.numpy)
