"""The numbers that functions are computed with: as they were found, to the last bit."""

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adjoint
from adjoint.backends.codegen.coefficients import fitted
from adjoint.backends.numpy import coefficients as special

from ..numpy import fit_special
from .fit import FITS, by_bits, found, quarters

PACKAGE = Path(adjoint.__file__).parent


@pytest.mark.parametrize("name", ["EXP_64", "SIN_32", "COS_64"])
def test_the_script_finds_what_the_file_holds(name: str) -> None:
    function, bits = name.split("_")
    (how,) = [rest for own, *rest in FITS if own == function and rest[0] == f"float{bits}"]
    assert found(*how)[0] == fitted(name)


def test_the_middles_of_quarters_are_what_the_script_writes() -> None:
    assert fitted("QUARTERS_32") == tuple(
        x for (x,) in by_bits([[middle] for _, middle, _ in quarters()])
    )


QUICK = ["erf", "erfcx", "lgamma", "digamma", "i0_small", "i1_large", "j0", "j1", "ai"]


@pytest.mark.parametrize("name", QUICK)
def test_the_script_of_special_functions_finds_what_the_file_holds(name: str) -> None:
    assert tuple(fit_special.coefficients(*fit_special.FITS[name])) == special.fitted(name)


@pytest.mark.parametrize(
    ("file", "digest"),
    [
        ("backends/codegen/coefficients.json", "2556034f328ede02"),
        ("backends/numpy/coefficients.json", "16c720734cadeeed"),
    ],
)
def test_no_bit_has_changed(file: str, digest: str) -> None:
    entries = json.loads((PACKAGE / file).read_text(encoding="utf-8"))
    total = hashlib.sha256()
    for name, entry in entries.items():
        total.update(name.encode())
        total.update(b"".join(struct.pack("<d", x) for x in _numbers(entry["numbers"])))
    assert total.hexdigest()[:16] == digest


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    else:
        yield value
