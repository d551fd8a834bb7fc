"""Every keyword of PyTorch's modules is one of ours, and of functions where names were added.

docs/pytorch.md counts the keywords of all functions; `tests/test_pytorch_names.py` holds it true.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def missing(function: Any, wanted: set[str]) -> set[str]:
    """Those of `wanted` that `function` takes by place only, or not at all."""
    taken = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in taken):  # it hands them on
        return set()
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return wanted - {p.name for p in taken if p.kind in by_keyword}


_THERE = [n for n in torch.nn.modules.__all__ if hasattr(ad.nn, n)]
MODULES = [n for n in _THERE if issubclass(getattr(ad.nn, n), ad.nn.Module)]


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    """Constructors, and what is handed to a module."""
    theirs, ours = getattr(torch.nn, name), getattr(ad.nn, name)
    allowed = {"min_value", "max_value"} if name == "Hardtanh" else set()  # deprecated since 0.4
    for method in ("__init__", "forward"):
        given = inspect.signature(getattr(theirs, method)).parameters.values()
        wanted = {p.name for p in given if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        assert missing(getattr(ours, method), wanted - {"self"}) <= allowed


def test_names_of_arguments_that_were_added() -> None:
    for t in (torch, ad):
        x = t.arange(6.0).reshape(2, 3)
        assert [p.shape for p in t.hsplit(x, sections=3)] == [(2, 1)] * 3
        assert [p.shape for p in t.vsplit(x, indices=(1,))] == [(1, 3)] * 2
        assert [p.shape[1] for p in t.tensor_split(x, indices=[1], dim=1)] == [1, 2]
        factor = t.tensor([[2.0]])
        assert t.cholesky_solve(input=t.tensor([[8.0]]), input2=factor).item() == 2
        assert t.cholesky_inverse(input=factor).item() == 0.25
        assert t.scalar_tensor(2, layout=t.strided).item() == 2
        assert t.zeros_like(x, pin_memory=False).sum() == 0
    for given in ({}, {"indices": (1,), "sections": 2}):
        with pytest.raises(TypeError, match="once"):
            ad.hsplit(ad.ones(4), **given)
