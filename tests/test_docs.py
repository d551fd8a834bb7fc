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
from adjoint.runtime.public import FUNCTIONS, INPLACE, METHODS
from tests.test_public_names import NAMES

ROOT = pathlib.Path(__file__).parent.parent
WRITTEN = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if page.parent.name != "reference"  # from docstrings, and not in the repository
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(page):
    return str(page.relative_to(ROOT))


def runnable(page):
    return BLOCK.findall(page.read_text())


def paragraphs(text):
    """Prose: not code, tables and headings; each item of a list is one."""
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith(("|", "#", "<"))]
        yield from re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines))


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=name)
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
    menu = re.findall(r"^ +- (?:[^:\n]+: )?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(menu) == sorted(str(page.relative_to(ROOT / "docs")) for page in WRITTEN)


def test_a_tab_has_five_to_nine_entries():
    tabs = re.split(r"^  - (.+):", (ROOT / "mkdocs.yml").read_text(), flags=re.M)[1:]
    counts = {
        tab: len(re.findall(r"^      - ", entries, re.M))
        for tab, entries in zip(tabs[::2], tabs[1::2], strict=True)
        if re.search(r"^      - .*md$", entries, re.M)
    }
    assert len(counts) == 5  # beside the reference, whose entries are groups and the overview
    counts["Reference"] = 1 + len(reference_builder().GROUPS)
    assert all(5 <= count <= 9 for count in counts.values()), counts


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith(("http", "reference/")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_paragraph_is_a_wall(page):
    for text in paragraphs(page.read_text()):
        assert len(text.split()) <= 120, text


def test_a_wall_would_be_noticed():
    wall = "word " * 121
    assert max(len(text.split()) for text in paragraphs(f"Short.\n\n{wall}\n\n- a\n- b")) == 121
    assert max(len(text.split()) for text in paragraphs(f"| {wall} |\n\n```\n{wall}\n```")) == 0


def guides():
    tab = (ROOT / "mkdocs.yml").read_text().partition("  - Guides:\n")[2].partition("\n  - ")[0]
    return [ROOT / "docs" / page for page in re.findall(r"(\w+\.md)$", tab, re.M)]


@pytest.mark.parametrize("page", guides(), ids=name)
def test_a_guide_begins_with_a_short_program(page):
    assert len([line for line in runnable(page)[0].splitlines() if line]) <= 15


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "inside").glob("*.md")), ids=name)
def test_a_page_of_a_room_is_short_and_has_a_drawing(page):
    text = page.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\w[^\s|]*", prose)) <= 600
    assert "```text\n" in text


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_code_is_not_wider_than_the_page(page):
    """At 1300 pixels: 90 characters, 135 on a page of measurements."""
    limit = 135 if page.parent.name == "measurements" else 90
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        assert max(map(len, block.splitlines())) <= limit, block


def reference_builder():
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build_reference.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build


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
    build = reference_builder()
    described = {name for _, names in build.topics() for name in names}
    assert {"sum", "Tensor", "no_grad", "ShapeError"} <= described
    assert "sum(input, dim=None, keepdim=False, *, dtype=None, out=None)" in build.describe(
        "sum", ad.sum
    )


def test_every_public_name_of_every_module_has_a_page_in_the_reference():
    """Names that programs import (`public_names.txt`) are described, whatever module has them."""
    build = reference_builder()
    described = [(n, getattr(ad, n)) for _, names in build.topics() for n in names]
    for where in build.MODULES:
        module = importlib.import_module(where)
        described += [(n, getattr(module, n)) for n in build.public_names(module)]
    seen, called = {id(value) for _, value in described}, {name for name, _ in described}
    lacking = []
    for where, names in NAMES.items():
        module = importlib.import_module(where) if where != "adjoint.Tensor" else ad  # methods
        for name in names if where != "adjoint.Tensor" else ():
            value = getattr(module, name)
            ours = str(getattr(value, "__module__", "")).startswith("adjoint")
            if not callable(value) or inspect.ismodule(value) or not ours or name[0] == "_":
                continue
            in_place = name.endswith("_") and value is getattr(ad.Tensor, name, None)
            again = where == "adjoint" and name in called  # nn.functional's
            if not in_place and not again and id(value) not in seen:
                lacking.append(f"{where}.{name}")
    assert lacking == []
    for name in ("func", "inference", "sklearn", "distributed", "pnnx", "onnx", "utils"):
        assert f"adjoint.{name}" in build.MODULES


@pytest.mark.parametrize(
    ("word", "page"),
    [("macOS", "installing"), ("notebook", "notebook"), ("early stopping", "loops"),
     ("custom loss", "loops"), ("progress bar", "loops"), ("scikit-learn", "loops"),
     ("fine-tuning", "loops"), ("serving", "loops"), ("ragged", "loops")],
)  # fmt: skip
def test_words_that_are_searched_for_are_on_their_page(word, page):
    assert word.lower() in (ROOT / "docs" / f"{page}.md").read_text().lower()


def test_doctests_of_generated_functions_run():
    """The functions that `unary` and `binary` make carry their op's example."""
    finder = doctest.DocTestFinder(recurse=False)
    assert finder.find(ad.exp, globs={"ad": ad})[0].examples
