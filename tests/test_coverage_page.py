"""docs/coverage.md says what the code has."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

for _name in ("onnx", "torch", "llvmlite"):
    pytest.importorskip(_name)

ROOT = pathlib.Path(__file__).parent.parent


def builder():
    spec = importlib.util.spec_from_file_location("coverage", ROOT / "docs" / "build_coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_has():
    build = builder()
    assert build.PAGE.read_text() == build.page(), "run python docs/build_coverage.py"


def test_a_gap_without_a_reason_is_refused():
    build = builder()
    with pytest.raises(SystemExit, match="Unknown"):
        build._by_reason(["Unknown"], (("Known", "why"),))
    assert build._by_reason(["Two", "One"], (("One T.o", "why"),)) == ["- Why: `One`, `Two`."]
