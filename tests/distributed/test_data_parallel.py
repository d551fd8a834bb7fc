"""Data-parallel training on several ranks equals training on all data in one process."""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np
import pytest

import adjoint as ad
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed.algorithms.ddp_comm_hooks import default_hooks
from adjoint.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.worlds import ENGINES, ROOT, run

TOLERANCE = {ad.float64: 1e-10, ad.float32: 1e-5}


class Net(nn.Module):
    """With a shared, a frozen, and an (in `forward`) unused parameter, and a buffer."""

    def __init__(self, dtype=ad.float64, unused=False):
        super().__init__()
        ad.manual_seed(3)
        self.first, self.second = nn.Linear(6, 15), nn.Linear(15, 15)
        self.last = nn.Linear(15, 4)
        self.again = self.second  # shared
        self.first.bias.requires_grad_(False)
        if unused:
            self.spare, self.other = nn.Linear(6, 4), nn.Linear(6, 4)
        self.register_buffer("scale", ad.tensor(2.0))
        self.to(dtype)

    def forward(self, x, more=""):
        y = self.last(self.again(self.second(self.first(x).tanh()).tanh()).tanh()) * self.scale
        if "s" in more:
            y = y + self.spare(x)
        if "o" in more:
            y = y + self.other(x)
        return y


def data(dtype=ad.float64, n=24):
    numbers = np.random.default_rng(0)
    x, y = numbers.standard_normal((n, 6)), numbers.standard_normal((n, 4))
    return ad.tensor(x, dtype=dtype), ad.tensor(y, dtype=dtype)


OPTIMIZERS = {
    "SGD": lambda p: ad.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: ad.optim.AdamW(p, lr=0.01),
}


def alone(make, steps, dtype, model=None):
    """The parameters after training on everything."""
    model = model or Net(dtype)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    x, y = data(dtype)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


def assert_equal(model, other, dtype=ad.float64):
    for (name, a), (_, b) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=0, atol=TOLERANCE[dtype], err_msg=name
        )


def digest(model):
    parts = [p.detach().numpy().tobytes() for p in model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def assert_same_bits(model):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, digest(model))
    assert len(set(found)) == 1


def share(rank, size, dtype=ad.float64):
    x, y = data(dtype)
    return x[rank::size], y[rank::size]


# ---- scenarios -----------------------------------------------------------------------------------


def on_training_equals_one_process(rank, size):
    for dtype in (ad.float64, ad.float32):
        for name, make in OPTIMIZERS.items():
            for views in (False, True):
                model = DDP(Net(dtype), gradient_as_bucket_view=views, bucket_cap_mb=0.001)
                assert len(model._reducer.buckets) > 1
                optimizer = make(model.parameters())
                x, y = share(rank, size, dtype)
                for step in range(5):
                    optimizer.zero_grad(set_to_none=step % 2 == 0)
                    nn.functional.mse_loss(model(x), y).backward()
                    optimizer.step()
                assert_equal(model.module, alone(make, 5, dtype), dtype)
                assert_same_bits(model), name


def on_views_are_gradients_in_the_buckets(rank, size):
    model = DDP(Net(), gradient_as_bucket_view=True)
    (bucket,) = model._reducer.buckets
    x, y = share(rank, size)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(x), y).backward()
        low = bucket.row.__array_interface__["data"][0]
        for p in model.parameters():
            if p.requires_grad:
                assert low <= p.grad.data_ptr() < low + bucket.row.nbytes
                assert p.grad.data_ptr() % p.grad.element_size() == 0


def on_uneven_shards(rank, size):
    """The mean of the ranks' means, whatever their sizes, as in PyTorch."""
    x, y = data()
    cuts = [0, 3, 11, 24] if size == 3 else [0, 24]
    model = DDP(Net())
    mine = slice(cuts[rank], cuts[rank + 1])
    nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
    other = Net()
    for r in range(size):
        part = slice(cuts[r], cuts[r + 1])
        (nn.functional.mse_loss(other(x[part]), y[part]) / size).backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=0, atol=1e-12)


