"""Optimizers and learning-rate schedules.

Source: https://docs.pytorch.org/docs/stable/optim.html
"""

from . import lr_scheduler, optimizer
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler", "optimizer"]
