"""Helpers beside the framework's core: `utils.checkpoint`, `utils.data`.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from . import checkpoint, data

__all__ = ["checkpoint", "data"]
