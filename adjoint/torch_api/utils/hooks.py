"""The handle that `register_hook` returns, under the module where PyTorch has it."""

from ...tensor import RemovableHandle

__all__ = ["RemovableHandle"]
