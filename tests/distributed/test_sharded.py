"""What ranks divide among one another: optimizers' state, parameters, checkpoints."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import struct
import sys
import tempfile
import tracemalloc
import weakref

import numpy as np
import pytest

import adjoint as ad
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed import checkpoint as checkpoints
from adjoint.distributed.fsdp import fully_shard
from adjoint.distributed.optim import ZeroRedundancyOptimizer
from adjoint.utils.checkpoint import checkpoint
from tests.distributed.worlds import ENGINES, ROOT, run


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


class Net(nn.Module):
    """Layers that save their parameters in several ways; a tied, a frozen and an unused one."""

    def __init__(self, dtype=ad.float64):
        super().__init__()
        ad.manual_seed(3)
        self.token, self.blocks = nn.Embedding(11, 6), nn.ModuleList()
        for _ in range(3):
            self.blocks.append(
                nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 6))
            )
        self.memory, self.head = nn.GRU(6, 6, batch_first=True), nn.Linear(6, 11, bias=False)
        self.head.weight = self.token.weight
        self.scale, self.spare = nn.Parameter(ad.ones(1)), nn.Parameter(ad.ones(2, 3))
        self.blocks[1][1].bias.requires_grad_(False)
        self.to(dtype)

    def forward(self, x, more=False):
        h = self.token(x) * self.scale
        for block in self.blocks:
            again = (lambda x, f=block: checkpoint(f, x, use_reentrant=False)) if more else block
            h = h + again(h)
        return self.head(self.memory(h)[0] + h @ self.blocks_free())

    def blocks_free(self):
        return self.token.weight.t()[:, :6]  # a view of what is gathered


def sharded(dtype=ad.float64, **options):
    model = Net(dtype)
    for part in (*model.blocks, model.memory, model):
        fully_shard(part, **options)
    return model


def batch(rank=None, size=1):
    x = ad.tensor([[(3 * i + 5 * j) % 11 for j in range(4)] for i in range(6)])
    return x if rank is None else x[rank::size]


def loss_of(model, x, more=False):
    return nn.functional.cross_entropy(model(x, more).flatten(0, 1), x.flatten())


def assert_rows(model, other, of=lambda p: p, tolerance=1e-10):
    """Each parameter of `model` is this rank's rows of that of `other`."""
    for (name, p), (_, q) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        a, b = of(p), of(q)
        assert (a is None) == (b is None), name
        if a is not None:
            b = b.detach()[p.division.first : p.division.first + len(p)]
            assert a.shape == b.shape and (a - b).abs().sum().item() < tolerance, name


def on_sharded_training_equals_one_process(rank, size):
    for kind in ("plain", "kept", "checkpoint", "accumulate", "twice"):
        model, other = sharded(reshard_after_forward=kind != "kept"), Net()
        optimizers = [ad.optim.AdamW(m.parameters(), lr=0.01) for m in (model, other)]
        for _ in range(3):
            for each, x, optimizer in (
                (model, batch(rank, size), optimizers[0]), (other, batch(), optimizers[1]),
            ):  # fmt: skip
                optimizer.zero_grad()
                if kind == "twice":  # two graphs at once
                    (loss_of(each, x) + 2 * loss_of(each, x)).backward()
                for _ in range(2 if kind == "accumulate" else kind != "twice"):
                    loss_of(each, x, kind == "checkpoint").backward()
            assert_rows(model, other, of=lambda p: p.grad)
            for optimizer in optimizers:
                optimizer.step()
            assert_rows(model, other)
            with ad.no_grad():
                assert (model(batch()) - other(batch())).abs().max().item() < 1e-10
        assert all(unit._unit.arrays is None for unit in (model, model.memory, *model.blocks))


def on_gradients_are_clipped_by_the_norm_of_all_ranks(rank, size):
    model, other = sharded(), Net()
    for order in (2.0, 1.0, float("inf")):
        for each, x in ((model, batch(rank, size)), (other, batch())):
            each.zero_grad()
            loss_of(each, x).backward()
        got, want = (nn.utils.clip_grad_norm_(m.parameters(), 0.01, order) for m in (model, other))
        assert abs(got.item() - want.item()) < 1e-10
        assert_rows(model, other, of=lambda p: p.grad)
    if rank == 1:
        model.head.weight.grad.fill_(float("nan"))
    for order in (2.0, float("inf")):
        with pytest.raises(ad.InvalidArgument, match="non-finite"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, order, error_if_nonfinite=True)


