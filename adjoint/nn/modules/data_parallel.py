"""`DataParallel`, of one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.device import as_device
from ...core.errors import Unsupported
from .module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Module for which one device computes: the given one, under that name.

        y = module(x)

    Args:
        module: Module that computes.
        device_ids: Devices, of which there may be one. Default: None, the module's.
        output_device: Kept; nothing depends on it. Default: None.
        dim: Kept; nothing depends on it. Default: 0.

    Errors: Unsupported for several devices.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html

    >>> layer = ad.nn.Linear(2, 1)
    >>> parallel = ad.nn.DataParallel(layer)
    >>> parallel.module is layer, sorted(parallel.state_dict())
    (True, ['module.bias', 'module.weight'])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.device_ids = list(device_ids or ())
        if len({str(as_device(each)) for each in self.device_ids}) > 1:
            raise Unsupported(
                f"DataParallel: devices {self.device_ids}; one computes here, and "
                "DistributedDataParallel divides batches over several"
            )
        self.module = module
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.module(*inputs, **kwargs)
