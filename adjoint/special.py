"""Special functions, named as in `torch.special`.

Source: https://docs.pytorch.org/docs/stable/special.html

>>> ad.special.expit(ad.tensor([0., 1.]))
tensor([0.5000, 0.7311])
"""

from __future__ import annotations

from .ops import bessel as _bessel
from .ops import polynomials as _polynomials
from .ops.bessel import *  # noqa: F403 - its __all__ is the list
from .ops.functions import exp2, expm1, log1p
from .ops.functions import sigmoid as expit
from .ops.gaussian import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py, zeta
from .ops.incomplete import igamma as gammainc
from .ops.incomplete import igammac as gammaincc
from .ops.polynomials import *  # noqa: F403
from .ops.reduction import logsumexp
from .ops.rounding import round
from .ops.softmax import log_softmax, softmax
from .ops.special import digamma, erf, erfc, erfinv, i0, i1, logit, polygamma, sinc, xlogy
from .ops.special import lgamma as gammaln
from .ops.special import mvlgamma as multigammaln

psi = digamma

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc",
    "gammaincc", "gammaln", "i0", "i1", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py",
    "xlogy", "zeta",
]  # fmt: skip
__all__ += _bessel.__all__
__all__ += _polynomials.__all__
