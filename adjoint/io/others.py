"""Files that `adjoint.load` does not read, and what reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..core.errors import CheckpointError

__all__ = ["refuse_others", "refuse_programs"]

_STARTS = {  # what files begin with: what they are, and the way to their values
    b"7767517": ("a graph of pnnx or ncnn", "adjoint.pnnx.load reads what pnnx wrote"),
    b"\x93NUMPY": ("an array of NumPy's", "adjoint.from_numpy(numpy.load(path)) reads it"),
    b"GGUF": ("a GGUF file", "convert it to safetensors"),
    b"\x89HDF\r\n": ("an HDF5 file", "read it with h5py and save its arrays with adjoint.save"),
    b"\x1f\x8b": ("compressed by gzip", "unpack it first"),
    b"BZh": ("compressed by bzip2", "unpack it first"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it first"),
    b"version https://git-lfs": ("a pointer of Git LFS", "fetch the file itself: git lfs pull"),
    b"<!DOCTYPE": ("a web page", "download the file itself"),
    b"<html": ("a web page", "download the file itself"),
}
_ENDS = {  # of names, where the content does not tell
    ".onnx": ("an ONNX model", "adjoint.onnx.load reads it"),
    ".param": ("a graph of pnnx or ncnn", "adjoint.pnnx.load reads what pnnx wrote"),
    ".pnnx.bin": ("the weights of a graph of pnnx", "adjoint.pnnx.load reads it with its .param"),
    ".tflite": ("a model of TensorFlow Lite", "convert it to ONNX, which adjoint.onnx.load reads"),
}
_MEMBERS = {  # of archives
    "constants.pkl": (
        "a TorchScript program, not a checkpoint",
        "pnnx converts it for adjoint.pnnx.load; or save its state_dict() with torch.save",
    ),
    "archive_format": (
        "a program of torch.export, not a checkpoint",
        "torch.onnx.export it for adjoint.onnx.load; or save its state_dict() with torch.save",
    ),
}


def _refuse(name: str, what: str, how: str) -> None:
    raise CheckpointError(f"load: {name or 'the file '}is {what}; {how}")


def refuse_others(f: Any, head: bytes) -> None:
    """Say what reads a file that begins with `head` and is no checkpoint."""
    path = os.fsdecode(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else ""
    name = f"{path!r} " if path else ""
    for start, (what, how) in _STARTS.items():
        if head.startswith(start):
            _refuse(name, what, how)
    if head[4:8] == b"TFL3":
        _refuse(name, *_ENDS[".tflite"])
    if head[8:9] == b"{":  # safetensors, whatever its name
        return
    for end, (what, how) in _ENDS.items():
        if path.lower().endswith(end):
            _refuse(name, what, how)
    if head[:1] == b"\x08" and head[2:3] in (b"\x12", b"\x1a", b":") and not path:
        _refuse(name, *_ENDS[".onnx"])  # its version, then who made it


def refuse_programs(members: Iterable[str]) -> None:
    """Say what reads an archive that holds a program."""
    for member in members:
        found = _MEMBERS.get(member.rpartition("/")[2])
        if found is not None:
            raise CheckpointError(f"the file is {found[0]}; {found[1]}")
