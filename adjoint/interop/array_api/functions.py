"""adjoint's own functions in one place: what the other modules here are written in."""

# ruff: noqa: F403 - gathered for the others

from typing import TYPE_CHECKING, Any

from ...core.device import *
from ...core.dtype import *
from ...namespaces import cuda as cuda
from ...namespaces import fft as fft
from ...namespaces import linalg as linalg
from ...ops.create.creation import *
from ...ops.create.memory import *
from ...ops.create.ranges import *
from ...ops.elementwise.complex import *
from ...ops.elementwise.namespace import *
from ...ops.index.indexing import *
from ...ops.index.scatter import *
from ...ops.index.slicing import *
from ...ops.linalg.contraction import *
from ...ops.linalg.linalg import *
from ...ops.linalg.matmul import *
from ...ops.reduce.extrema import *
from ...ops.reduce.reduction import *
from ...ops.reduce.scan import *
from ...ops.reduce.sort import *
from ...ops.reduce.statistics import *
from ...ops.shape.arranging import *
from ...ops.shape.joining import *
from ...ops.shape.movement import *
from ...tensor import Tensor as Tensor

if TYPE_CHECKING:  # the elementwise functions are made from their ops

    def __getattr__(name: str) -> Any: ...
