"""Arguments whose values another dtype would change are refused, as in PyTorch."""

from __future__ import annotations

import pytest
import torch

import adjoint as ad

F = {ad: ad.nn.functional, torch: torch.nn.functional}


def ctc(lib, lengths):
    targets = lib.tensor([[1, 2]])
    return F[lib].ctc_loss(lib.zeros(4, 1, 3), targets, lengths(4), lengths(2))


REFUSED = {  # the dtype, and what is done with a tensor of it
    "lengths": (
        ("float32", "float64", "bool", "complex64"),
        lambda lib, d: ctc(lib, lambda n: lib.tensor([n]).to(d)),
    ),
    "mask": (
        ("uint8", "int32", "int64"),
        lambda lib, d: F[lib].scaled_dot_product_attention(
            *[lib.ones(1, 2, 3)] * 3, lib.ones(2, 2).to(d)
        ),
    ),
    "distance": (
        ("bool", "int64", "complex64"),
        lambda lib, d: lib.cdist(lib.ones(2, 3), lib.ones(2, 3).to(d)),
    ),
    "place": (
        ("complex64",),
        lambda lib, d: lib.searchsorted(lib.tensor([1.0, 2.0]), lib.ones(2).to(d)),
    ),
    "new_tensor": (("int8", "uint8"), lambda lib, d: lib.ones(1).to(d).new_tensor([1.5, 300])),
}


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.parametrize("lib", [ad, torch])
@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_would_be_cut(lib, name):
    kinds, run = REFUSED[name]
    for kind in kinds:
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            run(lib, getattr(lib, kind))


def test_lengths_of_any_integers():
    wanted = ctc(ad, lambda n: ad.tensor([n]))
    for kind in (ad.int8, ad.int32, ad.uint8):
        assert ctc(ad, lambda n, kind=kind: ad.tensor([n], dtype=kind)) == wanted
    assert ctc(ad, lambda n: [n]) == wanted
    with pytest.raises(TypeError):
        ctc(ad, lambda n: [n + 0.5])
