"""Second derivatives from outside: gradients of compiled functions have gradients themselves, as
eager ones do, or refuse."""

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import autograd, nn
from adjoint.core.errors import AutogradError
from tests.native import needs_native

pytestmark = needs_native

KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def leaves(count, *shape):
    return [ad.randn(*shape or (4,), requires_grad=True) for _ in range(count)]


def net(*sizes, act=nn.Tanh):
    pairs = itertools.pairwise(sizes)
    layers = [layer for i, o in pairs for layer in (nn.Linear(i, o), act())]
    return nn.Sequential(*layers[:-1])


def grads(*tensors):
    return [None if x.grad is None else x.grad.clone() for x in tensors]


def trained(m):
    found = grads(*m.parameters())
    m.zero_grad()
    return found


def slope(y, *xs, **options):
    return autograd.grad(y, xs, create_graph=True, **options)


@kind
def forces_are_matched(comp):
    m = net(3, 8, 1)
    c, optimizer = comp(m), ad.optim.Adam(m.parameters(), lr=1e-2)
    for _ in range(3):
        x, wanted = ad.randn(5, 3, requires_grad=True), ad.randn(5, 3)
        energy = c(x).sum()
        (force,) = slope(energy, x)
        optimizer.zero_grad()
        loss = ((force - wanted) ** 2).mean() + 0.1 * energy**2
        loss.backward()
        yield [loss, *grads(x, *m.parameters())]
        optimizer.step()


