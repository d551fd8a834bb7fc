"""Functions on tensors that neural networks are made of.

Source: https://docs.pytorch.org/docs/stable/nn.functional.html
"""

from ...ops import convolution
from ...ops.arranging import pad
from ...ops.convolution import *  # noqa: F403 - its __all__ is the list
from ...ops.matmul import linear
from ...ops.scatter import one_hot
from . import activation, loss, normalization, pooling, sparse
from . import dropout as _dropout
from .activation import *  # noqa: F403
from .dropout import *  # noqa: F403
from .loss import *  # noqa: F403
from .normalization import *  # noqa: F403
from .pooling import *  # noqa: F403
from .sparse import *  # noqa: F403

__all__ = [
    "linear",
    "one_hot",
    "pad",
    *activation.__all__,
    *convolution.__all__,
    *_dropout.__all__,
    *loss.__all__,
    *normalization.__all__,
    *pooling.__all__,
    *sparse.__all__,
]
