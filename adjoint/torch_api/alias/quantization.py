"""`torch.ao.quantization`: modules that mark where numbers would be quantized, which is refused."""

from __future__ import annotations

from typing import Any

from ...core.missing_names import MODULES, refused
from ...nn.modules.module import Module

__all__ = ["DeQuantStub", "QuantStub"]
__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too


class QuantStub(Module):
    """Returns its input, as in PyTorch until a model is prepared for quantization.

    >>> from adjoint.torch_api.alias.quantization import QuantStub
    >>> QuantStub()(ad.ones(1))
    tensor([1.])
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """The input."""
        return x


class DeQuantStub(QuantStub):
    """Returns its input, as `QuantStub` does."""


for _name in (
    "MinMaxObserver", "QConfig", "QConfigMapping", "convert", "default_observer",
    "default_qconfig", "default_weight_observer", "fuse_modules", "fuse_modules_qat",
    "get_default_qat_qconfig", "get_default_qconfig", "prepare", "prepare_qat", "quantize",
    "quantize_dynamic", "quantize_qat",
):  # fmt: skip
    globals()[_name] = refused("torch.ao.quantization", _name, MODULES["ao"])
