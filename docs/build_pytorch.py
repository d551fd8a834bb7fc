"""Write the counted part of docs/pytorch.md: PyTorch's public names and their arguments, and which
of them are here.

    python docs/build_pytorch.py

Names are those of `__all__` and of the .pyi files of the PyTorch that is installed; arguments, all
that the overloads of a function take by name, from those files, signatures, or, where PyTorch has
neither, the first lines of its docstrings. A test holds the page to what this program counts. A
name or an argument that is absent without a reason stops it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import adjoint as ad
from adjoint.core.missing_names import MODULES, why

PAGE = pathlib.Path(__file__).parent / "pytorch.md"
MARK = "<!-- written by docs/build_pytorch.py -->\n"
SPACES = (
    "", "Tensor", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler",
    "linalg", "fft", "special", "distributions", "func", "sparse", "utils.data", "autograd", "amp",
    "fx",
)  # fmt: skip
STUBS = {"": ("_C/_VariableFunctions.pyi", None), "Tensor": ("_C/__init__.pyi", "TensorBase"),
         "nn.functional": ("nn/functional.pyi", None), "_nn": ("_C/_nn.pyi", None)}  # fmt: skip

# Arguments of PyTorch's that are not taken, by `function: argument`, and why; the first that fits.
NOT_TAKEN = (
    (r"(addmm|baddbmm|bmm|mm): out_dtype", "of CUDA alone; `.to(dtype)` after it"),
    (r"full: names", "tensors have no named dimensions"),
    (r"(group|layer)_norm: cudnn_enabled?", "of cuDNN alone"),
    (r"(feature_alpha_|alpha_)?dropout: train", "the word is `training`, as in nn.functional"),
    (r"(det|slogdet|matrix_exp): input", "linalg's function, whose word is `A`"),
    (r"(detach_|dsmm|hsmm|spmm|resize_as_|resize_as_sparse_|unsafe_split): "
     r"(input|mat2|the_template)", "the method; by place"),
    (r"dequantize: tensors", "there are no quantized tensors"),
    (r"isin: (element|test_element)|result_type: \w+", "one function for numbers and tensors; "
     "by place"),
    (r"(nn\.functional\.)?rrelu_?: generator", "drawn from the default generator"),
    (r"(tril|triu)_indices: (pin_memory|requires_grad)", "they are integers; `.pin_memory()`"),
    (r"Tensor\.(copy_|map_|requires_grad_): \w+", "in PyTorch's stub alone: its method has ours"),
    (r"Tensor\.(repeat|resize_|sum_to_size|to|new|resize_as_): \w+", "by place"),
    (r"nn\.Hardtanh: (min|max)_value", "deprecated since 0.4; `min_val`, `max_val`"),
    (r"nn\.functional\.elu_?: (input_)?scale", "private to PyTorch; SELU has them"),
    (r"(Tensor\.expand|expand_copy): implicit|\w+: wrap_storage", "private to PyTorch"),
    (r"Sym(Bool|Float|Int): node", "no object is one"),
    (r"einsum: equation|nuclear_norm: \w+|Tensor\.(random|uniform)_: (from_|to)|split_copy: input|"
     r"(lstm|gru|rnn_tanh|rnn_relu): \w+", "by place, in PyTorch's order"),
    (r"special\.\w+_polynomial_\w+: n|linalg\.\w+: (A|input)|nn\.Sequential\.extend: \w+|"
     r"distributions\.\w+\.(icdf|cdf|log_prob): \w+", "by place; the word is as in others here"),
    (r"(hspmm|saddmm|sspaddmm): out", "sparse results are not written into others"),
    (r"save: pickle_\w+", "nothing is pickled"),
    (r"\w*Storage(\.\w+)?: \w+", "deprecated in PyTorch; `untyped_storage()`"),
)  # fmt: skip


HANDED_ON = (  # functions of ours that hand all their options to another
    (r"nn\.LazyConv\w+", "nn.{}.__init__"),
    (r"nn\.NLLLoss2d", "nn.NLLLoss.__init__"),
    (r"(bartlett|blackman|hann|hamming|kaiser)_window", "zeros"),
)


def _body(space: str) -> list[ast.stmt]:
    """What a .pyi file of PyTorch's declares of a namespace."""
    import torch

    if space not in STUBS:
        return []
    file, kind = STUBS[space]
    tree: Any = ast.parse((pathlib.Path(torch.__file__).parent / file).read_text())
    if kind is not None:
        tree = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    return list(tree.body)


def _stubs(space: str) -> set[str]:
    """The names that a .pyi file of PyTorch's says are there."""
    body = _body(space)
    found = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    lines = (n.target for n in body if isinstance(n, ast.AnnAssign))
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


def _within(root: Any, space: str) -> Any:
    for part in space.split(".") if space else ():
        root = getattr(root, part, None)
    return root


def has(space: str, name: str) -> bool:
    """Whether adjoint has a name."""
    return hasattr(_within(ad, space), name)


def counted() -> dict[str, tuple[set[str], set[str]]]:
    """For each namespace PyTorch's names, and those of them that are not here."""
    every = {space: names(space) for space in SPACES}
    return {s: (found, {n for n in found if not has(s, n)}) for s, found in every.items()}


# ---- arguments -----------------------------------------------------------------------------------

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _declared(space: str) -> dict[str, set[str]]:
    """What the functions of a .pyi file take by name, all overloads of each united."""
    found: dict[str, set[str]] = {}
    for node in (*_body(space), *(_body("_nn") if space == "nn.functional" else ())):
        if isinstance(node, ast.FunctionDef):
            names = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            found.setdefault(node.name, set()).update(names)
    return found


