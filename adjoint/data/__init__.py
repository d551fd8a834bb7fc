"""Datasets, some real ones, samplers and the DataLoader.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from .classics import breast_cancer, diabetes, digits, iris
from .collate import default_collate, default_convert
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .loader import DataLoader
from .sampler import (
    BatchSampler,
    BucketBatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .text import source_code
from .worker import get_worker_info

__all__ = [
    "BatchSampler", "BucketBatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "breast_cancer",
    "default_collate", "default_convert", "diabetes", "digits", "get_worker_info", "iris",
    "random_split", "source_code",
]  # fmt: skip
