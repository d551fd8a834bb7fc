"""Neural networks: modules, functions, initial values.

Source: https://docs.pytorch.org/docs/stable/nn.html
"""

from . import functional, init, modules, parameter, utils
from .modules import *  # noqa: F403 - its __all__ is the list
from .modules.module import Module
from .parameter import Buffer, Parameter

__all__ = [
    "Buffer",
    "Module",
    "Parameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
    *modules.__all__,
]