def on_batch_norm_of_all_ranks_equals_one_process(rank, size):
    numbers = np.random.default_rng(0)
    for shape, make in (((13, 3), nn.BatchNorm1d), ((7, 3, 2, 5), nn.BatchNorm2d)):
        x = ad.tensor(numbers.standard_normal(shape) * 3 + 100)
        y = ad.tensor(numbers.standard_normal(shape))
        for options in ({}, {"momentum": None}, {"affine": False, "track_running_stats": False}):
            other = nn.Sequential(make(3, **options)).double()
            model = nn.SyncBatchNorm.convert_sync_batchnorm(
                nn.Sequential(make(3, **options)).double()
            )
            assert type(model[0]) is nn.SyncBatchNorm
            for _ in range(2):
                whole = x.clone().requires_grad_()
                part = x[rank::size].clone().requires_grad_()  # of unequal sizes
                for m, inputs, targets in ((other, whole, y), (model, part, y[rank::size])):
                    m.zero_grad()
                    out = m(inputs)
                    (out * targets).sum().backward()
                want = other(x)[rank::size]
                got = model(x[rank::size])
                assert (got - want).abs().max().item() < 1e-8
                assert (part.grad - whole.grad[rank::size]).abs().max().item() < 1e-8
                for p, q in zip(model.parameters(), other.parameters(), strict=True):
                    dist.all_reduce(p.grad)
                    assert (p.grad - q.grad).abs().max().item() < 1e-8
            for a, b in zip(model.buffers(), other.buffers(), strict=True):
                assert (a - b).abs().max().item() < 1e-8
            model.eval(), other.eval()
            assert (model(x[:2]) - other(x[:2])).abs().max().item() < 1e-8
    one = ad.ones(1 if rank == 0 else 0, 3)
    with pytest.raises(ad.InvalidArgument, match="more than 1 value"):
        nn.SyncBatchNorm(3)(one)


def on_sharded_modules_that_start_differently_begin_as_rank_0(rank, size):
    ad.manual_seed(rank)
    model = nn.Linear(3, 4)
    fully_shard(model)
    ad.manual_seed(0)
    assert_rows(model, nn.Linear(3, 4))


def trained(model, optimizer, x, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def alone():
    """What the ranks' checkpoint is of, as one process makes it."""
    model = Net()
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    trained(model, optimizer, batch())
    return model, optimizer


def on_a_checkpoint_of_three_ranks(rank, size):
    """It is loaded by other numbers of ranks in the tests below."""
    model = sharded()
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    trained(model, optimizer, batch(rank, size))
    lone = Net()
    zero = ZeroRedundancyOptimizer(lone.parameters(), ad.optim.AdamW, lr=0.01)
    trained(lone, zero, batch())  # the same gradients on all ranks
    place = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(place)
    state = {"model": model, "optimizer": optimizer, "more": {"lone": lone, "zero": zero}}
    saving = checkpoints.async_save({**state, "epoch": 4}, checkpoint_id=place[0])
    with ad.no_grad():
        model.head.weight.zero_()  # after the copy
    saving.result()
    dist.barrier()
    checkpoints.load({"model": model}, checkpoint_id=place[0])
    checkpoints.save({**state, "epoch": 5}, checkpoint_id=place[0])
    if rank == 0:
        assert len(os.listdir(place[0])) == size + 1  # nothing is left of the first
    wrong = {"x": ad.ones(1), "y": object() if rank == 1 else 1}
    with pytest.raises((ad.InvalidType, ad.DistributedError), match="cannot store builtins"):
        checkpoints.save(wrong, checkpoint_id=place[0])
    return place[0]


# ---- tests ---------------------------------------------------------------------------------------

SCENARIOS = [value for name, value in list(globals().items()) if name.startswith("on_")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_scenario(engine, scenario, world):
    world.outcomes(scenario, engine)


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


def test_memory_of_a_sharded_model():
    """Of 6 layers there are: shards; in forward and backward whole parameters of two at most."""
    one = 256 * 256 * 4
    with fake(0, 4):
        model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(6)])
        for layer in (*model, model):
            fully_shard(layer)
        assert sum(p._data.nbytes for p in model.parameters()) == 6 * one // 4
        tracemalloc.start()
        try:
            for _ in range(2):
                model.zero_grad()
                begin, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                y = model(ad.ones(2, 256))
                now, peak = tracemalloc.get_traced_memory()
                assert now - begin < one // 2 and peak - begin < 2.5 * one
                tracemalloc.reset_peak()
                y.sum().backward()
                del y
                now, peak = tracemalloc.get_traced_memory()
                grads = 6 * one // 4
                assert now - begin < grads + one // 2
                # two layers, a whole gradient, and what is averaged
                assert peak - begin < grads + 4.5 * one
        finally:
            tracemalloc.stop()


