"""Sizes that change between calls of a compiled function: one capture stands for many."""

import math
import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import errors
from adjoint.core.symbolic_sizes import SizeGraph
from adjoint.nn import functional as F
from tests.native import needs_native

pytestmark = needs_native
SIZES = (5, 3, 7, 2, 15, 64, 9)
SMALL = (1, 4, 0, 5)


def captures(step):
    """How many times the function's Python was captured."""
    return sum("stands for such sizes" not in each for each in step.reasons)


def assert_equal(found, expected):
    """Results of two ways, bit for bit."""
    if isinstance(expected, ad.Tensor):
        assert found.shape == expected.shape
        assert found.dtype is expected.dtype
        a, b = found.detach(), expected.detach()
        assert np.array_equal(a.numpy(), b.numpy(), equal_nan=a.is_floating_point())
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for a, b in zip(found, expected, strict=True):
            assert_equal(a, b)
    else:
        assert type(found) is type(expected)
        assert found == expected


embedding = nn.Embedding(11, 4)
normed = nn.LayerNorm(4)
channels = nn.BatchNorm1d(4)
cell = nn.LSTM(4, 3)
attention = nn.MultiheadAttention(4, 2, batch_first=True)
convolution = nn.Conv1d(1, 2, 3, padding=1)


def _gradient(x):
    x = x.clone().requires_grad_()
    return ad.autograd.grad((x**3).sum() * x.shape[0], x)[0]


# Functions of x (n, 4), and for how many captures there is a reason with SIZES: the first size, the
# second, and others by which it decides.
FUNCTIONS = {
    "pointwise": (lambda x: x.tanh() * x.sigmoid() + 1, 2),
    "sum": (lambda x: x.sum(0) * 2, 2),
    "mean": (lambda x: x.mean(), 2),
    "by size": (lambda x: x.sum() / x.shape[0] if x.shape[0] else x.sum(), 3),
    "view": (lambda x: x.view(x.shape[0] * 2, 2).exp(), 2),
    "view -1": (lambda x: (x + 1).view(-1, 2).exp(), 2),
    "flatten": (lambda x: x.flatten().exp(), 2),
    "transposed": (lambda x: x.T.contiguous().view(4, x.size(0)) * 2, 2),
    "reshape a copy": (lambda x: (x * 2).T.reshape(-1), 3),
    "slices": (lambda x: x[1:] - x[:-1], 4),
    "half": (lambda x: x[: x.shape[0] // 2] * 2, 3),
    "last": (lambda x: x[-1:] + x, 4),
    "every other": (lambda x: x[::2].exp(), 3),
    "arange": (lambda x: x + ad.arange(x.shape[0])[:, None], 2),
    "zeros": (lambda x: ad.cat([x, ad.zeros(x.shape[0], 2), ad.ones_like(x)], 1), 2),
    "full": (lambda x: ad.full((x.shape[0],), 2.5) + x.sum(1), 2),
    "new": (lambda x: x.new_zeros(x.size()).add_(x).mul_(2), 2),
    "written": (lambda x: x.clone().index_fill_(1, ad.tensor([0]), 3.0), 2),
    "in place": (lambda x: (x * 2)[:, :1].mul_(3), 2),
    "expand": (lambda x: x[:, None].expand(-1, 3, -1).sum(1), 2),
    "outer": (lambda x: x @ x.T, 2),
    "softmax": (lambda x: (x @ x.T).softmax(-1) @ x, 3),
    "triangle": (lambda x: (x @ x.T).tril(), 2),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 2)), 2),
    "cat": (lambda x: ad.cat([x, x * 2], 0), 2),
    "stack": (lambda x: ad.stack([x, x * 2], 0).sum(0), 2),
    "cumsum": (lambda x: x.cumsum(0), 2),
    "sort": (lambda x: x.sort(0)[0], 2),
    "where": (lambda x: ad.where(x > 0, x, ad.zeros_like(x)), 2),
    "einsum": (lambda x: ad.einsum("ni,nj->nij", x, x), 2),
    "embedding": (lambda x: embedding((x.abs() * 3).long().clamp(0, 10)).sum(1), 2),
    "norm": (lambda x: normed(x) * 2, 2),
    "attention": (lambda x: attention(x[None], x[None], x[None])[0] if x.shape[0] else x, 3),
    "lstm": (lambda x: cell(x[None].expand(3, -1, -1))[0] if x.shape[0] else x, 3),
    "steps": (lambda x: cell(x[:, None])[0] if x.shape[0] else x, 3),
    "convolution": (lambda x: convolution(x[:, None]), 3),
    "dropout": (lambda x: F.dropout(x, 0.5), 2),
    "random": (lambda x: x + ad.randn(x.shape[0], 1) + ad.rand_like(x), 2),
    "branch": (lambda x: x * 2 if x.shape[0] > 6 else x + 1, 3),
    "gradient": (lambda x: _gradient(x), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_capture_for_all_sizes(name):
    function, most = FUNCTIONS[name]
    step = ad.compile(function)
    fixed = ad.compile(function, dynamic=False, recompile_limit=20)
    for k, n in enumerate((*SIZES, *SMALL)):
        if k == len(SIZES):
            assert captures(step) <= most, step.reasons
        x = ad.tensor(np.random.default_rng(k).standard_normal((n, 4)).astype(np.float32))
        found = []
        for each in (step, fixed, function):
            ad.manual_seed(3)
            try:
                found.append(each(x.clone()))
            except errors.AdjointError as error:
                found.append((type(error).__name__, str(error)))
        assert_equal(found[0], found[1])
        if isinstance(found[2], ad.Tensor):
            assert ad.allclose(found[0], found[2], rtol=1e-5, atol=1e-6, equal_nan=True)


def trained(compiled, sizes, change=None, dtype=ad.float64, **options):
    """The losses and weights of a training loop with batches of these sizes.

    In float64 two ways give nearly the same. In float32 they do not: before a batch norm of two
    examples gradients are all rounding, and Adam's steps do not depend on how large a gradient is.
    """
    ad.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)
    ).to(dtype)
    optimizer = ad.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = ad.compile(step, **options) if compiled else step
    rng = np.random.default_rng(1)
    losses = []
    for k, n in enumerate(sizes):
        if change is not None:
            change(k, model, optimizer)
        x = ad.tensor(rng.standard_normal((n, 4)), dtype=dtype)
        losses.append(run(x, ad.tensor(rng.integers(0, 3, n))))
    state = [
        *losses,
        *model.state_dict().values(),
        *(p.grad for p in model.parameters() if p.grad is not None),
    ]
    return run, state


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_training_step(dynamic, dtype):
    sizes = (8, 5, 9, 3, 64, 2, 17, 8, 33)
    run, found = trained(True, sizes, dtype=dtype, dynamic=dynamic)
    _, fixed = trained(True, sizes, dtype=dtype, dynamic=False, recompile_limit=20)
    assert captures(run) <= 3  # three examples are as many as there are classes
    for a, b in zip(found, fixed, strict=True):
        assert_equal(a, b)
    if dtype is ad.float64:
        assert_near(found, trained(False, sizes)[1])


