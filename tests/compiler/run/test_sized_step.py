"""Programs of other sizes, filled in from one that was lowered with symbolic sizes."""

import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.passes import pipelines
from adjoint.compiler.passes.kernels import Kernel
from adjoint.core import policy
from adjoint.nn import functional as F
from tests.compiler.capture.test_sizes import FUNCTIONS
from tests.native import needs_native

pytestmark = needs_native


def templates(step):
    """The captures of a function with symbolic sizes."""
    variants = [v for each in step._programs.values() for v in each if v.template is not None]
    return list({id(v.template): v.template for v in variants}.values())


def lowerings(step):
    """How often it was lowered with symbolic sizes."""
    return sum(len(each.lowerings) for each in templates(step))


def bits(x):
    """Shape, dtype and bytes of all arrays in what a function returned."""
    if isinstance(x, (tuple, list)):
        return [bits(each) for each in x]
    if not isinstance(x, ad.Tensor):
        return x
    array = x.detach().numpy()
    return array.shape, array.dtype, array.tobytes()


def sizes_of(seed, count, low=1, high=64):
    return [int(n) for n in np.random.default_rng(seed).integers(low, high + 1, count)]


def drawn(n, columns=24, dtype=np.float32):
    return ad.tensor(np.random.default_rng(n).standard_normal((n, columns)).astype(dtype))


def policy_net(activation, dtype=ad.float32):
    ad.manual_seed(3)
    return nn.Sequential(
        nn.Linear(24, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 4)
    ).to(dtype)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
@pytest.mark.parametrize("grad", [True, False])
def test_a_policy_has_the_bits_of_programs_made_for_each_size(activation, dtype, grad):
    model = policy_net(activation, dtype)
    step = ad.compile(lambda x: model(x).log_softmax(-1))
    sizes = [*sizes_of(1, 8), 1, 0, 2, *sizes_of(2, 2, 65, 512), *sizes_of(1, 2)]
    with ad.set_grad_enabled(grad):
        for n in sizes:
            x = drawn(n, dtype=dtype.numpy)
            own = ad.compile(lambda x: model(x).log_softmax(-1), dynamic=False)
            found, expected = step(x), own(x)
            assert bits(found) == bits(expected), n
            if grad and n:
                gradients = [
                    [p.clone() for p in ad.autograd.grad((y * y).sum(), [*model.parameters()])]
                    for y in (found, expected)
                ]
                assert bits(gradients[0]) == bits(gradients[1]), n
    assert 0 < lowerings(step) <= policy.SIZED_LOWERINGS
    assert not any(each.why_not for each in templates(step))


def trained(sizes, optimizer, apart):
    """Losses, gradients, parameters and the optimizer's state after each step, as bits; and the
    function, which is compiled for each size `apart`.
    """
    model = policy_net(nn.ReLU)
    own = optimizer(model.parameters())

    def train(x, actions, weights):
        chosen = model(x).log_softmax(-1).gather(1, actions).squeeze(1)
        loss = -(chosen * weights).mean()
        own.zero_grad()
        loss.backward()
        own.step()
        return loss

    seen = []
    step = ad.compile(train)
    for n in sizes:
        if apart:
            step = ad.compile(train, dynamic=False)
        rng = np.random.default_rng(n)
        actions = ad.tensor(rng.integers(0, 4, (n, 1)))
        loss = step(drawn(n), actions, ad.tensor(rng.standard_normal(n).astype(np.float32)))
        state = [x for p in model.parameters() for x in own.state[p].values()]
        seen.append(bits([loss, *model.parameters(), *(p.grad for p in model.parameters())]))
        seen[-1].append(bits(state))
    return seen, step