def test_what_is_given_back_is_gathered_again_or_refused():
    with fake(1, 2) as engine:
        layer = fully_shard(nn.Linear(4, 4))
        kept = []
        layer.register_forward_pre_hook(lambda m, _: kept.append(m.weight))
        x = ad.ones(2, 4, requires_grad=True)
        y = layer(x).sum()
        (whole,) = kept
        assert whole.isnan().all() and not whole._data.flags.writeable  # not zeros, not old
        engine.calls.clear()
        y.backward()
        assert engine.calls == {"all_gather": 1, "reduce_scatter": 1}
        assert whole.isnan().all() and x.grad.shape == (2, 4) and not x.grad.isnan().any()
        y = layer(x).sum()
        with ad.no_grad():
            layer.weight.mul_(2)  # as a step between forward and backward
        with pytest.raises(ad.AutogradError, match="sharded parameter since"):
            y.backward()
        kept.clear()
        layer.register_forward_pre_hook(lambda m, _: m.weight.detach().mul_(0))
        y = layer(x).sum()  # what was gathered was written to, and would come back as it was
        with pytest.raises(ad.AutogradError, match="changed by 'mul_'"):
            y.backward()


def test_graphs_of_a_sharded_layer_live_side_by_side():
    """Kept, differentiated twice, in part, and left alone while a step changes the parameters."""
    with fake(0, 2):
        layer = fully_shard(nn.Linear(4, 4), reshard_after_forward=False)
        x = ad.ones(2, 4, requires_grad=True)
        first, second = layer(x).sum(), layer(x).sum()
        first.backward(retain_graph=True)
        g = layer.weight.grad.clone()
        first.backward()
        second.backward()
        assert layer.weight.grad.equal(3 * g) and layer._unit.arrays is None
        (of_x,) = ad.autograd.grad(layer(x).sum(), [x])
        assert of_x.shape == (2, 4)
        left = layer(x)
        with ad.no_grad():
            layer.weight.fill_(1.0), layer.bias.zero_()
        assert layer(x).tolist() == [[4.0] * 4] * 2  # and not of what was gathered for `left`
        with ad.inference_mode():
            assert layer(x).tolist() == [[4.0] * 4] * 2
        del left


def test_sharded_layers_travel_ahead_of_their_use():
    order = []
    with fake(0, 2) as engine:
        model = nn.Sequential(*[nn.Linear(3, 3, bias=False) for _ in range(3)])
        for i, layer in enumerate(model):
            fully_shard(layer)
            layer.forward = lambda x, f=layer.forward, i=i: order.append(i) or f(x)
        fully_shard(model)
        gather = engine.all_gather
        engine.all_gather = lambda *a: order.append("gather") or gather(*a)
        x = ad.ones(1, 3, requires_grad=True)
        model(x).sum().backward()
        order.clear()
        y = model(x).sum()
        assert order == ["gather", "gather", 0, "gather", 1, 2]
        order.clear()
        y.backward()
        assert order == ["gather"] * 3
        order.clear()
        model[0](x)  # what was fetched for a next layer that has not come is dropped
        assert all(layer._unit.under_way is None for layer in model)
        with ad.no_grad():
            model[1].weight.fill_(2.0)
        assert model[1](ad.ones(1, 3)).tolist() == [[6.0] * 3]


def test_a_forward_that_fails_leaves_shards():
    with fake(0, 2):
        layer = fully_shard(nn.Linear(4, 4))
        with pytest.raises(ad.ShapeError):
            layer(ad.ones(2, 5))
        assert layer.weight.shape == (2, 4) and layer._unit.arrays is None
        assert layer(ad.ones(2, 4)).shape == (2, 4)


def test_a_sharded_model_is_freed_without_the_collector():
    with fake(0, 2):
        model = nn.Sequential(fully_shard(nn.Linear(4, 4)))
        model(ad.ones(1, 4)).sum().backward()
        gone = weakref.ref(model[0])
        gc.disable()
        try:
            del model
            assert gone() is None
        finally:
            gc.enable()


