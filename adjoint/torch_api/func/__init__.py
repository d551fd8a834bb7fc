"""Transforms of functions, as PyTorch's `torch.func` has them: derivatives, and functions of one
example as functions of a batch. They compose with each other in any order.

>>> per_example = ad.func.vmap(ad.func.grad(lambda w, x: (w * x).sum() ** 2), (None, 0))
>>> per_example(ad.ones(2), ad.tensor([[1., 2.], [3., 4.]]))
tensor([[ 6., 12.],
        [42., 56.]])
"""

from ...nn.utils.stateless import functional_call
from .batches import vmap
from .derivatives import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
)
from .modules import replace_all_batch_norm_modules_, stack_module_state
from .names import debug_unwrap, rearrange

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian",
    "jacfwd", "jacrev", "jvp", "linearize", "rearrange", "replace_all_batch_norm_modules_",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def __getattr__(name: str) -> object:
    from ...core.missing_names import missing

    raise missing("func", name)
