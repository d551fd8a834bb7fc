"""`torch._utils` and `torch.cuda.nvtx`: what packages use of them, beside PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch._utils

import adjoint as ad
from adjoint.torch_api.alias import internal, nvtx

SHAPES = [(), (3,), (0, 2), (2, 2), (1, 1, 1)]


def both(program):
    return program(internal, ad), program(torch._utils, torch)


def test_tensors_in_one_and_apart():
    def program(utils, lib):
        several = [
            lib.arange(float(i), i + lib.zeros(s).numel()).view(s) for i, s in enumerate(SHAPES)
        ]
        flat = utils._flatten_dense_tensors(several)
        parts = utils._unflatten_dense_tensors(flat, several)
        parts[1].mul_(2)  # views
        one = utils._flatten_dense_tensors(several[1:2])
        one.add_(1)  # a view, too
        return flat.tolist(), [each.tolist() for each in parts], several[1].tolist(), one.tolist()

    ours, theirs = both(program)
    assert ours == theirs


@pytest.mark.parametrize("limit", [1, 16, 40, 1000])
def test_tensors_in_buckets(limit):
    def program(utils, lib):
        several = [lib.zeros(n, dtype=t) for n in (1, 3, 0, 8, 2) for t in (lib.float32, lib.int64)]
        found = utils._take_tensors(several, limit)
        return [[(tuple(x.shape), str(x.dtype).partition(".")[2]) for x in each] for each in found]

    ours, theirs = both(program)
    assert ours == theirs


def test_devices_and_names():
    def program(utils, lib):
        assert utils._get_device_index(2) == 2 and utils._get_device_index("cuda:1") == 1
        assert utils._get_device_index("cpu", allow_cpu=True) == -1
        for wrong in ("cpu", None):
            with pytest.raises(ValueError, match=r"Expected a (torch\.device|non cpu)"):
                utils._get_device_index(wrong)
        assert utils._import_dotted_name("os.path.join") is __import__("os").path.join
        assert utils is not internal or not utils.is_compiling()  # PyTorch's warns
        return type("Layer", (), {"a": utils.classproperty(lambda kind: kind.__name__)}).a

    assert both(program) == ("Layer", "Layer")


def test_marks_for_nvidia_are_refused_as_without_cuda():
    for mark in (nvtx.range_push, torch.cuda.nvtx.range_push):
        if mark is nvtx.range_push or not torch.cuda.is_available():
            with pytest.raises(RuntimeError, match="NVTX functions not installed"):
                mark("a")
