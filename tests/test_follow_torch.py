"""`random.follow_torch()`: PyTorch's random numbers, beside PyTorch itself."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import threading

import numpy as np
import pytest

import adjoint as ad
from tests.native import needs_native

torch = pytest.importorskip("torch")

SIZES = (0, 1, 2, 15, 16, 17, 31, 33, 1000)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
BOTH = ((ad, "adjoint"), (torch, "torch"))


def draws_plainly():
    """Whether this PyTorch draws Bernoulli numbers from its generator; with MKL, on Intel's
    processors, it does not: what is made of them is compared on others.
    """
    g, h = (torch.Generator().manual_seed(0) for _ in range(2))
    chances = torch.full((9,), 0.5, dtype=torch.float64)
    mine = torch.empty(9).bernoulli_(0.5, generator=g)
    return mine.tolist() == torch.bernoulli(chances, generator=h).tolist()


plainly = pytest.mark.skipif(not draws_plainly(), reason="PyTorch draws by MKL here")


@pytest.fixture(autouse=True)
def _followed():
    state = torch.get_rng_state()
    ad.random.follow_torch()
    seed(0)
    yield
    ad.random.follow_torch(False)
    torch.set_rng_state(state)


def seed(n):
    ad.manual_seed(n)
    torch.manual_seed(n)


def wide(x):
    return x.detach().double().numpy() if not x.is_complex() else x.detach().numpy()


def assert_same(mine, theirs, tolerance=0.0, state=True):
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert str(mine.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    x, y = wide(mine), wide(theirs)
    if tolerance:
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(x, y)
    if state:
        assert ad.get_rng_state().tolist() == torch.get_rng_state().tolist()


def rounding(dtype, tolerance=1e-6):
    return {"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, tolerance)


def both(draw, tolerance=0.0):
    """Draw by both, and compare; returns adjoint's."""
    mine = draw(ad)
    assert_same(mine, draw(torch), tolerance)
    return mine


def test_the_comparison_rejects_other_numbers():
    with pytest.raises(AssertionError):
        assert_same(ad.rand(3) * 1.0001, torch.rand(3))
    ad.rand(1)
    with pytest.raises(AssertionError):
        both(lambda t: t.zeros(2))  # the generators are at different places


FILLS = {  # name -> (fill, whether it is exact)
    "uniform_": (lambda x: x.uniform_(), True),
    "uniform_bounds": (lambda x: x.uniform_(-0.3, 0.7), True),
    "uniform_far": (lambda x: x.uniform_(1000, 1001), True),
    "uniform_named": (lambda x: x.uniform_(to=3), True),
    "normal_": (lambda x: x.normal_(), False),
    "normal_scaled": (lambda x: x.normal_(3.0, 0.1), False),
    "exponential_": (lambda x: x.exponential_(0.7), False),
    "geometric_": (lambda x: x.geometric_(0.2), False),
    "log_normal_": (lambda x: x.log_normal_(0.5, 0.3), False),
    "bernoulli_": (lambda x: x.bernoulli_(0.3), True),
    "random_": (lambda x: x.random_(), True),
    "random_to": (lambda x: x.random_(100), True),
    "random_between": (lambda x: x.random_(3, 100), True),
}


@plainly
@pytest.mark.parametrize("dtype", FLOATS)
def test_fills_of_each_size_one_after_another(dtype):
    for n in SIZES:
        for name, (fill, exact) in FILLS.items():
            if name != "uniform_far" or dtype in ("float32", "float64"):
                tolerance = 0.0 if exact else rounding(dtype)
                both(lambda t: fill(t.empty(n, dtype=getattr(t, dtype))), tolerance)  # noqa: B023


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_cauchy(dtype):
    both(lambda t: t.empty(300, dtype=getattr(t, dtype)).cauchy_(1, 2.0), rounding(dtype))
    both(lambda t: t.empty(99, dtype=t.float16).cauchy_(0, 3e4), 2e-3)  # some are infinite


@plainly
def test_large_fills():
    for draw, tolerance in (
        (lambda t: t.rand(100_003), 0.0), (lambda t: t.randn(100_003), 2e-6),
        (lambda t: t.randint(7, (100_003,)), 0.0), (lambda t: t.randperm(20_011), 0.0),
        (lambda t: t.rand(100_003, dtype=t.float16), 0.0),
        (lambda t: t.zeros(65_537).bernoulli_(), 0.0),
    ):  # fmt: skip
        both(draw, tolerance)


