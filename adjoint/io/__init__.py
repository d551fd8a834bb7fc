"""Model files: safetensors for the data, JSON for the structure, never pickle."""

from .checkpoint import load, save

__all__ = ["load", "save"]
