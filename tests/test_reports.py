"""What a test process reports of a test to the one that prints it (`conftest.py`)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def ours(request):
    """The module of the whole project's fixtures."""
    plugins = request.config.pluginmanager.get_plugins()
    [found] = [x for x in plugins if getattr(x, "__file__", None) == str(ROOT / "conftest.py")]
    return found


def item(told, worker=True, durations=None):
    hook = SimpleNamespace(
        pytest_runtest_logstart=lambda **_: told.append("begin"),
        pytest_runtest_logreport=lambda report: told.append(report.when),
        pytest_runtest_logfinish=lambda **_: told.append("end"),
    )
    config = SimpleNamespace(option=SimpleNamespace(durations=durations))
    if worker:
        config.workerinput = {}
    return SimpleNamespace(config=config, ihook=hook, nodeid="test", location=("file", 1, "test"))


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ("setup call teardown", "call"),
        ("setup call! teardown", "call"),
        ("setup! teardown", "setup"),
        ("setup call teardown!", "call teardown"),
        ("setup call! teardown!", "call teardown"),
        ("setup! teardown!", "setup teardown"),
    ],
)
def test_a_worker_reports_calls_and_whatever_has_not_passed(ours, monkeypatch, phases, expected):
    reports = [
        SimpleNamespace(when=each.rstrip("!"), passed="!" not in each) for each in phases.split()
    ]

    def runs(item, log, nextitem):
        assert not log and nextitem == "next"
        return reports

    monkeypatch.setattr(ours, "runtestprotocol", runs)
    told = []
    assert ours.pytest_runtest_protocol(item(told), "next") is True
    assert told == ["begin", *expected.split(), "end"]


@pytest.mark.parametrize("options", [{"worker": False}, {"durations": 0}, {"durations": 10}])
def test_other_processes_report_all_and_times_are_all_there(ours, options):
    told = []
    assert ours.pytest_runtest_protocol(item(told, **options), None) is None
    assert not told
