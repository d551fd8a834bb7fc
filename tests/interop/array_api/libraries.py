"""Calls SciPy's and scikit-learn's array API functions on NumPy arrays and on our tensors.

A program of its own, since both read SCIPY_ARRAY_API when they are first imported. It prints, for
each function, "ok" or what went wrong.
"""

from __future__ import annotations

import functools
import json
import sys
import warnings

import numpy as np
import scipy.cluster.hierarchy as hierarchy
import scipy.cluster.vq as vq
import scipy.constants as constants
import scipy.differentiate as differentiate
import scipy.fft as sfft
import scipy.integrate as integrate
import scipy.interpolate as interpolate
import scipy.linalg as slinalg
import scipy.ndimage as ndimage
import scipy.optimize.elementwise as roots
import scipy.signal as signal
import scipy.spatial.transform as transform
import scipy.special as special
import scipy.stats as stats
import sklearn.metrics as metrics
from scipy.spatial import distance
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import (
    Binarizer,
    KernelCenterer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)

import adjoint as ad

rng = np.random.default_rng(0)
X = np.arange(1.0, 9.0)
Y = X * X + 1
M = rng.random((20, 3))
SMALL = rng.random((6, 3))
ROTATION = np.array([0.0, 0.0, np.sin(0.3), np.cos(0.3)])
WHITE = rng.normal(size=100)
ROWS = rng.normal(size=(60, 4))
CLASSES = (ROWS[:, 0] > 0).astype(np.int64)
FILTER, FEEDBACK = np.array([1.0, 2]), np.array([1.0, 0.5])
GUESSES = (rng.random(60) > 0.5).astype(np.int64)
SCORES = rng.random(60) + 0.1
OTHERS = SCORES + rng.random(60)

# name -> function of a converter of NumPy arrays into the arrays under test
SCIPY = {}
SKLEARN = {}


def enter(table, prefix, module, names, *arrays):
    """Functions of a module that all take the same arrays."""
    for name in names.split():
        function = getattr(module, name)
        table[f"{prefix}{name}"] = functools.partial(called, function, arrays)


def called(function, arrays, convert):
    return function(*map(convert, arrays))


