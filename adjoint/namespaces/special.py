"""Special functions, named as in `torch.special`.

Source: https://docs.pytorch.org/docs/stable/special.html

>>> ad.special.expit(ad.tensor([0., 1.]))
tensor([0.5000, 0.7311])
"""

from __future__ import annotations

from ..ops.elementwise.functions import exp2, expm1, log1p
from ..ops.elementwise.functions import sigmoid as expit
from ..ops.elementwise.rounding import round
from ..ops.nn.softmax import log_softmax, softmax
from ..ops.reduce.reduction import logsumexp
from ..ops.special import bessel as _bessel
from ..ops.special import polynomials as _polynomials
from ..ops.special.bessel import *  # noqa: F403 - its __all__ is the list
from ..ops.special.gaussian import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py, zeta
from ..ops.special.incomplete import igamma as gammainc
from ..ops.special.incomplete import igammac as gammaincc
from ..ops.special.polynomials import *  # noqa: F403
from ..ops.special.special import digamma, erf, erfc, erfinv, i0, i1, logit, polygamma, sinc, xlogy
from ..ops.special.special import lgamma as gammaln
from ..ops.special.special import mvlgamma as multigammaln

psi = digamma

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc",
    "gammaincc", "gammaln", "i0", "i1", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax", "xlog1py",
    "xlogy", "zeta",
]  # fmt: skip
__all__ += _bessel.__all__
__all__ += _polynomials.__all__