@plainly
@pytest.mark.parametrize("dtype", INTEGERS)
def test_whole_numbers_of_each_dtype(dtype):
    for n in (0, 1, 33):
        both(lambda t: t.empty(n, dtype=getattr(t, dtype)).random_())  # noqa: B023
        both(lambda t: t.empty(n, dtype=getattr(t, dtype)).bernoulli_(0.4))  # noqa: B023
        both(lambda t: t.randint(0, 2, (n,), dtype=getattr(t, dtype)))  # noqa: B023


def test_ranges_of_whole_numbers():
    for low, high in (
        (0, 1), (-5, 8), (0, 2**28 - 1), (0, 2**28), (0, 2**32), (-5, 2**40), (-(2**62), 2**62),
        (-(2**63), 2**63 - 1),
    ):  # fmt: skip
        both(lambda t: t.randint(low, high, (40,)))  # noqa: B023
    both(lambda t: t.empty(9).random_(5, 2**20))
    both(lambda t: t.randint(3, 9, (4, 5), dtype=t.float32))


DRAWS = {
    "rand": (lambda t, g: t.rand(3, 5, generator=g), 0),
    "rand64": (lambda t, g: t.rand(3, 5, dtype=t.float64, generator=g), 0),
    "complex": (lambda t, g: t.rand(7, dtype=t.complex64, generator=g), 0),
    "randn": (lambda t, g: t.randn(3, generator=g), 1e-6),
    "randn_block": (lambda t, g: t.randn(4, 7, generator=g), 1e-6),
    "randn64": (lambda t, g: t.randn(37, dtype=t.float64, generator=g), 1e-13),
    "randn_complex": (lambda t, g: t.randn(5, dtype=t.complex64, generator=g), 1e-6),
    "randn_complex_block": (lambda t, g: t.randn(9, dtype=t.complex128, generator=g), 1e-13),
    "randint": (lambda t, g: t.randint(100, (5,), generator=g), 0),
    "randperm": (lambda t, g: t.randperm(9, generator=g), 0),
    "normal": (lambda t, g: t.normal(1.0, 2.0, (4,), generator=g), 1e-6),
    "normal_means": (lambda t, g: t.normal(t.arange(20.0), 2.0, generator=g), 2e-6),
    "normal_both": (lambda t, g: t.normal(t.ones(3), t.arange(3.0), generator=g), 1e-6),
    "bernoulli": (lambda t, g: t.bernoulli(t.linspace(0, 1, 30), generator=g), 0),
    "bernoulli64": (lambda t, g: t.bernoulli(t.linspace(0, 1, 30).double(), generator=g), 0),
    "bernoulli16": (lambda t, g: t.bernoulli(t.linspace(0, 1, 30).half(), generator=g), 0),
    "bernoulli_p": (lambda t, g: t.bernoulli(t.empty(30), 0.3, generator=g), 0),
    "bernoulli_chances": (
        lambda t, g: t.empty(30, dtype=t.int64).bernoulli_(t.linspace(0, 1, 30), generator=g), 0,
    ),
    "bernoulli_chances64": (
        lambda t, g: t.empty(30).bernoulli_(t.linspace(0, 1, 30).double(), generator=g), 0,
    ),
    "multinomial": (lambda t, g: t.multinomial(t.arange(50.0), 9, generator=g), 0),
    "multinomial_again": (
        lambda t, g: t.multinomial(t.arange(1, 51.0).view(2, 25).sqrt(), 40, True, generator=g), 0,
    ),
    "multinomial_one": (lambda t, g: t.multinomial(t.ones(6, 50), 1, True, generator=g), 0),
    "multinomial64": (lambda t, g: t.multinomial(t.ones(50).double(), 7, generator=g), 0),
    "poisson": (lambda t, g: t.poisson(t.linspace(0, 40, 50), generator=g), 0),
    "binomial": (
        lambda t, g: t.binomial(t.arange(60.0), t.linspace(0, 1, 60), generator=g), 0,
    ),
    "rand_like": (lambda t, g: t.rand_like(t.ones(4, 5).t(), generator=g), 0),
    "randn_like": (lambda t, g: t.randn_like(t.ones(4, 5).t(), generator=g), 1e-6),
    "randn_like_part": (lambda t, g: t.randn_like(t.ones(4, 10)[:, ::2], generator=g), 1e-6),
    "randint_like": (lambda t, g: t.randint_like(t.ones(4, 5).t(), 100, generator=g), 0),
}  # fmt: skip


