"""`torch.distributed.tensor` and its neighbours: packages name types of tensors of several ranks.

None is made here: what would make one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.missing_names import Unmade, refused

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard"]

__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too

_INSTEAD = (
    "tensors of several ranks are not here; nn.parallel.DistributedDataParallel averages "
    "gradients, distributed has collectives"
)


class DTensor(Unmade):
    """A tensor of several ranks."""

    said = "distributed.tensor", _INSTEAD


class DeviceMesh(Unmade):
    """Ranks in rows and columns."""

    said = "distributed.tensor", _INSTEAD


@dataclass(frozen=True)
class Placement:
    """A rank's part of a tensor: such descriptions may be made, tensors by them may not."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is a part, of the dimension `dim`."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the part is an operand of a reduction over ranks, by `reduce_op`."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """A part, in the order of ranks.

    >>> from adjoint.torch_api.alias.dtensor import Shard
    >>> Shard(0) == Shard(0), Shard(1).is_shard(0)
    (True, False)
    """

    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A part, in another order."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Placement of the whole tensor on each rank."""


@dataclass(frozen=True)
class Partial(Placement):
    """Placement of a summand, or another operand of `reduce_op`, on each rank."""

    reduce_op: str = "sum"


for _name in (
    "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "compute_local_shape_and_global_offset",
    "distribute_module", "distribute_tensor", "init_device_mesh", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "wait_tensor",
):  # fmt: skip
    globals()[_name] = refused("distributed.tensor", _name, _INSTEAD)
