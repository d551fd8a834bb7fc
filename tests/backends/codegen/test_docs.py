"""docs/compiler.md is true."""

import re
from pathlib import Path

from adjoint.backends.codegen import maths

PAGE = (Path(__file__).parents[3] / "docs" / "compiler.md").read_text()


def test_its_program_runs_and_its_listing_is_what_is_printed():
    names: dict = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(program, names)
    (listing,) = re.findall(r"```\n(kernel .*?)\n```", PAGE, re.DOTALL)
    assert str(names["k"]) == listing


def test_its_table_of_functions_is_the_codes():
    ways = {"here": "here", "in float64": "float64", "C library": "libm"}
    said = {}
    for names, *columns in re.findall(
        r"^\| ([a-z0-9 ]+) \| (\w[^|]*) \| (\w[^|]*) \|$", PAGE, re.M
    ):
        for dtype, way in zip(("float32", "float64"), columns, strict=True):
            said |= {(name, dtype): ways[way] for name in names.split() if way in ways}
    assert said == maths.HOW


def test_it_names_every_file():
    package = Path(__file__).parents[3] / "adjoint" / "backends" / "codegen"
    for path in package.glob("[a-z]*.py"):
        assert f"`{path.name}`" in PAGE
