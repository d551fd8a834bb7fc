"""What else is state of a program in a file: scales, numbers that Python sets, schedules."""

import io

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.core.errors import CheckpointError, Unsupported
from tests.compiled.test_export import (
    bits,
    exported,
    file_of,
    loaded,
    rewritten,
    structure_of,
    with_change,
)

pytestmark = pytest.mark.skipif(native.reason_off() is not None, reason="no native backend")
INF = float("inf")


def again(program):
    """The same from a file that it saves."""
    file = io.BytesIO()
    program.save(file)
    return loaded(file.getvalue())


# ---- GradScaler ----------------------------------------------------------------------------------


def scaled(make=ad.optim.SGD, clips=False, count=1):
    """A step with a scaler; models, optimizers and the scaler."""
    ad.manual_seed(0)
    models = [nn.Linear(3, 2) for _ in range(count)]
    optimizers = [make(m.parameters(), lr=0.1) for m in models]
    scaler = ad.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x, y):
        total = 0
        for model, optimizer, given in zip(models, optimizers, (x, y), strict=False):
            optimizer.zero_grad()
            loss = model(given).square().mean()
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            total = total + loss.detach()
        scaler.update()
        return total

    return step, models, optimizers, scaler


def batch(i):
    """The batch of a call, of which some overflow."""
    x = ad.full((4, 3), 0.1 * i + 0.1)
    y = x * 2
    if i in (3, 4, 9):
        x[0, 0] = INF if i != 4 else float("nan")
    if i == 7:
        y[1, 1] = INF
    return x, y


def left(models, optimizers, scaler):
    """What is left of a step, as bits."""
    states = [
        bits([p, optimizer.state[p]])
        for model, optimizer in zip(models, optimizers, strict=True)
        for p in model.parameters()
    ]
    return states, scaler.state_dict()


@pytest.mark.parametrize(
    ("make", "clips", "count"),
    [(ad.optim.SGD, False, 1), (ad.optim.Adam, True, 1), (ad.optim.Adam, True, 2)],
)
def test_a_scaler_goes_on_over_steps_that_are_skipped(make, clips, count):
    step, models, optimizers, scaler = scaled(make, clips, count)
    compiled = ad.compile(step)
    compiled(*batch(0))
    before = left(models, optimizers, scaler)
    program = exported(compiled, *batch(0))
    assert left(models, optimizers, scaler) == before
    scales = []
    for i in range(12):
        if i == 6:
            program = again(program)
        assert bits(program(*batch(i))) == bits(compiled(*batch(i)))
        [own] = program.scalers
        assert own.state_dict() == scaler.state_dict()
        assert bits(program.state_dict()) == bits([model.state_dict() for model in models])
        for own_optimizer, optimizer in zip(program.optimizers, optimizers, strict=True):
            a, b = (each.state_dict() for each in (own_optimizer, optimizer))
            assert bits(a["state"]) == bits(b["state"])
        scales.append(own.get_scale())
    assert len(set(scales)) > 2
    assert not any("scale" in name for name in program.state_dict())  # a model's can read it


def test_a_scalers_state_is_taken_over_and_its_settings_are_constant():
    step, _, _, scaler = scaled()
    step(*batch(0))
    program = exported(step, *batch(0))
    [own] = program.scalers
    own.load_state_dict({**own.state_dict(), "scale": 32.0, "_growth_tracker": 1})
    program(*batch(1))
    assert own.get_scale() == 64.0 and scaler.get_scale() == 8.0
    own.set_backoff_factor(0.25)
    with pytest.raises(Unsupported, match=r"backoff_factor of a GradScaler of step is 0.25"):
        program(*batch(1))
    own.set_backoff_factor(0.5)
    assert again(program).scalers[0].state_dict() == own.state_dict()


def test_a_scaler_that_has_scaled_nothing_is_to_be_called_once():
    with pytest.raises(Unsupported, match=r"scaled nothing yet; call the function once before"):
        exported(scaled()[0], *batch(0))


def test_what_a_file_says_wrongly_of_a_scaler_is_named():
    step, *_ = scaled(ad.optim.Adam)
    step(*batch(0))
    found = structure_of(file_of(step, *batch(0)))
    program = found["programs"][0]
    update = next(n for n, op in enumerate(program["ops"]) if op[0] == "update")
    node = next(n for n, node in enumerate(program["nodes"]) if node[0] == update)
    counted = found["optimizers"][0]["state"][0]["step"]
    weight = program["nodes"][node][1][0]
    for change, path, says in (
        (lambda x: x[:-1], ("programs", 0, "nodes", node, 1), "no boolean that lets"),
        (lambda x: [*x[:-1], weight], ("programs", 0, "nodes", node, 1), "no boolean that lets"),
        (lambda x: (*x[:-1], 1), ("programs", 0, "ops", update), "1 stands where"),
        (lambda x: (*x[:-1], False), ("programs", 0, "ops", update), "more than its states"),
        (lambda x: {**x, "scale": x["tracker"]}, ("scalers", 0), "state of a GradScaler is"),
        (lambda x: [*x, *x], ("scalers",), "is another one, too"),
        (lambda x: counted, ("scalers", 0, "scale"), "is another one, too"),
        (lambda x: 10**6, ("scalers", 0, "tracker"), "no tensor 1000000"),
        (lambda x: "2", ("scalers", 0, "growth_factor"), "'2' stands where"),
        (lambda x: 0.5, ("scalers", 0, "growth_factor"), "must be > 1.0"),
        (lambda x: {}, ("scalers", 0), "KeyError"),
    ):
        with pytest.raises(CheckpointError, match=says):
            loaded(rewritten(with_change(found, path, change)))
