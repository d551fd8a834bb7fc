"""Sparse tensors in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import adjoint as ad
from adjoint.core.errors import CheckpointError, LayoutError
from adjoint.io.pytorch_names import _layout, _rebuild_sparse_tensor
from adjoint.ops.create.conversion import sparse_coo, sparse_csr, strided

from .pairs import SHAPES, assert_same, matrix, pair

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def test_both_ways(tmp_path: Path) -> None:
    ours: dict[str, Any] = {name: pair(name)[0] for name in SHAPES}
    theirs: dict[str, Any] = {name: pair(name)[1] for name in SHAPES}
    ours["merged"], theirs["merged"] = pair("twice", merged=True)
    ours["rows"], theirs["rows"] = matrix()
    ours["parameter"] = ad.nn.Parameter(ours["ordered"])
    theirs["parameter"] = torch.nn.Parameter(theirs["ordered"])
    ad.save(ours, tmp_path / "ours.pt")
    torch.save(theirs, tmp_path / "theirs.pt")
    read = torch.load(tmp_path / "ours.pt", weights_only=True)
    for found in (
        ad.load(tmp_path / "ours.pt"),
        ad.load(tmp_path / "theirs.pt", map_location="cpu"),
    ):
        for name, expected in theirs.items():
            assert_same(found[name], expected)
            assert found[name].requires_grad == expected.requires_grad
            if expected.layout is torch.sparse_coo:
                assert found[name].is_coalesced() == expected.is_coalesced()
                assert read[name].is_coalesced() == expected.is_coalesced()
                assert read[name]._values().tolist() == expected._values().tolist()
    assert read["rows"].crow_indices().tolist() == theirs["rows"].crow_indices().tolist()
    with pytest.raises(LayoutError, match=r"to_dense\(\)"):
        ad.save({"x": ours["ordered"]}, tmp_path / "x.safetensors")


def test_modules_with_sparse_state(tmp_path: Path) -> None:
    module = ad.nn.Module()
    module.register_buffer("adjacency", pair("ordered")[0])
    module.weight = ad.nn.Parameter(matrix()[0])
    ad.save(module.state_dict(), tmp_path / "state.pt")
    module.float()
    assert module.adjacency.dtype is ad.float32 and module.weight.layout is ad.sparse_csr
    module.double().load_state_dict(ad.load(tmp_path / "state.pt"))
    assert module.weight.to_dense().tolist() == matrix()[1].to_dense().tolist()
    with pytest.raises(LayoutError, match="same layout"):
        module.weight.data = ad.ones(2, 3, dtype=ad.float64)


def test_hostile_parts_are_refused() -> None:
    places, values = ad.tensor([[0, 1], [0, 1]]), ad.tensor([1.0, 2.0])
    assert _rebuild_sparse_tensor(sparse_coo, (places, values, (2, 2))).is_sparse
    crow, columns = ad.tensor([0, 1, 2]), ad.tensor([0, 1])
    for kept, parts in (
        (sparse_coo, (places, values)),
        (sparse_coo, [places, values, (2, 2)]),
        (sparse_coo, (places, values, (2, 2), 1)),
        (sparse_coo, (places, values, (1, 2), False)),
        (sparse_coo, (places, values, (2, -2), False)),
        (sparse_coo, (places - 5, values, (2, 2), False)),
        (sparse_coo, (places.float() + 0.5, values, (2, 2), False)),
        (sparse_coo, (places.flip(1), values, (2, 2), True)),
        (sparse_coo, (places, None, (2, 2), False)),
        (sparse_coo, (places, values, (2**70, 2), False)),
        (sparse_csr, (crow, columns, values)),
        (sparse_csr, (crow + 1, columns, values, (2, 2))),
        (sparse_csr, (crow, columns + 1, values, (2, 2))),
        (strided, (places, values, (2, 2))),
        ("sparse_coo", (places, values, (2, 2))),
        ([], (places, values, (2, 2))),
    ):
        with pytest.raises(CheckpointError):
            _rebuild_sparse_tensor(kept, parts)
    for name in ("torch.sparse_bsr", 3, None, []):
        with pytest.raises(CheckpointError):
            _layout(name)
