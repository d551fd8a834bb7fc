"""`nn.grad`: the gradients of convolutions, beside PyTorch's and beside autograd's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.grad

import adjoint as ad

OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1, 1), "padding": (1, 0, 2), "dilation": (1, 2, 1), "groups": 2},
    {"padding": "same"},
]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_gradients_of_convolutions(rank, options, batch):
    options = {k: v[:rank] if isinstance(v, tuple) else v for k, v in options.items()}
    groups = options.get("groups", 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, 4, *(9, 7, 6)[:rank]))
    kernel = (3, 3, 3) if options.get("padding") == "same" else (3, 2, 3)
    w = rng.standard_normal((6, 4 // groups, *kernel[:rank]))

    def program(lib):
        a = lib.tensor(x).requires_grad_()
        b = lib.tensor(w).requires_grad_()
        y = getattr(lib.nn.functional, f"conv{rank}d")(a, b, **options)
        g = (y.detach() * 2 + 1).requires_grad_()
        expected = lib.autograd.grad(y, (a, b), g)
        if lib is torch and options.get("padding") == "same":
            return expected
        found = (
            getattr(lib.nn.grad, f"conv{rank}d_input")(a.shape, b, g, **options),
            getattr(lib.nn.grad, f"conv{rank}d_weight")(a, b.shape, g, **options),
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.detach().numpy(), other.numpy(), atol=1e-9)
        if not batch:  # PyTorch has no second derivatives of nothing
            return found
        second = lib.autograd.grad(found[0].square().sum() + found[1].square().sum(), (a, b, g))
        return *found, *second

    for ours, theirs in zip(program(ad), program(torch), strict=False):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-9)


def test_sizes_that_do_not_fit():
    x, w, g = ad.ones(2, 3, 8), ad.ones(4, 3, 3), ad.ones(2, 4, 6)
    with pytest.raises(ad.ShapeError, match=r"begins with \(2, 3\), got \(1, 3, 8\)"):
        ad.nn.grad.conv1d_input((1, 3, 8), w, g)
    with pytest.raises(ad.ShapeError, match="windows"):
        ad.nn.grad.conv1d_input((2, 3, 9), w, g)
    with pytest.raises(ad.ShapeError, match="3 dimensions"):
        ad.nn.grad.conv1d_weight(x, (4, 3), g)
    with pytest.raises(ad.ShapeError, match="do not fit"):
        ad.nn.grad.conv1d_weight(x, (4, 3, 5), g)
