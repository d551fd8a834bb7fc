"""adjoint's own functions in one place: what the other modules here are written in."""

# ruff: noqa: F403 - gathered for the others

from typing import TYPE_CHECKING, Any

from .. import cuda as cuda
from .. import fft as fft
from .. import linalg as linalg
from ..core.device import *
from ..core.dtype import *
from ..ops.arranging import *
from ..ops.complex import *
from ..ops.contraction import *
from ..ops.creation import *
from ..ops.elementwise import *
from ..ops.extrema import *
from ..ops.indexing import *
from ..ops.joining import *
from ..ops.linalg import *
from ..ops.matmul import *
from ..ops.memory import *
from ..ops.movement import *
from ..ops.ranges import *
from ..ops.reduction import *
from ..ops.scan import *
from ..ops.scatter import *
from ..ops.slicing import *
from ..ops.sort import *
from ..ops.statistics import *
from ..tensor import Tensor as Tensor

if TYPE_CHECKING:  # the elementwise functions are made from their ops

    def __getattr__(name: str) -> Any: ...
