"""Names that programs import stay: those of 2026-11-29, recorded in `public_names.txt`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import adjoint as ad

RECORDED = Path(__file__).with_name("public_names.txt").read_text()
NAMES = {
    where: names.split()
    for where, names in re.findall(r"^(\S+) (.*(?:\n .*)*)", RECORDED, re.MULTILINE)
}


def missing(where: str, names: list[str]) -> list[str]:
    """Those of the names that cannot be had."""
    place = ad.Tensor if where == "adjoint.Tensor" else importlib.import_module(where)
    return [name for name in names if not hasattr(place, name)]


def test_the_list_is_read_as_it_was_written():
    assert len(NAMES) == 121 and len(NAMES["adjoint"]) > 1000 and len(NAMES["adjoint.Tensor"]) > 630
    assert all(re.fullmatch(r"\w+", name) for names in NAMES.values() for name in names)


@pytest.mark.parametrize("where", NAMES)
def test_all_are_there(where):
    assert missing(where, NAMES[where]) == []


def test_one_that_has_gone_is_noticed():
    assert missing("adjoint.onnx", ["load", "loads_no_more"]) == ["loads_no_more"]
