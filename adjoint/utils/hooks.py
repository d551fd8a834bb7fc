"""What `register_hook` returns, under the module that PyTorch programs import it from."""

from ..tensor import RemovableHandle

__all__ = ["RemovableHandle"]
