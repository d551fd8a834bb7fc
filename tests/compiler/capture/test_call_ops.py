"""A compiled function where a graph, or `lazy`, records: one node."""

import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import GraphError, RecordingError, ShapeError, Unsupported
from tests.native import needs_native

pytestmark = needs_native


def tower(x):
    for _ in range(5):
        x = (x * 1.1).sin()
    return x


def test_a_call_is_one_node_which_a_change_computes_again():
    compiled, graph = ad.compile(tower), ad.Graph()
    x, other = graph.input(ad.ones(3), "x"), graph.input(ad.ones(3), "other")
    with graph:
        y, z = compiled(x), compiled(other)
    assert len(graph) == 4
    ad.testing.assert_close(y.snapshot() + z.snapshot(), tower(ad.ones(3)) * 2)
    with graph.events() as log:
        x.set(ad.full((3,), 0.5))
        ad.testing.assert_close(
            y.snapshot() + z.snapshot(), tower(ad.full((3,), 0.5)) + z.snapshot()
        )
    assert log.ran == ["Call"]
    assert compiled.programs == []


def test_its_python_runs_once_for_all_nodes_alike():
    scale, graph = [2.0], ad.Graph()
    compiled = ad.compile(lambda x: x * scale[0])
    known = compiled._nodes
    x = graph.input(ad.ones(3))
    with graph:
        first = [compiled(x), compiled(x.detach())]
    (alike,) = known._known.values()
    assert len(alike) == 1
    scale[0] = 3.0  # what was recorded stays
    with graph:
        second = compiled(x)
    (alike,) = known._known.values()
    assert len(alike) == 2
    assert [y.tolist() for y in (*first, second)] == [[2.0] * 3, [2.0] * 3, [3.0] * 3]


def test_gradients_reach_arguments_parameters_and_nodes_read_elsewhere():
    layer, graph = nn.Linear(3, 2), ad.Graph()
    x, w = graph.input(ad.randn(4, 3), requires_grad=True), graph.parameter(ad.randn(2))

    def function(x):
        return (layer(x).tanh() * w).sum()

    with graph:
        loss = ad.compile(function)(x)
    for value in (ad.randn(4, 3), ad.randn(4, 3)):
        x.set(value)
        x.grad = w.grad = None
        layer.zero_grad()
        loss.backward()
        plain, other = value.clone().requires_grad_(), w.snapshot().requires_grad_()
        wanted = (layer(plain).tanh() * other).sum()
        wanted.backward(inputs=[plain, other])
        gradients = ad.autograd.grad((layer(plain).tanh() * other).sum(), list(layer.parameters()))
        for found, expected in (
            (loss, wanted), (x.grad, plain.grad), (w.grad, other.grad),
            *zip([p.grad for p in layer.parameters()], gradients, strict=True),
        ):  # fmt: skip
            np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients_refresh_themselves():
    graph = ad.Graph()
    u = graph.input(ad.tensor([1.0, 2.0, 3.0]), requires_grad=True)
    with graph:
        y = ad.compile(lambda v: (v**3).sum())(u)
    (g,) = ad.autograd.grad(y, u, create_graph=True)
    (h,) = ad.autograd.grad(g.sum(), u)
    for values in ([1.0, 2.0, 3.0], [2.0, -1.0, 0.0]):
        u.set(values)
        assert g.tolist() == [3 * v * v for v in values]
        assert h.tolist() == [6 * v for v in values]


def test_arguments_and_results_in_any_form():
    graph = ad.Graph()
    u = graph.input([1.0, 2.0])

    @ad.compile
    def function(parts, *, scale):
        return {"same": parts["u"], "n": 3, "more": [parts["u"] * scale, (ad.zeros(1), None)]}

    found = function({"u": u, "rest": (1, "text")}, scale=2.0)
    assert found["same"] is u and found["n"] == 3 and found["more"][1][1] is None
    u.set([3.0, 4.0])
    assert found["more"][0].tolist() == [6.0, 8.0] and found["more"][1][0].tolist() == [0.0]
    assert ad.compile(lambda x: None)(u) is None


def test_inputs_of_other_shapes():
    layer, graph = nn.Linear(3, 2), ad.Graph()
    x = graph.input(ad.randn(4, 3))
    factor = [2.0]
    with graph:
        y = ad.compile(lambda v: layer(v) * factor[0])(x)
        loss = y.square().sum()
    for rows in (4, 7, 1, 0, 4):
        value = ad.randn(rows, 3)
        x.set(value)
        layer.zero_grad()
        loss.backward()
        wanted = ad.autograd.grad((layer(value) * 2).square().sum(), layer.weight)[0]
        ad.testing.assert_close(layer.weight.grad, wanted)
        assert y.shape == (rows, 2)
    factor[0] = 3.0
    with pytest.raises(ShapeError, match="what it reads was changed meanwhile"):
        x.set(ad.randn(5, 3))
    with pytest.raises(ShapeError, match="at node"):
        x.set(ad.randn(4, 5))
    assert y.shape == (4, 2)


def test_flow_recorded_for_other_shapes_says_so():
    graph = ad.Graph()
    x = graph.input(ad.ones(3))
    with graph:
        y = ad.cond(x.sum() > 0, lambda v: v * 2, lambda v: v.exp(), (x,))
    with pytest.raises(ShapeError, match=r"cond: recorded for \(3,\).*given \(4,\).*unchanged"):
        x.set(ad.ones(4))
    assert y.tolist() == [2.0] * 3


