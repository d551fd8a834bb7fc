"""docs/glossary.md says what its table says, and the table names what there is."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("glossary", ROOT / "docs" / "build_glossary.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_of_the_table(build):
    assert build.PAGE.read_text() == build.page(), "run python docs/build_glossary.py"


def test_each_word_is_defined_where_the_table_says(build):
    for row in build.words():
        file = ROOT / "adjoint" / f"{row.where}.py"
        assert file.is_file(), row
        if row.word.endswith(".py"):
            assert file.name == row.word, row
        else:
            classes = {n.name for n in ast.parse(file.read_text()).body if hasattr(n, "name")}
            assert row.word in classes, row
        assert row.meaning and row.others and "|" not in row.meaning + row.others, row


def test_no_word_stands_twice(build):
    counted = Counter((row.word, row.where) for row in build.words())
    assert max(counted.values()) == 1, counted.most_common(3)
