"""ONNX files: any module written as one, and one read as a module that runs and trains."""

from .export import export as export
from .model import OnnxModule as OnnxModule
from .model import load as load
from .passes import fold_batch_norm as fold_batch_norm

__all__ = ["OnnxModule", "export", "fold_batch_norm", "load"]