def test_small_parameters_are_sharded_to_nothing():
    for size in (1, 3, 100):
        for rank in {0, size - 1}:
            with fake(rank, size):
                module = nn.Module()
                module.a = nn.Parameter(ad.zeros(0, 3))
                module.b = nn.Parameter(ad.tensor([2.0]))
                module.c = nn.Parameter(ad.ones(7, 2, dtype=ad.bfloat16))
                module.forward = lambda: module.a.sum() + module.b.sum() + module.c.float().sum()  # noqa: B023
                fully_shard(module)
                module().backward()
                for p in module.parameters():
                    assert p.grad.shape == p.shape and p.grad.dtype == p.dtype
                    assert p.grad.float().sum().item() == p.numel()


def test_what_cannot_be_sharded_is_refused():
    with fake(0, 2):
        with pytest.raises(ad.InvalidArgument, match="dimension"):
            module = nn.Module()
            module.a = nn.Parameter(ad.tensor(1.0))
            fully_shard(module)
        layer = fully_shard(nn.Linear(4, 4))
        with pytest.raises(ad.InvalidArgument, match="already"):
            fully_shard(layer)
        with pytest.raises(ad.Unsupported, match="copy it before"):
            copy.deepcopy(layer)
        other = nn.Linear(4, 4)
        model = nn.Sequential(layer, other)
        other.weight = layer.weight
        with pytest.raises(ad.InvalidArgument, match="shared"):
            fully_shard(model)
        for make in (ad.optim.Muon, ad.optim.Adafactor, ad.optim.LBFGS):
            with pytest.raises(ad.InvalidArgument, match="whole parameters"):
                make([layer.weight])
        with pytest.raises(ad.Unsupported, match="recorded"), ad.lazy():
            layer(ad.ones(1, 4))
        with pytest.raises(ad.Unsupported, match="mp_policy"):
            fully_shard(nn.Linear(1, 1), mp_policy=1)
        with pytest.raises(ad.AutogradError, match="create_graph"):
            layer(ad.ones(1, 4)).square().sum().backward(create_graph=True)
        layer.double()
        with pytest.raises(ad.InvalidArgument, match="before it is sharded"):
            layer(ad.ones(1, 4, dtype=ad.float64))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_checkpoint_is_loaded_by_other_numbers_of_ranks(engine, world):
    place = world.outcomes(on_a_checkpoint_of_three_ranks, engine)[0]
    model, optimizer = alone()
    for size, rank in ((1, 0), (2, 1), (3, 2), (8, 0), (8, 5), (8, 7)):
        with fake(rank, size):
            ad.manual_seed(9)
            other = sharded()
            again, lone = ad.optim.AdamW(other.parameters(), lr=0.5), Net()
            zero = ZeroRedundancyOptimizer(lone.parameters(), ad.optim.AdamW, lr=0.5)
            with ad.no_grad():
                for p in (*other.parameters(), *lone.parameters()):
                    p.zero_()
            state = {"model": other, "optimizer": again, "epoch": 0}
            state["more"] = {"lone": lone, "zero": zero}
            checkpoints.load(state, checkpoint_id=place)
            assert state["epoch"] == 5 and again.param_groups[0]["lr"] == 0.01
            assert_rows(other, model)
            for p, q in zip(other.parameters(), model.parameters(), strict=True):
                mine, whole = again.state[p], optimizer.state[q]
                assert mine.keys() == whole.keys()
                for name, value in mine.items():
                    part = whole[name]
                    if part.ndim:
                        part = part[p.division.first : p.division.first + len(p)]
                    assert value.shape == part.shape and value.dtype == part.dtype
                    assert (value - part).abs().sum().item() < 1e-10
            for piece in zero.pieces[0]:
                p = list(model.parameters())[piece.number]
                assert zero.optim.state[piece.tensor].keys() == optimizer.state[p].keys()
                for name in optimizer.state[p].keys() - {"step"}:
                    want = optimizer.state[p][name].reshape(-1)[piece.start : piece.stop]
                    got = zero.optim.state[piece.tensor][name]
                    assert (got - want).abs().sum().item() < 1e-10
    lone, plain = Net(), None  # without a group, and from ZeRO's to the plain optimizer
    plain = ad.optim.AdamW(lone.parameters())
    checkpoints.load({"more": {"lone": lone, "zero": plain}}, checkpoint_id=place)
    trained(lone, plain, batch(), 1)
    trained(model, optimizer, batch(), 1)
    for p, q in zip(lone.parameters(), model.parameters(), strict=True):
        assert (p - q).abs().sum().item() < 1e-10


