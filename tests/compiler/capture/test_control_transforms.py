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
@pytest.mark.filterwarnings("ignore:vmap")
@pytest.mark.parametrize("name", ["cond", "scan", "fori_loop"])
def test_forward_over_backward(name):
    f, x = FUNCTIONS[name], drawn(3).detach()
    total = lambda x: f(x).sum()  # noqa: E731
    wanted = ad.autograd.functional.hessian(total, x)
    assert_alike([func.hessian(total)(x)], [wanted])


@needs_native
@pytest.mark.filterwarnings("ignore:vmap")
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
