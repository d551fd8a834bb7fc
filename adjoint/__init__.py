"""adjoint: tensors with automatic differentiation, PyTorch's API, one graph executed four ways."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .core import extensions as extensions  # first: which of the core's files run  # isort: skip
from .core import faces as _faces  # and what the others are called  # isort: skip

from .tensor import *  # first: `tensor` below is the function, not this module  # isort: skip

from . import autograd, backends
from .autograd.gradients import *
from .autograd.modes import *
from .backends.memory import *
from .backends.threads import *
from .core import version as version
from .core.device import *
from .core.dtype import *
from .core.errors import *
from .core.spec import Size
from .namespaces import accelerator, cuda, fft, linalg, random, special
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

from . import io, nn  # isort: skip - they use all of the above
from .autograd.recording import lazy as lazy, realize_all as realize  # isort: skip
from .reactive import Graph as Graph  # isort: skip
from .io import load as load, save as save  # isort: skip
from .nn.top import *  # isort: skip

from .core.dtype import bool_ as bool, float_ as float, int_ as int  # isort: skip

from .reactive import view  # isort: skip
from .reactive.view import summary as summary  # isort: skip

from .ops import return_types  # isort: skip
from .core.version import __version__ as __version__  # isort: skip

from . import amp

from .namespaces import cpu  # isort: skip
from .amp import autocast as autocast, GradScaler as GradScaler  # isort: skip
from .amp.autocast_mode import *  # isort: skip
from .amp.wiring import wire as _wire  # isort: skip
from .core.checked_modules import guard as _guard  # isort: skip

_wire(globals())
cpu.amp, cuda.amp = amp.cpu, amp.cuda  # type: ignore[attr-defined]  # as in PyTorch
Stream, Event = cuda.Stream, cuda.Event  # PyTorch's are of any accelerator
backends.native.enable()

_guard(
    __name__, *(f"{__name__}.{name}" for name in ("amp", "autograd", "backends", "cuda")),
    *(f"{__name__}.backends.{name}" for name in ("cuda", "mkl", "mkldnn", "mps", "openmp")),
)  # fmt: skip

autograd.Variable = Tensor  # PyTorch's old name for it  # noqa: F405 - from .tensor

if _TYPE_CHECKING:
    from . import data as data
    from . import distributed as distributed
    from . import optim as optim
    from .compiler import associative_scan as associative_scan
    from .compiler import compile as compile
    from .compiler import cond as cond
    from .compiler import export as export
    from .compiler import fori_loop as fori_loop
    from .compiler import scan as scan
    from .compiler import while_loop as while_loop
    from .namespaces import sparse as sparse
    from .tools import profiler as profiler
    from .tools import testing as testing
    from .torch_api import func as func
    from .torch_api import utils as utils
    from .torch_api.alias import as_torch as as_torch
    from .torch_api.func import vmap as vmap


def __getattr__(name: str) -> _Any:
    """What a program may do without, imported on first use."""
    if name in _faces.FACES or name in _faces.PACKAGES:
        return _faces.load(name)
    if name in _faces.PLACES:
        return _faces.find(name)
    if name.startswith("_foreach_"):
        functions = _faces.load("torch_api.foreach").FUNCTIONS
        if name in functions:
            return functions[name]
    from .core.missing_names import missing

    raise missing("", name)


def __dir__() -> list[str]:
    modules = (name for name in _faces.FACES if "." not in name)
    return sorted({*globals(), *modules, *_faces.PACKAGES, *_faces.PLACES})
