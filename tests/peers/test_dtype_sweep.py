"""Arguments in dtypes that PyTorch refuses: ours refuses them, or gives the values that PyTorch
gives once they have been converted; what else is accepted stands in a rule, with its reason.

Run `python -m tests.peers.dtype_sweep [PART OF A NAME ...]` to see what is found.
"""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import adjoint as ad

from ..sweep import one_in
from . import dtype_sweep, op_db
from .dtype_sweep import Finding

# Entry, argument ("" for any), dtypes ("" for any) -> why nothing is silently wrong.
RULES = {
    ("abs", "0", "complex64"): "in place: the absolute value is a complex number, too",
    ("float_power", "0", "complex64"): "in place: rounded once, to the tensor's own dtype",
    ("isin", "", "complex64"): "complex numbers are equal or not, as the result says",
    ("nn.functional.fractional_max_pool2d", "0", "bool uint8 int32 int64"): (
        "maxima are elements of the input, and stay what they are"
    ),
}


def excused(finding: Finding) -> bool:
    """Whether a rule covers it."""
    return any(
        finding.entry == entry
        and argument in ("", finding.argument)
        and (not dtypes or finding.dtype in dtypes.split())
        for entry, argument, dtypes in RULES
    )


@pytest.mark.parametrize("name", one_in(24, sorted(op_db.entries())))
def test_no_argument_is_changed_silently(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [str(each) for each in dtype_sweep.findings(name) if not excused(each)]
    assert not found, "\n".join(found)


def test_rules_are_few_and_each_is_needed():
    assert len(RULES) <= 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, argument, dtypes in RULES:
            found = dtype_sweep.findings(entry)
            covered = {each.dtype for each in found if argument in ("", each.argument)}
            assert covered and set(dtypes.split()) <= covered, (entry, argument, covered)


def test_the_sweep_finds_what_is_silently_wrong(monkeypatch):
    cut = lambda x, *args, **kwargs: ad.ones_like(x)  # noqa: E731 - of whatever dtype it has
    monkeypatch.setattr(op_db, "resolve", lambda entry: cut)
    found = dtype_sweep.findings("nn.functional.nll_loss")
    assert {each.dtype for each in found} >= {"int64", "bool", "complex64"}


F, N, B = ad.nn.functional, ad.nn, ad.bool
U, L, C = ad.uint8, ad.int64, ad.complex64


def ones(*shape, dtype=ad.float32):
    return ad.ones(shape, dtype=dtype)


REFUSED = {  # what was silently wrong: the op, the argument, the dtype, the call
    "batch_norm": ("input", L, lambda: F.batch_norm(
        ones(4, 2, dtype=L), None, None, training=True)),
    "batch_norm ": ("weight", C, lambda: F.batch_norm(
        ones(4, 2), None, None, ones(2, dtype=C), training=True)),
    "layer_norm": ("bias", C, lambda: F.layer_norm(ones(4, 2), (2,), None, ones(2, dtype=C))),
    "group_norm": ("weight", C, lambda: F.group_norm(ones(4, 2), 2, ones(2, dtype=C))),
    "instance_norm": ("running_var", C, lambda: F.instance_norm(
        ones(4, 2, 3), ones(2), ones(2, dtype=C))),
    "local_response_norm": ("input", U, lambda: F.local_response_norm(ones(2, 2, 2, dtype=U), 2)),
    "dropout2d": ("input", L, lambda: F.dropout2d(ones(2, 2, 2, 2, dtype=L), 0.5)),
    "nll_loss": ("input", U, lambda: F.nll_loss(ones(2, 3, dtype=U), ad.tensor([0, 1]))),
    "cross_entropy": ("weight", C, lambda: F.cross_entropy(
        ones(2, 3), ad.tensor([0, 1]), ones(3, dtype=C))),
    "mse_loss": ("target", C, lambda: F.mse_loss(ones(2), ones(2, dtype=C))),
    "kl_div": ("input", C, lambda: F.kl_div(ones(2, dtype=C), ones(2), reduction="sum")),
    "binary_cross_entropy": ("input", L, lambda: F.binary_cross_entropy(ones(2, dtype=L), ones(2))),
    "binary_cross_entropy_with_logits": ("pos_weight", C, lambda: (
        F.binary_cross_entropy_with_logits(ones(2), ones(2), pos_weight=ones(2, dtype=C)))),
    "soft_margin_loss": ("input", U, lambda: F.soft_margin_loss(ones(2, dtype=U), ones(2))),
    "multilabel_margin_loss": ("input", U, lambda: F.multilabel_margin_loss(
        ones(2, dtype=U), ones(2, dtype=L))),
    "embedding_bag": ("weight", U, lambda: F.embedding_bag(
        ad.zeros(1, 2, dtype=L), ones(3, 2, dtype=U))),
    "adaptive_avg_pool1d": ("input", B, lambda: F.adaptive_avg_pool1d(ones(1, 4, dtype=B), 2)),
    "grid_sample": ("grid", ad.float64, lambda: F.grid_sample(
        ones(1, 1, 2, 2), ones(1, 1, 1, 2, dtype=ad.float64), align_corners=True)),
    "histogram": ("input", L, lambda: ad.histogram(ad.arange(4), 3)),
    "histogramdd": ("weight", C, lambda: ad.histogramdd(ones(2, 2), 3, weight=ones(2, dtype=C))),
    "trapezoid": ("y", B, lambda: ad.trapezoid(ones(3, dtype=B))),
    "cumulative_trapezoid": ("x", B, lambda: ad.cumulative_trapezoid(ones(3), ones(3, dtype=B))),
    "cov": ("fweights", ad.float32, lambda: ad.cov(ones(2, 3), fweights=ones(3))),
    "cov ": ("aweights", L, lambda: ad.cov(ones(2, 3), aweights=ones(3, dtype=L))),
    "normal": ("std", C, lambda: ad.normal(0.0, ones(2, dtype=C))),
    "linalg.pinv": ("rtol", C, lambda: ad.linalg.pinv(ones(2, 2), rtol=ad.tensor(1j))),
    "scatter": ("src", ad.float32, lambda: ones(3, dtype=L).scatter(0, ad.tensor([1]), ones(1))),
    "scatter_add": ("src", ad.float32, lambda: (
        ones(3, dtype=L).scatter_add_(0, ad.tensor([1]), ones(1)))),
    "index_fill": ("value", C, lambda: ones(3).index_fill(0, ad.tensor([1]), ad.tensor(1j))),
    "masked_fill": ("value", C, lambda: ones(3).masked_fill_(ones(3) > 0, ad.tensor(1j))),
    "narrow": ("start", B, lambda: ones(3).narrow(0, ad.tensor(True), 1)),
    "tensor_split": ("indices_or_sections", B, lambda: ones(3).tensor_split(ad.tensor(True))),
    "segment_reduce": ("lengths", ad.float32, lambda: (
        ad.segment_reduce(ones(3), "sum", lengths=ad.tensor([1.6, 2.4])))),
    "masked.cumsum": ("input", B, lambda: ad.masked.cumsum(ones(3, dtype=B), 0)),
    "masked.logaddexp": ("other", B, lambda: ad.masked.logaddexp(ones(3), ones(3, dtype=B))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_op_the_argument_and_the_dtype(name):
    argument, dtype, call = REFUSED[name]
    with pytest.raises(ad.DTypeError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{name.strip()}: "), message
    assert argument in message and str(dtype) in message, message
    assert "convert" in message or "use its real" in message, message


@pytest.mark.parametrize(
    "call",
    [
        lambda: ones(3, dtype=U).index_fill(0, ad.tensor([1]), ad.tensor(-3.0)),
        lambda: ones(3, dtype=U).masked_fill(ones(3) > 0, ad.tensor(300)),
        lambda: F.threshold(ones(3, dtype=U), 0.0, 300.0),
        lambda: F.hardtanh(ones(3, dtype=U), -2.0, 2.0),
    ],
)
def test_numbers_that_a_dtype_does_not_hold(call):
    with pytest.raises(ad.AdjointError, match=r"overflow|unsigned type"):
        call()


def test_a_running_sum_in_place_is_of_the_tensors_own_dtype():
    with pytest.raises(ad.DTypeError, match=r"cumsum_: Bad in-place call: .*complex64 and"):
        ones(3, dtype=C).cumsum_(0, dtype=ad.float32)
    assert ones(3).cumsum_(0, dtype=ad.float32).tolist() == [1, 2, 3]
