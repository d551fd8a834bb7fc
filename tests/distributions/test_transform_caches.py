"""What transforms keep (`cache_size`), what they derive from besides, and which are equal."""

from __future__ import annotations

import copy
import pickle

import pytest

import adjoint as ad
from adjoint import distributions as d


class Counted(d.Transform):
    """exp(x), which counts its calls and has no inverse."""

    bijective = True

    def __init__(self, cache_size=0):
        super().__init__(cache_size)
        self.calls = 0

    def _call(self, x):
        self.calls += 1
        return x.exp()

    def log_abs_det_jacobian(self, x, y):
        return x


class Learned(d.Transform, ad.nn.Module):
    """A shift by a parameter."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.shift = ad.nn.Parameter(ad.tensor(2.0))

    def _call(self, x):
        return x + self.shift

    def __hash__(self):
        return id(self)


def test_the_last_pair_is_kept():
    t, x = Counted(cache_size=1), ad.tensor([0.5, 1.0])
    y = t(x)
    assert t(x) is y
    assert t.inv(y) is x
    assert t.calls == 1
    with pytest.raises(NotImplementedError, match="no inverse"):
        t.inv(y.clone())
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        Counted(cache_size=2)


def test_without_a_cache_nothing_is_kept():
    t, x = Counted(), ad.tensor(1.0)
    assert t(x) is not t(x)
    assert t.calls == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: d.ComposeTransform([d.AffineTransform(0.0, 1.0), d.TanhTransform()], cache_size=1),
        lambda: d.IndependentTransform(d.TanhTransform(), 1, cache_size=1),
        lambda: d.TanhTransform().with_cache(),
        lambda: d.TanhTransform().inv.with_cache().inv,
        lambda: d.StackTransform([d.TanhTransform()], dim=0, cache_size=1),
    ],
)
def test_a_saturated_value_is_inverted_exactly(make):
    t = make()
    x = ad.tensor([[20.0, -3.0]])  # tanh(20) is 1, whose inverse is infinite or clipped
    assert t.inv(t(x)).tolist() == x.tolist()


def test_density_of_a_draw_uses_what_was_drawn():
    policy = d.TransformedDistribution(d.Normal(20.0, 1e-3), [Counted(cache_size=1)])
    drawn = policy.rsample()
    assert policy.log_prob(drawn).isfinite()


def test_copies_keep_no_pair():
    t = d.SigmoidTransform(cache_size=1)
    x = ad.tensor(0.3, requires_grad=True)
    y = t(x * 1)
    for new in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), t.with_cache(0)):
        assert new == t
        assert new._cached_x_y == (None, None)
    assert t(y) is not y


def test_transforms_that_are_modules():
    t = Learned(cache_size=1)
    assert [name for name, _ in t.named_parameters()] == ["shift"]
    assert t.with_cache(0).shift is t.shift
    t(ad.tensor(1.0)).backward()
    assert t.shift.grad == 1


def test_transforms_are_equal_by_what_they_do():
    normal = d.CumulativeDistributionTransform(d.Normal(0.0, 1.0))
    for one, other in [
        (d.ReshapeTransform((2,), (1, 2)), d.ReshapeTransform((2,), (2, 1))),
        (d.IndependentTransform(d.ExpTransform(), 1), d.IndependentTransform(d.TanhTransform(), 1)),
        (d.StackTransform([d.ExpTransform()]), d.StackTransform([d.TanhTransform()])),
        (normal, d.CumulativeDistributionTransform(d.Normal(1.0, 1.0))),
        (Learned(), Learned()),
    ]:
        assert one != other
        assert one == one
    assert d.ExpTransform() == d.ExpTransform()
    assert d.SoftmaxTransform() != d.StickBreakingTransform()


def test_divergence_between_different_transforms_is_refused():
    p, q = (
        d.TransformedDistribution(
            d.Normal(ad.zeros(2), 1.0), [d.IndependentTransform(d.AffineTransform(0.0, scale), 1)]
        )
        for scale in (1.0, 3.0)
    )
    with pytest.raises(NotImplementedError):
        d.kl_divergence(p, q)
