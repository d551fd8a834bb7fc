"""What `scan` and `fori_loop` take besides: lengths without xs, blocks of turns, bounds that are
tensors; beside the loop in Python, with gradients to second order.
"""

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import policy
from adjoint.core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from tests.native import needs_native

from ...sweep import swept
from .random_loops import RandomLoop

WAYS = [
    {}, {"unroll": 2}, {"unroll": 4}, {"checkpoint": "none"}, {"checkpoint": "turn"},
    {"checkpoint": "sqrt"}, {"checkpoint": "sqrt", "unroll": 2},
    {"checkpoint": "turn", "unroll": 3},
]  # fmt: skip


def to_second_order(function, *arguments):
    """Results, gradients, and gradients of their squares."""
    ys = function(*arguments)
    total = sum((y * y).sum() for y in ys if y.dtype.is_floating_point)
    first = ad.autograd.grad(total, arguments, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None]
    squares = sum((g * g).sum() for g in first)
    second = ad.autograd.grad(squares, arguments, allow_unused=True)
    return [*ys, *first, *(g for g in second if g is not None)]


def assert_alike(found, wanted, tolerance=1e-9):
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(
            x.detach().numpy(), y.detach().numpy(), tolerance, tolerance, strict=True
        )


def in_python(function, carry, rows, length, reverse=False):
    results = [None] * length
    for t in range(length)[:: -1 if reverse else 1]:
        carry, results[t] = function(carry, None if rows is None else rows[t])
    return carry, results


def drawn(*shape):
    return ad.randn(*shape, dtype=ad.float64, requires_grad=True)


# ---- scan ----------------------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [2, *map(swept, (1, 7, 9))])
def test_turns_in_blocks_are_those_of_the_loop(length, reverse):
    ad.manual_seed(length)
    rows, w = drawn(length, 3), drawn(3)

    def turn(w):
        return lambda c, x: ((c * w).tanh() + x, (c * x, c.sum()))

    def looped(rows, w):
        carry, results = in_python(turn(w), w * 0, rows, length, reverse)
        return [carry, *(ad.stack(each) for each in zip(*results, strict=True))]

    wanted = to_second_order(looped, rows, w)
    for way in WAYS:

        def scanned(rows, w, way=way):
            carry, results = ad.scan(turn(w), w * 0, rows, reverse=reverse, **way)
            return [carry, *results]

        assert_alike(to_second_order(scanned, rows, w), wanted)
        assert_alike(ad.compile(lambda *xs: to_second_order(scanned, *xs))(rows, w), wanted)


@needs_native
@pytest.mark.parametrize(("first", "count"), [(0, 8), swept((8, 300))])
def test_random_loops_in_blocks(first, count):
    """Each way in turn, beside the loop in Python."""
    for seed in range(first, first + count):
        loop = RandomLoop(seed)
        given = loop.arguments(seed)
        wanted = loop(*given)
        loop.options = WAYS[seed % len(WAYS)]
        for x, y in zip(ad.compile(loop)(*given), wanted, strict=False):
            np.testing.assert_allclose(x.numpy(), y.numpy(), 2e-3, 2e-3, err_msg=str(seed))


@needs_native
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_turns_at_all(way):
    w = drawn(3)
    for function in (ad.scan, ad.compile(lambda *args: ad.scan(*args, **way))):
        carry, (y, z) = function(
            lambda c, x: (c * x, (c, x.sum())), w, ad.ones(0, 3, dtype=ad.float64)
        )
        assert carry.tolist() == w.tolist()
        assert (y.shape, z.shape) == ((0, 3), (0,))


@needs_native
@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_length_without_rows(length):
    w = drawn(2)
    wanted = [w * 2**length]
    for options in ({}, {"unroll": 2}, {"checkpoint": "sqrt"}):

        def f(w, options=options):
            carry, result = ad.scan(lambda c, x: (c * 2, x), w, length=length, **options)
            assert result is None
            return [carry]

        assert_alike(to_second_order(f, w), to_second_order(lambda w: [w * 2**length], w))
        assert_alike(ad.compile(f)(w), wanted)
    with pytest.raises(InvalidArgument, match="length=-1"):
        ad.scan(lambda c, x: (c, c), w, length=-1)
    with pytest.raises(ShapeError, match=r"length=3, but xs have 2 slices"):
        ad.scan(lambda c, x: (c, c), w, w, length=3)
    with pytest.raises(InvalidType, match="length is a float"):
        ad.scan(lambda c, x: (c, c), w, length=3.0)


