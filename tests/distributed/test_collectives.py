"""Collectives on several ranks, against what they mean."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
import adjoint.distributed as dist
from tests.distributed.worlds import ENGINES

SUMS = ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64",
        "complex64", "complex128")  # fmt: skip


def row(rank, size=7, dtype=ad.float32):
    return (ad.arange(size) + 10 * rank).to(dtype)


def raises(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


# ---- scenarios -----------------------------------------------------------------------------------


def on_all_reduce_of_each_dtype(rank, size):
    for name in SUMS:
        for count in (0, 1, 15):
            x = (ad.arange(count) % 3 + rank).to(getattr(ad, name))
            dist.all_reduce(x)
            expected = sum((np.arange(count) % 3 + r) for r in range(size))
            assert x.to(ad.complex128).tolist() == list(expected.astype(complex)), name


def on_all_reduce_by_each_op(rank, size):
    values = [np.array([r + 1, 6 - r, 3], np.int64) for r in range(size)]
    by = {
        dist.ReduceOp.SUM: np.sum, dist.ReduceOp.PRODUCT: np.prod, dist.ReduceOp.MIN: np.min,
        dist.ReduceOp.MAX: np.max, dist.ReduceOp.BAND: np.bitwise_and.reduce,
        dist.ReduceOp.BOR: np.bitwise_or.reduce, dist.ReduceOp.BXOR: np.bitwise_xor.reduce,
    }  # fmt: skip
    for op, function in by.items():
        x = ad.tensor(values[rank].tolist())
        dist.all_reduce(x, op)
        assert x.tolist() == function(values, axis=0).tolist(), op
    for name in ("float16", "float32", "float64"):
        x = row(rank, dtype=getattr(ad, name))
        dist.all_reduce(x, dist.ReduceOp.AVG)
        np.testing.assert_allclose(x.tolist(), np.arange(7) + 10 * np.mean(range(size)), rtol=1e-3)
    x = ad.tensor([True, rank == 0, False])
    dist.all_reduce(x)
    assert x.tolist() == [True, True, False]


def on_half_sums_are_rounded_once(rank, size):
    x = ad.tensor([2048.0 if rank == 0 else 1.0], dtype=ad.float16)
    for _ in range(1):
        dist.all_reduce(x)
    assert x.item() == np.float16(2048 + size - 1)


def on_broadcast_and_reduce(rank, size):
    for root in range(size):
        x = row(rank)
        dist.broadcast(x, root)
        assert x.tolist() == row(root).tolist()
        x = row(rank)
        dist.reduce(x, root)
        if rank == root:
            assert x.tolist() == sum(np.arange(7) + 10 * r for r in range(size)).tolist()


def on_gathering(rank, size):
    whole = ad.zeros(size, 7)
    dist.all_gather_into_tensor(whole, row(rank))
    parts = [ad.zeros(7) for _ in range(size)]
    dist.all_gather(parts, row(rank))
    for r in range(size):
        assert whole[r].tolist() == parts[r].tolist() == row(r).tolist()
    parts = [ad.zeros(7, dtype=ad.int16) for _ in range(size)] if rank == 1 else None
    dist.gather(row(rank, dtype=ad.int16), parts, dst=1)
    if rank == 1:
        assert [p.tolist() for p in parts] == [row(r).tolist() for r in range(size)]
    x = ad.zeros(3)
    dist.scatter(x, [ad.full((3,), float(r)) for r in range(size)] if rank == 1 else None, src=1)
    assert x.tolist() == [rank] * 3


def on_reduce_scatter(rank, size):
    for name in ("float32", "float16", "int64", "complex64"):
        dtype = getattr(ad, name)
        x = ad.zeros(2, dtype=dtype)
        dist.reduce_scatter(x, [ad.full((2,), r + rank, dtype=dtype) for r in range(size)])
        assert x.tolist() == [sum(rank + r for r in range(size))] * 2
        x = ad.zeros(2, dtype=dtype)
        whole = ad.arange(2 * size).to(dtype)
        dist.reduce_scatter_tensor(x, whole)
        assert x.tolist() == (np.arange(2 * size)[2 * rank : 2 * rank + 2] * size).tolist()


def on_all_to_all(rank, size):
    x = ad.zeros(size, 2)
    dist.all_to_all_single(x, ad.arange(2.0 * size).reshape(size, 2) + 100 * rank)
    assert x[:, 0].tolist() == [2 * rank + 100 * r for r in range(size)]
    out = ad.zeros((rank + 1) * size)  # rank i sends j + 1 elements to rank j
    sent = ad.full((sum(j + 1 for j in range(size)),), float(rank))
    dist.all_to_all_single(out, sent, [rank + 1] * size, [j + 1 for j in range(size)])
    assert out.tolist() == [r for r in range(size) for _ in range(rank + 1)]
    outs = [ad.zeros(2) for _ in range(size)]
    dist.all_to_all(outs, [ad.full((2,), 10.0 * rank + j) for j in range(size)])
    assert [o.tolist() for o in outs] == [[10.0 * r + rank] * 2 for r in range(size)]


def on_messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    got = ad.zeros(3)
    works = [dist.isend(row(rank, 3), right), dist.irecv(got, left)]
    for work in works:
        work.wait()
    assert got.tolist() == row(left, 3).tolist()
    if rank == 0:
        for _ in range(size - 1):
            source = dist.recv(got)
            assert got.tolist() == row(source, 3).tolist()
    else:
        dist.send(row(rank, 3), 0)
    a, b = ad.zeros(1), ad.zeros(1)
    if rank == 0:  # by tag, not by order
        works = [dist.isend(ad.full((1,), float(tag)), 1, tag=tag) for tag in (5, 6)]
        for work in works:
            work.wait()
    elif rank == 1:
        dist.recv(b, 0, tag=6)
        dist.recv(a, 0, tag=5)
        assert (a.item(), b.item()) == (5, 6)


def on_groups(rank, size):
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        x = row(rank)
        dist.all_reduce(x, group=pair)
        assert x.tolist() == (row(0) + row(size - 1)).tolist()
        dist.broadcast(y := row(rank), src=size - 1, group=pair)
        assert y.tolist() == row(size - 1).tolist()
        assert (
            dist.get_group_rank(pair, size - 1) == 1 and dist.get_global_rank(pair, 1) == size - 1
        )
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
        assert dist.all_reduce(row(rank), group=pair) is None
    dist.barrier()
    dist.monitored_barrier(timeout=10)


def on_objects(rank, size):
    mine = {"rank": rank, "parts": [(1, 2.5), "x" * rank], "weights": ad.arange(rank)}
    values = [None] * size
    dist.all_gather_object(values, mine)
    assert [v["rank"] for v in values] == list(range(size))
    assert [v["weights"].tolist() for v in values] == [list(range(r)) for r in range(size)]
    told = [rank, {"of": rank}]
    dist.broadcast_object_list(told, src=1)
    assert told == [1, {"of": 1}]
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert got == [f"for {rank}"]
    places = [None] * size if rank == 0 else None
    dist.gather_object(rank, places, dst=0)
    assert rank or places == list(range(size))
    if rank == 0:
        dist.send_object_list(["a", 1], 1)
    elif rank == 1:
        got = [None, None]
        assert dist.recv_object_list(got) == 0
        assert got == ["a", 1]
    return raises(ad.InvalidType, lambda: dist.all_gather_object(values, object()))


def on_buffers_go_by_their_address(rank, size):
    """What the engine gets is the tensor's memory."""
    world = dist.group.WORLD
    engine, seen = world.engine, []

    class Watched:
        def __getattr__(self, name):
            value = getattr(engine, name)
            if name not in ("all_reduce", "broadcast", "all_gather", "send", "receive"):
                return value

            def call(*args):
                seen.extend(a.__array_interface__["data"][0] for a in args if hasattr(a, "dtype"))
                return value(*args)

            return call

    x, y, whole = ad.ones(5), ad.ones(3), ad.zeros(3 * size)
    addresses = [t.data_ptr() for t in (x, x, whole, y)]
    world.engine = Watched()
    try:
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather_into_tensor(whole, y)
    finally:
        world.engine = engine
    assert seen == addresses
    if engine.name == "gloo":
        from adjoint.distributed.engines import gloo

        for data in (x._data, np.zeros(4, np.int64)):
            address = data.__array_interface__["data"][0]
            assert gloo.numbers(data).data_ptr() == gloo.memory(data).data_ptr() == address