def on_micro_batches(rank, size):
    for views in (False, True):
        model = DDP(Net(), gradient_as_bucket_view=views)
        x, y = share(rank, size)
        half = len(x) // 2
        with model.no_sync():
            (nn.functional.mse_loss(model(x[:half]), y[:half]) / 2).backward()
        local = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        (nn.functional.mse_loss(model(x[half:]), y[half:]) / 2).backward()
        other = Net()
        whole = data()
        nn.functional.mse_loss(other(whole[0]), whole[1]).backward()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            if q.grad is not None:
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=0, atol=1e-12)
        assert any(
            not np.allclose(g.numpy(), q.grad.numpy())
            for g, q in zip(
                local, (q for q in other.parameters() if q.grad is not None), strict=True
            )
        )


def on_two_averages_add_up(rank, size):
    """Without zero_grad between: each backward adds its average, on all ranks the same."""
    model = DDP(Net(unused=True), find_unused_parameters=True)
    other = Net(unused=True)
    for round_ in range(2):
        x, y = share(rank, size)
        more = "s" if (rank + round_) % 2 else ""
        nn.functional.mse_loss(model(x, more), y).backward()
        for r in range(size):
            x, y = share(r, size)
            loss = nn.functional.mse_loss(other(x, "s" if (r + round_) % 2 else ""), y)
            (loss / size).backward()
    assert_gradients(model.module, other)


def assert_gradients(model, other):
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            np.testing.assert_allclose(
                p.grad.numpy(), q.grad.numpy(), rtol=0, atol=1e-12, err_msg=name
            )


def on_two_models_in_one_loop(rank, size):
    """A generator and a discriminator, both wrapped, each trained through the other."""

    def train(g, d, z, real):
        go, do = ad.optim.SGD(g.parameters(), lr=0.1), ad.optim.SGD(d.parameters(), lr=0.1)
        for _ in range(3):
            do.zero_grad()
            loss = (
                nn.functional.softplus(-d(real)).mean()
                + nn.functional.softplus(d(g(z).detach())).mean()
            )
            loss.backward()
            do.step()
            go.zero_grad()
            nn.functional.softplus(-d(g(z))).mean().backward()
            go.step()

    def made():
        ad.manual_seed(5)
        return nn.Linear(6, 5).double(), nn.Sequential(
            nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)
        ).double()

    x, _ = data()
    real = data()[0][:, :5] * 2
    g, d = made()
    train(g, d, x, real)
    gs, ds = made()
    train(DDP(gs), DDP(ds), x[rank::size], real[rank::size])
    assert_equal(gs, g)
    assert_equal(ds, d)
    assert_same_bits(gs)


def on_several_losses_of_one_forward(rank, size):
    """Two forwards, then two backwards: both are averaged."""
    model, other = DDP(Net()), Net()
    x, y = share(rank, size)
    a, b = nn.functional.mse_loss(model(x), y), nn.functional.l1_loss(model(x), y)
    a.backward()
    b.backward()
    x, y = data()
    nn.functional.mse_loss(other(x), y).backward()
    nn.functional.l1_loss(other(x), y).backward()
    assert_gradients(model.module, other)


def on_parameters_and_buffers_begin_as_those_of_rank_0(rank, size):
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with ad.no_grad():
        for x in (*module.parameters(), module[1].running_mean):
            x.fill_(float(rank + 1))
    model = DDP(module)
    assert all((p == 1).all() for p in model.parameters())
    assert module[1].running_mean.tolist() == [1, 1, 1]
    for _ in range(2):
        model(ad.randn(8, 3, generator=ad.Generator().manual_seed(rank))).sum().backward()
    mine = module[1].running_mean.clone()
    model(ad.ones(8, 3))  # before which it becomes rank 0's
    found = [None] * size
    dist.all_gather_object(found, [mine, module[1].running_mean, module[1].num_batches_tracked])
    assert len({tuple(row[0].tolist()) for row in found}) == size
    assert len({tuple(row[1].tolist()) for row in found}) == 1
    assert {row[2].item() for row in found} == {3}


def unused(rank, size, more, **options):
    model = DDP(Net(unused=True), **options)
    x, y = share(rank, size)
    nn.functional.mse_loss(model(x, more), y).backward()
    return model


