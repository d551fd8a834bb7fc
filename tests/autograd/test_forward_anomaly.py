"""`detect_anomaly(forward=True)`: the first NaN of a forward pass: operation, module and line."""

from __future__ import annotations

import pytest

import adjoint as ad
from adjoint import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x).abs().neg().log()  # the line


def looking():
    return ad.autograd.detect_anomaly(forward=True)


def met(function, *args):
    with pytest.raises(ad.AutogradError) as caught, looking():
        function(*args)
    return str(caught.value)


def test_the_first_nan_names_module_operation_line_and_range():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Block()))
    said = met(model, ad.randn(3, 2))
    assert said.startswith("in 1.0: log: its result has NaN")
    assert f"({__file__}:" in said and "in forward: return self.fc(x).abs()" in said
    assert "input 0 (3, 2) has none: from -" in said


@pytest.mark.parametrize(
    "name, function",
    [
        ("sqrt", lambda: (ad.ones(3) - 2).sqrt()),
        ("sqrt", lambda: ad.ones(3).sub_(2).sqrt_()),
        ("softmax", lambda: ad.full((2, 3), -float("inf")).softmax(1)),
        ("log", lambda: ad.compile(lambda x: x.log() * 2)(-ad.ones(2))),
        ("sub", lambda: ad.tensor(float("inf")) - float("inf")),
        ("div", lambda: ad.zeros(1, dtype=ad.float64) / 0),
        ("log", lambda: -ad.ones(2, dtype=ad.bfloat16).log().exp().neg().log()),
    ],
)
def test_each_way_to_compute_is_looked_at(name, function):
    assert met(function).startswith(f"{name}: its result has NaN")


def test_an_input_that_has_it_is_named():
    x = ad.tensor([1.0, float("nan")])
    assert "input 0 (2,) has NaN itself" in met(lambda: x * 2)


def test_without_nan_all_is_as_before():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = ad.randn(5, 3)

    def step():
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.item(), [p.grad.tolist() for p in model.parameters()]

    expected = step()
    with looking():
        assert step() == expected
        assert ad.empty(0).log().shape == (0,) and ad.arange(3).sum().item() == 3
        with looking():
            assert ad.ones(1).log().item() == 0
    assert ad.tensor(-1.0).log().isnan()  # behind the block nobody looks


def test_a_backward_is_named_by_the_function_whose_gradient_it_is():
    y = ad.tensor(0.0, requires_grad=True)
    with pytest.raises(ad.AutogradError, match="MulBackward0' returned nan"), looking():
        (y * 0).sqrt().backward()


def test_where_operations_are_recorded_it_is_refused():
    with ad.lazy(), pytest.raises(ad.GraphError, match="outside of graphs and lazy blocks"):
        looking().__enter__()
    assert ad.tensor(-1.0).log().isnan()
