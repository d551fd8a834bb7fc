"""`torch.distributed.rpc`: calls of functions in other processes, which are not here."""

from __future__ import annotations

from ..core.missing_names import refused

_INSTEAD = "calls of other processes' functions are not here; distributed has collectives"


def is_available() -> bool:
    """Whether it is here: no.

    >>> ad.distributed.rpc.is_available()
    False
    """
    return False


for _name in (
    "BackendType", "RRef", "TensorPipeRpcBackendOptions", "WorkerInfo", "get_worker_info",
    "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown",
):  # fmt: skip
    globals()[_name] = refused("distributed.rpc", _name, _INSTEAD)