def on_unused_parameters_are_named_on_every_rank(rank, size):
    said = []
    for more in ("so" if rank else "o", "" if rank == 1 else "so", ""):
        with pytest.raises(ad.DistributedError, match="find_unused_parameters") as caught:
            unused(rank, size, more, bucket_cap_mb=0.001)
        said.append(str(caught.value))
    dist.barrier()  # the group can still be used
    return said


def on_unused_parameters_with_the_flag(rank, size):
    """A set that differs from rank to rank and from micro-batch to micro-batch."""
    sets = [["s", ""], ["", "o"], ["s", ""]]  # by rank: of two micro-batches
    for views in (False, True):
        model = DDP(Net(unused=True), find_unused_parameters=True, gradient_as_bucket_view=views)
        other = Net(unused=True)
        for _ in range(2):
            model.zero_grad()
            other.zero_grad()
            for k in range(2):
                x, y = share(rank, size)
                with model.no_sync() if k == 0 else contextlib.nullcontext():
                    nn.functional.mse_loss(model(x, sets[rank][k]), y).backward()
                for r in range(size):
                    x, y = share(r, size)
                    (nn.functional.mse_loss(other(x, sets[r][k]), y) / size).backward()
            assert_gradients(model.module, other)
    model = unused(rank, size, "", find_unused_parameters=True)
    assert model.module.spare.weight.grad is None  # on no rank


def on_static_graph(rank, size):
    """Checkpoints that run backwards inside of one another; unused parameters."""
    from adjoint.utils.checkpoint import checkpoint

    def forward(model, x):
        x = x.requires_grad_()
        hidden = checkpoint(lambda t: model.second(model.first(t).tanh()), x, use_reentrant=True)
        return model.last(checkpoint(lambda t: model.second(t.tanh()), hidden, use_reentrant=True))

    class Whole(Net):
        def forward(self, x):
            return forward(self, x)

    model, other = DDP(Whole(unused=True), static_graph=True), Whole(unused=True)
    for _ in range(3):
        model.zero_grad()
        other.zero_grad()
        x, y = share(rank, size)
        nn.functional.mse_loss(model(x.clone()), y).backward()
        x, y = data()
        nn.functional.mse_loss(other(x), y).backward()
        assert_gradients(model.module, other)


def on_join(rank, size):
    """Ranks with 2, 4, 6 batches, with micro-batches: it ends, and all are the same."""
    for accumulate in (False, True):
        for views in (False, True):
            module = Net()
            module.norm = nn.BatchNorm1d(4).double()
            module.forward = lambda x, m=module: m.norm(Net.forward(m, x))
            model = DDP(module, gradient_as_bucket_view=views)
            optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
            x, y = share(rank, size)
            with model.join():
                for k in range(2 * rank + 2):
                    silent = accumulate and k % 2 == 0
                    with model.no_sync() if silent else contextlib.nullcontext():
                        nn.functional.mse_loss(model(x), y).backward()
                    if not silent:
                        optimizer.step()
                        optimizer.zero_grad()
            assert_same_bits(model)
            assert model.module.norm.num_batches_tracked.item() == 2 * size


def on_join_divides(rank, size):
    """By all ranks, or by those that still train."""
    for initial in (True, False):
        model = DDP(nn.Linear(1, 1, bias=False).double())
        weight = model.module.weight
        got = []
        with model.join(divide_by_initial_world_size=initial):
            for _ in range(rank + 1):
                weight.grad = None
                (model(ad.ones(1, 1, dtype=ad.float64)) * (rank + 1)).sum().backward()
                got.append(weight.grad.item())
        for k, g in enumerate(got):  # in step k the ranks from k on train
            active = range(k, size)
            assert abs(g - sum(r + 1 for r in active) / (size if initial else len(active))) < 1e-12


def on_join_that_throws(rank, size):
    model = DDP(nn.Linear(1, 1))
    with (
        pytest.raises(ad.DistributedError, match="exhausted inputs") as caught,
        model.join(throw_on_early_termination=True),
    ):
        for _ in range(rank + 1):
            model(ad.ones(1, 1)).sum().backward()
    return str(caught.value)