def _documented(function: Any) -> set[str]:
    """What the first lines of a docstring say that a function takes: `qr(A, mode="x", *, out)`."""
    found: set[str] = set()
    name = getattr(function, "__name__", "").removeprefix("linalg_").removeprefix("special_")
    name = name.removeprefix("fft_")
    said = re.findall(rf"^\s*(?:[\w.]+\.)?{name}\((.*)\) ?->", function.__doc__ or "", re.M)
    for line in said:
        try:
            call: Any = ast.parse(f"def f({line}): 0").body[0]
        except SyntaxError:  # `dims...`, which says no names
            continue
        found |= {each.arg for each in (*call.args.args, *call.args.kwonlyargs)}
    return found


def _signed(function: Any) -> set[str]:
    """What the signature says is taken by name; nothing where there is no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # made in C++
        return set()
    return {p.name for p in signature.parameters.values() if p.kind in _BY_NAME}


def taken(function: Any) -> set[str]:
    """What a function of ours takes by name: decorators add `out`."""
    found: set[str] = set()
    while function is not None:
        signature = inspect.signature(function, follow_wrapped=False)
        found |= {p.name for p in signature.parameters.values() if p.kind in _BY_NAME}
        function = getattr(function, "__wrapped__", None)
    return found


def _handed_to(name: str, function: Any) -> Any:
    """The function that takes what one hands on."""
    places = (place for pattern, place in HANDED_ON if re.fullmatch(pattern, name))
    groups = re.search(r"Conv\w+", name)
    return next((_within(ad, p.format(groups and groups[0])) for p in places), function)


def _has_none(theirs: Any, ours: Any) -> bool:
    """Whether arguments are not to be counted: of enumerations, and of what is refused as a whole;
    Tensor is a namespace.
    """
    refused = (ours.__doc__ or "").startswith("Refused")
    return refused or hasattr(theirs, "__members__") or ours is ad.Tensor


def _compared(space: str) -> Iterator[tuple[str, Any, Any, set[str]]]:
    """Name, PyTorch's, ours, and what stubs say, of a namespace's functions, classes, methods."""
    import torch

    stubs = _declared(space)
    theirs, ours = _within(torch, space), _within(ad, space)
    for name in sorted(names(space)):
        one, other = getattr(theirs, name), getattr(ours, name, None)
        if other is None or not callable(one) or _has_none(one, other):
            continue
        if not inspect.isclass(one):
            yield name, one, other, stubs.get(name, set())
        elif inspect.isclass(other) and not issubclass(other, ad.core.missing_names.Unmade):
            yield name, one.__init__, other.__init__, set()
            methods = (n for n, f in vars(one).items() if n[0] != "_" and inspect.isfunction(f))
            for each in sorted(n for n in methods if callable(getattr(other, n, None))):
                yield f"{name}.{each}", getattr(one, each), getattr(other, each), set()


def arguments() -> dict[str, tuple[int, dict[str, set[str]]]]:
    """For each namespace how many arguments PyTorch's functions, classes and methods take by name,
    and which of them ours do not.
    """
    counts = {}
    for space in SPACES:
        total, lacking = 0, {}
        for name, theirs, ours, declared in _compared(space):
            wanted = _signed(theirs) or declared or _documented(theirs)
            wanted = {each for each in wanted if not re.match(r"_|arg\d$", each)} - {"self", "cls"}
            total += len(wanted)
            handed = taken(_handed_to(f"{space}.{name}".lstrip("."), ours))
            if lacks := wanted - taken(ours) - handed:
                lacking[f"{space}.{name}".lstrip(".")] = lacks
        counts[space] = (total, lacking)
    return counts


def why_not(function: str, argument: str) -> str | None:
    """The reason why an argument is not taken; None where none is recorded."""
    said = f"{function}: {argument}"
    return next((why for pattern, why in NOT_TAKEN if re.fullmatch(pattern, said)), None)


def _arguments_page() -> list[str]:
    every = arguments()
    by: dict[str, dict[str, list[str]]] = {}
    unsaid = []
    for lacking in (lacking for _, lacking in every.values()):
        for function, each in sorted(lacking.items()):
            for argument in sorted(each):
                reason = why_not(function, argument)
                unsaid += [f"{function}: {argument}"] if reason is None else []
                by.setdefault(str(reason), {}).setdefault(function, []).append(argument)
    if unsaid:
        raise SystemExit(
            "pytorch.md: no reason is given why these are not taken:\n" + "\n".join(unsaid)
        )
    total = sum(count for count, _ in every.values())
    here = total - sum(len(each) for _, lacking in every.values() for each in lacking.values())
    lines = [
        "\n## PyTorch's arguments, counted\n",
        f"In PyTorch the functions, classes and methods that are here take {total} arguments by "
        f"name, all overloads united; ours take {here} of them ({here / total:.1%}). One that is "
        "not taken is a TypeError that names it.\n",
        "| namespace | taken | of |",
        "|---|---:|---:|",
    ]
    for space, (count, lacking) in every.items():
        shown = f"torch.{space}".rstrip(".")
        lines.append(f"| `{shown}` | {count - sum(map(len, lacking.values()))} | {count} |")
    lines.append("\n### Arguments that are not taken\n")
    for reason, functions in by.items():
        each = ", ".join(f"`{name}({', '.join(lacks)})`" for name, lacks in functions.items())
        lines.append(f"- {reason[0].upper()}{reason[1:]}: {each}.")
    return lines


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
    lines += _arguments_page()
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


if __name__ == "__main__":
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0].rstrip() + "\n\n"
    PAGE.write_text(written + page(), encoding="utf-8")
