"""GradScaler within a compiled step: a step that is skipped is a select, in one program."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
INF = float("inf")


def steps_of(make, clips=False, second=False, dtype=ad.float32, **options):
    """The model, its optimizers and scaler, and the training step."""
    ad.manual_seed(0)
    models = [nn.Linear(3, 2).to(dtype) for _ in range(2)]
    optimizers = [make(m.parameters(), lr=0.1) for m in models]
    scaler = ad.amp.GradScaler("cpu", growth_interval=2, **options)

    def step(x, y):
        total = 0
        for model, optimizer, given in zip(models, optimizers, (x, y), strict=True):
            optimizer.zero_grad()
            loss = model(given.to(dtype)).square().mean()
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            total = total + loss.detach()
            if not second:
                break
        scaler.update()
        return total

    return models, optimizers, scaler, step


def run(step, scaler, models, optimizers, at=None):
    """What is left of each of some steps, of which some overflow."""
    found = []
    for i in range(12):
        x = ad.full((4, 3), 0.1 * i + 0.1)
        y = x * 2
        if i in (3, 4, 9):
            x[0, 0] = INF if i != 4 else float("nan")
        if i == 7:
            y[1, 1] = INF
        if at is not None and i == 6:
            at(scaler, models, optimizers)
        row = [step(x, y).tolist(), scaler.get_scale(), scaler.state_dict()["_growth_tracker"]]
        for model, optimizer in zip(models, optimizers, strict=True):
            for p in model.parameters():
                row += [p.tolist(), None if p.grad is None else p.grad.tolist()]
                for name, value in sorted(optimizer.state.get(p, {}).items()):
                    row.append((name, value.tolist()))
        found.append(row)
    return found


def assert_alike(a, b, rtol=1e-4):
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_alike(x, y, rtol)
    elif isinstance(a, float):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
    else:
        assert a == b


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("make", [ad.optim.SGD, ad.optim.Adam, ad.optim.RMSprop])
def test_parameters_states_and_scale_are_those_of_eager_steps(make, clips, second):
    models, optimizers, scaler, step = steps_of(make, clips, second, init_scale=8.0)
    expected = run(step, scaler, models, optimizers)
    models, optimizers, scaler, step = steps_of(make, clips, second, init_scale=8.0)
    compiled = ad.compile(step)
    assert_alike(run(compiled, scaler, models, optimizers), expected)
    assert len(compiled.programs) == 1
    scales = [row[1] for row in expected]
    assert min(scales) < 8.0 < max(scales)


@pytest.mark.parametrize("scale", [3.0, 2.0**127, 1e-30, 0.0])
def test_any_scale_and_narrow_gradients(scale):
    for dtype in (ad.float32, ad.bfloat16, ad.float64):
        kinds = {"dtype": dtype, "init_scale": scale}
        models, optimizers, scaler, step = steps_of(ad.optim.SGD, **kinds)
        expected = run(step, scaler, models, optimizers)
        models, optimizers, scaler, step = steps_of(ad.optim.SGD, **kinds)
        found = run(ad.compile(step), scaler, models, optimizers)
        assert [row[1:3] for row in found] == [row[1:3] for row in expected]
        assert_alike(found, expected, rtol=0.05 if dtype is ad.bfloat16 else 1e-4)


def loaded(scaler, models, optimizers):
    scaler.load_state_dict({**scaler.state_dict(), "scale": 32.0, "_growth_tracker": 1})


def other_factors(scaler, models, optimizers):
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(1)


def states_loaded(scaler, models, optimizers):
    optimizers[0].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))


@pytest.mark.parametrize("change", [loaded, other_factors, states_loaded])
def test_what_others_change_between_steps_is_followed(change):
    models, optimizers, scaler, step = steps_of(ad.optim.Adam, init_scale=8.0)
    expected = run(step, scaler, models, optimizers, change)
    models, optimizers, scaler, step = steps_of(ad.optim.Adam, init_scale=8.0)
    assert_alike(run(ad.compile(step), scaler, models, optimizers, change), expected)


def test_a_scaler_that_is_not_enabled_and_calls_out_of_order():
    models, optimizers, scaler, step = steps_of(ad.optim.SGD, enabled=False)
    expected = step(ad.ones(4, 3), ad.ones(4, 3)).item()
    models, optimizers, scaler, step = steps_of(ad.optim.SGD, enabled=False)
    assert ad.compile(step)(ad.ones(4, 3), ad.ones(4, 3)).item() == pytest.approx(expected)
    models, optimizers, scaler, _ = steps_of(ad.optim.SGD)

    @ad.compile
    def twice(x):
        scaler.scale(models[0](x).sum()).backward()
        scaler.step(optimizers[0])
        scaler.step(optimizers[0])

    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        twice(ad.ones(1, 3))  # runs eagerly: the scaler has scaled nothing
    scaler.update()
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        twice(ad.ones(1, 3))
    assert scaler._states == {}


@pytest.mark.parametrize("compiles", [False, True])
def test_what_is_written_before_a_step_that_is_skipped_stays(compiles):
    w = nn.Parameter(ad.ones(3))
    optimizer = ad.optim.SGD([w], lr=0.5)
    scaler = ad.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        optimizer.zero_grad()
        scaler.scale((w * x).sum()).backward()
        with ad.no_grad():
            w.mul_(0.5)
        scaler.step(optimizer)
        scaler.update()

    run = ad.compile(step) if compiles else step
    for factor in (1.0, 2.0, float("inf"), 1.0):
        run(ad.ones(3) * factor)
    assert w.tolist() == [-0.75] * 3


def test_an_optimizer_whose_update_is_written_with_operations_is_refused():
    model = nn.Linear(3, 2, bias=False)
    optimizer = ad.optim.Muon(model.parameters(), lr=0.1)
    scaler = ad.amp.GradScaler("cpu")

    def step(x):
        optimizer.zero_grad()
        scaler.scale(model(x).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(ad.ones(1, 3))
    before = model.weight.tolist()
    with pytest.raises(Unsupported, match="GradScaler may skip"):
        ad.compile(step)(ad.ones(1, 3))
    assert model.weight.tolist() == before and scaler._states == {}
