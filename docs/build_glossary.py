"""Write docs/glossary.md from glossary.tsv: the words of the source, and what others call it.

    python docs/build_glossary.py

A test holds the page to the table, and the table to the source.
"""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("glossary.tsv")
PAGE = TABLE.with_suffix(".md")

HEAD = """# Glossary

The words that the source uses, where each is defined, and what PyTorch, JAX or another project
calls the same thing. `docs/build_glossary.py` writes this page from `docs/glossary.tsv`. Names with
an underscore are private to their file.
"""


class Word(NamedTuple):
    """A class, or a file with the suffix `.py`."""

    word: str
    where: str  # the file that defines it, below `adjoint/`, without suffix
    meaning: str
    others: str  # "-" where no one else has a word for it


def words() -> list[Word]:
    """The table's rows, in order of the alphabet."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [Word(**row) for row in csv.DictReader(file, dialect="excel-tab")]
    return sorted(rows, key=lambda row: (row.word.lower().lstrip("_"), row.where))


def page() -> str:
    """The text of the page: one table a letter."""
    parts = [HEAD]
    for letter, rows in groupby(words(), key=lambda row: row.word.lstrip("_")[0].upper()):
        lines = [
            f"| `{row.word}` | {row.meaning} | `{row.where}.py` | {row.others} |" for row in rows
        ]
        head = "| word | meaning | file | elsewhere |\n|---|---|---|---|"
        parts.append("\n".join([f"## {letter}\n", head, *lines]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
