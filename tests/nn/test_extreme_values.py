"""Composites, losses and norms where numbers end: at zero, infinity, NaN, the largest and the
smallest, values and gradients beside PyTorch's.
"""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch

import adjoint as ad

BIG = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).tiny)
VALUES = (0.0, -0.0, 1.0, -1.0, 1e-25, 1e25, -1e25, 88.0, 104.0, -104.0, TINY, -TINY, 1e-40, BIG,
          -BIG, math.inf, -math.inf, math.nan)  # fmt: skip
F = {ad: ad.nn.functional, torch: torch.nn.functional}


def _ones(lib, x):
    return lib.ones_like(x)


def _of_functional(name):
    return lambda lib, x: getattr(F[lib], name)(x)


def _of_method(name):
    return lambda lib, x: getattr(x, name)()


# Functions of a row of two numbers.
FUNCTIONS = {
    **{
        name: _of_functional(name)
        for name in (
            "relu",
            "relu6",
            "elu",
            "selu",
            "celu",
            "gelu",
            "silu",
            "mish",
            "softplus",
            "softsign",
            "tanhshrink",
            "softshrink",
            "hardshrink",
            "hardswish",
            "hardsigmoid",
            "hardtanh",
            "leaky_relu",
            "logsigmoid",
            "sigmoid",
            "tanh",
        )
    },
    **{
        name: _of_method(name)
        for name in (
            "exp",
            "expm1",
            "log",
            "log1p",
            "sqrt",
            "rsqrt",
            "sinh",
            "cosh",
            "asinh",
            "erf",
            "erfc",
            "square",
            "reciprocal",
            "abs",
            "frac",
            "sinc",
            "logit",
            "norm",
            "std",
            "var",
            "mean",
            "sum",
            "prod",
            "amax",
            "lgamma",
            "digamma",
            "nan_to_num",
        )
    },
    "softmax": lambda lib, x: x.softmax(-1),
    "log_softmax": lambda lib, x: x.log_softmax(-1),
    "softmin": lambda lib, x: F[lib].softmin(x, -1),
    "logsumexp": lambda lib, x: x.logsumexp(-1),
    "logcumsumexp": lambda lib, x: x.logcumsumexp(-1),
    "logaddexp": lambda lib, x: lib.logaddexp(x[0, :1], x[0, 1:]),
    "logaddexp2": lambda lib, x: lib.logaddexp2(x[0, :1], x[0, 1:]),
    "hypot": lambda lib, x: lib.hypot(x[0, :1], x[0, 1:]),
    "atan2": lambda lib, x: lib.atan2(x[0, :1], x[0, 1:]),
    "xlogy": lambda lib, x: lib.xlogy(x[0, :1], x[0, 1:]),
    "normalize": lambda lib, x: F[lib].normalize(x),
    "norm1": lambda lib, x: lib.linalg.vector_norm(x, 1),
    "norm3": lambda lib, x: lib.linalg.vector_norm(x, 3),
    "norm1.5": lambda lib, x: lib.linalg.vector_norm(x, 1.5),
    "norm_inf": lambda lib, x: lib.linalg.vector_norm(x, math.inf),
    "pairwise": lambda lib, x: F[lib].pairwise_distance(x, _ones(lib, x)),
    "cosine": lambda lib, x: F[lib].cosine_similarity(x, _ones(lib, x)),
    "cdist": lambda lib, x: lib.cdist(x, _ones(lib, x)),
    "layer_norm": lambda lib, x: F[lib].layer_norm(x, (2,)),
    "rms_norm": lambda lib, x: F[lib].rms_norm(x, (2,)),
    "glu": lambda lib, x: F[lib].glu(x),
    "lp_pool": lambda lib, x: F[lib].lp_pool1d(x[None], 2.0, 2),
    "cross_entropy": lambda lib, x: F[lib].cross_entropy(x, lib.tensor([0])),
    "smoothed": lambda lib, x: F[lib].cross_entropy(x, lib.tensor([0]), label_smoothing=0.1),
    "bce_logits": lambda lib, x: F[lib].binary_cross_entropy_with_logits(x, _ones(lib, x)),
    "mse": lambda lib, x: F[lib].mse_loss(x, _ones(lib, x)),
    "l1": lambda lib, x: F[lib].l1_loss(x, _ones(lib, x)),
    "smooth_l1": lambda lib, x: F[lib].smooth_l1_loss(x, _ones(lib, x)),
    "huber": lambda lib, x: F[lib].huber_loss(x, _ones(lib, x)),
    "soft_margin": lambda lib, x: F[lib].soft_margin_loss(x, _ones(lib, x)),
    "poisson": lambda lib, x: F[lib].poisson_nll_loss(x, _ones(lib, x)),
    "kl_div": lambda lib, x: F[lib].kl_div(x, _ones(lib, x), reduction="sum"),
    "kl_log": lambda lib, x: F[lib].kl_div(_ones(lib, x), x, reduction="sum", log_target=True),
    "hinge": lambda lib, x: F[lib].hinge_embedding_loss(x, _ones(lib, x)),
    "multi_soft": lambda lib, x: F[lib].multilabel_soft_margin_loss(x, _ones(lib, x)),
    "gaussian": lambda lib, x: F[lib].gaussian_nll_loss(x, _ones(lib, x), _ones(lib, x)),
}


