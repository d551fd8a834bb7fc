"""Random numbers within branches and loops of compiled functions: those of eager execution."""

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native
from tests.sweep import swept

pytestmark = needs_native
dropout = nn.functional.dropout
w = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)


def flat(found):
    return [x for each in found for x in flat(each)] if isinstance(found, tuple) else [found]


def gradient(y, **options):
    return ad.autograd.grad(y.square().sum(), w, **options)[0]


def branches(x):
    first, positive = ad.rand(3), x.sum() > 0
    y = ad.cond(positive, lambda v: dropout(v * w, 0.5), lambda v: v * w, (x,))
    between = ad.rand(3)
    twice, once = lambda v: v + ad.rand(3) + ad.randn(3), lambda v: v * ad.rand(3)
    z = ad.cond(positive, twice, once, (y,))
    return first, between, z, ad.rand(2), gradient(z)


def loop(x):
    body = lambda v: (v + 1 + dropout(v * w, 0.5) * ad.rand(3),)  # noqa: E731
    (y,) = ad.while_loop(lambda v: v.abs().sum() < 30 + ad.rand(()), body, (x,))
    return y, ad.rand(2), gradient(y)


def scanned(x):
    def combine(h, v):
        return h * 0.5 + dropout(v * w, 0.5), h + ad.rand(3)

    h, ys = ad.scan(combine, ad.zeros(3), ad.stack([x, x + 1, x]))
    return h, ys, ad.rand(2), gradient(h + ys)


def nested(x):
    def body(v):
        more = lambda u: u + ad.rand(3) + ad.rand(3)  # noqa: E731
        return (ad.cond(v[0] > 3, more, lambda u: u * w + ad.rand(3) + 1, (v,)),)

    def combine(h, v):
        kept = ad.cond(h.sum() > 3, lambda h: h * w, lambda h: h + dropout(w, 0.3), (h,))
        return kept, ad.rand(2)

    (y,) = ad.while_loop(lambda v: v.sum() < 30, body, (x,))
    h, ys = ad.scan(combine, y, ad.ones(3, 3))
    return y, h, ys, ad.rand(2), gradient(h)


def unused(x):
    ad.cond(x.sum() > 0, lambda v: v + ad.rand(3), lambda v: v, (x,))
    return x * 2


def recomputed(x):
    def segment(v):
        both = lambda u: dropout(u * w, 0.5) + dropout(u, 0.5)  # noqa: E731
        return ad.cond(x.sum() > 0, both, lambda u: u * w, (v,)) * dropout(v, 0.5)

    y = checkpoint(segment, x, use_reentrant=False) + ad.rand(3)
    y = checkpoint(segment, y, use_reentrant=False)
    return y, gradient(y), ad.rand(2)


def second(x):
    drawing = lambda v: dropout(v * w, 0.5).sin() * ad.rand(3)  # noqa: E731
    y = ad.cond(x.sum() > 0, drawing, lambda v: v * w**3, (x,))
    g = gradient(y, create_graph=True)
    return g, gradient(g), ad.rand(1)


@pytest.mark.parametrize("seed", [0, swept(1), swept(2)])
@pytest.mark.parametrize("function", [branches, loop, scanned, nested, unused, recomputed, second])
def test_numbers_are_those_of_eager_execution(function, seed):
    compiled = ad.compile(function)
    for x in (ad.ones(3), -ad.ones(3), ad.ones(3)):
        runs = []
        for run in (function, compiled):
            ad.manual_seed(seed)
            runs.append((*flat(run(x)), ad.rand(2)))
        for wanted, found in zip(*runs, strict=True):
            ad.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert compiled.reasons == ["first call"]


def test_several_generators_go_on_each_by_its_own_draws():
    own = ad.Generator()

    def function(positive):
        both = lambda: ad.rand(3, generator=own) + ad.rand(3)  # noqa: E731
        y = ad.cond(positive, both, lambda: ad.rand(3, generator=own) * 2)
        return y, ad.rand(2, generator=own), ad.rand(2)

    compiled = ad.compile(function)
    for positive in (ad.tensor(True), ad.tensor(False)):
        runs = []
        for run in (function, compiled):
            own.manual_seed(1)
            ad.manual_seed(2)
            runs.append((*run(positive), own.get_state(), ad.get_rng_state()))
        assert all(x.equal(y) for x, y in zip(*runs, strict=True))


def test_calls_whose_gradients_come_later_draw_apart():
    layer, found = nn.Linear(3, 3), []

    def function(x):
        drop = lambda v: dropout(layer(v), 0.5)  # noqa: E731
        return ad.cond(x.sum() > 0, drop, layer, (x,)) * dropout(x, 0.5)

    for run in (function, ad.compile(function)):
        ad.manual_seed(4)
        layer.zero_grad()
        first, other = run(ad.ones(2, 3)), run(ad.ones(2, 3))
        (first.square().sum() + 2 * other.sum()).backward()
        found.append((layer.weight.grad.clone(), ad.rand(1)))
    ad.testing.assert_close(*found)


def test_an_error_leaves_generators_as_they_were():
    def function(x):
        wrong = lambda v: v[ad.tensor([7])].expand(3) + ad.rand(3)  # noqa: E731
        return ad.rand(3) + ad.cond(x.sum() > 0, lambda v: v + ad.rand(3), wrong, (x,))

    compiled = ad.compile(function)
    compiled(ad.ones(3))
    state = ad.get_rng_state()
    with pytest.raises(IndexError):
        compiled(-ad.ones(3))
    assert ad.get_rng_state().equal(state)
    compiled(ad.ones(3))
    after = ad.get_rng_state()
    ad.set_rng_state(state)
    function(ad.ones(3))
    assert ad.get_rng_state().equal(after)


def test_in_a_graph_draws_are_refused():
    with ad.Graph(), pytest.raises(Unsupported, match=r"cond: .*draws.*test_draws_in_bodies"):
        x = ad.ones(3)
        ad.cond(x.sum() > 0, lambda v: v + ad.rand(3), lambda v: v, (x,))


def test_setting_a_seed_within_is_refused():
    def body(v):
        y = v + ad.rand(3)
        ad.manual_seed(1)
        return y + ad.rand(3)

    state = ad.get_rng_state()
    with pytest.raises(Unsupported, match="sets the seed"):
        ad.compile(lambda x: ad.cond(x.sum() > 0, body, lambda v: v, (x,)))(ad.ones(3))
    assert ad.get_rng_state().equal(state)
