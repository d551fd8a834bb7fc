"""Indices of sparse matrices from one form to another, beside PyTorch."""

from __future__ import annotations

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(
    "rows, size", [([0, 0, 1, 3], 4), ([], 0), ([], 3), ([2], 3), ([0, 1, 2] * 0, 1)]
)
def test_there_and_back(rows, size, narrow):
    results = []
    for t in (ad, torch):
        index = t.tensor(rows, dtype=t.int64)
        columns = t.arange(len(rows))
        crow = t._convert_indices_from_coo_to_csr(index, size, out_int32=narrow)
        back = t._convert_indices_from_csr_to_coo(crow, columns.to(crow.dtype), out_int32=narrow)
        turned = t._convert_indices_from_csr_to_coo(
            crow, columns.to(crow.dtype), transpose=True, out_int32=narrow
        )
        results.append([(str(x.dtype).split(".")[1], x.tolist()) for x in (crow, back, turned)])
    assert results[0] == results[1]


def test_what_fits_no_matrix_is_refused():
    for call in (
        lambda: ad._convert_indices_from_coo_to_csr(ad.tensor([0]), -1),
        lambda: ad._convert_indices_from_coo_to_csr(ad.tensor([[0]]), 1),
        lambda: ad._convert_indices_from_csr_to_coo(ad.tensor([0, 2]), ad.tensor([1])),
        lambda: ad._convert_indices_from_csr_to_coo(ad.tensor([0, 2, 1]), ad.tensor([1])),
    ):
        with pytest.raises(ad.AdjointError, match="_convert_indices"):
            call()


def test_segment_reduce_has_both_names():
    x, n = ad.arange(6.0), ad.tensor([2, 0, 4])
    assert ad._segment_reduce(x, "sum", lengths=n).tolist() == [1.0, 0.0, 14.0]