def test_options_that_are_refused():
    with pytest.raises(InvalidArgument, match="unroll=0"):
        ad.scan(lambda c, x: (c, c), ad.ones(2), ad.ones(2), unroll=0)
    with pytest.raises(InvalidArgument, match="checkpoint='all'; it is"):
        ad.scan(lambda c, x: (c, c), ad.ones(2), ad.ones(2), checkpoint="all")


@needs_native
def test_draws_in_blocks_are_those_of_the_loop():
    def f(x, **options):
        return ad.scan(lambda c, x: (c * ad.rand(3) + x, c.sum()), x[0], x, **options)[0]

    rows = ad.randn(7, 3)
    for options in ({}, {"unroll": 3}, {"checkpoint": "none"}):
        found = []
        for function in (f, ad.compile(lambda x, o=options: f(x, **o))):
            ad.manual_seed(1)
            found.append([function(rows).tolist() for _ in range(2)])
        assert found[0] == found[1]
    rows.requires_grad_()
    for plan in ("turn", "sqrt"):
        with pytest.raises(Unsupported, match="draws random numbers, which its gradient would"):
            ad.compile(lambda x: f(x, checkpoint=plan).sum().backward())(rows)  # noqa: B023
        assert ad.compile(lambda x, plan=plan: f(x, checkpoint=plan))(rows.detach()).shape == (3,)


def _kept(compiled):
    """The bytes that scans of a program keep for gradients, and what, as `explain` says it."""
    ops = [node.op for part in compiled.programs[0].parts for node in part.graph.nodes]
    found = [getattr(op, "kept_turns", None) for op in ops]
    return [each for each in found if each is not None]


@needs_native
def test_what_is_kept_is_bounded(monkeypatch):
    """A carry of 800 bytes through 100 turns: what was carried into all, or into 10 blocks."""
    w, rows = drawn(100), drawn(100, 1)

    def found(**options):
        def step(w, rows):
            last, _ = ad.scan(lambda c, x: ((c * w).sin().exp() + x, None), w, rows, **options)
            return ad.autograd.grad(last.sum(), (w, rows))

        compiled = ad.compile(step)
        gradients = [x.numpy() for x in compiled(w, rows)]
        ((count, what),) = _kept(compiled)
        assert what in str(compiled.explain(w, rows))
        return gradients, count, what

    wanted, none, what = found(checkpoint="none")
    assert what.startswith("what each turn computes that is costly")
    assert none >= 2 * 100 * 800  # the sine, or its exponential, too
    assert found(checkpoint="turn")[1:] == (100 * 800, "what is carried into each turn")
    gradients, few, what = found(checkpoint="sqrt")
    assert (few, what) == (10 * 800, "what is carried into each of 10 blocks of 10 turns")
    for x, y in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(x, y, 1e-9)
    monkeypatch.setattr(policy, "SCAN_KEEPS", none)
    assert found()[1] == none
    monkeypatch.setattr(policy, "SCAN_KEEPS", none - 1)
    assert found()[1:] == (few, what)


# ---- while_loop ----------------------------------------------------------------------------------


def to_third_order(function, *arguments):
    """Results, and gradients of the first three orders, each of the squares before."""
    found = ys = list(function(*arguments))
    for _ in range(3):
        total = sum((y * y).sum() for y in ys if y.requires_grad)
        gs = ad.autograd.grad(total, arguments, create_graph=True, allow_unused=True)
        ys = [g for g in gs if g is not None]
        found += ys
    return found


def bounded(most, until):
    def f(w):
        test = lambda c: (c["n"] < until) & (c["x"].sum() < 1e9)  # noqa: E731
        body = lambda c: ({"n": c["n"] + 1, "x": (c["x"] * w).sin() + w},)  # noqa: E731
        (carry,) = ad.while_loop(test, body, ({"n": 0, "x": w * w},), max_steps=most)
        return [carry["x"], carry["n"]]

    return f


