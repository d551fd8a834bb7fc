"""`torch.utils.data._utils`: how batches are made, and what a worker knows of itself."""

from ...data import collate as collate
from ...data import worker as worker

__path__: list[str] = []  # PyTorch's is a package
