"""What changes between and within compiled calls, on a device of PyTorch's: places, arguments,
options, schedules, GradScaler, memory that tensors share, and what is refused there.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import adjoint as ad
from adjoint import nn
from adjoint.compiler.device.device_step import OnDevice
from adjoint.core.errors import AutogradError, Unsupported

from .test_device import DEVICES, Pair, close


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


class Running(nn.Module):
    """A module that keeps tensors and numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", ad.zeros(3))
        self.hidden = None
        self.steps = 0
        self.warmth = 0.5

    def forward(self, x):
        y = self.linear(x)
        self.mean = 0.9 * self.mean + 0.1 * y.mean(0).detach()
        self.hidden = ad.tanh(self.hidden + self.mean)
        self.steps += 1
        self.warmth = self.warmth * 0.9 + 0.01
        return y * self.warmth + self.hidden / self.steps


def running(device):
    ad.manual_seed(0)
    model = Running().to(device)
    model.hidden = ad.zeros(3, device=device)
    return model


def test_places_hold_what_eager_calls_leave_there(device):
    eager, other = running(device), running(device)
    compiled = ad.compile(lambda x: other(x))
    for k in range(5):
        x = ad.randn(4, 3, device=device)
        close(compiled(x), eager(x))
        if k == 2:
            for model in (eager, other):
                model.warmth, model.hidden = 2.0, ad.ones(3, device=device)
    close(other.mean, eager.mean)
    close(other.hidden, eager.hidden)
    assert (other.steps, other.warmth) == (eager.steps, pytest.approx(eager.warmth))
    assert len(compiled.programs) == 1
    assert type(compiled.programs[0]) is OnDevice


def test_a_place_that_moves_has_another_program(device):
    model = running(device)
    compiled = ad.compile(lambda: model.hidden * 2)
    assert compiled().device.type == device
    model.hidden = model.hidden.to("cpu")
    assert compiled().device.type == "cpu"
    assert [type(each) is OnDevice for each in compiled.programs].count(True) == 1