@needs_native
@pytest.mark.parametrize(("most", "until"), [(5, 3), swept((3, 5)), swept((3, 3)), (0, 2)])
def test_third_derivatives_of_a_bounded_loop(most, until):
    w, turns = drawn(2), min(most, until)

    def looped(w):
        x = w * w
        for _ in range(turns):
            x = (x * w).sin() + w
        return [x, ad.tensor(turns)]

    f, wanted = bounded(most, until), to_third_order(looped, w)
    assert_alike(to_third_order(f, w), wanted)
    assert_alike(ad.compile(lambda w: to_third_order(f, w))(w), wanted)


@needs_native
@pytest.mark.parametrize("way", [WAYS[0], *map(swept, WAYS[1:])], ids=str)
def test_third_derivatives_of_a_scan(way):
    rows, w = drawn(3, 2), drawn(2)

    def turn(w):
        return lambda c, x: ((c * w).sin() + x, c * x)

    def looped(rows, w):
        carry, results = in_python(turn(w), w * w, rows, 3)
        return [carry, ad.stack(results)]

    def scanned(rows, w):
        return list(ad.scan(turn(w), w * w, rows, **way))

    wanted = to_third_order(looped, rows, w)
    assert_alike(ad.compile(lambda *xs: to_third_order(scanned, *xs))(rows, w), wanted)


@needs_native
def test_bounded_loops_draw_as_eager_ones_and_end_by_values():
    def f(x, until):
        body = lambda x, n: (x * 0.5 + ad.rand(3), n + ad.randint(1, 3, ()))  # noqa: E731
        return ad.while_loop(lambda x, n: n < until, body, (x, until * 0), max_steps=6)

    compiled = ad.compile(f)
    for until in (0, 3, 40):
        found = []
        for run in (f, compiled):
            ad.manual_seed(until)
            found.append([*run(ad.ones(3), ad.tensor(until)), ad.rand(2)])
        for x, y in zip(*found, strict=True):
            ad.testing.assert_close(x, y)
    assert len(compiled.programs) == 1
    for wrong in (-1, 2.0, True):
        with pytest.raises(InvalidArgument, match=f"while_loop: max_steps={wrong}"):
            ad.while_loop(lambda x: x < 1, lambda x: (x,), (ad.ones(()),), max_steps=wrong)


# ---- fori_loop -----------------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize(("lower", "upper"), [(-1, 3), (3, 3), (4, 1)])
def test_a_loop_of_numbers(lower, upper):
    """By bounds that are numbers, and that are tensors, with the counter in the body."""
    w = drawn(3)

    def body(w):
        def turn(i, carry):
            assert i.dtype == ad.int64
            return {"x": carry["x"] * (w + i).cos() + i, "n": carry["n"] + 1}

        return turn

    def looped(w):
        carry = {"x": w * w, "n": ad.tensor(0)}
        for i in range(lower, upper):
            carry = body(w)(ad.tensor(i), carry)
        return [carry["x"], carry["n"]]

    def of(lower, upper):
        def f(w):
            carry = ad.fori_loop(lower, upper, body(w), {"x": w * w, "n": 0})
            return [carry["x"], carry["n"]]

        return f

    wanted = to_second_order(looped, w)
    bounds = ad.tensor(lower), ad.tensor([upper], dtype=ad.int32)
    for pair in ((lower, upper), bounds, (lower, bounds[1])):
        f = of(*pair)
        assert_alike(to_second_order(f, w), wanted)
        assert_alike(ad.compile(lambda w: to_second_order(f, w))(w), wanted)  # noqa: B023


@needs_native
def test_a_bound_that_changes_is_no_new_program():
    f = ad.compile(lambda n, x: ad.fori_loop(1, n, lambda i, y: y * i, x))
    for n in (1, 4, 6, 0):
        assert f(ad.tensor(n), ad.ones(())).item() == np.prod(np.arange(1, n))
    assert len(f.programs) == 1


def test_bounds_that_are_refused():
    for wrong, shown in ((2.0, "float"), (ad.tensor(2.0), "float32"), (True, "bool")):
        with pytest.raises(InvalidType, match=f"fori_loop: upper is a .*{shown}"):
            ad.fori_loop(0, wrong, lambda i, x: x, 0)
    with pytest.raises(InvalidArgument, match=r"fori_loop: lower has shape \(2,\)"):
        ad.fori_loop(ad.tensor([1, 2]), 3, lambda i, x: x, 0)