@plainly
@pytest.mark.parametrize("name", DRAWS)
def test_draws_from_the_default_generator_and_from_another_one(name):
    draw, tolerance = DRAWS[name]
    for n in (0, -5, 2**64 - 1, 2**40 + 3):
        seed(n)
        both(lambda t: draw(t, None), tolerance)
    mine, theirs = ad.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(2):
        assert_same(draw(ad, mine), draw(torch, theirs), tolerance)
        assert mine.get_state().tolist() == theirs.get_state().tolist()


@plainly
def test_all_draws_one_after_another():
    for _ in range(3):
        for draw, tolerance in DRAWS.values():
            both(lambda t: draw(t, None), tolerance)  # noqa: B023


@plainly
def test_numbers_follow_the_order_of_memory():
    for make in (
        lambda t: t.empty(4, 5).t(), lambda t: t.empty(4, 10)[:, ::2],
        lambda t: t.empty(2, 3, 4).permute(1, 2, 0), lambda t: t.empty(6, 8)[1:5, 2:7].t(),
        lambda t: t.empty(2, 4, 5, 3).permute(0, 3, 1, 2), lambda t: t.empty(1, 9).t(),
    ):  # fmt: skip
        for fill, exact in FILLS.values():
            both(lambda t: fill(make(t)), 0 if exact else 2e-6)  # noqa: B023

    def out(t):
        base = t.empty(5, 4)
        t.rand(4, 5, out=base.t())
        t.randint(9, (4, 5), out=t.empty(5, 4, dtype=t.int64).t())
        return base

    both(out)


@plainly
def test_dropout_and_its_forms():
    functional = (
        lambda f, x: f.dropout(x, 0.3), lambda f, x: f.dropout(x, 0.3, inplace=True),
        lambda f, x: f.dropout2d(x, 0.4), lambda f, x: f.alpha_dropout(x, 0.2, training=True),
        lambda f, x: f.feature_alpha_dropout(x, 0.2, training=True), lambda f, x: f.dropout(x, 1.0),
        lambda f, x: f.dropout(x, 0.0), lambda f, x: f.rrelu(x - 1.5, training=True),
        lambda f, x: f.gumbel_softmax(x), lambda f, x: f.dropout1d(x[0], 0.5),
        lambda f, x: f.dropout3d(x, 0.5), lambda f, x: f.dropout(x.transpose(1, 3), 0.5),
    )  # fmt: skip
    for dropped in functional:
        both(lambda t: dropped(t.nn.functional, t.ones(2, 3, 4, 5)), 1e-6)  # noqa: B023


@plainly
@pytest.mark.parametrize("name", ["dropout2d", "dropout3d"])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5, 6])
@pytest.mark.filterwarnings("ignore:dropout[23]d. Received a")
def test_dropout_of_channels_takes_every_rank(name, inplace, rank):
    shape = (3, 4, 2, 5, 2, 3)[:rank]
    if (name, rank) == ("dropout2d", 1):
        for lib in (ad, torch):
            with pytest.raises(RuntimeError, match="at least 2 dimensions"):
                lib.nn.functional.dropout2d(lib.ones(shape), 0.5)
        return
    both(lambda t: getattr(t.nn.functional, name)(t.ones(shape), 0.4, inplace=inplace), 1e-6)


def test_bernoulli_by_a_number_is_that_by_chances():
    mine = ad.empty(1000).bernoulli_(0.3)
    chances = torch.full((1000,), 0.3, dtype=torch.float64)
    assert mine.tolist() == torch.bernoulli(chances).tolist()


# ---- states --------------------------------------------------------------------------------------


def test_states_are_pytorchs_bytes():
    for n in (0, 5, -1, 2**63):
        seed(n)
        assert ad.initial_seed() == torch.initial_seed()
        assert ad.get_rng_state().shape == (5056,)
        for count in (0, 1, 3, 619, 1, 624, 5):
            both(lambda t: t.rand(count))  # noqa: B023
            both(lambda t: t.randn(3), 1e-6)
    torch.randn(5)
    torch.rand(1)
    ad.set_rng_state(ad.tensor(torch.get_rng_state().numpy()))
    both(lambda t: t.randn(2), 1e-6)
    mine = ad.get_rng_state()
    torch.set_rng_state(torch.tensor(mine.numpy()))
    both(lambda t: t.randn(20), 1e-6)


