"""Neural networks: modules, functions, initial values.

Source: https://docs.pytorch.org/docs/stable/nn.html
"""

from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules.activation import *  # noqa: F403 - its __all__ is the list
from .modules.batchnorm import *  # noqa: F403
from .modules.container import *  # noqa: F403
from .modules.conv import *  # noqa: F403
from .modules.dropout import *  # noqa: F403
from .modules.flatten import *  # noqa: F403
from .modules.linear import *  # noqa: F403
from .modules.loss import *  # noqa: F403
from .modules.module import Module as Module
from .modules.normalization import *  # noqa: F403
from .modules.pooling import *  # noqa: F403
from .modules.sparse import *  # noqa: F403
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
