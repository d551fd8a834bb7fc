"""The device "meta": shapes and dtypes of everything, elements of nothing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.core.op import REGISTRY
from adjoint.runtime.dispatch import apply
from tests.sweep import few_or_many, spread


def on(device, x):
    return ad.tensor(x).to(device) if isinstance(x, (np.ndarray, np.generic)) else x


OPS = [kind for kind in REGISTRY.values() if kind.__name__ != "Transfer"]


@few_or_many("count", 3, 1000)
@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_ops_give_what_they_give_on_the_cpu(kind, count):
    for sample in spread(kind.samples(), count):
        inputs = [on("cpu", x) for x in sample.inputs]
        if not any(isinstance(x, ad.Tensor) for x in inputs):
            continue
        with ad.no_grad():
            found = apply(sample.op, *(on("meta", x) for x in sample.inputs))
            wanted = apply(sample.op, *inputs)
        for y, other in zip(
            *(z if type(z) is tuple else (z,) for z in (found, wanted)), strict=True
        ):
            assert (y.shape, y.dtype) == (other.shape, other.dtype), sample.label
            assert y.is_meta


MODELS = {
    "images": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5),
        nn.Flatten(), nn.Linear(72, 4), nn.LayerNorm(4), nn.GELU(),
    ),
    "words": lambda: nn.Sequential(
        nn.Embedding(10, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        nn.Flatten(), nn.Linear(40, 4),
    ),
    "steps": lambda: nn.Sequential(nn.LSTM(3, 4, batch_first=True)),
}  # fmt: skip
DATA = {
    "images": lambda: ad.rand(2, 3, 8, 8), "words": lambda: ad.randint(0, 10, (2, 5)),
    "steps": lambda: ad.rand(2, 5, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step(name):
    with ad.device("meta"):
        model, x = MODELS[name](), DATA[name]()
    assert all(p.is_meta for p in (*model.parameters(), *model.buffers()))
    found = model(x)
    y = found[0] if isinstance(found, tuple) else found
    optimizer = ad.optim.AdamW(model.parameters(), fused=False)
    F.cross_entropy(y.flatten(1), ad.zeros(2, dtype=ad.int64, device="meta")).backward()
    optimizer.step()
    there = MODELS[name]()
    wanted = there(DATA[name]())
    assert y.shape == (wanted[0] if isinstance(wanted, tuple) else wanted).shape
    for p, other in zip(model.parameters(), there.parameters(), strict=True):
        assert p.is_meta and p.shape == other.shape and p.dtype == other.dtype
        assert p.grad.is_meta and p.grad.shape == p.shape
    assert all(s.is_meta for s in optimizer.state[p].values() if s.ndim)


def test_nothing_is_drawn_there():
    before = ad.get_rng_state().tolist()
    nn.Linear(3, 4, device="meta")
    F.dropout(ad.rand(3, device="meta")).normal_()
    assert ad.get_rng_state().tolist() == before


@pytest.mark.parametrize("read", [
    lambda x: x.item(), lambda x: x.tolist(), lambda x: x.numpy(), lambda x: x.cpu(), bool,
    lambda x: np.asarray(x), lambda x: ad.nonzero(x), lambda x: x[x > 0], pickle.dumps,
    lambda x: ad.ones(1).copy_(x), lambda x: ad.save({"x": x}, "x.safetensors"), float,
    lambda x: ad.unique(x),
])  # fmt: skip
def test_nothing_is_read_there(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotImplementedError, match="no data"):
        read(ad.ones(1, device="meta"))
    assert not list(tmp_path.iterdir())


def test_shapes_that_do_not_fit_and_other_devices_are_errors():
    x = ad.ones(2, 3, device="meta")
    with pytest.raises(RuntimeError, match=r"shape|size"):
        x + ad.ones(4, device="meta")
    with pytest.raises(RuntimeError, match="cpu and meta"):
        x + ad.ones(2, 3)
    with pytest.raises(RuntimeError, match=r"shape|size|broadcast"):
        x.copy_(ad.ones(4))
    assert (x * ad.tensor(2.0)).is_meta  # a number


def test_writes_change_nothing_but_the_version():
    x = ad.zeros(2, 3, device="meta")
    row = x[0]
    x.add_(1).copy_(ad.ones(3))
    x[1] = 5.0
    row.zero_()
    assert row._base is x and x._version == row._version == 4
    assert x.view(6).shape == (6,) and x.data_ptr() == 0


def test_memory_by_to_empty_and_by_assigned_tensors():
    with ad.device("meta"):
        model = nn.Linear(2, 3)
    assert copy.deepcopy(model).weight.is_meta
    model.to_empty(device="cpu")
    assert type(model.weight) is nn.Parameter and model.weight.device.type == "cpu"
    saved = nn.Linear(2, 3).state_dict()
    other = nn.Linear(2, 3, device="meta")
    other.load_state_dict(saved, assign=True)
    assert other(ad.ones(1, 2)).equal(F.linear(ad.ones(1, 2), saved["weight"], saved["bias"]))
    with pytest.warns(UserWarning, match="meta"):
        nn.Linear(2, 3, device="meta").load_state_dict(saved)


def test_it_prints_what_there_is():
    assert repr(ad.zeros(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    layer = nn.Linear(1, 1, device="meta", dtype=ad.float64)
    assert repr(layer.weight) == (
        "Parameter containing:\ntensor(..., device='meta', size=(1, 1), dtype=adjoint.float64,\n"
        "       requires_grad=True)"
    )


def test_a_model_that_would_not_fit():
    with ad.device("meta"):
        model = nn.Sequential(*(nn.Linear(1 << 18, 1 << 18) for _ in range(64)))
    assert model(ad.empty(1 << 30, 1 << 18, device="meta")).shape == (1 << 30, 1 << 18)


def test_draws_of_complex_numbers_and_compiled_functions():
    for draw in (ad.rand, ad.randn):
        x = draw(2, 3, dtype=ad.complex64, device="meta")
        assert x.is_meta and x.shape == (2, 3) and x.dtype is ad.complex64
    layer = nn.Linear(3, 2, device="meta")
    for function in (lambda x: F.dropout(x * 2), lambda x: layer(x).exp()):
        with pytest.raises(NotImplementedError, match="nothing to compile"):
            ad.compile(function)(ad.zeros(2, 3, device="meta"))
