"""Small real datasets that scikit-learn ships, each split into a training and a test set."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..core.errors import Unsupported
from ..ops.create.exchange import from_numpy
from .dataset import TensorDataset

Split = tuple[TensorDataset, TensorDataset]


def digits() -> Split:
    """Handwritten digits: 1437 images to train and 360 to test, always split the same way.

    Images have shape (1, 8, 8) and values from 0 to 1; labels are int64. The data is the UCI
    collection "Optical Recognition of Handwritten Digits" as scikit-learn ships it.

    Errors: Unsupported where scikit-learn is missing.
    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html

    >>> train, test = ad.data.digits()
    >>> len(train), len(test), train[0][0].shape
    (1437, 360, adjoint.Size([1, 8, 8]))
    """
    source = _load("digits")
    images = (source.images / 16).astype(np.float32)[:, None]
    return _split(images, source.target.astype(np.int64), 360)


def iris() -> Split:
    """Iris flowers of three species: 120 to train and 30 to test, always split the same way.

    Features are float32: sepal length and width, petal length and width in cm; labels are int64.
    The data is Fisher's (1936) as scikit-learn ships it.

    Errors: Unsupported where scikit-learn is missing.
    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_iris.html

    >>> train, test = ad.data.iris()
    >>> len(train), len(test), train[0][0].shape
    (120, 30, adjoint.Size([4]))
    """
    source = _load("iris")
    return _split(source.data.astype(np.float32), source.target.astype(np.int64), 30)


def breast_cancer() -> Split:
    """Breast tumours: 455 to train and 114 to test, always split the same way.

    30 float32 features of very different size, measured in images of cell nuclei; int64 labels, 0
    malignant and 1 benign. The data is the UCI collection "Breast Cancer Wisconsin (Diagnostic)" as
    scikit-learn ships it.

    Errors: Unsupported where scikit-learn is missing.
    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_breast_cancer.html

    >>> train, test = ad.data.breast_cancer()
    >>> len(train), len(test), train[0][0].shape
    (455, 114, adjoint.Size([30]))
    """
    source = _load("breast_cancer")
    return _split(source.data.astype(np.float32), source.target.astype(np.int64), 114)


def diabetes() -> Split:
    """Diabetes patients: 354 to train and 88 to test, always split the same way.

    10 float32 features, centred and scaled; the target, of shape (1,), is the disease's progression
    after a year, 25 to 346. The data is that of Efron et al. (2004) as scikit-learn ships it.

    Errors: Unsupported where scikit-learn is missing.
    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_diabetes.html

    >>> train, test = ad.data.diabetes()
    >>> len(train), len(test), train[0][1].shape
    (354, 88, adjoint.Size([1]))
    """
    source = _load("diabetes")
    return _split(source.data.astype(np.float32), source.target.astype(np.float32)[:, None], 88)


def _load(name: str) -> Any:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise Unsupported(
            f"{name}: the data comes with scikit-learn, which is not installed; install it by: "
            "pip install 'adjoint[demo]'"
        ) from None
    return getattr(datasets, f"load_{name}")()


def _split(inputs: Any, targets: Any, test_size: int) -> Split:
    order = np.random.RandomState(0).permutation(len(inputs))
    train, test = order[test_size:], order[:test_size]
    return (
        TensorDataset(from_numpy(inputs[train]), from_numpy(targets[train])),
        TensorDataset(from_numpy(inputs[test]), from_numpy(targets[test])),
    )
