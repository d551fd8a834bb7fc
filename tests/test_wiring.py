"""Slots: what lower layers call of higher ones is set in one file, and in no other."""

from __future__ import annotations

import ast
from pathlib import Path

import adjoint as ad
from adjoint.autograd.batching import Batched
from adjoint.autograd.dual import Dual
from adjoint.autograd.forward_level import OpenDual
from adjoint.ops.create.conversion import Sparse
from adjoint.ops.index.selected import Selected
from adjoint.runtime import dispatch, fused, op_functions, public, tensors, writes
from adjoint.runtime.cells import Cell, SourceCell
from adjoint.runtime.lazy import LazyValue

PACKAGE = Path(ad.__file__).parent
WIRING = PACKAGE / "autograd" / "wiring.py"
REGISTRIES = {"EXECUTORS", "RECORDERS", "WRITERS"}


def fills(text: str) -> set[str]:
    """What a module sets of other modules: calls of their `connect`, entries of registries."""
    found = set()
    if not any(word in text for word in ("connect", *REGISTRIES)):
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            if node.func.attr == "connect" or (node.func.attr == "update" and owner in REGISTRIES):
                found.add(owner)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Subscript):
                        owner = ast.unparse(part.value).rpartition(".")[2]
                        found |= {owner} & REGISTRIES
    return found


def test_one_file_fills_the_slots():
    assert fills(WIRING.read_text()) == {"tensors", "public", "fused", *REGISTRIES}
    for file in sorted(PACKAGE.rglob("*.py")):
        if file != WIRING:
            filled = fills(file.read_text())
            assert not filled & {"tensors", "public", "fused", *REGISTRIES}, file


def test_functions_named_connect_are_those_it_calls():
    folders = ("core", "ir", "runtime", "ops")
    declared = {
        file.stem
        for folder in folders
        for file in (PACKAGE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("connect")
    }
    assert declared == {"tensors", "public", "fused"}


def test_the_checks_bite():
    assert fills("from x import tape\ntape.EXECUTORS[int] = f") == {"EXECUTORS"}
    assert fills("fused.connect(f)") == {"fused"}
    assert fills("dispatch.EXECUTORS.update(a=1)") == {"EXECUTORS"}


def test_every_slot_is_filled():
    assert tensors.Tensor is ad.Tensor
    assert {LazyValue, Cell, SourceCell, Sparse, Batched, Dual, OpenDual} <= set(dispatch.EXECUTORS)
    leveled = {Batched, Dual, OpenDual}
    kinds = {LazyValue, Cell, SourceCell, Selected, Sparse, *leveled}
    assert kinds == set(writes.WRITERS)
    assert set(op_functions.RECORDERS) == {1, 2}
    for slot in (public._write_out, public._write, public._rebind, fused._execute):
        assert slot.__module__.startswith("adjoint.autograd.")
