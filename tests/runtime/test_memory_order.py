"""What shows the memory of what, where operations are recorded: as in eager execution, which keeps
the order of axes in memory through what is computed of each element.
"""

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint.backends import native
from adjoint.core.errors import ShapeError
from adjoint.runtime import memory_order
from adjoint.runtime.memory_order import memory_like
from tests.native import needs_native


def doubled(x):
    y = x * 2.0
    y.reshape(-1)[1] = 9.0
    return y.clone()


def transposed(x):
    y = (x.t() + 1.0).exp()
    y.flatten()[1] = 9.0
    return y.clone()


def contiguous(x):
    y = ad.where(x > 2, x, -x)
    z = y.contiguous()
    z[0] = 9.0
    return y * z


def read_after(x):
    y = x.to(ad.float64) * 2.0
    v = y.reshape(-1)
    y[0] = 9.0
    return v.clone()


def of_a_clone(x):
    y = x.clone()
    y.ravel()[1] = 9.0
    return y + x


def of_another_order(x):
    y = x * ad.ones(2, 3).t() if x.shape[0] == 3 else x * ad.ones(3, 2).t()
    y.reshape(-1)[1] = 9.0
    return y.clone()


def masked(x):
    y = x + 0.25
    y[y > 2] = 0.5
    z = x.t() * 2.0
    z[z < 3] += 1.0
    return y.sum(0) * 2 + y.mean() + z.sum()


def put(x):
    y = x * 1.5
    y.put_(ad.tensor([1, 4]), ad.tensor([7.0, 8.0]))
    y.index_put_((ad.tensor([0]), ad.tensor([1])), ad.tensor(5.0))
    y.masked_fill_(y < 1, -1.0)
    y.view_as(y)[0] += 1.0
    y.diagonal().mul_(2.0)
    y.transpose(0, 1)[1] = 3.0
    return y.clone()


def written(x):
    y = x * 2.0
    y[0] = 5.0
    y[:, 1:].add_(1.0)
    y.masked_fill_(y > 8, 0.5)
    y.reshape(-1)[1] = 9.0
    return y.clone()


def by_rows(x):
    """What is computed along dimensions lies as its input, too; a product does not."""
    for y in (x.softmax(-1), x.cumsum(0), x.log_softmax(0), x.t().sum(0, keepdim=True), x @ x.t()):
        before = y.clone()
        y.reshape(-1)[1] = 9.0
        y.contiguous()[0] += 1.0
        x = x + y.mean() - before.sum()
    y = x * 1.5
    y[ad.tensor([0])] = 2.0
    y.reshape(-1)[1] = 9.0
    return x + y


def filled(x):
    y = ad.full_like(x, 0.25)
    z = ad.zeros_like((x * 2).t())
    y.reshape(-1)[1] = 9.0
    z.contiguous()[0] = 9.0
    return y + z.t()


PROGRAMS = [
    by_rows, written, filled, doubled, transposed, contiguous, read_after, of_a_clone, masked, put,
    of_another_order,
]  # fmt: skip
GIVEN = {
    "row-major": lambda: ad.arange(6.0).reshape(2, 3),
    "transposed": lambda: ad.arange(6.0).reshape(2, 3).t(),
    "a part": lambda: ad.arange(12.0).reshape(3, 4)[:2, :3],
    "a part, transposed": lambda: ad.arange(12.0).reshape(3, 4)[:2, :3].t(),
}


def lazily(program, x):
    with ad.lazy():
        return program(x)


def in_a_graph(program, x):
    graph = ad.Graph()
    with graph:
        return program(graph.input(x)).detach().clone()


def compiled(program, x):
    return ad.compile(program)(x)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", [lazily, in_a_graph, compiled])
def test_writes_reach_what_they_reach_eagerly(way, program, given):
    if way is compiled and native.unusable():
        pytest.skip("no native code")
    x = GIVEN[given]()
    assert way(program, x).tolist() == program(x).tolist()


@needs_native
def test_programs_go_by_the_order_of_axes():
    """One for each, and what is said of it."""
    function = ad.compile(doubled)
    for name in (*GIVEN, *GIVEN):
        x = GIVEN[name]()
        assert function(x).tolist() == doubled(x).tolist(), name
    assert len(function.programs) == len(GIVEN)
    square = ad.compile(doubled)
    x = ad.arange(9.0).reshape(3, 3)
    assert square(x).tolist() == doubled(x).tolist()
    assert square(x.t()).tolist() == doubled(x.t()).tolist()
    assert "is (3, 3) float32 of strides (1, 3)" in square.reasons[1]


@needs_native
def test_programs_go_by_gaps_in_memory():
    """A reshape of an argument with gaps is a copy, which a write does not reach."""

    def step(x):
        x.reshape(-1)[1] = 9.0
        return x * 2

    function = ad.compile(step)
    for name in GIVEN:
        x, y = GIVEN[name](), GIVEN[name]()
        assert function(x).tolist() == step(y).tolist() and x.tolist() == y.tolist(), name
    rows = ad.compile(lambda x: x.view(-1) * 2)
    rows(ad.ones(4, 3))
    with pytest.raises(ShapeError, match="view size"):
        rows(ad.ones(4, 6)[:, :3])
    assert rows(ad.ones(8, 3)[::2, :1]).shape == (4,)  # nothing lies between, but steps


@pytest.mark.parametrize("way", [lazily, compiled])
def test_a_view_that_there_is_not_is_refused(way):
    if way is compiled and native.unusable():
        pytest.skip("no native code")
    x = ad.arange(6.0).reshape(2, 3).t()
    with pytest.raises(ShapeError, match="view size"):
        way(lambda x: (x * 2).view(-1), x)
    assert way(lambda x: (x * 2).stride() == (1, 3), x)


