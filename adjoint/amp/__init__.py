"""Mixed precision: `autocast` chooses the precision of each operation, `GradScaler` keeps small
float16 gradients from vanishing.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

from . import cpu as cpu
from . import cuda as cuda
from .autocast_mode import *  # noqa: F403 - what `adjoint` has, too
from .autocast_mode import autocast_again as autocast_again
from .autocast_mode import custom_bwd as custom_bwd
from .autocast_mode import custom_fwd as custom_fwd
from .grad_scaler import GradScaler as GradScaler