@kind
def gradients_are_penalized(comp):
    critic = net(4, 8, 1, act=lambda: nn.LeakyReLU(0.2))
    c, optimizer = comp(critic), ad.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(3):
        real, fake, share = ad.randn(8, 4), ad.randn(8, 4), ad.rand(8, 1)
        x = (share * real + (1 - share) * fake).requires_grad_()
        y = c(x)
        (g,) = slope(y, x, grad_outputs=ad.ones_like(y))
        loss = c(fake).mean() - c(real).mean() + 10 * ((g.norm(2, dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        yield [loss, *grads(*critic.parameters())]
        optimizer.step()


@kind
def inner_steps_are_differentiated(comp):
    def loss_of(parameters, x, y):
        w1, b1, w2 = parameters
        return (((x @ w1 + b1).tanh() @ w2 - y) ** 2).mean()

    c = comp(loss_of)
    parameters = [*leaves(1, 2, 8), ad.zeros(8, requires_grad=True), *leaves(1, 8, 1)]
    for _ in range(2):
        fast = parameters
        for _ in range(2):
            g = slope(c(fast, ad.randn(6, 2), ad.randn(6, 1)), *fast)
            fast = [p - 0.1 * each for p, each in zip(fast, g, strict=True)]
        c(fast, ad.randn(6, 2), ad.randn(6, 1)).backward()
        yield grads(*parameters)


@kind
def inner_steps_of_a_module(comp):
    m = net(2, 6, 1)
    c = comp(lambda parameters, x: ad.func.functional_call(m, parameters, (x,)))
    fast, x = dict(m.named_parameters()), ad.randn(6, 2)
    for _ in range(2):
        g = slope((c(fast, x) ** 2).mean(), *fast.values())
        fast = {name: p - 0.1 * each for (name, p), each in zip(fast.items(), g, strict=True)}
    c(fast, x).sum().backward()
    yield trained(m)


@kind
def five_orders(comp):
    c, (x,) = comp(lambda x: (x.sin() * x.exp()).sum()), leaves(1)
    y = c(x)
    for _ in range(4):
        (y,) = slope(y.sum(), x)
        yield [y]
    y.sum().backward()
    yield grads(x)


@kind
def norm_of_the_parameters_gradients(comp):
    m = net(3, 6, 2)
    g = slope((comp(m)(ad.randn(5, 3)) ** 2).mean(), *m.parameters())
    sum((each**2).sum() for each in g).backward()
    yield [*g, *trained(m)]


@kind
def gradients_of_grad_attributes(comp):
    m = net(3, 6, 2)
    comp(m)(ad.randn(5, 3)).sin().sum().backward(create_graph=True)
    yield autograd.grad(sum((p.grad**2).sum() for p in m.parameters()), list(m.parameters()))
    yield trained(m)


@kind
def two_gradients_of_one_call(comp):
    c, (x, w) = comp(lambda x, w: (x * w).tanh()), leaves(2)
    y = c(x, w)
    (a,), (b,) = slope(y.sum(), x), slope(y.pow(2).sum(), w)
    yield autograd.grad(a.sum(), w, retain_graph=True)
    (a * b).sum().backward()
    yield [a, b, *grads(x, w)]


@kind
def some_inputs(comp):
    c, (x, y, z) = comp(lambda x, y, z: (x * y).sin() + x * 3 + z.detach()), leaves(3)
    g = slope(c(x, y, z).sum(), x, z, allow_unused=True)
    g[0].pow(2).sum().backward()
    yield [*g, *grads(x, y, z)]


@kind
def several_outputs(comp):
    c, (x, y) = comp(lambda x, y: (x * y, x.sin(), {"z": y.exp(), "n": 3, "x": x})), leaves(2)
    a, b, rest = c(x, y)
    g, h = slope(a.sum(), x, y), slope((b * rest["z"]).sum(), x)
    k = slope((a * b).sum() + rest["x"].sum(), x, y)
    (g[0] * h[0] * k[1]).sum().backward()
    yield [*g, *h, *k, *grads(x, y)]


@kind
def linear_functions(comp):
    w, (x,) = ad.randn(4, 3), leaves(1, 2, 4)
    (g,) = slope(comp(lambda x: x @ w)(x).sum(), x)
    assert not g.requires_grad
    yield [g]


@kind
def cotangents_with_a_history(comp):
    c, (x, v, t) = comp(lambda x: x.sin() * x), leaves(3, 4, 4)
    (g,), (h,) = slope(c(x), x, grad_outputs=v), slope(c(x), x, grad_outputs=t.t())
    (g * h).sum().backward()
    yield [g, *grads(x, v, t)]


@kind
def directional_derivatives_by_two_backwards(comp):
    c, (x,) = comp(lambda x: (x.sin(), x**3)), leaves(1)
    v = [ad.zeros(4, requires_grad=True) for _ in range(2)]
    (g,) = slope(c(x), x, grad_outputs=v)
    yield autograd.grad(g, v, ad.ones(4))


@kind
def hooks(comp):
    def function(x, w):
        h = x * w
        h.register_hook(lambda g: g * 2)
        return h.sin()

    c, (x, w) = comp(function), leaves(2)
    x.register_hook(lambda g: g * 3)
    y = c(x, w)
    (g,) = slope(y.sum(), x)
    g.register_hook(lambda g: g * 5)
    (g**2).sum().backward()
    yield [g, *grads(x, w)]


@kind
def tensors_that_are_not_read_are_written(comp):
    c, (x, b) = comp(lambda x, b: (x * 2).sin() + b), leaves(2)
    y = c(x, b)
    with ad.no_grad():
        b.add_(1)
    (g,) = slope(y.sum(), x)
    (g**2).sum().backward()
    yield [g, *grads(x, b)]


@kind
def steps_between(comp):
    m = net(3, 6, 1)
    c, optimizer, (x,) = comp(m), ad.optim.SGD(m.parameters(), lr=0.1), leaves(1, 5, 3)
    for _ in range(3):
        (g,) = slope(c(x).sum(), x)
        optimizer.zero_grad()
        (g**2).sum().backward(retain_graph=True)
        yield grads(*m.parameters())
        optimizer.step()


@kind
def autocast(comp):
    m, (x,) = net(3, 6, 1).double(), leaves(1, 5, 3)
    c = comp(lambda x: m(x.double()) if not ad.is_autocast_enabled("cpu") else x.sin() * 2)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        y = c(x)
    for each in (y, c(x)):
        (g,) = slope(each.float().sum(), x)
        (g**2).sum().backward()
        yield [g, *trained(m)]


@kind
def a_function_of_its_own_gradient(comp):
    c, (x,) = comp(lambda x: x.sin() * x), leaves(1)
    (g,) = slope(c(x).sum(), x)
    (h,) = slope(c(g).sum(), x)
    h.sum().backward()
    yield [g, h, *grads(x)]


@kind
def draws(comp):
    m = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1))
    c = comp(m)
    for _ in range(3):
        (x,) = leaves(1, 5, 3)
        energy = c(x).sum()
        yield [ad.randn(3)]  # another draw comes between
        (g,) = slope(energy, x)
        (g**2).sum().backward()
        yield [g, *trained(m), ad.rand(2)]


@kind
def statistics(comp):
    m = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    c = comp(m)
    for _ in range(3):
        (x,) = leaves(1, 5, 3)
        (g,) = slope(c(x).sum(), x)
        (g**2).sum().backward()
        yield [g, *trained(m), *(each.clone() for each in m.buffers())]


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.scale = nn.Linear(3, 1), 0, 1.0

    def forward(self, x):
        self.calls += 1
        return (self.layer(x) * self.scale * self.calls).sin()


@kind
def numbers_in_attributes(comp):
    m = Counted()
    c = comp(m)
    for k in range(4):
        m.scale, (x,) = 1.0 + k, leaves(1, 5, 3)
        y, z = c(x), c(x * 2)  # counts on before the gradient of the first one
        (g,), (h,) = slope(y.sum(), x), slope(z.sum(), x)
        (g * h).sum().backward()
        yield [g, h, *trained(m), ad.tensor(float(m.calls))]


@kind
def numbers_as_arguments(comp):
    c = comp(lambda x, t: (x * t).sin() * t**2)
    for k in range(4):
        (x,) = leaves(1)
        (g,) = slope(c(x, 0.5 * k).sum(), x)
        (g**2).sum().backward()
        yield [g, *grads(x)]


@kind
def sizes(comp):
    m = net(3, 6, 1)
    c = comp(m)
    for n in (5, 1, 15, 0, 5):
        (x,) = leaves(1, n, 3)
        (g,) = slope(c(x).sum(), x)
        (g**2).sum().backward()
        yield [g, *trained(m)]


@kind
def computed_tensors_from_outside(comp):
    w, x, z = leaves(3)
    h, a = (w * 2).sin(), z * z
    c = comp(lambda x, a: (x * h * w * a).sin())
    g = slope(c(x, a).sum(), x, w, z)
    (g[0] * g[1] * g[2]).sum().backward()
    yield [*g, *grads(w, x, z)]


@kind
def containers_and_views(comp):
    c = comp(lambda parts: {"e": (parts["x"][0] * parts["x"][1]).sin().sum(), "k": parts["k"]})
    x, (base,) = leaves(1)[0], leaves(1, 6, 4)
    g = slope(c({"x": [x, base.t()[:, 1]], "k": 3})["e"], x, base)
    (g[0] * g[1][1]).sum().backward()
    yield [*g, *grads(x, base)]


@kind
def hessians(comp):
    c, x, v = comp(lambda x: (x.sin() * x.prod()).sum()), ad.randn(4), ad.randn(4)
    yield [autograd.functional.hessian(c, x), ad.func.hessian(c)(x), ad.func.grad(c)(x)]
    for product in (autograd.functional.hvp, autograd.functional.vhp, autograd.functional.jvp):
        yield product(c, x, v)


class Squared(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x


@kind
def functions_with_a_backward_of_their_own(comp):
    c, (x,) = comp(lambda x: Squared.apply(x.sin())), leaves(1)
    (g,) = slope(c(x).sum(), x)
    g.pow(2).sum().backward()
    yield [g, *grads(x)]


@kind
def layers(comp):
    normed = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    for m, shape in (
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.SiLU()), (2, 1, 6, 6)),
        (normed, (2, 3, 4)),
        (nn.Sequential(nn.Softmax(-1), nn.LayerNorm(4)), (3, 4)),
    ):
        (x,) = leaves(1, *shape)
        (g,) = slope(comp(m)(x).sin().sum(), x)
        (g**2).sum().backward()
        yield [g, *trained(m), *grads(x)]


