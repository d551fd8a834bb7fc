"""Model files: safetensors, PyTorch's and NumPy's formats; nothing in a file is ever executed."""

from .files import load, save
from .npz import load_npz, save_npz
from .sharded import load_sharded, save_sharded

__all__ = ["load", "load_npz", "load_sharded", "save", "save_npz", "save_sharded"]
