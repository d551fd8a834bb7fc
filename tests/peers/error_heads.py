"""Arguments of wrong shapes and dtypes in each entry of PyTorch's `op_db`: what refuses them begins
with the name of the function that was called, whichever op has met them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import adjoint as ad

from . import dtype_sweep, op_db

MOST = 2  # samples of an entry that are changed


def _longer(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x[:1], x[:1]]) if x.ndim else x.expand(7)


def _wider(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x[..., :1]], -1) if x.ndim else x.expand(7)


def _farther(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype.is_complex or x.dtype is torch.bool else x + 9


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{
        name: lambda x, name=name: dtype_sweep.cast(x, name)
        for name in ("bool", "int64", "float64", "complex64")
    },
    "longer": _longer,
    "wider": _wider,
    "empty": lambda x: x[:0] if x.ndim else x.expand(0),
    "flat": lambda x: x.flatten(),
    "of two dimensions more": lambda x: x[None, None],
    "with numbers out of range": _farther,
}


class Finding(NamedTuple):
    """An error whose message begins with another name, or that was not raised on purpose."""

    entry: str
    change: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.entry}, {self.change}: {self.kind}: {self.text}"


def findings(name: str) -> list[Finding]:
    """Those of an entry, one for each text."""
    entry = op_db.entries()[name]
    if any(name.startswith(each) for each in dtype_sweep.SKIPPED):
        return []
    if not entry.supported_dtypes("cpu"):
        return []
    try:
        function = op_db.resolve(entry)
    except op_db.Missing:
        return []
    found: dict[str, Finding] = {}
    for sample in itertools.islice(dtype_sweep.samples(entry), MOST):
        for place, change in itertools.product(dtype_sweep.places(sample), CHANGES):
            error = _met(function, sample, place, change)
            if error is not None and not is_headed(error, entry.name, function):
                text = " ".join(str(error).split())
                found.setdefault(text[:40], Finding(name, change, type(error).__name__, text))
    return list(found.values())


def _met(function: Callable[..., Any], sample: Any, place: Any, change: str) -> Exception | None:
    """The error of a call with one changed argument; None where it has none."""
    try:
        values, kwargs = op_db.to_ours(dtype_sweep.changed(sample, place, CHANGES[change]))
    except Exception:
        return None  # there is no such argument: a sparse tensor has no flat form, say
    try:
        function(*values, **kwargs)
    except Exception as error:
        return error.with_traceback(None)
    return None


def is_headed(error: Exception, name: str, function: Callable[..., Any]) -> bool:
    """Whether an error, raised on purpose, begins with the name of a function or its method."""
    if not isinstance(error, ad.AdjointError):
        return False
    head = str(error).partition(": ")[0].partition("()")[0].rpartition(".")[2]
    names = name.rpartition(".")[2], getattr(function, "__name__", "")
    return head.strip("_") in [each.strip("_") for each in names]


def main() -> None:
    """Print the findings of entries: `python -m tests.peers.error_heads [PART OF A NAME ...]`."""
    import sys

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in sorted(op_db.entries()):
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
            for finding in findings(name):
                print(finding, flush=True)


if __name__ == "__main__":
    main()