def on_hooks(rank, size):
    x, y = share(rank, size, ad.float32)

    def gradients(hook, **options):
        model = DDP(Net(ad.float32, unused=True), bucket_cap_mb=0.001, **options)
        if hook is not None:
            model.register_comm_hook(None, hook)
            with pytest.raises(ad.InvalidArgument, match="once"):
                model.register_comm_hook(None, hook)
        nn.functional.mse_loss(model(x, "so" if rank else "o"), y).backward()
        return [p.grad.numpy() for p in model.parameters() if p.grad is not None]

    plain = gradients(None, find_unused_parameters=True)
    seen = []

    def noting(state, bucket):
        seen.append((bucket.index(), bucket.is_last(), sum(p.numel() for p in bucket.parameters())))
        assert sum(g.numel() for g in bucket.gradients()) == bucket.buffer().numel() == seen[-1][2]
        return default_hooks.allreduce_hook(state, bucket)

    for hook, tolerance in (
        (noting, 1e-6), (default_hooks.bf16_compress_hook, 1e-2),
        (default_hooks.fp16_compress_hook, 1e-3),
    ):  # fmt: skip
        for views in (False, True):
            got = gradients(hook, find_unused_parameters=True, gradient_as_bucket_view=views)
            for a, b in zip(got, plain, strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    order = [index for index, _, _ in seen]
    assert order == list(range(len(order) // 2)) * 2 and [last for _, last, _ in seen][-1]


def on_modules_that_differ(rank, size):
    said = []
    for module in (nn.Linear(2, 3 + rank), nn.Sequential(*[nn.Linear(2, 2)] * (1 + (rank == 2)))):
        model = nn.Sequential(*[nn.Linear(2, 2) for _ in module]) if len(said) else module
        with pytest.raises(ad.InvalidArgument, match="modules differ") as caught:
            DDP(model)
        said.append(str(caught.value))
    return said


def on_refusals(rank, size):
    model = DDP(nn.Linear(2, 2))
    said = []

    @ad.compile
    def step(x):
        return model(x).sum()

    @ad.compile
    def past(x):
        model.module(x).sum().backward()

    with pytest.raises(ad.Unsupported, match="cannot be recorded"):
        past(ad.ones(2, 2))
    for error, call in (
        (ad.Unsupported, lambda: step(ad.ones(2, 2))),
        (ad.AutogradError, lambda: model(ad.ones(2, 2)).square().sum().backward(create_graph=True)),
    ):
        with pytest.raises(error) as caught:
            call()
        said.append(str(caught.value))
    model = DDP(Net())
    model.module.first.bias.requires_grad_(True)
    with pytest.raises(ad.AutogradError, match="wrap the module again") as caught:
        model(data()[0])
    said.append(str(caught.value))
    return said


def on_a_module_that_a_checkpoint_runs_again(rank, size):
    """The wrapped forward runs inside of the backward that averages."""
    from adjoint.utils.checkpoint import checkpoint

    for views in (False, True):
        options = {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": views}
        model, other = DDP(nn.Linear(6, 6).double(), static_graph=True, **options), None
        ad.manual_seed(0)
        other = nn.Linear(6, 6).double()
        other.load_state_dict(model.module.state_dict())
        for _ in range(2):
            for module, (x, _) in ((model, share(rank, size)), (other, data())):
                module.zero_grad()
                x = x.clone().requires_grad_()
                hidden = checkpoint(module, x, use_reentrant=True).tanh()
                module(hidden).square().mean().backward()
        assert_gradients(model.module, other)


def on_a_module_that_is_compiled(rank, size):
    """What computes may be compiled, with the averages outside."""
    for views in (False, True):
        module, other = Net(), Net()
        module.forward = ad.compile(module.forward)
        model = DDP(module, gradient_as_bucket_view=views, bucket_cap_mb=0.001)
        for _ in range(3):
            for each, (x, y) in ((model, share(rank, size)), (other, data())):
                each.zero_grad()
                nn.functional.mse_loss(each(x), y).backward()
            assert_gradients(module, other)


def on_a_module_that_has_changed(rank, size):
    model = DDP(nn.Linear(2, 2))
    model.double()
    with pytest.raises(ad.AutogradError, match="wrap the module again"):
        model(ad.ones(2, 2, dtype=ad.float64)).sum().backward()


def on_small_and_empty_parameters(rank, size):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(ad.tensor(2.0))
            self.b = nn.Parameter(ad.zeros(0, 3))
            self.c = nn.Parameter(ad.ones(1, dtype=ad.float64))
            self.d = nn.Parameter(ad.ones(15, dtype=ad.bfloat16))
            self.e = nn.Parameter(ad.ones(2, dtype=ad.complex64))

        def forward(self, x):
            whole = self.a * x + self.b.sum() + self.c * x + self.d.sum() * x
            return whole.sum() + (self.e * self.e.conj()).real.sum() * x

    for views in (False, True):
        model = DDP(Odd(), gradient_as_bucket_view=views)
        model(float(rank)).sum().backward()
        mean = (size - 1) / 2
        grads = [p.grad for p in model.parameters()]
        assert [g.dtype for g in grads] == [p.dtype for p in model.parameters()]
        assert grads[0].item() == mean and grads[1].shape == (0, 3) and grads[2].item() == mean
        assert grads[3].float().tolist() == [mean] * 15
        assert grads[4].tolist() == [2 * mean] * 2


def on_frozen_in_turns(rank, size):
    """A parameter that is frozen later, and wants its gradient again."""
    model, other = DDP(Net(), gradient_as_bucket_view=True), Net()
    for wants in (True, False, True):
        for module, (x, y) in ((model, share(rank, size)), (other, data())):
            (module.module if module is model else other).last.requires_grad_(wants)
            nn.functional.mse_loss(module(x), y).backward()
        assert_gradients(model.module, other)


def on_copies_are_not_averaged(rank, size):
    import copy

    model = DDP(Net())
    copied = copy.deepcopy(model.module)
    x, y = share(rank, size)
    nn.functional.mse_loss(model(x), y).backward()
    before = dist.group.WORLD.calls
    nn.functional.mse_loss(copied(x), y).backward()
    assert dist.group.WORLD.calls == before


def on_workers_of_a_loader(rank, size):
    sampler = ad.utils.data.DistributedSampler(range(size * 4), shuffle=False)
    loader = ad.utils.data.DataLoader(list(range(size * 4)), sampler=sampler, num_workers=1)
    dist.all_reduce(total := ad.tensor(sum(int(x) for x in loader)))
    assert total.item() == sum(range(size * 4))


def on_a_backward_that_failed_is_forgotten(rank, size):
    model, other = DDP(Net(), bucket_cap_mb=0.001), Net()
    x, y = share(rank, size)

    def fail(_):
        raise KeyError("user's hook")

    handle = model.module.first.weight.register_hook(fail)
    with pytest.raises(KeyError):
        nn.functional.mse_loss(model(x), y).backward()
    handle.remove()
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    x, y = data()
    nn.functional.mse_loss(other(x), y).backward()
    assert_gradients(model.module, other)


# ---- tests ---------------------------------------------------------------------------------------

SCENARIOS = [value for name, value in list(globals().items()) if name.startswith("on_")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("engine", ENGINES)
def test_scenario(engine, scenario, world):
    world.outcomes(scenario, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_who_lacks_which_gradient_is_said_everywhere(engine, world):
    for some, one, all_ in world.outcomes(on_unused_parameters_are_named_on_every_rank, engine):
        assert "on rank 0: spare.weight, spare.bias)" in some
        assert "on rank 1: spare.weight, spare.bias, other.weight, other.bias)" in one
        assert all(f"on rank {r}: spare.weight" in all_ for r in range(3))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_refused_says_why(engine, world):
    for compiled, twice, _ in world.outcomes(on_refusals, engine):
        assert "compile: DistributedDataParallel: communication cannot be recorded" in compiled
        assert "create_graph" in twice
    for shapes, counts in world.outcomes(on_modules_that_differ, engine):
        assert "rank 0 has weight: (3, 2)" in shapes and "rank 1 has weight: (4, 2)" in shapes
        assert "rank 0 has 2 parameters, rank 2 has 4" in counts


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_other_numbers_of_ranks(size, engine, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "import adjoint.distributed as dist\n"
        "from tests.distributed import test_data_parallel as t\n"
        "dist.init_process_group(timeout=20)\n"
        "t.on_training_equals_one_process(dist.get_rank(), dist.get_world_size())\n"
        "os.write(1, b'equal %d\\n' % dist.get_rank())\n"  # in one piece
        "dist.destroy_process_group()\n"
    )
    done = run(["--nproc", size, "--engine", engine, program])
    assert sorted(done.stdout.split()) == sorted(["equal"] * size + [str(r) for r in range(size)])


def test_one_process_sends_nothing_but_one_message_a_bucket():
    dist.init_process_group("fake", rank=1, world_size=4096)
    try:
        model = DDP(Net(), bucket_cap_mb=0.001)
        engine = dist.group.WORLD.engine
        engine.calls.clear()
        nn.functional.mse_loss(model(data()[0]), data()[1]).backward()
        assert engine.calls == {"all_reduce": len(model._reducer.buckets), "broadcast": 1}
    finally:
        dist.destroy_process_group()


def test_small_buffers_travel_together():
    """One message for the statistics of all norms, and one for their counts; large ones alone."""
    model = nn.Sequential(*(m for _ in range(5) for m in (nn.Linear(4, 4), nn.BatchNorm1d(4))))
    model.register_buffer("table", ad.zeros(1 << 17))
    model.register_buffer("other", ad.zeros(3))
    model.register_buffer("none", ad.zeros(0, 3))
    dist.init_process_group("fake", rank=1, world_size=8)
    try:
        parallel = DDP(model)
        sent = dist.group.WORLD.engine.calls
        before = sent["broadcast"]
        parallel(ad.randn(2, 4))
        assert sent["broadcast"] - before == 3
    finally:
        dist.destroy_process_group()


def test_one_rank_sends_and_copies_nothing():
    """Each gradient stays where backward has put it, and what is refused on many ranks is here."""
    dist.init_process_group()
    try:
        for views in (False, True):
            model = DDP(Net(unused=True), gradient_as_bucket_view=views)
            engine = dist.group.WORLD.engine
            engine.calls.clear()
            for _ in range(2):
                nn.functional.mse_loss(model(data()[0], "so"), data()[1]).backward()
            assert not engine.calls
            other = Net(unused=True)
            for _ in range(2):
                nn.functional.mse_loss(other(data()[0], "so"), data()[1]).backward()
            for bucket in model._reducer.buckets:
                assert views or not bucket.row.any()  # nothing was copied
            assert_gradients(model.module, other)
            with pytest.raises(ad.DistributedError, match="on rank 0: spare"):
                model(data()[0], "o").sum().backward()
            with pytest.raises(ad.AutogradError, match="create_graph"):
                model(data()[0], "so").square().sum().backward(create_graph=True)
    finally:
        dist.destroy_process_group()


def test_a_model_that_is_dropped_leaves_no_hooks_that_act():
    dist.init_process_group()
    try:
        module = Net()
        DDP(module)
        nn.functional.mse_loss(module(data()[0]), data()[1]).backward()
        assert module.first.weight.grad is not None
    finally:
        dist.destroy_process_group()


def test_sparse_gradients_are_refused_by_name():
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        layers = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
        model = DDP(layers)
        message = r"'0.weight' of shape \(5, 3\) has a sparse gradient.*sparse=False"
        with pytest.raises(ad.LayoutError, match=message):
            model(ad.tensor([1, 2])).sum().backward()
        layers[0].sparse = False
        layers.zero_grad()
        model(ad.tensor([1, 1])).sum().backward()
        assert not layers[0].weight.grad.is_sparse
    finally:
        dist.destroy_process_group()


def test_one_rank_keeps_its_sparse_gradients():
    dist.init_process_group()
    try:
        model = DDP(nn.Embedding(5, 3, sparse=True))
        model(ad.tensor([1, 1])).sum().backward()
        expected = np.zeros((5, 3), np.float32)
        expected[1] = 2
        assert (model.module.weight.grad.to_dense().numpy() == expected).all()
    finally:
        dist.destroy_process_group()


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_on_two_ranks(engine):
    pytest.importorskip("sklearn")
    done = run(
        ["--nproc", 2, "--engine", engine, ROOT / "examples/ddp_digits.py"], ADJOINT_SMOKE="1"
    )
    assert done.stdout.startswith("ranks: 2\nlast loss: ")
