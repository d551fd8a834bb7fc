"""Printing, character for character as PyTorch does, and the `slices` profile."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import dtype as dt

torch = pytest.importorskip("torch")

NAMES = [d.name for d in dt.ALL]
OPTIONS = [
    {},
    {"precision": 2},
    {"precision": 0},
    {"threshold": 10, "edgeitems": 2},
    {"edgeitems": 0, "threshold": 5},
    {"linewidth": 40},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full"},
]


@pytest.fixture(autouse=True)
def _defaults(monkeypatch):
    # The names' lengths count where lines are broken.
    monkeypatch.setattr(dt.dtype, "__repr__", lambda self: f"torch.{self.name}")
    yield
    ad.set_printoptions(profile="default")
    torch.set_printoptions(profile="default")


def pair(values, name="float32"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex to real
        t = torch.tensor(np.array(values)).to(getattr(torch, name))
    raw = t.float().numpy() if name == "bfloat16" else t.numpy()
    return ad.tensor(raw).to(dt.by_name(name)), t


def random_values(rng, name):
    rank = rng.integers(0, 5)
    longest = 8 if rank > 1 else 1500 if rng.random() < 0.2 else 12
    shape = rng.integers(0 if rng.random() < 0.15 else 1, longest, rank)
    values = np.asarray(rng.standard_normal(shape))
    if rng.random() < 0.5:
        values = values * 10.0 ** rng.integers(-6, 10)
    if rng.random() < 0.3:
        values = np.round(values)
    values = np.asarray(values)
    if rng.random() < 0.3 and values.size:
        values.reshape(-1)[rng.integers(values.size)] = rng.choice(
            [np.nan, np.inf, -np.inf, 0.0, -0.0]
        )
    if dt.by_name(name).category < 2:
        return np.nan_to_num(np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)
    return values + 1j * rng.standard_normal(shape) if "complex" in name else values


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_random_tensors_print_as_in_pytorch(name, options):
    rng = np.random.default_rng([len(str(options)), *map(ord, name)])
    ad.set_printoptions(**options)
    torch.set_printoptions(**options)
    for _ in range(8):
        x, t = pair(random_values(rng, name), name)
        if dt.by_name(name).category >= 2 and rng.random() < 0.3:
            x.requires_grad_()
            t.requires_grad_()
        assert repr(x) == repr(t)


@pytest.mark.parametrize(
    "values",
    [
        0.0, 1.5, -0.0, np.nan, [np.nan, 1.0], [np.inf, -np.inf], [np.nan, 1.5, -np.inf],
        [1e-5, 1.0], [1e8, 1.0], [1.0001e8, 1.5], [999.5, 1.0], [1000.5, 1.0], [1e-4, 0.05],
        [0.1, 0.01], [1e38, 1.0], [5e-324, 1.0], [], [[]], [[[]], [[]]], [123456789.0],
        [[1.0, -1.0], [100.0, 0.5]], [[[1.0]]], [1e300], [0.99999], [9.99995],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_awkward_values(values, name):
    x, t = pair(np.array(values, np.float64), name)
    assert repr(x) == repr(t)


@pytest.mark.parametrize("size", [1000, 1001])
def test_summary_begins_above_the_threshold(size):
    x, t = pair(np.arange(size), "int64")
    assert repr(x) == repr(t)
    assert ("..." in repr(x)) == (size > 1000)


@pytest.mark.parametrize(
    "shape", [(2000,), (7, 200), (200, 7), (12, 12, 12), (6, 6, 6, 6), (3, 400)]
)
def test_summaries(shape):
    x, t = pair(np.arange(np.prod(shape)).reshape(shape) / 7)
    assert repr(x) == repr(t)
    assert str(x) == str(t)


def test_history_is_shown():
    x, t = pair([1.0, 2.0])
    x.requires_grad_()
    t.requires_grad_()
    assert repr(x) == repr(t) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == repr(t * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr((x * 2).detach()) == "tensor([2., 4.])"


def test_long_suffixes_go_to_a_new_line():
    values = [1.0] * 14
    x, t = pair(values, "float64")
    x.requires_grad_()
    t.requires_grad_()
    assert repr(x) == repr(t)
    assert repr(x * 3) == repr(t * 3)


def test_views_print_what_they_show():
    x, t = pair(np.arange(12.0).reshape(3, 4))
    assert repr(x.permute(1, 0)) == repr(t.permute(1, 0))
    assert repr(x[::2, 1:]) == repr(t[::2, 1:])
    assert repr(x[0].expand(2, 4)) == repr(t[0].expand(2, 4))


def test_default_dtype_needs_no_suffix():
    ad.set_default_dtype(ad.float64)
    torch.set_default_dtype(torch.float64)
    try:
        for name in ("float32", "float64", "complex64", "complex128"):
            x, t = pair([1.0], name)
            assert repr(x) == repr(t)
    finally:
        ad.set_default_dtype(ad.float32)
        torch.set_default_dtype(torch.float32)


def test_a_subclass_prints_its_name():
    class Labelled(ad.Tensor):
        pass

    assert repr(Labelled([1.0])) == "Labelled([1.])"


def test_format_of_a_0d_tensor_is_that_of_its_number():
    x, t = pair(3.14159)
    assert f"{x:.2f}" == f"{t:.2f}" == "3.14"
    assert f"{x}" == f"{t}"
    assert f"{pair([1.5])[0]}" == "tensor([1.5000])"


def test_options_are_returned_and_restored():
    ad.set_printoptions(precision=2, sci_mode=True)
    assert ad.get_printoptions() == {
        "precision": 2, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": True,
    }  # fmt: skip
    with pytest.raises(KeyError), ad.printoptions(precision=7, profile="slices"):
        assert ad.get_printoptions()["precision"] == 7
        raise KeyError
    assert ad.get_printoptions()["precision"] == 2
    ad.set_printoptions()  # as in PyTorch, sci_mode alone is reset
    assert ad.get_printoptions()["sci_mode"] is None
    assert ad.get_printoptions()["precision"] == 2


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="unknown profile 'wide'"):
        ad.set_printoptions(profile="wide")


def test_slices_head_each_matrix_with_its_index(monkeypatch):
    monkeypatch.undo()
    ad.set_printoptions(profile="slices")
    x = ad.arange(12, dtype=ad.float32).reshape(1, 2, 2, 3)
    assert repr(x) == (
        "[0, 0, :, :]\n"
        "[[ 0.,  1.,  2.],\n"
        " [ 3.,  4.,  5.]]\n"
        "[0, 1, :, :]\n"
        "[[ 6.,  7.,  8.],\n"
        " [ 9., 10., 11.]]\n"
        "shape (1, 2, 2, 3), dtype adjoint.float32, device cpu"
    )
    assert repr(x.requires_grad_() * 1).endswith("device cpu, grad_fn=<MulBackward0>")
    assert repr(ad.ones(2, 2)) == "tensor([[1., 1.],\n        [1., 1.]])"


def test_slices_are_summarised():
    ad.set_printoptions(profile="slices")
    text = repr(ad.zeros(2, 20, 8, 8))
    heads = [line for line in text.splitlines() if line.startswith("[") and ":" in line]
    assert heads == [f"[{i}, {j}, :, :]" for i in (0, 1) for j in (0, 1, 2, 17, 18, 19)]
    assert text.count("\n...\n") == 2
    ad.set_printoptions(profile="slices", threshold=10**6)
    assert repr(ad.zeros(2, 20, 8, 8)).count(":, :]") == 40
