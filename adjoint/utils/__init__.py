"""Helpers beside the framework's core: `utils.checkpoint`, `utils.data`.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from . import checkpoint, data, dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks"]
