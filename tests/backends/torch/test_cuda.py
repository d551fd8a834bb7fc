"""`adjoint.cuda`: what it says where there is no device, and what it does where there is one."""

from __future__ import annotations

import contextlib
import warnings

import pytest

import adjoint as ad

with_cuda = pytest.mark.skipif(not ad.cuda.is_available(), reason="there is no CUDA device")
without_cuda = pytest.mark.skipif(ad.cuda.is_available(), reason="there is a CUDA device")


@without_cuda
def test_questions_have_answers():
    assert ad.cuda.device_count() == 0 and not ad.cuda.is_bf16_supported()
    assert ad.cuda.memory_allocated() == ad.cuda.max_memory_reserved() == 0
    assert ad.cuda.memory_stats() == {} and ad.cuda.get_rng_state_all() == []
    ad.cuda.empty_cache()
    ad.cuda.ipc_collect()
    with ad.cuda.stream(None):
        assert ad.ones(1).device.type == "cpu"


@without_cuda
@pytest.mark.parametrize(
    "name",
    [
        "synchronize", "current_device", "get_device_name", "get_device_properties", "mem_get_info",
        "current_stream", "default_stream", "Stream", "Event", "initial_seed", "get_rng_state",
        "memory_summary", "reset_peak_memory_stats", "init",
    ],
)  # fmt: skip
def test_what_needs_a_device_says_so(name):
    with pytest.raises(ad.DeviceError, match=rf"cuda\.{name}.*is_available"):
        getattr(ad.cuda, name)()


def test_only_cuda_devices_have_numbers():
    with pytest.raises(ad.InvalidType, match="cpu"):
        ad.cuda.device("cpu")


@with_cuda
def test_facts():
    assert ad.cuda.device_count() > 0 and ad.cuda.current_device() == 0
    assert ad.cuda.get_device_name() == ad.cuda.get_device_properties(0).name
    assert ad.accelerator.current_accelerator() == ad.device("cuda")
    free, total = ad.cuda.mem_get_info()
    assert 0 < free <= total
    assert ad.ones(1, device="cuda").device == ad.device("cuda:0")


@with_cuda
def test_memory_is_counted():
    before = ad.cuda.memory_allocated()
    ad.cuda.reset_peak_memory_stats()
    x = ad.empty(1 << 20, device="cuda")
    assert ad.cuda.memory_allocated() - before == x.nbytes
    del x
    assert ad.cuda.memory_allocated() == before
    assert ad.cuda.max_memory_allocated() - before >= 1 << 22


@with_cuda
def test_operations_are_queued():
    """A product returns before it is done; an event tells when it is."""
    x = ad.randn(8192, 8192).to("cuda")
    ad.cuda.synchronize()
    start, end = (ad.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        y = x @ x
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0 and y.device.type == "cuda"


@contextlib.contextmanager
def waiting_refused():
    """PyTorch raises where something waits for the device."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@with_cuda
def test_training_reads_nothing_but_what_the_program_reads():
    model = ad.nn.Sequential(
        ad.nn.Linear(8, 8), ad.nn.LayerNorm(8), ad.nn.GELU(), ad.nn.Linear(8, 4)
    ).to("cuda")
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x = ad.ones(4, 8, device="cuda")
    y = ad.zeros(4, dtype=ad.int64, device="cuda")
    with waiting_refused():
        loss = ad.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.isfinite().item()


@with_cuda
def test_streams():
    side = ad.cuda.Stream()
    x = ad.ones(1000, device="cuda")
    side.wait_stream(ad.cuda.current_stream())
    with ad.cuda.stream(side):
        assert ad.cuda.current_stream() == side
        y = x * 2
    ad.cuda.current_stream().wait_stream(side)
    assert y.sum().item() == 2000


@with_cuda
def test_pinned_memory():
    x = ad.ones(1000).pin_memory()
    assert x.is_pinned() and not ad.ones(1).is_pinned() and x.pin_memory() is x
    assert ad.zeros(3, pin_memory=True).is_pinned()
    assert x.to("cuda", non_blocking=True).sum().item() == 1000
