"""`ad.compile(mode="pieces")`: Python runs in each call, pieces that come again are programs."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import policy
from adjoint.core.errors import Unsupported
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native

from ..test_training_programs import NAMES, both_of

pytestmark = needs_native


def pieces(function):
    return ad.compile(function, mode="pieces")


@pytest.mark.parametrize("name", NAMES)
def test_training_programs_leave_what_eager_ones_leave(name):
    eager, compiled, models = both_of(name, pieces)
    for i in range(5):
        x = ad.full((6, 4), 0.3 * i + 0.1) + ad.arange(4) * 0.1
        found = []
        for step, own in ((eager, models[0]), (compiled, models[1])):
            ad.manual_seed(i)
            loss = step(x)
            gradients = [p.grad for p in own.parameters()]
            found.append([loss, *own.state_dict().values(), *gradients])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert type(b._data) is np.ndarray  # as after an eager step
                np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=2e-4, atol=1e-6)
    assert compiled.programs


def test_values_may_be_read_and_state_of_python_changed():
    history = []
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 1))
    models = model, copy.deepcopy(model)

    def step_of(model):
        optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            if loss > 0.4:
                loss = loss * 2
            history.append(loss.item())
            loss.backward()
            optimizer.step()
            return loss

        return step

    steps = step_of(models[0]), pieces(step_of(models[1]))
    x = ad.randn(12, 5)
    for step in steps:
        ad.manual_seed(3)
        for _ in range(12):
            step(x)
    np.testing.assert_allclose(history[12:], history[:12], rtol=1e-5)
    assert any(value > 0.8 for value in history) and any(value < 0.4 for value in history)


def test_a_piece_is_one_kernel_from_its_second_time_on():
    compiled = pieces(lambda x: ((x * 2).exp() + 1).sqrt())
    x = ad.rand(100, 100)
    compiled(x)
    assert compiled.programs == []
    found = compiled(x)
    (piece,) = compiled.programs
    assert len(piece.part.schedule.steps) == 1
    ad.testing.assert_close(found, ((x * 2).exp() + 1).sqrt())


@pytest.mark.parametrize("size", [0, 1, 15, 5000])
def test_results_are_new_memory_whatever_is_written_between(size):
    compiled = pieces(lambda x, y: (x * 2, x[: size // 2] + y, x.view(-1)))
    x = ad.arange(size).float()
    kept = []
    for k in range(5):
        x.add_(1)
        doubled, shifted, shown = compiled(x, k)
        kept.append((doubled, shifted))
        shown.mul_(1)
        assert size == 0 or shown.data_ptr() == x.data_ptr()
    for k, (doubled, shifted) in enumerate(kept):
        wanted = np.arange(size) + 1 + k
        assert doubled.tolist() == (2 * wanted).tolist()
        assert shifted.tolist() == (wanted[: size // 2] + k).tolist()


def test_numbers_that_change_are_no_fault_and_traces_are_bounded(monkeypatch):
    monkeypatch.setattr(policy, "COMPILED_PIECES", 4)
    compiled = pieces(lambda x, k: (x * k) / 2)
    for k in (0.0, -0.0, 1, 1.0, *range(20), 0.0, -0.0, 0.0, -0.0):
        found = compiled(ad.ones(3), k)
        assert (1 / found).tolist() == (1 / (ad.ones(3) * k / 2)).tolist()
    assert len(compiled.programs) <= 4


def test_errors_in_the_middle_leave_tensors_usable():
    table = nn.Parameter(ad.ones(4, 2))

    def function(x, k):
        y = table * 2
        z = table[k]
        return y.sum() + z.sum()

    compiled = pieces(function)
    for _ in range(2):
        compiled(None, ad.tensor([1])).backward()
        with pytest.raises(IndexError):
            compiled(None, ad.tensor([7]))
        with pytest.raises(ZeroDivisionError):
            pieces(lambda x: (x + 1, 1 / 0))(ad.ones(2))
    compiled(None, ad.tensor([1])).backward()
    assert table.grad.tolist() == [[6.0, 6.0], [9.0, 9.0], [6.0, 6.0], [6.0, 6.0]]


def test_threads_and_modules():
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 3))
    compiled = ad.compile(model, mode="pieces")
    xs = [ad.randn(n, 6) for n in (3, 3, 5, 1, 0, 3, 5)] * 3
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled, xs))
    for x, y in zip(xs, found, strict=True):
        ad.testing.assert_close(y, model(x))
    with pytest.raises(Unsupported, match="pieces"):
        compiled.explain(xs[0])
    for x in xs[:3]:
        (compiled(x).square().sum() + model(x).square().sum()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_views_of_what_is_kept_for_backward():
    """What is written into new memory with each call is seen through views of it, too."""
    weight = ad.randn(64, 128, requires_grad=True)

    def step(x):
        weight.grad = None
        y = x @ weight
        first, second = y.split(64, 1)
        loss = (first * second).sum() + y.square().sum()
        assert loss.item() > -1e9  # which ends a piece
        loss.backward()
        return weight.grad

    pieces = ad.compile(step, mode="pieces")
    for _ in range(4):
        x = ad.randn(100, 64)
        found = pieces(x).clone()
        assert ad.allclose(found, step(x), atol=1e-2)


def test_a_read_of_one_of_several_results():
    """What computes several is computed for the first that is read; the others are known then."""

    def step(x):
        deviation, mean = ad.std_mean(x, 0, correction=0)
        drawn = ad.bernoulli(ad.sigmoid(deviation))  # which is drawn at once
        return drawn, mean * 2, deviation + drawn

    pieces = ad.compile(step, mode="pieces")
    for rows in (1, 4, 4, 4, 1):
        x = ad.randn(rows, 15, requires_grad=True)
        ad.manual_seed(rows)
        expected = step(x)
        ad.manual_seed(rows)
        found = pieces(x)
        for y, z in zip(found, expected, strict=True):
            ad.testing.assert_close(y, z)
        (one,) = ad.autograd.grad(found[2].sum(), x)
        (other,) = ad.autograd.grad(expected[2].sum(), x)
        ad.testing.assert_close(one, other)
