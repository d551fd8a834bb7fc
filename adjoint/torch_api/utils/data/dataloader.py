"""PyTorch's name of the module with `DataLoader`."""

from collections.abc import Iterator as _BaseDataLoaderIter  # noqa: F401 - PyTorch's names for

from ....data.collate import default_collate, default_convert
from ....data.loader import DataLoader
from ....data.pool import WorkerIterator as _MultiProcessingDataLoaderIter  # noqa: F401 - types
from ....data.worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
