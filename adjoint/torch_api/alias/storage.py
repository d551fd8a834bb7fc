"""`torch.storage`: the memory of tensors, by bytes and by elements."""

from ...ops.create.memory import TypedStorage as TypedStorage
from ...ops.create.memory import UntypedStorage as UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
