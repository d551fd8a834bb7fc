"""Several processes that train together: groups, collectives, data-parallel modules.

No transport of its own: messages go by MPI (mpi4py) or by PyTorch's gloo, which are imported by
`init_process_group` and not before. See docs/distributed.md.

Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from .collectives import *  # noqa: F403 - its __all__ is the list
from .group import *  # noqa: F403
from .objects import *  # noqa: F403
from .store import *  # noqa: F403
from .survivors import *  # noqa: F403
from .work import Future as Future
from .work import Work as Work
