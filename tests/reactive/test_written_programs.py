"""Random programs that write in place, inside the blocks of a graph: as eagerly, or with a warning
where a parameter was written; what is recorded follows the inputs, and memory is memory."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import AdjointError

from ..sweep import few_or_many
from .written_programs import Run, random_program, same, start, value

LEFT_OUT = [("clone",), ("swap",), ("like",), ("data",)]
many_seeds = few_or_many("seeds", 200, 5000)


def in_graph(lines, tensors, protected=()):
    """The run of a program in a graph, its values, and the graph's warnings."""
    graph = ad.Graph()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = Run(tensors, protected).execute(lines, lambda: graph)
        values = [value(x) for x in run.tensors]
        graph.check_invariants()
    assert not graph._state.written and not graph._state.blocks
    return run, values, [str(w.message) for w in found if str(w.message).startswith("Graph: ")]


def different(found, expected):
    """The numbers of the values that differ."""
    assert len(found) == len(expected)
    return [i for i, pair in enumerate(zip(found, expected, strict=True)) if not same(*pair)]


def gradients(run):
    """Of the sum of all that requires grad, for each leaf; None where that is refused."""
    ends = [x.sum() for x in run.tensors if x.requires_grad and x.dtype.is_floating_point]
    try:
        found = ad.autograd.grad(sum(ends), run.leaves, allow_unused=True)
    except AdjointError:
        return None
    return [None if g is None else value(g) for g in found]


@many_seeds
def test_in_blocks_as_eagerly_or_with_a_warning(seeds):
    warned = 0
    for seed in range(seeds):
        dtype, lines = random_program(seed)
        run, values, said = in_graph(lines, start(dtype))
        eager = Run(start(dtype)).execute(lines)
        assert [n for n, *_ in run.refused] == [n for n, *_ in eager.refused], seed
        expected = [value(x) for x in eager.tensors]
        wrong = different(values, expected) + different(run.log, eager.log)
        if run.wrote_leaf:
            warned += bool(said)
            assert said or not wrong, (seed, lines)
        else:
            assert not said and not wrong, (seed, wrong, lines)
    assert 0 < warned < seeds / 20


@many_seeds
def test_gradients_of_what_was_written(seeds):
    compared = 0
    for seed in range(seeds, 2 * seeds):
        dtype, lines = random_program(seed)
        eager = Run(start(dtype)).execute(lines)
        expected = gradients(eager) if eager.leaves and not eager.wrote_leaf else None
        if expected is None:
            continue
        run, *_ = in_graph(lines, start(dtype))
        found = gradients(run)
        for a, b in zip(found, expected, strict=True):
            assert (a is None) == (b is None), (seed, lines)
            assert a is None or np.allclose(a, b, rtol=1e-2, equal_nan=True), (seed, lines)
            compared += a is not None
    assert compared > seeds / 10


@many_seeds
def test_nodes_follow_an_input_and_memory_stays(seeds):
    """After the block, the input is set: nodes are what eager execution gives for the new value,
    memory holds what it held when the block ended; and it is written like other memory.
    """
    followed = 0
    for seed in range(2 * seeds, 3 * seeds):
        dtype, lines = random_program(seed)
        # Copies are as they were; `.data` of the input would be written, and its value set.
        lines = [line for line in lines if line[0] != "read" and line[1:2] not in LEFT_OUT]
        tensors = start(dtype, leaf=False)
        first, second = start(dtype, 0, False)[0], start(dtype, 1, False)[0]
        graph = ad.Graph()
        x = graph.input(first)
        run = Run([*tensors[1:], x], (x,)).execute(lines, x.node.state.owner)
        before, after = (
            Run([*start(dtype, leaf=False)[1:], plain], (plain,)).execute(lines)
            for plain in (first, second)
        )
        assert [n for n, *_ in run.refused] == [n for n, *_ in before.refused], (seed, lines)
        expected = [value(y) for y in before.tensors]
        assert not different([value(y) for y in run.tensors], expected), (seed, lines)
        x.set(second)
        for y, old, new in zip(run.tensors, expected, after.tensors, strict=True):
            node = ad.autograd.refreshing.is_of_graph(y)
            assert same(value(y), value(new) if node else old), (seed, node, lines)
            followed += node and not same(old, value(new))
    assert followed > seeds / 4


