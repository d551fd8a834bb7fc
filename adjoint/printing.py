"""Tensors as text, in PyTorch's layout."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from .autograd.forward_level import OpenDual
from .autograd.levels import Leveled
from .core.device import get_default_device
from .core.dtype import bool_, get_default_dtype, int64
from .core.errors import InvalidArgument
from .core.mode import note_switch
from .ops.create.conversion import Sparse, sparse_coo, sparse_csr, sparse_parts
from .runtime.lazy import concrete
from .runtime.public import naming

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000  # more elements than this are summarised
    edgeitems: int = 3  # shown at both ends of a summarised dimension
    linewidth: int = 80
    sci_mode: bool | None = None  # None: decided by the values
    layout: str = ""  # "slices": high ranks as 2-d slices; "libtorch": as C++ prints tensors


PRINT_OPTS = _options = _Options()  # changed in place: packages hold it
_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
    "slices": _Options(layout="slices"),
    "libtorch": _Options(threshold=math.inf, layout="libtorch"),
}


@naming
def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; options that are None stay as they are, except `sci_mode`.

    `profile` is "default", "short", "full" (never summarised), "slices": tensors of more than
    two dimensions as 2-d slices in memory order, each headed by its index, and a last line with
    shape, dtype and device; or "libtorch": all tensors as columns of numbers, those slices headed
    by `(0,0,.,.) =`, and a last line with type and sizes, much as PyTorch's C++ prints them.

    Errors: InvalidArgument for an unknown profile.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_printoptions.html

    >>> ad.set_printoptions(precision=2)
    >>> ad.tensor([1.12345])
    tensor([1.12])
    >>> ad.set_printoptions(profile="slices")
    >>> ad.arange(8).reshape(2, 2, 2)
    [0, :, :]
    [[0, 1],
     [2, 3]]
    [1, :, :]
    [[4, 5],
     [6, 7]]
    shape (2, 2, 2), dtype adjoint.int64, device cpu
    >>> ad.set_printoptions(profile="libtorch")
    >>> ad.arange(4.0).reshape(2, 1, 2)
    (0,.,.) =
     0. 1.
    (1,.,.) =
     2. 3.
    [ CPUFloatType{2,1,2} ]
    >>> ad.set_printoptions(profile="default")
    """
    if profile is None:
        new = replace(_options)
    elif profile in _PROFILES:
        new = replace(_PROFILES[profile])
    else:
        raise InvalidArgument(
            f"set_printoptions: unknown profile {profile!r}; use one of {', '.join(_PROFILES)}"
        )
    changes = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems,
        "linewidth": linewidth,
    }  # fmt: skip
    for name, value in changes.items():
        if value is not None:
            setattr(new, name, value)
    new.sci_mode = sci_mode
    note_switch("set_printoptions")
    vars(_options).update(vars(new))


