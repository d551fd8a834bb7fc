"""Events, their sums, tables and files; steps and windows."""

from __future__ import annotations

import gzip
import json
import re

import pytest

import adjoint as ad
from adjoint.profiler import (
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def titles(text):
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return re.split(r"\s{2,}", lines[rule + 1].strip())


@pytest.mark.parametrize(
    "options", [{}, {"profile_memory": True}, {"record_shapes": True}, {"with_flops": True}]
)
def test_the_columns_are_pytorchs(options):
    torch = pytest.importorskip("torch")

    def table(module):
        x = module.ones(8, 8)
        with module.profiler.profile(
            activities=[module.profiler.ProfilerActivity.CPU], **options
        ) as prof:
            x @ x
        sums = prof.key_averages(group_by_input_shape="record_shapes" in options)
        return titles(sums.table(sort_by="self_cpu_time_total"))

    assert table(ad) == table(torch)


def profiled(**options):
    with profile(**options) as prof, record_function("both"):
        for _ in range(3):
            ad.ones(2, 3).exp()
        ad.ones(5).exp().sin()
    return prof


def test_sums():
    prof = profiled(record_shapes=True)
    sums = {e.key: e for e in prof.key_averages()}
    assert {key: e.count for key, e in sums.items()} == {"both": 1, "exp": 4, "sin": 1}
    events = [e for e in prof.events() if e.name == "exp"]
    assert sums["exp"].cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in events))
    assert sums["exp"].cpu_time == pytest.approx(sums["exp"].cpu_time_total / 4)
    by_shape = prof.key_averages(group_by_input_shape=True)
    found = {(e.key, str(e.input_shapes)): e.count for e in by_shape}
    assert found["exp", "[[2, 3]]"] == 3 and found["exp", "[[5]]"] == 1
    total = prof.key_averages().total_average()
    assert total.key == "Total" and total.count == 6
    whole = prof.key_averages().self_cpu_time_total
    assert whole == pytest.approx(sums["both"].cpu_time_total)  # each moment once
    assert "FunctionEventAvg key=exp" in repr(sums["exp"])


def test_tables():
    prof = profiled()
    text = prof.key_averages().table(sort_by="count", row_limit=1, header="A header")
    lines = text.splitlines()
    assert lines[1] == "A header" and lines[-1].startswith("Self CPU time total: ")
    assert lines[5].split()[0] == "exp" and lines[6].startswith("---")
    assert len(prof.key_averages().table(row_limit=-1).splitlines()) == 3 + 3 + 2
    top = prof.events().table(top_level_events_only=True)
    assert " both " in top and " exp " not in top
    short = prof.key_averages().table(max_name_column_width=3)
    assert "..." in short
    assert "ms" in prof.key_averages().table(time_unit="ms").splitlines()[-1]
    assert str(prof.key_averages()) == prof.key_averages().table()


def test_what_a_table_cannot_do_is_said():
    sums = profiled().key_averages()
    with pytest.raises(ad.UnknownColumn, match="one of count, cpu_time"):
        sums.table(sort_by="speed")
    with pytest.raises(AttributeError):  # as in PyTorch
        sums.table(sort_by="speed")
    with pytest.raises(ad.InvalidArgument, match="one of s, ms, us"):
        sums.table(time_unit="h")
    with pytest.raises(ad.ProfilerError, match="sums of events"):
        sums.export_chrome_trace("nowhere.json")
    sums.table(sort_by="cuda_time_total")  # of programs that ask for it: zeros


def test_an_empty_profile(tmp_path):
    with profile() as prof:
        pass
    assert len(prof.events()) == 0
    assert prof.key_averages().table(sort_by="cpu_time_total") == ""
    assert prof.total_average().count == 0
    prof.export_chrome_trace(tmp_path / "empty.json")
    json.loads((tmp_path / "empty.json").read_text())


