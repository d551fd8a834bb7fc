"""Each optimizer in a compiled step: the same parameters as eagerly, or a refusal that is known."""

import copy
import inspect

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.core.errors import Unsupported

pytestmark = pytest.mark.skipif(native.reason_off() is not None, reason="no native backend")
# Those that Python computes step by step, by what they read.
REFUSED = {"Adafactor": "reads a value", "LBFGS": "reads a value"}
# Programs for six steps: of Muon, without state, with it, and with a rate that changes.
PROGRAMS = {"Muon": 3}
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
