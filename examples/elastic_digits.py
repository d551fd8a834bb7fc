"""Handwritten digits on as many workers of Ray as there is room for: one of two machines is lost.

Parameters and AdamW's state are sharded (`fully_shard`). The worker that is left loads both shares
of the last checkpoint, and goes on in the middle of the pass, with the same batches.

Expected: test accuracy at least 0.96
Run: python examples/elastic_digits.py
"""

import os
import signal
import tempfile
from typing import Any

import ray
from ddp_digits import BATCH, accuracy, build_model, load
from ray.cluster_utils import Cluster
from ray.train import FailureConfig, RunConfig, ScalingConfig

import adjoint as torch
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed.fsdp import fully_shard
from adjoint.distributed.ray import Trainer, report, resume
from adjoint.utils.data import DataLoader
from adjoint.utils.data.distributed import DistributedSampler

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
STEPS = 20 if SMOKE else 460


def train(config):
    """What each worker runs; Ray has made it a rank."""
    torch.manual_seed(0)
    train_set, test_set = load()
    model = build_model()
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    workers = dist.get_world_size()
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=BATCH // workers, sampler=sampler)
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "loader": loader,
             "epoch": 0, "step": 0, "sizes": []}  # fmt: skip
    resume(state)  # from any number of workers
    state["sizes"].append(workers)
    while state["step"] < config["steps"]:
        sampler.set_epoch(state["epoch"])
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            state["step"] += 1
            if state["step"] * 4 % config["steps"] == 0:
                sizes = ", ".join(map(str, state["sizes"]))
                report({"accuracy": accuracy(model, test_set), "sizes": sizes}, state)
            if state["step"] * 5 // 3 == config["steps"] and workers == 2:
                lose_machine(config["home"])
            if state["step"] == config["steps"]:
                return
        state["epoch"] += 1


def lose_machine(home):
    """Stand in for a machine that is lost: end Ray's process of this one, and the worker."""
    if ray.get_runtime_context().get_node_id() != home:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    # Two machines of one core each, which are processes of this one.
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    home = ray.get_runtime_context().get_node_id()
    with tempfile.TemporaryDirectory() as storage:
        result = Trainer(
            train,
            train_loop_config={"steps": STEPS, "home": home},
            scaling_config=ScalingConfig(num_workers=(1, 2)),
            run_config=RunConfig(
                storage_path=storage, failure_config=FailureConfig(max_failures=3)
            ),
        ).fit()
    print(f"workers: {result.metrics['sizes']}")
    print(f"test accuracy: {result.metrics['accuracy']:.4f}")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