def test_states_restore_and_generators_are_copied():
    g = ad.Generator().manual_seed(1)
    ad.randn(3, generator=g)
    state = g.get_state()
    copies = [g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    expected = ad.randn(7, generator=g)
    assert all(ad.randn(7, generator=each).equal(expected) for each in copies)
    assert ad.randn(7, generator=g.set_state(state)).equal(expected)
    with ad.random.fork_rng():
        a = ad.randn(3)
    assert a.equal(ad.randn(3))


def test_states_of_another_kind_are_refused():
    state = ad.get_rng_state()
    with pytest.raises(ad.InvalidArgument, match=r"5056.*follow_torch\(False\)"):
        ad.set_rng_state(ad.zeros(16, dtype=ad.uint8))
    with pytest.raises(ad.InvalidArgument, match="no state of PyTorch's"):
        ad.set_rng_state(ad.zeros(5056, dtype=ad.uint8))
    with pytest.raises(ad.InvalidArgument, match="5056 elements"):
        ad.set_rng_state(ad.zeros(7, dtype=ad.uint8))
    assert ad.get_rng_state().equal(state)
    ad.random.follow_torch(False)
    with pytest.raises(ad.InvalidArgument, match=r"follow_torch\(\)"):
        ad.set_rng_state(state)


def test_without_it_nothing_is_different():
    ad.random.follow_torch(False)

    def draws():
        ad.manual_seed(3)
        found = [ad.rand(4), ad.randn(20), ad.empty(5).uniform_(2, 3), ad.randperm(5)]
        found += [ad.nn.functional.dropout(ad.ones(9)), ad.multinomial(ad.ones(9), 3)]
        return [*found, ad.empty(5).normal_(), ad.get_rng_state()]

    for _ in range(3):  # the calls are learned
        before = draws()
    ad.random.follow_torch()
    for _ in range(3):
        follow = draws()
    assert not any(x.shape == y.shape and x.equal(y) for x, y in zip(before, follow, strict=True))
    assert follow[0].tolist() == torch.rand(4, generator=torch.Generator().manual_seed(3)).tolist()
    ad.random.follow_torch(False)
    assert all(x.equal(y) for x, y in zip(before, draws(), strict=True))


def test_a_generator_keeps_its_kind_until_it_is_seeded():
    ad.random.follow_torch(False)
    g = ad.Generator().manual_seed(3)
    a = ad.rand(5, generator=g.clone_state())
    ad.random.follow_torch()
    for _ in range(3):
        assert ad.rand(5, generator=g.clone_state()).equal(a)
        both(lambda t: t.rand(5))
    assert_same(
        ad.rand(5, generator=g.manual_seed(3)),
        torch.rand(5, generator=torch.Generator().manual_seed(3)),
    )


# ---- weights -------------------------------------------------------------------------------------

MODULES = {
    "Linear": lambda t: t.nn.Linear(20, 30),
    "Bilinear": lambda t: t.nn.Bilinear(3, 4, 5),
    "Conv1d": lambda t: t.nn.Conv1d(3, 8, 5),
    "Conv2d": lambda t: t.nn.Conv2d(4, 8, 3, groups=2),
    "Conv3d": lambda t: t.nn.Conv3d(2, 3, 2),
    "ConvTranspose2d": lambda t: t.nn.ConvTranspose2d(4, 6, 3),
    "Embedding": lambda t: t.nn.Embedding(30, 7, padding_idx=0),
    "EmbeddingBag": lambda t: t.nn.EmbeddingBag(10, 3),
    "RNN": lambda t: t.nn.RNN(4, 6, 2, bidirectional=True),
    "LSTM": lambda t: t.nn.LSTM(4, 6, 2, proj_size=3),
    "GRU": lambda t: t.nn.GRU(4, 6),
    "LSTMCell": lambda t: t.nn.LSTMCell(4, 6),
    "BatchNorm2d": lambda t: t.nn.BatchNorm2d(4),
    "PReLU": lambda t: t.nn.PReLU(3),
    "MultiheadAttention": lambda t: t.nn.MultiheadAttention(8, 2),
    "MultiheadAttention_kdim": lambda t: t.nn.MultiheadAttention(8, 2, kdim=6, add_bias_kv=True),
    "TransformerEncoderLayer": lambda t: t.nn.TransformerEncoderLayer(8, 2, 16),
    "TransformerDecoderLayer": lambda t: t.nn.TransformerDecoderLayer(8, 2, 16),
    "Transformer": lambda t: t.nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    "Linear64": lambda t: t.nn.Linear(5, 6, dtype=t.float64),
    "Linear_bf16": lambda t: t.nn.Linear(5, 6, dtype=t.bfloat16),
    "weight_norm": lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(5, 6)),
    "spectral_norm": lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(5, 6)),
    "AdaptiveLogSoftmaxWithLoss": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(32, 20, [5, 10]),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_begin_with_the_same_weights(name):
    seed(11)
    mine, theirs = MODULES[name](ad), MODULES[name](torch)
    expected = theirs.state_dict()
    found = mine.state_dict()
    assert list(found) == list(expected)
    for key, value in found.items():
        assert_same(value, expected[key], rounding(str(value.dtype).split(".")[1], 5e-6))


def test_functions_of_init():
    fills = {
        "uniform_": (-1, 2), "normal_": (1, 2), "trunc_normal_": (0, 0.02, -0.03, 0.05),
        "xavier_uniform_": (1.5,), "xavier_normal_": (), "kaiming_uniform_": (0.1,),
        "kaiming_normal_": (0, "fan_out", "relu"), "orthogonal_": (2.0,), "sparse_": (0.3,),
    }  # fmt: skip
    for name, args in fills.items():
        for shape in ((6, 9), (9, 6), (3, 5)):
            both(lambda t: getattr(t.nn.init, name)(t.empty(shape), *args), 1e-5)  # noqa: B023


DISTRIBUTIONS = {
    "Normal": lambda d, t: d.Normal(t.zeros(20), t.ones(20)).sample(),
    "Normal_rsample": lambda d, t: d.Normal(t.zeros(5), 2.0).rsample((3,)),
    "Uniform": lambda d, t: d.Uniform(t.zeros(5), 3.0).sample((4,)),
    "Exponential": lambda d, t: d.Exponential(t.ones(5)).sample(),
    "Bernoulli": lambda d, t: d.Bernoulli(t.full((20,), 0.3)).sample(),
    "Categorical": lambda d, t: d.Categorical(t.arange(1, 5.0)).sample((9,)),
    "Gamma": lambda d, t: d.Gamma(t.linspace(0.2, 9, 20), 2.0).sample(),
    "Beta": lambda d, t: d.Beta(t.full((4,), 0.7), t.full((4,), 2.0)).sample(),
    "Dirichlet": lambda d, t: d.Dirichlet(t.linspace(0.3, 3, 5)).sample((3,)),
    "Poisson": lambda d, t: d.Poisson(t.linspace(0.1, 50, 9)).sample(),
    "Laplace": lambda d, t: d.Laplace(t.zeros(7), 1.0).sample(),
    "Gumbel": lambda d, t: d.Gumbel(t.zeros(7), 1.0).sample(),
    "Cauchy": lambda d, t: d.Cauchy(t.zeros(7), 1.0).sample(),
    "StudentT": lambda d, t: d.StudentT(t.full((5,), 3.0)).sample(),
    "Chi2": lambda d, t: d.Chi2(t.full((5,), 3.0)).sample(),
    "Geometric": lambda d, t: d.Geometric(t.full((9,), 0.3)).sample(),
    "LogNormal": lambda d, t: d.LogNormal(t.zeros(5), 1.0).sample(),
    "MultivariateNormal": lambda d, t: d.MultivariateNormal(t.zeros(3), t.eye(3)).sample((4,)),
    "OneHotCategorical": lambda d, t: d.OneHotCategorical(t.ones(4)).sample((5,)),
    "Multinomial": lambda d, t: d.Multinomial(10, t.ones(4)).sample((5,)),
    "Binomial": lambda d, t: d.Binomial(20, t.linspace(0.1, 0.9, 5)).sample((3,)),
    "RelaxedBernoulli": lambda d, t: d.RelaxedBernoulli(t.tensor(0.5), t.full((4,), 0.3)).sample(),
    "Weibull": lambda d, t: d.Weibull(t.ones(4), t.ones(4)).sample(),
    "Pareto": lambda d, t: d.Pareto(t.ones(4), t.ones(4)).sample(),
    "VonMises": lambda d, t: d.VonMises(t.zeros(4), t.ones(4)).sample(),
}


@plainly
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_of_distributions(name):
    both(lambda t: DISTRIBUTIONS[name](t.distributions, t), 1e-5)


# ---- data ----------------------------------------------------------------------------------------


def batches(t, **options):
    loader = t.utils.data.DataLoader(list(range(23)), batch_size=5, **options)
    return [x.tolist() for _ in range(2) for x in loader] + [t.rand(1).tolist()]


def test_loaders_and_samplers_have_the_same_order():
    data = [(t.utils.data, t) for t in (ad, torch)]

    def alike(make):
        found, expected = (make(d, t) for d, t in data)
        assert found == expected
        assert ad.get_rng_state().tolist() == torch.get_rng_state().tolist()

    alike(lambda d, t: batches(t, shuffle=True))
    alike(lambda d, t: batches(t, shuffle=True, generator=t.Generator().manual_seed(4)))
    alike(lambda d, t: [list(x) for x in d.random_split(range(17), [5, 12])])
    alike(lambda d, t: list(d.RandomSampler(range(9), True, 70)))
    alike(lambda d, t: list(d.RandomSampler(range(9), num_samples=25)))
    alike(lambda d, t: list(d.SubsetRandomSampler(range(5, 12))))
    alike(lambda d, t: list(d.WeightedRandomSampler([0.1, 0.5, 3.0], 20)))
    alike(lambda d, t: list(d.WeightedRandomSampler([0.1, 0.5, 3.0], 2, replacement=False)))


@pytest.mark.parametrize(("replacement", "samples"), [(False, None), (False, 12), (True, 40)])
def test_samplers_leave_a_generator_of_the_callers_where_pytorchs_do(replacement, samples):
    found = []
    for t, _ in BOTH:
        g = t.Generator().manual_seed(9)
        order = list(t.utils.data.RandomSampler(range(9), replacement, samples, g))
        found.append((order, t.rand(2, generator=g).tolist()))
    assert found[0] == found[1]


class Noisy:
    def __init__(self, t):
        self.name = t.__name__

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return importlib.import_module(self.name).rand(1).item()


def test_workers_draw_the_same():
    found = []
    for t, _ in BOTH:
        loader = t.utils.data.DataLoader(Noisy(t), batch_size=2, shuffle=True, num_workers=2)
        found.append([x.tolist() for x in loader])
    seed(0)
    spawned = ad.utils.data.DataLoader(
        Noisy(ad), batch_size=2, shuffle=True, num_workers=1, multiprocessing_context="spawn"
    )
    alone = ad.utils.data.DataLoader(Noisy(ad), batch_size=2, shuffle=True, num_workers=1)
    last = [x.tolist() for x in spawned]
    seed(0)
    assert found[0] == found[1]
    assert last == [x.tolist() for x in alone]


def test_a_loader_goes_on_from_its_state():
    def loader():
        return ad.utils.data.DataLoader(list(range(12)), batch_size=2, shuffle=True)

    first = loader()
    passing = iter(first)
    [next(passing) for _ in range(2)]
    state = json.loads(json.dumps(first.state_dict()))
    rest = [x.tolist() for x in passing]
    seed(99)
    again = loader()
    again.load_state_dict(state)
    assert [x.tolist() for x in again] == rest


# ---- training from the seed alone ----------------------------------------------------------------


def trained(t, build, batch, loss, optimizer, steps=20, wrap=lambda f: f):
    """The losses of a run from the seed alone."""
    t.manual_seed(0)
    model = build(t)
    opt = optimizer(t, model.parameters())

    def step(*inputs):
        opt.zero_grad()
        value = loss(t, model, *inputs)
        value.backward()
        opt.step()
        return value

    step = wrap(step)
    return [float(step(*each).detach()) for each in batch(t, steps)]


def loaded(t, steps):
    x = t.randn(60, 12)
    y = t.randint(4, (60,))
    found = []
    while len(found) < steps:
        loader = t.utils.data.DataLoader(t.utils.data.TensorDataset(x, y), 16, shuffle=True)
        found += list(loader)[:3]
    return found[:steps]


def mlp(t):
    nn = t.nn
    return nn.Sequential(
        nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.GELU(), nn.Dropout(),
        nn.Linear(32, 4),
    )  # fmt: skip


def classified(t, model, x, y):
    return t.nn.functional.cross_entropy(model(x), y)


def cnn(t):
    nn = t.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout2d(0.2), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3), nn.LeakyReLU(), nn.Flatten(), nn.Dropout(0.4), nn.Linear(8 * 9, 5),
    )  # fmt: skip


def images(t, steps):
    return [(t.randn(6, 1, 12, 12), t.randint(5, (6,))) for _ in range(steps)]


def transformer(t):
    class Model(t.nn.Module):
        def __init__(self):
            super().__init__()
            nn = t.nn
            self.embedded = nn.Embedding(11, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(16, 11)

        def forward(self, x):
            mask = t.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.head(self.encoder(self.embedded(x), mask=mask))

    return Model()


def tokens(t, steps):
    return [(t.randint(11, (4, 7)), t.randint(11, (4, 7))) for _ in range(steps)]


def predicted(t, model, x, y):
    return t.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def characters(t):
    class Model(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedded = t.nn.Embedding(11, 8)
            self.lstm = t.nn.LSTM(8, 16, 2, dropout=0.3, batch_first=True)
            self.head = t.nn.Linear(16, 11)

        def forward(self, x):
            return self.head(self.lstm(self.embedded(x))[0])

    return Model()


def adam(t, parameters):
    return t.optim.Adam(parameters, lr=1e-2)


def sgd(t, parameters):
    return t.optim.SGD(parameters, lr=0.05, momentum=0.9)


RUNS = {
    "mlp": (mlp, loaded, classified, adam),
    "cnn": (cnn, images, classified, sgd),
    "transformer": (transformer, tokens, predicted, sgd),
    "lstm": (characters, tokens, predicted, adam),
}


@plainly
@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_pytorchs_losses_from_the_seed_alone(name):
    found, expected = trained(ad, *RUNS[name]), trained(torch, *RUNS[name])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@needs_native
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_compiled_runs_draw_the_same(name):
    found = trained(ad, *RUNS[name], wrap=ad.compile)
    state = ad.get_rng_state()
    expected = trained(ad, *RUNS[name])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert ad.get_rng_state().equal(state)


@plainly
def test_checkpointed_parts_draw_again_what_they_drew():
    gradients = []
    for t, _ in BOTH:
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(5, 9), t.nn.Dropout(0.4), t.nn.Linear(9, 3))
        y = t.utils.checkpoint.checkpoint(model, t.randn(4, 5), use_reentrant=False)
        y = y + t.utils.checkpoint.checkpoint(model, t.randn(4, 5), use_reentrant=False)
        y.square().sum().backward()
        gradients.append([*model[0].weight.grad.flatten().tolist(), *t.randn(3).tolist()])
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-4)