def outcome(lib, function, row, kind="float32"):
    """The value and the gradient, as float32 holds them."""
    x = lib.tensor([row], dtype=lib.float32).to(getattr(lib, kind)).requires_grad_()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        y = function(lib, x)
        (g,) = lib.autograd.grad(y.sum(), x, allow_unused=True)
        g = lib.zeros(1, 2) if g is None else g
        return [t.detach().numpy().ravel().astype(np.float32) for t in (y, g)]


# Where neither PyTorch's float32 nor its float64 says what is right, and why.
EXCEPTIONS = {
    "layer_norm": "zeros where the variance is infinite in float32; PyTorch's is NaN",
    "logaddexp": "two equal infinities have equal shares; PyTorch's are NaN",
    "logaddexp2": "the same",
    "soft_margin": "no exponential overflows; PyTorch's does, in float64 too",
    "digamma": "the slope at a pole is infinite; PyTorch's is that of a number beside it, or NaN",
    "logcumsumexp": "the gradient of all sums; PyTorch's loses those after the first, or is NaN",
    "prod": "the product of the other elements; PyTorch's divides the whole product",
    "sinc": "cos(pi x) / x is no number of float32's any more where pi x is beyond 2^24",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - EXCEPTIONS.keys()))
def test_values_and_gradients_where_numbers_end(name):
    """They are PyTorch's, or what its float64 says, or nearer to that than PyTorch's; but for
    gradients of values that float32 does not hold.
    """
    function = FUNCTIONS[name]
    for row in itertools.product(VALUES, VALUES):
        mine, theirs = (outcome(lib, function, row) for lib in (ad, torch))
        wide = outcome(torch, function, row, "float64")
        cancels = name == "cosine" or all(abs(v) in (0, 1, 88, 104) for v in row)
        beyond = np.isfinite(row).all() and np.isinf(mine[0]).any()
        compared = zip(mine, theirs, wide, strict=True)
        for got, narrow, wanted in itertools.islice(compared, 1 if beyond else 2):
            alike = [
                np.allclose(got, each, rtol=1e-4, atol=1e-7 if cancels else 1e-37, equal_nan=True)
                for each in (narrow, wanted)
            ]
            with np.errstate(invalid="ignore"):  # infinities
                nearer = np.abs(got - wanted) <= np.abs(narrow - wanted)
            assert any(alike) or nearer.all(), (row, got, narrow, wanted)


def test_cosines_and_sums_of_exponentials():
    """A few of them in each run."""
    for name in ("cosine", "norm", "logsumexp", "std"):
        for row in ((BIG, 1.0), (1e25, -1e25), (1e-25, 1e-25), (math.inf, 0.0)):
            mine = outcome(ad, FUNCTIONS[name], row)
            wide = outcome(torch, FUNCTIONS[name], row, "float64")
            for got, wanted in zip(mine, wide, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-37, err_msg=name)
    for name in ("logaddexp", "logaddexp2"):
        for row in ((0.0, math.inf), (math.inf, 0.0), (1e25, 1e25), (-math.inf, 1.0)):
            mine, theirs = (outcome(lib, FUNCTIONS[name], row) for lib in (ad, torch))
            np.testing.assert_array_equal(mine[1], theirs[1])
