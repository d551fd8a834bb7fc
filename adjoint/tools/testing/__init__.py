"""Tools for tests: comparison, random tensors, gradient checks, and the samples of every op.

Source: https://docs.pytorch.org/docs/stable/testing.html
"""

from ...autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from ...core.op import Sample
from .comparison import assert_allclose, assert_close
from .creation import make_tensor
from .ops import check_op, check_sample, samples

__all__ = [
    "GradcheckError", "Sample", "assert_allclose", "assert_close", "check_op", "check_sample",
    "gradcheck", "gradgradcheck", "make_tensor", "samples",
]  # fmt: skip
