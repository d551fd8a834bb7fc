"""Special functions, named as in `torch.special`.

Source: https://docs.pytorch.org/docs/stable/special.html

>>> ad.special.expit(ad.tensor([0., 1.]))
tensor([0.5000, 0.7311])
"""

from __future__ import annotations

from .ops.elementwise.functions import exp2, expm1, log1p
from .ops.elementwise.functions import sigmoid as expit
from .ops.elementwise.rounding import round
from .ops.nn.softmax import log_softmax, softmax
from .ops.reduce.reduction import logsumexp
from .ops.special.bessel import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    i0e,
    i1e,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from .ops.special.gaussian import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py, zeta
from .ops.special.incomplete import igamma as gammainc
from .ops.special.incomplete import igammac as gammaincc
from .ops.special.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from .ops.special.special import digamma, erf, erfc, erfinv, i0, i1, logit, polygamma, sinc, xlogy
from .ops.special.special import lgamma as gammaln
from .ops.special.special import mvlgamma as multigammaln

psi = digamma

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip
