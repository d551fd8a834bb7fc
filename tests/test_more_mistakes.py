"""Mistakes beside the hundred of test_tracebacks.py: of modules, optimizers, data, states, dtypes,
devices and graphs. One traceback each, that names the cause, no longer than PyTorch's in the mean.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils import data


class NoSuper(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)


class NoSuperParameter(nn.Module):
    def __init__(self):
        self.w = nn.Parameter(ad.ones(2))


class NoForward(nn.Module):
    pass


class Typo(nn.Module):
    def forward(self, x):
        return self.fcc(x)


class Ragged(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return ad.ones(i + 1)


class NoLen(data.Dataset):
    def __getitem__(self, i):
        return i


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 3), nn.Linear(4, 1)

    def forward(self, x):
        return self.b(self.a(x))


class Two(ad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g, g


class Seven(Two):
    @staticmethod
    def backward(ctx, g):
        return ad.ones(7)


def without_graph():
    with ad.no_grad():
        y = nn.Linear(2, 1)(ad.ones(1, 2)).sum()
    y.backward()


def loaded(**state):
    nn.Linear(2, 3).load_state_dict(state)


def other_optimizer():
    kept = ad.optim.SGD(nn.Linear(2, 3).parameters(), lr=1.0).state_dict()
    ad.optim.SGD([leaf()], lr=1.0).load_state_dict(kept)


def leaf():
    return ad.ones(2, requires_grad=True)


def changed(x):
    x += 1


def truth(x):
    return 1 if x else 0


def batches(samples, **options):
    return list(data.DataLoader(samples, **options))


def trained(targets):
    F.cross_entropy(nn.Linear(2, 3)(ad.ones(4, 2)), targets).backward()


MISTAKES = {  # by a word for the case: what the last line names, and the mistake
    "module without super": ("__init__", lambda: NoSuper()),
    "parameter without super": ("__init__", lambda: NoSuperParameter()),
    "no forward": ("NoForward", lambda: NoForward()(ad.ones(2))),
    "typo in forward": ("fcc", lambda: Typo()(ad.ones(2))),
    "optimizer of nothing": ("Adam", lambda: ad.optim.Adam([])),
    "optimizer lr negative": ("lr", lambda: ad.optim.Adam([leaf()], lr=-1)),
    "optimizer of non-leaf": ("SGD", lambda: ad.optim.SGD([leaf() * 2], lr=0.1)),
    "optimizer of a tensor": ("params", lambda: ad.optim.SGD(ad.ones(2), lr=0.1)),
    "optimizer of strings": ("SGD", lambda: ad.optim.SGD(["a"], lr=0.1)),
    "scheduler of None": ("Optimizer", lambda: ad.optim.lr_scheduler.StepLR(None, 3)),
    "loader batch 0": ("batch_size", lambda: batches([1], batch_size=0)),
    "loader sampler and shuffle": ("DataLoader", lambda: batches([1], sampler=[0], shuffle=True)),
    "loader negative workers": ("DataLoader", lambda: batches([1], num_workers=-1)),
    "loader ragged": ("collate", lambda: batches(Ragged(), batch_size=2)),
    "loader no len": ("NoLen", lambda: batches(NoLen(), batch_size=2, shuffle=True)),
    "loader of None items": ("collate", lambda: batches([None, None], batch_size=2)),
    "loader of objects": ("collate", lambda: batches([object(), object()], batch_size=2)),
    "split lengths": ("random_split", lambda: data.random_split([1, 2, 3], [1, 1])),
    "tensor dataset sizes": ("TensorDataset", lambda: data.TensorDataset(ad.ones(2), ad.ones(3))),
    "state dict shape": ("weight", lambda: loaded(weight=ad.ones(2, 2), bias=ad.ones(3))),
    "state dict missing": ("bias", lambda: loaded(weight=ad.ones(3, 2))),
    "state dict extra": (
        '"x"',
        lambda: loaded(weight=ad.ones(3, 2), bias=ad.ones(3), x=ad.ones(1)),
    ),
    "optimizer state": ("group", lambda: other_optimizer()),
    "net sizes": ("in b: linear", lambda: Net()(ad.ones(5, 2))),
    "conv rank": ("conv2d", lambda: nn.Conv2d(3, 4, 3)(ad.ones(8, 8))),
    "conv channels groups": ("groups", lambda: nn.Conv2d(3, 4, 3, groups=2)),
    "flatten": ("linear", lambda: nn.Linear(9, 1)(nn.Flatten()(ad.ones(2, 3, 4)))),
    "kernel too large": ("conv2d", lambda: nn.Conv2d(1, 1, 9)(ad.ones(1, 1, 3, 3))),
    "mha heads": ("MultiheadAttention", lambda: nn.MultiheadAttention(5, 2)),
    "dropout p": ("dropout", lambda: nn.Dropout(2.0)),
    "double input": ("conv1d", lambda: nn.Conv1d(1, 1, 1)(ad.ones(1, 1, 2, dtype=ad.float64))),
    "half and float matmul": ("matmul", lambda: ad.ones(2, 2, dtype=ad.float64) @ ad.ones(2, 2)),
    "int mean": ("mean", lambda: ad.ones(2, dtype=ad.int64).mean()),
    "int grad": ("requires_grad", lambda: ad.ones(2, dtype=ad.int64, requires_grad=True)),
    "index float": ("index", lambda: ad.ones(3)[ad.ones(1)]),
    "too many indices": ("index", lambda: ad.ones(3)[0, 0]),
    "cat nothing": ("cat", lambda: ad.cat([])),
    "stack nothing": ("stack", lambda: ad.stack([])),
    "reshape -1 twice": ("reshape", lambda: ad.ones(4).reshape(-1, -1)),
    "tensor ragged": ("tensor", lambda: ad.tensor([[1.0], [1.0, 2.0]])),
    "tensor string": ("tensor", lambda: ad.tensor("a")),
    "item of many": ("item", lambda: ad.ones(2).item()),
    "bool of many": ("bool", lambda: truth(ad.ones(2))),
    "numpy of a leaf": ("numpy", lambda: leaf().numpy()),
    "leaf in place": ("add_", lambda: changed(leaf())),
    "no device": ("device", lambda: ad.ones(2, device="tpu")),
    "no_grad back": ("backward", lambda: without_graph()),
    "backward no grad": ("backward", lambda: ad.ones(1).backward()),
    "function count": ("Two", lambda: Two.apply(leaf()).sum().backward()),
    "function shape": ("Seven", lambda: Seven.apply(leaf()).sum().backward()),
    "target shape": ("cross_entropy", lambda: trained(ad.zeros(3, dtype=ad.int64))),
    "target dtype": ("cross_entropy", lambda: trained(ad.zeros(4))),
    "target range": ("cross_entropy", lambda: trained(ad.zeros(4, dtype=ad.int64) + 9)),
    "vmap sizes": ("vmap", lambda: ad.vmap(lambda a, b: a + b)(ad.ones(2), ad.ones(3))),
    "grad of vector": ("grad", lambda: ad.func.grad(lambda x: x)(ad.ones(2))),
    "einsum of one": ("einsum", lambda: ad.einsum("ij,j->i", ad.ones(2, 2))),
    "seq call": (
        "in 1: linear",
        lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3))(ad.ones(1, 2)),
    ),
    "sequential of function": ("Module", lambda: nn.Sequential(leaf)),
    "embedding negative": ("embedding", lambda: nn.Embedding(3, 2)(ad.tensor([-1]))),
}


def sizes(mistake, word=""):
    """How many frames and lines a mistake prints below this function's own."""
    try:
        mistake()
    except Exception as error:
        printed = "".join(traceback.format_exception(error))
        assert "During handling" not in printed
        assert word in str(error), str(error)
        error.__traceback__ = error.__traceback__.tb_next
        frames = traceback.extract_tb(error.__traceback__)
        return len(frames), len("".join(traceback.format_exception(error)).strip().splitlines())
    raise AssertionError("no error")


