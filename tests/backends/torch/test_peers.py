"""PyTorch's own samples of its modules and functions, computed on the device: outputs, gradients,
buffers. Entries that only make tensors are told to make them on the CPU; they are left out here.
"""

from __future__ import annotations

import functools
import pathlib
import warnings

import pytest
import torch

import adjoint as ad
from tests.peers import module_db, op_db
from tests.sweep import one_in

GAPS = {
    line.split(": ", 1)[0]
    for line in (pathlib.Path(op_db.__file__).parent / "op_db_gaps.txt").read_text().splitlines()
    if line and not line.startswith("#")
}
# They make a tensor on the CPU: PyTorch's samples say so, or take no tensor that says where.
MAKING = {
    "arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like",
    "linspace", "linspace/tensor_overload", "logspace", "logspace/tensor_overload", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "normal/number_mean", "ones",
    "ones_like", "randint", "randn", "scalar_tensor", "to", "tril_indices", "triu_indices", "zeros",
    "zeros_like",
}  # fmt: skip
MAKING |= {
    "sparse.mm/reduce",
    "sparse.sampled_addmm",
    "to_sparse",
}  # sparse tensors are of the host's memory
MAKING |= {"as_strided/partial_views"}  # of memory between elements, which copies lack
MAKING |= {"linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"}  # SciPy's


@pytest.fixture
def moved(device, monkeypatch):
    """The comparison with PyTorch, with adjoint's side on the device."""
    to_ours, array_of = op_db.to_ours, op_db.array_of

    def on_device(value):
        if isinstance(value, torch.Tensor):
            return to_ours(value.detach()).to(device).requires_grad_(value.requires_grad)
        if isinstance(value, torch.device):
            return ad.device(device)
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(on_device, value))
        if isinstance(value, dict):
            return {key: on_device(each) for key, each in value.items()}
        return to_ours(value)

    def read(tensor):
        if isinstance(tensor, ad.Tensor):
            assert tensor.device.type == device, f"on {tensor.device}"
            tensor = tensor.detach().cpu()
        return array_of(tensor)

    monkeypatch.setattr(op_db, "to_ours", on_device)
    monkeypatch.setattr(op_db, "array_of", read)
    return device


@pytest.mark.parametrize("name", one_in(2, sorted(module_db.entries())))
def test_module(name, moved, monkeypatch):
    made = getattr(ad.nn, name)
    monkeypatch.setattr(ad.nn, name, functools.wraps(made)(lambda *a, **k: made(*a, **k).to(moved)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module_db.run_entry(module_db.entries()[name], most=4)


NAMES = sorted(
    name
    for name in set(op_db.entries()) - GAPS - MAKING
    if not name.startswith("signal.windows") and op_db.check_dtypes(op_db.entries()[name])
)


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_function(name, moved):
    entry = op_db.entries()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op_db.run_entry(entry, op_db.check_dtypes(entry)[0], most=2)
