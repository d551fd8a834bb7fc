"""Scales are state of a program in a file; all else that is, numbers and schedules, beside them."""

import io

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import CheckpointError, Unsupported
from adjoint.optim import lr_scheduler as schedules
from tests.compiler.export.test_export import (
    bits,
    exported,
    file_of,
    hostile,
    in_another_process,
    loaded,
    rewritten,
    structure_of,
    with_change,
)
from tests.compiler.test_schedules import SCHEDULES
from tests.native import needs_native

pytestmark = needs_native
INF = float("inf")


def again(program):
    """The same from a file that it saves."""
    file = io.BytesIO()
    program.save(file)
    return loaded(file.getvalue())


def assert_refused(found, path, change, says):
    """A file that is changed at one place is refused with such a message."""
    with pytest.raises(CheckpointError, match=says):
        pytest.fail(f"{path}, {says}: {loaded(rewritten(with_change(found, path, change)))}")


class Counting:
    """A training step that counts, schedules its rate by hand and keeps means, in many places."""

    def __init__(self):
        self.layer = nn.Linear(3, 2)
        self.optimizer = ad.optim.Adam(self.layer.parameters(), lr=0.1)
        self.steps, self.mean = 0, 0.0
        self.config = {"table": [1, 2.5], "base": 0.1}

    def step(self, x):
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * abs(-self.steps) / 3
        self.config["table"][1] *= 0.9
        group = self.optimizer.param_groups[0]
        group["lr"] = self.config["base"] * 0.99**self.steps
        self.optimizer.zero_grad()
        loss = self.layer(x).square().mean() * self.mean + self.config["table"][1]
        loss.backward()
        self.optimizer.step()
        return loss / self.steps, self.steps, {"mean": self.mean}


def scheduling(make, optimizer=ad.optim.SGD):
    """A step that steps a schedule, too; the model, its optimizer and the schedule."""
    ad.manual_seed(0)
    model = nn.Linear(3, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.2}]
    optimizer = optimizer(groups, lr=0.1, momentum=0.9)
    schedule = make(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step(*([loss] if isinstance(schedule, schedules.ReduceLROnPlateau) else []))
        return loss

    return step, model, optimizer, schedule


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
        (lambda x: 1, ("programs", 0, "ops", update, 3), "1 stands where"),
        (lambda x: False, ("programs", 0, "ops", update, 3), "more than its states"),
        (lambda x: {**x, "scale": x["tracker"]}, ("scalers", 0), "state of a GradScaler is"),
        (lambda x: [*x, *x], ("scalers",), "is another one, too"),
        (lambda x: counted, ("scalers", 0, "scale"), "is another one, too"),
        (lambda x: 10**6, ("scalers", 0, "tracker"), "no tensor 1000000"),
        (lambda x: "2", ("scalers", 0, "growth_factor"), "'2' stands where"),
        (lambda x: 0.5, ("scalers", 0, "growth_factor"), "must be > 1.0"),
        (lambda x: {}, ("scalers", 0), "KeyError"),
    ):
        assert_refused(found, path, change, says)


# ---- all of it -----------------------------------------------------------------------------------


class Whole:
    """A training step with a scaler, a schedule and numbers."""

    def __init__(self):
        ad.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2))
        self.optimizer = ad.optim.AdamW(self.model.parameters(), lr=0.05)
        self.schedule = schedules.OneCycleLR(self.optimizer, 0.1, 40)
        self.scaler = ad.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        self.steps, self.smooth = 0, 1.0

    def step(self, x, y):
        self.steps += 1
        self.smooth = 0.9 * self.smooth + 0.1 / self.steps
        self.optimizer.param_groups[0]["weight_decay"] = 0.01 * self.smooth
        self.optimizer.zero_grad()
        loss = (self.model(x) - y[:, :2]).square().mean() * self.smooth
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss, self.steps