def beside(framework):
    """The mistakes with another framework in place of this one."""
    own = {"__name__": __name__, "ad": framework, "nn": framework.nn, "data": framework.utils.data,
           "F": framework.nn.functional}  # fmt: skip
    text = "\n".join(
        line for line in Path(__file__).read_text().split("\ndef sizes(")[0].splitlines()
        if not line.startswith(("from ", "import "))
    )  # fmt: skip
    exec(compile(text, __file__, "exec"), own)
    return own["MISTAKES"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_one_traceback_that_names_the_cause(name):
    word, mistake = MISTAKES[name]
    sizes(mistake, word)


def test_they_are_other_mistakes():
    from .test_tracebacks import MISTAKES as hundred

    assert len(MISTAKES) >= 40 and not set(MISTAKES) & set(hundred)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="`raise` keeps the frame before Python 3.11")
@pytest.mark.filterwarnings("ignore")
def test_frames_and_lines_are_at_most_pytorchs_in_the_mean():
    theirs = beside(pytest.importorskip("torch"))
    pairs = [(sizes(MISTAKES[name][1]), sizes(theirs[name][1])) for name in MISTAKES]
    for k in range(2):  # frames, lines
        assert sum(own[k] for own, _ in pairs) <= sum(other[k] for _, other in pairs)