enter(
    SCIPY, "special.", special,
    "erf erfc gammaln expit logit log_ndtr ndtr ndtri i0 i0e entr exp1", X / 10,
)  # fmt: skip
enter(SCIPY, "special.", special, "logsumexp softmax log_softmax softplus", X)
enter(
    SCIPY, "special.", special,
    "xlogy rel_entr kl_div chdtr chdtrc gammainc gammaincc stdtrit", X, X / 9,
)  # fmt: skip
enter(SCIPY, "special.", special, "betainc", X, X, X / 10)
enter(
    SCIPY, "stats.", stats,
    "skew kurtosis zscore gmean hmean variation sem mode iqr circmean circvar circstd moment kstat "
    "kstatvar tmean tvar tstd tsem tmin tmax entropy gstd", M,
)  # fmt: skip
enter(SCIPY, "stats.", stats, "skewtest kurtosistest normaltest jarque_bera describe", WHITE)
enter(
    SCIPY, "stats.", stats,
    "ttest_ind ttest_rel pearsonr mannwhitneyu bartlett", X, Y[::-1].copy() + X,
)  # fmt: skip
enter(SCIPY, "stats.", stats, "chisquare power_divergence", X, X)
enter(SCIPY, "stats.", stats, "combine_pvalues", X / 10)
SCIPY |= {
    "stats.ttest_1samp": lambda c: stats.ttest_1samp(c(M), 0.5).pvalue,
    "stats.f_oneway": lambda c: stats.f_oneway(c(M), c(M * 2)).pvalue,
    "stats.quantile": lambda c: stats.quantile(c(X), c(np.array([0.25, 0.5]))),
    "stats.Normal": lambda c: stats.Normal(mu=c(X)).cdf(c(X + 1)),
    "stats.pmean": lambda c: stats.pmean(c(M), 2),
    "fft.fft": lambda c: sfft.fft(c(X)), "fft.rfft": lambda c: sfft.rfft(c(X)),
    "fft.irfft": lambda c: sfft.irfft(sfft.rfft(c(X))), "fft.fftn": lambda c: sfft.fftn(c(M)),
    "fft.dct": lambda c: sfft.dct(c(X)), "fft.dst": lambda c: sfft.dst(c(X)),
    "fft.fht": lambda c: sfft.fht(c(X), 0.1, 0.2), "fft.fftshift": lambda c: sfft.fftshift(c(X)),
    "signal.detrend": lambda c: signal.detrend(c(Y)),
    "signal.hilbert": lambda c: signal.hilbert(c(X)),
    "signal.convolve": lambda c: signal.convolve(c(X), c(Y)),
    "signal.fftconvolve": lambda c: signal.fftconvolve(c(X), c(Y)),
    "signal.oaconvolve": lambda c: signal.oaconvolve(c(X), c(Y)),
    "signal.correlate": lambda c: signal.correlate(c(X), c(Y)),
    "signal.lfilter": lambda c: signal.lfilter(c(FILTER), c(FEEDBACK), c(X)),
    "signal.sosfilt": lambda c: signal.sosfilt(c(np.array([[1.0, 0, 0, 1, 0.5, 0]])), c(X)),
    "signal.periodogram": lambda c: signal.periodogram(c(X))[1],
    "signal.welch": lambda c: signal.welch(c(X), nperseg=4)[1],
    "signal.savgol_filter": lambda c: signal.savgol_filter(c(Y), 3, 1),
    "signal.resample": lambda c: signal.resample(c(X), 16),
    "signal.decimate": lambda c: signal.decimate(c(WHITE), 2),
    "signal.wiener": lambda c: signal.wiener(c(X)),
    "signal.medfilt": lambda c: signal.medfilt(c(X)),
    "signal.freqz": lambda c: signal.freqz(c(np.array([1.0, 2])))[1],
    "cluster.whiten": lambda c: vq.whiten(c(M)), "cluster.vq": lambda c: vq.vq(c(M), c(M[:2]))[0],
    "cluster.kmeans": lambda c: vq.kmeans(c(M), c(M[:2]))[0],
    "cluster.kmeans2": lambda c: vq.kmeans2(c(M), c(M[:2]), minit="matrix")[0],
    "cluster.linkage": lambda c: hierarchy.linkage(c(SMALL)),
    "cluster.fcluster": lambda c: hierarchy.fcluster(hierarchy.linkage(c(SMALL)), 0.5),
    "ndimage.gaussian_filter": lambda c: ndimage.gaussian_filter(c(M), 1.0),
    "ndimage.label": lambda c: ndimage.label(c(M > 0.5))[0],
    "integrate.trapezoid": lambda c: integrate.trapezoid(c(Y), c(X)),
    "integrate.simpson": lambda c: integrate.simpson(c(Y), x=c(X)),
    "integrate.cumulative_trapezoid": lambda c: integrate.cumulative_trapezoid(c(Y), c(X)),
    "integrate.tanhsinh":
        lambda c: integrate.tanhsinh(lambda u: u * u, c(np.array(0.0)), c(np.array(1.0))).integral,
    "linalg.inv": lambda c: slinalg.inv(c(np.eye(3) + 1)),
    "linalg.svdvals": lambda c: slinalg.svdvals(c(M)),
    "linalg.expm": lambda c: slinalg.expm(c(np.eye(2))),
    "optimize.find_root":
        lambda c: roots.find_root(lambda u: u * u - 2, (c(np.array(0.0)), c(np.array(2.0)))).x,
    "differentiate.derivative": lambda c: differentiate.derivative(lambda u: u**3, c(X)).df,
    "differentiate.jacobian": lambda c: differentiate.jacobian(lambda u: u**2, c(X)).df,
    "spatial.Rotation": lambda c: transform.Rotation.from_quat(c(ROTATION)).as_matrix(),
    "spatial.cdist": lambda c: distance.cdist(c(SMALL), c(SMALL)),
    "constants.convert_temperature": lambda c: constants.convert_temperature(c(X), "C", "K"),
    "interpolate.make_interp_spline":
        lambda c: interpolate.make_interp_spline(c(X), c(Y))(c(X + 0.5)),
    "interpolate.CubicSpline": lambda c: interpolate.CubicSpline(c(X), c(Y))(c(X - 0.5)),
}  # fmt: skip


def transformed(estimator, *arrays):
    return lambda c: estimator.fit_transform(*map(c, arrays))


