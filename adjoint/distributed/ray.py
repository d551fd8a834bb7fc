"""Ranks that Ray starts, and starts again: a trainer on Ray Train, and checkpoints that go with it.

This module imports Ray; importing adjoint does not import this module.

    from adjoint.distributed.ray import Trainer, report, resume

    def loop(config):
        state = {"model": model, "optimizer": optimizer, "epoch": 0}
        resume(state)  # after a failure: where the last report was
        for epoch in range(state["epoch"], config["epochs"]):
            ...
            report({"loss": loss}, {**state, "epoch": epoch + 1})

    scaling = ScalingConfig(num_workers=2)
    Trainer(loop, train_loop_config={"epochs": 3}, scaling_config=scaling).fit()

Source: https://docs.ray.io/en/latest/train/train.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from ..core.errors import InvalidArgument, Unsupported
from . import checkpoint
from .group import destroy_process_group, init_process_group

try:
    import ray
    import ray.train
    from ray.train.backend import Backend, BackendConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as error:
    raise Unsupported(
        f"adjoint.distributed.ray needs Ray Train, which cannot be imported ({error}): "
        "pip install 'adjoint[ray,torch]'"
    ) from error

__all__ = ["Trainer", "report", "resume"]


class Trainer(DataParallelTrainer):  # type: ignore[misc]
    """Ray Train's trainer of a function that runs on each of several workers, as a rank each.

    In `train_loop_per_worker` there is a process group already, by the engine gloo (a single worker
    needs no engine), so DistributedDataParallel, `fully_shard` and collectives work; no wait takes
    longer than `timeout`. Everything else is Ray's: `scaling_config` says how many workers
    (`num_workers=(1, 4)`: as many as there is room for, changing while it trains), `run_config` how
    often they are started again (`FailureConfig(max_failures=...)`) and where checkpoints lie.

    Errors: Unsupported for another engine; `fit()` raises Ray's errors.
    Source: https://docs.ray.io/en/latest/train/api/doc/ray.train.v2.api.data_parallel_trainer.DataParallelTrainer.html
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend: str | None = None,
        timeout: timedelta | float | None = None,
        **options: Any,
    ) -> None:
        if backend not in (None, "gloo"):
            raise Unsupported(
                f"Trainer: backend={backend!r} under Ray, which starts the ranks itself; gloo "
                "serves there (leave backend out)"
            )
        if "backend_config" in options:
            raise InvalidArgument(
                "Trainer: backend_config is this trainer's own; backend and timeout say what there "
                "is to say"
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=_Config(timeout),
            **options,
        )


class _Config(BackendConfig):  # type: ignore[misc]
    """Ray's backend configuration: how workers become ranks."""

    def __init__(self, timeout: timedelta | float | None) -> None:
        self.timeout = timeout

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend that tells the workers their ranks."""
        return _Backend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """The context in which the training function runs, in its own thread."""
        return _Grouped(self.timeout)


class _Backend(Backend):  # type: ignore[misc]
    """Tells the workers who they are, by torchrun's names."""

    def on_start(self, worker_group: Any, backend_config: _Config) -> None:
        """Called when all workers are there, and nothing runs on them yet."""
        addresses = worker_group.execute(_address)
        are_together = len(set(addresses)) == 1
        address = "127.0.0.1" if are_together else addresses[0]
        port = worker_group.execute_single(0, _free_port)
        worker_group.execute(_tell, address, port, are_together)


class _Grouped:
    """Makes the context of a training function: the process group."""

    def __init__(self, timeout: timedelta | float | None) -> None:
        self.timeout = timeout

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        if os.environ.get("WORLD_SIZE", "1") == "1":
            init_process_group("fake", rank=0, world_size=1, timeout=self.timeout)
        else:
            init_process_group("gloo", timeout=self.timeout)
        yield
        destroy_process_group()  # not after an error: Ray ends the workers then


def _address() -> str:
    return str(ray.util.get_node_ip_address())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _tell(address: str, port: int, are_together: bool) -> None:
    context = ray.train.get_context()
    os.environ.update(
        RANK=str(context.get_world_rank()),
        WORLD_SIZE=str(context.get_world_size()),
        LOCAL_RANK=str(context.get_local_rank()),
        LOCAL_WORLD_SIZE=str(context.get_local_world_size()),
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
    )
    if are_together and sys.platform == "linux":  # wherever the host's name may lead
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


# ---- checkpoints ---------------------------------------------------------------------------------


def report(metrics: Mapping[str, Any], state: Mapping[str, Any] | None = None) -> None:
    """Tell Ray how training goes, on all ranks, and save `state`, from which `resume` goes on.

    `state` is what `distributed.checkpoint.save` takes: modules, optimizers (also sharded ones),
    a DataLoader for its position, and values. Each rank's files go into one directory of Ray's
    storage, and the checkpoint counts once all ranks have reported it.

    Errors: those of `checkpoint.save`, and Ray's.
    Source: https://docs.ray.io/en/latest/train/api/doc/ray.train.report.html
    """
    if state is None:
        ray.train.report(dict(metrics))
        return
    with tempfile.TemporaryDirectory(prefix="adjoint-") as place:
        checkpoint.save(state, checkpoint_id=place)
        ray.train.report(
            dict(metrics), checkpoint=ray.train.Checkpoint.from_directory(place)
        )  # it has been copied when this returns


def resume(state: Any) -> bool:
    """Load the last checkpoint that was reported into `state`, of the form that `report` was given.

    Whether there is one. It may be of another number of ranks; each reads its own elements.

    Errors: those of `checkpoint.load`.
    Source: https://docs.ray.io/en/latest/train/api/doc/ray.train.get_checkpoint.html
    """
    last = ray.train.get_checkpoint()
    if last is None:
        return False
    with last.as_directory() as place:
        checkpoint.load(state, checkpoint_id=place)
    return True
