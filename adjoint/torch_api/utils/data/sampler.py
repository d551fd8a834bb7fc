"""PyTorch's name of the module with samplers."""

from ....data.sampler import *  # noqa: F403 - its __all__ is the list
from ....data.sampler import __all__ as __all__
