"""Names of PyTorch's `nn` that few programs need, imported with their first use."""

from __future__ import annotations

import warnings
from typing import Any

from ..core.errors import InvalidType
from .modules.loss import NLLLoss
from .modules.module import Module

__all__ = ["Container", "NLLLoss2d", "factory_kwargs"]


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Pick from a module's keyword arguments those that its parameters are made with.

    They are device, dtype and memory_format, and those in the dict "factory_kwargs" among them.

    Args:
        kwargs: Keyword arguments; None is none.

    Errors: InvalidType for others, and for one that is given twice.
    Source: https://docs.pytorch.org/docs/stable/nn.html

    >>> ad.nn.factory_kwargs({"device": "cpu"})
    {'device': 'cpu'}
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    if unknown := kwargs.keys() - simple - {"factory_kwargs"}:
        raise InvalidType(f"factory_kwargs: unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in sorted(simple & kwargs.keys()):
        if name in found:
            raise InvalidType(
                f"factory_kwargs: {name} specified twice, in **kwargs and in factory_kwargs"
            )
        found[name] = kwargs[name]
    return found


class Container(Module):
    """Module of other ones by name, which PyTorch had before `Module` could hold them; it warns.

    It has no `forward`: a subclass of Module does all that it does.

    Args:
        **kwargs: Modules by their names.

    Source: https://docs.pytorch.org/docs/stable/nn.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> ad.nn.Container(a=ad.nn.Linear(1, 1)).a
    Linear(in_features=1, out_features=1, bias=True)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "nn.Container is deprecated. All of it's functionality is now implemented in "
            "nn.Module. Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


class NLLLoss2d(NLLLoss):
    """Old name of `NLLLoss`, which takes images, too; it warns.

        loss = -weight[target] input[target]

    Args:
        *args: Arguments of NLLLoss.
        **kwargs: Keyword arguments of NLLLoss.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html

    >>> import warnings; warnings.simplefilter("ignore")
    >>> ad.nn.NLLLoss2d()(-ad.ones(1, 2, 1, 1), ad.zeros(1, 1, 1).long())
    tensor(1.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "NLLLoss2d has been deprecated. Please use NLLLoss instead as a drop-in replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)
