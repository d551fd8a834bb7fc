"""Neural networks: modules, functions, initial values.

Source: https://docs.pytorch.org/docs/stable/nn.html
"""

from . import functional as functional
from . import init as init
from . import modules as modules
from . import parameter as parameter
from . import utils as utils
from .modules.activation import *  # noqa: F403 - its __all__ is the list
from .modules.adaptive import *  # noqa: F403
from .modules.attention import *  # noqa: F403
from .modules.batchnorm import *  # noqa: F403
from .modules.channelshuffle import *  # noqa: F403
from .modules.container import *  # noqa: F403
from .modules.conv import *  # noqa: F403
from .modules.distance import *  # noqa: F403
from .modules.dropout import *  # noqa: F403
from .modules.embedding_bag import *  # noqa: F403
from .modules.flatten import *  # noqa: F403
from .modules.fold import *  # noqa: F403
from .modules.lazy import *  # noqa: F403
from .modules.linear import *  # noqa: F403
from .modules.loss import *  # noqa: F403
from .modules.margin import *  # noqa: F403
from .modules.module import Module as Module
from .modules.normalization import *  # noqa: F403
from .modules.padding import *  # noqa: F403
from .modules.pixelshuffle import *  # noqa: F403
from .modules.pooling import *  # noqa: F403
from .modules.response_norm import *  # noqa: F403
from .modules.rnn import *  # noqa: F403
from .modules.sparse import *  # noqa: F403
from .modules.transformer import *  # noqa: F403
from .modules.unpooling import *  # noqa: F403
from .modules.upsampling import *  # noqa: F403
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedParameter as UninitializedParameter
