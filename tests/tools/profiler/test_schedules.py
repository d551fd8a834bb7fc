"""`schedule` and names, compared with PyTorch's."""

from __future__ import annotations

import contextlib
import inspect
import itertools

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


def test_schedules_are_pytorchs():
    choices = itertools.product((0, 2), (0, 1), (1, 3), (0, 2), (0, 3), (0, 1))
    for wait, warmup, active, repeat, skip, skip_wait in choices:
        given = {
            "wait": wait, "warmup": warmup, "active": active, "repeat": repeat,
            "skip_first": skip, "skip_first_wait": skip_wait,
        }  # fmt: skip
        ours = ad.profiler.schedule(**given)
        with pytest.warns() if not warmup else contextlib.nullcontext():
            theirs = torch.profiler.schedule(**given)
        assert [ours(n).name for n in range(30)] == [theirs(n).name for n in range(30)], given


def test_bad_schedules_name_the_numbers():
    for given in ({"wait": -1, "warmup": 0, "active": 1}, {"wait": 0, "warmup": 0, "active": 0}):
        with pytest.raises(ad.InvalidArgument, match="active must be at least 1"):
            ad.profiler.schedule(**given)
    with pytest.raises(ad.InvalidArgument, match="counted from 0"):
        ad.profiler.schedule(wait=0, warmup=1, active=1)(-1)


def test_names_are_pytorchs():
    left_out = {"ExecutionTraceObserver"}
    assert set(ad.profiler.__all__) == set(torch.profiler.__all__) - left_out
    actions = torch.profiler.ProfilerAction.__members__  # one of which concerns devices
    assert set(ad.profiler.ProfilerAction.__members__) == set(actions) - {"DEVICE_STOPPED"}
    activities = set(torch.profiler.ProfilerActivity.__members__)
    assert set(ad.profiler.ProfilerActivity.__members__) == activities
    own = set(dir(ad.profiler.profile()))
    for name in ("start", "stop", "step", "events", "key_averages", "export_chrome_trace",
                 "export_stacks", "add_metadata", "add_metadata_json",
                 "toggle_collection_dynamic"):  # fmt: skip
        assert name in own and hasattr(torch.profiler.profile, name)


@pytest.mark.parametrize(
    "ours, theirs, missing",
    [
        (ad.profiler.schedule, torch.profiler.schedule, set()),
        (ad.profiler.tensorboard_trace_handler, torch.profiler.tensorboard_trace_handler,
         {"use_python_export"}),
        (ad.profiler.profile, torch.profiler.profile,
         {"execution_trace_observer", "custom_trace_id_callback", "post_processing_timeout_s"}),
        (ad.profiler.profile.key_averages, torch.profiler.profile.key_averages, set()),
        (ad.profiler.record_function, torch.profiler.record_function, set()),
    ],
)  # fmt: skip
def test_arguments_are_pytorchs(ours, theirs, missing):
    expected = [p for p in inspect.signature(theirs).parameters if p not in missing]
    assert list(inspect.signature(ours).parameters) == expected
