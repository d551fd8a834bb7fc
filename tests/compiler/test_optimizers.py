"""Each optimizer in a compiled step: the same parameters as eagerly, or a refusal that is known."""

import copy
import inspect

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

from ..sweep import first_of_each
from .agreement import assert_equal

pytestmark = needs_native
# Those that Python computes step by step, by what they read; and that for sparse gradients alone.
REFUSED = {
    "LBFGS": r"LBFGS.step in a captured function.*compile the closure.*test_optimizers",
    "SparseAdam": "SparseAdam does not support dense gradients",
}
# Programs for six steps: of Muon, without state, with it, and with a rate that changes; likewise of
# Adafactor, which begins eagerly.
PROGRAMS = {"Muon": 3, "Adafactor": 2}
CLASSES = {
    name: each
    for name, each in vars(ad.optim).items()
    if inspect.isclass(each) and issubclass(each, ad.optim.Optimizer) and name != "Optimizer"
}


@pytest.mark.parametrize("options", [{}, {"maximize": True}, {"foreach": True}], ids=str)
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_parameters_are_those_of_eager_steps(name, options):
    make = CLASSES[name]
    if not set(options) <= set(inspect.signature(make).parameters):
        pytest.skip(f"{name} has no {[*options]}")
    has_bias = name != "Muon"
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=has_bias), nn.Tanh(), nn.Linear(8, 3, bias=has_bias))
    models = model, copy.deepcopy(model)
    optimizers = [make(m.parameters(), **options) for m in models]

    def step_of(model, optimizer):
        def closure(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        def step(x):
            loss = closure(x)
            optimizer.step(*([lambda: closure(x)] if name == "LBFGS" else []))
            return loss

        return step

    eager = step_of(models[0], optimizers[0])
    compiled = ad.compile(step_of(models[1], optimizers[1]))
    for i in range(6):
        x = ad.full((5, 6), 0.1 * i + 0.3)
        if i == 3:
            for each in optimizers:
                each.param_groups[0]["lr"] *= 0.5
        if name in REFUSED:
            before = [p.tolist() for p in models[1].parameters()]
            with pytest.raises(Unsupported, match=REFUSED[name]):
                compiled(x)
            assert [p.tolist() for p in models[1].parameters()] == before
            return
        np.testing.assert_allclose(compiled(x).item(), eager(x).item(), rtol=1e-4)
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            np.testing.assert_allclose(q.tolist(), p.tolist(), rtol=2e-4, atol=1e-5)
    assert len(compiled.programs) == PROGRAMS.get(name, 1)


def change_count(optimizer):
    for state in optimizer.state.values():
        state["step"].fill_(100)


def change_one_count(optimizer):
    next(iter(optimizer.state.values()))["step"].add_(7)


def change_options(optimizer):
    optimizer.param_groups[0].update(lr=0.2, weight_decay=0.1, betas=(0.5, 0.9))


def change_count_memory(optimizer):
    for state in optimizer.state.values():
        state["step"].data = ad.tensor(3.0)


def replace_state(optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def ask_for_largest(optimizer):
    optimizer.param_groups[0]["amsgrad"] = True


@pytest.mark.parametrize(
    "change",
    [change_count, change_one_count, change_options, change_count_memory, replace_state,
     ask_for_largest],
)  # fmt: skip
def test_what_changes_between_steps_is_noticed(change):
    """Steps whose number alone has changed take a shorter way."""
    found = []
    for compiled in (False, True):
        ad.manual_seed(3)
        model = ad.nn.Linear(3, 2)
        optimizer = ad.optim.Adam(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = ad.compile(step) if compiled else step
        x = ad.ones(4, 3)
        losses = [run(x).item() for _ in range(4)]
        change(optimizer)
        losses += [run(x).item() for _ in range(4)]
        counts = [state["step"].item() for state in optimizer.state.values()]
        found.append((losses, counts, *[p.detach().clone() for p in model.parameters()]))
    ad.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam"])
def test_gradients_that_are_expanded_reach_the_optimizers(name):
    """Those of sums are, and an optimizer's formula goes through rows; the second optimizer reads
    what was computed before the first one's step.
    """

    def trained(compiles):
        w, v = ad.ones(4, 3).requires_grad_(), ad.ones(3, 2).requires_grad_()
        optimizers = [getattr(ad.optim, name)([x], lr=0.1) for x in (w, v)]

        def step(x):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = (w.sum() * x).mean() + v.sum() * w.mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss

        run = ad.compile(step) if compiles else step
        return [run(ad.full((3,), float(k))) for k in range(3)], w, v, w.grad, v.grad

    assert_equal(trained(True), trained(False), 1e-6)


CHANGED = {
    "appended": lambda optimizer, c: optimizer.param_groups[0]["params"].append(c),
    "removed": lambda optimizer, c: optimizer.param_groups[0]["params"].pop(),
    "replaced": lambda optimizer, c: optimizer.param_groups[0].update(params=[c]),
    "another group": lambda optimizer, c: optimizer.add_param_group({"params": [c]}),
    "no group": lambda optimizer, c: optimizer.param_groups.clear(),
}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("change", CHANGED)
def test_parameters_that_join_or_leave_an_optimizer_are_noticed(change, steps):
    def trained(compiles):
        a, b, c = (ad.ones(2, requires_grad=True) for _ in range(3))
        optimizer = ad.optim.Adam([a, b], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            ((a + b + c) * x).sum().backward()
            if steps:
                optimizer.step()

        run = ad.compile(step) if compiles else step
        for k in range(5):
            run(ad.ones(2))
            if k == 2:
                CHANGED[change](optimizer, c)
        return [a, b, c, a.grad, b.grad, c.grad]

    assert_equal(trained(True), trained(False), 1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_an_option_that_asks_for_more_state(scaled):
    """Also where nothing has run with it, and the scaler may skip the step."""
    found = []
    for compile_ in (lambda function: function, ad.compile):
        w = ad.ones(3, requires_grad=True)
        unused = ad.ones(2, requires_grad=True)
        optimizer = ad.optim.AdamW([w, unused], lr=0.1)
        scaler = ad.amp.GradScaler("cpu", init_scale=4.0)

        def step(x, w=w, unused=unused, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            loss = (w * x).square().sum() + unused.square().sum()
            if scaled:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
            return loss

        step = compile_(step)
        for n in range(6):
            if n == 2:
                optimizer.param_groups[0]["amsgrad"] = True
            step(ad.tensor([1.0, 2.0, n]))
        found.append([w.detach(), *(optimizer.state[w][k] for k in sorted(optimizer.state[w]))])
    assert len(found[0]) == len(found[1]) == 5
    for expected, x in zip(*found, strict=True):
        assert ad.allclose(x, expected)


# Options that are changed after some steps: what they were before, and their values by step.
SWITCHED = {
    "momentum": {"momentum": [0.0, 0.9, 0.0, 0.5]},
    "nesterov": {"momentum": [0.0, 0.9, 0.9, 0.9], "nesterov": [False, True, False, True]},
    "dampening": {"momentum": [0.0, 0.9, 0.9, 0.0], "dampening": [0.0, 0.5, 0.0, 0.5]},
    "amsgrad": {"amsgrad": [False, True, False, True]},
    "centered": {"centered": [True, False, True, False]},
    "weight_decay": {"weight_decay": [0.0, 0.1, 0.2, 0.0]},
    "maximize": {"maximize": [False, True, False, True]},
    "decoupled_weight_decay": {"decoupled_weight_decay": [False, True, False, True]},
    "foreach": {"foreach": [None, True, False, None]},
    "capturable": {"capturable": [False, True, False, False]},
    "betas": {"betas": [(0.9, 0.9), (0.5, 0.9), (0.0, 0.5), (0.9, 0.9)]},
    "eps": {"eps": [1e-8, 1e-3, 0.1, 1e-8]},
    "alpha": {"alpha": [0.9, 0.5, 0.1, 0.9]},
    "rho": {"rho": [0.9, 0.5, 0.1, 0.9]},
}


def _switching():
    cases = []
    for name, make in CLASSES.items():
        if name in (*REFUSED, "Muon", "Adafactor"):
            continue
        known = inspect.signature(make).parameters
        cases += [
            (name, label) for label, options in SWITCHED.items() if set(options) <= set(known)
        ]
    return cases


@pytest.mark.parametrize(("name", "label"), first_of_each(lambda case: case[1], _switching()))
def test_options_that_are_switched_between_steps(name, label):
    """Also those that ask for states that no step has made: their first step is as eagerly."""
    found = []
    for compile_ in (lambda function: function, ad.compile):
        ad.manual_seed(1)
        model = nn.Linear(3, 2)
        begin = {option: values[0] for option, values in SWITCHED[label].items()}
        optimizer = CLASSES[name](model.parameters(), **begin)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run, steps = compile_(step), []
        try:
            for n in range(10):
                for option, values in SWITCHED[label].items():
                    optimizer.param_groups[0][option] = values[n * len(values) // 10]
                steps.append((run(ad.full((4, 3), 0.1 * n + 1)).item(), model.weight.tolist()))
        except KeyError as error:  # of momentum that RMSprop has not begun with, as in PyTorch
            steps.append(str(error))
        found.append(steps)
    assert found[0] == found[1]
