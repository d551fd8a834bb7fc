"""Batches in page-locked memory, from which CUDA copies while the program goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..tensor import Tensor


def pinned(batches: Iterable[Any]) -> Iterator[Any]:
    """Each of `batches` with its tensors in pinned memory."""
    return map(pin, batches)


def pin(batch: Any) -> Any:
    """A batch with its tensors, and objects that have `pin_memory`, pinned; the rest as it is."""
    if isinstance(batch, Tensor):
        return batch if batch.device.type != "cpu" else batch.pin_memory()
    if isinstance(batch, Mapping):
        found = {key: pin(value) for key, value in batch.items()}
        return found if type(batch) is dict else type(batch)(found)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(pin, batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map(pin, batch))
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch
