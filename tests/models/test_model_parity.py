"""Whole models beside PyTorch's: the same code, weights and batches, 50 steps, equal losses."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import adjoint as ad
from tests.native import needs_native

from ..sweep import one_in, swept

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread():
    """These models are small: more threads only wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


STEPS = 50


class Case:
    """A model in terms of module `t`: `build(t)`, and `loss(t, model, batch)`."""

    steps = STEPS
    batches = 5
    optimizer = ("Adam", {"lr": 1e-3})
    mode = None  # in which it is compiled

    def build(self, t):
        raise NotImplementedError

    def batch(self, rng):
        """NumPy arrays; floating ones get the dtype of the run."""
        raise NotImplementedError

    def loss(self, t, model, *batch):
        raise NotImplementedError

    def step(self, t, model, optimizers, batch):
        """One training step; its losses."""
        loss = self.loss(t, model, *batch)
        value = self.read(loss)
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        return [value]

    def read(self, loss):
        """A loss before the step of an optimizer: in a graph it lives on."""
        return loss.item()

    def groups(self, model):
        """The parameters of each optimizer."""
        return [model.parameters()]


class MLP(Case):
    optimizer = ("SGD", {"lr": 0.1, "momentum": 0.9})

    def build(self, t):
        return t.nn.Sequential(
            t.nn.Linear(10, 32), t.nn.ReLU(), t.nn.Linear(32, 32), t.nn.Tanh(), t.nn.Linear(32, 4)
        )

    def batch(self, rng):
        return rng.standard_normal((16, 10)), rng.integers(0, 4, 16)

    def loss(self, t, model, x, y):
        return t.nn.functional.cross_entropy(model(x), y)


class CNN(Case):
    optimizer = ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True})

    def build(self, t):
        nn = t.nn
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(8, 5),
        )  # fmt: skip

    def batch(self, rng):
        return rng.standard_normal((8, 1, 8, 8)), rng.integers(0, 5, 8)

    def loss(self, t, model, x, y):
        return t.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)


class ResNet18(Case):
    batches = 5
    width = 64
    optimizer = ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4})
    # At that rate batch norm over four images doubles float32's rounding every few steps.
    float32_optimizer = ("SGD", {"lr": 2e-4, "weight_decay": 1e-4})

    def build(self, t):
        nn = t.nn

        class Block(nn.Module):
            def __init__(self, before, after, stride):
                super().__init__()
                self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(after)
                self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
                self.bn2 = nn.BatchNorm2d(after)
                self.downsample = None
                if stride != 1 or before != after:
                    self.downsample = nn.Sequential(
                        nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
                    )

            def forward(self, x):
                y = t.relu(self.bn1(self.conv1(x)))
                y = self.bn2(self.conv2(y))
                return t.relu(y + (x if self.downsample is None else self.downsample(x)))

        def stage(before, after, stride):
            return nn.Sequential(Block(before, after, stride), Block(after, after, 1))

        n = self.width
        return nn.Sequential(
            nn.Conv2d(3, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n), nn.ReLU(),
            stage(n, n, 1), stage(n, 2 * n, 2), stage(2 * n, 4 * n, 2), stage(4 * n, 8 * n, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * n, 10),
        )  # fmt: skip

    def batch(self, rng):
        return rng.standard_normal((4, 3, 32, 32)), rng.integers(0, 10, 4)

    def loss(self, t, model, x, y):
        return t.nn.functional.cross_entropy(model(x), y)


class NarrowResNet18(ResNet18):
    width = 8
    steps = 15


class LSTM(Case):
    def build(self, t):
        class Model(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = t.nn.Embedding(12, 8)
                self.lstm = t.nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True)
                self.head = t.nn.Linear(32, 12)

            def forward(self, x):
                return self.head(self.lstm(self.embedding(x))[0])

        return Model()

    def batch(self, rng):
        return rng.integers(0, 12, (4, 9)), rng.integers(0, 12, (4, 9))

    def loss(self, t, model, x, y):
        return t.nn.functional.cross_entropy(model(x).transpose(1, 2), y)


