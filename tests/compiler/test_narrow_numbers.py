"""Numbers that change between calls beside bfloat16 and float16: arguments, rounded as eagerly."""

from types import SimpleNamespace

import pytest

import adjoint as ad
from adjoint import nn
from tests.native import needs_native

pytestmark = needs_native
held = SimpleNamespace(t=0.0)
FUNCTIONS = {
    "mul": lambda x: x * held.t,
    "rmul": lambda x: held.t * x,
    "add": lambda x: x + held.t,
    "rsub": lambda x: held.t - x,
    "div": lambda x: x / held.t,
    "rdiv": lambda x: held.t / (x + 3).detach(),
    "mul_": lambda x: x.clone().mul_(held.t),
    "alpha": lambda x: ad.add(x, x, alpha=held.t),
    "floor_divide": lambda x: x // held.t,
    "addcmul": lambda x: ad.addcmul(x, x, x, value=held.t),
    "lerp": lambda x: ad.lerp(x, x * 0, held.t),
    "pow": lambda x: (x + 3).detach() ** held.t,
    "rpow": lambda x: held.t**x,
    "where": lambda x: ad.where(x > held.t, x, held.t),
    "clamp": lambda x: ad.clamp(x, min=held.t),
    "branch": lambda x: ad.cond(x.sum() > 0, lambda x: x * held.t, lambda x: x + held.t, (x,)),
}


def same(found, wanted):
    assert found.dtype is wanted.dtype
    ad.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [ad.bfloat16, ad.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_arguments(dtype, name):
    function = FUNCTIONS[name]
    compiled = ad.compile(function)
    x = ad.linspace(-1, 1, 33).to(dtype)
    for held.t in (0.3, 0.371, 1.7, 123.4, 1e-3, 70000.0):
        same(compiled(x), function(x))
    assert len(compiled.reasons) == 2  # the first, and the one in which it is an argument


def test_under_autocast_with_gradients_and_a_schedule():
    found = []
    for compiles in (False, True):
        ad.manual_seed(0)
        model = nn.Linear(7, 3)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = ad.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        state = SimpleNamespace(scale=1.0, steps=0)

        def step(x):
            with ad.autocast("cpu", dtype=ad.bfloat16):
                y = model(x) * state.scale  # noqa: B023 - called at once
                loss = y.float().square().mean()
            optimizer.zero_grad()  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            state.steps += 1  # noqa: B023
            return (model.weight.detach().bfloat16() * (0.5 * state.steps)).sum()  # noqa: B023

        call = ad.compile(step) if compiles else step
        x = ad.linspace(-1, 1, 28).reshape(4, 7)
        losses = []
        for n in range(6):
            state.scale = 1 / (1 + 0.3 * n)
            losses.append(call(x).item())
            schedule.step()
        found.append((losses, [p.tolist() for p in model.parameters()]))
        if compiles:
            assert len(call.programs) == 2, call.reasons
    for a, b in zip(*found, strict=True):
        ad.testing.assert_close(ad.tensor(a[0]), ad.tensor(b[0]), rtol=1e-2, atol=1e-2)


def test_numbers_that_the_function_changes():
    state = SimpleNamespace(h=0.3, n=0)

    def function(x):
        state.n += 1
        state.h = state.h * 1.1
        return x * state.h, state.n - x, x / state.n

    compiled = ad.compile(function)
    x = ad.linspace(-1, 1, 5).bfloat16()
    found = [compiled(x) for _ in range(5)]
    after = state.h, state.n
    state.h, state.n = 0.3, 0
    for results in found:
        for y, wanted in zip(results, function(x), strict=True):
            same(y, wanted)
    assert after == (state.h, state.n)
    assert compiled.reasons == ["first call"]


def test_gradients_are_those_of_eager_code():
    def function(x):
        return ad.autograd.grad((x * held.t / (held.t + 1)).float().sum(), x)[0]

    compiled = ad.compile(function)
    x = ad.linspace(-1, 1, 9).bfloat16().requires_grad_()
    for held.t in (0.3, 0.7, 5.0):
        ad.testing.assert_close(compiled(x), function(x), rtol=1e-2, atol=0)
    assert len(compiled.reasons) == 2
