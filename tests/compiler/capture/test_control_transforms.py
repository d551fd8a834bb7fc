"""`cond`, `while_loop` and `scan` within `vmap`, `jvp` and gradients of functions, and these within
them: beside what each entry gives alone, and backward mode.
"""

import pytest

import adjoint as ad
from tests.native import needs_native

from .test_loop_options import assert_alike, drawn

func = ad.func

FUNCTIONS = {
    "cond": lambda x: ad.cond(x.sum() > 0.5, lambda v: v * v.sin(), lambda v: v.exp() * 2, (x,)),
    "scan": lambda x: ad.scan(lambda c, v: (c.sin() * v + c, c * v), x.sum(), x)[1],
    "while_loop": lambda x: ad.while_loop(
        lambda n, v: (n < 5) & (v.sum() < 9), lambda n, v: (n + 1, v * v + x), (0, x)
    )[1],
    "fori_loop": lambda x: ad.fori_loop(1, 4, lambda i, v: v * x.cos() + i, x),
}


@needs_native
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_those_of_backward_mode(name, grad):
    """Those of a cond were zeros, without a word: its branches had no history."""
    f = FUNCTIONS[name]
    x, v = drawn(3).detach(), drawn(3).detach()
    wanted = ad.autograd.functional.jacobian(f, x) @ v
    for function in (f, ad.compile(f)):
        with ad.set_grad_enabled(grad):
            y, t = func.jvp(function, (x,), (v,))
        assert_alike([y, t], [f(x), wanted])
    within = ad.compile(lambda x, v: func.jvp(f, (x,), (v,)))
    with ad.set_grad_enabled(grad):
        assert_alike(within(x, v), [f(x), wanted])


@needs_native
@pytest.mark.parametrize("name", ["cond", "scan", "fori_loop"])
def test_forward_over_backward(name):
    f, x = FUNCTIONS[name], drawn(3).detach()
    total = lambda x: f(x).sum()  # noqa: E731
    wanted = ad.autograd.functional.hessian(total, x)
    assert_alike([func.hessian(total)(x)], [wanted])


@needs_native
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_are_their_entries(name):
    """Values, gradients from outside of vmap (which were lost), and gradients within it."""
    f = FUNCTIONS[name]
    rows = ad.tensor([[0.1, 0.2, 0.1], [0.3, 0.4, -0.9], [1.0, -0.5, 0.2]], dtype=ad.float64)
    rows.requires_grad_()

    def each(rows):
        y = ad.stack([f(x) for x in rows])
        return [y, *ad.autograd.grad((y * y).sum(), rows, create_graph=True)]

    def batched(rows):
        y = ad.vmap(f)(rows)
        return [y, *ad.autograd.grad((y * y).sum(), rows, create_graph=True)]

    wanted = each(rows)
    assert_alike(batched(rows), wanted)
    assert_alike(ad.compile(batched)(rows), wanted)
    inner = ad.vmap(func.grad(lambda x: (f(x) ** 2).sum()))
    for function in (inner, ad.compile(inner)):
        assert_alike([function(rows.detach())], [wanted[1].detach()])


