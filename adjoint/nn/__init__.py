"""Neural networks: modules, functions, initial values.

Source: https://docs.pytorch.org/docs/stable/nn.html
"""

from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules import *  # noqa: F403 - its __all__ is the list
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedParameter as UninitializedParameter
