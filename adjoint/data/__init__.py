"""Datasets, some real ones, samplers and the DataLoader.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from . import dataset, sampler
from .classics import breast_cancer, diabetes, digits, iris
from .collate import default_collate, default_convert
from .dataset import *  # noqa: F403 - its __all__ is the list
from .loader import DataLoader
from .sampler import *  # noqa: F403
from .text import source_code
from .worker import get_worker_info

__all__ = [
    "DataLoader", "breast_cancer", "default_collate", "default_convert", "diabetes", "digits",
    "get_worker_info", "iris", "source_code",
]  # fmt: skip
__all__ += dataset.__all__
__all__ += sampler.__all__