def on_agreement(rank, size):
    assert [dist.agree(), dist.agree(rank != 1), dist.agree(False)] == [True, False, False]
    dist.all_reduce(x := ad.ones(1))
    assert x.item() == size


def on_what_was_saved_sees_the_write(rank, size):
    w, x = ad.ones(3, requires_grad=True), ad.ones(3)
    y = (w * x).sum()
    dist.all_reduce(x)
    return raises(ad.AutogradError, y.backward)


def on_bad_arguments(rank, size):
    return [
        raises(ad.InvalidArgument, lambda: dist.all_reduce(ad.ones(3, 4).t())),
        raises(ad.InvalidArgument, lambda: dist.broadcast(ad.ones(1), src=size)),
        raises(ad.InvalidArgument, lambda: dist.send(ad.ones(1), rank)),
        raises(ad.DTypeError, lambda: dist.all_reduce(ad.ones(1).long(), dist.ReduceOp.AVG)),
        raises(ad.DTypeError, lambda: dist.all_reduce(ad.ones(1), dist.ReduceOp.BOR)),
        raises(ad.ShapeError, lambda: dist.all_gather_into_tensor(ad.ones(1), ad.ones(3))),
        raises(ad.InvalidType, lambda: dist.all_reduce(3)),
        raises(ad.Unsupported, lambda: ad.compile(lambda x: dist.all_reduce(x))(ad.ones(3))),
    ]


