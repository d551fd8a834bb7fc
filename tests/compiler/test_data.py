"""Memory that several tensors show: `.data`, `detach()`, within a compiled function and outside."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import AdjointError, Unsupported
from tests.native import needs_native

pytestmark = needs_native
WAYS = {}


def way(function):
    """A way to write to parameters: of a model it makes what is called after each step."""
    WAYS[function.__name__] = function
    return function


@way
def decay_by_data(model):
    def then():
        for p in model.parameters():
            p.data.mul_(0.9)

    return then


@way
def clipped_by_data(model):
    def then():
        for p in model.parameters():
            p.data.clamp_(-0.1, 0.1)

    return then


@way
def data_is_replaced(model):
    def then():
        for p in model.parameters():
            p.data = p.data.clamp(-0.2, 0.2) * 0.5
            p.data.add_(0.01)

    return then


@way
def detached_is_written(model):
    def then():
        for p in model.parameters():
            q = p.detach()
            q.mul_(0.9)
            q[0] = 0.5
            p.detach().add_(q.sum() * 0.01)

    return then


@way
def average_by_data(model):
    average = copy.deepcopy(model)

    def then():
        for p, q in zip(average.parameters(), model.parameters(), strict=True):
            p.data.mul_(0.9).add_(q.data, alpha=0.1)
        with ad.no_grad():
            model[0].bias.copy_(average[0].bias)

    return then


@way
def an_alias_from_outside(model):
    shown = [p.detach() for p in model.parameters()]
    by_data = [p.data for p in model.parameters()]

    def then():
        for x, y, p in zip(shown, by_data, model.parameters(), strict=True):
            total = x.sum()
            y.mul_(0.9)
            with ad.no_grad():
                p.add_(0.01 * total)
            x.sub_(y.mean() * 0.1)

    return then


@way
def a_row_by_data(model):
    def then():
        model[0].weight.data[1].fill_(0.25)
        model[0].weight.data[:, 0] *= 0.5
        model[2].bias.data.view(-1)[1:] = 1.0

    return then


def trained(name, compiled):
    """Parameters and losses after some steps, in which others write, too."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    then = WAYS[name](model)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        then()
        return loss

    run = ad.compile(step) if compiled else step
    found = []
    for i in range(5):
        if i == 2:
            with ad.no_grad():
                model[0].weight.fill_(0.05)
        if i == 3:
            model.load_state_dict({n: x + 0.1 for n, x in model.state_dict().items()})
        found.append(run(ad.full((3, 4), 0.1 * i + 0.1)).item())
        found.append([p.tolist() for p in model.parameters()])
        found.append([p.grad.tolist() for p in model.parameters()])
    return found, run


def flat(x):
    return [each for part in x for each in flat(part)] if isinstance(x, list) else [x]


@pytest.mark.parametrize("name", WAYS)
def test_what_is_written_is_that_of_eager_steps(name):
    expected, _ = trained(name, False)
    found, compiled = trained(name, True)
    np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-4, atol=1e-6)
    assert len(compiled.programs) == 1


def test_tensors_that_showed_one_memory_and_no_longer_do():
    x = ad.ones(3)
    shown = x.detach()

    def function(y):
        before = shown.sum()
        x.mul_(2)
        return before + (shown * y).sum()

    compiled = ad.compile(function)
    assert compiled(ad.ones(3)).item() == 9 and shown.tolist() == [2] * 3
    assert compiled(ad.ones(3)).item() == 18
    shown.data = ad.ones(3)
    assert compiled(ad.ones(3)).item() == 6  # 3 + 3, while x doubles
    assert (x.tolist(), shown.tolist()) == ([8] * 3, [1] * 3)
    shown.data = x.data
    try:  # they share memory again: seen, or refused
        assert compiled(ad.ones(3)).item() == 24 + 48
        assert shown.tolist() == [16] * 3
    except Unsupported as error:
        assert "shown by another tensor" in str(error)
        assert x.tolist() == [8] * 3


def test_memory_that_is_shown_in_part_is_refused_where_it_is_written():
    array = np.arange(6, dtype=np.float32)
    base, part = ad.from_numpy(array), ad.from_numpy(array[2:4])

    def function(y):
        base.mul_(2)
        return part + y

    with pytest.raises(Unsupported, match="shown by another tensor"):
        ad.compile(function)(ad.ones(2))
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_data_of_others_and_of_other_shapes_is_refused():
    p, q = nn.Parameter(ad.ones(3)), nn.Parameter(ad.zeros(3))

    def takes(x):
        p.data = q.data
        return x + p

    def shorter(x):
        p.data = (x * 2)[:2]
        return x

    def shown(x):
        row = p[:2]
        p.data = x * 2
        return row.sum()

    for function, says in ((takes, "memory of another"), (shorter, "shape"), (shown, "views")):
        with pytest.raises(Unsupported, match=says):
            ad.compile(function)(ad.ones(3))
        assert p.tolist() == [1] * 3


def test_values_that_backward_needs_and_that_data_overwrites_are_refused():
    p = nn.Parameter(ad.ones(3))

    def function(x):
        loss = (p * p * x).sum()
        p.data.mul_(2)
        loss.backward()

    with pytest.raises(AdjointError, match="modified by an inplace operation"):
        ad.compile(function)(ad.ones(3))
    assert p.tolist() == [1] * 3 and p.grad is None


def test_views_in_other_shapes_are_views():
    p = ad.arange(6.0)

    @ad.compile
    def function(x):
        y = (x * 2).view(3, 2)
        y[0] = 0
        return y.view(-1), p.view(2, 3).t() + 1, x.view(-1)[::2].clone()

    x = ad.arange(6.0).reshape(2, 3)
    first, second, third = function(x)
    assert first.tolist() == [0, 0, 4, 6, 8, 10]
    assert second.tolist() == [[1, 4], [2, 5], [3, 6]] and third.tolist() == [0, 2, 4]
    with pytest.raises(AdjointError):  # no such view is possible
        ad.compile(lambda x: (x * 2).t().view(-1))(x)
