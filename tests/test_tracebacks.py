"""A mistake prints one traceback: its last line names the op and the cause, and nothing that went
before it ("During handling of the above exception") is shown.
"""

from __future__ import annotations

import traceback

import pytest

import adjoint as ad
import adjoint.nn.functional as F

from .test_errors import CASES


def ones(*shape, **options):
    return ad.ones(shape, **options)


def leaf(*shape):
    return ad.ones(shape, requires_grad=True)


def labels(*shape):
    return ad.zeros(shape, dtype=ad.int64)


def over(x, method, *args):
    """The method that writes over a tensor."""
    return getattr(x, method)(*args)


def batches(*samples):
    return list(ad.data.DataLoader(list(samples), batch_size=len(samples)))


def assigned(x, place, value):
    x[place] = value


MISTAKES = {  # by a word for the case: what the last line names, and the mistake
    "add": ("add", lambda: ones(2, 3) + ones(4)),
    "add of leaves": ("add", lambda: leaf(2, 3) + leaf(4)),
    "add, large": ("add", lambda: ones(600, 601) + ones(600)),
    "add, narrow": ("add", lambda: ones(2, 3, dtype=ad.float16) + ones(4, dtype=ad.float16)),
    "add in place": ("add", lambda: over(ones(2, 3), "add_", ones(4))),
    "add of a string": ("add", lambda: ones(2) + "two"),
    "mul with out": ("mul", lambda: ad.mul(ones(2, 3), ones(4), out=ad.empty(0))),
    "where": ("where", lambda: ad.where(ones(2) > 0, ones(3), ones(2))),
    "lerp": ("lerp", lambda: ad.lerp(ones(3), ones(2), 0.5)),
    "clamp": ("clamp", lambda: ones(3).clamp(ones(2))),
    "cat": ("cat", lambda: ad.cat([ones(2, 3), ones(2, 4)])),
    "cat of ranks": ("cat", lambda: ad.cat([ones(2, 3), ones(2)])),
    "stack": ("stack", lambda: ad.stack([ones(2), ones(3)])),
    "view": ("view", lambda: ones(2, 3).view(4)),
    "view of leaves": ("view", lambda: leaf(2, 3).view(4, -1)),
    "reshape": ("reshape", lambda: ones(2, 3).reshape(5)),
    "expand": ("expand", lambda: ones(2).expand(3)),
    "permute": ("permute", lambda: ones(2, 3).permute(0, 2)),
    "transpose": ("transpose", lambda: ones(2, 3).transpose(0, 2)),
    "split": ("split", lambda: ones(5).split([2, 2])),
    "unfold": ("unfold", lambda: ones(5).unfold(0, 6, 1)),
    "sum": ("sum", lambda: ones(2, 3).sum(2)),
    "cumsum": ("cumsum", lambda: ones(2).cumsum(1)),
    "gather": ("gather", lambda: ones(2).gather(0, ad.tensor([7]))),
    "index": ("index", lambda: ones(2, 3)[ad.tensor([5])]),
    "index of a mask": ("index", lambda: ones(2)[ones(3) > 0]),
    "assignment": ("copy_", lambda: assigned(ones(2, 3), 0, ones(2))),
    "index_add": ("index_add", lambda: ones(2, 3).index_add(0, labels(1), ones(1, 4))),
    "scatter": ("scatter", lambda: ones(2).scatter(1, labels(1), ones(1))),
    "matmul": ("matmul", lambda: ones(3, 4) @ ones(5, 6)),
    "matmul of a batch": ("matmul", lambda: ones(2, 3, 4) @ ones(3, 4, 5)),
    "addmm": ("addmm", lambda: ad.addmm(ones(2, 2), ones(2, 3), ones(4, 2))),
    "bmm": ("bmm", lambda: ad.bmm(ones(2, 3, 4), ones(2, 5, 6))),
    "einsum": ("einsum", lambda: ad.einsum("ij,jk->ik", ones(2, 3), ones(4, 5))),
    "solve": ("linalg.solve", lambda: ad.linalg.solve(ones(2, 2), ones(3, 1))),
    "singular": ("inv", lambda: ad.linalg.inv(ones(2, 2))),
    "linear": ("linear", lambda: F.linear(ones(2, 4), ones(3, 5))),
    "Linear": ("linear", lambda: ad.nn.Linear(3, 2)(ones(2, 4))),
    "Linear in a model": (
        "linear", lambda: ad.nn.Sequential(ad.nn.Linear(3, 2), ad.nn.Linear(3, 2))(leaf(2, 3))
    ),
    "Linear, compiled": ("linear", lambda: ad.compile(ad.nn.Linear(3, 2))(ones(2, 4))),
    "add, compiled": ("add", lambda: ad.compile(lambda x, y: x + y)(ones(2, 3), ones(4))),
    "add, lazy": ("add", lambda: ad.lazy()(lambda x, y: (x + y).sum())(ones(2, 3), ones(4))),
    "add in vmap": ("add", lambda: ad.vmap(lambda x, y: x + y)(ones(5, 2), ones(5, 3))),
    "conv2d": ("conv2d", lambda: F.conv2d(ones(1, 3, 8, 8), ones(4, 2, 3, 3))),
    "Conv2d": ("conv2d", lambda: ad.nn.Conv2d(3, 4, 3)(leaf(1, 2, 8, 8))),
    "ConvTranspose1d": ("conv_transpose1d", lambda: ad.nn.ConvTranspose1d(3, 4, 3)(ones(1, 2, 8))),
    "max_pool2d": ("max_pool2d", lambda: F.max_pool2d(ones(1, 1, 2, 2), 3)),
    "batch_norm": ("batch_norm", lambda: ad.nn.BatchNorm1d(3)(ones(2, 4))),
    "layer_norm": ("layer_norm", lambda: ad.nn.LayerNorm(3)(ones(2, 4))),
    "embedding": ("embedding", lambda: F.embedding(ad.tensor([7]), ones(3, 2))),
    "Embedding of floats": ("embedding", lambda: ad.nn.Embedding(3, 2)(ones(2))),
    "LSTM": ("LSTM", lambda: ad.nn.LSTM(3, 2)(ones(4, 1, 5))),
    "attention": (
        "scaled_dot_product_attention",
        lambda: F.scaled_dot_product_attention(ones(1, 2, 3), ones(1, 2, 4), ones(1, 2, 4)),
    ),
    "cross_entropy": ("cross_entropy", lambda: F.cross_entropy(leaf(2, 3), labels(3))),
    "cross_entropy, a class": ("nll_loss", lambda: F.cross_entropy(leaf(2, 3), labels(2) + 3)),
    "nll_loss": ("nll_loss", lambda: F.nll_loss(leaf(2, 3), labels(3))),
    "mse_loss": ("mse_loss", lambda: F.mse_loss(leaf(2, 3), ones(4))),
    "MSELoss, large": ("mse_loss", lambda: ad.nn.MSELoss()(leaf(600, 601), ones(600))),
    "l1_loss": ("l1_loss", lambda: F.l1_loss(leaf(2, 3), ones(4))),
    "smooth_l1_loss": ("smooth_l1_loss", lambda: F.smooth_l1_loss(leaf(2, 3), ones(4))),
    "binary_cross_entropy": (
        "binary_cross_entropy", lambda: F.binary_cross_entropy(leaf(2, 3), ones(4))
    ),
    "binary_cross_entropy_with_logits": (
        "binary_cross_entropy_with_logits",
        lambda: F.binary_cross_entropy_with_logits(leaf(2, 3), ones(4)),
    ),
    "kl_div": ("kl_div", lambda: F.kl_div(leaf(2, 3), ones(4))),
    "triplet": ("triplet", lambda: F.triplet_margin_loss(leaf(2, 3), ones(2, 3), ones(2, 4))),
    "collate": ("collate", lambda: batches(ones(2), ones(3))),
    "collate in a tuple": ("collate", lambda: batches((ones(2), 1), (ones(3), 2))),
    "backward": ("backward", lambda: (leaf(2) * 2).backward(ones(3))),
    "exp of a list": ("exp", lambda: ad.exp([1.0])),
    "softmax": ("softmax", lambda: leaf(2).softmax(1)),
    "cdist": ("cdist", lambda: ad.cdist(ones(2, 3), ones(2, 4))),
    "fft": ("fft", lambda: ad.fft.fft(ones(2, 3), dim=2)),
    "lgamma of complex": ("lgamma", lambda: ad.lgamma(ones(2, dtype=ad.complex64))),
}  # fmt: skip


def met(mistake):
    """The error of a mistake."""
    with pytest.raises(Exception) as caught:
        mistake()
    return caught.value


def shown(error):
    """The errors that a traceback prints, the one that was raised first."""
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def assert_one_traceback(error):
    assert isinstance(error, ad.AdjointError), repr(error)
    for each in shown(error):
        assert each.__context__ is None or each.__suppress_context__, repr(each.__context__)
    assert "During handling" not in "".join(traceback.format_exception(error))


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", MISTAKES)
def test_one_traceback_whose_last_line_names_the_op(name):
    op, mistake = MISTAKES[name]
    error = met(mistake)
    assert_one_traceback(error)
    last = traceback.format_exception(error)[-1].strip().splitlines()[0]
    assert op in last, last


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_prints_one_traceback(case):
    inputs = case.inputs(ad)
    assert_one_traceback(met(lambda: case.call(ad, *inputs)))


def test_there_are_40_mistakes():
    assert len(MISTAKES) >= 40
