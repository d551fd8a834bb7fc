"""Each tensor argument of each entry of PyTorch's `op_db` in each dtype, on both frameworks.

What PyTorch refuses and ours accepts must give the values that PyTorch gives once the arguments
have been converted to dtypes that it accepts and that hold their values: then nothing has been
cut. All else is a finding, which ours has to refuse, or which a rule of the test excuses.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

import adjoint as ad

from . import op_db

DTYPES = (
    "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
)  # fmt: skip
ASKED = 40  # samples of an entry that are looked at
MOST = 5  # of them that are run: no two have the same arguments
ELEMENTS = 2_000  # of larger samples none is run: what is accepted depends on dtypes
SKIPPED = {  # entries that are not asked
    "jiterator": "C++ source compiled for CUDA at run time",
    "torch.ops": "private to PyTorch",
    "empty": "values are what happened to be in memory",
    "new_empty": "values are what happened to be in memory",
}

Path = tuple[Any, ...]


class Finding(NamedTuple):
    """A dtype of an argument that PyTorch refuses and ours accepts, with other values."""

    entry: str
    argument: str
    usual: str  # dtype of the argument in PyTorch's sample
    dtype: str
    theirs: str  # PyTorch's words
    ours: str  # what is wrong with ours

    def __str__(self) -> str:
        return (
            f"{self.entry}: {self.argument} of {self.usual} as {self.dtype}: {self.ours}; "
            f"PyTorch: {self.theirs}"
        )


def findings(name: str) -> list[Finding]:
    """Those of an entry."""
    entry = op_db.entries()[name]
    if any(name.startswith(skipped) for skipped in SKIPPED) or not entry.supported_dtypes("cpu"):
        return []
    try:
        function = op_db.resolve(entry)
    except op_db.Missing:
        return []
    found: dict[tuple[str, str], Finding] = {}
    ways = [(entry.op, function)]
    method = entry.name + "_"
    if entry.inplace_variant is not None and hasattr(ad.Tensor, method):
        ways.append((op_db.in_place(method), op_db.in_place(method)))
    for values, kwargs in samples(entry):
        for place, (theirs, ours) in itertools.product(places((values, kwargs)), ways):
            for dtype in DTYPES:
                finding = _tried(name, theirs, ours, (values, kwargs), place, dtype)
                if finding is not None:
                    found.setdefault((finding.argument, dtype), finding)
    return list(found.values())


def samples(entry: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of a few samples, no two of which have tensors in the same places."""
    supported = entry.supported_dtypes("cpu")
    usual = [d for d in (torch.float32, torch.int64) if d in supported]
    dtype = usual[0] if usual else sorted(supported, key=str)[0]
    seen = set()
    torch.manual_seed(0)
    some = entry.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in itertools.islice(some, ASKED):
        values = op_db.as_leaves((sample.input, *sample.args))
        kwargs = op_db.as_leaves(sample.kwargs)
        tensors = op_db.tensors_in((values, kwargs))
        key = (
            tuple(places((values, kwargs))), tuple(sorted(kwargs)),
            tuple((t.dtype, t.ndim > 0, t.layout) for t in tensors),
        )  # fmt: skip
        sizes = [t.numel() for t in tensors]
        if key in seen or 0 in sizes or sum(sizes) > ELEMENTS or len(seen) == MOST:
            continue
        seen.add(key)
        yield values, kwargs


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where there are tensors in a nested value."""
    if isinstance(value, torch.Tensor):
        yield path
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from places(each, (*path, i))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))


def changed(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A nested value with another entry in one place."""
    if not path:
        return change(value)
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {**value, first: changed(value[first], rest, change)}
    return type(value)(changed(v, rest, change) if i == first else v for i, v in enumerate(value))


def entry_at(value: Any, path: Path) -> Any:
    """The entry in one place of a nested value."""
    for key in path:
        value = value[key]
    return value


def cast(x: torch.Tensor, name: str) -> torch.Tensor:
    """The same in another dtype; with values that its former one would not hold."""
    dtype = getattr(torch, name)
    if dtype.is_complex:
        return x.to(dtype) * (1 + 0.5j)
    if dtype.is_floating_point and not x.is_floating_point():
        return x.to(dtype) + 0.25
    return (x.real if x.is_complex() else x).to(dtype)


def _run(function: Callable[..., Any], arguments: Any) -> tuple[Any, str]:
    """What a call gives, and the error that it ends with ("" for none)."""
    values, kwargs = arguments
    try:
        return function(*values, **kwargs), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def _tried(
    name: str, theirs: Any, ours: Any, sample: Any, place: Path, dtype: str
) -> Finding | None:
    """What there is to say of one argument in one dtype."""
    x = entry_at(sample, place)
    usual = str(x.dtype).removeprefix("torch.")
    if usual == dtype or x.layout is not torch.strided:
        return None
    call = changed(sample, place, lambda x: cast(x, dtype))
    mine = op_db.to_ours(call)  # before theirs, which may write to it
    _, refused = _run(theirs, call)
    if not refused:
        return None
    result, error = _run(ours, mine)
    if error:
        return None
    wrong = _differs(name, theirs, call, place, x.dtype, result)
    argument = str(place[1] if place[0] else place[1:] if len(place) > 2 else place[1])
    return Finding(name, argument, usual, dtype, refused, wrong) if wrong else None


def _differs(
    name: str, theirs: Any, call: Any, place: Path, usual: torch.dtype, result: Any
) -> str:
    """How our result differs from PyTorch's of arguments that hold the same values in dtypes that
    it accepts; "" where it does not.
    """
    x = entry_at(call, place)
    given = x.dtype
    if usual in (torch.int64, torch.int32) and not _is_integer(given):
        return "a bool is no number" if given is torch.bool else "a fraction is no integer"
    for arguments in _of_the_same_values(call, place, x, usual):
        expected, error = _run(theirs, arguments)
        if not error:
            return _other_values(name, result, expected, given)
    if given.is_complex and not usual.is_complex:
        parts = [
            _run(theirs, changed(call, place, lambda x, part=part: part))
            for part in (x.real, x.imag)
        ]
        if not any(error for _, error in parts):
            return _not_linear(result, *[part for part, _ in parts])
    return "there is no such result"


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _of_the_same_values(
    call: Any, place: Path, x: torch.Tensor, usual: torch.dtype
) -> Iterator[Any]:
    """Arguments that PyTorch may accept and that hold the same values as those of `call`."""
    if not (x.is_complex() and not usual.is_complex) and torch.equal(x.to(usual).to(x.dtype), x):
        yield changed(call, place, lambda x: x.to(usual))
    wide = torch.promote_types(usual, x.dtype)
    wider = changed(call, place, lambda x: x.to(wide))
    yield wider
    for common in (wide, torch.float64, torch.complex64):
        if common.is_floating_point or common.is_complex:
            yield _all_in(wider, common)


def _not_linear(result: Any, real: Any, imaginary: Any) -> str:
    """Whether a result for complex numbers is other than those for their parts together."""
    parts = map(op_db.tensors_in, (result, real, imaginary))
    for y, a, b in zip(*parts, strict=True):
        whole = op_db.array_of(a) + 1j * op_db.array_of(b)
        if (
            y.shape != whole.shape
            or not y.is_complex()
            or not np.allclose(op_db.array_of(y), whole, 1e-3, 1e-3)
        ):
            return f"{y.dtype}, other than those of the real and the imaginary part"
    return ""


def _all_in(value: Any, dtype: torch.dtype) -> Any:
    """A nested value whose floating-point tensors are in one dtype that holds them."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() and not dtype.is_complex:
            return value
        return value.to(dtype) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, dict):
        return {key: _all_in(each, dtype) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_all_in(each, dtype) for each in value)
    return value


def _other_values(name: str, result: Any, expected: Any, given: torch.dtype) -> str:
    mine, others = op_db.tensors_in(result), op_db.tensors_in(expected)
    if len(mine) != len(others):
        return f"{len(mine)} tensors for {len(others)}"
    drawn = name in op_db.DRAWN or name == "svd_lowrank"
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1}.get(given, 1e-3)
    for a, b in zip(mine, others, strict=True):
        if tuple(a.shape) != tuple(b.shape):
            return f"shape {tuple(a.shape)} for {tuple(b.shape)}"
        if drawn and a.is_floating_point() != b.is_floating_point():
            return f"{a.dtype} for {b.dtype}"
        if drawn or (name in op_db.TIED and b is others[1]):
            continue
        x, y = op_db.array_of(a), op_db.array_of(b)
        with np.errstate(all="ignore"):
            if x.dtype.kind == y.dtype.kind == "f":  # whose largest number may be smaller
                y = y.astype(x.dtype)
            if not np.allclose(x, y, tolerance, tolerance, equal_nan=True):
                return f"other values, {a.dtype} for {b.dtype}"
    return ""


def main() -> None:
    """Print the findings of entries: `python -m tests.peers.dtype_sweep [PART OF A NAME ...]`, or
    of one of so many parts: `... 0/4`.
    """
    import sys

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = sorted(op_db.entries())
    words = sys.argv[1:]
    if len(words) == 1 and "/" in words[0] and words[0][0].isdigit():
        part, parts = map(int, words[0].split("/"))
        names, words = names[part::parts], []
    for name in names:
        if not words or any(word in name for word in words):
            for finding in findings(name):
                print(finding, flush=True)


if __name__ == "__main__":
    main()
