"""The Python array API standard, version 2024.12, complete, with its extensions linalg and fft.

Arrays are adjoint's tensors; every function works on the same values, keeps gradients and devices,
and takes exactly the arguments that the standard names. Unlike the top-level namespace, which is
PyTorch's, nothing is converted silently: kinds of dtypes are not mixed, and there is no broadcast
or default that the standard does not have.

Source: https://data-apis.org/array-api/2024.12/

>>> x = ad.tensor([1., 4.], requires_grad=True)
>>> xp = x.__array_namespace__()
>>> xp.sum(xp.sqrt(x)).backward()
>>> x.grad
tensor([0.5000, 0.2500])
"""

# ruff: noqa: F403 - the namespace is what its modules export

from math import e, inf, nan, pi

from ..core.dtype import bool_ as bool
from ..core.dtype import (
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from . import (
    creation,
    data_types,
    fft,
    indexing,
    inspection,
    linalg,
    linear_algebra,
    manipulation,
    operators,
    rounding,
    searching,
    sets,
    sorting,
    statistical,
    transcendental,
    utility,
)
from .creation import *
from .data_types import *
from .indexing import *
from .inspection import *
from .linear_algebra import *
from .manipulation import *
from .operators import *
from .rounding import *
from .searching import *
from .sets import *
from .sorting import *
from .statistical import *
from .transcendental import *
from .utility import *

__array_api_version__ = "2024.12"
newaxis = None

__all__ = [
    "__array_api_version__", "bool", "complex64", "complex128", "e", "fft", "float32", "float64",
    "inf", "int8", "int16", "int32", "int64", "linalg", "nan", "newaxis", "pi", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip
__all__ += creation.__all__
__all__ += data_types.__all__
__all__ += indexing.__all__
__all__ += inspection.__all__
__all__ += linear_algebra.__all__
__all__ += manipulation.__all__
__all__ += operators.__all__
__all__ += rounding.__all__
__all__ += searching.__all__
__all__ += sets.__all__
__all__ += sorting.__all__
__all__ += statistical.__all__
__all__ += transcendental.__all__
__all__ += utility.__all__
