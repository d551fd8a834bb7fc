"""Legacy types of sparse tensors: `sparse.FloatTensor(indices, values, size)` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import dtype as dt
from ...core.errors import InvalidType
from ...core.tensor_type import Tensor
from ..create.conversion import TensorType
from .construction import sparse_coo_tensor

if TYPE_CHECKING:
    from ..argument_types import DeviceLike


class SparseType(TensorType):
    """A legacy type of sparse tensors: a constructor, and a name for one dtype.

    Source: https://docs.pytorch.org/docs/stable/sparse.html

    >>> ad.sparse.FloatTensor(ad.tensor([[0, 2]]), ad.tensor([1.0, 3.0]), (3,)).to_dense()
    tensor([1., 0., 3.])
    """

    def __call__(self, *data: Any, device: DeviceLike | None = None) -> Tensor:
        """A sparse tensor of indices, values and a size, or of a size alone."""
        if not data or isinstance(data[0], int):  # the sizes of an empty one
            return sparse_coo_tensor(size=data or (0,), dtype=self.dtype, device=device)
        if isinstance(data[1], Tensor) and data[1].dtype is not self.dtype:
            raise InvalidType(
                f"{self.__name__}: expected values of {self.dtype}, got {data[1].dtype}"
            )
        return sparse_coo_tensor(*data, dtype=self.dtype, device=device)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.is_sparse and instance.dtype is self.dtype


ByteTensor = SparseType("sparse.ByteTensor", dt.uint8)
CharTensor = SparseType("sparse.CharTensor", dt.int8)
ShortTensor = SparseType("sparse.ShortTensor", dt.int16)
IntTensor = SparseType("sparse.IntTensor", dt.int32)
LongTensor = SparseType("sparse.LongTensor", dt.int64)
FloatTensor = SparseType("sparse.FloatTensor", dt.float32)
DoubleTensor = SparseType("sparse.DoubleTensor", dt.float64)
