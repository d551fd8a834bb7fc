"""Schedules that a function steps are state of a program in a file."""

import functools

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.optim import lr_scheduler as schedules
from tests.compiler.export.test_export import (
    bits,
    exported,
    file_of,
    loaded,
    rewritten,
    structure_of,
)
from tests.compiler.export.test_export_state import again, assert_refused, scheduling
from tests.compiler.test_schedules import SCHEDULES
from tests.native import needs_native

pytestmark = needs_native

FUNCTIONS = ("LambdaLR", "MultiplicativeLR")


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
            "learning rate|lr: expected a number|'<",
        ),
    ):
        assert_refused(found, path, change, says)
    loaded(rewritten(found))(ad.ones(4, 3))


def deep(depth):
    """Schedules within schedules."""
    parts = [deep(depth - 1)] if depth else []
    state = {"_last_lr": [0.1, 0.2]}
    return {"class": "ChainedScheduler", "optimizer": 0, "state": state, "parts": parts}
