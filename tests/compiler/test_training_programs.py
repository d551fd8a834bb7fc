"""Training steps as people write them, compiled: all that they leave is as after eager steps."""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
PROGRAMS = {}


class Square(ad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def program(function):
    """A function of a model that makes its training step."""
    PROGRAMS[function.__name__] = function
    return function


def usual(loss_of):
    """The program whose step minimizes `loss_of(model, x)` by SGD."""

    def made(model):
        optimizer = ad.optim.SGD(model.parameters(), lr=0.05)

        def step(x):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss

        return step

    made.__name__ = loss_of.__name__
    return program(made)


def mean_square(y):
    return y.square().mean()


@usual
def second_derivatives(model, x):
    x = x.clone().requires_grad_()
    u = model(x).sum(1)
    (g,) = ad.autograd.grad(u.sum(), x, create_graph=True)
    (h,) = ad.autograd.grad(g.sum(), x, create_graph=True)
    return mean_square(h.sum(1) + u)


@usual
def custom_function(model, x):
    return Square.apply(model(x)).mean()


@usual
def activations_written_in_place(model, x):
    h = model[0](x)
    h[:, 0] = 0
    h[:, 1:3] *= 2
    h.clamp_(min=-0.5)
    return mean_square(model[2](h))


@usual
def functional_call(model, x):
    halves = {name: p * 0.5 for name, p in model.named_parameters()}
    return mean_square(ad.func.functional_call(model, halves, (x,)))


@usual
def a_step_within_the_step(model, x):
    parameters = dict(model.named_parameters())
    loss = mean_square(ad.func.functional_call(model, parameters, (x,)))
    gradients = ad.autograd.grad(loss, list(parameters.values()), create_graph=True)
    pairs = zip(parameters.items(), gradients, strict=True)
    moved = {name: p - 0.1 * g for (name, p), g in pairs}
    return mean_square(ad.func.functional_call(model, moved, (x,)))


@usual
def gradient_penalty(model, x):
    loss = mean_square(model(x))
    gradients = ad.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return loss + sum(g.square().sum() for g in gradients)


@usual
def frozen_for_a_while(model, x):
    for p in model.parameters():
        p.requires_grad_(False)
    known = model(x)
    for p in model.parameters():
        p.requires_grad_(True)
    return mean_square(model(x) - known * 0.5)


@program
def hooks(model):
    model[0].weight.register_hook(lambda g: g * 0.5)
    model[1].register_forward_hook(lambda module, given, found: found * 2)
    return usual(lambda model, x: mean_square(model(x)))(model)


@program
def spectral_norm(model):
    model[0] = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8))
    return usual(lambda model, x: mean_square(model(x)))(model)


@program
def tied_weights(model):
    model[2] = nn.Linear(8, 4)
    model.append(nn.Linear(4, 8))
    model[3].weight = model[0].weight
    return usual(lambda model, x: mean_square(model(x)))(model)


@program
def frozen_layer(model):
    model[0].requires_grad_(False)
    return usual(lambda model, x: mean_square(model(x)))(model)


@program
def unrolled_cell(model):
    model.append(nn.LSTMCell(4, 8))
    model.append(nn.Linear(8, 1))

    def loss_of(model, x):
        h = c = ad.zeros(len(x), 8)
        total = 0
        for t in range(5):
            h, c = model[3](x * t, (h, c))
            total = total + mean_square(model[4](h))
        return total

    return usual(loss_of)(model)


@program
def clipped_and_accumulated(model):
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        for part in x.chunk(2):
            (model(part).square().sum() / 2).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return norm

    return step


@program
def moving_average_of_parameters(model):
    average = copy.deepcopy(model)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        mean_square(model(x)).backward()
        optimizer.step()
        with ad.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
        return average[0].weight.clone()

    return step


@program
def statistics_of_its_own(model):
    model.register_buffer("seen", ad.zeros(()))

    def loss_of(model, x):
        model.seen += 1
        model.seen.add_(x.sum())
        return mean_square(model(x)) / model.seen.detach().abs().clamp(min=1)

    return usual(loss_of)(model)


@program
def noise_on_data_gradients_and_parameters(model):
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        mean_square(model(x + 0.1 * ad.randn_like(x))).backward()
        for p in model.parameters():
            p.grad.add_(ad.randn_like(p), alpha=0.01)
        optimizer.step()
        with ad.no_grad():
            nn.init.normal_(model[2].bias)
        return model[2].bias.detach().clone()

    return step


@program
def a_buffer_that_is_replaced(model):
    model.register_buffer("seen", ad.zeros(()))

    def loss_of(model, x):
        model.seen = 0.9 * model.seen + 0.1 * x.mean()
        return mean_square(model(x)) * model.seen

    return usual(loss_of)(model)


@program
def a_plain_average_of_batch_statistics(model):
    model[1] = nn.BatchNorm1d(8, momentum=None)
    return usual(lambda model, x: mean_square(model(x * x)))(model)


@program
def average_of_parameters_corrected_by_the_step_number(model):
    average = {name: ad.zeros_like(p) for name, p in model.named_parameters()}
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05)
    model.steps = 0

    def step(x):
        optimizer.zero_grad()
        mean_square(model(x)).backward()
        optimizer.step()
        model.steps += 1
        with ad.no_grad():
            for name, p in model.named_parameters():
                average[name] = 0.9 * average[name] + 0.1 * p
        return average["2.weight"] / (1 - 0.9**model.steps)

    return step


def both_of(name, compile=ad.compile):
    """The eager step, the compiled one, and their models."""
    ad.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    models = model, copy.deepcopy(model)
    ad.manual_seed(1)
    eager = PROGRAMS[name](models[0])
    ad.manual_seed(1)
    return eager, compile(PROGRAMS[name](models[1])), models


NAMES = sorted(set(PROGRAMS) - {"<lambda>"})


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_program_leaves_what_an_eager_one_leaves(name):
    eager, compiled, models = both_of(name)
    for i in range(5):
        x = ad.full((6, 4), 0.3 * i + 0.1) + ad.arange(4) * 0.1
        ad.manual_seed(i)
        expected = eager(x)
        ad.manual_seed(i)
        found = compiled(x)
        pairs = [(found, expected)]
        for a, b in zip(*(m.state_dict().values() for m in models), strict=True):
            pairs.append((b, a))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                pairs.append((b.grad, a.grad))
        for a, b in pairs:
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=2e-4, atol=1e-6)
    assert len(compiled.programs) == 1


def _freezes(model, x):
    loss = mean_square(model(x))
    model[0].requires_grad_(False)
    return loss


def _reads(model, x):
    return mean_square(model(x)) * model[2].bias.sum().item()


@pytest.mark.parametrize(
    ("loss_of", "says"), [(_freezes, "another requires_grad"), (_reads, "reads a value")]
)
def test_what_is_refused_changes_nothing(loss_of, says):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model.register_buffer("seen", ad.zeros(()))
    before = {name: x.tolist() for name, x in model.state_dict().items()}
    seen = model.seen
    with pytest.raises(Unsupported, match=says):
        ad.compile(usual(loss_of)(model))(ad.ones(3, 4))
    assert {name: x.tolist() for name, x in model.state_dict().items()} == before
    assert model.seen is seen and all(p.requires_grad for p in model.parameters())
