"""Compiled steps as one call of machine code: no Python between kernels, numbers as eagerly."""

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends.native.runtime.launch_list import LaunchList
from tests.native import needs_native

from .test_step import OPTIMIZERS, Pair

pytestmark = needs_native


@pytest.fixture(params=[None, 1], ids=["threads", "one thread"])
def threads(request):
    before = ad.get_num_threads()
    if request.param is not None:
        ad.set_num_threads(request.param)
    yield
    ad.set_num_threads(before)


class Attending(nn.Module):
    """A transformer block on embedded tokens, as in GPT."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(30, 32), nn.Embedding(16, 32)
        self.before, self.after = nn.LayerNorm(32), nn.LayerNorm(32)
        self.joined, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.scores = nn.Linear(32, 30, bias=False)

    def forward(self, x):
        length = x.shape[1]
        h = self.tokens(x) + self.places(ad.arange(length))
        parts = self.joined(self.before(h)).reshape(len(x), length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(y.transpose(1, 2).reshape(len(x), length, 32))
        return self.scores(self.after(h)).reshape(-1, 30)


class Bag(nn.Module):
    """The mean of embeddings."""

    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.Embedding(200, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.rows(x).mean(1))


class Residual(nn.Module):
    """Convolutions of several kinds, and a sum around them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.Conv2d(16, 16, 3, 1, 1)
        self.norm, self.around = nn.BatchNorm2d(16), nn.Conv2d(8, 16, 1, 2, bias=False)

    def forward(self, x):
        y = nn.functional.relu(self.norm(self.first(x)))
        return nn.functional.relu(self.second(y) + self.around(x))


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), Residual(),
        nn.AvgPool2d(2), nn.Conv2d(16, 8, 1, bias=False), nn.MaxPool2d(3, 1, 1), nn.Flatten(),
        nn.Linear(128, 5),
    )  # fmt: skip


class Recurrent(nn.Module):
    """What a recurrent layer has in the end."""

    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


def encoder():
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def drawn(shape, seed):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def counted(shape, count, seed):
    return ad.tensor(np.random.default_rng(seed).integers(0, count, shape))


# Of each kind: a model, what is wrong with it, and arguments for a batch of some size.
KINDS = {
    "images": (
        images, nn.CrossEntropyLoss(),
        lambda n, s: (drawn((n, 3, 32, 32), s), counted(n, 5, s + 99)),
    ),
    "encoder": (
        encoder, nn.MSELoss(), lambda n, s: (drawn((n, 16, 32), s), drawn((n, 16, 32), s + 99))
    ),
    "recurrent": (
        Recurrent, nn.CrossEntropyLoss(),
        lambda n, s: (drawn((n, 6, 8), s), counted(n, 5, s + 99)),
    ),
    "attention": (
        Attending, nn.CrossEntropyLoss(),
        lambda n, s: (counted((n, 16), 30, s), counted(16 * n, 30, s + 99)),
    ),
    "bag": (
        Bag, nn.CrossEntropyLoss(),
        lambda n, s: (counted((n, 12), 200, s), counted(n, 5, s + 99)),
    ),
}  # fmt: skip


def trained(kind, batch, steps=3):
    """Both models of a pair, after some steps that left them equal."""
    make, criterion, arguments = KINDS[kind]
    ad.manual_seed(0)
    pair = Pair(make(), OPTIMIZERS["SGD"], criterion)
    for seed in range(steps):
        pair.run(*arguments(batch, seed))
    return pair


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_computed_is_one_call_of_machine_code(kind, threads):
    calls = [type(call) for part in trained(kind, 16).program.parts for call in part.calls]
    assert calls == [LaunchList]


@pytest.mark.parametrize("batch", [1, 2, 15])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_size_train_as_eagerly(kind, batch):
    trained(kind, batch)


@pytest.mark.parametrize("kind", KINDS)
def test_other_threads_compute_what_was_bound_for_some(kind):
    pair = trained(kind, 8, 2)
    before = ad.get_num_threads()
    try:
        for threads in (1, before + 1):
            ad.set_num_threads(threads)
            pair.run(*KINDS[kind][2](8, 5))
    finally:
        ad.set_num_threads(before)


def test_an_index_out_of_range_is_refused_and_nothing_changes():
    pair = trained("bag", 6)
    before = [p.tolist() for p in pair.models[1].parameters()]
    x, y = KINDS["bag"][2](6, 7)
    wrong = x.clone()
    wrong[2, 3] = 200
    for step in (pair.steps[0], pair.compiled):
        with pytest.raises(IndexError):
            step(wrong, y)
    assert [p.tolist() for p in pair.models[1].parameters()] == before
    pair.optimizers[0].zero_grad()
    pair.run(x, y)
