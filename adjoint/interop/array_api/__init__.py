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

import inspect
import typing
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from . import data_types
from . import fft as fft
from . import linalg as linalg
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
from .statistical import *
from .transcendental import *
from .utility import *

__array_api_version__ = "2024.12"
newaxis = None
(
    bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, complex64,
    complex128,
) = data_types.STANDARD  # fmt: skip

if not typing.TYPE_CHECKING:  # which follows the imports
    __all__ = ["fft", "linalg"]
    for _name, _value in list(globals().items()):
        if not inspect.ismodule(_value) and (_name[0] != "_" or _name.startswith("__array_")):
            __all__.append(_name)
