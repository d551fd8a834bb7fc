"""Draws in loops: the numbers of eager execution, which are made for many turns at once."""

import pytest

import adjoint as ad
from adjoint.backends.native.lowering.draws_of_turns import DrawsOfTurns
from adjoint.backends.native.runtime.pool import default_pool
from adjoint.compiler.capture import fused_loop, loop_draws
from adjoint.core import policy
from tests.native import needs_native
from tests.sweep import swept

F = ad.nn.functional
pytestmark = needs_native

AHEAD = {
    "uniform": lambda: ad.rand(3),
    "float64": lambda: ad.rand(5, dtype=ad.float64).float()[:3],
    "one": lambda: ad.rand(()),
    "normal": lambda: ad.randn(3),
    "integers": lambda: ad.randint(-3, 9, (3,)).float(),
    "dropout": lambda: F.dropout(ad.ones(3), 0.5),
    "two": lambda: ad.rand(3) + ad.randn(7).sum(),
    "half": lambda: ad.rand(3, dtype=ad.float16).float(),  # of which Python makes the rows
    "permutation": lambda: ad.randperm(3).float(),
    "written": lambda: ad.empty(3).normal_(),
    "none": lambda: ad.rand(0).sum() + 1,
}
ONE_BY_ONE = {
    "poisson": lambda: ad.poisson(ad.full((3,), 4.0)),
    "bernoulli": lambda: ad.bernoulli(ad.full((3,), 0.4)),
}


def alike(function, *given, times=2):
    """The program of a function, whose results and numbers behind it are those of eager runs."""
    compiled = ad.compile(function)
    for _ in range(times):
        runs = []
        for run in (function, compiled):
            ad.manual_seed(11)
            first = ad.rand(2)
            runs.append([first, *run(*given), ad.rand(2), ad.get_rng_state()])
        for wanted, found in zip(*runs, strict=True):
            ad.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    return compiled


def ops_of(compiled):
    """Nodes of control flow in the last program."""
    nodes = [node.op for part in compiled.programs[-1].parts for node in part.graph.nodes]
    return [op for op in nodes if hasattr(op, "turns")]


@pytest.fixture(params=["one function", "records"])
def way(request, monkeypatch):
    fused = request.param == "one function"
    monkeypatch.setattr(fused_loop, "is_on", lambda: fused)
    return request.param


def scanned(draw, length, reverse):
    def turn(c, row):
        return c * 0.5 + draw() * row, c + draw()

    return lambda x: ad.scan(turn, x, ad.linspace(0.1, 1.0, length), reverse=reverse)


def looped(draw):
    """Draws in the condition and in the body."""

    def f(x):
        test = lambda c, n: (n < 9) & (ad.rand(()) < 2)  # noqa: E731
        return ad.while_loop(
            test, lambda c, n: (c * 0.5 + draw() + draw(), n + 1), (x, x.sum() * 0)
        )

    return f


def _cases():
    """Each draw; most of those that go through records only in the sweep."""
    for name in (*AHEAD, *ONE_BY_ONE):
        yield name, True
        yield (name, False) if name in ("two", "poisson") else swept((name, False))


@pytest.mark.parametrize(("name", "fused"), list(_cases()))
def test_numbers_are_those_of_eager_loops(name, fused, monkeypatch):
    """In blocks of few turns: of numbers of 12 bytes, two."""
    draw = {**AHEAD, **ONE_BY_ONE}[name]
    monkeypatch.setattr(fused_loop, "is_on", lambda: fused)
    monkeypatch.setattr(loop_draws, "_ROOM", 24)
    (op,) = ops_of(alike(scanned(draw, 5, name == "uniform"), ad.ones(3)))
    if name in ONE_BY_ONE:
        assert op.called == (name,)
    else:
        assert op.called == {"half": ("uniform",), "none": ("sum",)}.get(name, ())
    if name not in ("half", "written", "none"):
        assert (op.turns == "") == (fused and name not in ONE_BY_ONE)


@pytest.mark.parametrize("name", ["two", "poisson"])
def test_while_loops_draw_in_conditions_and_bodies(name, way, monkeypatch):
    monkeypatch.setattr(loop_draws, "_ROOM", 100)
    monkeypatch.setattr(loop_draws, "_FIRST", 2)
    (op,) = ops_of(alike(looped({**AHEAD, **ONE_BY_ONE}[name]), ad.ones(3)))
    assert op.called == (("uniform", "poisson") if name == "poisson" else ())


@pytest.mark.parametrize("length", [1, swept(2), 300])
def test_lengths(length, monkeypatch):
    monkeypatch.setattr(loop_draws, "_ROOM", 1000)
    alike(scanned(AHEAD["two"], length, False), ad.ones(3))


def test_no_turns_draw_nothing():
    compiled = ad.compile(lambda x: ad.scan(lambda c, _: (c + ad.rand(3), ad.rand(2)), x, length=0))
    state = ad.get_rng_state()
    last, rows = compiled(ad.ones(3))
    assert last.tolist() == [1, 1, 1] and rows.shape == (0, 2)
    assert ad.get_rng_state().equal(state)
    alike(
        lambda x: ad.while_loop(lambda c: c.sum() < 0, lambda c: (c + ad.rand(3),), (x,)),
        ad.ones(3),
    )