def test_another_value_is_noticed():
    assert different([np.ones(2)], [np.ones(2)]) == []
    for wrong in (np.zeros(2), np.ones(3), np.ones(2, np.float32)):
        assert different([wrong], [np.ones(2)]) == [0]


def test_a_view_without_history_gets_none_by_a_write_to_its_memory():
    """The view is made without gradients inside a block; what it views has a history."""
    w = ad.ones(2, 4, requires_grad=True)
    h = w * 2
    with ad.Graph():
        with ad.no_grad():
            parts = [h.reshape(-1, 2), h.view(-1), h[0], h.view_as(h)]
        h.detach().add_(1)
    assert [part.requires_grad for part in parts] == [False] * 4
    assert all(part.max().item() == 3 for part in parts) and h.requires_grad


FAMILIES = {  # a tensor with history, a view of it, an alias without, two views of that
    "of_all": lambda h: (h, h[1:], h.detach(), None),
    "of_part": lambda h: (h, r := h[1:], r.detach(), None),
    "of_a_view_of_an_alias": lambda h: (h, h[1:], h.detach()[1:].view(-1).view(2, 2), None),
    "of_an_alias": lambda h: (h, r := h[1:], r.detach()[0:].detach(), None),
    "data": lambda h: (h, r := h[1:], r.data, None),
    "turned": lambda h: (h, h[1:], h.detach().t_().t_(), None),
    "with_a_view_made_before": lambda h: (h, r := h[1:], d := r.detach(), d[:, :1]),
}


def _family(way, made, kind, target, write):
    """Values and gradients of all that share memory once an alias, or a view of it, was written."""
    w = ad.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    found = []
    tensors = FAMILIES[kind](w * 3) if made == "before" else ()
    with warnings.catch_warnings(), way():
        warnings.simplefilter("ignore")
        h, view, alias, column = tensors or FAMILIES[kind](w * 3)
        column = alias[-2:, :1] if column is None else column
        x = {"alias": alias, "column": column, "rows": alias[1:]}[target]
        y = (w * 7)[-x.shape[0] :, : x.shape[1]]
        write(x, y)
        for each in (h, view, alias, column, x):
            g = None
            if each.requires_grad:
                (g,) = ad.autograd.grad(
                    (each * each.detach()).sum(), [w], allow_unused=True, retain_graph=True
                )
            found.append((each.tolist(), None if g is None else g.tolist()))
    return found


WAYS_TO_WRITE = {
    "copy": lambda x, y: x.copy_(y),
    "multiply": lambda x, y: x.mul_(y),
    "no_grad": lambda x, y: ad.no_grad()(x.copy_)(y),
    "turned": lambda x, y: x.t_().copy_(y.t()),
    "twice": lambda x, y: x.copy_(y).mul_(y),
}


@pytest.mark.parametrize("write", WAYS_TO_WRITE)
@pytest.mark.parametrize("made", ["before", "inside"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_who_shares_the_memory_of_a_written_alias_keeps_its_history(kind, made, write):
    for target in ("alias", "column", "rows"):
        arguments = made, kind, target, WAYS_TO_WRITE[write]
        expected = _family(contextlib.nullcontext, *arguments)
        assert _family(ad.Graph, *arguments) == expected, target
        assert _family(ad.lazy, *arguments) == expected, target


def _as_other_memory(kind, a):
    """What makes an alias of `a` show other memory, or the same in another shape."""
    alias, other = a.detach(), ad.empty(0)
    if kind == "data":
        alias.data = ad.ones(2, 4)
    elif kind == "out":
        ad.add(ad.ones(2, 4), 1, out=alias)
    elif kind == "smaller":
        alias.resize_(2)
    elif kind == "of its size":
        alias.resize_(2, 2)
    elif kind == "set_":
        alias.set_(ad.ones(3))
    elif kind == "set_ of nothing":
        alias.set_()
    elif kind == "set_ of it":
        other.set_(a)
    elif kind == "written there":
        alias.data = ad.ones(4)
        alias.add_(1)


@pytest.mark.parametrize(
    "kind",
    ["data", "out", "smaller", "of its size", "set_", "set_ of nothing", "set_ of it",
     "written there"],
)  # fmt: skip
def test_an_alias_that_takes_other_memory_leaves_what_is_recorded(kind):
    graph = ad.Graph()
    x = graph.input(ad.zeros(4))
    a = ad.arange(4.0)
    with graph:
        with ad.no_grad():
            a.add_(x)
        _as_other_memory(kind, a)
        y = a * 1
    x.set(ad.ones(4) * 10)
    assert y.tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("kind", ["data", "resize_"])
def test_an_alias_that_took_other_memory_before_writes_there(kind):
    a = ad.arange(4.0)
    alias = a.detach()
    if kind == "data":
        alias.data = ad.ones(2, 4)
    else:
        alias.resize_(2, 4)
    count = a._version
    graph = ad.Graph()
    x = graph.input(ad.zeros(4))
    with graph:
        with ad.no_grad():
            a.add_(x)
        alias.add_(1)
        y = a * 1
    x.set(ad.ones(4) * 10)
    assert y.tolist() == [10, 11, 12, 13]
    assert a._version == count + 1


def test_a_tensor_that_a_graph_follows_takes_other_memory():
    """`set_` and `resize_` are sets, as `data` is, and sizes are inferred anew."""
    x = ad.arange(4.0)
    with ad.Graph():
        y = x * 2
    x.set_(ad.ones(4))
    assert y.tolist() == [2] * 4
    x.set_(ad.ones(6))
    assert y.tolist() == [2] * 6
    x.resize_(2)
    assert y.tolist() == [2] * 2
    x.add_(1)
    assert y.tolist() == [4] * 2


def test_a_value_of_other_dimensions_is_refused_where_axes_were_found():
    graph = ad.Graph()
    x = graph.input(ad.arange(4.0))
    with graph:
        doubled = x * 2
        total = doubled.sum()
    with pytest.raises(ad.ShapeError, match=r"sum: recorded for 1 dimensions.*\(2, 2\)"):
        x.set(ad.ones(2, 2))
    assert total.item() == 12 and doubled.shape == (4,)
    free = graph.input(ad.arange(4.0))
    with graph:
        halved = (free / 2).exp()
    free.set(ad.zeros(2, 2))
    assert halved.tolist() == [[1, 1], [1, 1]]


def _written_leaf(way, of_leaf, viewed):
    """Gradients by a leaf whose `.data` took a value with a history, of all that there is."""
    w = ad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    h, p, q = w * 2, ad.zeros(2, 2), ad.ones(2, 2)
    with way():
        d = w.data
        view = h[1:] if viewed else h
        d[0:1] = w[0:1] if of_leaf else h[0:1]
        with ad.no_grad():
            q[:, 0:1] = q[:, 1:2] * 2
        p[0:1] = w[0:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nodes of a leaf follow it
        found = [w.tolist(), d.tolist()]
        for y in (w, h, d, view, p, w + d, h + d, w + h):
            (g,) = ad.autograd.grad(y.sum(), [w], retain_graph=True)
            found.append(g.tolist())
    return found


@pytest.mark.parametrize("of_leaf", [False, True])
@pytest.mark.parametrize("viewed", [False, True])
def test_a_leaf_stays_one_when_its_data_takes_a_history(of_leaf, viewed):
    expected = _written_leaf(contextlib.nullcontext, of_leaf, viewed)
    assert _written_leaf(ad.Graph, of_leaf, viewed) == expected
