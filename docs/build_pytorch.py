"""Write the counted part of docs/pytorch.md: PyTorch's public names, and which of them are here.

    python docs/build_pytorch.py

Names are those of `__all__` and of the .pyi files of the PyTorch that is installed. A test holds
the page to what this program counts. A name that is absent without a reason stops it.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import types
from typing import Any

import adjoint as ad
from adjoint.core.missing_names import ABSENT, MODULES, why

PAGE = pathlib.Path(__file__).parent / "pytorch.md"
MARK = "<!-- written by docs/build_pytorch.py -->\n"
SPACES = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler",
    "linalg", "fft", "special", "distributions", "func", "sparse", "utils.data", "autograd", "amp",
    "fx",
)  # fmt: skip
STUBS = {"": ("_C/_VariableFunctions.pyi", None), "Tensor": ("_C/__init__.pyi", "TensorBase"),
         "nn.functional": ("nn/functional.pyi", None)}  # fmt: skip


def _stubs(space: str) -> set[str]:
    """The names that a .pyi file of PyTorch's says are there."""
    import torch

    if space not in STUBS:
        return set()
    file, kind = STUBS[space]
    tree: Any = ast.parse((pathlib.Path(torch.__file__).parent / file).read_text())
    if kind is not None:
        tree = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    found = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    lines = (n.target for n in tree.body if isinstance(n, ast.AnnAssign))
    return found | {target.id for target in lines if isinstance(target, ast.Name)}


def names(space: str) -> set[str]:
    """PyTorch's public names of a namespace."""
    import torch

    if space == "Tensor":
        theirs: Any = torch.Tensor
        found = {*dir(theirs), *_stubs(space)}
    else:
        theirs = importlib.import_module(f"torch.{space}".rstrip("."))
        listed = getattr(theirs, "__all__", None)
        if listed is None or space in ("linalg", "fft", "special"):
            listed = [
                name
                for name, value in vars(theirs).items()
                if type(value) is types.BuiltinFunctionType
                or (callable(value) and str(value.__module__).startswith(theirs.__name__))
            ]
        found = {*listed, *_stubs(space)}
    return {name for name in found if name[0] != "_" and hasattr(theirs, name)}


def has(space: str, name: str) -> bool:
    """Whether adjoint has a name."""
    if space == "Tensor":
        return hasattr(ad.Tensor, name)
    ours: Any = ad
    for part in space.split(".") if space else ():
        ours = getattr(ours, part, None)
    return hasattr(ours, name)


def counted() -> dict[str, tuple[set[str], set[str]]]:
    """For each namespace PyTorch's names, and those of them that are not here."""
    every = {space: names(space) for space in SPACES}
    return {s: (found, {n for n in found if not has(s, n)}) for s, found in every.items()}


def page() -> str:
    """The counted part."""
    import torch

    every = counted()
    total = sum(len(found) for found, _ in every.values())
    here = total - sum(len(lacking) for _, lacking in every.values())
    lines = [
        MARK,
        "## PyTorch's names, counted\n",
        f"Of the {total} public names of PyTorch {torch.__version__.split('+')[0]} in these "
        f"namespaces, {here} are here ({here / total:.1%}); counted is that a name "
        "exists, the tests of each say that it does as PyTorch's. One that is not here raises "
        "`adjoint.MissingName`, an AttributeError that says what is nearest; methods of Tensor, a "
        "plain AttributeError.\n",
        "| namespace | here | of |",
        "|---|---:|---:|",
    ]
    for space, (found, lacking) in every.items():
        shown = f"torch.{space}".rstrip(".")
        lines.append(f"| `{shown}` | {len(found) - len(lacking)} | {len(found)} |")
    for space, (_, lacking) in every.items():
        if lacking:
            lines += [f"\n### Not in `{f'torch.{space}'.rstrip('.')}`\n", *_reasons(space, lacking)]
    lines.append("\n### Modules that are not here\n")
    lines += [f"- `torch.{name}`: {reason}." for name, reason in sorted(MODULES.items())]
    return "\n".join(lines) + "\n"


def _reasons(space: str, lacking: set[str]) -> list[str]:
    by: dict[str, list[str]] = {}
    if without := sorted(name for name in lacking if why(space, name) is None):
        raise SystemExit(f"pytorch.md: no reason is given why {space or 'torch'} lacks {without}")
    for name in sorted(lacking):
        by.setdefault(str(why(space, name)), []).append(name)
    return [
        f"- {reason[0].upper()}{reason[1:]}: {', '.join(f'`{name}`' for name in each)}."
        for reason, each in by.items()
    ]


assert ABSENT.keys() == set(SPACES)


if __name__ == "__main__":
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0].rstrip() + "\n\n"
    PAGE.write_text(written + page(), encoding="utf-8")
