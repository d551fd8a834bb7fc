"""ONNX files: any module written as one, and one read as a module that runs and trains."""

from .export import export as export

__all__ = ["export"]
