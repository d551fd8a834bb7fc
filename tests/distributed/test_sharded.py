"""What ranks divide among one another: optimizers' state, parameters, checkpoints."""

from __future__ import annotations

import contextlib

import pytest

import adjoint as ad
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed.optim import ZeroRedundancyOptimizer
from tests.distributed.worlds import ENGINES, ROOT, outcomes, run


@contextlib.contextmanager
def fake(rank=0, size=1):
    dist.init_process_group("fake", rank=rank, world_size=size)
    try:
        yield dist.group.WORLD.engine
    finally:
        dist.destroy_process_group()


def odd_parameters(dtype=ad.float32):
    """Of sizes from none to some, which no number of ranks divides."""
    ad.manual_seed(5)
    shapes = [(5, 3), (), (0, 4), (1,), (7, 2, 2), (15,)]
    found = [nn.Parameter(ad.randn(shape).to(dtype)) for shape in shapes]
    return [*found, nn.Parameter(ad.randn(3, 2).to(ad.float64))]  # a row of its own


def give_gradients(step, *models):
    """The same to each, on all ranks; none to one parameter in one step."""
    ad.manual_seed(100 + step)
    for ps in zip(*models, strict=True):
        g = ad.randn(ps[0].shape).to(ps[0].dtype)
        for p in ps:
            p.grad = None if step == 2 and p.ndim == 3 else g.clone()


def assert_same(model, other):
    for i, (p, q) in enumerate(zip(model, other, strict=True)):
        assert p.detach().numpy().tobytes() == q.detach().numpy().tobytes(), i


BY_ELEMENT = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "AdamW": {"lr": 0.01},
    "Adam": {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}, "RMSprop": {"centered": True},
    "Adagrad": {}, "Adadelta": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "ASGD": {}, "Rprop": {},
}  # fmt: skip


# ---- scenarios -----------------------------------------------------------------------------------


def on_zero_equals_the_optimizer_bit_for_bit(rank, size):
    for name in ("SGD", "AdamW"):
        make, options = getattr(ad.optim, name), BY_ELEMENT[name]
        for views in (False, True):
            model, other = odd_parameters(), odd_parameters()
            zero = ZeroRedundancyOptimizer(model, make, parameters_as_bucket_view=views, **options)
            alone = make(other, **options)
            for step in range(5):
                give_gradients(step, model, other)
                if step == 1:  # frozen for a while
                    model[0].requires_grad_(False)
                    other[0].requires_grad_(False)
                if step == 3:
                    for ps in (model, other):
                        ps[0].requires_grad_(True)
                        ps[4].data = ps[4].data.clone()  # other memory
                    for optimizer in (zero, alone):
                        optimizer.param_groups[0]["lr"] = 0.003
                zero.step()
                alone.step()
                assert_same(model, other), (name, step)


def on_zero_of_other_dtypes(rank, size):
    for dtype in (ad.bfloat16, ad.complex64):
        model, other = odd_parameters(dtype), odd_parameters(dtype)
        zero = ZeroRedundancyOptimizer(model, ad.optim.Adam, lr=0.1)
        alone = ad.optim.Adam(other, lr=0.1)
        for step in range(3):
            give_gradients(step, model, other)
            zero.step()
            alone.step()
            assert [p.dtype for p in model] == [p.dtype for p in other]
            for p, q in zip(model, other, strict=True):
                p, q = (ad.view_as_real(x) if x.is_complex() else x.float() for x in (p, q))
                assert p.equal(q)


def on_zero_of_whole_parameters(rank, size):
    def made():
        ad.manual_seed(1)
        return [nn.Parameter(ad.randn(5, k)) for k in (2, 7, 3, 4, 1)]

    for make in (ad.optim.Muon, ad.optim.Adafactor):
        model, other = made(), made()
        zero, alone = ZeroRedundancyOptimizer(model, make, lr=0.1), make(other, lr=0.1)
        for step in range(3):
            give_gradients(step, model, other)
            zero.step()
            alone.step()
            assert_same(model, other)
        assert 0 < len(zero.optim.state) < 5
        zero.consolidate_state_dict(to=1)
        if rank == 1:
            assert_equal_states(zero.state_dict(), alone.state_dict())


def assert_equal_states(a, b):
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for key, values in b["state"].items():
        assert a["state"][key].keys() == values.keys()
        for name, value in values.items():
            got = a["state"][key][name]
            assert got.shape == value.shape and got.dtype == value.dtype, (key, name)
            assert got.equal(value), (key, name)


def on_zero_keeps_a_share_and_gives_the_whole(rank, size):
    model, other = odd_parameters(), odd_parameters()
    groups = lambda ps: [{"params": ps[:2]}, {"params": ps[2:4], "lr": 0.5}]  # noqa: E731 - two
    zero = ZeroRedundancyOptimizer(groups(model), ad.optim.AdamW, lr=0.1)
    alone = ad.optim.AdamW(groups(other), lr=0.1)
    for optimizer, ps in ((zero, model), (alone, other)):
        optimizer.add_param_group({"params": ps[4:], "weight_decay": 0.5})
    for step in range(2):
        give_gradients(step, model, other)
        zero.step()
        alone.step()
    with pytest.raises(ad.DistributedError, match="consolidate_state_dict"):
        zero.state_dict()
    for root in (0, size - 1):
        zero.consolidate_state_dict(to=root)
        if rank == root:
            whole = zero.state_dict()
            assert_equal_states(whole, alone.state_dict())
    # The whole is taken over, by either.
    again, lone = odd_parameters(), odd_parameters()
    with ad.no_grad():
        for ps in (again, lone):
            for p, q in zip(ps, other, strict=True):
                p.copy_(q)
    zero = ZeroRedundancyOptimizer(groups(again), ad.optim.AdamW, lr=0.7)
    zero.add_param_group({"params": again[4:]})
    zero.load_state_dict(alone.state_dict())
    give_gradients(7, again, other)
    zero.step()
    alone.step()
    assert_same(again, other)
    with pytest.raises(ad.CheckpointError, match="groups of"):
        zero.load_state_dict(ad.optim.AdamW(odd_parameters()).state_dict())