def test_threads_draw_each_number_once():
    seen = []
    threads = [threading.Thread(target=lambda: seen.extend(ad.rand(50).tolist())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(torch.rand(400).tolist())


# ---- other ways to execute -----------------------------------------------------------------------


def test_lazy_draws_are_made_when_they_are_recorded():
    ad.manual_seed(0)
    expected = ad.rand(3), ad.poisson(ad.full((4,), 3.0)), ad.nn.functional.dropout(ad.ones(9))
    after = ad.rand(1)
    ad.manual_seed(0)
    with ad.lazy():
        a = ad.rand(3)
        b = ad.poisson(ad.ones(4) * 3)
        c = ad.nn.functional.dropout(ad.ones(9))
        last = ad.rand(1)
    assert last.equal(after)
    assert all(x.equal(y) for x, y in zip((a, b, c), expected, strict=True))


@needs_native
def test_compiled_functions_draw_host_numbers_in_order():
    @ad.compile
    def step(x):
        ad.rand(7)  # drawn nevertheless
        return ad.nn.functional.dropout(x, 0.5), ad.randn(3) + x[0], ad.rand(2)

    def eager(x):
        ad.rand(7)
        return ad.nn.functional.dropout(x, 0.5), ad.randn(3) + x[0], ad.rand(2)

    ad.manual_seed(3)
    found = [y for _ in range(4) for y in step(ad.ones(9))] + [ad.rand(1)]
    ad.manual_seed(3)
    expected = [y for _ in range(4) for y in eager(ad.ones(9))] + [ad.rand(1)]
    assert all(x.equal(y) for x, y in zip(found, expected, strict=True))
    explained = step.explain(ad.ones(9))
    assert [row.name for row in explained.rows].count("followed") == 3, explained


@needs_native
def test_compiled_functions_are_compiled_again_for_the_other_kind():
    step = ad.compile(lambda: ad.rand(4))
    ad.manual_seed(3)
    step()
    followed = step()
    ad.random.follow_torch(False)
    for _ in range(2):
        ad.manual_seed(3)
        counted = step()
        ad.manual_seed(3)
        assert counted.equal(ad.rand(4))
    assert not counted.equal(followed)
    ad.random.follow_torch()
    ad.manual_seed(3)
    step()
    assert step().equal(followed)


@needs_native
def test_what_a_run_drew_is_undone_where_it_fails():
    @ad.compile
    def step(x):
        return ad.linalg.cholesky(x) * ad.rand(1)

    ad.manual_seed(0)
    step(ad.eye(3))
    before = ad.get_rng_state()
    with pytest.raises(ad.LinalgError):
        step(-ad.eye(3))
    assert ad.get_rng_state().equal(before)


@needs_native
def test_compiled_functions_refuse_what_values_decide():
    with pytest.raises(ad.Unsupported, match="Poisson takes as many"):
        ad.compile(lambda x: ad.poisson(x))(ad.ones(3))

    def seeds():
        ad.rand(1)
        ad.manual_seed(0)
        return ad.rand(1)

    with pytest.raises(ad.Unsupported, match="sets the seed"):
        ad.compile(seeds)()


def test_graphs_draw_by_counters():
    ad.manual_seed(0)
    graph = ad.Graph()
    with graph:
        x = ad.rand(3)
    before = x.numpy().copy()
    graph.redraw()
    assert (x.numpy() != before).all()
    ad.manual_seed(0)
    again = ad.Graph()
    with again:
        y = ad.rand(3)
    assert y.numpy().tolist() == before.tolist()
    ad.random.follow_torch(False)
    graph = ad.Graph()
    ad.random.follow_torch()
    with graph, pytest.raises(ad.Unsupported, match=r"Graph\(seed"):
        ad.rand(3)


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_vmap_draws_for_each_example_or_for_all(randomness):
    for draw in (
        lambda t: t.rand(3), lambda t: t.randn(5), lambda t: t.randint(9, (2,)),
        lambda t: t.randperm(4), lambda t: t.bernoulli(t.full((5,), 0.4)),
    ):  # fmt: skip

        def mapped(t, draw=draw):
            return t.func.vmap(lambda x: x + draw(t), randomness=randomness)(t.zeros(4, 1))

        both(mapped, 1e-6)


def test_what_cannot_be_drawn_in_order_is_refused():
    state = ad.get_rng_state()
    with ad.lazy(), pytest.raises(ad.Unsupported, match="one after another"):
        ad.func.vmap(lambda x: x + ad.rand(2), randomness="different")(ad.zeros(3, 1))
    assert ad.get_rng_state().equal(state)


@needs_native
def test_what_cannot_be_drawn_in_order_is_refused_in_compiled_functions():
    dropped = ad.nn.Dropout()

    with pytest.raises(ad.Unsupported, match="draws from PyTorch's generator"):
        ad.compile(lambda x: ad.cond(x.sum() > 0, dropped, lambda x: x, (x,)))(ad.ones(3))


def test_transforms_and_steps_of_graphs_draw_in_order():
    def after(call):
        ad.manual_seed(0)
        return call()

    x = ad.ones(6)
    drop = ad.nn.Dropout()
    expected = after(lambda: drop(x))
    assert after(lambda: ad.func.grad(lambda w: drop(w).sum())(x)).equal(expected)
    assert after(lambda: ad.func.jvp(drop, (x,), (x,))[1]).equal(expected)
    graph = ad.Graph()
    with graph.step():
        assert after(lambda: drop(x)).equal(expected)


def test_vmap_refuses_draws_that_nobody_allowed():
    with pytest.raises(RuntimeError, match="randomness"):
        ad.func.vmap(lambda x: x + ad.rand(1))(ad.zeros(3))


def test_bernoulli_and_samplers_pass_gradients_as_pytorch_does():
    for draw in (
        lambda t, x: t.bernoulli(x), lambda t, x: t.poisson(x),
        lambda t, x: t.distributions.Gamma(x, 1.0).rsample(),
    ):  # fmt: skip
        seed(1)
        gradients = []
        for t, _ in BOTH:
            x = t.full((6,), 0.5, requires_grad=True)
            draw(t, x).sum().backward()
            gradients.append(x.grad.tolist())
        np.testing.assert_allclose(*gradients, rtol=1e-3)
