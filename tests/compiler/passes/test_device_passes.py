"""Passes over programs of a device of PyTorch's, before and after; what they compute is tested in
test_device.py and, with Triton, in test_triton.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import adjoint as ad
from adjoint.compiler.capture.step_capture import capture
from adjoint.compiler.passes import device_passes
from adjoint.compiler.passes.basic_passes import drop_dead
from adjoint.core import policy

F = ad.nn.functional


def program_of(function, *shapes):
    xs = [ad.randn(*shape, device="torch") for shape in shapes]
    graph = capture(function, xs).program
    graph.verify()
    return graph, Counter(node.op.name for node in graph.nodes)


def names_of(graph):
    graph.verify()
    return Counter(node.op.name for node in graph.nodes)


def test_lay_channels_last():
    weights = [ad.randn(4, c, 3, 3, device="torch") for c in (3, 4)]

    def function(x):
        for w in weights:
            x = F.conv2d(x, w)
        x = F.conv2d(x, weights[1][:, :1], groups=4)  # no product of matrices
        return F.conv2d(x.double(), weights[1].double()), F.conv1d(x[:, :, 0], weights[1][:, :, 0])

    graph, before = program_of(function, (2, 3, 12, 12))
    assert device_passes.lay_channels_last(graph) == 2
    assert names_of(graph) - before == Counter(channels_last=2)
    assert device_passes.lay_channels_last(program_of(lambda x: x * 2, (3,))[0]) == 0


def test_images_from_outside_are_laid_once_for_all_that_read_them():
    w = ad.nn.Parameter(ad.randn(4, 3, 3, 3, device="torch"))

    def function(x):
        y = F.conv2d(x, w)
        (g,) = ad.autograd.grad(y.sum(), w)
        return y, g

    graph, _ = program_of(function, (2, 3, 12, 12))
    assert device_passes.lay_channels_last(graph) == 2
    images = [n.inputs[0] for n in graph.nodes if n.op.name.startswith("convolution")]
    assert images[0] is images[1] and images[0].node.op.name == "channels_last"


def test_open_batch_norms(monkeypatch):
    monkeypatch.setattr(policy, "OPENED_NORM", 1)
    norm = ad.nn.BatchNorm2d(3).to("torch")

    def function(x):
        x = x.detach().requires_grad_()
        y = norm(x).relu()
        return y, *ad.autograd.grad(y.sum(), [x, *norm.parameters()])

    graph, before = program_of(function, (2, 3, 4, 4))
    assert (before["_standardize_channels"], before["_standardize_channels_backward"]) == (1, 1)
    assert device_passes.open_batch_norms(graph) == 2
    drop_dead(graph)
    after = names_of(graph)
    assert not any(name.startswith("_standardize") for name in after)
    assert after["moments"] == 1 and after["sum"] == 2
    for module, name, limit in ((policy, "OPENED_NORM", 97), (device_passes, "OFFSETS", 96)):
        with monkeypatch.context() as limited:  # too small, and more than kernels count
            limited.setattr(module, name, limit)
            graph, _ = program_of(function, (2, 3, 4, 4))
            assert device_passes.open_batch_norms(graph) == 0


def test_a_batch_norm_whose_gradient_is_elsewhere_stays(monkeypatch):
    """What a call alone keeps for a gradient that comes in later."""
    monkeypatch.setattr(policy, "OPENED_NORM", 1)
    norm = ad.nn.BatchNorm2d(3).to("torch")

    graph, _ = program_of(norm, (2, 3, 4, 4))
    node = next(n for n in graph.nodes if n.op.name == "_standardize_channels")
    graph.outputs = [*graph.outputs, node.outputs[-1]]  # as what is kept is
    assert device_passes.open_batch_norms(graph) == 0


def test_one_weight_is_laid_once():
    w = ad.randn(3, 3, 1, 1, device="torch")
    graph, _ = program_of(lambda x: F.conv2d(F.conv2d(x, w), w), (2, 3, 4, 4))
    assert device_passes.lay_channels_last(graph) == 1
    laid = [node.inputs[1] for node in graph.nodes if node.op.name == "convolution"]
    assert laid[0] is laid[1] and laid[0].node.op.name == "channels_last"


def test_keep_places():
    def function(x):
        x = x.detach().requires_grad_()
        y = F.max_pool2d(x, 2)
        (g,) = ad.autograd.grad(y.sum(), x)
        return y, g, F.max_pool2d(x, 3)

    graph, before = program_of(function, (2, 3, 12, 12))
    assert (before["max_pool"], before["max_pool_input"]) == (2, 1)
    assert device_passes.keep_places(graph) == 1
    after = names_of(graph)
    assert (after["max_pool"], after["max_pool_input"]) == (1, 0)
    assert (after["pool_with_places"], after["spread_from_places"]) == (1, 1)


@pytest.mark.parametrize("kept", [False, True])
def test_read_narrow(kept, monkeypatch):
    from adjoint.backends.torch import losses

    monkeypatch.setattr(losses, "LOGITS", 0)
    monkeypatch.setattr(losses, "reason_off", lambda device: "")
    target = ad.tensor([0, 2], device="torch")

    def function(x):
        x = x.bfloat16().detach().requires_grad_()
        wide = x.float()
        (g,) = ad.autograd.grad(F.cross_entropy(wide, target), wide if kept else x)
        return g

    graph, before = program_of(function, (2, 3))
    assert before["cast"] == 3 - kept
    found = device_passes.read_narrow(graph)
    drop_dead(graph)
    after = names_of(graph)
    assert after["_cross_entropy_backward"] == 1
    # the gradient of what is widened is wanted itself, or only narrowed again
    assert (found, after["cast"]) == ((1, 2) if kept else (3, 1))
