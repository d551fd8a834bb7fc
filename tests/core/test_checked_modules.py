"""Switches that are no switches, and calls that would do nothing or lose something, silently."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import types

import pytest

import adjoint as ad


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (ad, "enable_autocast", "autocast"),
        (ad, "set_num_thread", "set_num_threads"),
        (ad, "grad_enabled", "is_grad_enabled"),
        (ad.backends, "cudn", "cudnn"),
        (ad.backends.cudnn, "benchmrk", "benchmark"),
        (ad.backends.mkldnn, "enable", "enabled"),
        (ad.backends.cuda, "allow_tf32", "elsewhere"),
        (ad.backends.cuda.matmul, "alow_tf32", "allow_tf32"),
        (ad.cuda, "enabled", "elsewhere"),
        (ad.autograd, "anomaly", "detect_anomaly"),
    ],
)
@pytest.mark.parametrize("value", [True, 1, 0.5, "high"])
def test_unknown_switches_are_refused(module, name, near, value):
    with pytest.raises(ad.InvalidArgument, match=name) as caught:
        setattr(module, name, value)
    assert near in str(caught.value) and repr(value) in str(caught.value)
    assert name not in vars(module)


def test_what_packages_patch_may_be_set(monkeypatch):
    for value in (lambda: 1, dict, types.ModuleType("mine"), None, [1], ad.ones(1)):
        monkeypatch.setattr(ad, "something_of_mine", value, raising=False)
        assert ad.something_of_mine is value
    monkeypatch.setattr(ad, "_mine", True, raising=False)
    monkeypatch.setattr(ad, "pi", 3)  # one that there is
    monkeypatch.setattr(ad.backends.cudnn, "benchmark", True)
    assert ad.backends.cudnn.benchmark
    monkeypatch.undo()
    assert not hasattr(ad, "something_of_mine") and not ad.backends.cudnn.benchmark


def test_in_pytorchs_place_anything_may_be_set():
    code = (
        "import adjoint; adjoint.as_torch(); import torch; torch.my_flag = True\n"
        "class F(torch.autograd.Function):\n"
        "    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x); ctx.save_for_backward(x, x); return x * 1\n"
        "    def backward(ctx, g): return g * len(ctx.saved_tensors)\n"
        "F.forward, F.backward = staticmethod(F.forward), staticmethod(F.backward)\n"
        "x = torch.ones(1, requires_grad=True); F.apply(x).backward(); print(x.grad.item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2.0\n", done.stderr


def test_autocast_without_a_device():
    x = ad.ones(2, 2)
    with ad.autocast(dtype=ad.float16):
        assert (x @ x).dtype is ad.float16
    with ad.autocast(dtype="bfloat16"):
        assert (x @ x).dtype is ad.bfloat16
    with ad.autocast(enabled=False):
        assert (x @ x).dtype is ad.float32


def test_save_for_backward_twice():
    class Twice(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x)
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g, g

    x = ad.ones(1, requires_grad=True)
    with pytest.raises(ad.AutogradError, match=r"save_for_backward: .* 1 tensor.*one call"):
        Twice.apply(x, x)


def test_modules_travel_by_their_names():
    """As the globals of a function that is sent to another process do."""
    for module in (ad, ad.backends):
        assert type(module) is not types.ModuleType
        assert pickle.loads(pickle.dumps(module)) is module
        assert copy.deepcopy([module])[0] is module