class PackedGRU(Case):
    mode = "pieces"  # lengths are read
    optimizer = ("RMSprop", {"lr": 1e-3})

    def build(self, t):
        class Model(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.gru = t.nn.GRU(3, 10, num_layers=2, bidirectional=True)
                self.head = t.nn.Linear(20, 2)

            def forward(self, x, lengths):
                packed = t.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
                output, h = self.gru(packed)
                padded, _ = t.nn.utils.rnn.pad_packed_sequence(output)
                return self.head(padded), h

        return Model()

    def batch(self, rng):
        return rng.standard_normal((7, 4, 3)), rng.permutation([7, 2, 5, 5])

    def loss(self, t, model, x, lengths):
        y, h = model(x, lengths)
        return (y * y).mean() + (h - 1).abs().mean()


class Transformer(Case):
    def build(self, t):
        class Model(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.source, self.target = t.nn.Embedding(11, 16), t.nn.Embedding(9, 16)
                self.body = t.nn.Transformer(
                    16, 4, 2, 2, 32, dropout=0.0, activation="gelu", batch_first=True
                )
                self.head = t.nn.Linear(16, 9)

            def forward(self, source, target):
                mask = t.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
                padding = source == 0
                x, y = self.source(source), self.target(target)
                return self.head(
                    self.body(
                        x, y, tgt_mask=mask.to(x.dtype), src_key_padding_mask=padding,
                        memory_key_padding_mask=padding,
                    )
                )  # fmt: skip

        return Model()

    def batch(self, rng):
        source = rng.integers(1, 11, (3, 6))
        source[0, 4:] = 0
        return source, rng.integers(0, 9, (3, 6))

    def loss(self, t, model, source, target):
        logits = model(source, target[:, :-1])
        return t.nn.functional.cross_entropy(logits.reshape(-1, 9), target[:, 1:].reshape(-1))


class GAN(Case):
    optimizer = ("Adam", {"lr": 1e-3, "betas": (0.5, 0.999)})

    def build(self, t):
        nn = t.nn
        return nn.ModuleDict({
            "generator": nn.Sequential(
                nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 8)
            ),
            "critic": nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
        })  # fmt: skip

    def batch(self, rng):
        return rng.standard_normal((8, 8)), rng.standard_normal((8, 4))

    def groups(self, model):
        return [model["generator"].parameters(), model["critic"].parameters()]

    def step(self, t, model, optimizers, batch):
        real, noise = batch
        bce = t.nn.functional.binary_cross_entropy_with_logits
        fake = model["generator"](noise)
        critic = model["critic"]
        scores, wrong = critic(real), critic(fake.detach())
        critic_loss = bce(scores, t.ones_like(scores)) + bce(wrong, t.zeros_like(wrong))
        values = [self.read(critic_loss)]
        optimizers[1].zero_grad()
        critic_loss.backward()
        optimizers[1].step()
        judged = critic(fake)
        generator_loss = bce(judged, t.ones_like(judged))
        values.append(self.read(generator_loss))
        optimizers[0].zero_grad()
        generator_loss.backward()
        optimizers[0].step()
        return values


class VAE(Case):
    optimizer = ("AdamW", {"lr": 2e-3})

    def build(self, t):
        nn = t.nn
        return nn.ModuleDict({
            "encoder": nn.Sequential(nn.Linear(12, 20), nn.SiLU(), nn.Linear(20, 6)),
            "decoder": nn.Sequential(nn.Linear(3, 20), nn.ELU(), nn.Linear(20, 12), nn.Sigmoid()),
        })  # fmt: skip

    def batch(self, rng):
        return rng.uniform(size=(8, 12)), rng.standard_normal((8, 3))

    def loss(self, t, model, x, noise):
        mean, logvar = model["encoder"](x).chunk(2, dim=1)
        z = mean + t.exp(0.5 * logvar) * noise
        found = model["decoder"](z)
        divergence = -0.5 * t.sum(1 + logvar - mean.pow(2) - logvar.exp())
        return t.nn.functional.binary_cross_entropy(found, x, reduction="sum") + divergence


class UNet(Case):
    def build(self, t):
        nn = t.nn

        def double(before, after):
            return nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.ReLU(),
                nn.Conv2d(after, after, 3, padding=1, padding_mode="reflect"), nn.ReLU(),
            )  # fmt: skip

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.bottom = double(1, 4), double(4, 8), double(8, 8)
                self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
                self.third, self.fourth = double(16, 4), double(8, 4)
                self.head = nn.Conv2d(4, 2, 1)

            def forward(self, x):
                pool = t.nn.functional.max_pool2d
                a = self.first(x)
                b = self.second(pool(a, 2))
                c = self.bottom(pool(b, 2))
                d = self.third(t.cat([self.up(c), b], 1))
                wide = t.nn.functional.interpolate(
                    d, scale_factor=2, mode="bilinear", align_corners=False
                )
                return self.head(self.fourth(t.cat([wide, a], 1)))

        return Model()

    def batch(self, rng):
        return rng.standard_normal((2, 1, 8, 8)), rng.integers(0, 2, (2, 8, 8))

    def loss(self, t, model, x, y):
        return t.nn.functional.cross_entropy(model(x), y, weight=t.tensor([1.0, 2.0]).to(x.dtype))


