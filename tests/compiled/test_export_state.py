"""What else is state of a program in a file: scales, numbers that Python sets, schedules."""

import functools
import io
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.core.errors import CheckpointError, Unsupported
from adjoint.optim import lr_scheduler as schedules
from tests.compiled.test_export import (
    bits,
    changed,
    exported,
    file_of,
    in_another_process,
    loaded,
    outcome,
    places_of,
    rewritten,
    structure_of,
    with_change,
)
from tests.compiled.test_schedules import SCHEDULES

pytestmark = pytest.mark.skipif(native.reason_off() is not None, reason="no native backend")
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


# ---- numbers that Python sets --------------------------------------------------------------------


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


def numbers_of(trainer):
    return {
        "steps": trainer.steps, "mean": trainer.mean, "config.table.1": trainer.config["table"][1]
    }  # fmt: skip


@pytest.mark.parametrize("ran", [0, 2])
def test_numbers_that_a_function_sets_go_on_from_call_to_call(ran):
    ad.manual_seed(0)
    trainer = Counting()
    compiled = ad.compile(trainer.step)
    for k in range(ran):
        compiled(ad.full((4, 3), 0.1 * k))
    group = trainer.optimizer.param_groups[0]
    before = numbers_of(trainer), group["lr"], bits(trainer.layer.state_dict())
    program = exported(trainer.step, ad.ones(4, 3))
    assert (numbers_of(trainer), group["lr"], bits(trainer.layer.state_dict())) == before
    for k in range(12):
        x = ad.full((4, 3), 0.1 * k)
        if k == 5:
            program = again(program)
        if k == 8:
            program.numbers["steps"] = trainer.steps = 100
        found, expected = program(x), compiled(x)
        if ran:
            assert bits(found) == bits(expected)
            assert bits(program.state_dict()) == bits(trainer.layer.state_dict())
        assert found[1:] == expected[1:]
        assert program.numbers == numbers_of(trainer)
        assert program.optimizers[0].param_groups[0]["lr"] == group["lr"]


count = 3


def test_numbers_of_globals_closures_and_modules_have_names():
    model, total = nn.Linear(2, 2), 0.5
    model.calls = 7

    def helper():
        global count
        count = count + 2

    def step(x):
        nonlocal total
        helper()
        total += count / 2
        model.calls *= 2
        return model(x) * total

    program = exported(step, ad.ones(1, 2))
    assert program.numbers == {"count": 3, "total": 0.5, "model.calls": 7}
    for k in range(10):
        if k == 4:
            program = again(program)
        assert bits(program(ad.ones(1, 2))) == bits(ad.compile(step)(ad.ones(1, 2)))
        assert program.numbers == {"count": count, "total": total, "model.calls": model.calls}


