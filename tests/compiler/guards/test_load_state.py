"""`optimizer.load_state_dict` between calls of a compiled step, which goes on with that state."""

import copy
from functools import partial

import pytest

import adjoint as ad
from adjoint import nn
from tests.native import needs_native

pytestmark = needs_native
optim = ad.optim
KINDS = {
    "SGD": partial(optim.SGD, lr=0.1),
    "momentum": partial(optim.SGD, lr=0.1, momentum=0.9),
    "Adam": partial(optim.Adam, lr=0.05),
    "AdamW": partial(optim.AdamW, lr=0.05, amsgrad=True),
    "RMSprop": partial(optim.RMSprop, lr=0.05, momentum=0.5, centered=True),
    "groups": lambda ps: optim.Adam([{"params": [p], "lr": 0.01} for p in ps]),
}
x = ad.ones(4, 3)


class Twins:
    """A model with a compiled step, and one that takes the same steps eagerly."""

    def __init__(self, make, device="cpu", steps=1):
        self.models, self.optimizers, self.steps = [], [], []
        for _ in range(2):
            ad.manual_seed(0)
            model = nn.Linear(3, 2).to(device)
            optimizer = make(model.parameters())
            self.models.append(model)
            self.optimizers.append(optimizer)
            self.steps.append(partial(self.step, model, optimizer, steps))
        self.compiled = self.steps[0] = ad.compile(self.steps[0])
        self.x = x.to(device)

    @staticmethod
    def step(model, optimizer, steps, x):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    def run(self, times=3):
        for step in self.steps * times:
            step(self.x)
        a, b = (model.state_dict() for model in self.models)
        for name in a:
            ad.testing.assert_close(a[name].cpu(), b[name].cpu())
        a, b = (optimizer.state_dict()["state"] for optimizer in self.optimizers)
        assert a.keys() == b.keys()
        for key, state in a.items():
            for name, value in state.items():
                ad.testing.assert_close(value.cpu(), b[key][name].cpu())

    def load(self, state):
        for optimizer in self.optimizers:
            optimizer.load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_loaded_state_compiles_nothing(kind, device):
    twins = Twins(KINDS[kind], device)
    twins.run()
    states = [copy.deepcopy(twins.optimizers[1].state_dict())]
    twins.run()
    states.append(copy.deepcopy(twins.optimizers[1].state_dict()))
    states[1]["param_groups"][0]["lr"] = 0.02
    for n in (0, 1, 0):
        twins.load(states[n])
        twins.run(2)
    for _ in range(3):  # what was saved is no part of the program
        twins.load(states[0])
    twins.run()
    assert len(twins.compiled.reasons) == 1
    assert len(twins.compiled.programs) == 1


def test_an_optimizer_that_steps_twice_in_a_call():
    twins = Twins(KINDS["Adam"], steps=2)
    twins.run()
    state = copy.deepcopy(twins.optimizers[1].state_dict())
    twins.run()
    twins.load(state)
    twins.run()
    assert twins.compiled.reasons == ["first call"]


def test_a_state_that_was_saved_stays_as_it_was():
    twins = Twins(KINDS["Adam"])
    twins.run()
    loaded = copy.deepcopy(twins.optimizers[1].state_dict())
    twins.run()
    saved = twins.optimizers[0].state_dict()  # its tensors are those of the optimizer
    values = {k: v["exp_avg"].tolist() for k, v in saved["state"].items()}
    twins.load(loaded)
    twins.run()
    assert {k: v["exp_avg"].tolist() for k, v in saved["state"].items()} == values
    assert twins.compiled.reasons == ["first call"]


def steps(state):
    state["state"][0]["step"] = ad.tensor(7.0)  # the other parameter has another count


def number(state):
    state["state"][0]["step"] = ad.tensor(2.0)
    state["state"][1]["step"] = ad.tensor(2.0)
    state["param_groups"][0]["betas"] = (0.5, 0.9)


@pytest.mark.parametrize("change", [steps, number])
def test_other_counts_and_options_are_taken_over(change):
    twins = Twins(KINDS["Adam"])
    twins.run()
    state = copy.deepcopy(twins.optimizers[1].state_dict())
    change(state)
    twins.load(state)
    twins.run()
    assert twins.compiled.reasons == ["first call"]


def no_momentum(state):
    for each in state["state"].values():
        each["momentum_buffer"] = None


def nothing(state):
    state["state"].clear()


def only_one(state):
    del state["state"][1]


def without_momentum(state):
    state["param_groups"][0]["momentum"] = 0
    nothing(state)


@pytest.mark.parametrize("change", [no_momentum, nothing, only_one, without_momentum])
def test_a_state_of_another_form_is_compiled_anew(change):
    twins = Twins(KINDS["momentum"])
    twins.run()
    state = copy.deepcopy(twins.optimizers[1].state_dict())
    change(state)
    twins.load(state)
    twins.run()
    assert len(twins.compiled.reasons) == 2


def test_states_that_are_switched_on_are_compiled_anew():
    twins = Twins(KINDS["Adam"])
    twins.run()
    state = copy.deepcopy(twins.optimizers[1].state_dict())
    state["param_groups"][0]["amsgrad"] = True
    twins.load(state)
    twins.run()
    assert len(twins.compiled.reasons) == 2


def test_a_state_that_the_function_reads_or_writes_itself_is_compiled_anew():
    for write in (False, True):
        ad.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        Twins.step(model, optimizer, 1, x)
        velocity = optimizer.state[model.weight]["momentum_buffer"]

        @ad.compile
        def step(x):
            if write:  # noqa: B023 - called at once
                velocity.zero_()  # noqa: B023
            Twins.step(model, optimizer, 1, x)  # noqa: B023
            return velocity.sum()  # noqa: B023

        step(x)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        kept = velocity.sum().item()
        now = optimizer.state[model.weight]["momentum_buffer"]
        assert step(x).item() == (0 if write else kept)  # no longer of the optimizer
        assert velocity.sum().item() == (0 if write else kept)
        assert now.sum().item() != kept
        assert len(step.reasons) == 2


def test_another_optimizer_has_the_state():
    """Parameters, state and groups go from one run to another, as when a run is resumed."""
    first, second = Twins(KINDS["AdamW"]), Twins(KINDS["AdamW"])
    first.run()
    second.run(1)
    for twin in (0, 1):
        second.models[twin].load_state_dict(first.models[1].state_dict())
        second.optimizers[twin].load_state_dict(first.optimizers[1].state_dict())
    first.run()
    second.run()
    ad.testing.assert_close(first.models[0].weight, second.models[0].weight)
    assert second.compiled.reasons == ["first call"]
