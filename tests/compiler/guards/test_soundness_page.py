"""The page on soundness has the entries of the tables, and their counts."""

from __future__ import annotations

import itertools
import pathlib
import re

import adjoint as ad
from adjoint.compiler.guards import code_observer, known_types, standard_library
from tests.compiler import test_python_programs
from tests.compiler.guards import test_closed_world, test_libraries
from tests.compiler.python_ways import EFFECTS, NOT_YET, WAYS

PAGE = (pathlib.Path(ad.__file__).parents[1] / "docs" / "compiler" / "soundness.md").read_text()


def row(start):
    """The cells of the one row of the page that begins so."""
    [line] = [each for each in PAGE.splitlines() if each.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_entry_of_the_tables_is_on_the_page_with_a_reason():
    rows = [row(f"`{first}`") for first in ("math", "itertools", "abc")]
    named = [re.findall(r"`(\w+)`", entries) for entries, *_ in rows]
    assert sorted(itertools.chain(*named)) == sorted(code_observer._PURE)
    assert [int(count) for _, count, _ in rows] == [len(names) for names in named]
    entries, count, reason = row("`sys`")
    assert re.findall(r"`(\w+)`", entries) == list(code_observer._PURE_NAMES)
    assert int(count) == sum(map(len, code_observer._PURE_NAMES.values()))
    assert all(reason for *_, reason in rows) and reason
    assert int(row("types in C")[1]) == len(known_types._KNOWN_TYPES)


def test_the_counts_of_the_page_are_those_of_today():
    assert f"- {len(code_observer._READERS)} functions of Python and NumPy" in PAGE
    assert f"{len(standard_library._CONSTANT)} modules are known to stay" in PAGE
    ways, changes = len(WAYS), len({kind for way in WAYS for kind, _ in way.changes})
    libraries = len(test_libraries.BY_NAME) + len(test_libraries.STATE)
    assert {
        "`tests/compiler/guards/test_closed_world.py`": len(test_closed_world.READS),
        "`tests/compiler/guards/test_libraries.py`": libraries,
        "`tests/compiler/test_python_programs.py`": ways,
        "| kinds of change": changes,
        "| effects": len(EFFECTS),
        "| of these known to be wrong": sum(map(len, NOT_YET.values())),
        "| refused at most": round(100 * test_python_programs.REFUSED),
    } == {start: int(row(start)[-1]) for start in COUNTED}


COUNTED = (
    "`tests/compiler/guards/test_closed_world.py`", "`tests/compiler/guards/test_libraries.py`",
    "`tests/compiler/test_python_programs.py`", "| kinds of change", "| effects",
    "| of these known to be wrong", "| refused at most",
)  # fmt: skip


def test_what_is_not_yet_right_is_said():
    assert not NOT_YET
    assert "Not yet\n\nWhere you replace a function of adjoint past its module" in PAGE
