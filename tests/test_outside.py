"""`make outside`: what it compares, that a run goes on after a crash, and its page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

OUTSIDE = Path(__file__).parent / "outside"

SUITE = """
import os, random, pytest, torch
def test_draws(): assert random.random() == 0.8444218515250481
def test_ends(): os._exit(3)
@pytest.mark.parametrize("n", [0, 1])
def test_goes_on(n): assert torch.tensor(n) == 0
def test_elsewhere(): pytest.skip("no such thing")
@pytest.fixture
def broken(): raise OSError
def test_fixture(broken): pass
"""


@pytest.fixture
def outside(monkeypatch, tmp_path):
    """The module run.py, with lists of its own."""
    monkeypatch.syspath_prepend(OUTSIDE)
    monkeypatch.setenv("OUTSIDE_LOG", str(tmp_path / "none"))
    import run

    yield run
    for name in ("run", "watch"):
        sys.modules.pop(name, None)


def lists(outside, monkeypatch, tmp_path, differences):
    (tmp_path / "differences.toml").write_text(differences)
    monkeypatch.setattr(outside, "HERE", tmp_path)


@pytest.mark.parametrize(
    ("differences", "failing"),
    [
        ("", ["a.py::f[x]: failed: why", "a.py::g: missing: it was not collected"]),
        ('[s]\n"a.py::*" = "open: all"', ["a.py::f[y]: passes, but is listed: open: all"]),
        ('[s]\n"a.py::f[x]" = "open: one"\n"a.py::g" = "open: two"', []),
        ('[s]\n"a.py::?[x]" = "open"\n"a.py::g" = "open"\n"b" = "open"', ["b: listed, but"]),
    ],
)
def test_what_differs_fails_unless_it_is_listed(
    outside, monkeypatch, tmp_path, differences, failing
):
    lists(outside, monkeypatch, tmp_path, differences)
    found = {"a.py::f[x]": ("failed", "why"), "a.py::f[y]": ("passed", ""), "new": ("failed", "")}
    lines, failed = outside.compare("s", ["a.py::f[x]", "a.py::f[y]", "a.py::g"], found)
    assert failed == len(failing) == len(lines) - 1
    assert lines[-1] == "s: PyTorch passes 3, adjoint 1 of them"
    for line, said in zip(lines, failing, strict=False):
        assert line.startswith(f"FAILED s {said}")


def test_a_run_goes_on_after_a_crash(outside, monkeypatch, tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    monkeypatch.setattr(outside, "environment", lambda: sys.executable)
    monkeypatch.setattr(outside, "checkout", lambda suite: tmp_path)
    notes = tmp_path / "suite.jsonl"
    notes.write_text(json.dumps(["test_suite.py::test_elsewhere", "passed", ""]) + "\n")
    assert outside.run("suite", {"tests": ["test_suite.py"]}, notes, aliased=True)
    found = {each.partition("::")[2]: said for each, (said, _) in outside.outcomes(notes).items()}
    assert found == {
        "test_draws": "passed", "test_ends": "crashed", "test_goes_on[0]": "passed",
        "test_goes_on[1]": "failed", "test_elsewhere": "passed", "test_fixture": "failed",
    }  # fmt: skip


def test_what_is_absent_cannot_be_imported(outside, monkeypatch, tmp_path):
    (tmp_path / "test_suite.py").write_text("def test_one(): import colorsys")
    monkeypatch.setattr(outside, "environment", lambda: sys.executable)
    monkeypatch.setattr(outside, "checkout", lambda suite: tmp_path)
    for absent, said in ([], "passed"), (["colorsys"], "failed"):
        notes = tmp_path / f"{said}.jsonl"
        assert outside.run("suite", {"tests": ["."], "absent": absent}, notes, aliased=True)
        assert [each for each, _ in outside.outcomes(notes).values()] == [said]


def test_what_the_limit_interrupts_is_done_later(outside, monkeypatch, tmp_path):
    (tmp_path / "test_suite.py").write_text(
        "import time\ndef test_one(): pass\ndef test_two(): time.sleep(100)"
    )
    monkeypatch.setattr(outside, "environment", lambda: sys.executable)
    monkeypatch.setattr(outside, "checkout", lambda suite: tmp_path)
    notes, wait = tmp_path / "suite.jsonl", outside.wait

    def until_two(process, notes, limit):
        while not notes.exists() or '_two"]' not in notes.read_text():
            assert process.poll() is None
        monkeypatch.setattr(outside.time, "monotonic", lambda: limit + 1)
        return wait(process, notes, limit)

    monkeypatch.setattr(outside, "wait", until_two)
    assert not outside.run("suite", {"tests": ["test_suite.py"]}, notes, aliased=True)
    assert outside.outcomes(notes) == {"test_suite.py::test_one": ("passed", "")}


def test_a_checkout_is_at_its_commit(outside, monkeypatch, tmp_path):
    suite = {"repository": "owner/name", "commit": "0" * 40}
    monkeypatch.setenv("OUTSIDE", str(tmp_path))
    with pytest.raises(SystemExit, match=r"git clone https://github\.com/owner/name"):
        outside.checkout(suite)


def test_the_page_is_what_is_recorded(outside):
    assert outside.PAGE.read_text() == outside.page(), "python tests/outside/run.py page"
    names = {path.stem for path in (OUTSIDE / "recorded").glob("*.json")}
    assert names == set(outside.read("suites.toml")) >= set(outside.read("differences.toml"))