def test_a_decision_that_comes_out_differently_is_an_error_that_changes_nothing():
    model = nn.Linear(2, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    model.steps = 6

    def step(x):
        model.steps += 1
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if model.steps % 10 == 0:
            loss = loss * 2
        optimizer.step()
        return loss

    program = exported(step, ad.ones(1, 2))
    for _ in range(3):
        program(ad.ones(1, 2))
    before = bits(program.state_dict()), dict(program.numbers)
    with pytest.raises(
        Unsupported, match=r"for model.steps \(9\) .*0 == 0 was False then.*numbers"
    ):
        program(ad.ones(1, 2))
    assert (bits(program.state_dict()), program.numbers) == before
    program.numbers["model.steps"] = 10
    program(ad.ones(1, 2))
    assert program.numbers == {"model.steps": 11}
    for value, says in ((1.5, "model.steps is 1.5, and was an int"), ("x", "'x'"), (True, "True")):
        program.numbers["model.steps"] = value
        with pytest.raises(Unsupported, match=says):
            program(ad.ones(1, 2))
    del program.numbers["model.steps"]
    with pytest.raises(Unsupported, match=r"model.steps is None"):
        program(ad.ones(1, 2))


def test_a_number_of_another_type_or_without_a_value_is_an_error_that_changes_nothing():
    held = {"power": 3, "mean": 1.0}

    def step(x):
        held["power"] -= 1
        held["mean"] = held["mean"] / held["power"]
        return x * 2 ** held["power"] + held["mean"]

    program = exported(step, ad.ones(2))
    assert program.numbers == {"held.power": 3, "held.mean": 1.0}
    for expected in (4.5, 2.5):
        assert program(ad.ones(2)).tolist() == [expected] * 2
    with pytest.raises(Unsupported, match=r"held.mean \(0.5\).* held.power \(1\)|held.power \(1\)"):
        program(ad.ones(2))
    assert program.numbers == {"held.power": 1, "held.mean": 0.5}

    kept = SimpleNamespace(n=1)

    def halves(x):
        kept.n = kept.n**-1
        return x

    with pytest.raises(Unsupported, match=r"sets kept.n from 1 to a float; numbers of a file stay"):
        exported(halves, ad.ones(2))
    assert kept.n == 1


def test_an_error_leaves_numbers_and_options_as_they_are():
    trainer = Counting()
    table = nn.Embedding(3, 3).requires_grad_(False)

    def step(index):
        return trainer.step(table(index))

    trainer.step(ad.ones(1, 3))
    program = exported(step, ad.tensor([0, 2]))
    program(ad.tensor([0, 2]))
    before = dict(program.numbers), program.optimizers[0].param_groups[0]["lr"]
    with pytest.raises(IndexError):
        program(ad.tensor([0, 3]))
    assert (program.numbers, program.optimizers[0].param_groups[0]["lr"]) == before
    assert before[1] == pytest.approx(0.1 * 0.99**2)


def test_two_programs_share_numbers_and_one_may_only_read_them():
    held = SimpleNamespace(calls=0, seen=ad.zeros(()))

    def step(x):
        if x.ndim == 2:
            held.calls += 1
            held.seen = held.seen + x.sum()
        return x * held.calls + held.seen

    one, two = ad.ones(2), ad.ones(1, 2)
    program = exported(step, [(one,), (two,)])
    compiled = ad.compile(step)
    for x in (one, two, two, one, two, one, two, two, one, one, two):
        assert bits(program(x)) == bits(compiled(x))
        assert program.numbers == {"held.calls": held.calls}
        program = again(program)
    assert program(one).tolist() == [6.0 + 12.0] * 2


def test_options_of_one_step_only_are_in_the_file():
    ad.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.n = 1

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        group = optimizer.param_groups[0]
        kept = group["lr"], group["momentum"]
        model.n += 1
        group["lr"], group["momentum"] = 0.5 / model.n, 0.25
        optimizer.step()
        group["lr"], group["momentum"] = kept
        return model(x).mean().detach()

    step(ad.ones(1, 2))
    program, compiled = exported(step, ad.ones(1, 2)), ad.compile(step)
    for _ in range(10):
        assert bits(program(ad.ones(1, 2))) == bits(compiled(ad.ones(1, 2)))
        assert program.optimizers[0].param_groups[0]["lr"] == 0.1
    assert bits(program.state_dict()) == bits(model.state_dict())


def test_threads_take_turns_with_numbers():
    held = {"calls": 0}

    def step(x):
        held["calls"] += 1
        return x * held["calls"]

    program = exported(step, ad.ones(1))
    with ThreadPoolExecutor(4) as pool:
        found = [y.item() for y in pool.map(lambda _: program(ad.ones(1)), range(200))]
    assert sorted(found) == list(range(1, 201)) and program.numbers == {"held.calls": 200}


def test_what_a_file_says_wrongly_of_numbers_is_named():
    data = file_of(Counting().step, ad.ones(4, 3))
    found = structure_of(data)
    of, own = ("programs", 0, "numbers"), found["programs"][0]["numbers"]
    steps = next(n for n, each in enumerate(own["values"]) if each[0] == "pow")
    count = len(own["values"])
    assert [kind for kind, *_ in found["numbers"]].count("option") == 1
    option = next(n for n, each in enumerate(found["numbers"]) if each[0] == "option")
    update = next(n for n, op in enumerate(found["programs"][0]["ops"]) if op[0] == "update")
    set_option = ("programs", 0, "ops", update, 4, 0)
    for change, path, says in (
        (lambda x: [("number", "a", "text")], ("numbers",), "'text' stands where"),
        (lambda x: [("number", "a", True)], ("numbers",), "stands where"),
        (lambda x: [("number", "a", 1 << 5000)], ("numbers",), "was an int"),
        (lambda x: [*x, x[0]], ("numbers",), "a number is there twice"),
        (lambda x: [("file", "a", 1)], ("numbers",), "'file' is no kind of number"),
        (
            lambda x: ("option", 0, 0, "betas", False),
            ("numbers", option),
            "no number in the option",
        ),
        (lambda x: ("option", 0, 9, "lr", False), ("numbers", option), "there is no number 9"),
        (lambda x: ("option", 0, 0, "params", False), ("numbers", option), "the option 'params'"),
        (lambda x: [9, *x[1:]], (*of, "given"), "there is no number 9"),
        (lambda x: x[1:], (*of, "given"), "it is given other numbers"),
        (lambda x: ("eval", 0, 0), (*of, "values", steps), "'eval' computes no number"),
        (lambda x: ("__import__", 0, 0), (*of, "values", steps), "computes no number"),
        (lambda x: (x[0], x[1], steps), (*of, "values", steps), f"there is no number {steps}"),
        (lambda x: (x[0], -1, x[2]), (*of, "values", steps), "there is no number -1"),
        (lambda x: (x[0], True, x[2]), (*of, "values", steps), "there is no number True"),
        (lambda x: ("constant", "1"), (*of, "values", steps), "'1' is no number"),
        (lambda x: x * (1 << 14), (*of, "values"), "computes more than 65536 numbers"),
        (lambda x: [("lt", 0, 0, 1)], (*of, "decisions"), "1 stands where"),
        (lambda x: [("lt", 0, 0, "x: return None")], (*of, "decisions"), "stands where"),
        (lambda x: [("add", 0, 0, True)], (*of, "decisions"), "'add' computes no number"),
        (lambda x: [("lt", 0, count, True)], (*of, "decisions"), f"no number {count}"),
        (lambda x: [*x, x[0]], (*of, "left"), "it sets a number twice"),
        (lambda x: [(9, 0)], (*of, "left"), "there is no number 9"),
        (lambda x: x[1:], (*of, "inputs"), "more|of other dtypes"),
        (lambda x: [(x[0][0], ad.int64), *x[1:]], (*of, "inputs"), "of other dtypes"),
        (lambda x: x[1:], (*of, "results"), "no number"),
        (lambda x: [], (*of, "options"), "there is no number 0 that an option has"),
        (lambda x: (0, "betas", x[2]), set_option, "no number in the option 'betas'"),
        (lambda x: (0, "lr", ("constant", -1.0)), set_option, "learning rate"),
        (lambda x: (0, "lr", ("tensor", 0)), set_option, "an option is"),
        (lambda x: (5, "lr", x[2]), set_option, "no group 5"),
        (lambda x: None, of, "it has|more"),
    ):
        assert_refused(found, path, change, says)
    loaded(data)(ad.ones(4, 3))


def test_numbers_that_grow_end_in_an_error_soon():
    held = {"n": 3}

    def step(x):
        held["n"] = held["n"] * held["n"]
        return x * 2

    program = exported(step, ad.ones(2))
    with pytest.raises(Unsupported, match=r"held.n \(\d+\): a number becomes|held.n .*no file"):
        for _ in range(20):
            program(ad.ones(2))
    assert program.numbers["held.n"].bit_length() <= 4096
    data = structure_of(file_of(step, ad.ones(2)))
    steps = [("pow", 0, 0)] * 1000
    path = ("programs", 0, "numbers", "values")
    bomb = loaded(rewritten(with_change(data, path, lambda x: [*x, *chained(len(x), steps)])))
    bomb.numbers["held.n"] = 1 << 11
    with pytest.raises(Unsupported, match="too large"):
        bomb(ad.ones(2))


def chained(first, steps):
    """Steps of which each computes with the one before."""
    return [(name, first + n - 1, first + n - 1) for n, (name, *_) in enumerate(steps)]


def test_numbers_meet_tensors_of_every_dtype():
    held = {"f": 0.1, "i": 3}

    def function(x):
        held["f"], held["i"] = -held["f"] * 1.7, held["i"] + 5
        return x + held["i"], x * held["f"], held["f"] - x, ad.full((2,), held["f"])

    for dtype in (ad.float16, ad.bfloat16, ad.float32, ad.float64, ad.int32, ad.int64, ad.uint8):
        held["f"], held["i"] = 0.1, 3
        x = ad.arange(6).to(dtype)
        program, compiled = exported(function, x), ad.compile(function)
        for _ in range(4):
            found, expected = program(x), compiled(x)
            assert [y.dtype for y in found] == [y.dtype for y in expected]
            assert bits(found) == bits(expected)


def test_numbers_that_are_equal_at_first_and_dropout_by_a_number():
    held = SimpleNamespace(steps=0, before=0, p=0.9)

    def step(x):
        held.before = held.steps
        held.steps += 1
        held.p *= 0.9
        return nn.functional.dropout(x, held.p) * held.before

    ad.manual_seed(0)
    x = ad.ones(40)
    program, compiled = exported(step, x), ad.compile(step)
    for _ in range(10):
        assert bits(program(x)) == bits(compiled(x))
        program = again(program)
    assert program.numbers == {"held.steps": 10, "held.before": 9, "held.p": held.p}

    found = structure_of(file_of(step, x))
    draw = next(n for n, op in enumerate(found["programs"][0]["ops"]) if op[0] == "draw")
    names = ("programs", 0, "ops", draw, 4)
    for change, says in (
        (lambda x: ["shape"], "mask is not drawn by"),
        (lambda x: ["keep", "keep"], "mask is not drawn by"),
        (lambda x: [3], "mask is not drawn by"),
        (lambda x: [], "mask is given"),
    ):
        assert_refused(found, names, change, says)


def test_numbers_of_parts_of_a_module_have_their_names():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.seen = 0, {"n": [1.0]}

        def forward(self, x):
            self.calls += 1
            self.seen["n"][0] *= 0.5
            return x * self.calls + self.seen["n"][0]

    model = nn.Sequential(Counts(), nn.ModuleList([Counts()])[0])
    program, compiled = exported(model, ad.ones(2)), ad.compile(model)
    assert list(program.numbers) == ["0.calls", "1.calls", "0.seen.n.0", "1.seen.n.0"]
    for _ in range(3):
        assert bits(program(ad.ones(2))) == bits(compiled(ad.ones(2)))
    assert program.numbers["1.calls"] == 3 and program.numbers["0.seen.n.0"] == 0.125


def test_a_model_that_counts_is_trained_from_outside():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(3, 2), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x) / self.calls

    ad.manual_seed(0)
    model = Counts()
    program, compiled = exported(model, ad.ones(4, 3)), ad.compile(model)
    optimizers = [ad.optim.SGD(each.parameters(), lr=0.1) for each in (program, model)]
    for k in range(10):
        x = ad.full((4, 3), 0.1 * k)
        for call, optimizer in zip((program, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        with ad.no_grad():
            assert bits(program(x)) == bits(compiled(x))
        assert program.numbers == {"calls": model.calls} and model.calls == 2 * k + 2
    assert bits(program.state_dict()) == bits(model.state_dict())


# ---- schedules -----------------------------------------------------------------------------------

FUNCTIONS = ("LambdaLR", "MultiplicativeLR")


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


def options_of(optimizer):
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def assert_steps_alike(program, compiled, model, optimizer, schedule, x):
    assert bits(program(x)) == bits(compiled(x))
    assert bits(program.state_dict()) == bits(model.state_dict())
    assert options_of(program.optimizers[0]) == options_of(optimizer)
    assert program.schedulers[0].state_dict() == schedule.state_dict()


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {*FUNCTIONS}))
def test_a_schedule_steps_on_as_the_compiled_one(name):
    step, model, optimizer, schedule = scheduling(SCHEDULES[name])
    compiled = ad.compile(step)
    for _ in range(2):
        compiled(ad.ones(4, 3))
    before = options_of(optimizer), schedule.state_dict()
    program = exported(compiled, ad.ones(4, 3))
    assert (options_of(optimizer), schedule.state_dict()) == before
    for k in range(14):
        if k == 5:
            program = again(program)
        x = ad.full((4, 3), 0.1 * k)
        assert_steps_alike(program, compiled, model, optimizer, schedule, x)
    assert type(program.schedulers[0]) is type(schedule)
    assert program.schedulers[0].optimizer is program.optimizers[0]
    rows = program.explain(ad.ones(4, 3)).host_calls
    assert [row.name for row in rows] == [f"{name}.step"]