def on_zero_behind_ddp(rank, size):
    """With a closure, a schedule and hooks."""
    ad.manual_seed(0)
    module, other = nn.Linear(6, 5), nn.Linear(6, 5)
    model = nn.parallel.DistributedDataParallel(module)
    other.load_state_dict(module.state_dict())
    zero = ZeroRedundancyOptimizer(model.parameters(), ad.optim.SGD, lr=0.1, momentum=0.9)
    alone = ad.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    schedules = [ad.optim.lr_scheduler.StepLR(o, 1, gamma=0.5) for o in (zero, alone)]
    ran = []
    zero.register_step_post_hook(lambda *_: ran.append(1))

    def closure():
        zero.zero_grad()
        loss = model(ad.full((2, 6), rank + 1.0)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        assert zero.step(closure).item() > 0
        for p, q in zip(module.parameters(), other.parameters(), strict=True):
            q.grad = p.grad.clone()
        alone.step()
        for schedule in schedules:
            schedule.step()
        assert_same(module.parameters(), other.parameters())
    assert len(ran) == 3


def on_zero_of_parameters_that_differ(rank, size):
    with pytest.raises(ad.InvalidArgument, match="differ") as caught:
        ZeroRedundancyOptimizer([nn.Parameter(ad.ones(3 + (rank == 2)))], ad.optim.SGD)
    return str(caught.value)


# ---- tests ---------------------------------------------------------------------------------------

NAMES = [name for name in list(globals()) if name.startswith("on_")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
def test_scenario(engine, name):
    outcomes(__name__, name, 3, engine)


def test_state_of_a_rank_is_its_share_to_the_element():
    for size in (1, 2, 7, 4096):
        for rank in {0, size // 2, size - 1}:
            with fake(rank, size):
                model = [nn.Parameter(ad.ones(33, 17)), nn.Parameter(ad.ones(5))]
                zero = ZeroRedundancyOptimizer(model, ad.optim.AdamW)
                for p in model:
                    p.grad = ad.ones_like(p)
                zero.step()
                total = sum(p.numel() for p in model)
                share = -(-total // size)
                steps = 4 * len(zero.optim.state)  # one number for each piece
                assert zero.state_bytes() - steps <= 2 * 4 * share
                assert len(zero.optim.state) <= 2


@pytest.mark.parametrize("name", BY_ELEMENT)
def test_a_share_has_the_bits_of_the_whole(name):
    make, options = getattr(ad.optim, name), BY_ELEMENT[name]
    with fake(1, 3):
        model, other = odd_parameters(), odd_parameters()
        zero, alone = ZeroRedundancyOptimizer(model, make, **options), make(other, **options)
        for step in range(4):
            for p, q in zip(model, other, strict=True):  # what other ranks would have sent
                p.data.copy_(q.data)
            give_gradients(step, model, other)
            zero.step()
            alone.step()
            for piece in zero.pieces[0]:
                whole = other[piece.number].detach().numpy().reshape(-1)
                got = piece.tensor.detach().numpy()
                assert got.tobytes() == whole[piece.start : piece.stop].tobytes(), step


def test_what_cannot_be_shared_is_refused():
    p = nn.Parameter(ad.ones(4, 3))
    with pytest.raises(ad.DistributedError, match="init_process_group"):
        ZeroRedundancyOptimizer([p], ad.optim.SGD)
    with fake(0, 2):
        with pytest.raises(ad.InvalidArgument, match="LBFGS"):
            ZeroRedundancyOptimizer([p], ad.optim.LBFGS)
        with pytest.raises(ad.InvalidType, match="class"):
            ZeroRedundancyOptimizer([p], ad.optim.SGD([p]))
        with pytest.raises(ad.Unsupported, match="overlap_with_ddp"):
            ZeroRedundancyOptimizer([p], ad.optim.SGD, overlap_with_ddp=True)
        with pytest.raises(ad.InvalidArgument, match="contiguous"):
            ZeroRedundancyOptimizer([nn.Parameter(ad.ones(4, 3).t())], ad.optim.SGD)
        with pytest.raises(ad.InvalidArgument, match="2D"):  # on every rank, not on its owner alone
            ZeroRedundancyOptimizer([p, nn.Parameter(ad.ones(2))], ad.optim.Muon)
        zero = ZeroRedundancyOptimizer([p], ad.optim.SGD)
        with pytest.raises(ad.Unsupported, match="fake"):
            zero.consolidate_state_dict()
        p.data = ad.ones(2, 2)
        p.grad = ad.ones(2, 2)
        with pytest.raises(ad.InvalidArgument, match="make the optimizer again"):
            zero.step()
        assert ad.optim.ZeroRedundancyOptimizer is ZeroRedundancyOptimizer


def test_one_message_of_a_share_a_step():
    with fake(3, 8) as engine:
        p = nn.Parameter(ad.ones(1000))
        zero = ZeroRedundancyOptimizer([p], ad.optim.SGD)
        p.grad = ad.ones(1000)
        engine.calls.clear(), engine.bytes.clear()
        zero.step()
        assert engine.calls == {"all_gather": 1} and engine.bytes["all_gather"] == 4 * 125


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_on_two_ranks(engine):
    done = run(["--nproc", 2, "--engine", engine, ROOT / "examples/zero_gpt.py"], ADJOINT_SMOKE="1")
    assert "state on this rank: 0.500 of" in done.stdout
