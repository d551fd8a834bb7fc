"""PyTorch's name of the place of the modules that divide work over devices and ranks."""

from ..distributed.data_parallel import DistributedDataParallel as DistributedDataParallel
from .modules.data_parallel import DataParallel as DataParallel
