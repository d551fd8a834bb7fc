"""Functions on tensors that neural networks are made of.

Source: https://docs.pytorch.org/docs/stable/nn.functional.html
"""

from ...ops.index.scatter import one_hot
from ...ops.linalg.distances import pdist
from ...ops.linalg.matmul import linear
from ...ops.nn import convolution
from ...ops.nn.averaging import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ...ops.nn.convolution import *  # noqa: F403 - its __all__ is the list
from ...ops.nn.unfolding import fold, unfold
from ...ops.shape.arranging import pad
from . import (
    activation,
    attention,
    bags,
    ctc,
    fractional,
    grid,
    loss,
    margin,
    normalization,
    response_norm,
    sparse,
    vision,
)
from . import dropout as _dropout
from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .bags import *  # noqa: F403
from .ctc import *  # noqa: F403
from .dropout import *  # noqa: F403
from .fractional import *  # noqa: F403
from .grid import *  # noqa: F403
from .loss import *  # noqa: F403
from .margin import *  # noqa: F403
from .normalization import *  # noqa: F403
from .response_norm import *  # noqa: F403
from .sparse import *  # noqa: F403
from .vision import *  # noqa: F403

__all__ = ["fold", "linear", "one_hot", "pad", "pdist", "unfold"]
__all__ += [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip
__all__ += activation.__all__
__all__ += convolution.__all__
__all__ += _dropout.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += sparse.__all__
__all__ += attention.__all__
__all__ += bags.__all__
__all__ += ctc.__all__
__all__ += fractional.__all__
__all__ += grid.__all__
__all__ += margin.__all__
__all__ += response_norm.__all__
__all__ += vision.__all__
