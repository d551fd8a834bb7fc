"""PNNX files written by hand, and by the tool."""

from __future__ import annotations

import io
import subprocess
import warnings
import zipfile

import numpy as np
import pytest

TYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32", "int64": "i64",
         "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64",
         "complex128": "c128"}  # fmt: skip


def value(v):
    """A parameter as pnnx writes it."""
    if isinstance(v, (tuple, list)):
        return "(" + ",".join(map(value, v)) + ")"
    return f"{v:.9e}" if isinstance(v, float) and abs(v) < 1e300 else str(v)


def shaped(array):
    return "(" + ",".join(map(str, array.shape)) + ")" + TYPES[str(array.dtype)]


def param_text(*lines):
    """A `.param` file of these operators."""
    words = [line.split() for line in lines]
    names = {n for w in words for n in w[4 : 4 + int(w[2]) + int(w[3])]}
    return "\n".join(["7767517", f"{len(lines)} {len(names)}", *lines, ""]).encode()


def bin_file(weights, method=zipfile.ZIP_STORED):
    """A `.bin` file of arrays by name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, array in weights.items():
            data = array if isinstance(array, bytes) else np.ascontiguousarray(array).tobytes()
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def operator_files(kind, arrays, params, keys, outputs, weights):
    """A graph of one operator: the text and the weights' file."""
    inputs = [f"i{n}" for n in range(len(arrays))]
    made = [f"o{n}" for n in range(outputs)]
    line = f"{kind} op {len(inputs)} {outputs} " + " ".join([*inputs, *made])
    line += "".join(f" {k}={value(v)}" for k, v in params.items())
    line += "".join(f" @{k}={shaped(v)}" for k, v in weights.items())
    line += "".join(f" ${k}={name}" for k, name in zip(keys, inputs, strict=False))
    ends = [f"pnnx.Input pnnx_input_{n} 0 1 {name} #{name}={shaped(a)}"
            for n, (name, a) in enumerate(zip(inputs, arrays, strict=True))]  # fmt: skip
    ends += [f"pnnx.Output pnnx_output_{n} 1 0 {name}" for n, name in enumerate(made)]
    archive = bin_file({f"op.{k}": v for k, v in weights.items()})
    return param_text(line, *ends), archive


def convert(directory, module, inputs, **options):
    """The path of the `.param` file that the pnnx tool makes of a PyTorch module."""
    pnnx = pytest.importorskip("pnnx", reason="needs the pnnx tool: pip install pnnx")
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that tracing and TorchScript go away
        traced = torch.jit.trace(module.eval(), inputs, check_trace=False)
        traced.save(str(directory / "model.pt"))
    kinds = {torch.float32: "f32", torch.int64: "i64", torch.bool: "bool"}
    shapes = ",".join(f"[{','.join(map(str, x.shape))}]{kinds[x.dtype]}" for x in inputs)
    done = subprocess.run(
        [pnnx.EXEC_PATH, "model.pt", f"inputshape={shapes}",
         *(f"{k}={v}" for k, v in options.items())],
        cwd=directory, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    path = directory / "model.pnnx.param"
    assert path.is_file(), done.stderr[-2000:]  # its exit code also tells of ncnn's own files
    return path
