"""Tensors and modules in memory that processes share, however these were started."""

from __future__ import annotations

import multiprocessing
import pickle
import sys

import pytest

import adjoint as ad

STARTS = multiprocessing.get_all_start_methods()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files without names are Linux's")


def train(model, view, plain, queue):
    """One step on what was sent, in another process."""
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    model(ad.ones(4, 2)).sum().backward()
    optimizer.step()
    view.add_(10)
    plain.add_(10)
    queue.put(view)
    queue.get()  # until the other has it


def leave(view, queue):
    queue.put(view.is_shared())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_another_process_trains_a_module(start):
    context = multiprocessing.get_context(start)
    ad.manual_seed(0)
    model = ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.BatchNorm1d(3)).share_memory()
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole, plain = ad.arange(6.0).view(2, 3).clone().share_memory_(), ad.ones(2)
    there, queue = whole[1:, ::2], context.Queue()
    process = context.Process(target=train, args=(model, there, plain, queue))
    process.start()
    back = queue.get(timeout=60)
    queue.put(None)
    process.join(60)
    assert process.exitcode == 0
    after = model.state_dict()
    changed = [name for name in before if not ad.equal(before[name], after[name])]
    assert "1.bias" in changed and "1.running_mean" in changed and model[0].weight.grad is None
    assert whole.tolist() == [[0, 1, 2], [13, 4, 15]] and plain.tolist() == [1, 1]
    assert back.tolist() == [[13, 15]]
    whole[1, 0] = 7.0
    assert back.tolist() == [[7, 15]] and back.is_shared()


@pytest.mark.parametrize("dtype", [ad.bfloat16, ad.int8, ad.complex64, ad.bool])
@pytest.mark.parametrize("shape", [(), (0,), (15,), (2, 1, 3)])
def test_every_tensor_comes_back_as_it_went(dtype, shape):
    context = multiprocessing.get_context("fork")
    x = ad.ones(shape).to(dtype).share_memory_()
    queue = context.SimpleQueue()
    queue.put(x)
    y = queue.get()
    assert y.dtype is x.dtype and y.shape == x.shape and ad.equal(x, y) and y.is_shared()
    x.fill_(0)
    assert ad.equal(x, y)
    parameter = ad.nn.Parameter(ad.ones(2)).share_memory_()
    parameter.mark = "kept"
    queue.put(parameter)
    got = queue.get()
    assert type(got) is ad.nn.Parameter and got.requires_grad and got.mark == "kept"
    with ad.no_grad():
        got.mul_(3)
    assert parameter.tolist() == [3, 3] and got.is_leaf


def test_other_pickles_are_copies():
    x = ad.ones(2).share_memory_()
    y = pickle.loads(pickle.dumps(x))
    x.add_(1)
    assert y.tolist() == [1, 1] and not y.is_shared()
    queue = multiprocessing.get_context("fork").SimpleQueue()
    queue.put(ad.ones(2))
    assert not queue.get().is_shared()
    with pytest.raises(ad.AutogradError, match="detach"):
        queue.put(ad.nn.Parameter(ad.ones(1)).share_memory_() * 2)
