"""PyTorch's own per-op samples: every entry passes, or is listed with its reason in op_db_gaps.txt.

An entry that is listed must fail (so the list only shrinks); run
`python -m tests.peers.op_db [word ...]` to see the reasons as they are now.
"""

from __future__ import annotations

import pathlib
import warnings

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from ..sweep import one_in
from . import op_db

GAPS = dict(
    line.split(": ", 1)
    for line in (pathlib.Path(__file__).parent / "op_db_gaps.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def test_only_what_is_private_or_out_of_scope_does_not_pass():
    assert set(GAPS) <= set(op_db.entries())
    out_of_scope = {name for name in GAPS if name.startswith("jiterator")} | {"chalf"}
    assert all(GAPS[name].startswith("private to PyTorch") for name in set(GAPS) - out_of_scope)
    assert len(GAPS) < 20 and len(op_db.entries()) > 600


@pytest.mark.parametrize("name", one_in(10, sorted(op_db.entries())))
def test_entry(name, request):
    if name in GAPS:
        request.applymarker(pytest.mark.xfail(reason=GAPS[name], strict=True))
    entry = op_db.entries()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in op_db.check_dtypes(entry):
            op_db.run_entry(entry, dtype, most=12)
