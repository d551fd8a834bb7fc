"""Model files: safetensors, PyTorch's and NumPy's formats; nothing in a file is ever executed."""

from typing import Any as _Any

from .files import load, save

__all__ = ["load", "load_npz", "load_sharded", "save", "save_npz", "save_sharded"]

_ELSEWHERE = {
    "load_npz": "npz", "save_npz": "npz", "load_sharded": "sharded", "save_sharded": "sharded"
}  # fmt: skip


def __getattr__(name: str) -> _Any:
    """Formats that few programs use, imported on first use."""
    if name in _ELSEWHERE:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
