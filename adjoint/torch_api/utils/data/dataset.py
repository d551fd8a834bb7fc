"""PyTorch's name of the module with datasets."""

from ....data.dataset import *  # noqa: F403 - its __all__ is the list
from ....data.dataset import __all__ as __all__
