"""Schedules and options of optimizers that a compiled function changes itself."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.optim import lr_scheduler as schedules
from tests.native import needs_native

pytestmark = needs_native
SCHEDULES = {
    "StepLR": lambda o: schedules.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 5]),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.9),
    "LinearLR": lambda o: schedules.LinearLR(o, 0.1, total_iters=4),
    "ConstantLR": lambda o: schedules.ConstantLR(o, 0.5, 3),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, 6, 2.0),
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda n: 0.9**n),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda n: 0.9),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: schedules.CyclicLR(o, 0.01, 0.1, 2),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.1, 20),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=2), schedules.CosineAnnealingLR(o, 5)], [2]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.ExponentialLR(o, 0.9), schedules.StepLR(o, 2, 0.5)]
    ),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1, threshold=0.5),
}


def trained(compiled, make, before=lambda optimizer, step: None, steps=9, Optimizer=ad.optim.SGD):
    """What is left of steps: parameters, rates, losses, and the step."""
    ad.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = Optimizer(model.parameters(), lr=0.1, momentum=0.9)
    schedule = make(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        before(optimizer, step)
        optimizer.step()
        schedule.step(*([loss] if isinstance(schedule, schedules.ReduceLROnPlateau) else []))
        return loss

    step.count = 0
    run = ad.compile(step) if compiled else step
    found = []
    for i in range(steps):
        loss = run(ad.full((4, 3), 0.1 * i))
        group = optimizer.param_groups[0]
        found.append([loss.item(), group["lr"], group["momentum"], *schedule.get_last_lr()])
    found += model.weight.tolist()
    state = {k: v for k, v in schedule.state_dict().items() if type(v) in (int, float)}
    return found, state, run


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_that_steps_within_is_that_of_eager_steps(name):
    expected, state, _ = trained(False, SCHEDULES[name])
    found, other, compiled = trained(True, SCHEDULES[name])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
    assert other.keys() == state.keys()
    for key, value in state.items():
        assert other[key] == pytest.approx(value, rel=1e-4), key
    assert len(compiled.programs) == 1
    rows = compiled.explain(ad.ones(4, 3)).host_calls
    assert [row.name for row in rows] == [f"{name}.step"]


def warmed(optimizer, step):
    step.count += 1
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * min(1.0, step.count / 4)


def test_options_that_are_set_before_the_optimizers_step_are_those_it_takes():
    for make in (lambda o: schedules.LambdaLR(o, lambda n: 1.0), SCHEDULES["ReduceLROnPlateau"]):
        expected, _, _ = trained(False, make, warmed)
        found, _, compiled = trained(True, make, warmed)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
        assert len(compiled.programs) <= 3  # while it warms up, and afterwards


def test_options_that_are_set_for_one_step_only_are_those_it_takes():
    def doubled(optimizer, step):
        group = optimizer.param_groups[0]
        kept, group["lr"] = group["lr"], 0.2
        optimizer.step()
        group["lr"] = kept

    expected, _, _ = trained(False, SCHEDULES["ExponentialLR"], doubled)
    found, _, _ = trained(True, SCHEDULES["ExponentialLR"], doubled)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


def test_what_reads_or_sets_rates_after_a_schedules_step_is_refused():
    model = nn.Linear(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    schedule = schedules.StepLR(optimizer, 3)

    def steps_first(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        schedule.step()
        optimizer.step()

    def returns(x):
        schedule.step()
        return x * 2, schedule.get_last_lr()

    def computes(x):
        schedule.step()
        return x * optimizer.param_groups[0]["lr"]

    def sets(x):
        schedule.step()
        optimizer.param_groups[0]["lr"] = 0.5
        return x * 2

    kept = copy.deepcopy(schedule.state_dict())
    for function in (steps_first, returns, computes, sets):
        with pytest.raises(Unsupported, match=r"after a schedule's step.*step schedules last"):
            ad.compile(function)(ad.ones(4, 3))
        assert schedule.state_dict() == kept and optimizer.param_groups[0]["lr"] == 0.1


def test_a_schedule_does_not_step_where_the_run_fails():
    model = nn.Embedding(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    schedule = schedules.ExponentialLR(optimizer, 0.5)

    @ad.compile
    def step(index):
        optimizer.zero_grad()
        model(index).sum().backward()
        optimizer.step()
        schedule.step()

    step(ad.tensor([0]))
    with pytest.raises(IndexError):
        step(ad.tensor([3]))
    assert schedule.last_epoch == 1 and optimizer.param_groups[0]["lr"] == 0.05


class Descent(ad.optim.Optimizer):
    """An optimizer as users write it."""

    def __init__(self, params, lr, momentum):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def update(self, group, parameters):
        for p in parameters:
            state = self.state[p]
            state["count"] = state.get("count", 0) + 1
            p.add_(p.grad, alpha=-group["lr"] / state["count"])


def test_an_optimizer_of_a_user_follows_its_options_and_counts():
    for make in (SCHEDULES["StepLR"], lambda o: schedules.ConstantLR(o, 1.0)):
        expected, _, _ = trained(False, make, Optimizer=Descent)
        found, _, compiled = trained(True, make, Optimizer=Descent)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
        assert len(compiled.programs) <= 3


def test_attributes_that_are_read_by_computed_names_are_not_those_of_the_schedule():
    """`getattr` makes guards of all that can be reached; a schedule changes after each run."""
    found = []
    for compiled in (False, True):
        ad.manual_seed(0)
        model = ad.nn.Linear(3, 2)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = ad.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)

        def step(x, model=model, optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean() * getattr(model, "scale", 1.0)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        run = ad.compile(step) if compiled else step
        losses = []
        for k in range(24):
            if k == 12:
                model.scale = 2.0
            if k == 18:
                optimizer.param_groups[0]["momentum"] = 0.5
            losses.append(run(ad.ones(4, 3)).item())
        found.append((losses, schedule.get_last_lr()))
        assert not compiled or len(run.programs) <= 4
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-4)
    assert found[0][1] == found[1][1]
