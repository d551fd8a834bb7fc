"""PyTorch's paths of our classes and functions, by which its files name them, and back."""

from __future__ import annotations

import sys
from typing import Any

PACKAGE = __name__.partition(".")[0]
FOLLOWED = ("amp", "autograd", "distributions", "fx", "nn", "optim", "utils")  # module by module
ELSEWHERE = {
    f"{PACKAGE}.data.dataset": "torch.utils.data.dataset",
    f"{PACKAGE}.data.loader": "torch.utils.data.dataloader",
    f"{PACKAGE}.data.sampler": "torch.utils.data.sampler",
}
# Classes that PyTorch keeps in another module than we do.
_MOVED = {
    name: module
    for module, names in {
        "torch.nn.modules.activation": "MultiheadAttention",
        "torch.nn.modules.batchnorm": "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d "
        "SyncBatchNorm",
        "torch.nn.modules.conv": "LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
        "LazyConvTranspose2d LazyConvTranspose3d",
        "torch.nn.modules.instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d "
        "LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
        "torch.nn.modules.container": "Container",
        "torch.nn.modules.linear": "LazyLinear NonDynamicallyQuantizableLinear",
        "torch.nn.modules.linear_cross_entropy_options": "LinearCrossEntropyOptions",
        "torch.nn.modules.loss": "NLLLoss2d",
        "torch.nn.parallel.data_parallel": "DataParallel",
        "torch.nn.parallel.distributed": "DistributedDataParallel",
        "torch.optim": "Adafactor Muon",
        "torch.optim.adamw": "AdamW",
        "torch.utils.data.distributed": "DistributedSampler",
        "torch.distributions.transforms": "CatTransform CorrCholeskyTransform "
        "CumulativeDistributionTransform LowerCholeskyTransform PositiveDefiniteTransform "
        "StackTransform",
    }.items()
    for name in names.split()
}
_TOP = ("Tensor", "Size", "device", "dtype", "finfo", "iinfo", "memory_format", "Generator")
# Where a function of ours is public, the nearest first: files name it there.
_FUNCTIONS = ("nn.functional", "nn.init", "linalg", "fft", "special", "")
_NOT_AT_THE_TOP = frozenset((  # functions that PyTorch has in nn.functional alone
    "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu6", "silu", "softmin",
))  # fmt: skip


def is_ours(named: Any) -> bool:
    """Whether a class or function is adjoint's, also where the alias calls it PyTorch's."""
    module = getattr(named, "__module__", None)
    if not isinstance(module, str):
        return False
    if module == "torch" and isinstance(named, type):  # the alias has named it so, or it is theirs
        return getattr(sys.modules.get(PACKAGE), named.__name__, None) is named
    found = getattr(sys.modules.get(module), "__name__", module)
    return module.partition(".")[0] == PACKAGE or found.partition(".")[0] == PACKAGE


def pytorch_path(named: Any) -> tuple[str, str] | None:
    """Module and name under which PyTorch has a class or function of ours; None where it has none.

    >>> from adjoint.io.class_paths import pytorch_path
    >>> pytorch_path(ad.nn.MultiheadAttention), pytorch_path(ad.Graph)
    (('torch.nn.modules.activation', 'MultiheadAttention'), None)
    """
    name = named.__name__
    if not isinstance(named, type):
        return _function_path(named, name)
    if name in _TOP and getattr(sys.modules.get(PACKAGE), name, None) is named:
        return "torch", name
    if name in _MOVED:
        return _MOVED[name], name
    module = getattr(sys.modules.get(named.__module__), "__name__", named.__module__)
    rest = module.partition(".")[2]
    if rest.startswith("nn.functional."):  # PyTorch's is one file; its few classes are private
        return None
    found = f"torch.{rest}" if rest.partition(".")[0] in FOLLOWED else ELSEWHERE.get(module)
    return (found, name) if found is not None and _is_public(named, found) else None


def _function_path(function: Any, name: str) -> tuple[str, str] | None:
    for place in _FUNCTIONS:
        holder = sys.modules.get(f"{PACKAGE}.{place}" if place else PACKAGE)
        listed = name in getattr(holder, "__all__", (name,)) and not name.startswith("_")
        if listed and getattr(holder, name, None) is function:
            place = place or ("nn.functional" if name in _NOT_AT_THE_TOP else "")
            return f"torch.{place}" if place else "torch", name
    return None


def _is_public(kind: type, path: str) -> bool:
    """Whether a package on the path to it exports the class: PyTorch has no others."""
    name = kind.__name__
    return any(
        name in getattr(place, "__all__", ()) and getattr(place, name, None) is kind
        for place in _packages(path)
    )


def our_object(module: str, name: str) -> Any:
    """Our counterpart of PyTorch's `module.name`; None where there is none."""
    if module == "torch._C._nn":  # where PyTorch's compiled activations say they live
        module = "torch.nn.functional"
    elif module == "torch._C._VariableFunctions":
        module = "torch"
    name = {"NonDynamicallyQuantizableLinear": "Linear"}.get(name, name)  # MultiheadAttention's
    if module == "torch":
        return getattr(sys.modules[PACKAGE], name, None)
    for place in _packages(module):
        found = getattr(place, name, None)
        if found is not None:
            return found
    return None


def _packages(path: str) -> list[Any]:
    """Our modules of PyTorch's module `path` and of the packages above it, but for the highest."""
    top, *parts = path.split(".")
    if top != "torch":
        return []
    names = [".".join((PACKAGE, *parts[:count])) for count in range(len(parts), 0, -1)]
    return [sys.modules[each] for each in names if each in sys.modules]