@kind
def calls_of_one_another(comp):
    inner = comp(lambda x: x.sin())
    chain = [comp(lambda x, k=k: (x * k).sin()) for k in (1.0, 2.0)]
    c, (x,) = comp(lambda x: inner(x) * x), leaves(1)
    (g,) = slope(chain[1](chain[0](c(x))).sum(), x)
    g.pow(2).sum().backward()
    yield [g, *grads(x)]


@kind
def a_gradient_within_and_one_outside(comp):
    m, (x,) = net(3, 6, 1), leaves(1, 5, 3)

    def forces(x):
        energy = m(x).sum()
        return energy, *slope(energy, x)

    energy, force = comp(forces)(x)
    (h,) = slope(force.sin().sum(), x)
    (h**2).sum().backward()
    yield [energy, force, h, *trained(m)]


@kind
def gathered_rows(comp):
    rows = nn.Embedding(9, 4)
    (g,) = slope(comp(lambda i: rows(i).sin().sum())(ad.tensor([1, 2, 2, 5])), rows.weight)
    g.pow(2).sum().backward()
    yield [g, *trained(rows)]


@kind
def numbers_of_no_dimension_and_one_argument_twice(comp):
    c, (x,) = comp(lambda x, y: (x * y).sin()), leaves(1, 1)
    y = x.reshape(())
    (g,) = slope(c(y, y), y)
    (h,) = slope(g, y)
    h.backward()
    yield [g, h, *grads(x)]


