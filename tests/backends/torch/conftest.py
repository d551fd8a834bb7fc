"""The devices on which these tests run: PyTorch's memory on the CPU, and CUDA where that is."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import torch

import adjoint as ad

DEVICES = [
    pytest.param("torch"),
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not ad.cuda.is_available(), reason="there is no CUDA device"),
    ),
]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def one_thread():
    """The samples are small: more threads only wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.fixture(autouse=True)
def whole_floats():
    """Convolutions on CUDA in full float32, not in TF32: what is compared with the CPU."""
    before = ad.backends.cudnn.allow_tf32
    ad.backends.cudnn.allow_tf32 = False
    yield
    ad.backends.cudnn.allow_tf32 = before
