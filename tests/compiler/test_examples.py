"""The examples, compiled: the loops are the user's and run as they are, what they call is programs.

`examples/compiled_training.py` and `examples/exported_training.py` compile whole steps themselves.
"""

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.function import CompiledFunction
from tests.native import needs_native

from ..sweep import swept
from ..test_import_swap import NAMES, OPTIONS, load

pytestmark = needs_native
STEPS = 4
NOT_CALLED = {  # their models, but
    "hessian", "maml", "private_sgd",  # functions of their weights
    "burgers_pinn",  # the second derivatives of what they give
    "gaussian_process", "sac",  # methods, or parts, of theirs
    "vae",  # they draw, which is NumPy's here
}  # fmt: skip
LONG = {"actor_critic", "char_gpt", "char_lstm", "transfer"}  # to load, or to compile


def called(model):
    """The modules that a training loop calls."""
    if isinstance(model, (nn.ModuleList, nn.ModuleDict)):
        return list(model.children())
    return [model]


def losses_of(name, compiles):
    """The losses of some steps, and the compiled functions."""
    build, options = OPTIONS.get(name, ({}, {}))
    example = load(name, "adjoint")
    ad.manual_seed(0)
    model = example.build_model(**build)
    functions = []
    if compiles:
        for each in called(model):
            each.compile()
            functions.append(each.forward)
    return example.train(model, STEPS, **options), functions


CASES = [swept(name) if name in LONG else name for name in sorted(set(NAMES) - NOT_CALLED)]


@pytest.mark.parametrize("name", CASES)
def test_an_example_has_the_same_losses_compiled(name):
    if NAMES[name] is not None:
        pytest.importorskip(NAMES[name])
    expected, _ = losses_of(name, False)
    found, functions = losses_of(name, True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert functions and all(isinstance(each, CompiledFunction) for each in functions)
    assert all(each.programs for each in functions)
