"""Ranks that go on without one that has died: Open MPI with ULFM."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import time

import numpy as np
import pytest

import adjoint as ad
from adjoint import distributed as dist
from adjoint.tools.cli.run import launcher
from tests.distributed.test_faults import alive, start
from tests.distributed.worlds import without_engine

STEPS = 12
LOST = 5  # the step that rank 1 does not end, where it kills itself


def without_ulfm():
    """Why survivors cannot go on here; "" where they can."""
    if without_engine("mpi"):
        return without_engine("mpi")
    return "" if "--with-ft" in launcher(1, []) else "mpiexec is not Open MPI's"


reason = without_ulfm()
needs_ulfm = pytest.mark.skipif(bool(reason), reason=reason or "there")


def build_model():
    ad.manual_seed(0)
    return ad.nn.Sequential(ad.nn.Linear(6, 15), ad.nn.Tanh(), ad.nn.Linear(15, 2)).double()


def batch(step, rank, size):
    """A rank's share of the 12 rows of a step."""
    rows = np.random.default_rng(step).standard_normal((12, 8))[rank::size]
    return ad.from_numpy(rows[:, :6].copy()), ad.from_numpy(rows[:, 6:].copy())


def loss_of(model, step, rank, size):
    x, y = batch(step, rank, size)
    return (model(x) - y).square().mean()


def train(folder, fate):
    """What each rank runs: it steps once all have averaged, or goes on with those that live."""
    dist.init_process_group(timeout=30)
    me = dist.get_rank()
    model, sizes, step = build_model(), [], 0
    wrapped = ad.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    last = 20_000 if fate == "random" else STEPS
    while step < last:
        if fate == "before" and me == 1 and step == LOST:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        try:
            loss_of(wrapped, step % STEPS, dist.get_rank(), dist.get_world_size()).backward()
            is_averaged = True
        except ad.DistributedError:
            is_averaged = False
        if fate == "between" and me == 1 and step == LOST:
            os.kill(os.getpid(), signal.SIGKILL)
        if not dist.agree(is_averaged):
            dist.shrink()
            with pytest.raises(ad.DistributedError, match="wrap it again"):
                wrapped(batch(0, 0, 1)[0])
            wrapped = ad.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
            continue
        optimizer.step()
        sizes.append(dist.get_world_size())
        step += 1
        if step == 1:  # from now on it may be killed
            (folder / f"pid{me}").write_text(str(os.getpid()))
        if fate == "random" and sizes.count(3) == 4:
            break
    said = {
        "rank": dist.get_rank(), "sizes": sizes,
        "parameters": [p.detach().flatten().tolist() for p in model.parameters()],
    }  # fmt: skip
    (folder / f"end{me}").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


def replayed(sizes):
    """The parameters of one process that averages the shares of so many ranks in each step."""
    model = build_model()
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    for step, size in enumerate(sizes):
        optimizer.zero_grad()
        for rank in range(size):
            (loss_of(model, step % STEPS, rank, size) / size).backward()
        optimizer.step()
    return [p.detach().flatten().numpy() for p in model.parameters()]


def run_of_four(tmp_path, fate):
    (tmp_path / "folder").mkdir()
    here = pathlib.Path(__file__)
    program = (
        f"import pathlib, sys\nsys.path.insert(0, {str(here.parents[2])!r})\n"
        "from tests.distributed.test_survivors import train\n"
        f"train(pathlib.Path({str(tmp_path / 'folder')!r}), {fate!r})\n"
    )
    return start(tmp_path / "folder", "mpi", 30, size=4, program=program)


def assert_went_on(folder, said):
    """The three survivors have the same bits, and what one process gets from there on."""
    ends = [json.loads(file.read_text()) for file in sorted(folder.glob("end*"))]
    assert sorted(end["rank"] for end in ends) == [0, 1, 2], said
    sizes = ends[0]["sizes"]
    assert all(end["sizes"] == sizes for end in ends)
    assert all(end["parameters"] == ends[0]["parameters"] for end in ends)
    for mine, expected in zip(ends[0]["parameters"], replayed(sizes), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-12)
    return sizes


@needs_ulfm
@pytest.mark.parametrize("fate", ["before", pytest.param("between", marks=pytest.mark.sweep)])
def test_three_of_four_go_on(tmp_path, fate):
    """`between`: all have averaged, and the dead rank was not seen to take the step."""
    job, pids = run_of_four(tmp_path, fate)
    said, _ = job.communicate(timeout=120)
    sizes = assert_went_on(tmp_path / "folder", said)
    assert sizes == [4] * LOST + [3] * (STEPS - LOST)
    assert not any(map(alive, pids))


@needs_ulfm
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(3))
def test_three_go_on_whenever_one_is_killed(tmp_path, seed):
    draw = random.Random(seed)
    job, pids = run_of_four(tmp_path, "random")
    time.sleep(draw.uniform(0.05, 0.5))
    os.kill(pids[draw.randrange(4)], signal.SIGKILL)
    said, _ = job.communicate(timeout=120)
    sizes = assert_went_on(tmp_path / "folder", said)
    assert sizes[-4:] == [3] * 4 and set(sizes[:-4]) <= {4}
    assert not any(map(alive, pids))


def test_what_others_engines_say():
    dist.init_process_group()
    try:
        assert dist.agree() and not dist.agree(False)
        with pytest.raises(ad.Unsupported, match=r"engine 'fake' does not survive.*max-restarts"):
            dist.shrink()
    finally:
        dist.destroy_process_group()
    with pytest.raises(ad.DistributedError, match="not been initialized"):
        dist.agree()
