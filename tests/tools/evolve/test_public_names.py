"""The library is written as a user's program is: on public names alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.core.faces import FACES, PACKAGES

FOLDER = Path(ad.__file__).parent / "tools" / "evolve"
FILES = sorted(FOLDER.glob("*.py"))
PUBLIC = {"adjoint", *(f"adjoint.{name}" for name in (*FACES, *PACKAGES))}
OTHERS = {"numpy"}  # what the package itself needs


def refused(source):
    """The imports, and attributes of `ad` and what is imported, that are none of the public's."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for name in (alias.name for alias in node.names):
                top = name.partition(".")[0]
                good = name in PUBLIC or top in OTHERS or top in sys.stdlib_module_names
                wrong += [] if good else [name]
        elif isinstance(node, ast.ImportFrom) and node.level:
            inside = node.level == 1 and "." not in (node.module or "")
            wrong += [] if inside else ["." * node.level + (node.module or "")]
        elif isinstance(node, ast.ImportFrom):
            top = node.module.partition(".")[0]
            private = any(alias.name.startswith("_") for alias in node.names)
            known = node.module in PUBLIC or top in OTHERS or top in sys.stdlib_module_names
            if node.module == "adjoint":
                known = all(f"adjoint.{a.name}" in PUBLIC for a in node.names)
            future = node.module == "__future__"
            wrong += [] if future or (known and not private) else [node.module]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("ad", "nn")
            and (node.attr.startswith("_") or node.attr in ("core", "runtime", "ir", "ops"))
        ):
            wrong.append(f"{node.value.id}.{node.attr}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_uses_public_names_only(path):
    assert refused(path.read_text()) == []


@pytest.mark.parametrize("source", [
    "from adjoint.core.policy import LIMIT", "import adjoint.runtime.tensors", "import torch",
    "from ...core import errors", "from ..cli import main", "from adjoint import core",
    "from adjoint.nn import _private", "from adjoint.tools.cli import main", "ad.core.dtype",
    "from adjoint.reactive.graph import Graph", "ad._faces", "from .genome.inner import x",
])  # fmt: skip
def test_what_is_not_public_is_noticed(source):
    assert refused(source)


@pytest.mark.parametrize("source", [
    "import adjoint as ad", "from adjoint import nn", "from .genome import Genome", "import json",
    "import numpy as np", "from adjoint.nn import Linear", "ad.nn.Linear", "from . import pictures",
])  # fmt: skip
def test_what_is_public_is_allowed(source):
    assert refused(source) == []


def test_the_library_is_small():
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= 2500
