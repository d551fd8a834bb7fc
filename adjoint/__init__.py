"""adjoint: tensors with automatic differentiation, PyTorch's API, one graph executed four ways."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import extensions as extensions  # first: which of the core's files run  # isort: skip
from .tensor import *  # first: `tensor` below is the function, not this module  # isort: skip

from . import accelerator, autograd, backends, cuda, fft, linalg, random, special
from . import version as version
from .autograd.gradients import *
from .autograd.modes import *
from .core.device import *
from .core.dtype import *
from .core.errors import *
from .core.spec import Size
from .memory import *
from .ops.create.conversion import *
from .ops.create.creation import *
from .ops.create.memory import *
from .ops.create.ranges import *
from .ops.elementwise.complex import *
from .ops.elementwise.namespace import *
from .ops.index.indexing import *
from .ops.index.scatter import *
from .ops.index.slicing import *
from .ops.linalg.distances import *
from .ops.linalg.householder import *
from .ops.linalg.linalg import *
from .ops.linalg.matmul import *
from .ops.nn.activation import *
from .ops.nn.convolution import *
from .ops.nn.pooling import *
from .ops.promotion import *
from .ops.random.gamma_draws import *
from .ops.random.random import *
from .ops.reduce.counting import *
from .ops.reduce.extrema import *
from .ops.reduce.quantiles import *
from .ops.reduce.reduction import *
from .ops.reduce.scan import *
from .ops.reduce.sort import *
from .ops.reduce.statistics import *
from .ops.shape.arranging import *
from .ops.shape.copies import *
from .ops.shape.joining import *
from .ops.shape.movement import *
from .ops.signal.spectrograms import *
from .ops.signal.tapers import *
from .ops.special.incomplete import *
from .printing import *
from .threads import *

from . import io, nn  # isort: skip - they use all of the above
from .autograd.recording import lazy as lazy, realize_all as realize  # isort: skip
from .reactive import Graph as Graph  # isort: skip
from .io import load as load, save as save  # isort: skip
from .later import PLACES as _PLACES, find as _find  # isort: skip
from .names import *  # isort: skip

from .core.dtype import bool_ as bool, float_ as float, int_ as int  # isort: skip

from . import view  # isort: skip
from .view import summary as summary  # isort: skip

from .ops import return_types  # isort: skip
from .version import __version__ as __version__  # isort: skip

from . import amp, cpu  # isort: skip
from .amp import autocast as autocast, GradScaler as GradScaler  # isort: skip
from .amp.autocast_mode import *  # isort: skip
from .amp.wiring import wire as _wire  # isort: skip
from .core.switches import guard as _guard  # isort: skip

_wire(globals())
cuda.amp = amp.cuda  # type: ignore[attr-defined]  # as in PyTorch
Stream, Event = cuda.Stream, cuda.Event  # PyTorch's are of any accelerator
backends.native.enable()

_guard(
    __name__, *(f"{__name__}.{name}" for name in ("amp", "autograd", "backends", "cuda")),
    *(f"{__name__}.backends.{name}" for name in ("cuda", "mkl", "mkldnn", "mps", "openmp")),
)  # fmt: skip

autograd.Variable = Tensor  # PyTorch's old name for it  # noqa: F405 - from .tensor


_LATER = (
    "array_api", "compiler", "data", "distributed", "distributions", "export", "func", "futures",
    "fx", "hub", "inference", "jit", "library", "masked", "models", "mps", "mtia",
    "multiprocessing", "onnx", "optim", "overrides", "pnnx", "profiler", "quasirandom",
    "serialization", "signal", "sklearn", "sparse", "testing", "types", "utils", "xpu",
)  # fmt: skip

if _TYPE_CHECKING:
    from . import data as data
    from . import distributed as distributed
    from . import export as export
    from . import func as func
    from . import optim as optim
    from . import profiler as profiler
    from . import sparse as sparse
    from . import testing as testing
    from . import utils as utils
    from .alias import as_torch as as_torch
    from .compiled import compile as compile
    from .compiled import cond as cond
    from .compiled import scan as scan
    from .compiled import while_loop as while_loop
    from .func import vmap as vmap


def __getattr__(name: str) -> _Any:
    """Packages that a program may do without, imported on first use."""
    if name in _LATER:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in _PLACES:
        return _find(name)
    if name.startswith("_foreach_"):
        from .foreach import FUNCTIONS

        if name in FUNCTIONS:
            return FUNCTIONS[name]
    from .absent import missing

    raise missing("", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_PLACES})
