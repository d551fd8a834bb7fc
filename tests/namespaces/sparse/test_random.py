"""Random programs on sparse tensors give what they give for dense ones, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adjoint as ad


def steps(size: int, rng: Any) -> list[Callable[[Any], Any]]:
    """What a program may do with a square matrix."""
    places = ad.tensor(rng.integers(0, max(size, 1), size))
    full = ad.tensor(rng.standard_normal((size, size)))
    return [
        lambda x: x * 2.5,
        lambda x: -x,
        lambda x: x.sin(),
        lambda x: x.relu(),
        lambda x: x**2,
        lambda x: x + x,
        lambda x: x * x,
        lambda x: x - x * 0.5,
        lambda x: x.t(),
        lambda x: x @ x,
        lambda x: x / 3,
        lambda x: x * full,
        lambda x: x.clone(),
        lambda x: x.coalesce() if x.is_sparse else x,
        lambda x: x.index_select(0, places),
        lambda x: ad.cat([x, x], 0)[1 : size + 1],
        lambda x: x + x.t(),
        lambda x: x.t() * x,
    ]


def test_random_programs() -> None:
    rng = np.random.default_rng(7)
    for _ in range(150):
        size = int(rng.integers(0, 5))
        places = rng.integers(0, max(size, 1), (2, int(rng.integers(0, 8)) if size else 0))
        values = rng.standard_normal(places.shape[1])
        a, b = (ad.tensor(values, requires_grad=True) for _ in range(2))
        x = ad.sparse_coo_tensor(places, a, (size, size))
        zeros = ad.zeros(size * size, dtype=ad.float64)
        y = zeros.index_add(0, ad.tensor(places[0] * size + places[1]), b).reshape(size, size)
        known = steps(size, rng)
        program = [int(rng.integers(0, len(known))) for _ in range(int(rng.integers(1, 6)))]
        for number in program:
            x, y = known[number](x), known[number](y)
        weight = ad.tensor(rng.standard_normal((size, size)))
        (x.to_dense() * weight).sum().backward()
        (y * weight).sum().backward()
        for found, expected in ((x.detach().to_dense(), y.detach()), (a.grad, b.grad)):
            largest = float(np.abs(expected.numpy()).max(initial=1.0))
            np.testing.assert_allclose(
                found.numpy(), expected.numpy(), atol=1e-9 * largest, err_msg=f"{size} {program}"
            )