def test_schedules_within_schedules_and_two_programs():
    def make(o):
        warm = schedules.LinearLR(o, 0.1, total_iters=3)
        both = [schedules.MultiStepLR(o, [2, 2, 5]), schedules.ExponentialLR(o, 0.9)]
        return schedules.SequentialLR(
            o, [warm, schedules.CosineAnnealingWarmRestarts(o, 2, 2), both[0]], [3, 9]
        ) if o.defaults["nesterov"] else schedules.ChainedScheduler(
            [both[0], schedules.ChainedScheduler([both[1], warm])]
        )  # fmt: skip

    for nesterov in (False, True):
        kind = functools.partial(ad.optim.SGD, nesterov=nesterov)
        step, model, optimizer, schedule = scheduling(make, kind)
        compiled = ad.compile(step)
        x, y = ad.ones(4, 3), ad.ones(2, 3)
        compiled(x)
        program = exported(compiled, [(x,), (y,)])
        for z in (x, x, y, x, y, y, x, y, x, x, y, x):
            assert_steps_alike(program, compiled, model, optimizer, schedule, z)
            program = again(program)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (SCHEDULES["LambdaLR"], "LambdaLR, which calls a Python function"),
        (SCHEDULES["MultiplicativeLR"], "MultiplicativeLR, which calls a Python function"),
        (
            lambda o: schedules.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 0.9**x),
            "CyclicLR, which calls a Python function",
        ),
        (
            lambda o: schedules.ChainedScheduler([SCHEDULES["LambdaLR"](o)]),
            "LambdaLR, which calls a Python function",
        ),
        (lambda o: OfUser(o, 2), "OfUser, which is none of"),
    ],
)
def test_schedules_that_no_file_can_hold_are_named(make, says):
    step, _, optimizer, _ = scheduling(make)
    step(ad.ones(4, 3))
    before = options_of(optimizer)
    with pytest.raises(Unsupported, match=rf"{says}.*; use another schedule, .* between calls"):
        exported(step, ad.ones(4, 3))
    assert options_of(optimizer) == before


