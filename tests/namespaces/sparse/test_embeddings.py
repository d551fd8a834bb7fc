"""Embeddings with sparse gradients, and what optimizers do with these, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adjoint as ad

from .pairs import assert_same, pair

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
PLACES = [[0, 3, 1], [3, 0, 5]]


def weights(rows: int = 6, columns: int = 2) -> Any:
    """A weight, and PyTorch's."""
    array = np.random.default_rng(5).standard_normal((rows, columns))
    return ad.nn.Parameter(ad.tensor(array)), torch.nn.Parameter(torch.tensor(array))


def modules(kind: str, **options: Any) -> Any:
    """An embedding with sparse gradients, and PyTorch's, with equal weights."""
    a, b = weights()
    made = []
    for lib, weight in ((ad, a), (torch, b)):
        module = getattr(lib.nn, kind)(6, 2, sparse=True, **options)
        module.weight = weight
        made.append(module)
    return made


@pytest.mark.parametrize("padding", [None, 3, -1])
def test_embedding(padding: int | None) -> None:
    a, b = modules("Embedding", padding_idx=padding)
    for _ in range(2):  # accumulates
        x, y = a(ad.tensor(PLACES)), b(torch.tensor(PLACES))
        assert_same(x, y)
        (x * x).sum().backward()
        (y * y).sum().backward()
        assert a.weight.grad.is_sparse and not a.weight.grad.is_coalesced()
        assert a.weight.grad._indices().tolist() == b.weight.grad._indices().tolist()
        assert_same(a.weight.grad, b.weight.grad)
    x, y = a(ad.tensor([1, 1])), b(torch.tensor([1, 1]))
    x.sum().backward()
    y.sum().backward()
    assert_same(a.weight.grad, b.weight.grad)
    a.weight.sum().backward()
    b.weight.sum().backward()
    assert_same(a.weight.grad, b.weight.grad)
    a.weight.grad = b.weight.grad = None
    a(ad.zeros(0, dtype=ad.int64)).sum().backward()
    b(torch.zeros(0, dtype=torch.int64)).sum().backward()
    assert_same(a.weight.grad, b.weight.grad)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag(mode: str) -> None:
    a, b = modules("EmbeddingBag", mode=mode)
    for given in ((PLACES,), ([0, 3, 3, 1], [0, 3, 3])):
        a(*map(ad.tensor, given)).pow(2).sum().backward()
        b(*map(torch.tensor, given)).pow(2).sum().backward()
        assert_same(a.weight.grad, b.weight.grad)
    for lib in (ad, torch):
        with pytest.raises(ValueError, match="max mode does not support sparse weights"):
            lib.nn.EmbeddingBag(6, 2, mode="max", sparse=True)(lib.tensor(PLACES))


def test_second_order_and_functions() -> None:
    w = ad.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    y = ad.nn.functional.embedding(ad.tensor([2, 0, 2]), w, sparse=True)
    (g,) = ad.autograd.grad((y**3).sum(), w, create_graph=True)
    assert g.is_sparse
    (h,) = ad.autograd.grad(g.to_dense().sum(), w)
    expected = 6 * w.detach() * ad.tensor([[1.0], [0.0], [2.0]])
    assert h.to_dense().allclose(expected.double())
    with ad.no_grad():
        assert not ad.nn.functional.embedding(ad.tensor([1]), w, sparse=True).requires_grad
    twice = ad.nn.functional.embedding(ad.tensor([1, 1]), w * 2, sparse=True)
    w.grad = None
    twice.sum().backward()
    assert w.grad.to_dense().tolist() == [[0, 0], [4, 4], [0, 0]]
    places = ad.tensor([0, 1])
    y = ad.nn.functional.embedding(places, w, sparse=True)
    places.fill_(2)
    w.grad = None
    y.sum().backward()
    assert w.grad.to_dense().tolist() == [[1, 1], [1, 1], [0, 0]]


OPTIMIZERS: list[Any] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.1, "betas": (0.5, 0.75), "maximize": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name: str, options: Any) -> None:
    a, b = modules("Embedding")
    one, two = (
        getattr(ad.optim, name)([a.weight], **options),
        getattr(torch.optim, name)([b.weight], **options),
    )
    for places in (PLACES, [[1, 1, 1]], [[5, 0, 2]], PLACES):
        one.zero_grad()
        two.zero_grad()
        a(ad.tensor(places)).pow(2).sum().backward()
        b(torch.tensor(places)).pow(2).sum().backward()
        one.step()
        two.step()
        np.testing.assert_allclose(a.weight.detach().numpy(), b.weight.detach().numpy(), rtol=1e-9)
    again = getattr(ad.optim, name)([a.weight], **options)
    again.load_state_dict(one.state_dict())
    a(ad.tensor(PLACES)).sum().backward()
    again.step()