def test_a_save_that_is_killed_leaves_the_one_before(tmp_path, monkeypatch):
    """All that a save does to the directory, it does by these two."""

    class Killed(BaseException):
        pass

    checkpoints.save({"x": ad.ones(3)}, checkpoint_id=tmp_path)
    steps = 0
    for name in ("replace", "unlink", "fsync"):
        real = getattr(os, name)
        for after in range(4):
            for before in (True, False):
                left = [after]

                def act(*args, left=left, real=real, before=before, **kwargs):
                    if not left[0] and before:
                        raise Killed
                    found = real(*args, **kwargs)
                    if not left[0]:
                        raise Killed
                    left[0] -= 1
                    return found

                value = 2.0 + steps
                with monkeypatch.context() as patch, contextlib.suppress(Killed):
                    patch.setattr(os, name, act)
                    checkpoints.save({"x": ad.full((3,), value)}, checkpoint_id=tmp_path)
                checkpoints.load({"x": (x := ad.zeros(3))}, checkpoint_id=tmp_path)
                assert x.tolist() in ([value] * 3, [1.0] * 3), (name, after, before)
                checkpoints.save({"x": ad.ones(3)}, checkpoint_id=tmp_path)
                steps += 1
    assert len(os.listdir(tmp_path)) == 2


def test_a_checkpoint_is_read_in_slices(tmp_path):
    """Of a rank's own size, and nothing beside."""
    checkpoints.save({"m": nn.Linear(1000, 1000, bias=False)}, checkpoint_id=tmp_path)
    with fake(2, 8):
        layer = fully_shard(nn.Linear(1000, 1000, bias=False))
        tracemalloc.start()
        try:
            checkpoints.load({"m": layer}, checkpoint_id=tmp_path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 100_000


def test_checkpoints_that_are_not_whole_are_refused(tmp_path):
    def load(name="x", x=None):
        checkpoints.load({name: ad.zeros(3) if x is None else x}, checkpoint_id=tmp_path)

    with pytest.raises(ad.CheckpointError, match="no whole checkpoint"):
        load()
    checkpoints.save({"x": ad.ones(3), "z": ad.ones(2, dtype=ad.complex64)}, checkpoint_id=tmp_path)
    checkpoints.load({"z": (z := ad.zeros(2, dtype=ad.complex64))}, checkpoint_id=tmp_path)
    checkpoints.load({"x": (x := ad.zeros(3, 2))[:, 1]}, checkpoint_id=tmp_path)  # with gaps
    assert z.tolist() == [1, 1] and x.tolist() == [[0, 1]] * 3
    for message, arguments in (
        ("has no y", ("y",)), ("float32", ("x", ad.zeros(3, dtype=ad.float64))),
        ("and float32", ("x", ad.zeros(4))),
    ):  # fmt: skip
        with pytest.raises(ad.CheckpointError, match=message):
            load(*arguments)
    (file,) = tmp_path.glob("*.safetensors")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"\x01")
    with pytest.raises(ad.CheckpointError, match="altered"):
        checkpoints.load({"z": z, "x": ad.zeros(3)}, checkpoint_id=tmp_path)
    file.write_bytes(data[:20])
    with pytest.raises(ad.CheckpointError, match="whole file"):
        load()
    file.unlink()
    with pytest.raises(ad.CheckpointError, match="whole file"):
        load()