def test_another_process_without_the_code_goes_on_with_all_of_it(tmp_path):
    whole = Whole()
    compiled = ad.compile(whole.step)
    for i in range(2):
        compiled(*batch(i))
    ad.export(compiled, batch(0), tmp_path / "step")
    ad.save([batch(i) for i in range(12)], tmp_path / "batches")
    expected = []
    for i in range(12):
        loss, steps = compiled(*batch(i))
        group = whole.optimizer.param_groups[0]
        expected += [loss.detach().numpy().tobytes().hex(), str(steps), repr(group["lr"])]
        expected += [repr(group["weight_decay"]), repr(whole.scaler.get_scale())]
        expected += [repr(whole.smooth), str(whole.schedule.last_epoch)]
    found = in_another_process(
        tmp_path,
        """
        assert not any(name.startswith("tests") for name in sys.modules)
        step = ad.export.load(sys.argv[1])
        for i, (x, y) in enumerate(ad.load(sys.argv[2])):
            if i == 5:
                step.save(sys.argv[3])
                step = ad.export.load(sys.argv[3])
            loss, steps = step(x, y)
            group = step.optimizers[0].param_groups[0]
            print(loss.detach().numpy().tobytes().hex(), steps, repr(group["lr"]))
            print(repr(group["weight_decay"]), repr(step.scalers[0].get_scale()))
            print(repr(step.numbers["smooth"]), step.schedulers[0].last_epoch)
        ad.save(step.state_dict(), sys.argv[4])
        """,
        *(tmp_path / name for name in ("step", "batches", "later", "out")),
    )
    assert found == expected
    assert bits(ad.load(tmp_path / "out")) == bits(whole.model.state_dict())


def test_an_error_leaves_all_of_it_as_it_was():
    whole = Whole()
    table = nn.Embedding(3, 3).requires_grad_(False)

    def step(index, y):
        return whole.step(table(index), y)

    y = ad.ones(2, 3)
    step(ad.tensor([0, 2]), y)
    program = exported(step, ad.tensor([0, 2]), y)
    program(ad.tensor([0, 2]), y)

    def state():
        [optimizer], [schedule], [scaler] = program.optimizers, program.schedulers, program.scalers
        parts = optimizer.state_dict(), schedule.state_dict(), scaler.state_dict(), program.numbers
        return bits([program.state_dict(), *map(dict, parts), *program.generators[0].get_state()])

    before = state()
    with pytest.raises(IndexError):
        program(ad.tensor([0, 3]), y)
    assert state() == before
    program(ad.tensor([0, 2]), y)
    assert state() != before


def test_files_of_before_are_read_as_before():
    whole = Whole()
    optimizer = whole.optimizer

    def step(x, y):
        optimizer.zero_grad()
        loss = (whole.model(x) - y[:, :2]).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    found = structure_of(file_of(step, *batch(0)))
    old = {k: v for k, v in found.items() if k not in ("scalers", "schedules", "numbers")}
    for program in old["programs"]:
        del program["calls"], program["numbers"]
        program["ops"] = [op[:3] if op[0] == "update" else op for op in program["ops"]]
    before, now = loaded(rewritten(old)), exported(step, *batch(0))
    for i in range(3):
        assert bits(before(*batch(i))) == bits(now(*batch(i)))
    assert before.numbers == {} and before.scalers == before.schedulers == []


def hostile_files():
    """Files with scalers, schedules and numbers, and examples."""
    whole = Whole()
    ad.compile(whole.step)(*batch(0))
    step, *_ = scheduling(SCHEDULES["ReduceLROnPlateau"])
    other, *_ = scheduling(SCHEDULES["SequentialLR"])
    one = (ad.ones(4, 3),)
    step(*one), other(*one)
    pairs = [(whole.step, batch(0)), (step, one), (other, one), (Counting().step, one)]
    return [(structure_of(file_of(function, *example)), example) for function, example in pairs]


def is_of_state(path):
    """Whether a part of a file is about what this file of tests is about."""
    inner = path[2:3] if path[:1] == ("programs",) else path[:1]
    return inner in [(x,) for x in ("scalers", "schedules", "numbers", "calls", "returned", "ops")]


def test_state_that_was_made_by_hand_ends_in_errors_of_ours():
    assert hostile(300, 0, hostile_files(), is_of_state)["CheckpointError"] > 200


@pytest.mark.sweep
def test_much_state_that_was_made_by_hand():
    assert hostile(3000, 1, hostile_files(), is_of_state)["CheckpointError"] > 2000
