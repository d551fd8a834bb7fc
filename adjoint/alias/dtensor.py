"""`torch.distributed.tensor` and its neighbours: packages name types of tensors of several ranks.

None is made here: what would make one is refused.
"""

from __future__ import annotations

from typing import Any

from ..absent import refused
from ..core.errors import Unsupported

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard"]

__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too

_INSTEAD = (
    "tensors of several ranks are not here; nn.parallel.DistributedDataParallel averages "
    "gradients, distributed has collectives"
)


class _Unmade:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"distributed.tensor.{type(self).__name__}: {_INSTEAD}")


class DTensor(_Unmade):
    """A tensor of several ranks."""


class DeviceMesh(_Unmade):
    """Ranks in rows and columns."""


class Placement(_Unmade):
    """What a rank has of a tensor."""


class Shard(Placement):
    """A part."""


class _StridedShard(Shard):
    """A part."""


class Replicate(Placement):
    """All of it."""


class Partial(Placement):
    """A summand."""


for _name in (
    "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "compute_local_shape_and_global_offset",
    "distribute_module", "distribute_tensor", "init_device_mesh", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "wait_tensor",
):  # fmt: skip
    globals()[_name] = refused("distributed.tensor", _name, _INSTEAD)
