"""PyTorch's name of `adjoint.data`."""

from ....data import *  # noqa: F403 - its __all__ is the list
from ....data import __all__ as __all__
from . import dataloader as dataloader
from . import dataset as dataset
from . import distributed as distributed
from . import sampler as sampler
from .distributed import DistributedSampler as DistributedSampler


def __getattr__(name: str) -> object:
    from ....data import pipes

    if name in pipes.__all__:
        return getattr(pipes, name)
    from ....core.missing_names import missing

    raise missing("utils.data", name)
