"""What refuses wrong shapes and dtypes begins with the name of the function that was called."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import adjoint as ad

from ..sweep import one_in
from . import error_heads, op_db
from .error_heads import Finding

# Entry, name of what refuses ("" for any) -> why that is what the user knows.
RULES = {
    ("__r", ""): "an operator, which is called by the name of its function",
    ("__getitem__", "index"): "x[...] has no other name",
    ("div/", "_divide"): "a division is called by how it rounds",
    ("cartesian_prod", "meshgrid"): "it is one of those",
    ("masked.mean", "masked.sum"): "a mean is a sum that is divided",
    ("masked.std", "masked.var"): "a deviation is the root of a variance",
    ("lu", "linalg.lu_factor_ex"): "an old name of it",
    ("nn.functional.upsample_", "interpolate"): "old names, which warn",
    ("linalg.pinv/singular", ""): "the product is the test's own",
    ("svd_lowrank", ""): "the product is the test's own",
    ("pca_lowrank", ""): "the product is the test's own",
}


def excused(finding: Finding) -> bool:
    """Whether a rule covers it."""
    head = finding.text.partition(": ")[0]
    return any(finding.entry.startswith(entry) and name in head for entry, name in RULES)


@pytest.mark.parametrize("name", one_in(24, sorted(op_db.entries())))
def test_errors_begin_with_what_was_called(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [str(each) for each in error_heads.findings(name) if not excused(each)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [name for name in op_db.entries() if name.startswith(rule[0])]
        found = [each for name in names for each in error_heads.findings(name)]
    assert any(rule[1] in each.text.partition(": ")[0] for each in found)


def test_the_sweep_finds_other_names_and_what_is_not_raised_on_purpose():
    assert error_heads.is_headed(ad.ShapeError("add: shapes"), "add", ad.add)
    assert not error_heads.is_headed(ad.ShapeError("nll_loss: shapes"), "cross_entropy", ad.add)
    assert not error_heads.is_headed(IndexError("add: tuple index"), "add", ad.add)


x, labels = ad.ones(2, 3), ad.tensor([0, 3])
CALLS = {
    "cross_entropy": lambda: ad.nn.functional.cross_entropy(x, labels),
    "nll_loss": lambda: ad.nn.functional.nll_loss(x, labels),
    "clamp": lambda: x.clamp(ad.ones(2)),
    "expand_copy": lambda: ad.expand_copy(x, (2, 2)),
    "tril": lambda: ad.tril("text"),
    "linalg.lu_factor_ex": lambda: ad.linalg.lu_factor_ex(x.bool()),
    "max_pool1d": lambda: ad.max_pool1d(x.bool(), 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_name_is_the_users(name):
    with pytest.raises(ad.AdjointError) as caught:
        CALLS[name]()
    assert str(caught.value).startswith(f"{name}: "), str(caught.value)


def test_compiled_and_lazy_losses_are_called_by_their_names():
    loss = ad.nn.functional.cross_entropy
    for run in (ad.compile(lambda x, y: loss(x, y)), ad.lazy()(lambda x, y: loss(x, y).item())):
        with pytest.raises(ad.IndexingError, match=r"^cross_entropy: Target 3 is out of bounds"):
            run(x, labels)
