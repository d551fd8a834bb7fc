"""The parts of the sweep, and what is chosen by a commit's hash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import conftest

from .sampled import STEPS
from .sweep import one_in, part_of
from .turn import PARTS, reached, turn

ROOT = Path(__file__).parent.parent
COMMITS = [f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835:040x}"[-40:] for number in range(1, 2000)]


def test_each_test_belongs_to_one_part_and_parts_are_alike():
    names = [f"tests/test_x.py::test_{n}[case{n}]" for n in range(7000)]
    sizes = Counter(part_of(name, PARTS) for name in names)
    assert sorted(sizes) == list(range(PARTS))
    assert max(sizes.values()) < 1.2 * min(sizes.values())


def test_what_is_not_in_a_part_is_deselected():
    items = [SimpleNamespace(nodeid=f"test_{n}") for n in range(100)]
    left = []
    for part in range(PARTS):
        dropped = []
        hook = SimpleNamespace(pytest_deselected=lambda *, items: dropped.extend(items))  # noqa: B023
        config = SimpleNamespace(getoption=lambda _: part, hook=hook)  # noqa: B023
        kept = list(items)
        conftest.pytest_collection_modifyitems(config, kept)
        assert len(kept) + len(dropped) == len(items)
        left += kept
    assert sorted(item.nodeid for item in left) == sorted(item.nodeid for item in items)
    kept = list(items)
    conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: None), kept)
    assert kept == items


FILES = ["tests/distributed/test_faults.py", "tests/test_signals.py", "tests/test_memory.py"]


def collected(marks, *files):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-o", "addopts=-q", "-m"]
    done = subprocess.run(
        [*command, marks, *files], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_no_test_but_the_swept_is_left_out_when_no_items_are_made_of_those():
    few, swept = collected("not sweep", *FILES), collected("sweep", *FILES)
    assert few and swept and not few & swept
    assert few | swept == collected("sweep or not sweep", *FILES)


def test_all_is_chosen_in_turn():
    pythons, processors = ["3.10", "3.12", "3.13"], ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    found = [turn(commit, pythons, processors) for commit in COMMITS]
    assert found == [turn(commit, pythons, processors) for commit in COMMITS]
    counts = Counter(found)
    assert len(counts) == PARTS * 9
    assert max(counts.values()) < 4 * min(counts.values())


@pytest.mark.parametrize("processor", one_in(3, reached()))
def test_libraries_take_the_machine_for_a_narrower_one(processor):
    if processor == "this":
        return
    pytest.importorskip("torch")
    program = (
        "import adjoint as ad, torch\n"
        "from numpy._core._multiarray_umath import __cpu_features__ as have\n"
        "print(ad.backends.cpu.get_cpu_capability(), torch.backends.cpu.get_cpu_capability())\n"
        "print([have.get('FMA3', False) and have.get('AVX2', False), have['AVX512F']])"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.turn", "on", processor, sys.executable, "-c", program],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONWARNINGS": ""},
    )  # fmt: skip
    names = {"x86-64-v2": "DEFAULT", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512"}
    assert done.stdout.splitlines()[0] == f"{names[processor]} {names[processor]}", done.stderr


@pytest.mark.parametrize("file", STEPS)
def test_tests_that_are_sampled_are_there(file):
    text = (ROOT / file).read_text()
    for name, step in STEPS[file].items():
        assert step > 1 and f"\ndef {name}(" in text, name


def test_of_sampled_tests_the_first_of_so_many_cases_is_left():
    file = "tests/compiler/test_narrow_numbers.py"
    few, swept = collected("not sweep", file), collected("sweep", file)
    assert 2 * len(few) < len(few) + len(swept) == len(collected("sweep or not sweep", file))
