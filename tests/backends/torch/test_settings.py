"""Settings under PyTorch's names reach PyTorch, which computes by them."""

from __future__ import annotations

import subprocess
import sys

import torch

import adjoint as ad


def test_settings_reach_pytorch():
    ad.zeros(1, device="torch")
    with ad.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        assert torch.backends.cudnn.benchmark and not torch.backends.cudnn.allow_tf32
        assert ad.backends.cudnn.benchmark and not ad.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.benchmark and not ad.backends.cudnn.benchmark
    ad.use_deterministic_algorithms(True, warn_only=True)
    assert torch.get_deterministic_debug_mode() == 1
    ad.use_deterministic_algorithms(False)
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_was_set_before_pytorch_was_loaded():
    program = (
        "import sys, adjoint as ad\n"
        "ad.backends.cudnn.benchmark = True\n"
        "ad.set_float32_matmul_precision('high')\n"
        "assert 'torch' not in sys.modules\n"
        "ad.zeros(1, device='torch')\n"
        "import torch\n"
        "assert torch.backends.cudnn.benchmark and torch.backends.cuda.matmul.allow_tf32\n"
        "ad.backends.cuda.matmul.allow_tf32 = False\n"
        "assert not torch.backends.cuda.matmul.allow_tf32\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not found.returncode, found.stderr


def test_rounding_of_convolutions_is_a_setting(device):
    """On CUDA, by TF32, the products are of ten bits; elsewhere the setting changes nothing."""
    x, w = ad.randn(8, 64, 16, 16).to(device), ad.randn(64, 64, 3, 3).to(device)
    exact = ad.nn.functional.conv2d(x.double(), w.double())
    for allowed in (False, True):
        ad.backends.cudnn.allow_tf32 = allowed
        error = (ad.nn.functional.conv2d(x, w) - exact).norm() / exact.norm()
        assert error < (1e-3 if allowed else 1e-5), allowed
