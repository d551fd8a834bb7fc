"""What is written for type checkers has the names and the parameters that there are."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The written files: parsed, by module."""
    folder = tmp_path_factory.mktemp("stubs") / "adjoint"
    command = [sys.executable, "-m", "adjoint.tools.stubs", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "ADJOINT_COMPILED": "0"})
    files = {}
    for file in folder.rglob("*.pyi"):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        files[name] = ast.parse(file.read_text())
    return files


def names(body):
    """Names that statements bind."""
    found = set()
    for each in body:
        if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            found.add(each.name)
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            found |= {one.asname or one.name for one in each.names}
        elif isinstance(each, ast.AnnAssign):
            found.add(each.target.id)
    return found


def tensor_class(written):
    return next(
        each
        for each in written["adjoint.tensor"].body
        if isinstance(each, ast.ClassDef) and each.name == "Tensor"
    )


def test_few_arguments_are_of_any_type(written):
    """1,564 of 5,287 were, before arguments said their types; 346 are, a third of them *args."""
    known, unknown = 0, []
    for module, tree in written.items():
        for each in ast.walk(tree):
            if isinstance(each, ast.FunctionDef):
                given = each.args
                for one in (*given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                    if one is not None and one.annotation is not None:
                        known += 1
                        if ast.unparse(one.annotation) == "_Any":
                            unknown.append((module, each.name, one.arg))
    assert known > 5000
    assert len(unknown) <= 360, unknown


def test_the_top_has_each_public_name(written):
    there = {name for name in dir(ad) if not name.startswith("_")}
    assert there - names(written["adjoint"].body) == set()


def test_tensors_have_each_method(written):
    there = {name for name in vars(ad.Tensor) if not name.startswith("_")}
    assert there - names(tensor_class(written).body) == set()


def test_nothing_answers_to_any_name(written):
    for module, tree in written.items():
        assert "__getattr__" not in names(tree.body), module
    assert "__getattr__" not in names(tensor_class(written).body)


@pytest.mark.parametrize("space", ["", "linalg", "fft", "special", "nn.functional"])
def test_parameters_are_those_of_the_functions(written, space):
    module = importlib.import_module(f"adjoint.{space}".rstrip("."))
    place = "adjoint" if not space else f"adjoint.{space}"
    place = place if place in written else f"adjoint.namespaces.{space}"
    compared = 0
    for each in written[place].body:
        if isinstance(each, ast.FunctionDef) and not each.decorator_list:
            given = inspect.signature(getattr(module, each.name)).parameters
            said = [one.arg for one in (*each.args.args, *each.args.kwonlyargs)]
            said = [name for name in said if name != "out"]
            stars = [one.arg for one in (each.args.vararg, each.args.kwarg) if one]
            assert sorted([*said, *stars]) == sorted(set(given) - {"out"}), each.name
            compared += 1
    assert compared > 3