class OfUser(schedules.StepLR):
    pass


def test_steps_of_schedules_with_arguments_and_attributes_of_users_are_refused():
    step, _, _, schedule = scheduling(SCHEDULES["StepLR"])
    step(ad.ones(4, 3))

    def to(x):
        step(x)
        schedule.step(3)

    with pytest.raises(Unsupported, match="steps a StepLR with other arguments than none"):
        exported(to, ad.ones(4, 3))
    schedule.mine = [1]
    with pytest.raises(Unsupported, match=r"StepLR, a schedule that no file can hold: .*'mine'"):
        exported(step, ad.ones(4, 3))


def reading(read, make=SCHEDULES["ExponentialLR"], **options):
    """A step that reads something before its schedule's step."""
    ad.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})
    schedule = make(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        found = read(optimizer, schedule)
        optimizer.step()
        schedule.step()
        return loss * found, found

    step(ad.ones(4, 3))
    return step


def test_rates_that_a_function_reads_are_those_of_its_schedule():
    for make in (SCHEDULES["ExponentialLR"], SCHEDULES["OneCycleLR"]):
        step = reading(lambda o, s: o.param_groups[0]["lr"] + o.param_groups[0]["momentum"], make)
        program, compiled = exported(step, ad.ones(4, 3)), ad.compile(step)
        for k in range(10):
            found, expected = program(ad.ones(4, 3)), compiled(ad.ones(4, 3))
            assert bits(found[0]) == bits(expected[0]) and found[1] == expected[1]
            program = again(program) if k == 4 else program
        assert program.numbers == {}


@pytest.mark.parametrize(
    ("read", "options", "says"),
    [
        (lambda o, s: s.last_epoch, {}, "reads last_epoch of a StepLR"),
        (lambda o, s: s.get_last_lr()[0], {}, "reads _last_lr of a StepLR"),
        (lambda o, s: o.param_groups[0]["lr"], {"lr": 1}, "of which lr is no float"),
    ],
)
def test_what_a_function_reads_of_a_schedule_is_refused(read, options, says):
    step = reading(read, SCHEDULES["StepLR"], **options)
    with pytest.raises(Unsupported, match=rf"{says}, and a schedule's step changes it; read it in"):
        exported(step, ad.ones(4, 3))


@pytest.mark.parametrize("steps", [False, True])
def test_a_schedule_whose_rates_are_constant_in_a_program_is_refused(steps):
    model = nn.Linear(3, 2, bias=False)
    optimizer = ad.optim.Muon(model.parameters(), lr=0.1)
    schedule = schedules.StepLR(optimizer, 1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        if steps:
            optimizer.step()
        schedule.step()
        return loss

    optimizer._has_stepped = True
    step(ad.ones(4, 3))
    with pytest.raises(Unsupported, match=r"a schedule of Muon, and takes no step of that, or one"):
        exported(step, ad.ones(4, 3))


def test_a_schedule_does_not_step_where_the_run_fails():
    model = nn.Embedding(3, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    schedule = schedules.ExponentialLR(optimizer, 0.5)

    def step(index):
        optimizer.zero_grad()
        model(index).sum().backward()
        optimizer.step()
        schedule.step()

    program = exported(step, ad.tensor([0]))
    program(ad.tensor([0]))
    with pytest.raises(IndexError):
        program(ad.tensor([3]))
    [own] = program.schedulers
    assert own.last_epoch == 1 and program.optimizers[0].param_groups[0]["lr"] == 0.05
    assert schedule.last_epoch == 0


def test_what_a_file_says_wrongly_of_schedules_is_named():
    step, *_ = scheduling(
        lambda o: schedules.SequentialLR(
            o, [schedules.LinearLR(o), schedules.CosineAnnealingWarmRestarts(o, 2)], [3]
        )
    )
    step(ad.ones(4, 3))
    found = structure_of(file_of(step, ad.ones(4, 3)))
    own, call = ("schedules", 0), ("programs", 0, "calls")
    assert [each["class"] for each in found["schedules"]] == ["SequentialLR"]
    returned = found["programs"][0]["returned"]
    given = ("programs", 0, "returned", 1, 1, 1, 0, 1)
    assert returned[1][1][1][0][1] == [("tuple", []), ("dict", [])]
    for change, path, says in (
        (lambda x: "LambdaLR", (*own, "class"), "there is no schedule 'LambdaLR'"),
        (lambda x: "LRScheduler", (*own, "class"), "there is no schedule 'LRScheduler'"),
        (lambda x: "__builtins__", (*own, "class"), "there is no schedule"),
        (lambda x: "StepLR", (*own, "class"), "StepLR is not made of others|step_size"),
        (lambda x: 7, (*own, "optimizer"), "there is no optimizer 7"),
        (lambda x: [], (*own, "parts"), "expects at least one scheduler"),
        (lambda x: [3, 4], (*own, "state", "_milestones"), "number of milestones"),
        (lambda x: ["3"], (*own, "state", "_milestones"), "'3' stands where"),
        (lambda x: "0.1", (*own, "parts", 0, "state", "start_factor"), "start_factor is '0.1'"),
        (lambda x: [0.1], (*own, "state", "_last_lr"), "_last_lr of SequentialLR is"),
        (lambda x: {**x, "step": 1}, (*own, "state"), "no attributes \\['step'\\]"),
        (lambda x: 0, (*own, "parts", 1, "state", "T_0"), "positive integer T_0"),
        (lambda x: 0, (*own, "parts", 1, "state", "T_mult"), "T_mult >= 1"),
        (lambda x: True, (*own, "parts", 1, "state", "last_epoch"), "last_epoch of Cosine"),
        (lambda x: 2.0, (*own, "parts", 0, "state", "start_factor"), "multiplicative factor"),
        (lambda x: [deep(9)], ("schedules",), "nested too deeply"),
        (lambda x: [1], call, "it has no schedule 1"),
        (lambda x: [], call, "argument"),
        (lambda x: [("tuple", [("constant", 3)]), x[1]], given, "stepped with other arguments"),
        (lambda x: [x[0], ("dict", [("epoch", ("constant", 3))])], given, "with other arguments"),
        (
            lambda x: {k: v for k, v in x.items() if k != "initial_lr"},
            ("optimizers", 0, "groups", 1, "options"),
            "lacks options that its schedule reads|KeyError",
        ),
        (
            lambda x: {**x, "lr": None},
            ("optimizers", 0, "groups", 1, "options"),
            "learning rate|'<",
        ),
    ):
        assert_refused(found, path, change, says)
    loaded(rewritten(found))(ad.ones(4, 3))


def deep(depth):
    """Schedules within schedules."""
    parts = [deep(depth - 1)] if depth else []
    state = {"_last_lr": [0.1, 0.2]}
    return {"class": "ChainedScheduler", "optimizer": 0, "state": state, "parts": parts}


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


def hostile(count, seed):
    """What came of structures changed at random, whose checksums are right."""
    random = np.random.default_rng(seed)
    files = hostile_files()
    places = [list(filter(is_of_state, places_of(found))) for found, _ in files]
    outcomes = Counter()
    for k in range(count):
        (found, example), paths = files[k % len(files)], places[k % len(files)]
        for _ in range(int(random.integers(1, 3))):
            path = paths[int(random.integers(len(paths)))]
            try:
                found = with_change(found, path, lambda x: changed(random, x))
            except (KeyError, TypeError, IndexError):  # it is there no more
                continue
        outcomes[outcome(rewritten(found), example)] += 1
    return outcomes


def test_state_that_was_made_by_hand_ends_in_errors_of_ours():
    assert hostile(300, 0)["CheckpointError"] > 200


@pytest.mark.sweep
def test_much_state_that_was_made_by_hand():
    assert hostile(3000, 1)["CheckpointError"] > 2000
