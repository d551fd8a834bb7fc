"""Random numbers: reproducible draws, generators, distributions, errors."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from scipy import stats

import adjoint as ad

torch = pytest.importorskip("torch")

N = 20_000
ALPHA = 1e-3  # seeds are fixed: a test that passes once passes always


@pytest.fixture(autouse=True)
def _seeded():
    ad.manual_seed(1234)


def assert_distributed(x, distribution):
    """Kolmogorov-Smirnov for continuous distributions."""
    values = np.asarray(x, np.float64).ravel()
    assert np.isfinite(values).all()
    assert stats.kstest(values, distribution.cdf).pvalue > ALPHA


def assert_counts(x, probabilities, offset=0):
    """Chi-square for whole numbers from `offset` on."""
    values = np.asarray(x).ravel().astype(np.int64) - offset
    assert values.min() >= 0
    assert values.max() < len(probabilities)
    counts = np.bincount(values, minlength=len(probabilities))
    expected = np.asarray(probabilities) * values.size
    keep = expected > 5
    counts, expected = counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()
    assert stats.chisquare(counts, expected).pvalue > ALPHA


def test_the_checks_reject_wrong_samples():
    with pytest.raises(AssertionError):
        assert_distributed(ad.rand(N) * 0.97, stats.uniform)
    with pytest.raises(AssertionError):
        assert_counts(ad.randint(0, 4, (N,)), [0.27, 0.23, 0.27, 0.23])


# ---- reproducibility -----------------------------------------------------------------------------


DRAWS = {
    "rand": lambda g: ad.rand(3, 4, generator=g),
    "randn": lambda g: ad.randn(3, generator=g),
    "randint": lambda g: ad.randint(0, 100, (5,), generator=g),
    "randperm": lambda g: ad.randperm(9, generator=g),
    "normal": lambda g: ad.normal(1.0, 2.0, (4,), generator=g),
    "bernoulli": lambda g: ad.bernoulli(ad.full((30,), 0.5), generator=g),
    "poisson": lambda g: ad.poisson(ad.full((9,), 4.0), generator=g),
    "multinomial": lambda g: ad.multinomial(ad.ones(50), 9, generator=g),
    "rand_like": lambda g: ad.rand_like(ad.ones(3), generator=g),
    "randn_like": lambda g: ad.randn_like(ad.ones(3), generator=g),
    "randint_like": lambda g: ad.randint_like(ad.ones(9), 100, generator=g),
    "uniform_": lambda g: ad.empty(5).uniform_(generator=g),
    "normal_": lambda g: ad.empty(5).normal_(generator=g),
    "bernoulli_": lambda g: ad.empty(50).bernoulli_(generator=g),
    "random_": lambda g: ad.empty(5, dtype=ad.int64).random_(generator=g),
    "exponential_": lambda g: ad.empty(5).exponential_(generator=g),
    "geometric_": lambda g: ad.empty(50).geometric_(0.2, generator=g),
    "cauchy_": lambda g: ad.empty(5).cauchy_(generator=g),
    "log_normal_": lambda g: ad.empty(5).log_normal_(generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_fixes_the_numbers_and_each_draw_differs(name):
    draw = DRAWS[name]
    g = ad.Generator().manual_seed(5)
    first, second = draw(g), draw(g)
    assert not np.array_equal(first.numpy(), second.numpy())
    assert np.array_equal(draw(ad.Generator().manual_seed(5)).numpy(), first.numpy())
    assert not np.array_equal(draw(ad.Generator().manual_seed(6)).numpy(), first.numpy())


@pytest.mark.parametrize("name", DRAWS)
def test_the_default_generator_is_used_without_one(name):
    draw = DRAWS[name]
    ad.manual_seed(5)
    found = draw(None)
    assert np.array_equal(found.numpy(), draw(ad.Generator().manual_seed(5)).numpy())


@pytest.mark.parametrize("name", DRAWS)
def test_a_state_restores_bit_for_bit(name):
    draw = DRAWS[name]
    g = ad.Generator().manual_seed(5)
    draw(g)
    state = g.get_state()
    assert state.dtype is ad.uint8
    expected = draw(g)
    copies = [g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    g.set_state(state)
    assert np.array_equal(draw(g).numpy(), expected.numpy())
    third = draw(g)
    for each in copies:
        assert np.array_equal(draw(each).numpy(), third.numpy())


def test_numbers_do_not_depend_on_what_was_drawn_before_but_on_how_often():
    ad.manual_seed(0)
    ad.rand(1000)
    a = ad.rand(3)
    ad.manual_seed(0)
    ad.randperm(7)
    assert ad.rand(3).tolist() == a.tolist()


def test_known_numbers():
    """A change of the stream would break every checkpoint that resumes."""
    g = ad.Generator().manual_seed(0)
    expected = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, 0, 0]))
    assert ad.rand(4, generator=g).tolist() == expected.random(4, np.float32).tolist()
    expected = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, 1, 0]))
    assert ad.randn(4, generator=g).tolist() == expected.standard_normal(4, np.float32).tolist()


def test_seeds():
    g = ad.manual_seed(42)
    assert g is ad.default_generator
    assert ad.initial_seed() == g.initial_seed() == 42
    assert (
        ad.Generator().manual_seed(-1).initial_seed()
        == torch.Generator().manual_seed(-1).initial_seed()
    )
    assert ad.seed() == ad.initial_seed() != 42
    assert ad.Generator().initial_seed() == torch.Generator().initial_seed()
    with pytest.raises(RuntimeError, match="Overflow"):
        ad.manual_seed(2**64)
    with pytest.raises(TypeError, match="expected an int"):
        ad.manual_seed(1.5)


def test_states_of_the_default_generator():
    state = ad.get_rng_state()
    a = ad.rand(3)
    ad.set_rng_state(state)
    assert ad.rand(3).tolist() == a.tolist()
    with ad.random.fork_rng():
        inside = ad.rand(3)
        ad.manual_seed(99)
    assert ad.rand(3).tolist() == inside.tolist()
    with pytest.raises(RuntimeError, match="16 elements"):
        ad.set_rng_state(ad.zeros(3, dtype=ad.uint8))
    with pytest.raises(TypeError):
        ad.set_rng_state(b"abc")


def test_generators_on_unknown_devices_are_refused():
    with pytest.raises(RuntimeError, match="cuda"):
        ad.Generator("cuda:99")
    assert ad.Generator().device == ad.device("cpu")


def test_threads_draw_from_their_own_streams():
    results = {}

    def work(k):
        g = ad.Generator().manual_seed(k)
        results[k] = [ad.rand(1000, generator=g).tolist() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        g = ad.Generator().manual_seed(k)
        assert results[k] == [ad.rand(1000, generator=g).tolist() for _ in range(20)]


# ---- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
def test_continuous_distributions(dtype):
    assert_distributed(ad.rand(N, dtype=dtype), stats.uniform)
    assert_distributed(ad.randn(N, dtype=dtype), stats.norm)
    assert_distributed(ad.normal(3.0, 2.0, (N,), dtype=dtype), stats.norm(3, 2))
    x = ad.empty(N, dtype=dtype)
    assert_distributed(x.uniform_(-2, 5), stats.uniform(-2, 7))
    assert_distributed(x.normal_(1, 0.5), stats.norm(1, 0.5))
    assert_distributed(x.exponential_(2.0), stats.expon(scale=0.5))
    assert_distributed(x.cauchy_(1.0, 3.0), stats.cauchy(1, 3))
    assert_distributed(x.log_normal_(0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5)))
    assert_distributed(ad.rand_like(x), stats.uniform)
    assert_distributed(ad.randn_like(x), stats.norm)


def test_discrete_distributions():
    assert_counts(ad.randint(3, 9, (N,)), [1 / 6] * 6, offset=3)
    assert_counts(ad.randint_like(ad.empty(N), 5), [0.2] * 5)
    assert_counts(ad.empty(N).random_(2, 6), [0.25] * 4, offset=2)
    assert_counts(ad.bernoulli(ad.full((N,), 0.3)), [0.7, 0.3])
    assert_counts(ad.bernoulli(ad.empty(N), 0.3), [0.7, 0.3])
    assert_counts(ad.empty(N).bernoulli_(0.9), [0.1, 0.9])
    assert_counts(ad.empty(N, dtype=ad.int64).bernoulli_(ad.tensor(0.6)), [0.4, 0.6])
    assert_counts(ad.poisson(ad.full((N,), 2.5)), stats.poisson(2.5).pmf(np.arange(15)))
    assert_counts(ad.empty(N).geometric_(0.3), stats.geom(0.3).pmf(np.arange(1, 40)), offset=1)
    weights = np.array([1.0, 0.0, 3.0, 6.0])
    assert_counts(ad.multinomial(ad.tensor(weights), N, replacement=True), weights / 10)
    firsts = ad.multinomial(ad.tensor(weights).expand(N, 4), 2)
    assert_counts(firsts[:, 0], weights / 10)
    both = (
        weights[0] / 10 * weights / 9
        + weights[2] / 10 * weights / 7
        + weights[3] / 10 * weights / 4
    )
    second = both - weights * np.array([1 / 90, 0, 3 / 70, 6 / 40])
    assert_counts(firsts[:, 1], second)


def test_permutations_are_uniform():
    g = ad.Generator().manual_seed(0)
    found = [tuple(ad.randperm(3, generator=g).tolist()) for _ in range(3000)]
    names = sorted(set(found))
    assert len(names) == 6
    assert_counts([names.index(f) for f in found], [1 / 6] * 6)
    assert sorted(ad.randperm(1000).tolist()) == list(range(1000))


@pytest.mark.parametrize("dtype", [ad.float16, ad.bfloat16, ad.float32, ad.float64])
def test_uniform_numbers_never_reach_one(dtype):
    x = ad.rand(300_000, dtype=dtype)
    assert x.dtype is dtype
    assert float(x.min()) >= 0
    assert float(x.max()) < 1
    assert abs(float(x.double().mean()) - 0.5) < 0.005
    assert abs(float(ad.randn(300_000, dtype=dtype).double().mean())) < 0.01


def test_complex_numbers_have_variance_one():
    x = ad.randn(N, dtype=ad.complex64).numpy()
    assert_distributed(x.real, stats.norm(0, np.sqrt(0.5)))
    assert_distributed(x.imag, stats.norm(0, np.sqrt(0.5)))
    u = ad.rand(N, dtype=ad.complex128).numpy()
    assert_distributed(u.real, stats.uniform)
    assert_distributed(u.imag, stats.uniform)


def test_random_fills_the_whole_range_of_a_dtype():
    assert ad.empty(100_000, dtype=ad.uint8).random_().unique().numel() == 256
    assert ad.empty(100_000, dtype=ad.int8).random_().unique().numel() == 128
    assert set(ad.empty(100, dtype=ad.bool).random_().tolist()) == {False, True}
    assert int(ad.empty(1000, dtype=ad.int64).random_().max()) > 2**60
    assert float(ad.empty(1000).random_().max()) > 2**22


# ---- shapes, dtypes, gradients -------------------------------------------------------------------


def test_shapes_and_dtypes():
    assert ad.rand(2, 3).shape == ad.rand((2, 3)).shape == ad.rand(size=(2, 3)).shape == (2, 3)
    assert ad.randn(()).shape == ()
    assert ad.randint(5, (2,)).dtype is ad.int64
    assert ad.randint(0, 5, size=(2, 2), dtype=ad.uint8).dtype is ad.uint8
    assert ad.randperm(4, dtype=ad.int32).dtype is ad.int32
    assert ad.rand(2, requires_grad=True).requires_grad
    assert ad.rand_like(ad.ones(2), dtype=ad.float64).dtype is ad.float64
    assert ad.normal(ad.zeros(3, 1), ad.ones(2)).shape == (3, 2)
    assert ad.normal(ad.zeros(3), 1.0).shape == ad.normal(0.0, ad.ones(3)).shape == (3,)
    assert ad.multinomial(ad.ones(2, 5), 3).shape == (2, 3)
    out = ad.empty(3, dtype=ad.float64)
    assert ad.rand(3, out=out) is out
    assert float(out.min()) >= 0


def test_gradients():
    mean = ad.zeros(4, requires_grad=True)
    std = ad.ones(4, requires_grad=True)
    y = ad.normal(mean, std)
    y.sum().backward()
    assert mean.grad.tolist() == [1.0] * 4
    assert std.grad.tolist() == y.tolist()
    p = ad.full((3,), 0.5, requires_grad=True)
    ad.bernoulli(p).sum().backward()
    assert p.grad.tolist() == torch.zeros(3).tolist()
    rate = ad.full((3,), 2.0, requires_grad=True)
    ad.poisson(rate).sum().backward()
    assert rate.grad.tolist() == [0.0] * 3


def test_in_place_draws_are_in_place_operations():
    x = ad.zeros(4)
    view = x[1:3]
    before = x._version_count
    assert view.uniform_(7, 8) is view
    assert x._version_count == before + 1
    assert x.tolist()[0] == 0.0
    assert 7 <= x.tolist()[1] < 8
    leaf = ad.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.normal_()
    with ad.no_grad():
        leaf.normal_()
    y = leaf * 2
    z = y * y
    y.uniform_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_dropout_mask_keeps_the_mean():
    from adjoint.ops.random.random import dropout_mask

    x = ad.ones(N)
    mask = dropout_mask(x, 0.2)
    assert set(np.unique(mask.numpy())) == {np.float32(0), np.float32(1.25)}
    assert_counts(mask.numpy() > 0, [0.2, 0.8])
    assert set(np.unique(dropout_mask(x, 0.2, scale=False).numpy())) == {0.0, 1.0}
    assert dropout_mask(x, 0.0).tolist() == [1.0] * N
    assert not dropout_mask(x, 1.0).numpy().any()
    assert dropout_mask(ad.ones(2, 3, 4), 0.5, shape=(2, 3, 1)).shape == (2, 3, 1)


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ad.rand(-1), RuntimeError, "non-negative"),
        (lambda: ad.rand(2, dtype=ad.int64), RuntimeError, "not implemented"),
        (lambda: ad.randn(2, dtype=ad.bool), RuntimeError, "not implemented"),
        (lambda: ad.rand(2, generator=3), TypeError, "Generator"),
        (lambda: ad.randint(5, 5, (2,)), RuntimeError, "'from' to be less than 'to'"),
        (lambda: ad.randint(0, 300, (2,), dtype=ad.uint8), RuntimeError, "range of"),
        (lambda: ad.randint(5), TypeError, "size"),
        (lambda: ad.randperm(-1), RuntimeError, "non-negative"),
        (lambda: ad.normal(0.0, -1.0, (2,)), RuntimeError, "std >= 0.0"),
        (lambda: ad.normal(ad.zeros(2), ad.tensor([1.0, -1.0])), RuntimeError, "std >= 0.0"),
        (lambda: ad.normal(0.0, 1.0), TypeError, "size"),
        (lambda: ad.bernoulli(ad.tensor([1.5])), RuntimeError, "p_in >= 0"),
        (lambda: ad.bernoulli(ad.tensor([1])), RuntimeError, "not implemented"),
        (lambda: ad.zeros(2).bernoulli_(1.5), RuntimeError, r"p to be in \[0, 1\]"),
        (lambda: ad.poisson(ad.tensor([-1.0])), RuntimeError, "non-negative"),
        (lambda: ad.multinomial(ad.tensor([1.0, -1.0]), 1), RuntimeError, "element < 0"),
        (lambda: ad.multinomial(ad.tensor([1.0, np.nan]), 1), RuntimeError, "`nan`"),
        (lambda: ad.multinomial(ad.zeros(3), 1), RuntimeError, "sum of probabilities <= 0"),
        (lambda: ad.multinomial(ad.ones(3), 4), RuntimeError, "replacement=True"),
        (lambda: ad.multinomial(ad.tensor([1.0, 0.0]), 2), RuntimeError, "not enough"),
        (lambda: ad.multinomial(ad.ones(3), 0), RuntimeError, "n_sample <= 0"),
        (lambda: ad.multinomial(ad.ones(1, 2, 3), 1), RuntimeError, "1 or 2 dim"),
        (lambda: ad.multinomial(ad.tensor([1, 2]), 1), RuntimeError, "floating-point"),
        (lambda: ad.zeros(2).uniform_(3, 1), RuntimeError, "from=3 > to=1"),
        (lambda: ad.zeros(2).normal_(0, -1), RuntimeError, "std >= 0.0"),
        (lambda: ad.zeros(2).exponential_(0), RuntimeError, "lambda > 0.0"),
        (lambda: ad.zeros(2).geometric_(1.0), RuntimeError, "p to be in"),
        (lambda: ad.zeros(2).cauchy_(0, 0), RuntimeError, "sigma > 0.0"),
        (lambda: ad.zeros(2).log_normal_(0, 0), RuntimeError, "std > 0.0"),
        (lambda: ad.zeros(2, dtype=ad.int64).uniform_(), RuntimeError, "not implemented"),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_the_highest_number_by_name():
    assert set(ad.randint(high=3, size=(200,)).tolist()) == {0, 1, 2}
    assert set(ad.randint(low=2, high=4, size=(200,)).tolist()) == {2, 3}
    with pytest.raises(TypeError, match="high"):
        ad.randint(size=(2,))