def test_indexes_that_nobody_wrote_are_refused(tmp_path):
    """Whatever stands in one: CheckpointError, in no time, without memory for what it claims."""
    model = nn.Linear(2, 2)
    optimizer = ad.optim.Adam(model.parameters())
    model(ad.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"m": model, "o": optimizer}
    checkpoints.save(state, checkpoint_id=tmp_path)
    place = tmp_path / "index.json"
    plain = json.loads(place.read_bytes())
    tensors = plain["tensors"]
    own = next(name for name in tensors if name.startswith("o.state.0.exp_avg"))

    def altered(**entry):
        return {**plain, "tensors": {**tensors, own: {**tensors[own], **entry}}}

    name, first, count = tensors[own]["parts"][0]
    hostile = [
        b"[" * 100_000, b"{", b"[]", b"3", b'{"version": 1}', {**plain, "version": 2},
        {**plain, "tensors": 3}, {**plain, "tensors": {own: 3}}, {**plain, "values": []},
        {**plain, "values": {**plain["values"], "o.param_groups": 3}},
        altered(shape=[1 << 50]), altered(shape=[-1]), altered(shape="x"), altered(shape=[2.5]),
        altered(dtype="object"), altered(dtype=["float32"]), altered(parts=3), altered(parts=[3]),
        altered(parts=[[name, first]]), altered(parts=[[3, first, count]]),
        altered(parts=[["../index.json", first, count]]), altered(parts=[[name, -1, count]]),
        altered(parts=[]), {**plain, "tensors": {**tensors, "o.state.x.exp_avg": tensors[own]}},
    ]  # fmt: skip
    for each in hostile:
        place.write_bytes(each if type(each) is bytes else json.dumps(each).encode())
        with pytest.raises(ad.CheckpointError):
            checkpoints.load(state, checkpoint_id=tmp_path)
    place.write_bytes(json.dumps(plain).encode())
    (file,) = tmp_path.glob("*.safetensors")
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    for header in (b"[" * 10_000, b"[]", b"{}", b'{"__metadata__": 3}', b'{"__metadata__": {}}'):
        file.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
        with pytest.raises(ad.CheckpointError):
            checkpoints.load(state, checkpoint_id=tmp_path)
    file.write_bytes(data)
    checkpoints.load(state, checkpoint_id=tmp_path)


def calls_of_a_step(kind, size):
    """Calls of Python functions, messages, and bytes that stay, of one training step of a rank."""
    with fake(size // 2, size) as engine:
        ad.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4096), nn.Tanh(), nn.Linear(4096, 8))
        if kind == "sharded":
            for each in (*model, model):
                fully_shard(each)
            optimizer = ad.optim.AdamW(model.parameters(), lr=0.1)
        else:
            model = nn.parallel.DistributedDataParallel(model)
            optimizer = ZeroRedundancyOptimizer(model.parameters(), ad.optim.AdamW, lr=0.1)
        count = [0]

        def step():
            optimizer.zero_grad()
            model(ad.ones(2, 8)).square().sum().backward()
            optimizer.step()

        for _ in range(3):
            step()
        engine.calls.clear()
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, _: count.__setitem__(0, count[0] + (event == "call")))
        try:
            step()
        finally:
            sys.setprofile(before)
        inner = getattr(optimizer, "optim", optimizer)
        kept = sum(v._data.nbytes for s in inner.state.values() for v in s.values())
        return count[0], dict(engine.calls), kept, len(inner.state)


@pytest.mark.parametrize("kind", ["sharded", "zero"])
def test_a_step_of_4096_ranks_costs_what_one_of_64_does(kind):
    few, many = calls_of_a_step(kind, 64), calls_of_a_step(kind, 4096)
    assert few[1] == many[1]  # messages
    assert many[0] <= few[0] + 10  # calls
    parameters = 4096 * 8 + 4096 + 8 * 4096 + 8
    # Rows are whole: a rank has one at least of each parameter, where it has one.
    padding = 0 if kind == "zero" else 4096
    assert many[2] <= 2 * 4 * (parameters // 4096 + 1 + padding) + 4 * many[3]


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


def test_the_copy_of_one_asynchronous_save_is_the_memory_of_the_next(tmp_path):
    model, x = nn.Linear(4, 3), ad.zeros(5)
    first = checkpoints.async_save({"model": model, "x": x}, checkpoint_id=tmp_path)
    copies = {part.name: part.data for part in first.job.parts}
    with ad.no_grad():
        model.weight.fill_(2)
    x = ad.ones(6)  # of another size: it gets memory of its own
    second = checkpoints.async_save({"model": model, "x": x}, checkpoint_id=tmp_path)
    with ad.no_grad():
        model.weight.fill_(3)
        x.zero_()
    again = {part.name: part.data for part in second.job.parts}
    assert again["model.weight"] is copies["model.weight"] and again["x"] is not copies["x"]
    second.result()
    state = {"model": nn.Linear(4, 3), "x": ad.zeros(6)}
    checkpoints.load(state, checkpoint_id=tmp_path)
    assert (state["model"].weight == 2).all() and (state["x"] == 1).all()


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_on_two_ranks(engine):
    done = run(["--nproc", 2, "--engine", engine, ROOT / "examples/zero_gpt.py"], ADJOINT_SMOKE="1")
    assert "state on this rank: 0.500 of" in done.stdout