def test_copies_of_a_graph_have_their_own_tensors():
    layer, graph = nn.Linear(2, 1), ad.Graph()
    x = graph.input(ad.ones(1, 2))
    with graph:
        y = ad.compile(layer)(x)
    before = y.item()
    copy = graph.copy(share=False)
    with ad.no_grad():
        layer.weight.mul_(0)
        layer.bias.zero_()
    assert y.item() == 0
    assert copy.twin(y).item() == before


def test_lazily_it_is_computed_when_it_is_read():
    layer = nn.Linear(3, 2)
    compiled = ad.compile(layer)
    x = ad.randn(4, 3)
    with ad.lazy():
        y = compiled(x)
        unused = compiled(x * 2)
        assert y._data.array is None
    y.sum().backward()
    assert unused._data.array is None
    wanted = ad.autograd.grad(layer(x).sum(), layer.weight)[0]
    ad.testing.assert_close(layer.weight.grad, wanted)
    with ad.lazy(), ad.no_grad():
        assert not compiled(x).requires_grad
    layer.requires_grad_(False)
    with ad.lazy():
        assert not compiled(x).requires_grad


history = []


def keeps(x):
    history.append(1)
    return x * 2


def writes(x):
    return x.mul_(2)


def reads(x):
    return x if x.sum() > 0 else -x


def prints(x):
    print(x.shape)
    return x * 1


norm = nn.BatchNorm1d(3)
optimizer = ad.optim.SGD(norm.parameters(), lr=0.1)


def trains(x):
    optimizer.zero_grad()
    loss = norm(x).square().sum()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("function", [keeps, writes, reads, prints, norm, trains])
@pytest.mark.parametrize("where", [ad.lazy, ad.Graph])
def test_what_does_more_than_compute_is_refused(function, where):
    name = getattr(function, "__name__", "BatchNorm1d")
    compiled, before = ad.compile(function), [p.tolist() for p in norm.parameters()]
    with where(), ad.no_grad(), pytest.raises(RecordingError) as caught:
        compiled(ad.ones(2, 3))
    text = str(caught.value)
    assert text.startswith(f"compile: {name} is called where a graph, or lazy(), records")
    assert f"call {name}.function" in text
    assert "test_call_ops.py" in text or function is norm
    assert isinstance(caught.value, GraphError) and isinstance(caught.value, Unsupported)
    assert before == [p.tolist() for p in norm.parameters()] and history == []


def test_with_fallback_its_operations_are_recorded_one_by_one():
    compiled = ad.compile(writes, fallback="eager")
    with ad.lazy():
        with pytest.warns(UserWarning, match="so it is, from now on"):
            assert compiled(ad.ones(2)).tolist() == [2.0, 2.0]
        assert compiled(ad.ones(2)).tolist() == [2.0, 2.0]
    assert compiled(ad.ones(2)).tolist() == [2.0, 2.0]
    assert len(compiled.programs) == 1  # elsewhere it is a program


def test_a_node_that_is_read_outside_of_its_graph_is_refused():
    graph = ad.Graph()
    w = graph.input(ad.ones(3), "w")
    compiled = ad.compile(lambda x: x * w)
    with pytest.raises(Unsupported, match="reads a node of a graph, 'w'; give it as an argument"):
        compiled(ad.ones(3))
    with graph:
        y = compiled(ad.ones(3))
    w.set(ad.full((3,), 4.0))
    assert y.tolist() == [4.0] * 3
    with pytest.raises(Unsupported, match="give its snapshot"):
        compiled.explain(w)


def test_errors_of_values_come_when_it_is_computed():
    graph = ad.Graph()
    index = graph.input(ad.tensor([0, 1]))
    with graph:
        y = ad.compile(lambda n: ad.arange(3.0)[n] * 2)(index)
    assert y.tolist() == [0.0, 2.0]
    index.set([0, 9])
    with pytest.raises(IndexError):
        y.tolist()
    index.set([2, 2])
    assert y.tolist() == [4.0, 4.0]


def test_threads_share_one_body():
    compiled = ad.compile(tower)
    values = [ad.full((3,), 0.1 * n) for n in range(8)]
    found = [None] * len(values)

    def run(n):
        graph = ad.Graph()
        x = graph.input(values[n])
        y = compiled(x)
        for _ in range(10):
            x.set(values[0])
            y.tolist()
            x.set(values[n])
            found[n] = y.tolist()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(values))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, y in zip(values, found, strict=True):
        np.testing.assert_allclose(y, tower(x).tolist(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [ad.float64, ad.bfloat16, ad.complex64])
def test_other_dtypes_and_autocast(dtype):
    graph = ad.Graph()
    x = graph.input(ad.ones(2, 2, dtype=dtype), requires_grad=True)
    with graph:
        y = ad.compile(lambda v: (v @ v).exp())(x)
    assert y.dtype == dtype
    (g,) = ad.autograd.grad(y.abs().sum(), x)
    assert g.dtype == dtype
    with graph, ad.autocast("cpu", dtype=ad.bfloat16):
        assert ad.compile(lambda v: v @ v)(ad.ones(2, 2)).dtype == ad.bfloat16
