"""Classes and rows are integers: numbers of another kind are refused, not cut to integers."""

from __future__ import annotations

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.core.errors import DTypeError

LOSSES = {
    "cross_entropy": F.cross_entropy,
    "nll_loss": F.nll_loss,
    "multi_margin_loss": F.multi_margin_loss,
    "multilabel_margin_loss": lambda x, t: F.multilabel_margin_loss(x, t.unsqueeze(1).expand(2, 3)),
    "embedding_bag": lambda x, t: F.embedding_bag(
        t.reshape(1, 2), ad.arange(9.0).reshape(3, 3)
    ).sum(),
    "linear_cross_entropy": lambda x, t: F.linear_cross_entropy(x, ad.eye(3), t),
    "compiled": ad.compile(lambda x, t: F.cross_entropy(x, t)),
    "module": ad.nn.CrossEntropyLoss(),
    "lazy": lambda x, t: ad.lazy()(F.cross_entropy)(x, t),
}


def scores():
    return ad.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], requires_grad=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bool", "complex64"])
def test_classes_of_another_kind_are_refused(name, kind):
    labels = ad.tensor([0.6, 1.7]).to(getattr(ad, kind))
    with pytest.raises(DTypeError, match="dtype to be Long or Byte, but got adjoint." + kind):
        LOSSES[name](scores(), labels)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32"])
def test_integers_of_all_widths_are_classes(name, kind):
    labels = ad.tensor([2, 1])
    narrow = LOSSES[name](scores(), labels.to(getattr(ad, kind)))
    assert narrow.item() == LOSSES[name](scores(), labels).item()


def test_weights_are_of_classes_whatever_their_dtype():
    weight = ad.tensor([1.0, 10.0, 100.0])
    wide = F.multi_margin_loss(scores(), ad.tensor([1, 0]), weight=weight)
    narrow = F.multi_margin_loss(scores(), ad.tensor([1, 0], dtype=ad.uint8), weight=weight)
    assert wide.item() == narrow.item()


def test_probabilities_stay_targets():
    x = scores()
    assert F.cross_entropy(x, x.detach().softmax(1)).isfinite()
    with pytest.raises(ad.ShapeError, match="floating point type for target with class prob"):
        F.cross_entropy(ad.zeros(3), ad.tensor([0, 1, 0]))
