"""A plugin of pytest: notes each test as it begins and as it ends, and goes on where a run stopped.

`run.py` loads it (`-p watch`) into the interpreter that runs somebody's suite; OUTSIDE_LOG names
the file of its notes, one JSON list a line: [id], then [id, outcome, reason].
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys

import pytest

LIMIT = 60  # seconds of the processor that a test may take
TOO_LATE = 79  # what a process ends with after such a test
LOG = os.environ["OUTSIDE_LOG"]
sys.modules.update(dict.fromkeys(os.environ.get("OUTSIDE_ABSENT", "").split()))


def notes(path):
    """The outcomes in a file of notes; a test that began and did not end has crashed."""
    found = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                name, *rest = json.loads(line)
                found[name] = tuple(rest) or ("crashed", "the process ended within it")
    return found


def note(*what):
    with open(LOG, "a") as file:
        file.write(json.dumps(what) + "\n")


def pytest_collection_modifyitems(config, items):
    done = notes(LOG)
    items[:] = [item for item in items if item.nodeid not in done]


def pytest_collectreport(report):
    if report.failed:
        note(report.nodeid, "failed", reason_of(report))


def reason_of(report):
    """The last line of what went wrong, and the last lines of the way there."""
    if isinstance(report.longrepr, tuple):  # skipped: file, line, reason
        return str(report.longrepr[2])[:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    said = str(crash.message if crash else report.longrepr or "")
    where = f" [{crash.path}:{crash.lineno}]" if crash else ""
    return " ".join(said.split())[:400] + where


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Begin each test from the same seed, whatever ran before it. One that takes too long ends the
    process: what it was interrupted in, an import perhaps, would fail those that follow.
    """
    import numpy as np
    import torch

    def late(*_):
        note(item.nodeid, "failed", f"took over {LIMIT} s of the processor")
        os._exit(TOO_LATE)

    note(item.nodeid)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


WORST = ("passed", "skipped", "failed")


def pytest_runtest_logreport(report):
    before = SEEN.get(report.nodeid, ("passed", ""))
    outcome = report.outcome if not hasattr(report, "wasxfail") else "skipped"
    if WORST.index(outcome) > WORST.index(before[0]):
        SEEN[report.nodeid] = (outcome, reason_of(report))
    if report.when == "teardown":
        note(report.nodeid, *SEEN.pop(report.nodeid, ("passed", "")))


SEEN: dict[str, tuple[str, str]] = {}  # of the test that runs: the worst of its three parts