def assert_near(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert ad.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-6)


def replaced(k, model, optimizer):
    """What changes between calls: data, a parameter, states, an option, a mode."""
    if k == 3:
        model[0].weight.data = model[0].weight.data * 0.5
    if k == 4:
        optimizer.load_state_dict(optimizer.state_dict())
    if k == 5:
        optimizer.param_groups[0]["lr"] = 0.003
    if k == 6:
        model[3].p = 0.4
    if k == 7:
        model.eval()
    if k == 8:
        model.train()
        model[4].bias.requires_grad_(False)


def test_what_changes_between_calls_of_other_sizes():
    sizes = (8, 5, 9, 3, 64, 2, 17, 8, 33, 12, 7)
    _, found = trained(True, sizes, replaced)
    assert_near(found, trained(False, sizes, replaced)[1])


def test_gradients_outside_of_the_function():
    weight = nn.Parameter(ad.randn(4, 4))
    step = ad.compile(lambda x: ((x @ weight).tanh() * x.shape[0]).sum(0))
    for n in (5, 3, 7, 2, 9):
        x = ad.randn(n, 4, requires_grad=True)
        step(x).sum().backward()
        found, weight.grad, own, x.grad = weight.grad, None, x.grad, None
        step.function(x).sum().backward()
        assert ad.allclose(found, weight.grad, atol=1e-5)
        assert ad.allclose(own, x.grad, atol=1e-5)
        weight.grad = None
    assert captures(step) == 2