@pytest.mark.parametrize(
    "optimizer",
    [lambda ps: ad.optim.Adam(ps, lr=1e-3), lambda ps: ad.optim.SGD(ps, lr=0.1, momentum=0.9)],
    ids=["adam", "sgd"],
)
def test_a_training_step_has_the_bits_of_programs_made_for_each_size(optimizer):
    sizes = [18, 32, *sizes_of(4, 8), 1, 64, *sizes_of(5, 2, 65, 512)]
    trained([9], optimizer, True)  # the first program of a process may begin eagerly
    found, step = trained(sizes, optimizer, False)
    expected, _ = trained(sizes, optimizer, True)
    assert found == expected
    assert lowerings(step)
    assert not any(each.why_not for each in templates(step))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_do_not_depend_on_the_sizes_before(name):
    function, _ = FUNCTIONS[name]
    sizes = [5, 3, 7, 2, 15, 64, 9, 33, 70, 8, 4]
    results = []
    for order in (sizes, sizes[::-1]):
        step = ad.compile(function)
        made = {}
        for n in order:
            ad.manual_seed(n)
            made[n] = bits(step(drawn(n, 4)))
        results.append(made)
    assert results[0] == results[1]


def test_a_further_size_runs_no_pass(monkeypatch):
    ran = []
    of = pipelines.run_pipeline

    def counted(name, *args):
        ran.append(name)
        return of(name, *args)

    for where in ("segment", "step"):
        monkeypatch.setattr(f"adjoint.compiler.run.{where}.run_pipeline", counted)
    model = policy_net(nn.Tanh)
    step = ad.compile(lambda x: model(x))
    for n in (40, 50, 60):
        step(drawn(n))
    assert ran
    ran.clear()
    for n in (61, 59, 62, 58):
        step(drawn(n))
    assert not ran
    assert lowerings(step) == 1


def test_sizes_that_decide_in_too_many_ways_are_lowered_each(monkeypatch):
    monkeypatch.setattr(policy, "SIZED_LOWERINGS", 1)
    step = ad.compile(lambda x: x.softmax(0))
    for n in (5, 3, 7):
        step(drawn(n, 4))
    with pytest.warns(UserWarning, match="decide in more than 1 ways"):
        for n in (1, 64, 500, 2, 4000):
            assert bits(step(drawn(n, 4))) == bits(ad.compile(lambda x: x.softmax(0))(drawn(n, 4)))
    assert lowerings(step) == 1


