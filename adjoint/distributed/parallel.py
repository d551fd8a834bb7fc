"""PyTorch's name of the place of the modules that divide work over devices and ranks."""

from ..nn.modules.data_parallel import DataParallel as DataParallel
from .data_parallel import DistributedDataParallel as DistributedDataParallel