def on_differences_in_debug_mode(rank, size):
    """Each an error on all ranks that names both sides; the ranks go on in step."""
    world = dist.group.WORLD
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    calls = [
        lambda: dist.all_reduce(ad.ones(3 + rank)),
        lambda: dist.all_reduce(ad.ones(3, dtype=ad.float64 if rank else ad.float32)),
        lambda: dist.all_reduce(ad.ones(3)) if rank else dist.barrier(),
        lambda: dist.broadcast(ad.ones(3), src=rank % 2),
    ]
    said = []
    try:
        for call in calls:
            said.append(raises(ad.DistributedError, call))
            again = raises(ad.DistributedError, dist.barrier)
            assert "unusable" in again
            world.failure = ""
        dist.all_reduce(x := ad.ones(2))
        assert x.tolist() == [size] * 2
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
    return said


# ---- tests ---------------------------------------------------------------------------------------

SCENARIOS = [value for name, value in list(globals().items()) if name.startswith("on_")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_scenario(engine, scenario, world):
    world.outcomes(scenario, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_differences_are_named_on_both_sides(engine, world):
    for said in world.outcomes(on_differences_in_debug_mode, engine):
        shapes, dtypes, order, roots = said
        assert "rank 0 does all_reduce (SUM) of adjoint.float32 (3,)" in shapes
        assert "rank 1 does all_reduce (SUM) of adjoint.float32 (4,)" in shapes
        assert "ranks [1, 2] do all_reduce (SUM) of adjoint.float64 (3,)" in dtypes
        assert "rank 0 does barrier" in order and "ranks [1, 2] do all_reduce" in order
        assert "ranks [0, 2] do broadcast" in roots and "(from 1)" in roots


@pytest.mark.parametrize("engine", ENGINES)
def test_messages_name_what_is_wrong(engine, world):
    (said, *_) = world.outcomes(on_bad_arguments, engine)
    words = ("contiguous", "rank 3", "own", "average", "BOR", "9", "int", "compile: all_reduce")
    for text, word in zip(said, words, strict=True):
        assert word in text
    (objects, *_) = world.outcomes(on_objects, engine)
    assert "builtins.object" in objects


# ---- one process ---------------------------------------------------------------------------------


@pytest.fixture
def fake():
    dist.init_process_group("fake", rank=3, world_size=4096)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_fake_world_counts_messages(fake):
    x = ad.ones(10)
    dist.all_reduce(x)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.barrier()
    assert x.tolist() == [4096] * 10
    assert fake.engine.calls == {"all_reduce": 2, "barrier": 1}
    assert fake.engine.bytes["all_reduce"] == 80


def test_a_plain_program_is_a_world_of_one():
    with pytest.raises(ad.DistributedError, match="init_process_group"):
        dist.get_rank()
    for backend in (None, "gloo", "mpi"):
        dist.init_process_group(backend)
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        x = ad.tensor([1.5])
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            dist.all_reduce(x, op)
        out = ad.zeros(1)
        dist.all_to_all_single(out, x)
        assert (x.item(), out.item()) == (1.5, 1.5)
        with pytest.raises(ad.DistributedError, match="twice"):
            dist.init_process_group()
        dist.destroy_process_group()
    with pytest.raises(ad.DistributedError, match="init_process_group"):
        dist.all_reduce(ad.ones(1))


def test_no_engine_is_imported_before_it_is_asked_for():
    program = (
        "import sys, adjoint as ad\n"
        "assert 'adjoint.distributed' not in sys.modules\n"
        "ad.nn.parallel.DistributedDataParallel, ad.utils.data.DistributedSampler\n"
        "ad.distributed.init_process_group()\n"
        "ad.distributed.all_reduce(ad.ones(1))\n"
        "found = [m for m in sys.modules if m.split('.')[0] in ('torch', 'mpi4py', 'ray')]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_the_environment_says(monkeypatch):
    """A rank of many never becomes a world of its own without a word."""
    group = sys.modules["adjoint.distributed.group"]  # whose name is the groups' in the package
    for name in ("RANK", "WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(group, "is_gloo_available", lambda: True)
    chosen = functools.partial(group._chosen, size=-1, init_method=None, store=None)
    assert chosen(None) == chosen("gloo") == "alone"
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(ad.DistributedError, match="srun has started 4 tasks"):
        chosen(None)
    monkeypatch.setenv("PMIX_RANK", "0")
    assert chosen(None) == "mpi"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (chosen(None), chosen("mpi"), chosen("cpu:gloo,cuda:nccl")) == ("gloo", "mpi", "gloo")
    monkeypatch.setenv("ADJOINT_ENGINE", "mpi")
    assert chosen(None) == "mpi"
    with pytest.raises(ad.Unsupported, match="nccl"):
        chosen("nccl")
    with pytest.raises(ad.InvalidArgument, match="unknown backend"):
        chosen("smoke signals")
    monkeypatch.setattr(group, "is_gloo_available", lambda: False)
    with pytest.warns(UserWarning, match="mpi4py serves instead"):
        assert chosen("nccl") == "mpi"
    monkeypatch.delenv("ADJOINT_ENGINE")
    assert chosen(None) == "mpi"
    monkeypatch.setenv("ADJOINT_ENGINE", "smoke")
    with pytest.raises(ad.InvalidArgument, match="ADJOINT_ENGINE"):
        chosen(None)


def test_a_world_of_one_rank_needs_no_engine(monkeypatch):
    group = sys.modules["adjoint.distributed.group"]
    for name in ("RANK", "WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(group, "is_gloo_available", lambda: False)
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        x = ad.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [1, 1] and dist.get_world_size() == 1
        model = ad.nn.parallel.DistributedDataParallel(ad.nn.Linear(3, 2))
        said = model._get_ddp_logging_data()
        assert said["world_size"] == 1 and said["total_parameter_size_bytes"] == 32
        assert said["module_name"] == "Linear" and said["num_parameter_tensors"] == 2
    finally:
        dist.destroy_process_group()
    chosen = functools.partial(group._chosen, init_method="env://", store=None)
    assert chosen("gloo", size=2) == "gloo" and chosen("mpi", size=1) == "mpi"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert chosen(None, size=-1) == "alone"
    monkeypatch.setattr(group, "is_gloo_available", lambda: True)
    assert chosen(None, size=-1) == "gloo"
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def test_a_missing_engine_names_the_line_that_installs_it(monkeypatch):
    for module, backend, line in (
        ("torch.distributed", "gloo", r"adjoint\[torch\]"),
        ("mpi4py", "mpi", r"adjoint\[mpi\]"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ad.Unsupported, match=line):
            dist.init_process_group(backend, rank=0, world_size=2)
    assert not dist.is_initialized()