def get_printoptions() -> dict[str, Any]:
    """The options in force, as keywords for `set_printoptions`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_printoptions.html

    >>> ad.get_printoptions()["precision"]
    4
    """
    names = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
    return {name: getattr(_options, name) for name in names}


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions` for a `with` block.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_printoptions.html

    >>> with ad.printoptions(precision=1):
    ...     print(ad.tensor([1.25]))
    tensor([1.2])
    """
    before = dict(vars(_options))
    set_printoptions(**options)
    try:
        yield
    finally:
        vars(_options).update(before)


class _Formatter:
    """Formats numbers to one width, so that columns line up."""

    def __init__(self, values: Any, floating: bool) -> None:
        self.floating = floating
        self.width = 1
        self.scientific = False
        self.whole = True  # all values are whole numbers: written without decimals
        if not floating:
            self.width = max((len(f"{v}") for v in values.ravel().tolist()), default=1)
            return
        wide = values.ravel().astype(np.float64)
        shown = wide[np.isfinite(wide) & (wide != 0)]
        if not shown.size:
            return
        smallest, largest = np.abs(shown).min(), np.abs(shown).max()
        self.whole = bool((shown == np.ceil(shown)).all())
        if _options.sci_mode is None:
            with np.errstate(over="ignore"):
                self.scientific = bool(
                    largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4
                )
        else:
            self.scientific = _options.sci_mode
        style = f".{_options.precision}{'e' if self.scientific else 'f'}"
        extra = 0
        if self.whole and not self.scientific:
            style, extra = ".0f", 1  # the point that marks a float
        self.width = max(1, extra + max(len(format(v, style)) for v in shown.tolist()))

    def __call__(self, value: Any) -> str:
        if not self.floating:
            text = f"{value}"
        elif self.scientific:
            text = f"{value:.{_options.precision}e}"
        elif self.whole:
            text = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            text = f"{value:.{_options.precision}f}"
        return text.rjust(self.width)


def _number_format(values: Any) -> tuple[Callable[[Any], str], int]:
    """The function that formats one element, and its width, given all elements that will be
    shown.
    """
    if values.dtype.kind != "c":
        formatter = _Formatter(values, values.dtype.kind in "fV")
        return formatter, formatter.width
    real, imag = _Formatter(values.real, True), _Formatter(values.imag, True)

    def write(value: complex) -> str:
        second = (imag(value.imag) + "j").lstrip()
        return real(value.real) + ("" if second[0] in "+-" else "+") + second

    return write, real.width + imag.width + 1


def _edges(data: Any) -> Any:
    """`data` without the middle of the dimensions that are summarised."""
    edge = _options.edgeitems
    for axis, size in enumerate(data.shape):
        if size > 2 * edge:
            kept = [*range(edge), *range(size - edge, size)]
            data = np.take(data, kept, axis=axis)
    return data


def _write(data: Any, indent: int, summarize: bool, write: Callable[[Any], str], width: int) -> str:
    """Nested brackets around formatted elements."""
    if data.ndim == 0:
        return write(_python(data))
    edge = _options.edgeitems
    cut = summarize and len(data) > 2 * edge
    if data.ndim > 1:
        parts = [data[:edge], data[len(data) - edge :]] if cut else [data]
        texts = [[_write(x, indent + 1, summarize, write, width) for x in part] for part in parts]
        items: list[str] = texts[0] if not cut else [*texts[0], "...", *texts[1]]
        separator: str = "," + "\n" * (data.ndim - 1) + " " * (indent + 1)
        return "[" + separator.join(items) + "]"
    if summarize and not edge:
        items = ["..."]
    elif cut:
        first, last = _python(data[:edge]), _python(data[-edge:])
        items = [*map(write, first), " ...", *map(write, last)]
    else:
        items = [*map(write, _python(data))]
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _python(data: Any) -> Any:
    """An array's elements as Python numbers."""
    return (data.astype(np.float32) if data.dtype.kind == "V" else data).tolist()


def _body(data: Any, indent: int) -> str:
    if not data.size:
        return "[]"
    summarize = data.size > _options.threshold
    shown = _edges(data) if summarize else data
    write, width = _number_format(shown)
    return _write(data, indent, summarize, write, width)


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor as text, for packages that call PyTorch's private function."""
    return _body(self.numpy(force=True), indent)


def format_tensor(tensor: Any) -> str:
    """`tensor` as PyTorch prints it, or in slices with that profile; inside a function transform,
    the wrapped tensor.
    """
    if isinstance(tensor._data, OpenDual):
        concrete(tensor)  # which is plain where the level was left
    data = tensor._data
    if isinstance(data, Leveled) and not isinstance(data, OpenDual):
        return repr(data)
    history = []
    if tensor.grad_fn is not None:
        history.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        history.append("requires_grad=True")
    if isinstance(data, OpenDual) and data.tangent is not None:
        history.append(f"tangent={data.tangent!r}")
    if isinstance(tensor._data, Sparse):
        return _format_sparse(tensor, history)
    data = concrete(tensor)
    if tensor.is_meta:
        return _format_meta(tensor, history)
    if _options.layout == "libtorch":
        return _format_columns(tensor, history)
    if _options.layout == "slices" and data.ndim > 2 and data.size:
        return _format_slices(tensor, history)
    kind = type(tensor).__name__
    prefix = "tensor(" if kind in ("Tensor", "Parameter") else f"{kind}("
    suffixes = []
    if tensor.device != get_default_device():
        suffixes.append(f"device='{tensor.device}'")
    default = get_default_dtype()
    if not data.size:
        if data.ndim != 1:
            suffixes.append(f"size={tuple(data.shape)}")
        if tensor.dtype is not default:
            suffixes.append(f"dtype={tensor.dtype}")
    else:
        if not _options.edgeitems:
            suffixes.append(f"size={tuple(data.shape)}")
        if tensor.dtype not in (default, default.to_complex(), int64, bool_):
            suffixes.append(f"dtype={tensor.dtype}")
    return _join(prefix + _body(data, len(prefix)), suffixes + history, len(prefix))


def _format_meta(tensor: Any, history: list[str]) -> str:
    """A tensor without elements: its device, size, dtype."""
    suffixes = [f"device='{tensor.device}'", f"size={tuple(tensor.shape)}"]
    if tensor.dtype is not get_default_dtype():
        suffixes.append(f"dtype={tensor.dtype}")
    return _join("tensor(...", suffixes + history, len("tensor("))


_COLUMNS = ["ccol_indices", "row_indices"]


def _format_sparse(tensor: Any, history: list[str]) -> str:
    """A sparse tensor: its indices, values, and properties."""
    kept, parts, _ = sparse_parts(tensor)
    coordinates = kept is sparse_coo
    rows = ["crow_indices", "col_indices"]
    names = ["indices"] if coordinates else rows if kept is sparse_csr else _COLUMNS
    texts = []
    for name, part in zip([*names, "values"], parts, strict=False):
        array = part._data
        head = f"{name}=tensor("
        body = _body(array, len("tensor(" + head))
        texts.append(head + body + ("" if array.size else f", size={tuple(array.shape)}") + ")")
    default = get_default_dtype()
    suffixes = [f"size={tuple(tensor.shape)}", f"nnz={len(tensor._data.values)}"]
    if tensor.dtype not in (default, default.to_complex(), int64, bool_):
        suffixes.append(f"dtype={tensor.dtype}")
    text = "tensor(" + (",\n" + " " * len("tensor(")).join(texts)
    suffixes += [f"layout={kept}", *history]
    return _join(text, suffixes, len("tensor("), coordinates)


def _join(text: str, suffixes: list[str], indent: int, below: bool = False) -> str:
    """The suffixes after `text`, each on a new line where it would not fit; the first one always,
    if `below`.
    """
    column = len(text) - text.rfind("\n") + 1
    for i, suffix in enumerate(suffixes):
        if (below and not i) or column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


_WORDS = {"uint8": "Byte", "int8": "Char", "int16": "Short", "int64": "Long", "float16": "Half",
          "float64": "Double", "bfloat16": "BFloat16", "float32": "Float", "int32": "Int",
          "complex64": "ComplexFloat", "complex128": "ComplexDouble", "bool": "Bool",
          "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}  # fmt: skip


def _format_columns(tensor: Any, history: list[str]) -> str:
    """Rows of numbers, 2-d slices under `(0,0,.,.) =`; several edges stand for a long dimension."""
    data = concrete(tensor)
    lines = []
    if data.size:
        shown = _edges(data) if data.size > _options.threshold else data
        write, width = _number_format(shown)
        for index in product(*map(range, shown.shape[:-2])):
            if index:
                lines.append(f"({','.join(map(str, index))},.,.) =")
            block = _python(shown[index])
            rows = block if shown.ndim > 1 else [[x] for x in block] if shown.ndim else [[block]]
            lines += [" " + " ".join(write(x).rjust(width) for x in row) for row in rows]
    place = str(tensor.device).partition(":")[0].upper()
    sizes = ",".join(map(str, data.shape))
    lines.append(
        f"[ {place}{_WORDS[tensor.dtype.name]}Type{{{sizes}}} ]"
        + "".join(f", {each}" for each in history)
    )
    return "\n".join(lines)


def _format_slices(tensor: Any, history: list[str]) -> str:
    data = concrete(tensor)
    summarize = data.size > _options.threshold
    edge = _options.edgeitems
    write, width = _number_format(_edges(data) if summarize else data)
    counts = data.shape[:-2]
    shown = [
        [i for i in range(n) if not summarize or n <= 2 * edge or i < edge or i >= n - edge]
        for n in counts
    ]
    blocks = []
    expected = next(iter(product(*shown)), None)
    for index in product(*shown):
        if index != expected:
            blocks.append("...")
        blocks.append(f"[{', '.join(map(str, index))}, :, :]")
        blocks.append(_write(data[index], 0, summarize, write, width))
        expected = _after(index, counts)
    footer = f"shape {tuple(data.shape)}, dtype {tensor.dtype}, device {tensor.device}"
    return "\n".join([*blocks, ", ".join([footer, *history])])


def _after(index: tuple[int, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    """The index that follows in row-major order."""
    following = list(index)
    for axis in reversed(range(len(counts))):
        following[axis] += 1
        if following[axis] < counts[axis]:
            break
        following[axis] = 0
    return tuple(following)
