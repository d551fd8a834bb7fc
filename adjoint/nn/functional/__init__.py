"""Functions on tensors that neural networks are made of.

Source: https://docs.pytorch.org/docs/stable/nn.functional.html
"""

# ruff: noqa: F403 - the namespace is what its modules export

import typing

from ...core.torch_function import handle_torch_function as handle_torch_function
from ...core.torch_function import has_torch_function as has_torch_function
from ...core.torch_function import has_torch_function_unary as has_torch_function_unary
from ...core.torch_function import has_torch_function_variadic as has_torch_function_variadic
from ...ops.index.scatter import one_hot as one_hot
from ...ops.linalg.distances import pdist as pdist
from ...ops.linalg.fully_connected import linear as linear
from ...ops.nn.activation import *
from ...ops.nn.averaging import *
from ...ops.nn.convolution import *
from ...ops.nn.pooling import *
from ...ops.nn.unfolding import *
from ...ops.shape.arranging import pad as pad
from .activation import *
from .attention import *
from .ctc import *
from .dropout import *
from .fractional import *
from .grid import *
from .loss import *
from .margin import *
from .normalization import *
from .sparse import *
from .vision import *

if not typing.TYPE_CHECKING:  # which follows the imports
    __all__ = [name for name, value in globals().items() if callable(value) and name[0] != "_"]


_LATER = {
    "GRID_SAMPLE_INTERPOLATION_MODES": "grouped", "GRID_SAMPLE_PADDING_MODES": "grouped",
    "ScalingType": "grouped", "SwizzleType": "grouped", "assert_int_or_pair": "grouped",
    "conv_tbc": "temporal", "grouped_mm": "grouped",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import on first use what few programs need."""
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    from ...core.missing_names import missing

    raise missing("nn.functional", name)