def outcomes(run, comp):
    ad.manual_seed(0)
    return [None if x is None else x.detach().clone() for part in run(comp) for x in part]


def assert_close(found, wanted, tolerance=2e-5):
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert x.dtype == y.dtype and x.shape == y.shape
            scale = float(y.abs().max()) if y.numel() else 0.0
            np.testing.assert_allclose(x.numpy(), y.numpy(), tolerance, tolerance * (scale + 1e-1))


@pytest.mark.parametrize("name", KINDS)
def test_gradients_of_gradients_are_those_of_eager_execution(name):
    assert_close(outcomes(KINDS[name], ad.compile), outcomes(KINDS[name], lambda f: f))


def test_a_program_is_derived_once_for_each_kind_of_backward():
    c, (x,) = ad.compile(lambda x: x.sin()), leaves(1)
    for _ in range(3):
        x.grad = None
        (g,) = slope(c(x).sum(), x)
        g.sum().backward()
    [program] = c.programs
    assert len(program.derivatives._programs) == 1
    x.grad = None  # else it is another tensor of which Python knows
    slope(c(x), x, grad_outputs=ad.ones(4, requires_grad=True))
    assert len(program.derivatives._programs) == 2


def test_what_was_changed_since_the_call_is_refused():
    c, (x, b) = ad.compile(lambda x, b: (x + b).tanh()), leaves(2)
    y = c(x, b)
    with ad.no_grad():
        b.add_(1)
    (g,) = slope(y.sum(), x)  # which the call has kept
    np.testing.assert_allclose(g.detach().numpy(), (1 - y**2).detach().numpy(), 1e-6)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        g.sum().backward()
    y = c(x, b)
    b.data = ad.zeros(4)
    with pytest.raises(AutogradError, match="has other data"):
        slope(y.sum(), x)[0].sum().backward()
    m, (x,) = Counted(), leaves(1, 5, 3)
    c = ad.compile(m)
    y = c(x)
    m.layer.weight.requires_grad_(False)
    (g,) = slope(y.sum(), x)  # which is as it was; its own gradient would lack a path
    with pytest.raises(AutogradError, match=r"requires_grad of a tensor|history of a tensor"):
        (g**2).sum().backward()


