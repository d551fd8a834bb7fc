"""The README's and the documentation's code runs; every public name is documented."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import adjoint as ad
from adjoint.eager.public import FUNCTIONS, INPLACE, METHODS

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def runnable(page):
    """The page's Python blocks; the architecture page quotes the source instead."""
    return [] if page.name == "architecture.md" else BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: p.name)
def test_documentation_code_runs(page, tmp_path, programs):
    program = "\n".join(runnable(page))
    result = programs.run(program, tmp_path, Warning)
    assert result.returncode == 0, result.stderr


def test_the_readme_example_is_short_and_learns(tmp_path):
    program = runnable(ROOT / "README.md")[0]
    assert runnable(ROOT / "docs" / "index.md")[0] == program
    assert len([line for line in program.splitlines() if line]) <= 13
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert float(result.stdout) < 1e-3


def test_the_chart_is_of_the_table():
    spec = importlib.util.spec_from_file_location("chart", ROOT / "docs" / "build_chart.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    found = build.ratios(build.PAGE.read_text())
    assert list(found) == list(build.NAMES.values())
    assert all(set(row) == set(build.PEERS) for row in found.values())
    assert build.CHART.read_text() == build.chart(found), "run python docs/build_chart.py"


def test_each_page_is_in_the_menu_once():
    menu = re.findall(r"^  - (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(menu) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith(("http", "reference/")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def public_callables():
    for name in sorted(vars(ad)):
        value = getattr(ad, name)
        ours = str(getattr(value, "__module__", "")).startswith("adjoint")
        if (
            not name.startswith("_")
            and ours
            and callable(value)
            and not isinstance(value, ad.dtype)
            and not (name.endswith("_") and value is getattr(ad.Tensor, name, None))
        ):
            yield pytest.param(value, id=name)


@pytest.mark.parametrize("value", list(public_callables()))
def test_public_docstrings_are_complete(value):
    text = inspect.getdoc(value) or ""
    first = text.split("\n\n")[0]
    assert first.endswith("."), f"the docstring must begin with one sentence, got {first!r}"
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    assert ">>>" in text, "the docstring needs an example"


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_name_their_source(name):
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    assert "Source:" in text or "Same as" in text, f"{name}: where is it specified?"


@pytest.mark.parametrize("name", sorted({*METHODS, *INPLACE}))
def test_methods_are_documented(name):
    method = getattr(ad.Tensor, name)
    assert inspect.getdoc(method), f"Tensor.{name} has no docstring"


def test_every_public_name_has_a_page_in_the_reference():
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build_reference.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    described = {name for _, names in build.topics() for name in names}
    assert {"sum", "Tensor", "no_grad", "ShapeError"} <= described
    assert "sum(input, dim=None, keepdim=False, *, dtype=None, out=None)" in build.describe(
        "sum", ad.sum
    )


def test_doctests_of_generated_functions_run():
    """The functions that `unary` and `binary` make carry their op's example."""
    finder = doctest.DocTestFinder(recurse=False)
    assert finder.find(ad.exp, globs={"ad": ad})[0].examples