def test_results_before_there_are_some():
    prof = profile()
    for ask in (prof.events, prof.key_averages, prof.step, prof.stop):
        with pytest.raises(ad.ProfilerError):
            ask()
    with prof:
        with pytest.raises(ad.ProfilerError, match="ask after stop"):
            prof.export_chrome_trace("nowhere.json")
        with pytest.raises(ad.ProfilerError, match="has started"):
            prof.start()
        with pytest.raises(AssertionError):  # as in PyTorch
            prof.key_averages()
    with pytest.raises(ad.InvalidArgument, match="members of ProfilerActivity"):
        profile(activities=["cpu"])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_chrome_trace(tmp_path, name):
    prof = profiled(record_shapes=True, profile_memory=True)
    prof.add_metadata("model", "none")
    prof.add_metadata_json("sizes", "[1, 2]")
    with pytest.raises(ad.InvalidArgument, match="no JSON"):
        prof.add_metadata_json("sizes", "[1, 2")
    prof.export_chrome_trace(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    trace = json.loads(gzip.decompress(data) if name.endswith("gz") else data)
    assert trace["model"] == "none" and trace["sizes"] == [1, 2] and trace["record_shapes"] == 1
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in complete] == ["both", "exp", "exp", "exp", "exp", "sin"]
    assert [e["cat"] for e in complete[:2]] == ["user_annotation", "cpu_op"]
    assert complete[1]["args"]["Input Dims"] == [[2, 3]]
    both = complete[0]
    for event in complete[1:]:
        assert both["ts"] <= event["ts"] and event["dur"] >= 0
        assert event["ts"] + event["dur"] <= both["ts"] + both["dur"] + 1e-3
    memory = [e for e in trace["traceEvents"] if e["name"] == "[memory]"]
    assert sum(e["args"]["Bytes"] for e in memory) == 0 and {e["ph"] for e in memory} == {"i"}


def test_a_chrome_trace_has_the_fields_of_pytorchs(tmp_path):
    torch = pytest.importorskip("torch")

    def fields(module, path):
        with module.profiler.profile() as prof, module.profiler.record_function("block"):
            module.ones(2).exp()
        prof.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
        events = [e for e in trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]
        return set(trace), {e["cat"]: set(e) for e in events}

    ours, our_events = fields(ad, tmp_path / "ours.json")
    theirs, their_events = fields(torch, tmp_path / "theirs.json")
    assert our_events == their_events
    assert ours <= theirs


def test_stacks(tmp_path):
    with profile(with_stack=True) as prof:
        ad.ones(2).exp()
    assert "test_results.py" in prof.events()[0].stack[0]
    assert prof.events()[0].stack[0].endswith(": test_stacks")
    assert "Source Location" in prof.key_averages(group_by_stack_n=2).table()
    prof.export_stacks(tmp_path / "stacks.txt")
    line = (tmp_path / "stacks.txt").read_text().splitlines()[0]
    assert re.fullmatch(r".*: test_stacks \d+", line)
    with pytest.raises(ad.UnknownColumn, match="self_cpu_time_total"):
        prof.export_stacks(tmp_path / "stacks.txt", "speed")
    with pytest.raises(ad.ProfilerError, match="with_stack=True"):
        profiled().export_stacks(tmp_path / "stacks.txt")


def run_steps(count, **options):
    seen = []

    def ready(prof):
        seen.append((prof.step_num, [e.name for e in prof.events()]))

    with profile(on_trace_ready=ready, **options) as prof:
        for step in range(count):
            (ad.ones(1).exp if step % 2 else ad.ones(1).sin)()
            prof.step()
    return prof, seen


