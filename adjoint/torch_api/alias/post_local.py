"""`torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook`, which is not here: the names
are for programs that ask whether a hook's state is of this kind.
"""

from __future__ import annotations

from ...core.missing_names import Unmade, refused

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]

_PLACE = "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook"
_INSTEAD = "not here; default_hooks has hooks, register_comm_hook takes your own, no_sync() skips"


class PostLocalSGDState(Unmade):
    """State of PyTorch's hook, which does not exist here."""

    said = (_PLACE, _INSTEAD)


post_localSGD_hook = refused(_PLACE, "post_localSGD_hook", _INSTEAD)  # noqa: N816 - PyTorch's name
