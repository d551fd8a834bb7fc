"""PyTorch's name of the place of DistributedDataParallel (adjoint/distributed/data_parallel.py)."""

from ..distributed.data_parallel import DistributedDataParallel as DistributedDataParallel
