"""`utils.benchmark` beside PyTorch's: the same measurements make the same texts."""

from __future__ import annotations

import re

import pytest

import adjoint as ad
from adjoint.utils import benchmark

torch = pytest.importorskip("torch")
from torch.utils import benchmark as theirs  # noqa: E402 - of the PyTorch that is there

TIMES = {
    "one": (100, [3.5e-3]),
    "two": (10, [1e-4, 3e-4]),
    "steady": (1000, [1.0, 1.01, 0.99, 1.0, 1.02]),
    "varied": (7, [1e-6, 2e-6, 3e-6, 9e-6]),
    "wavering": (1, [1e-2, 1.1e-2, 1.15e-2, 1.2e-2]),
    "seconds": (1, [12.0]),
    "nanoseconds": (1000, [5e-6, 6e-6]),
}
TASKS = {
    "plain": {"stmt": "f(x)", "setup": "pass"},
    "named": {"stmt": "f(x)", "setup": "x = 1", "label": "f", "sub_label": "s", "num_threads": 2},
    "lines": {"stmt": "y = f(x)\ng(y)", "setup": "x = 1\ny = 2", "sub_label": "s"},
    "lone": {"stmt": "y = f(x)\ng(y)", "setup": "", "description": "d"},
}  # fmt: skip


def text(value):
    return re.sub(r"<.* object at 0x\w+>", "<it>", str(value))


def both(number, times, **task):
    return [
        lib.Measurement(number, list(times), lib.TaskSpec(**task)) for lib in (benchmark, theirs)
    ]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("times", TIMES)
def test_measurements_read_the_same(task, times):
    ours, other = both(*TIMES[times], **TASKS[task])
    assert text(ours) == text(other)
    for name in ("median", "mean", "iqr"):
        assert getattr(ours, name) == pytest.approx(getattr(other, name), rel=1e-6)
    for name in ("times", "significant_figures", "has_warnings", "title", "stmt", "num_threads",
                 "as_row_name"):  # fmt: skip
        assert getattr(ours, name) == getattr(other, name)
    assert ours.task_spec.summarize() == other.task_spec.summarize()


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize("warns", [False, True])
@pytest.mark.parametrize("colors", [None, False, True])
@pytest.mark.parametrize("envs", [(None,), ("old", "new kernel")])
def test_tables_read_the_same(trims, warns, colors, envs):
    tables = []
    for lib in (benchmark, theirs):
        found = []
        for i, env in enumerate(envs):
            for threads in (1, 4):
                for j, size in enumerate(("[1, 1]", "[64, 1024]")):
                    for k, what in enumerate(("mul/sum", "bmm")):
                        if (i, threads, j, k) == (0, 4, 1, 1):
                            continue  # one cell is empty
                        base = (1 + 30 * j) * (1 + 0.4 * k) * (1 + i) * 1e-5 / threads
                        times = [base, base * 1.01, base * (1.02 + 0.3 * j), base * 1.03]
                        task = lib.TaskSpec("f(x)", "pass", "", "dot", size, what, env, threads)
                        found.append(lib.Measurement(1, times, task))
        found.append(lib.Measurement(1, [0.5], lib.TaskSpec("g()", "pass", description="once")))
        table = lib.Compare(found[:3])
        table.extend_results(found[3:])
        if trims:
            table.trim_significant_figures()
        if warns:
            table.highlight_warnings()
        if colors is not None:
            table.colorize(rowwise=colors)
        tables.append(str(table))
    assert tables[0] == tables[1]


def test_measurements_of_one_task_are_merged():
    (a, b), (c, d) = (
        both(2, [4.0], stmt="f()", setup="pass"),
        both(1, [3.0], stmt="f()", setup="pass"),
    )
    ours, other = benchmark.Measurement.merge([a, c]), theirs.Measurement.merge([b, d])
    assert [m.raw_times for m in ours] == [m.raw_times for m in other] == [[2.0, 3.0]]


def test_helpers():
    for t in (2e-9, 9.99e-7, 1e-6, 1.5e-3, 0.9, 1.0, 70.0):
        assert benchmark.select_unit(t)[0] == theirs.select_unit(t)[0]
    for x, n in ((3.14159, 2), (1234.0, 1), (0.00456, 3), (9.99, 2)):
        assert benchmark.trim_sigfig(x, n) == pytest.approx(theirs.trim_sigfig(x, n), rel=1e-6)
    assert [benchmark.unit_to_english(u) for u in ("ns", "s")] == ["nanosecond", "second"]


def test_a_timer_runs_its_statement():
    runs, ticks = [], iter(range(1000))  # each look at the clock is a second later
    timer = benchmark.Timer(
        "runs.append(1); torch.ones(n)", setup="n = 2", globals={"runs": runs},
        timer=lambda: float(next(ticks)), label="ones", num_threads=1,
    )  # fmt: skip
    found = timer.timeit(300)
    assert len(runs) == 303 and found.raw_times == [1.0] and found.number_per_run == 300
    assert found.title == "ones" and found.median == 1 / 300
    seen = []
    before = ad.get_num_threads()
    found = timer.blocked_autorange(lambda number, time: seen.append((number, time)), 0.9)
    assert found.raw_times == [1.0] and seen == [(1, 1.0)] and ad.get_num_threads() == before
    assert timer.adaptive_autorange().raw_times == [1.0] * 4
    assert timer.adaptive_autorange(threshold=-1.0, max_run_time=6.0).raw_times == [1.0] * 7


def test_what_a_timer_refuses():
    for options in ({"stmt": len}, {"global_setup": "#include"}):
        with pytest.raises(ValueError, match=r"benchmark\.Timer"):
            benchmark.Timer(**options)
    with pytest.raises(ad.Unsupported, match="C\\+\\+"):
        benchmark.Timer("1", language="cpp")
    with pytest.raises(ad.Unsupported, match="blocked_autorange"):
        benchmark.Timer("1").collect_callgrind()
    with pytest.raises(ValueError, match="Measurement"):
        benchmark.Compare([3])
    with pytest.raises(AttributeError, match="no_such"):
        _ = benchmark.Timer("1").timeit(1).no_such
