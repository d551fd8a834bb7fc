"""Optimizers and schedules beside PyTorch's, over many steps and with every option."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn, optim

torch = pytest.importorskip("torch")


def pair(seed=0):
    """The same two parameters for both libraries."""
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=(4, 3)), rng.normal(size=(3,))]
    return (
        [nn.Parameter(ad.tensor(v)) for v in values],
        [torch.nn.Parameter(torch.tensor(v)) for v in values],
    )


X = np.random.default_rng(1).normal(size=(6, 4))
Y = np.random.default_rng(2).normal(size=(6, 3))


def loss_of(parameters, lib):
    x, y = lib.tensor(X), lib.tensor(Y)
    d = (x @ parameters[0] + parameters[1]).tanh() - y
    return (d * d).mean()


def train(optimizer, parameters, lib, steps, schedule=None):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(parameters, lib).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def assert_same(a, t, tolerance=1e-9):
    for pa, pt in zip(a, t, strict=True):
        np.testing.assert_allclose(
            pa.detach().numpy(), pt.detach().numpy(), rtol=tolerance, atol=tolerance
        )


OPTIONS = [
    ("SGD", {"lr": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "maximize": True}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "foreach": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-4}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True, "foreach": False}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_a_hundred_steps_beside_pytorch(name, options):
    a, t = pair()
    train(getattr(optim, name)(a, **options), a, ad, 100)
    train(getattr(torch.optim, name)(t, **options), t, torch, 100)
    assert_same(a, t)


@pytest.mark.parametrize(("name", "options"), OPTIONS[1:])
def test_a_loaded_state_continues_as_if_never_stopped(name, options):
    whole, _ = pair()
    train(getattr(optim, name)(whole, **options), whole, ad, 10)
    first, _ = pair()
    before = getattr(optim, name)(first, **options)
    train(before, first, ad, 5)
    second = copy.deepcopy(first)
    after = getattr(optim, name)(second, lr=123.0)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    train(after, second, ad, 5)
    assert_same(second, whole, 0)
    fresh = copy.deepcopy(first)
    train(getattr(optim, name)(fresh, **options), fresh, ad, 5)
    if before.state_dict()["state"]:  # the state, not only the options, made the difference
        assert not fresh[0].equal(second[0])


def test_state_dict_has_pytorchs_layout():
    a, t = pair()
    oa, ot = optim.Adam(a, amsgrad=True), torch.optim.Adam(t, amsgrad=True)
    train(oa, a, ad, 2)
    train(ot, t, torch, 2)
    sa, st = oa.state_dict(), ot.state_dict()
    assert list(sa) == list(st) and sa["state"].keys() == st["state"].keys()
    assert sa["state"][0].keys() == st["state"][0].keys()
    assert set(st["param_groups"][0]) <= set(sa["param_groups"][0])
    assert sa["state"][0]["step"].item() == 2.0
    assert "Parameter Group 0" in repr(oa) and "lr: 0.001" in repr(oa)


def test_the_state_survives_a_file(tmp_path):
    a, _ = pair()
    optimizer = optim.Adam([{"params": a[:1], "lr": 0.5}, {"params": a[1:]}])
    train(optimizer, a, ad, 3)
    ad.save(optimizer.state_dict(), tmp_path / "o.safetensors")
    other = copy.deepcopy(a)
    again = optim.Adam([{"params": other[:1]}, {"params": other[1:]}])
    again.load_state_dict(ad.load(tmp_path / "o.safetensors"))
    assert again.param_groups[0]["lr"] == 0.5 and again.param_groups[0]["betas"] == (0.9, 0.999)
    train(optimizer, a, ad, 3)
    train(again, other, ad, 3)
    assert_same(a, other, 0)


def test_groups_and_named_parameters():
    a, t = pair()
    oa = optim.SGD([{"params": a[:1]}, {"params": a[1:], "lr": 0.01}], lr=0.5, momentum=0.5)
    ot = torch.optim.SGD([{"params": t[:1]}, {"params": t[1:], "lr": 0.01}], lr=0.5, momentum=0.5)
    train(oa, a, ad, 20)
    train(ot, t, torch, 20)
    assert_same(a, t)
    model = nn.Linear(1, 1)
    named = optim.SGD(model.named_parameters(), lr=0.1)
    assert named.param_groups[0]["param_names"] == ["weight", "bias"]


def test_frozen_and_gradless_parameters_are_skipped():
    a, _ = pair()
    optimizer = optim.Adam(a, lr=0.1, weight_decay=0.5)
    loss_of(a, ad).backward()
    a[0].freeze()
    before = [p.detach().clone() for p in a]
    optimizer.step()
    assert a[0].equal(before[0]) and not a[1].equal(before[1])
    a[1].grad = None
    before = a[1].detach().clone()
    optimizer.step()
    assert a[1].equal(before) and a[0] not in optimizer.state


def test_closures_and_hooks():
    a, _ = pair()
    optimizer = optim.SGD(a, lr=0.1)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = loss_of(a, ad)
        loss.backward()
        calls.append("closure")
        return loss

    first = optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("after"))
    loss = optimizer.step(closure)
    assert loss.item() > 0 and calls == ["before", "closure", "after"]
    first.remove()
    with ad.no_grad():
        optimizer.step(closure)  # the closure records even where the caller does not
    assert calls[3:] == ["closure", "after"]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(TypeError, match="must return None or a tuple"):
        optimizer.step()


def test_zero_grad():
    a, _ = pair()
    optimizer = optim.SGD(a, lr=0.1)
    loss_of(a, ad).backward()
    gradient = a[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert a[0].grad is gradient and gradient.abs().sum().item() == 0
    optimizer.zero_grad()
    assert a[0].grad is None


def test_steps_are_seen_by_autograd():
    a, _ = pair()
    optimizer = optim.SGD(a, lr=0.1)
    loss = (a[0] * a[0]).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


P = nn.Parameter(ad.ones(1))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
        (lambda: optim.SGD(P, lr=0.1), TypeError, "should be an iterable of Tensors or dicts"),
        (lambda: optim.SGD([1.0], lr=0.1), TypeError, "one of the params is float"),
        (lambda: optim.SGD([{"params": {P}}], lr=0.1), TypeError, "ordered collections"),
        (lambda: optim.SGD([P * 2], lr=0.1), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([P, P], lr=0.1), UserWarning, "duplicate parameters"),
        (lambda: optim.SGD([{"params": [P]}, {"params": [P]}]), ValueError, "more than one"),
        (lambda: optim.SGD([P], lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda: optim.SGD([P], momentum=-1), ValueError, "Invalid momentum value: -1"),
        (lambda: optim.SGD([P], weight_decay=-1), ValueError, "Invalid weight_decay value: -1"),
        (lambda: optim.SGD([P], nesterov=True), ValueError, "Nesterov momentum requires"),
        (lambda: optim.Adam([P], betas=(1.0, 0.9)), ValueError, "beta parameter at index 0: 1.0"),
        (lambda: optim.Adam([P], betas=(0.9, -1)), ValueError, "beta parameter at index 1: -1"),
        (lambda: optim.Adam([P], eps=-1.0), ValueError, "Invalid epsilon value: -1.0"),
        (lambda: optim.SGD([P]).add_param_group([P]), TypeError, "must be a dict"),
        (lambda: optim.SGD([P]).load_state_dict({"state": {}, "param_groups": []}), ValueError,
         "different number of parameter groups: 0"),
        (lambda: optim.SGD([P]).load_state_dict({"param_groups": [{"params": [0, 1]}]}),
         ValueError, "doesn't match the size"),
        (lambda: optim.lr_scheduler.StepLR(3, 1), TypeError, "int is not an Optimizer"),
        (lambda: optim.lr_scheduler.LambdaLR(optim.SGD([P]), [abs, abs]), ValueError, "Expected 1"),
        (lambda: optim.lr_scheduler.StepLR(optim.SGD([P]), 1, 0.1, 3), KeyError, "initial_lr"),
    ],
)  # fmt: skip
def test_errors_name_values(call, error, match):
    with pytest.raises(error, match=match):
        call()


SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("LambdaLR", {"lr_lambda": lambda n: 1 / (1 + n)}),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 6}),
    ("PolynomialLR", {"total_iters": 9, "power": 2.0}),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 25}),
    ("OneCycleLR", {"max_lr": [0.4, 0.2], "epochs": 5, "steps_per_epoch": 5, "three_phase": True,
                    "anneal_strategy": "linear"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedule_beside_pytorch(name, options):
    rates = []
    for lib, parameters in zip((ad, torch), pair(), strict=True):
        optimizer = lib.optim.SGD(
            [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}],
            lr=0.1, momentum=0.9,
        )  # fmt: skip
        schedule = getattr(lib.optim.lr_scheduler, name)(optimizer, **options)
        seen = []
        for _ in range(20):
            optimizer.step()
            schedule.step()
            assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
            seen += [(g["lr"], g["momentum"]) for g in optimizer.param_groups]
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


def test_composed_schedules_beside_pytorch():
    rates = []
    for lib, parameters in zip((ad, torch), pair(), strict=True):
        s = lib.optim.lr_scheduler
        optimizer = lib.optim.SGD(parameters, lr=0.1)
        warm, decay = s.LinearLR(optimizer, 0.1, total_iters=4), s.ExponentialLR(optimizer, 0.9)
        schedule = s.SequentialLR(optimizer, [warm, decay], [4])
        seen = list(schedule.get_last_lr())
        for _ in range(10):
            optimizer.step()
            schedule.step()
            seen += schedule.get_last_lr()
        other = lib.optim.SGD(parameters, lr=0.1)
        chain = s.ChainedScheduler([s.ConstantLR(other, 0.5, 3), s.ExponentialLR(other, 0.8)])
        for _ in range(6):
            other.step()
            chain.step()
            seen += chain.get_last_lr()
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1, "factor": 0.5},
        {"mode": "max", "patience": 0, "cooldown": 2},
        {"threshold": 0.5, "threshold_mode": "abs", "patience": 1, "min_lr": 0.05},
    ],
)
def test_reduce_on_plateau_beside_pytorch(options):
    metrics = [5, 4, 4, 4, 4.2, 3, 3.1, 2.9, 2.9, 2.9, 2.9, 3.5, 1, 1, 1, 1]
    rates = []
    for lib, parameters in zip((ad, torch), pair(), strict=True):
        optimizer = lib.optim.SGD(parameters, lr=0.4)
        schedule = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        seen = []
        for metric in metrics:
            schedule.step(metric)
            seen += schedule.get_last_lr()
        rates.append(seen)
    assert rates[0] == rates[1] and len(set(rates[0])) > 1


def test_the_reduction_on_a_plateau_can_be_replaced():
    """As ignite does, for one group of several."""
    a, b = ad.nn.Parameter(ad.ones(1)), ad.nn.Parameter(ad.ones(1))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b]}], lr=1.0)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    epochs = []

    def first_alone(epoch):
        epochs.append(epoch)
        optimizer.param_groups[0]["lr"] /= 2

    schedule._reduce_lr = first_alone
    for metric in (1.0, 1.0, 0.5, 2.0):
        schedule.step(metric)
    assert epochs == [2, 4] and schedule.get_last_lr() == [0.25, 1.0]


def test_a_schedules_state_can_be_restored():
    a, _ = pair()
    optimizer = optim.SGD(a, lr=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    other = optim.SGD(a, lr=0.9)
    again = optim.lr_scheduler.CosineAnnealingLR(other, T_max=99)
    other.load_state_dict(optimizer.state_dict())
    again.load_state_dict(schedule.state_dict())
    for o, s in ((optimizer, schedule), (other, again)):
        o.step()
        s.step()
    assert schedule.get_last_lr() == again.get_last_lr()


RESUMED = [  # last_epoch=2 on an optimizer whose rate 0.5 is of epoch 3: PyTorch 2.13's rates
    ("ExponentialLR", {"gamma": 0.8}, [0.5, 0.4, 0.32]),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.9}, [0.5, 0.45, 0.405]),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 6}, [0.5, 0.6, 0.7]),
    ("PolynomialLR", {"total_iters": 6}, [0.5, 1 / 3, 1 / 6]),
    ("CosineAnnealingLR", {"T_max": 6}, [0.5, 0.25, 0.0669873]),
    ("CosineAnnealingWarmRestarts", {"T_0": 1}, [1.0, 1.0, 1.0]),
    ("LambdaLR", {"lr_lambda": lambda n: 0.5**n}, [0.125, 0.0625, 0.03125]),
    ("StepLR", {"step_size": 2}, [0.5, 0.05, 0.05]),
    ("MultiStepLR", {"milestones": [2, 5]}, [0.5, 0.5, 0.05]),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}, [0.5, 1.0, 1.0]),
]


@pytest.mark.parametrize(("name", "options", "expected"), RESUMED)
def test_a_resumed_schedule_keeps_the_loaded_rate(name, options, expected):
    optimizer = optim.SGD([{"params": [P], "initial_lr": 1.0}], lr=0.5)
    schedule = getattr(optim.lr_scheduler, name)(optimizer, last_epoch=2, **options)
    rates = schedule.get_last_lr()
    for _ in expected[1:]:
        optimizer.step()
        schedule.step()
        rates = rates + schedule.get_last_lr()
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_schedules_of_a_tensor_rate_start_from_its_first_value():
    optimizer = optim.SGD([P], lr=ad.tensor(1.0))
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"].item() == 0.125


def test_the_schedule_at_milestone_zero_is_the_first():
    s, optimizer = optim.lr_scheduler, optim.SGD([P], lr=1.0)
    parts = [s.ConstantLR(optimizer, 0.5, 2), s.ExponentialLR(optimizer, 0.5)]
    schedule = s.SequentialLR(optimizer, parts, [0])
    assert schedule.get_last_lr() == [1.0]
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5]


def test_a_schedule_that_steps_first_warns():
    schedule = optim.lr_scheduler.StepLR(optim.SGD([P], lr=0.1), 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        schedule.step()


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_what_has_a_gradient_is_stepped_also_where_none_is_asked_for(name):
    found = []
    for t in (ad, torch):
        x = t.zeros(3)
        optimizer = getattr(t.optim, name)([x], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            x.grad = t.ones(3)
            optimizer.step()
        found.append(x.tolist())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert found[0][0] < 0


KEEPING = {
    "SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {}, "AdamW": {}, "RMSprop": {}, "Adagrad": {},
    "Adadelta": {}, "Rprop": {}, "ASGD": {}, "NAdam": {}, "RAdam": {}, "Adamax": {},
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPING)
def test_another_optimizers_state_says_when_loaded_what_it_lacks(name):
    def stepped(kind):
        p = ad.nn.Parameter(ad.ones(2))
        p.grad = ad.ones(2)
        optimizer = getattr(ad.optim, kind)([p], **KEEPING[kind])
        optimizer.step()
        return optimizer

    refused = 0
    for other in KEEPING:
        optimizer = stepped(name)
        before = optimizer.state_dict()["state"][0].keys()
        try:
            optimizer.load_state_dict(stepped(other).state_dict())
        except ad.CheckpointError as error:
            refused += 1
            assert re.search(
                rf"^{name}: the loaded state of parameter 0 lacks \w+.*; it has", str(error)
            )
            assert other != name and optimizer.state_dict()["state"][0].keys() == before
        else:
            optimizer.step()  # it has all that a step reads
    assert 6 < refused < len(KEEPING)


@pytest.mark.parametrize("value", ["1e-3", None, [0.1]])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"])
def test_a_learning_rate_that_is_no_number_is_refused(kind, value):
    with pytest.raises(TypeError, match=r"lr: expected a number"):
        getattr(ad.optim, kind)([ad.ones(1, requires_grad=True)], lr=value)