class _Doubled(ad.autograd.Function):
    """x, with a gradient twice as large."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * 2


def _hooked(x):
    y = x * 1
    if y.requires_grad:
        y.register_hook(lambda g: g * 3)
    return y.sin()


def _without_grad(x):
    with ad.no_grad():
        y = x.sin()
    return y + x


TAPES = {
    "detach": lambda x: x.detach().cos() * x,
    "no_grad": _without_grad,
    "Function": lambda x: _Doubled.apply(x).sin(),
    "hooks": _hooked,
    "in place": lambda x: (x * 2).add_(x).mul_(0.5),
    "view": lambda x: (x * 2).view(3, 1)[:, 0].flip(0),
    "cell": lambda x: ad.nn.functional.gelu(x),
}


@needs_native
@pytest.mark.filterwarnings("ignore:vmap")  # hooks and Functions: once for each entry
@pytest.mark.parametrize("name", TAPES)
def test_what_the_tape_of_a_body_says_holds_for_batches(name):
    """Gradients that are cut, replaced or changed in a body, in the first two orders."""
    f = TAPES[name]
    rows, w = drawn(2, 3), drawn(3)

    def entry(x, w):
        y, _ = ad.scan(lambda c, v: (f(c) * w + v, v), x * 0, ad.stack([x, x * x]))
        y = ad.cond(y.sum() > 0, lambda y: f(y) * w, lambda y: y.exp(), (y,))
        return ad.while_loop(lambda n, y: n < 2, lambda n, y: (n + 1, f(y) + w), (0, y))[1]

    def of(function):
        def values(rows, w):
            y = function(rows, w)
            first = ad.autograd.grad((y * y).sum(), (rows, w), create_graph=True)
            return [y, *first, *ad.autograd.grad(sum((g * g).sum() for g in first), (rows, w))]

        return values

    wanted = of(lambda rows, w: ad.stack([entry(x, w) for x in rows]))(rows, w)
    batched = of(lambda rows, w: ad.vmap(entry, in_dims=(0, None))(rows, w))
    assert_alike(batched(rows, w), wanted)
    assert_alike(ad.compile(batched)(rows, w), wanted)


@needs_native
def test_batches_of_batches_and_of_what_is_nested():
    """A loop that each entry ends by itself, in a branch that each takes for itself, in a scan."""
    x = ad.linspace(-1.0, 1.5, 12, dtype=ad.float64).reshape(2, 2, 3).requires_grad_()

    def entry(x):
        def turn(c, v):
            grow = lambda c: ad.while_loop(lambda c: c.sum() < 4, lambda c: (c * 1.5 + 1,), (c,))[0]  # noqa: E731
            return ad.cond(c.sum() > v, grow, lambda c: c.sin() + v, (c,)), c * v

        last, results = ad.scan(turn, x, x)
        return last + results.sum(0)

    def of(function):
        def values(x):
            y = function(x)
            return [y, *ad.autograd.grad((y * y).sum(), x)]

        return values

    wanted = of(lambda x: ad.stack([ad.stack([entry(z) for z in y]) for y in x]))(x)
    for function in (
        of(lambda x: ad.vmap(ad.vmap(entry))(x)),
        of(lambda x: ad.vmap(ad.vmap(entry), 1, 1)(x)),
    ):
        assert_alike(function(x), wanted)
        assert_alike(ad.compile(function)(x), wanted)


@needs_native
def test_a_loop_that_batches_share_runs_as_one():
    """What no entry has of its own is computed once: the counter, and the predicate."""
    x = drawn(5, 2).detach()

    def f(x):
        return ad.vmap(lambda x: ad.fori_loop(0, ad.tensor(3), lambda i, y: y * x + i, x))(x)

    compiled = ad.compile(f)
    assert_alike([compiled(x)], [ad.stack([f(row[None])[0] for row in x])])
    loops = [
        node.op for part in compiled.programs[0].parts for node in part.graph.nodes
        if node.op.name == "while_loop"
    ]  # fmt: skip
    assert [[spec.shape for spec in op.specs] for op in loops] == [[(), (5, 2), ()]]


@needs_native
@pytest.mark.parametrize("randomness", ["error", "same", "different"])
def test_draws_within_are_refused(randomness):
    """A node counts its draws, of which a batch would have as many as it has entries."""
    f = lambda x: ad.scan(lambda c, v: (c + ad.rand(()) * v, c), x.sum(), x)[0]  # noqa: E731
    batched = ad.vmap(f, randomness=randomness)
    for function in (batched, ad.compile(batched)):
        with pytest.raises(ad.Unsupported, match="draw"):
            function(ad.ones(2, 3))


def test_batches_in_a_graph_follow():
    graph = ad.Graph()
    w = ad.tensor([1.0, 0.5], requires_grad=True)

    def values(x, batched):
        ys = [batched(FUNCTIONS[name], x * w) for name in ("cond", "scan")]
        return [*ys, *ad.autograd.grad((ys[0] * ys[0]).sum() + ys[1].sum(), w)]

    with graph:
        x = graph.input([[1.0, 2.0], [3.0, -4.0]])
        found = values(x, lambda f, x: ad.vmap(f)(x))
    for rows in ([[1.0, 2.0], [3.0, -4.0]], [[-1.0, 0.5], [1.0, 1.0]]):
        x.set(rows)
        wanted = values(ad.tensor(rows), lambda f, x: ad.stack([f(row) for row in x]))
        assert_alike(found, wanted, 1e-5)
