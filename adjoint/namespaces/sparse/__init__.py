"""Functions of sparse tensors; PyTorch's namespace of that name.

Source: https://docs.pytorch.org/docs/stable/sparse.html
"""

from typing import Any

from ...ops.sparse.legacy_types import (
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from ...ops.sparse.sparse_algebra import addmm, log_softmax, mm, sampled_addmm, softmax, sum
from .checks import as_sparse_gradcheck, check_sparse_tensor_invariants

__all__ = [
    "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "IntTensor", "LongTensor",
    "ShortTensor", "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax",
    "mm", "sampled_addmm", "softmax", "sum",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from ...core.missing_names import missing

    raise missing("sparse", name)