@pytest.mark.parametrize("shape", [(3,), (1,), (0, 3), (15, 7)])
def test_arguments_are_written(device, shape):
    def function(x, y):
        x.mul_(2).add_(y)
        y[..., 0] = 5.0
        return x.sum()

    compiled = ad.compile(function)
    rows = []
    for run in (function, compiled):
        ad.manual_seed(1)
        x, y = ad.randn(*shape, device=device), ad.randn(*shape, device=device)
        shown = x[:1]
        rows.append([*(run(x, y).tolist() for _ in range(4)), *map(ad.Tensor.tolist, (x, y))])
        rows[-1].append(shown.tolist())
    for found, expected in zip(rows[1], rows[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_arguments_that_cannot_be_written_are_refused_and_stay(device):
    w = nn.Parameter(ad.ones(4, device=device))
    compiled = ad.compile(lambda x, y: (x.mul_(2), (y * w).sum())[1])
    y = ad.ones(4, device=device)
    compiled(ad.ones(4, device=device), y)
    with pytest.raises(AutogradError, match="expanded"):
        compiled(ad.ones(1, device=device).expand(4), y)
    base = ad.ones(5, device=device)
    for x, other in ((y, y[:]), (base[1:], base[:4]), (w.detach(), y)):
        with pytest.raises(Unsupported, match="shown by another tensor"):
            compiled(x, other)
    assert base.tolist() == [1] * 5 and w.tolist() == y.tolist() == [1] * 4


def test_an_argument_that_shows_what_a_step_writes_is_refused(device):
    w = nn.Parameter(ad.ones(3, device=device))
    optimizer = ad.optim.SGD([w], lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    step(ad.ones(3, device=device))
    before = w.tolist()
    with pytest.raises(Unsupported, match="shown by another tensor"):
        step(w.detach())
    assert w.tolist() == before


def test_tensors_of_one_memory_are_one_state(device):
    x = ad.ones(3, device=device)
    shown = x.detach()

    def function(y):
        before = shown.sum()
        x.mul_(2)
        return before + (shown * y).sum()

    compiled = ad.compile(function)
    y = ad.ones(3, device=device)
    assert (compiled(y).item(), compiled(y).item(), shown.tolist()) == (9, 18, [4] * 3)
    shown.data = ad.ones(3, device=device)
    assert compiled(y).item() == 6
    assert (x.tolist(), shown.tolist()) == ([8] * 3, [1] * 3)


def test_data_is_replaced_within(device):
    w = nn.Parameter(ad.ones(3, device=device))

    @ad.compile
    def function(x):
        w.data = w.data * 0.5 + x
        return (w * 2).sum()

    x = ad.ones(3, device=device)
    assert [function(x).item() for _ in range(3)] == [9.0, 10.5, 11.25]
    assert w.tolist() == [1.875] * 3


def enabled_of(run):
    """Whether programs have steps that may be skipped."""
    return all(program.steps[0].skip is not None for program in run.programs)


def trained(device, make, compiled, **options):
    """What steps leave that set a rate, step a schedule, and may be skipped by a scaler."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).to(device)
    optimizer = make(model.parameters())
    schedule = ad.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = ad.amp.GradScaler(device, init_scale=8.0, growth_interval=2, **options)
    counted = {"n": 0}

    def step(x):
        counted["n"] += 1
        optimizer.param_groups[0]["weight_decay"] = 0.1 / counted["n"]
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        return loss

    run = ad.compile(step) if compiled else step
    found = []
    for k in range(8):
        x = ad.ones(3, 4, device=device) * (float("inf") if k == 3 else k)
        found.append([run(x).item(), scaler.get_scale(), optimizer.param_groups[0]["lr"]])
    found.append([x for p in model.parameters() for x in p.reshape(-1).tolist()])
    if compiled:
        assert {type(program) for program in run.programs} == {OnDevice}
        assert enabled_of(run) == scaler.is_enabled()
    return found


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("make", [
    lambda p: ad.optim.SGD(p, lr=0.05, momentum=0.9), lambda p: ad.optim.AdamW(p, lr=0.05),
])  # fmt: skip
def test_options_schedules_and_skipped_steps_are_those_of_eager_steps(device, make, enabled):
    rows = [trained(device, make, compiled, enabled=enabled) for compiled in (False, True)]
    for found, expected in zip(rows[1], rows[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    if enabled:
        scales = [row[1] for row in rows[0][:-1]]
        assert min(scales) < max(scales)


def test_an_option_that_is_computed_is_an_argument_of_one_program(device):
    rows = []
    for compiled in (False, True):
        w = nn.Parameter(ad.ones(3, device=device))
        optimizer = ad.optim.Adam([w], lr=1.0)
        counted = {"n": 0}

        def step(x, w=w, optimizer=optimizer, counted=counted):
            counted["n"] += 1
            optimizer.param_groups[0]["lr"] = 0.1 / counted["n"]
            optimizer.zero_grad()
            (w * x).square().sum().backward()
            optimizer.step()

        run = ad.compile(step) if compiled else step
        for k in range(5):
            run(ad.ones(3, device=device) * k)
        rows.append((w.tolist(), optimizer.param_groups[0]["lr"], counted["n"]))
    assert len(run.programs) == 1
    np.testing.assert_allclose(rows[1][0], rows[0][0], rtol=1e-5)
    assert rows[1][1:] == rows[0][1:]


def test_parameters_may_be_written_before_an_optimizer_s_step(device):
    rows = []
    for compiled in (False, True):
        w = nn.Parameter(ad.ones(3, device=device))
        optimizer = ad.optim.SGD([w], lr=0.5)

        def step(x, w=w, optimizer=optimizer):
            optimizer.zero_grad()
            (w * x).sum().backward()
            with ad.no_grad():
                w.mul_(0.5)
            optimizer.step()
            return w * 1

        run = ad.compile(step) if compiled else step
        rows.append([run(ad.ones(3, device=device) * k).tolist() for k in range(4)])
        rows[-1].append(w.tolist())
    assert rows[0] == rows[1]


def test_hooks_that_are_added_are_noticed(device):
    w = nn.Parameter(ad.ones(3, device=device))

    @ad.compile
    def step(x):
        w.grad = None
        (w * x).sum().backward()

    x = ad.ones(3, device=device)
    step(x)
    w.register_hook(lambda g: g * 2)
    step(x)
    assert w.grad.tolist() == [2] * 3
    assert "hooks of a tensor" in step.reasons[1]


def test_an_error_behind_an_optimizer_s_step_undoes_it(device):
    layers = [nn.Embedding(4, 2).to(device) for _ in range(2)]
    optimizers = [ad.optim.Adam(layer.parameters(), lr=0.1) for layer in layers]

    @ad.compile
    def step(probabilities):
        for layer, optimizer in zip(layers, optimizers, strict=True):
            optimizer.zero_grad()
            drawn = ad.ones(4, device=device)
            if layer is layers[1]:
                drawn = ad.bernoulli(probabilities)
            (layer.weight[:, 0] * drawn).sum().backward()
            optimizer.step()

    half = ad.full((4,), 0.5, device=device)
    for _ in range(3):
        step(half)

    def state():
        found = [layer.weight.tolist() for layer in layers]
        for optimizer in optimizers:
            for kept in optimizer.state.values():
                found += [x.tolist() for x in kept.values()]
        return found

    before = state()
    with pytest.raises((ValueError, RuntimeError), match="bernoulli"):
        step(half * 4)
    assert state() == before
    step(half)
    assert state() != before


def test_programs_are_shown_measured_and_counted(device):
    pair = Pair("a convolutional net", device)
    pair.run()  # the optimizer makes its state
    pair.run()
    stages = pair.compiled.graph(pair.x, pair.y)
    assert "batch_products" not in {each.name for each in stages.stages}
    assert {y.spec.device.type for y in stages["runs"].program.outputs} == {device}
    assert str(stages)
    assert pair.program.bytes >= 0
    with ad.profiler.profile() as profile:
        pair.run()
    assert "convolution" in str(profile.key_averages().table()).lower()


def test_other_roundings_are_allowed(device):
    x = ad.randn(50, device=device)
    found = ad.compile(lambda x: (x * 3.0 * 5.0 / 7.0).sum(), reassociate=True)
    close(found(x), (x * 15 / 7).sum())


def test_batches_of_a_loader(device):
    batches = [ad.ones(2, device=device) * k for k in range(4)]
    found = ad.compile(lambda x: x.sum()).over(batches)
    assert (found.device.type, found.tolist()) == (device, [0, 2, 4, 6])


def test_sizes_are_kept_within_bounds(device, monkeypatch):
    monkeypatch.setattr(ad.core.policy, "COMPILED_SIZES", 3)
    compiled = ad.compile(lambda x: (x * 2).sum(), recompile_limit=2)
    for n in (1, 2, 3, 4, 0):
        x = ad.ones(n, device=device)
        assert compiled(x).item() == 2 * n
    assert len(compiled.programs) == 3


def test_what_is_refused_on_a_device_names_the_remedy(device, tmp_path):
    x = ad.ones(3, device=device)
    with pytest.raises(Unsupported, match=r"leave mode out, or move tensors .*\.to\(\"cpu\"\)"):
        ad.compile(lambda x: x * 2, mode="pieces")(x)
    layer = nn.Linear(3, 2).to(device)
    for function, given in ((lambda x: x * 2, x), (lambda: layer.weight * 2, None)):
        with pytest.raises(Unsupported, match=r"export: .*move .*\.to\(\"cpu\"\)"):
            ad.export(function, () if given is None else (given,), tmp_path / "file")
    with pytest.raises(Unsupported, match=r"cond: a tensor on .*move it"):
        ad.compile(lambda x: ad.cond(x.sum() > 0, lambda x: x * 2, lambda x: x, (x,)))(x)
    number = ad.tensor(1.0)
    with pytest.raises(Unsupported, match=r"on cpu is written a value on .*copy_\(\)"):
        ad.compile(lambda x: number.add_(x.sum()))(x)
    ad.compile(lambda x: number.copy_(number + x.sum()))(x)
    assert (number.item(), number.device.type) == (4.0, "cpu")


def test_a_copy_of_a_model_on_a_device_has_a_program_of_its_own(device):
    models = [nn.Linear(3, 2).to(device)]
    compiled = ad.compile(models[0])
    x = ad.ones(1, 3, device=device)
    before = compiled(x)
    other = copy.deepcopy(compiled)
    with ad.no_grad():
        other.weight.zero_()
        other.bias.zero_()
    assert other(x).tolist() == [[0, 0]]
    close(compiled(x), before)
