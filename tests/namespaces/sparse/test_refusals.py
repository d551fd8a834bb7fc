"""What is given a sparse tensor computes the right thing or says that it does not."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import AdjointError, LayoutError
from adjoint.core.op import REGISTRY
from adjoint.ops.create.conversion import Sparse
from adjoint.ops.sparse.rules import RULES
from adjoint.runtime.dispatch import EXECUTORS, apply
from adjoint.runtime.public import METHODS

from .pairs import dense_pair, pair

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def _samples() -> Iterator[Any]:
    """Of each op three samples with a tensor of a size that is worth it."""
    for name, cls in sorted(REGISTRY.items()):
        count = 0
        for sample in cls.samples():
            arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
            kind = all(x.dtype.kind in "fiu" and 0 < x.size <= 200 for x in arrays)
            if arrays and arrays[0].ndim and kind and not cls.drawn:
                yield name, sample
                count += 1
                if count == 3:
                    break


def _full(y: Any) -> Any:
    if isinstance(y, tuple):
        return [_full(each) for each in y]
    return y.to_dense().numpy()


def test_every_op() -> None:
    """With each of its inputs sparse: refused, or what it gives for the dense one."""
    computed: set[type] = set()
    checked = 0
    for name, sample in _samples():
        dense = [ad.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]
        for i, x in enumerate(dense):
            if not isinstance(x, ad.Tensor) or not x.ndim:
                continue
            given = list(dense)
            given[i] = x.to_sparse()
            try:
                y = apply(sample.op, *given)
            except LayoutError as error:
                assert "to_dense()" in str(error), (name, error)
                continue
            except AdjointError as error:
                assert type(sample.op) in RULES, (name, error)
                continue
            given[i] = given[i].to_dense()  # without -0.0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = _full(apply(sample.op, *given))
            np.testing.assert_allclose(_full(y), expected, rtol=1e-6, err_msg=f"{name} {i}")
            computed.add(type(sample.op))
            checked += 1
    assert computed <= set(RULES) and len(computed) > 30 and checked > 60


def test_every_method_without_arguments() -> None:
    d = ad.tensor([[0.0, 0.25, 0.0], [0.5, 0.0, 0.75], [0.0, 0.0, 0.125]])
    apart = ("random", "normal", "bernoulli", "multinomial", "poisson", "dropout", "geometric",
             "cauchy", "exponential", "uniform", "storage", "resize")  # fmt: skip
    computed = 0
    for name, method in METHODS.items():
        if any(word in name for word in apart):
            continue
        for given in (d.to_sparse(), d.to_sparse_csr()):
            try:
                y = method(given)
            except (LayoutError, TypeError):
                assert given.to_dense().tolist() == d.tolist(), name
                continue
            except AdjointError:
                continue
            if isinstance(y, ad.Tensor) and name not in ("new_empty", "new"):
                assert np.allclose(_full(y), _full(method(d.clone())), equal_nan=True), name
                computed += 1
    assert computed > 100


def test_errors_are_those_of_pytorch() -> None:
    a, b = pair("ordered")
    c, d = dense_pair(2, 3)
    cases: list[tuple[Callable[[Any, Any], Any], type[BaseException]]] = [
        (lambda x, full: x.numpy(), TypeError),
        (lambda x, full: x.exp(), NotImplementedError),
        (lambda x, full: x == full, NotImplementedError),
        (lambda x, full: x.sigmoid(), NotImplementedError),
        (lambda x, full: x / full, RuntimeError),
        (lambda x, full: x + 1, RuntimeError),
        (lambda x, full: x.reshape(3, 2), RuntimeError),
        (lambda x, full: x.tolist(), RuntimeError),
        (lambda x, full: x.item(), RuntimeError),
        (lambda x, full: x.values(), RuntimeError),
        (lambda x, full: x.crow_indices(), RuntimeError),
        (lambda x, full: full.indices(), RuntimeError),
        (lambda x, full: full.coalesce(), RuntimeError),
        (lambda x, full: x.mean(), NotImplementedError),
        (lambda x, full: x.view(-1), NotImplementedError),
        (lambda x, full: x.untyped_storage(), NotImplementedError),
        (lambda x, full: x.data_ptr(), RuntimeError),
        (lambda x, full: full.copy_(x), RuntimeError),
        (lambda x, full: x**0, RuntimeError),
        (lambda x, full: x + x[:, 0], RuntimeError),
        (lambda x, full: x @ x, RuntimeError),
    ]
    for number, (function, kind) in enumerate(cases):
        with pytest.raises(kind):
            function(b, d)
        with pytest.raises(kind):
            function(a, c)
            pytest.fail(f"case {number}")
    assert not a.is_contiguous() and not b.is_contiguous()


def test_reading_is_refused_by_name() -> None:
    a, _ = pair("ordered")
    for read, name in (
        (lambda: np.asarray(a), "numpy"),
        (lambda: np.add(np.ones((2, 3)), a), "numpy"),
        (lambda: float(a), "__float__"),
        (lambda: a.stride(), "stride"),
        (lambda: np.from_dlpack(a), "__dlpack__"),
        (lambda: ad.zeros_like(a), "zeros_like"),
        (lambda: ad.tensor(a), "tensor"),
    ):
        with pytest.raises(LayoutError, match=r"to_dense\(\)") as caught:
            read()
        assert name in str(caught.value) or name == "numpy"


def test_other_layouts_are_refused_by_name() -> None:
    d = ad.ones(2, 2)
    for make in (
        lambda: ad.sparse_bsr_tensor([0, 1], [0], [1.0]),
        lambda: ad.sparse_bsc_tensor([0, 1], [0], [1.0]),
        lambda: ad.sparse_compressed_tensor([0, 1], [0], [1.0], layout=ad.sparse_bsr),
        lambda: d.to_sparse_bsr((1, 1)),
        lambda: d.to_sparse(layout=ad.sparse_bsc),
    ):
        with pytest.raises(LayoutError, match="sparse_csr"):
            make()
    for make in (ad.zeros, ad.ones, ad.empty, ad.rand, ad.randn, ad.eye, ad.arange):
        with pytest.raises(LayoutError, match="sparse_coo"):
            make(2, layout=ad.sparse_coo)
        assert make(2, layout=ad.strided).layout is ad.strided
    for name in ("zeros_like", "ones_like", "empty_like", "rand_like"):
        with pytest.raises(LayoutError, match=name):
            getattr(ad, name)(d, layout=ad.sparse_coo)


MODES: dict[str, Callable[[Callable[..., Any], Any, Any], Any]] = {}


def _lazily(function: Any, x: Any, d: Any) -> Any:
    with ad.lazy():
        return function(x, d)


def _in_graph(function: Any, x: Any, d: Any) -> Any:
    with ad.Graph():
        return function(x, d)


MODES["lazy"] = _lazily
MODES["Graph"] = _in_graph
MODES["compile"] = lambda function, x, d: ad.compile(function)(x, d)
MODES["pieces"] = lambda function, x, d: ad.compile(function, mode="pieces")(x, d)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_where_operations_are_recorded(mode: str) -> None:
    x, d = pair("ordered")[0], dense_pair(3, 4)[0]
    for function in (
        lambda x, d: x @ d,
        lambda x, d: x * 2,
        lambda x, d: x.to_dense(),
        lambda x, d: (d[:, :3] * 2).to_sparse(),
        lambda x, d: d[:2, :3] + x,
        lambda x, d: ad.relu(x),
        lambda x, d: ad.sparse_coo_tensor([[0]], d[0, :1], (2,)),
        lambda x, d: ad.nn.functional.embedding(ad.tensor([0, 1]), d, sparse=True),
        lambda x, d: x.add_(x),
    ):
        with pytest.raises(LayoutError, match=r"dense|sparse"):
            MODES[mode](function, x, d)
    assert x.to_dense().tolist() == pair("ordered")[1].to_dense().tolist()


def test_beside_recorded_values() -> None:
    x, d = pair("ordered")[0], dense_pair(3, 4)[0]
    with ad.lazy():
        later = d * 2
    assert (x @ later).allclose(x.to_dense() @ (d * 2))
    graph = ad.Graph()
    with graph:
        cell = d * 2
    for function in (lambda: x @ cell, lambda: cell[:2, :3] + x, lambda: cell.to_sparse()):
        with pytest.raises(LayoutError):
            function()


def test_inside_of_transforms() -> None:
    x, d = pair("ordered")[0], dense_pair(3, 4)[0]
    full = x.to_dense()
    for run in (
        lambda s: ad.func.grad(lambda v: (s @ v).sum())(d),
        lambda s: ad.func.jvp(lambda v: s @ v, (d,), (d,))[1],
        lambda s: ad.func.vjp(lambda v: s @ v, d)[1](ad.ones(2, 4, dtype=ad.float64))[0],
        lambda s: ad.vmap(lambda v: s @ v)(d.t()),
        lambda s: ad.vmap(lambda v: (s @ d).sum() + v)(d[0]),
        lambda s: ad.vmap(lambda r: r * 2)(s),
        lambda s: ad.vmap(lambda r: r.exp())(s),
    ):
        try:
            found = run(x)
        except LayoutError:
            continue
        assert found.to_dense().allclose(run(full))


def test_profiles_show_them() -> None:
    x, d = pair("ordered")[0], dense_pair(3, 4)[0]
    with ad.profiler.profile() as profile:
        ad.relu(x @ d)
        x.sin()
    assert {"mat_mul", "sin"} <= {event.key for event in profile.key_averages()}


def test_nothing_is_imported_before_the_first_one() -> None:
    code = """
