"""Distributions compute where their parameters are: the same draws, densities and moments."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from tests.distributions.test_distributions import cases

ATTRIBUTES = ("mean", "variance", "stddev", "mode")
METHODS = ("entropy", "enumerate_support")


def found_of(name, parameters, value, device):
    """What a distribution on a device says, by what was asked."""
    ad.manual_seed(0)
    given = {
        k: ad.tensor(v, device=device).requires_grad_() if isinstance(v, np.ndarray) else v
        for k, v in parameters.items()
    }
    made = getattr(ad.distributions, name)(**given)
    value = ad.tensor(value, device=device)
    found = {"log_prob": made.log_prob(value), "sample": made.sample((2,))}
    if made.has_rsample:
        found["rsample"] = made.rsample((3,))
        found["rsample"].sum().backward()
    found |= {
        f"{k} grad": x.grad for k, x in given.items() if isinstance(x, ad.Tensor) and x.is_leaf
    }
    for what in (*ATTRIBUTES, *METHODS):
        try:
            each = getattr(made, what)
            found[what] = each() if what in METHODS else each
        except NotImplementedError:
            found[what] = None
    return found


@cases
def test_as_on_the_cpu(name, parameters, value, device):
    found, expected = (found_of(name, parameters, value, d) for d in (device, "cpu"))
    for what, those in expected.items():
        these = found[what]
        if those is None:
            assert these is None, what
            continue
        assert these.device.type == device and these.dtype is those.dtype, what
        np.testing.assert_allclose(
            these.detach().cpu().numpy(), those.detach().numpy(), 1e-6, 1e-9, err_msg=what
        )


@pytest.mark.parametrize("other", ["Normal", "Laplace", "Gumbel"])
def test_numbers_beside_tensors(other, device):
    made = getattr(ad.distributions, other)(0.5, ad.ones(3, device=device))
    assert made.mean.device.type == made.sample().device.type == device
