"""Collectives that gradients pass through, in a world of one."""

from __future__ import annotations

import pytest

import adjoint as ad
import adjoint.distributed as dist
from adjoint.distributed import functional


def test_values_and_gradients_of_one_rank():
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    dist.init_process_group()
    try:
        parts = [
            functional.all_reduce(x), *functional.all_gather(x), functional.broadcast(x, 0),
            functional.reduce(x, 0), functional.reduce_scatter(ad.empty(2), [x]),
            *functional.all_to_all([ad.empty(2)], [x]),
        ]  # fmt: skip
        assert [part.tolist() for part in parts] == [[1.0, 2.0]] * 6
        sum(parts).square().sum().backward()
        assert x.grad.tolist() == [72.0, 144.0]
        with pytest.raises(ValueError, match="one shape"):
            functional.all_to_all([ad.empty(3)], [x])
    finally:
        dist.destroy_process_group()