def test_windows_of_steps():
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    prof, seen = run_steps(10, schedule=plan)
    window = ["ProfilerStep#2", "sin", "ProfilerStep#3", "exp"]
    later = ["ProfilerStep#6", "sin", "ProfilerStep#7", "exp"]
    assert seen == [(4, window), (8, later)]
    assert [e.name for e in prof.events()] == later
    prof, seen = run_steps(10, schedule=plan, acc_events=True, profile_memory=True)
    events = prof.events()
    assert [e.name for e in events] == window + later
    assert [e.id for e in events] == list(range(8))
    starts = [e.time_range.start for e in events]  # since the first window began
    assert starts == sorted(starts)
    changes = [when for when, _, _ in events.trace.memory]
    assert changes[0] < events[4].began < changes[-1]


def test_a_window_that_the_program_ends():
    _, seen = run_steps(3, schedule=schedule(wait=1, warmup=0, active=5))
    assert seen == [(3, ["ProfilerStep#1", "exp", "ProfilerStep#2", "sin", "ProfilerStep#3"])]
    _, seen = run_steps(1, schedule=schedule(wait=3, warmup=0, active=1))
    assert seen == []


def test_a_schedule_that_does_not_save_warns():
    actions = ad.profiler.ProfilerAction
    plan = {0: actions.RECORD}
    with pytest.warns(UserWarning, match="instead of RECORD_AND_SAVE"):
        _, seen = run_steps(2, schedule=lambda n: plan.get(n, actions.NONE))
    assert seen == []


def test_a_window_goes_on_after_a_block_has_brought_back_a_mode():
    plan = schedule(wait=1, warmup=0, active=2, repeat=1)
    with profile(schedule=plan) as prof:
        with ad.no_grad():
            prof.step()
            ad.ones(1).exp()
        prof.step()
        ad.ones(1).sin()
        prof.step()
    assert [e.name for e in prof.events()] == ["ProfilerStep#1", "exp", "ProfilerStep#2", "sin"]


def test_no_observer_while_a_schedule_waits():
    from adjoint.core.mode import DEFAULT, MODE

    with profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=1)) as prof:
        for waits in (True, True, False, True):
            assert (MODE.get() is DEFAULT) == waits
            prof.step()


def test_pausing():
    with profile() as prof:
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        ad.ones(1).exp()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        ad.ones(1).sin()
    assert [e.name for e in prof.events()] == ["sin"]


@pytest.mark.parametrize("use_gzip", [False, True])
def test_traces_for_tensorboard(tmp_path, use_gzip):
    handler = tensorboard_trace_handler(str(tmp_path / "runs"), "me", use_gzip)
    run = schedule(wait=0, warmup=0, active=1, repeat=1)
    with profile(schedule=run, on_trace_ready=handler) as prof:
        ad.ones(1).exp()
        prof.step()
    (file,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"me\.\d+\.pt\.trace\.json" + (r"\.gz" if use_gzip else ""), file.name)
    (tmp_path / "file").write_text("")
    with pytest.raises(ad.InvalidArgument, match="can't create directory"):
        tensorboard_trace_handler(str(tmp_path / "file" / "x"))(prof)


def test_the_older_names():
    from adjoint.autograd.profiler import profile as older
    from adjoint.autograd.profiler import record_function as recorded

    assert recorded is record_function
    with older(use_cuda=False) as prof, recorded("block"):
        ad.ones(1).exp()
    assert [e.name for e in prof.function_events] == ["block", "exp"]
    assert " exp " in prof.table(sort_by="cpu_time_total") and prof.self_cpu_time_total > 0
    with older(enabled=False) as prof:
        ad.ones(1).exp()
    with pytest.raises(ad.ProfilerError):
        prof.table()
    assert "profile" in dir(ad.autograd.profiler)
    with pytest.raises(AttributeError):
        ad.autograd.profiler.nothing  # noqa: B018


def test_activities_are_accepted():
    with profile(activities=list(ProfilerActivity), use_cuda=True) as prof:
        ad.ones(1).exp()
    assert len(prof.events()) == 1
    assert ad.profiler.supported_activities() == {ProfilerActivity.CPU}
