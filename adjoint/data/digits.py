"""The handwritten digits that scikit-learn ships: 1797 images of 8x8 pixels."""

from __future__ import annotations

import numpy as np

from ..core.errors import Unsupported
from ..ops.memory import from_numpy
from .dataset import TensorDataset

__all__ = ["digits"]

TEST_SIZE = 360  # of 1797 images


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Handwritten digits: a training and a test set, always split the same way.

    Images have shape (1, 8, 8) and values from 0 to 1; labels are int64. The data is the UCI
    collection "Optical Recognition of Handwritten Digits" as scikit-learn ships it.

    Errors: Unsupported where scikit-learn is missing.
    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html

    >>> train, test = ad.data.digits()
    >>> len(train), len(test), train[0][0].shape
    (1437, 360, adjoint.Size([1, 8, 8]))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise Unsupported(
            "digits: the images come with scikit-learn, which is not installed; "
            "install it by: pip install 'adjoint[demo]'"
        ) from None
    source = load_digits()
    images = (source.images / 16).astype(np.float32)[:, None]
    labels = source.target.astype(np.int64)
    order = np.random.RandomState(0).permutation(len(labels))
    train, test = order[TEST_SIZE:], order[:TEST_SIZE]
    return (
        TensorDataset(from_numpy(images[train]), from_numpy(labels[train])),
        TensorDataset(from_numpy(images[test]), from_numpy(labels[test])),
    )