def test_the_order_of_what_is_computed():
    """Of two operands in all orders, parts of them, and broadcast ones."""
    shapes = [(2, 3, 4), (2, 1, 4), (3, 4), (1, 3, 1)]
    for (a, first), (b, second) in itertools.product(
        itertools.product(shapes, itertools.permutations(range(3))), repeat=2
    ):
        x, y = (_in_order(shape, order) for shape, order in ((a, first), (b, second)))
        eagerly = (x * y).exp()._data
        with ad.lazy():
            recorded = memory_like((x * y).exp()._data)
        sizes = eagerly.shape
        assert recorded.shape == sizes
        for n, one, other in zip(sizes, recorded.strides, eagerly.strides, strict=True):
            assert n == 1 or one == other, (a, first, b, second)


def _in_order(shape, order):
    """A tensor whose axes lie in memory in an order."""
    order = [k for k in order if k < len(shape)]
    back = np.argsort(order)
    return ad.from_numpy(np.ones([shape[k] for k in order], np.float32).transpose(back))


def test_the_order_stays_when_something_was_read():
    """Reading gives a tensor memory of its own, which lies as before."""
    x = ad.arange(20.0).reshape(4, 5).t()
    with ad.lazy():
        for make in (ad.ones_like, ad.clone, ad.exp, lambda x: x * 2):
            y = make(x)
            assert y.stride() == (1, 5)
            y.tolist()
            assert y.stride() == (1, 5)
            z = y + 1
            assert z.sum().item() == (make(x) + 1).sum().item()
            assert y.stride() == z.stride() == (1, 5) and y.contiguous() is not y
            w = make(x)
            (w * 2).sum().item()
            w.contiguous()[0] = 9.0
            assert w.stride() == (1, 5) and (w[0] != 9.0).all()


@needs_native
def test_constants_of_a_compiled_function_lie_as_they_were_made():
    def used(x):
        v = ad.ones_like(x)
        before = v.stride()
        w = v * 2
        c = v.contiguous()
        c[0] = 9.0
        return before, v.stride(), w.stride(), v.is_contiguous(), c is v, v, w

    x = ad.arange(20.0).reshape(4, 5).t()
    expected, found = used(x), ad.compile(used)(x)
    assert found[:5] == expected[:5] == ((1, 5), (1, 5), (1, 5), False, False)
    assert [y.tolist() for y in found[5:]] == [y.tolist() for y in expected[5:]]
    with pytest.raises(ShapeError, match=r"stride \(1, 5\)"):
        ad.compile(lambda x: ad.ones_like(x).view(-1))(x)


def test_what_is_broadcast_beside_decides_no_order():
    """Statistics of few channels, whose steps together are longer than a row's."""
    for y in (ad.ones(5, 3), ad.ones(5, 6)[:, ::2] + 0, ad.ones(2, 3, 2, 1)):
        norm = (ad.nn.BatchNorm2d if y.ndim == 4 else ad.nn.BatchNorm1d)(3).eval()
        found = norm(y).stride()
        assert found == y.stride()
        with ad.lazy():
            assert norm(y).stride() == found
    x, y = ad.arange(5.0)[:, None], ad.arange(30.0)[::10][None]
    assert (x * y + x).stride() == (3, 1)


def test_in_a_graph_each_question_looks_at_what_is_new(monkeypatch):
    """Not at all that the value depends on: loops that write to what they made would take the
    square of their length.
    """
    looked_at = []

    def counted(x, follows=memory_order._follows):
        looked_at.append(x)
        return follows(x)

    monkeypatch.setattr(memory_order, "_follows", counted)
    graph = ad.Graph()
    x = graph.input(ad.arange(6.0).reshape(2, 3).t())
    with graph:
        for _ in range(100):
            x = x * 0.5 + 1.0
            assert memory_like(x._data).strides == (4, 12)
    assert len(looked_at) <= 500  # each new node, and its inputs; all of them are 10,000


@pytest.mark.parametrize("how", ["other values", "another order", "another shape", "another node"])
def test_what_was_found_in_a_graph_holds_until_it_changes(how):
    graph = ad.Graph()
    x = graph.input(ad.arange(6.0).reshape(2, 3).t())
    with graph:
        doubled = x * 2.0
        y = doubled.exp()
    assert memory_like(y._data).strides == (4, 12)
    given = {
        "other values": ad.ones(2, 3).t(), "another order": ad.ones(3, 2),
        "another shape": ad.ones(2, 5).t(), "another node": ad.ones(3, 2),
    }[how]  # fmt: skip
    if how == "another node":
        other = graph.input(given)
        graph.replace(doubled, other)
        doubled = other
    else:
        x.set(given)
        doubled = given * 2.0
    expected = doubled.exp() if how != "another node" else given.exp()
    recorded = memory_like(y._data)
    assert recorded.shape == tuple(expected.shape)
    assert recorded.strides == expected._data.strides
    assert y.tolist() == expected.tolist()


def test_what_was_found_while_a_batch_failed_is_not_kept():
    graph = ad.Graph()
    x = graph.input(ad.arange(6.0).reshape(2, 3).t())
    with graph:
        y = x.exp()
    with pytest.raises(RuntimeError, match="stops"), graph.batch():
        x.set(ad.ones(4, 4))
        assert memory_like(y._data).strides == (16, 4)
        raise RuntimeError("stops")
    assert memory_like(y._data).strides == (4, 12)
    assert memory_like(y._data).shape == (3, 2)
