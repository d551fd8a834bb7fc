"""Lines of code: of the package, folder by folder, and of what a reader of the core must read.

    python -m benchmarks.lines

Only lines that hold code count: no blank lines, comments and docstrings, and no data files.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "adjoint"
CORE = ("core", "ir", "runtime", "autograd")  # what a newcomer reads first
GOALS = {"package": 68_000, "core": 8_500}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """How many lines of a Python file hold code.

    >>> code_lines("'''A module.'''\\n\\nx = 1  # one\\n# a comment\\ny = (\\n    2\\n)\\n")
    4
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def docstring_lines(text: str) -> set[int]:
    """The numbers of the lines that docstrings take up."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


def count(package: Path = PACKAGE) -> Counter[str]:
    """Lines of code of each folder of the package, its own files as '(top level)'."""
    counts: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        folder = parts[0] if len(parts) > 1 else "(top level)"
        counts[folder] += code_lines(path.read_text(encoding="utf-8"))
    return counts


def main() -> None:
    """Prints the table."""
    counts = count()
    for folder, lines in counts.most_common():
        print(f"{folder:<16}{lines:>8,}")
    totals = {"package": counts.total(), "core": sum(counts[folder] for folder in CORE)}
    print()
    for name, lines in totals.items():
        print(f"{name:<16}{lines:>8,}   goal: at most {GOALS[name]:,}")


if __name__ == "__main__":
    main()
