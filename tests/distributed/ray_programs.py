"""Programs on Ray for test_ray.py, which runs this file: `python ray_programs.py NAME FOLDER`.

Each is a training of the same small model in float64, whose steps and final parameters go into
files of the folder.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

STEPS = 12


def loop(config):
    """Train, with a report each third step, in the middle of passes; what befalls a rank between
    two of them says `config`.
    """
    import adjoint as ad
    import adjoint.distributed as dist
    from adjoint.distributed.fsdp import fully_shard
    from adjoint.distributed.ray import report, resume

    rank, size = dist.get_rank(), dist.get_world_size()
    ad.manual_seed(0)
    data = ad.utils.data.TensorDataset(
        ad.randn(40, 8, dtype=ad.float64), ad.randn(40, 3, dtype=ad.float64)
    )
    model = ad.nn.Sequential(ad.nn.Linear(8, 15), ad.nn.Tanh(), ad.nn.Linear(15, 3)).double()
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    sampler = ad.utils.data.DistributedSampler(data)
    loader = ad.utils.data.DataLoader(data, batch_size=8 // size, sampler=sampler)
    state = {"model": model, "optimizer": optimizer, "loader": loader, "epoch": 0, "step": 0}
    resumed = resume(state)
    note(config, rank=rank, size=size, resumed=resumed, step=state["step"])
    while state["step"] < STEPS:
        sampler.set_epoch(state["epoch"])
        for x, y in loader:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            state["step"] += 1
            if state["step"] % 3 == 0:
                report({"step": state["step"]}, state)
            if state["step"] == 8 and not resumed:
                meet_fate(config, rank)
            if state["step"] == 10 and "spared" in config and size == 1:
                time.sleep(60)  # until Ray has found the new node and begins again with it
            if state["step"] == STEPS:
                break
        else:
            state["epoch"] += 1
    whole = {}
    for name, p in model.named_parameters():
        rows = [None] * size
        dist.all_gather_object(rows, p.detach().clone())
        whole[name] = ad.cat(rows).flatten().tolist()
    if rank == 0:
        (pathlib.Path(config["folder"]) / f"{config['name']}.json").write_text(json.dumps(whole))


def meet_fate(config, rank):
    """Die, as a worker (of rank `victim`), or with the node (on all but the one `spared`)."""
    import ray

    time.sleep(1)  # Ray looks for reports from time to time
    node = ray.get_runtime_context().get_node_id() if "spared" in config else None
    if node != config.get("spared"):
        os.kill(os.getppid(), signal.SIGKILL)  # the node's raylet
    if node != config.get("spared") or rank == config.get("victim"):
        os.kill(os.getpid(), signal.SIGKILL)


def note(config, **said):
    with open(f"{config['folder']}/{config['name']}.log", "a") as file:
        file.write(json.dumps(said) + "\n")


def fit(folder, name, workers, **config):
    """One training."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    from adjoint.distributed.ray import Trainer

    return Trainer(
        loop,
        train_loop_config={"folder": folder, "name": name, **config},
        scaling_config=ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=0.5),
        run_config=RunConfig(
            storage_path=f"{folder}/storage", failure_config=FailureConfig(max_failures=1)
        ),
        timeout=60,
    ).fit()


def killed(folder):
    """Two workers, undisturbed; and again, with one that is killed."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False)
    fit(folder, "undisturbed", 2)
    result = fit(folder, "killed", 2, victim=1)
    note({"folder": folder, "name": "result"}, step=result.metrics["step"])
    ray.shutdown()


def elastic(folder):
    """Two nodes of a worker each; one is lost, and later another comes."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address)

    spared = ray.get_runtime_context().get_node_id()
    with ThreadPoolExecutor(1) as pool:  # nodes are added by the main thread
        fitted = pool.submit(fit, folder, "elastic", (1, 2), spared=spared)
        log = pathlib.Path(folder) / "elastic.log"
        while not fitted.done() and not (log.exists() and '"size": 1' in log.read_text()):
            time.sleep(0.1)
        cluster.add_node(num_cpus=1)
        fitted.result()
    ray.shutdown()
    cluster.shutdown()


def alone(folder):
    """The same training without Ray."""
    from adjoint import distributed as dist
    from adjoint.distributed import ray as ours

    dist.init_process_group()
    ours.resume, ours.report = lambda state: False, lambda metrics, state: None
    loop({"folder": folder, "name": "alone"})
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
