"""ONNX files: any module written as one, and one read as a module that runs and trains."""

from typing import Any as _Any

from .export import export as export
from .model import OnnxModule as OnnxModule
from .model import load as load
from .passes import fold_batch_norm as fold_batch_norm

__all__ = ["OnnxModule", "export", "fold_batch_norm", "load"]


def is_in_onnx_export() -> bool:
    """Whether PyTorch's exporter runs this: False."""
    return False


def __getattr__(name: str) -> _Any:
    """Names by which packages tell PyTorch's exporter of their operators."""
    if name.startswith("symbolic_") or name == "register_custom_op_symbolic":
        import importlib

        helper = importlib.import_module(f"{__name__}.symbolic_helper")
        return getattr(helper, name) if name.startswith("register") else helper
    from ...core.missing_names import missing

    raise missing("onnx", name)
