"""Functions that go by values where these can be read, by operations where they are captured."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidArgument
from tests.native import needs_native

pytestmark = needs_native


@pytest.mark.parametrize("joined", [False, True], ids=["padded", "joined"])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_ctc_loss_of_lengths_that_come_with_each_call(joined, reduction):
    def loss(logits, targets, times, labels):
        logs = logits.log_softmax(2)
        found = nn.functional.ctc_loss(
            logs, targets, times, labels, reduction=reduction, zero_infinity=True
        )
        return found, ad.autograd.grad(found.sum(), logits)[0]

    compiled = ad.compile(loss)
    for seed, times, labels in ((0, [6, 4], [2, 3]), (1, [0, 6], [0, 5]), (2, [5, 1], [3, 2])):
        ad.manual_seed(seed)
        targets = ad.randint(1, 4, (2, 5))
        if joined:
            targets = ad.cat([row[:n] for row, n in zip(targets, labels, strict=True)])
        given = ad.randn(6, 2, 4).requires_grad_(), targets, ad.tensor(times), ad.tensor(labels)
        for found, wanted in zip(compiled(*given), loss(*given), strict=True):
            ad.testing.assert_close(found, wanted)
    assert len(compiled.programs) == 1
    logits, targets = ad.randn(6, 2, 4).requires_grad_(), ad.randint(1, 4, (2, 5))
    if joined:
        return
    for times, labels, text in (([7, 1], [1, 1], "at most 6"), ([2, 2], [6, 1], "do not fit")):
        with pytest.raises(InvalidArgument, match=text):
            compiled(logits, targets, ad.tensor(times), ad.tensor(labels))


def test_ctc_loss_of_a_training_step():
    ad.manual_seed(0)
    models = [nn.Linear(3, 5) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    criterion, losses = nn.CTCLoss(), []
    for model in models:
        optimizer = ad.optim.Adafactor(model.parameters())
        schedule = ad.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

        def step(x, targets, times, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = criterion(model(x).log_softmax(-1), targets, times, (2, 3))
            loss.backward()
            optimizer.step()
            return loss

        run = step if model is models[0] else ad.compile(step)
        losses.append([])
        for n in range(5):
            x = ad.arange(8.0 * 2 * 3).reshape(8, 2, 3) / 10 + n
            losses[-1].append(run(x, ad.tensor([[1, 2, 0], [3, 3, 1]]), ad.tensor([8, 7])).item())
            schedule.step()
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert len(run.programs) == 2  # with a rate, and with one that comes with each call


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_max_pool_draws_as_eagerly(rank):
    pool = getattr(nn, f"FractionalMaxPool{rank}d")(2, output_ratio=0.6, return_indices=True)

    def function(x):
        found, places = pool(x)
        return found, places, ad.autograd.grad(found.square().sum(), x)[0]

    compiled = ad.compile(function)
    x = ad.randn(2, 3, *(7,) * rank).requires_grad_()
    for seed in range(3):
        runs = []
        for run in (function, compiled):
            ad.manual_seed(seed)
            runs.append([*run(x), ad.rand(2)])
        for wanted, found in zip(*runs, strict=True):
            ad.testing.assert_close(found, wanted)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_the_closure_of_lbfgs_is_what_to_compile(search):
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x, y, losses = ad.randn(16, 4), ad.randn(16, 1), []
    for each, wrap in ((copy.deepcopy(model), lambda f: f), (model, ad.compile)):
        optimizer = ad.optim.LBFGS(each.parameters(), line_search_fn=search, max_iter=5)

        def closure(model=each, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        run = wrap(closure)
        losses.append([optimizer.step(run).item() for _ in range(3)])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert len(run.programs) == 1


@pytest.mark.parametrize("name", ["Muon", "Adafactor"])
def test_a_rate_that_changes_in_each_step_is_one_more_program(name):
    layer = nn.Linear(3, 2, bias=False)
    optimizer = getattr(ad.optim, name)(layer.parameters())

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(8):
        step(ad.ones(4, 3))
        optimizer.param_groups[0]["lr"] *= 0.9
    assert len(step.programs) <= 3
