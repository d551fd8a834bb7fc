"""An error within a compiled function leaves all as it was before the call."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native


def everything(models, optimizers):
    """All values that there are."""
    found = []
    for model in models:
        found += [x.tolist() for x in model.state_dict().values()]
        found += [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    return found, copy.deepcopy([o.state_dict()["state"] for o in optimizers])


def assert_same(a, b):
    assert a[0] == b[0]
    for x, y in zip(a[1], b[1], strict=True):
        assert x.keys() == y.keys()
        for key in x:
            for name, value in x[key].items():
                np.testing.assert_array_equal(value.tolist(), y[key][name].tolist())


@pytest.mark.parametrize("make", [ad.optim.Adam, ad.optim.SGD, ad.optim.Rprop])
def test_an_error_behind_the_first_of_two_optimizers_undoes_its_step(make):
    first, second = nn.Linear(3, 3), nn.Embedding(4, 3)
    optimizers = [make(m.parameters(), lr=0.1) for m in (first, second)]

    @ad.compile
    def step(x, index):
        for optimizer in optimizers:
            optimizer.zero_grad()
        first(x).square().sum().backward()
        optimizers[0].step()
        second(index).square().sum().backward()
        optimizers[1].step()

    x = ad.ones(2, 3)
    for k in range(3):
        step(x, ad.tensor([0, 1]))
        before = everything((first, second), optimizers)
        kept = first.weight.grad if k == 1 else None  # gradients that others hold
        with pytest.raises(IndexError):
            step(x * 2, ad.tensor([0, 9]))
        assert_same(everything((first, second), optimizers), before)
        del kept


def test_an_error_that_is_found_by_computing_leaves_gradients_as_they_were():
    model = nn.Linear(3, 3)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    @ad.compile
    def step(x, target):
        optimizer.zero_grad()
        y = model(x)
        y.square().mean().backward()
        loss = nn.functional.binary_cross_entropy(y.detach(), target)
        optimizer.step()
        return loss

    with ad.no_grad():
        model.weight.copy_(ad.eye(3) * 0.1)
        model.bias.fill_(0.5)
    x = ad.ones(2, 3)
    step(x, x)
    before = everything([model], [optimizer])
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        step(x * 100, x)
    assert_same(everything([model], [optimizer]), before)
    step(x, x)


def test_an_error_between_two_backwards_leaves_gradients_as_they_were():
    model, table = nn.Linear(3, 3), nn.Embedding(4, 3)

    @ad.compile
    def step(x, index):
        model.zero_grad()
        model(x).square().sum().backward()
        (model(table(index))).sum().backward()

    for k in range(3):
        step(ad.ones(2, 3), ad.tensor([0, 1]))
        before = everything((model, table), [])
        with pytest.raises(IndexError):
            step(ad.ones(2, 3) * 2, ad.tensor([0, 4 + k]))
        assert_same(everything((model, table), []), before)


def test_what_computes_by_itself_is_refused_with_the_remedy():
    frozen = ad.inference.freeze(nn.Linear(2, 3), ad.ones(4, 2))
    graph, model = ad.Graph(), nn.Linear(2, 1)

    def stepped(x):
        with graph.step():
            return model(x)

    for function, text in (
        (lambda x: frozen(x) * 2, "call the module or function that it was made of"),
        (stepped, r"calls graph.step\(\).*call it outside of the function"),
    ):
        with pytest.raises(Unsupported, match=text) as raised:
            ad.compile(function)(ad.ones(4, 2))
        assert "test_errors.py" in str(raised.value)  # the user's line
    assert frozen(ad.ones(4, 2)).shape == (4, 3)


def test_a_compiled_model_runs_in_the_step_of_a_graph():
    losses = []
    for comp in (ad.compile, lambda model: model):
        ad.manual_seed(0)
        model, graph = nn.Linear(2, 1), ad.Graph()
        called, optimizer = comp(model), ad.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with graph.step():
                optimizer.zero_grad()
                loss = called(ad.ones(4, 2)).square().sum()
                loss.backward()
                optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1])
