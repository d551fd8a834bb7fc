"""Modules called with other tensors than their own, and parametrized tensors that are kept."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidArgument
from adjoint.func import functional_call
from adjoint.nn.utils import parametrize


@pytest.fixture
def net():
    ad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_it_uses_what_is_given_and_leaves_the_module_as_it_was(net):
    x = ad.randn(5, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.eval()
    values = {"0.weight": ad.zeros(4, 3), "0.bias": ad.ones(4)}
    y = functional_call(net, values, x)
    assert y.shape == (5, 2) and ad.equal(y[0], y[1])
    assert all(ad.equal(value, before[name]) for name, value in net.state_dict().items())
    assert isinstance(net[0].weight, nn.Parameter)


def test_gradients_reach_what_is_given_of_any_order(net):
    net.eval()
    values = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    x = ad.randn(5, 3)
    found = ad.autograd.grad(
        functional_call(net, values, (x,)).square().sum(), list(values.values())
    )
    net(x).square().sum().backward()
    for g, p in zip(found, net.parameters(), strict=True):
        ad.testing.assert_close(g, p.grad)


def test_buffers_are_written_in_the_dict_not_in_the_module(net):
    values = {name: value.clone() for name, value in net.named_buffers()}
    functional_call(net, values, ad.randn(5, 3))
    assert values["1.num_batches_tracked"].item() == 1
    assert values["1.running_mean"].abs().sum() > 0
    assert net[1].num_batches_tracked.item() == 0


def test_a_buffer_that_is_assigned_is_assigned_in_the_dict():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", ad.tensor(0))

        def forward(self):
            self.count = self.count + 1
            return self.count

    module, values = Counting(), {"count": ad.tensor(5)}
    assert functional_call(module, values).item() == 6
    assert (values["count"].item(), module.count.item()) == (6, 0)


def test_tied_tensors_are_replaced_together_unless_asked_otherwise():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    x, double = ad.ones(1, 2), 2 * ad.eye(2)
    assert functional_call(module, {"0.weight": double}, x).tolist() == [[4, 4]]
    assert functional_call(module, {"1.weight": double}, x).tolist() == [[4, 4]]
    y = functional_call(module, {"0.weight": double}, x, tie_weights=False)
    ad.testing.assert_close(y, 2 * nn.functional.linear(x, module[0].weight))
    both = {"0.weight": double, "1.weight": ad.eye(2)}
    with pytest.raises(InvalidArgument, match="tied"):
        functional_call(module, both, x)
    assert functional_call(module, both, x, tie_weights=False).tolist() == [[2, 2]]
    assert module[0].weight is module[1].weight


def test_several_dicts_and_strict_names(net):
    weights = dict(net.named_parameters())
    buffers = dict(net.named_buffers())
    assert functional_call(net, (weights, buffers), ad.randn(2, 3), strict=True).shape == (2, 2)
    with pytest.raises(InvalidArgument, match="multiple"):
        functional_call(net, (weights, weights), ad.randn(2, 3))
    with pytest.raises(InvalidArgument, match=r"Missing.*running_mean.*Unexpected.*other"):
        functional_call(net, {**weights, "other": ad.ones(1)}, ad.randn(2, 3), strict=True)


def test_an_error_puts_the_module_back(net):
    own = net[0].weight
    with pytest.raises(ad.ShapeError):
        functional_call(net, {"0.weight": ad.ones(4, 7)}, ad.randn(2, 3))
    assert net[0].weight is own


def test_it_takes_keywords_and_parametrized_modules():
    layer = nn.Bilinear(2, 2, 1, bias=False)
    y = functional_call(
        layer,
        {"weight": ad.ones(1, 2, 2)},
        None,
        {"input1": ad.ones(1, 2), "input2": ad.ones(1, 2)},
    )
    assert y.tolist() == [[4]]
    layer = parametrize.register_parametrization(nn.Linear(1, 1, bias=False), "weight", nn.ReLU())
    name = "parametrizations.weight.original"
    assert functional_call(layer, {name: ad.tensor([[-3.0]])}, ad.ones(1, 1)).item() == 0


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


def test_cached_computes_a_parametrized_tensor_once():
    counted = Counted()
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", counted)
    counted.calls = 0
    with parametrize.cached():
        with parametrize.cached():
            assert layer.weight is layer.weight
        first = layer.weight
        assert counted.calls == 1
    assert layer.weight is not first and counted.calls == 2
    with pytest.raises(KeyError), parametrize.cached():
        kept = layer.weight
        raise KeyError
    assert layer.weight is not kept
