"""Every keyword of PyTorch's functions is one of ours: by its stubs, in all overloads.

`inspect.signature` says nothing of functions made in C++; their `.pyi` files do. What can be
inspected, `test_signatures.py` compares.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

STUBS = {  # where the stubs are, the class in them, and what holds ours
    "": ("_C/_VariableFunctions.pyi", None, ad),
    "Tensor": ("_C/__init__.pyi", "TensorBase", ad.Tensor),
    "nn.functional": ("nn/functional.pyi", None, ad.nn.functional),
    "_nn": ("_C/_nn.pyi", None, ad.nn.functional),
}
EVERYWHERE = {
    "out": "of functions with a decorator for it, whatever the signature says",
    "self": "the tensor itself",
}
# Keywords that are not taken, and why.
DIFFERENT: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("addmm", "baddbmm", "bmm", "mm"), ("out_dtype", "of CUDA alone")),
    "full": ("names", "tensors have no named dimensions"),
    "group_norm": ("cudnn_enabled", "of CUDA alone"),
    "layer_norm": ("cudnn_enable", "of CUDA alone"),
    **dict.fromkeys(("alpha_dropout", "dropout", "feature_alpha_dropout"),
                    ("train", "one function serves nn.functional, whose word is training")),
    **dict.fromkeys(("det", "slogdet", "matrix_exp"), ("input", "linalg's function, with its A")),
    **dict.fromkeys(("detach_", "dsmm", "hsmm", "resize_as_sparse_", "spmm"),
                    ("input mat2", "the method")),
    "dequantize": ("tensors", "refused, for there are no quantized tensors"),
    "isin": ("element test_element", "one function for numbers and tensors"),
    "result_type": ("tensor other scalar scalar1 scalar2", "one function, of two things"),
    "resize_as_": ("input the_template", "the method, whose word is other"),
    "rrelu": ("generator", "drawn from the default generator"),
    "rrelu_": ("generator", "drawn from the default generator"),
    "unsafe_split": ("input", "the method"),
    **dict.fromkeys(("tril_indices", "triu_indices"), ("pin_memory requires_grad", "integers")),
    "Tensor.cholesky_solve": ("L", "the name that torch.cholesky_solve has"),
    "Tensor.copy_": ("other", "the stub alone says so: the method takes src"),
    "Tensor.expand": ("implicit", "private"),
    "Tensor.map_": ("other", "the stub alone says so: the method takes tensor"),
    "Tensor.new": ("cls other size storage", "deprecated; by place"),
    "Tensor.repeat": ("repeats", "by place, as sizes are"),
    "Tensor.resize_": ("size", "by place, as sizes are"),
    "Tensor.sum_to_size": ("size", "by place, as sizes are"),
    "Tensor.requires_grad_": ("mode", "the stub alone says so: the method takes requires_grad"),
    "Tensor.resize_as_": ("the_template", "PyTorch's other name of other"),
    "Tensor.to": ("other", "by place"),
    "nn.Hardtanh": ("min_value max_value", "deprecated since 0.4"),
    "_nn.elu": ("scale input_scale", "private; SELU has them"),
}  # fmt: skip


def stubs(path: str, kind: str | None) -> dict[str, set[str]]:
    """The names that the overloads of each public function take by keyword."""
    body: Any = ast.parse((Path(torch.__file__).parent / path).read_text()).body
    if kind is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == kind).body
    found: dict[str, set[str]] = {}
    for each in body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            names = {a.arg for a in (*each.args.args, *each.args.kwonlyargs)}
            found.setdefault(each.name, set()).update(names - EVERYWHERE.keys())
    return found


def missing(function: Any, wanted: set[str]) -> set[str]:
    """Those of `wanted` that `function` takes by place only, or not at all."""
    taken = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in taken):  # it hands them on
        return set()
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return wanted - {p.name for p in taken if p.kind in by_keyword}


@pytest.mark.parametrize("where", STUBS)
def test_keywords(where: str) -> None:
    path, kind, holder = STUBS[where]
    compared, wrong = 0, {}
    for name, wanted in stubs(path, kind).items():
        function = getattr(holder, name, None)
        if function is None:  # docs/pytorch.md lists what is absent
            continue
        compared += 1
        full = f"{where}.{name}".lstrip(".")
        lacking = missing(function, wanted)
        allowed = set(DIFFERENT.get(full, ("", ""))[0].split())
        if lacking - allowed:
            wrong[full] = sorted(lacking - allowed)
    assert not wrong
    assert compared >= {"": 480, "Tensor": 400, "nn.functional": 90, "_nn": 25}[where]


def test_the_table_is_short_and_true() -> None:
    """Nothing is listed that is taken."""
    for full, (names, _) in DIFFERENT.items():
        where, _, name = full.rpartition(".")
        if where == "" and not name.endswith("_"):
            holder = STUBS[where][2]
            assert missing(getattr(holder, name), set(names.split())), full


_THERE = [n for n in torch.nn.modules.__all__ if hasattr(ad.nn, n)]
MODULES = [n for n in _THERE if issubclass(getattr(ad.nn, n), ad.nn.Module)]


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    """Constructors, and what is handed to a module."""
    theirs, ours = getattr(torch.nn, name), getattr(ad.nn, name)
    allowed = set(DIFFERENT.get(f"nn.{name}", ("", ""))[0].split())
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
