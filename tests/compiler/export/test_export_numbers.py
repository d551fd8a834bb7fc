"""Numbers that Python sets are state of a program in a file."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.compiler.export.test_export import (
    bits,
    exported,
    file_of,
    loaded,
    rewritten,
    structure_of,
    with_change,
)
from tests.compiler.export.test_export_state import Counting, again, assert_refused
from tests.native import needs_native

pytestmark = needs_native


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
        (lambda x: x * (1 << 10), (*of, "values"), "computes more than 16384 numbers"),
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
    with pytest.raises(Unsupported, match=r"of held.n \(\d+\) has no value.*: it is too large"):
        for _ in range(20):
            program(ad.ones(2))
    assert program.numbers["held.n"].bit_length() <= 4096
    data = structure_of(file_of(step, ad.ones(2)))
    steps = [("pow", 0, 0)] * 1000
    path = ("programs", 0, "numbers", "values")
    bomb = loaded(rewritten(with_change(data, path, lambda x: [*x, *chained(len(x), steps)])))
    bomb.numbers["held.n"] = 1 << 11
    assert bomb(ad.ones(2)).tolist() == [2, 2]  # nothing needs them, so nothing computes them


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


def formula(random, depth):
    """The text of an expression of numbers, at random."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(["h.a", "h.b", "h.l[0]", "h.d['k']", "0.75", "-2.0", "3.0"])
    a, b, c, d = (formula(random, depth - 1) for _ in range(4))
    kinds = [f"({a} {sign} {b})" for sign in ("+", "-", "*", "/", "//", "%")]
    kinds += [f"abs({a})", f"-{a}", f"max({a}, {b})", f"({a} if {b} < {c} else {d})"]
    return random.choice(kinds)


@pytest.mark.parametrize("seed", range(4))
def test_numbers_at_random_are_those_of_python(seed):
    random = Random(seed)
    calls = 0
    for _ in range(20):
        places = [random.choice(["h.a", "h.b", "h.l[0]", "h.d['k']"]) for _ in range(3)]
        text = "".join(f"    {place} = {formula(random, 2)}\n" for place in places)
        text += f"    return x * {formula(random, 1)}, {formula(random, 1)}\n"
        functions, held = [], []
        for _ in range(2):
            held.append(SimpleNamespace(a=1.0, b=-3.0, l=[0.5], d={"k": 2.5}))
            variables = {"h": held[-1]}
            exec("def function(x):\n" + text, variables)
            functions.append(variables["function"])
        try:
            program = exported(functions[0], ad.ones(2))
        except ZeroDivisionError:
            continue
        assert vars(held[0]) == {"a": 1.0, "b": -3.0, "l": [0.5], "d": {"k": 2.5}}
        for k in range(6):
            try:
                found = program(ad.ones(2))
            except Unsupported:  # it goes another way
                break
            y, number = functions[1](ad.ones(2))
            np.testing.assert_allclose(found[0].numpy(), y.numpy(), rtol=1e-6)
            assert repr(found[1]) == repr(number), text
            h = held[1]
            now = {"h.a": h.a, "h.b": h.b, "h.l.0": h.l[0], "h.d.k": h.d["k"]}
            for name, value in program.numbers.items():
                assert repr(now[name]) == repr(value), text
            calls += 1
            program = again(program) if k == 2 else program
    assert calls > 50
