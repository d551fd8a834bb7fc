"""PNNX files, read as static graphs of inference."""

from .module import PnnxModule as PnnxModule
from .module import load as load

__all__ = ["PnnxModule", "load"]
