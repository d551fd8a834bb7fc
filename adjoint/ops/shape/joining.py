"""Joining and splitting under one name, which programs and files of earlier versions use."""

from __future__ import annotations

from .concatenation import Cat as Cat
from .concatenation import Stack as Stack
from .concatenation import (
    cat,
    column_stack,
    concat,
    concatenate,
    dstack,
    hstack,
    row_stack,
    stack,
    vstack,
)
from .splitting import Split as Split
from .splitting import Unbind as Unbind
from .splitting import _split as _split  # which files name for unsafe_split
from .splitting import chunk, dsplit, hsplit, split, split_with_sizes, tensor_split, unbind, vsplit

__all__ = [
    "cat", "chunk", "column_stack", "concat", "concatenate", "dsplit", "dstack", "hsplit",
    "hstack", "row_stack", "split", "split_with_sizes", "stack", "tensor_split", "unbind",
    "vsplit", "vstack",
]  # fmt: skip
