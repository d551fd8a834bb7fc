"""Each module of PyTorch's `module_db` in a compiled training step, and compiled itself with its
gradients made outside: as eagerly.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

import adjoint as ad
from tests.native import needs_native

from ..sweep import one_in, spread, swept
from . import module_db, op_db

pytestmark = needs_native


def step_of(module):
    """Outputs of the module, after gradients of all that it depends on were made."""

    def step(args, kwargs):
        module.zero_grad()
        found = module(*args, **kwargs)
        for y in op_db.tensors_in(found):
            if y.requires_grad:
                (y * y + y).sum().backward(retain_graph=True)
        return found

    return step


def left(module, found, given):
    """All that a step leaves, as arrays."""
    inputs = [x.grad for x in given if x.is_floating_point()]
    gradients = [p.grad for p in module.parameters()]
    known = [*op_db.tensors_in(found), *inputs, *gradients, *module.state_dict().values()]
    for x in given:
        if x.is_floating_point():
            x.grad = None
    return [None if x is None else x.detach().numpy().copy() for x in known]


def assert_trains_as_eagerly(name, sample, is_lazy, training):
    args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
    ad.manual_seed(0)
    made = getattr(ad.nn, name)(*module_db.to_ours(args), **module_db.to_ours(kwargs))
    given = module_db.to_ours((sample.forward_input.args, sample.forward_input.kwargs))
    module = made.to(ad.float64).train(training)
    if is_lazy:
        module(*given[0], **given[1])
    others, tensors = [copy.deepcopy(module) for _ in range(2)], op_db.tensors_in(given)
    eager, within, model = step_of(module), ad.compile(step_of(others[0])), ad.compile(others[1])
    for seed in range(3):
        ad.manual_seed(seed)
        expected = left(module, eager(*given), tensors)
        for other, step in zip(others, (within, step_of(model)), strict=True):
            ad.manual_seed(seed)
            found = left(other, step(*given), tensors)
            for a, b in zip(found, expected, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    assert len(within.programs) == len(model._compiled_call.programs) == 1


@pytest.mark.parametrize(("most", "modes"), [(1, [True]), swept((3, [True, False]))])
@pytest.mark.parametrize("name", one_in(2, sorted(module_db.entries())))
def test_a_module_trains_as_eagerly(name, most, modes):
    entry = module_db.entries()[name]
    if not hasattr(ad.nn, name):
        pytest.skip("a gap of module_db_gaps.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in modes:
            torch.manual_seed(0)
            samples = entry.module_inputs_func(
                entry, device="cpu", dtype=torch.float64, requires_grad=True, training=training
            )
            for sample in spread(samples, most):
                if sample.forward_input is None:
                    continue
                assert_trains_as_eagerly(name, sample, entry.is_lazy, training)
