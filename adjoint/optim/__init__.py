"""Optimizers and learning-rate schedules.

Source: https://docs.pytorch.org/docs/stable/optim.html
"""

from typing import Any

from ..core.checked_modules import refuse_calls as _refuse_calls
from ..core.faces import find as _find
from . import lr_scheduler, optimizer, swa_utils
from .adadelta import Adadelta
from .adafactor import Adafactor
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .asgd import ASGD
from .lbfgs import LBFGS
from .muon import Muon
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam
from .swapping import swap_in_optimizer_params_and_state

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "optimizer",
    "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip

_refuse_calls(__name__, __all__)


def __getattr__(name: str) -> Any:
    """Import on first use what needs the layer above."""
    if name == "ZeroRedundancyOptimizer":
        return _find(name, "optim")
    from ..core.missing_names import missing

    raise missing("optim", name)