SLOW = (MLP, ResNet18, NarrowResNet18, UNet)  # to compile, or shown elsewhere
CASES = [MLP, CNN, NarrowResNet18, swept(ResNet18), LSTM, PackedGRU, Transformer, GAN, VAE, UNet]
COMPILED = [CNN, LSTM, PackedGRU, Transformer, GAN, VAE, *map(swept, SLOW)]


def train(case, t, model, arrays, dtype, compiled=lambda step: step):
    """The losses of all steps."""
    name, options = case.optimizer
    optimizers = [getattr(t.optim, name)(group, **options) for group in case.groups(model)]
    batches = [
        [t.from_numpy(a.astype(dtype) if a.dtype.kind == "f" else a.copy()) for a in batch]
        for batch in arrays
    ]
    step = compiled(lambda *batch: case.step(t, model, optimizers, batch))
    losses = [step(*batches[i % len(batches)]) for i in range(case.steps)]
    return [[float(each) for each in found] for found in losses]


@pytest.mark.parametrize("way", ["lazy", swept("graph")])
@pytest.mark.parametrize("case", one_in(2, CASES), ids=lambda case: case.__name__)
def test_recorded_training_is_eager_training(case, way):
    """The same program inside `ad.lazy()` and inside `with ad.Graph():`, bit for bit or nearly."""
    case = case()
    ad.manual_seed(0)
    rng = np.random.default_rng(0)
    eager = case.build(ad).to(ad.float64)
    recorded = copy.deepcopy(eager)
    arrays = [case.batch(rng) for _ in range(case.batches)]
    case.steps = 8
    ad.manual_seed(1)
    expected = train(case, ad, eager, arrays, "float64")
    ad.manual_seed(1)
    with ad.lazy() if way == "lazy" else ad.Graph():
        found = train(case, ad, recorded, arrays, "float64")
    assert_trained_alike(found, recorded, expected, eager)


@needs_native
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.__name__)
def test_compiled_training_is_eager_training(case):
    """The whole step is one program; values are read from what it returns."""
    case = case()
    ad.manual_seed(0)
    rng = np.random.default_rng(0)
    eager = case.build(ad).to(ad.float64)
    model = copy.deepcopy(eager)
    arrays = [case.batch(rng) for _ in range(case.batches)]
    case.steps = 8
    made = []

    def compiled(step):
        made.append(ad.compile(step, mode=case.mode))
        return made[0]

    ad.manual_seed(1)
    expected = train(case, ad, eager, arrays, "float64")
    ad.manual_seed(1)
    if case.mode is None:
        case.read = lambda loss: loss.detach()
    found = train(case, ad, model, arrays, "float64", compiled)
    assert_trained_alike(found, model, expected, eager)
    if case.mode is None:
        assert len(made[0].programs) == 1, made[0].reasons


def assert_trained_alike(found, model, expected, eager):
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for (key, a), b in zip(model.state_dict().items(), eager.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-10, err_msg=key)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float64", 1e-8), swept(("float32", 1e-3))],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore")
def test_losses_are_pytorchs(case, dtype, tolerance):
    case = case()
    if dtype == "float32":
        case.optimizer = getattr(case, "float32_optimizer", case.optimizer)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    theirs = case.build(torch).to(getattr(torch, dtype))
    ours = case.build(ad).to(getattr(ad, dtype))
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({key: ad.from_numpy(v.numpy().copy()) for key, v in state.items()})
    arrays = [case.batch(rng) for _ in range(case.batches)]
    found = np.array(train(case, ad, ours, arrays, dtype))
    expected = np.array(train(case, torch, theirs, arrays, dtype))
    assert len(found) == len(expected) == case.steps
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    assert not np.allclose(expected[0], expected[-1])  # training did something
    if dtype == "float32":
        return  # Adam turns the rounding of gradients that should be 0 into steps
    for (key, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(
            a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance, err_msg=key
        )
