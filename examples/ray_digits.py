"""Handwritten digits on workers of Ray: ddp_digits.py, which goes on where it was after a failure.

Expected: test accuracy at least 0.96
Run: python examples/ray_digits.py
"""

import os
import tempfile
from typing import Any

import ray
from ddp_digits import BATCH, accuracy, build_model, load
from ray.train import FailureConfig, RunConfig, ScalingConfig

import adjoint as torch
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed.ray import Trainer, report, resume
from adjoint.nn.parallel import DistributedDataParallel
from adjoint.utils.data import DataLoader
from adjoint.utils.data.distributed import DistributedSampler

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
WORKERS = 2


def train(config):
    """What each worker runs; Ray has made it a rank."""
    torch.manual_seed(0)
    train_set, test_set = load()
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    state: dict[str, Any] = {"model": model.module, "optimizer": optimizer, "epoch": 0}
    resume(state)  # where the last report was, if Ray has started the workers again
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    while state["epoch"] < config["epochs"]:
        sampler.set_epoch(state["epoch"])
        model.train()
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        state["epoch"] += 1
        if state["epoch"] % config["every"] == 0:
            report({"accuracy": accuracy(model.module, test_set)}, state)


def main():
    ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as storage:
        result = Trainer(
            train,
            train_loop_config={"epochs": 1 if SMOKE else 20, "every": 1 if SMOKE else 5},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(
                storage_path=storage, failure_config=FailureConfig(max_failures=3)
            ),
        ).fit()
    print(f"workers: {WORKERS}")
    print(f"test accuracy: {result.metrics['accuracy']:.4f}")
    ray.shutdown()


if __name__ == "__main__":
    main()
