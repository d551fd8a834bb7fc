"""Neural networks: modules, functions, initial values.

Source: https://docs.pytorch.org/docs/stable/nn.html
"""

from typing import Any as _Any

from ..core.faces import find as _find
from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules import *  # noqa: F403 - its __all__ is the list
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter


def __getattr__(name: str) -> _Any:
    """Import on first use what few programs need, and what the layer above has."""
    if name == "SyncBatchNorm":
        return _find(name, "nn")
    if name in ("Container", "NLLLoss2d", "factory_kwargs"):
        from . import deprecated

        return getattr(deprecated, name)
    if name in ("attention", "grad", "parallel"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    from ..core.missing_names import missing

    raise missing("nn", name)