def test_python_state_that_was_changed_before_the_first_gradient_is_refused():
    m, (x,) = Counted(), leaves(1, 5, 3)
    c = ad.compile(m)
    y = c(x)
    m.layer.eval()
    m.scale = ad.ones(1)
    (g,) = slope(y.sum(), x)
    with pytest.raises(AutogradError, match="since the function was called"):
        (g**2).sum().backward()


def test_a_function_that_writes_what_its_gradient_reads_is_refused():
    count = ad.ones(4)

    def function(x):
        y = (x * count).sin()
        count.add_(1)
        return y

    c, (x,) = ad.compile(function), leaves(1)
    y = c(x)
    with pytest.raises(AutogradError):  # as eagerly
        (slope(y.sum(), x)[0] ** 2).sum().backward()


def test_released_histories_are_refused():
    c, (x,) = ad.compile(lambda x: x.sin()), leaves(1)
    y = c(x)
    (g,) = slope(y.sum(), x, retain_graph=False)
    autograd.grad(g.sum(), x)
    for released in (y, g):
        with pytest.raises(AutogradError, match="second time"):
            autograd.grad(released.sum(), x)


def test_hooks_on_results_that_a_second_derivative_passes_are_refused():
    for function, passes in ((lambda x: x.tanh(), True), (lambda x: x.sin(), False)):
        c, (x,) = ad.compile(function), leaves(1)
        y = c(x)
        (g,) = slope(y.sum(), x)
        y.register_hook(lambda g: g * 3)
        if passes:  # tanh' is computed from the result
            with pytest.raises(AutogradError, match="a hook, or retain_grad"):
                g.sum().backward()
        else:
            g.sum().backward()


def test_an_error_in_the_middle_leaves_all_as_it_was():
    c, (x,) = ad.compile(lambda x, i: x[i].sin().sum()), leaves(1)
    (wanted,) = slope(c(x, ad.tensor([1, 3])), x)
    with pytest.raises(IndexError):
        c(x, ad.tensor([0, 9]))
    (g,) = slope(c(x, ad.tensor([1, 3])), x)
    assert ad.equal(g, wanted)


def test_memory_of_derivatives_is_used_again():
    c, (x,) = ad.compile(lambda x: x.sin().exp()), leaves(1, 64)
    for _ in range(4):
        (g,) = slope(c(x).sum(), x)
        (g**2).sum().backward()
        del g
        x.grad = None
    [program] = c.programs
    [derived] = program.derivatives._programs.values()
    assert len(program.others) == len(derived.program.others) == 1


ACTS = ("Tanh", "Sigmoid", "SiLU", "Softplus", "GELU", "ELU", "Mish", "LogSigmoid", "Softsign")


@pytest.mark.sweep
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 15])
def test_small_models_of_all_kinds(act, dtype, rows):
    def run(comp):
        for width, normed in itertools.product((1, 7), (nn.Identity, nn.LayerNorm)):
            m = nn.Sequential(
                nn.Linear(3, width), normed(width), getattr(nn, act)(), nn.Linear(width, 2)
            ).to(dtype)
            c = comp(m)
            for seeded in (False, True):
                x = ad.randn(rows, 3, dtype=dtype, requires_grad=True)
                y = c(x)
                v = ad.randn_like(y).requires_grad_(seeded)
                g = slope(y, x, *m.parameters(), grad_outputs=v)
                (h,) = slope(sum((each**2).sum() for each in g), x)
                (h.sum() + g[0].sin().sum()).backward()
                yield [*g, h, *grads(x, v), *trained(m)]

    tolerance = 1e-3 if dtype is ad.float32 else 1e-9
    assert_close(outcomes(run, ad.compile), outcomes(run, lambda f: f), tolerance)