def test_a_step_writes_as_much_as_the_gradient_has(monkeypatch: Any) -> None:
    p = ad.nn.Parameter(ad.ones(5, 2))
    memory = p._data
    for optimizer in (ad.optim.SGD([p]), ad.optim.Adagrad([p]), ad.optim.SparseAdam([p])):
        p.grad = ad.sparse_coo_tensor([[3]], [[1.0, 1.0]], (5, 2))
        monkeypatch.setattr(type(p), "copy_", None)
        optimizer.step()
        monkeypatch.undo()
        assert p._data is memory and p[0].tolist() == [1, 1] and p[3, 0] < 1
    t = ad.nn.Parameter(ad.ones(2, 3).t())  # not row-major, and with all dimensions sparse
    t.grad = ad.sparse_coo_tensor([[2, 0, 2], [1, 0, 1]], [1.0, 1.0, 1.0], (3, 2))
    ad.optim.SGD([t], lr=0.5).step()
    assert t.tolist() == [[0.5, 1], [1, 1], [1, 0]]


def test_optimizers_that_refuse() -> None:
    for name, options in (
        ("Adam", {}), ("AdamW", {}), ("RMSprop", {}), ("Adadelta", {}), ("Adamax", {}),
        ("NAdam", {}), ("RAdam", {}), ("ASGD", {}), ("Rprop", {}), ("Adafactor", {}), ("Muon", {}),
        ("SGD", {"weight_decay": 0.1}), ("Adagrad", {"weight_decay": 0.1}),
    ):  # fmt: skip
        for lib, (x, g) in ((ad, (weights()[0], pair("hybrid")[0])),
                            (torch, (weights()[1], pair("hybrid")[1]))):  # fmt: skip
            dense, sparse = lib.nn.Parameter(x[:3].detach()), lib.nn.Parameter(x[3:].detach())
            dense.grad, sparse.grad = lib.ones_like(dense), g
            optimizer = getattr(lib.optim, name)([dense, sparse], **options)
            before = dense.detach().clone()
            with pytest.raises(RuntimeError, match=r"sparse gradients|add\(sparse, dense\)"):
                optimizer.step()
            if lib is ad:  # PyTorch may have changed the first one
                assert dense.tolist() == before.tolist()
    for lib in (ad, torch):
        p = lib.nn.Parameter(lib.ones(2))
        p.grad = lib.ones(2)
        with pytest.raises(RuntimeError, match="does not support dense gradients"):
            lib.optim.SparseAdam([p]).step()
        with pytest.raises(ValueError, match="requires dense parameter tensors"):
            lib.optim.SparseAdam([lib.eye(2).to_sparse()])
        with pytest.raises(ValueError, match="beta parameter at index 0"):
            lib.optim.SparseAdam([p], betas=(1.0, 0.0))


def test_lbfgs_takes_them() -> None:
    found = []
    for lib, g in zip((ad, torch), pair("hybrid"), strict=True):
        p = lib.nn.Parameter(lib.ones(3, 2, dtype=lib.float64))
        p.grad = g
        lib.optim.LBFGS([p], max_iter=1).step(lambda lib=lib: lib.tensor(1.0))
        found.append(p.detach().numpy())
    np.testing.assert_allclose(*found)


def test_scaled_losses() -> None:
    a, b = modules("Embedding")
    for lib, module in ((ad, a), (torch, b)):
        module.float()
        optimizer = lib.optim.SparseAdam(module.parameters(), lr=0.1)
        scaler = lib.amp.GradScaler("cpu", init_scale=8.0)
        for factor in (1.0, float("inf"), 2.0):
            optimizer.zero_grad()
            loss = module(lib.tensor(PLACES)).pow(2).sum() * factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 4.0
    found, expected = a.weight.detach().numpy(), b.weight.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_clipping() -> None:
    """The norm is that of the sum of entries (PyTorch has none for sparse gradients)."""
    p = ad.nn.Parameter(ad.zeros(2, 3, dtype=ad.float64))
    p.grad = pair("twice")[0]
    full = p.grad.to_dense()
    total = ad.nn.utils.clip_grad_norm_([p], 1.0)
    assert total.item() == pytest.approx(full.norm().item())
    assert p.grad.is_sparse and p.grad.to_dense().norm().item() == pytest.approx(1.0, abs=1e-5)
    for lib, g in zip((ad, torch), pair("twice"), strict=True):
        q = lib.nn.Parameter(lib.zeros(2, 3, dtype=lib.float64))
        q.grad = g
        with pytest.raises(NotImplementedError):
            lib.nn.utils.clip_grad_value_([q], 1.0)
    ad.optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad.is_sparse and p.grad._nnz() == 0
