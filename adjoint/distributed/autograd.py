"""`torch.distributed.autograd`: gradients through calls of other processes, which are not here."""

from __future__ import annotations

from ..core.missing_names import refused

_INSTEAD = "gradients through rpc are not here; distributed.functional has collectives with them"


def is_available() -> bool:
    """Whether it is here: no.

    >>> from adjoint.distributed import autograd
    >>> autograd.is_available()
    False
    """
    return False


for _name in ("DistAutogradContext", "backward", "context", "get_gradients"):
    globals()[_name] = refused("distributed.autograd", _name, _INSTEAD)
