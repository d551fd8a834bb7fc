"""Losses whose reduction is a number: 0 none, 1 the mean, 2 the sum.

Called without one, they reduce nothing, as PyTorch's do (its .pyi file says the mean).
"""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...runtime.public import explaining
from ...tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")


def _named(reduction: int, name: str) -> str:
    if reduction not in (0, 1, 2):
        raise InvalidArgument(
            f"{name}: reduction is 0 (none), 1 (mean) or 2 (sum), got {reduction!r}"
        )
    return REDUCTIONS[reduction]


@explaining
def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """`nn.functional.kl_div`; the mean is that of all elements.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.kl_div.html

    >>> ad.kl_div(ad.zeros(2), ad.ones(2), 2)
    tensor(0.)
    """
    found = F.kl_div(input, target, reduction="none", log_target=log_target)
    chosen = _named(reduction, "kl_div")
    return found if chosen == "none" else getattr(found, chosen)()


@explaining
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html

    >>> ad.binary_cross_entropy_with_logits(ad.zeros(2), ad.ones(2))
    tensor([0.6931, 0.6931])
    """
    chosen = _named(reduction, "binary_cross_entropy_with_logits")
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=chosen, pos_weight=pos_weight
    )


@explaining
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_embedding_loss.html

    >>> ad.cosine_embedding_loss(ad.ones(1, 2), -ad.ones(1, 2), ad.ones(1)).round()
    tensor([2.])
    """
    chosen = _named(reduction, "cosine_embedding_loss")
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=chosen)


@explaining
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hinge_embedding_loss.html

    >>> ad.hinge_embedding_loss(ad.tensor([0.25]), ad.tensor([-1.0]))
    tensor([0.7500])
    """
    chosen = _named(reduction, "hinge_embedding_loss")
    return F.hinge_embedding_loss(input, target, margin, reduction=chosen)


@explaining
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html

    >>> ad.margin_ranking_loss(ad.zeros(1), ad.ones(1), ad.ones(1))
    tensor([1.])
    """
    chosen = _named(reduction, "margin_ranking_loss")
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=chosen)


@explaining
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """`nn.functional.poisson_nll_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.poisson_nll_loss.html

    >>> ad.poisson_nll_loss(ad.zeros(1), ad.ones(1), True, False, 1e-8, 1)
    tensor(1.)
    """
    chosen = _named(reduction, "poisson_nll_loss")
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=chosen)


@explaining
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html

    >>> x = ad.zeros(1, 2)
    >>> ad.triplet_margin_loss(x, x, x)
    tensor([1.])
    """
    chosen = _named(reduction, "triplet_margin_loss")
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=chosen)


@explaining
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`.

    Errors: InvalidArgument for another reduction than 0, 1 and 2.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html

    >>> logs = ad.zeros(2, 1, 2).log_softmax(2)
    >>> ad.ctc_loss(logs, ad.tensor([[1]]), [2], [1]).exp()
    tensor([1.3333])
    """
    chosen = _named(reduction, "ctc_loss")
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity
    )