def test_numbers_of_many_turns_are_made_at_once(monkeypatch):
    made, draw = [], DrawsOfTurns.__call__

    def counted(self, rows, *given):
        made.append(len(rows))
        draw(self, rows, *given)

    monkeypatch.setattr(DrawsOfTurns, "__call__", counted)
    monkeypatch.setattr(loop_draws, "_ROOM", 12 * 600)
    compiled = ad.compile(lambda x: ad.scan(lambda c, _: (c + ad.randn(3), None), x, length=2000))
    compiled(ad.ones(3))
    assert made == [600, 600, 600, 200]
    made.clear()
    body = lambda c, n: (c + ad.randn(3), n + 1)  # noqa: E731
    ad.compile(lambda x, n: ad.while_loop(lambda c, n: n < 100, body, (x, n)))(
        ad.ones(3), ad.tensor(0)
    )
    assert made == [16, 32, 64]  # which may end at any time


@pytest.mark.parametrize("threads", [swept(1), 2, swept(3)])
def test_threads_change_nothing(threads, monkeypatch):
    monkeypatch.setattr(policy, "DRAWS_PARALLEL", 1)
    before = default_pool().num_threads
    default_pool().set_num_threads(threads)
    try:
        draw = lambda: ad.rand(3) + ad.randn(300).mean() + ad.randint(0, 9, (3,))  # noqa: E731
        alike(scanned(draw, 40, False), ad.ones(3))
    finally:
        default_pool().set_num_threads(before)


@pytest.mark.parametrize(
    ("kind", "second"), [swept(("scan", False)), ("scan", True), ("while", False), ("while", True)]
)
def test_gradients_have_the_numbers_of_their_turns(kind, second, way, monkeypatch):
    """The gradient of a while loop draws again, from the last turn to the first."""
    monkeypatch.setattr(loop_draws, "_ROOM", 60)
    w = ad.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def turn(c):
        return (c * w + F.dropout(c, 0.5) * ad.rand(3)).sin() + ad.randn(3)

    def f(x):
        if kind == "scan":
            y, _ = ad.scan(lambda c, _: (turn(c), None), x, length=9)
        else:
            test = lambda c, n: n < 8 + ad.rand(())  # noqa: E731
            y, _ = ad.while_loop(test, lambda c, n: (turn(c), n + 1), (x, x.sum() * 0))
        (g,) = ad.autograd.grad(y.square().sum(), w, create_graph=second)
        return [y, g, *(ad.autograd.grad(g.square().sum(), w) if second else ())]

    for op in ops_of(alike(f, ad.ones(3))):
        assert not op.called


def test_several_generators():
    own = ad.Generator()

    def turn(c, _):
        return c * ad.rand(3, generator=own) + ad.rand(3) + ad.randn(3, generator=own), c

    def loop(x):
        last, rows = ad.scan(turn, x, length=5)
        return last, rows, ad.rand(2, generator=own)

    found = []
    for run in (loop, ad.compile(loop)):
        own.manual_seed(4)
        ad.manual_seed(5)
        found.append([*run(ad.ones(3)), *run(ad.ones(3)), own.get_state(), ad.get_rng_state()])
    for x, y in zip(*found, strict=True):
        ad.testing.assert_close(x, y)


def test_loops_within_loops_and_of_other_lengths():
    def inner(c, _):
        return c * 0.5 + ad.rand(3), c

    def f(x, rows):
        return ad.scan(lambda c, row: ad.scan(inner, c + ad.randn(3) * row, length=3), x, rows)

    compiled = ad.compile(f, dynamic=True)
    for length in (2, 5, 3):
        found = []
        for run in (f, compiled):
            ad.manual_seed(1)
            found.append([*run(ad.ones(3), ad.ones(length)), ad.rand(1)])
        for x, y in zip(*found, strict=True):
            ad.testing.assert_close(x, y)


def test_another_loop_for_what_is_singular_draws_the_same():
    rows = ad.eye(3, dtype=ad.float64).expand(5, 3, 3).clone()
    rows[3, 1] = rows[3, 0]

    def turn(c, row):
        return c * 0.5 + row * ad.linalg.slogdet(row)[1].exp() + ad.rand(3, dtype=ad.float64), c

    (op,) = ops_of(alike(lambda x: ad.scan(turn, x, rows), ad.ones(3, 3, dtype=ad.float64)))
    assert op.turns == ""


def test_an_error_in_a_turn_leaves_generators_as_they_were(way):
    def turn(c, n):
        return c + ad.rand(3) + c[n], None

    compiled = ad.compile(lambda x, places: ad.scan(turn, x, places))
    compiled(ad.ones(3), ad.tensor([[0], [1], [2]]))
    state = ad.get_rng_state()
    with pytest.raises(IndexError) as caught:
        compiled(ad.ones(3), ad.tensor([[0], [7], [2]]))
    assert any("scan: in turn 1" in each for each in caught.value.__notes__)
    assert ad.get_rng_state().equal(state)
    alike(lambda x: ad.scan(turn, x, ad.tensor([[0], [1], [2]])), ad.ones(3))