def predicted(estimator, rows, targets):
    return lambda c: estimator.fit(c(rows), c(targets)).predict(c(rows))


SKLEARN |= {
    "PCA": lambda c: abs(PCA(2, svd_solver="full").fit_transform(c(ROWS))),
    "StandardScaler": transformed(StandardScaler(), ROWS),
    "MinMaxScaler": transformed(MinMaxScaler(), ROWS),
    "MaxAbsScaler": transformed(MaxAbsScaler(), ROWS),
    "Normalizer": transformed(Normalizer(), ROWS),
    "Binarizer": transformed(Binarizer(), ROWS),
    "KernelCenterer": transformed(KernelCenterer(), ROWS @ ROWS.T),
    "PolynomialFeatures": transformed(PolynomialFeatures(2), ROWS),
    "Nystroem": transformed(Nystroem(n_components=5, random_state=0), ROWS),
    "LabelEncoder": transformed(LabelEncoder(), CLASSES),
    "Ridge": predicted(Ridge(solver="svd"), ROWS, SCORES),
    "RidgeCV": predicted(RidgeCV(), ROWS, SCORES),
    "RidgeClassifier": predicted(RidgeClassifier(solver="svd"), ROWS, CLASSES),
    "LogisticRegression": predicted(LogisticRegression(), ROWS, CLASSES),
    "LinearDiscriminantAnalysis": predicted(LinearDiscriminantAnalysis(), ROWS, CLASSES),
    "GaussianNB": predicted(GaussianNB(), ROWS, CLASSES),
    "GaussianMixture": lambda c: (
        GaussianMixture(2, init_params="random", random_state=0).fit(c(ROWS)).predict(c(ROWS))
    ),
    "train_test_split": lambda c: train_test_split(c(ROWS), random_state=0)[0],
    "cross_val_score": lambda c: cross_val_score(Ridge(solver="svd"), c(ROWS), c(SCORES)),
}
enter(
    SKLEARN, "", metrics,
    "accuracy_score f1_score precision_score recall_score zero_one_loss jaccard_score hamming_loss "
    "balanced_accuracy_score cohen_kappa_score multilabel_confusion_matrix matthews_corrcoef",
    CLASSES, GUESSES,
)  # fmt: skip
enter(
    SKLEARN, "", metrics,
    "mean_squared_error r2_score mean_absolute_error max_error mean_squared_log_error "
    "mean_absolute_percentage_error mean_tweedie_deviance explained_variance_score "
    "mean_pinball_loss root_mean_squared_error mean_gamma_deviance median_absolute_error",
    SCORES, OTHERS,
)  # fmt: skip
enter(
    SKLEARN, "", metrics,
    "log_loss brier_score_loss average_precision_score roc_auc_score", CLASSES, SCORES / 1.2,
)  # fmt: skip
enter(
    SKLEARN, "", metrics.pairwise,
    "euclidean_distances cosine_similarity rbf_kernel linear_kernel polynomial_kernel "
    "sigmoid_kernel chi2_kernel laplacian_kernel manhattan_distances", abs(ROWS), abs(ROWS),
)  # fmt: skip


def flat(result):
    """A result's arrays: those of a tuple, or the one that it is."""
    if isinstance(result, tuple) or hasattr(result, "statistic"):
        parts = result if isinstance(result, tuple) else (result.statistic, result.pvalue)
        return [part for each in parts for part in flat(each)]
    return [result]


def verdict(call, must_be_tensor):
    """What comes of a call: "ok", or how it differs from NumPy's."""
    try:
        expected, found = flat(call(np.asarray)), flat(call(ad.tensor))
        for each, other in zip(found, expected, strict=True):
            if must_be_tensor and isinstance(other, np.ndarray) and not isinstance(each, ad.Tensor):
                return f"gave a {type(each).__name__}"
            np.testing.assert_allclose(np.asarray(each), other, rtol=1e-6, atol=1e-6)
    except Exception as error:  # whatever it is, it is reported
        return f"{type(error).__name__}: {error}"[:300]
    return "ok"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {f"scipy.{name}": verdict(call, True) for name, call in SCIPY.items()}
    with config_context(array_api_dispatch=True):
        found |= {f"sklearn.{name}": verdict(call, False) for name, call in SKLEARN.items()}
    json.dump(found, sys.stdout)