import sys, adjoint as ad
before = [m for m in sys.modules if m.startswith(("adjoint.sparse", "adjoint.ops.sparse", "scipy"))]
assert not before, before
x = ad.ones(2, requires_grad=True)
(x * 2).sum().backward()
ad.optim.SGD([x]).step()
assert x.layout is ad.strided and not x.is_sparse and x.is_contiguous()
assert "adjoint.ops.sparse" not in sys.modules
y = x.detach().to_sparse()
assert "adjoint.ops.sparse.rules" in sys.modules or y.is_sparse
assert not any(m.startswith("scipy") for m in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dense_calls_meet_no_test_of_it(monkeypatch: Any) -> None:
    """A dense call asks nothing of sparse tensors: those have their executor by their type."""
    asked: list[str] = []
    monkeypatch.setitem(EXECUTORS, Sparse, lambda op, inputs: asked.append(op.name))
    x = ad.ones(4, 4)
    for _ in range(3):
        x = (x @ x).relu() + x * 2 - x.sum(0)
        x = x / x.norm()
    assert not asked
    assert (x.to_sparse() * 2) is None and asked == ["mul"]


def test_under_the_alias() -> None:
    code = """
import adjoint
adjoint.as_torch()
import torch, torch.sparse
from torch.sparse import mm
x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]), (2, 2))
assert x.layout is torch.sparse_coo and "layout=torch.sparse_coo" in repr(x)
assert mm(x, torch.eye(2)).tolist() == [[0, 1], [2, 0]]
assert torch.optim.SparseAdam.__module__.startswith("torch")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_methods_that_come_later_are_all_there() -> None:
    code = """
import adjoint as ad
from adjoint.tensor import _OfSparse
later = {name for name, value in vars(ad.Tensor).items() if isinstance(value, _OfSparse)}
from adjoint.ops.sparse.deprecated_sparse import METHODS
assert later == set(METHODS), later ^ set(METHODS)
assert ad.Tensor.to_sparse is METHODS["to_sparse"] and ad.nn.Parameter.values is METHODS["values"]
assert not any(isinstance(value, _OfSparse) for value in vars(ad.Tensor).values())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_products_without_scipy_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    x = ad.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="pip install scipy"):
        x @ ad.ones(2, 2)
    assert (x @ x).to_dense().equal(ad.eye(2))