# Functions in which a size is a number that kernels read, or that none may read.
NUMBERS = {
    "mean": lambda x: x * 2 / x.shape[0],
    "negative": lambda x: x * -x.shape[0] + 1,
    "logarithm": lambda x: x * ad.full((), x.shape[0]).log(),
    "power": lambda x: x * ad.full((), x.shape[0]) ** 0.37,
    "returned": lambda x: (x * 2, ad.full((), x.shape[0])),
    "whole": lambda x: (x * 8).to(ad.int64) // x.shape[0],
    "reciprocal": lambda x: x + 1 / ad.full((), float(x.shape[0])),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_sizes(name):
    function = NUMBERS[name]
    step = ad.compile(function)
    for n in (5, 3, 7, 2, 15, 64, 9, 33, 70, 8, 1, 4, 1000):
        x = drawn(n, 4)
        found = step(x)
        assert bits(found) == bits(ad.compile(function, dynamic=False)(x)), n
        for y in found if isinstance(found, tuple) else (found,):
            y.zero_()  # of the caller alone
        assert bits(step(x)) == bits(ad.compile(function, dynamic=False)(x)), n


# Beside a constant, a kernel of narrow floats does not round what it multiplies before it adds.
NARROW = {
    "mul_add": lambda x: x * x.shape[0] + x,
    "div_add": lambda x: x / x.shape[0] + 1,
    "add_mul": lambda x: (x + x.shape[0]) * 0.3,
    "columns": lambda x: x * x.shape[1] + x * x.shape[0],
    "mean": lambda x: x.mean(0) * 3 + x.sum(0) / x.shape[0],
}


@pytest.mark.parametrize("dtype", [ad.float16, ad.bfloat16], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_numbers_of_sizes_beside_narrow_floats(name, dtype):
    function = NARROW[name]
    step = ad.compile(function)
    for n, columns in ((17, 16), (63, 16), (33, 5), (40, 6), (1, 16), (41, 16), (35, 3)):
        x = drawn(n, columns).to(dtype)
        own = ad.compile(function, dynamic=False)
        assert bits(step(x).float()) == bits(own(x).float()), n


def test_a_transformer_layer():
    ad.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    optimizer = ad.optim.SGD(layer.parameters(), lr=0.05)

    def train(x):
        loss = (layer(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    begun = {k: v.clone() for k, v in layer.state_dict().items()}
    results = []
    for dynamic in (False, None, False):
        layer.load_state_dict(begun)
        step = ad.compile(train, dynamic=dynamic)
        made = []
        for n in (5, 9, 12, 7, 30):
            x = np.random.default_rng(n).standard_normal((3, n, 16)).astype(np.float32)
            made.append(bits([step(ad.tensor(x)), *layer.parameters()]))
        results.append(made)
        assert dynamic is False or lowerings(step)
    assert results[1] == results[2]  # the first program of a process may begin eagerly


def test_reports_of_a_filled_program():
    model = policy_net(nn.Tanh)
    step = ad.compile(lambda x: model(x).softmax(1))
    for n in (40, 50, 60, 61):
        step(drawn(n))
    assert lowerings(step) == 1
    nodes = [node for each in step.programs for part in each.parts for node in part.graph.nodes]
    filled = [node for node in nodes if isinstance(node.op, Kernel) and node.op.late is not None]
    assert filled
    for node in filled:
        assert [y.spec for y in node.op.shown.outputs] == [y.spec for y in node.outputs]
    assert "kernel" in str(step.explain(drawn(61)))
    assert str(step.graph(drawn(61)))
    assert bits(step(drawn(61))) == bits(ad.compile(lambda x: model(x).softmax(1))(drawn(61)))


def test_threads_with_sizes_of_their_own():
    model = policy_net(nn.ReLU)
    step = ad.compile(lambda x: F.softmax(model(x), 1))
    expected = {n: bits(step(drawn(n))) for n in (20, 30)}
    sizes = sizes_of(6, 12)
    for n in sizes:
        expected[n] = bits(ad.compile(lambda x: F.softmax(model(x), 1), dynamic=False)(drawn(n)))
    wrong = []

    def run(own):
        for n in own:
            if bits(step(drawn(n))) != expected[n]:
                wrong.append(n)

    threads = [threading.Thread(target=run, args=(each,)) for each in (sizes, sizes[::-1])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_an_optimizer_whose_state_is_replaced():
    results = []
    for dynamic in (False, None, False):
        model = policy_net(nn.ReLU)
        optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)

        @ad.compile(dynamic=dynamic)
        def step(x, model=model, optimizer=optimizer):
            loss = (model(x) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        made = []
        for k, n in enumerate((18, 32, 22, 20, 25, 21, 19)):
            if k in (4, 6):
                optimizer.load_state_dict(optimizer.state_dict())
            made.append(bits([step(drawn(n)), *model.parameters()]))
        results.append(made)
    assert results[1] == results[2]


def test_gradients_of_gradients():
    model = policy_net(nn.Tanh)
    results = []
    for apart in (False, True):
        step = ad.compile(lambda x: model(x).tanh().sum(1))
        made = []
        for n in (18, 32, 22, 25, 21):
            if apart:
                step = ad.compile(lambda x: model(x).tanh().sum(1), dynamic=False)
            x = drawn(n).requires_grad_()
            (g,) = ad.autograd.grad(step(x).sum(), x, create_graph=True)
            made.append(bits([g, *ad.autograd.grad((g * g).sum(), [*model.parameters()][:4])]))
        results.append(made)
        assert apart or lowerings(step)
    assert results[0] == results[1]


def test_a_step_of_a_recurrent_layer_is_the_last_one_for_one_size_only():
    ad.manual_seed(2)
    layer = nn.LSTM(3, 4)

    def train(x):
        return ad.autograd.grad((layer(x)[0][4] ** 2).sum(), [*layer.parameters()])

    step = ad.compile(train)
    for n in (7, 6, 5, 9, 5, 8, 6):
        x = ad.tensor(np.random.default_rng(n).standard_normal((n, 2, 3)).astype(np.float32))
        assert bits(step(x)) == bits(ad.compile(train, dynamic=False)(x)), n
