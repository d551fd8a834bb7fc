"""PyTorch's own module samples: every entry passes, or is listed with its reason in
module_db_gaps.txt.

An entry that is listed must fail (so the list only shrinks); run
`python -m tests.peers.module_db [word ...]` to see the reasons as they are now.
"""

from __future__ import annotations

import pathlib
import warnings

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

import adjoint as ad

from ..sweep import swept
from . import module_db

GAPS = dict(
    line.split(": ", 1)
    for line in (pathlib.Path(__file__).parent / "module_db_gaps.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


@pytest.fixture(autouse=True)
def one_thread():
    """The samples are small: more threads only wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def test_nineteen_of_twenty_entries_pass():
    assert set(GAPS) <= set(module_db.entries())
    assert len(GAPS) <= 0.05 * len(module_db.entries())


@pytest.mark.parametrize(
    ("way", "most"), [("eager", 2), *(swept((way, 1000)) for way in module_db.WAYS)]
)
@pytest.mark.parametrize("name", sorted(module_db.entries()))
def test_entry(name, way, most, request):
    if name in GAPS:
        request.applymarker(pytest.mark.xfail(reason=GAPS[name], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module_db.run_entry(module_db.entries()[name], most, way)


def test_the_comparison_sees_a_wrong_gradient(monkeypatch):
    """The checker itself: a loss whose gradient is doubled does not pass."""

    class Wrong(ad.nn.MSELoss):
        def forward(self, input, target):
            loss = super().forward(input, target)
            return loss + (loss - loss.detach())

    Wrong.__name__ = "MSELoss"
    monkeypatch.setattr(ad.nn, "MSELoss", Wrong)
    with pytest.raises(AssertionError, match="gradient 0"):
        module_db.run_entry(module_db.entries()["MSELoss"])


def test_every_module_and_function_exists():
    """All of torch.nn's modules, and all of nn.functional, but for what is listed here."""
    modules = set(torch.nn.modules.__all__) - {"Container", "NLLLoss2d", "SyncBatchNorm"}
    assert {name for name in modules if not hasattr(ad.nn, name)} == set()
    assert {name for name in modules if not hasattr(ad.nn.modules, name)} == set()
    public = {
        name
        for name, value in vars(torch.nn.functional).items()
        if callable(value) and not name.startswith("_") and name[0].islower()
        and getattr(value, "__module__", None) in ("torch.nn.functional", "torch._C._nn", None)
    }  # fmt: skip
    absent = {name for name in public if not hasattr(ad.nn.functional, name)}
    assert absent <= {
        "conv_tbc",
        "assert_int_or_pair",
        "grouped_mm",
        "scaled_grouped_mm",
        "scaled_mm",
    }


def test_modules_are_found_in_pytorchs_files():
    """`from adjoint.nn.modules.loss import CTCLoss` and the like (lazy layers are in `lazy`)."""
    import importlib

    for name in set(torch.nn.modules.__all__) - {"Container", "NLLLoss2d", "SyncBatchNorm"}:
        file = getattr(torch.nn, name).__module__.rpartition(".")[2]
        if not name.startswith("Lazy") and file != "linear_cross_entropy_options":
            found = importlib.import_module(f"adjoint.nn.modules.{file}")
            assert getattr(found, name) is getattr(ad.nn, name)