# Python that reads a size: the program stands for that one, and others are captured anew.
READING = {
    "range": lambda x: sum((x[k] * k for k in range(x.shape[0])), ad.zeros(4)),
    "len": lambda x: x * len(x),
    "float": lambda x: x * float(x.shape[0]),
    "sqrt": lambda x: x / math.sqrt(x.shape[0] + 1),
    "text": lambda x: x * len(f"{x.shape[0]:3d}{x.shape}"),
    "list": lambda x: x * len([0] * x.shape[0]),
    "returned": lambda x: (x * 2, x.shape[0], x.shape, x.numel(), slice(0, x.shape[0])),
    "in a dict": lambda x: x * {3: 2.0, 5: 3.0}.get(x.shape[0], 1.0),
    "in a set": lambda x: x * (x.shape[0] in {3, 5}),
    "in a tuple": lambda x: x * (x.shape[0] in (3, 5)),
    "as a key": lambda x: x * {x.shape: 2.0}[x.shape],
    "item": lambda x: [y * 2 for y in x],
    "split": lambda x: [y * 2 for y in x.split(2)],
    "power": lambda x: x * 2 ** x.shape[0] / (x.shape[0] + 1) % 3,
    "min": lambda x: x[: min(x.shape[0], 4)] * max(x.shape[0], 2),
    "divided": lambda x: x * (x.shape[0] / 3) * round(x.shape[0] / 2),
    "compared": lambda x: x + (2 if x.shape[0] % 2 == 0 else 1),
    "shapes": lambda x: x * (x.shape == (5, 4)) + (x.shape[:1] == (3,)),
    "numpy": lambda x: x * ad.tensor(np.arange(4) * x.shape[0]),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", READING)
def test_python_that_reads_sizes(name, dynamic):
    function = READING[name]
    step = ad.compile(function, dynamic=dynamic, recompile_limit=30)
    for n in (5, 3, 7, 2, 5, 9, 1, 0, 4, 3):
        x = ad.randn(n, 4)
        assert_equal(step(x), function(x))


class Kept(nn.Module):
    """Keeps a size, and a tensor of one."""

    def __init__(self):
        super().__init__()
        self.rows, self.last, self.scale = 0, ad.zeros(4), 2.0

    def forward(self, x):
        y = x * self.scale * x.shape[0] + self.rows + self.last
        self.rows, self.last = x.shape[0], y.sum(0)
        return y


def test_sizes_that_are_kept_in_attributes():
    kept, other = Kept(), Kept()
    run = ad.compile(kept)
    for k, n in enumerate((5, 3, 7, 2, 9, 4)):
        x = ad.full((n, 4), 0.01)
        kept.scale = other.scale = 2.0 + k % 2
        assert ad.allclose(run(x), other(x))
        assert type(kept.rows) is int
        assert kept.rows == other.rows


def test_learning_rates_by_size():
    def losses(compiled):
        w = nn.Parameter(ad.ones(4))
        optimizer = ad.optim.SGD([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            (x * w).sum().backward()
            optimizer.param_groups[0]["lr"] = 0.1 / x.shape[0]
            optimizer.step()

        run = ad.compile(step) if compiled else step
        for n in (5, 3, 7, 2, 9):
            run(ad.ones(n, 4))
        return w.detach()

    assert ad.allclose(losses(True), losses(False))


def test_shapes_that_do_not_fit_are_the_errors_of_eager_execution():
    step = ad.compile(lambda x, y: x + y)
    for n in (5, 3, 7):
        step(ad.ones(n, 4), ad.ones(n, 4))
    with pytest.raises(errors.ShapeError) as found:
        step(ad.ones(7, 4), ad.ones(6, 4))
    with pytest.raises(errors.ShapeError) as expected:
        step.function(ad.ones(7, 4), ad.ones(6, 4))
    assert str(found.value) == str(expected.value)
    assert_equal(step(ad.ones(9, 4), ad.ones(9, 4)), ad.full((9, 4), 2.0))
    assert_equal(step(ad.ones(9, 4), ad.ones(1, 4)), ad.full((9, 4), 2.0))


factor = nn.Parameter(ad.full((4, 4), 0.1))
CONTROL = {
    "cond": lambda x: ad.cond(x.sum() > 0, lambda a: a * 2 @ factor, lambda a: -a, (x,)),
    "while_loop": lambda x: ad.while_loop(
        lambda k, a: k < 3,
        lambda k, a: (k + 1, (a @ factor).tanh() + a.shape[0]),
        (ad.zeros((), dtype=ad.int64), x),
    )[1],
    "scan": lambda x: ad.scan(lambda c, a: (c + a @ factor, c.tanh()), ad.zeros(4), x)[1],
    "draws": lambda x: ad.cond(
        x.sum() > 0, lambda a: a + ad.randn(a.shape[0], 1), lambda a: a * ad.rand_like(a), (x,)
    ),
    "reshapes": lambda x: ad.cond(
        x.sum() > 0, lambda a: a.T.reshape(-1).view(4, -1).T, lambda a: a.flip(0), (x,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    function = CONTROL[name]
    step = ad.compile(function)
    for n in (5, 3, 7, 2, 9, 15):
        given = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        found = []
        for each in (step, function):
            ad.manual_seed(n)
            x = ad.tensor(given, requires_grad=True)
            y = each(x)
            y.sin().sum().backward()
            found += [y.detach(), x.grad]
        assert ad.allclose(found[0], found[2], atol=1e-5)
        assert ad.allclose(found[1], found[3], atol=1e-5)
    assert captures(step) == 2


def test_other_layouts_and_dtypes():
    step = ad.compile(lambda x: x.reshape(-1) * 2)
    for n in (5, 3, 7, 2, 9):
        for x in (
            ad.randn(n, 4),
            ad.randn(4, n).T,
            ad.randn(n, 8)[:, ::2],
            ad.randn(n, 4).double(),
        ):
            assert_equal(step(x), x.reshape(-1) * 2)


def test_an_argument_that_is_given_twice():
    step = ad.compile(lambda x, y: x * y)
    for n in (5, 3, 7, 2, 9):
        x = ad.randn(n, 4)
        assert_equal(step(x, x), x * x)
        assert_equal(step(x, x + 1), x * (x + 1))


def test_two_sizes_that_are_equal_or_not():
    step = ad.compile(lambda x, y: x.sum() + y.sum() if x.shape == y.shape else x.sum() - y.sum())
    for n, m in ((5, 5), (3, 3), (7, 2), (2, 7), (4, 4), (9, 8)):
        x, y = ad.randn(n, 2), ad.randn(m, 2)
        assert ad.allclose(step(x, y), step.function(x, y), atol=1e-5)


def test_an_error_changes_nothing():
    weight = nn.Parameter(ad.ones(6, 2))
    optimizer = ad.optim.SGD([weight], lr=0.1)

    @ad.compile
    def step(index):
        optimizer.zero_grad()
        loss = weight[index].sum()
        loss.backward()
        optimizer.step()
        return loss

    for n in (5, 3, 7):
        step(ad.zeros(n, dtype=ad.int64))
    before = weight.detach().clone()
    with pytest.raises(errors.IndexingError) as found:
        step(ad.full((4,), 9))
    with pytest.raises(errors.IndexingError) as expected:
        step.function(ad.full((4,), 9))
    assert str(found.value) == str(expected.value)
    assert_equal(weight.detach(), before)
    assert captures(step) == 2


def test_threads_with_their_own_sizes():
    step = ad.compile(lambda x: (x @ x.T).softmax(-1).sum(0))
    wrong = []

    def work(first):
        for n in range(first, first + 12):
            x = ad.full((n, 4), 0.1)
            if not ad.allclose(step(x), step.function(x), atol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in (2, 5, 20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_decisions_that_differ_often_end_in_captures_without_numbers():
    step = ad.compile(lambda x: x * 2 if x.shape[0] % 7 == 3 or x.shape[0] % 5 == 1 else x + 1)
    for n in range(2, 40):
        x = ad.randn(n, 2)
        assert_equal(step(x), step.function(x))


def test_sizes_of_a_capture_that_is_over_are_refused():
    sizes = SizeGraph(lambda size, dtype: None)
    n = sizes.scalar(4)
    places, run = sizes.settle()
    assert (places, run(7)) == ([0], (7,))
    for use in (lambda: n + 1, lambda: n > 2, lambda: int(n)):
        with pytest.raises(errors.Unsupported, match="a size of another call"):
            use()


def test_states_that_lie_otherwise_and_sizes_that_are_values():
    """Numbers that stand for sizes come before states among what a program is given."""
    weight, turned = ad.randn(4, 4), ad.randn(4, 4).T

    def function(x):
        y = weight.as_strided((2, 2), (4, 1)).sum() + turned.reshape(-1).sum()
        return x * y / x.shape[0] + x.shape[0] * 2

    step = ad.compile(function)
    for n in (5, 3, 7, 2):
        x = ad.randn(n, 4)
        assert ad.allclose(step(x), function(x))
    assert captures(step) == 2


def test_an_index_beyond_a_size_is_the_error_of_eager_execution():
    def function(x, index):
        return x[index].sum(0)

    step = ad.compile(function)
    for n in (5, 3, 7, 2):
        x = ad.randn(n, 4)
        assert ad.allclose(step(x, ad.tensor([0, 1])), function(x, ad.tensor([0, 1])))
        with pytest.raises(errors.IndexingError) as found:
            step(x, ad.tensor([0, n]))
        with pytest.raises(errors.IndexingError) as expected:
            function(x, ad.tensor([0, n]))
        assert str(found.value) == str(expected.value)
    assert captures(step) == 2


def test_a_capture_with_numbers_that_failed_is_not_tried_again(monkeypatch):
    tried = []
    init = SizeGraph.__init__

    def noted(self, *args):
        if type(self) is SizeGraph:  # those of kernels are others
            tried.append(1)
        init(self, *args)

    ours = init.__code__.co_filename  # of users' code the compiler wants to know what leads to it
    noted.__code__ = noted.__code__.replace(co_filename=ours)
    monkeypatch.setattr(SizeGraph, "__init__", noted)
    step = ad.compile(lambda x: x * {x.shape: 2.0}[x.shape])
    for n in (5, 3, 7, 2, 9):
        step(ad.randn(n, 4))
    assert len(tried) == 1
