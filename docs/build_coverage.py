"""Write docs/coverage.md: what there is, counted from the code, and why the rest is not.

    python docs/build_coverage.py

A test holds the page to what this program counts. A gap without a reason stops it.
"""

from __future__ import annotations

import pathlib
import re
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.core.op import REGISTRY, Op

PAGE = pathlib.Path(__file__).parent / "coverage.md"

Reasons = tuple[tuple[str, str], ...]  # names, as patterns, and why; the first that fits counts

NOT_READ: Reasons = (
    ("If Loop Scan SequenceMap", "control flow: a graph of tensors only; export without it"),
    (
        r"Sequence\w* Optional\w* SplitToSequence ConcatFromSequence",
        "sequences and optional values: a graph of tensors only; export without them",
    ),
    (
        r"String\w* RegexFullMatch TfIdfVectorizer ImageDecoder",
        "strings and encoded images: no such dtypes",
    ),
    (r"Random\w* Bernoulli Multinomial", "random numbers: they would be others"),
)
NOT_WRITTEN: Reasons = (
    ("AsStrided Diagonal Unfold Fold", "strided views: compose with gathers"),
    (
        r"\w+Input \w+Weight \w+Gradient \w+Sum SumStrided SumWindows Place\w+ KthPlace Pick "
        r"Mask(At)? \w+Select MaxPoolIndices Transfer Recurrence Cofactors \w+Moment "
        "PermutationMatrix PermutedRows BinaryCrossEntropy",
        "of gradients, losses and distributions: export inference, not a training step",
    ),
    (
        "Bernoulli Binomial Exponential Multinomial Normal Permutation Poisson RandInt Uniform "
        r"Standard\w+",
        "random draws: a file would draw others",
    ),
    (
        r"Cholesky Determinant Eigh? Geqrf Inverse LUFactor PseudoInverse QR SLogDet SVD Solve\w*",
        "linear algebra: ONNX has no such operator",
    ),
    (
        r"AiryAi \w*Bessel\w+ I[01]e? Erfcx Erfinv Entr LogNdtr Ndtri Zeta \w*[Gg]amma "
        r"\w+Polynomial\w+ Sinc Xlog1py Xlogy",
        "special functions: ONNX has no such operator",
    ),
    (
        r"Complex Conj Angle Imag Real \w*Fourier ViewAs\w+ Bitcast",
        "complex numbers, Fourier transforms, reinterpreted memory: ONNX's have other forms",
    ),
    (
        r"Median\w* ModePlace SearchSorted IsIn BinCount LogCumSumExp Cum\w+ ScatterReduce",
        "orders, counts and scans: no such operator before opset 26, or none",
    ),
    (r"\w+", "not yet: compose it from others that are written"),
)
STANDARD = {"": 134, ".linalg": 23, ".fft": 14}  # functions of the array API standard, 2024.12


def page() -> str:
    """The page's text."""
    parts = [
        "# What there is, counted\n",
        "Written by `docs/build_coverage.py` from the code; `tests/test_coverage_page.py` holds it "
        "to that. Each gap has its reason.\n",
        *_registry(),
        *_array_api(),
        *_onnx(),
        *_pnnx(),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _by_reason(names: Iterable[str], reasons: Reasons) -> list[str]:
    """One line for each reason."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        fits = (why for patterns, why in reasons if _matches(patterns, name))
        why = next(fits, None)
        if why is None:
            raise SystemExit(f"coverage: no reason is given why there is no {name}")
        found.setdefault(why, []).append(name)
    return [f"- {why[0].upper()}{why[1:]}: {_listed(each)}." for why, each in found.items()]


def _matches(patterns: str, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns.split())


# ---- the registry --------------------------------------------------------------------------------


def _ops() -> dict[str, type[Op]]:
    """Primitives by class name."""
    return {name.rsplit(".", 1)[1]: cls for name, cls in REGISTRY.items()}


def _arrays(sample: Any, convert: Any = lambda x: x) -> list[Any]:
    return [convert(x) if isinstance(x, np.ndarray) else x for x in sample.inputs]


def is_traced(cls: type[Op]) -> bool:
    """Whether a kernel can be written of what `compute` does, for one of the op's samples."""
    from adjoint.backends.native.lowering.tracing import NotTraceable, Traced, Tracer
    from adjoint.core.errors import AdjointError
    from adjoint.core.spec import broadcast_shapes

    if cls.view or cls.library:
        return False
    for sample in cls.samples():
        given = [x for x in sample.inputs if isinstance(x, np.ndarray)]
        if any(x.dtype.kind not in "fiub" or not x.size for x in given) or not given:
            continue
        try:
            tracer = Tracer(broadcast_shapes(*(x.shape for x in given)))
            symbols = _arrays(sample, _Symbols(tracer))
            found = sample.op.compute(tracer.names, *symbols)
        except (NotTraceable, AdjointError, TypeError, AttributeError, ValueError, LookupError):
            continue
        results = found if isinstance(found, tuple) else (found,)
        if all(isinstance(y, Traced) for y in results):
            return True
    return False


class _Symbols:
    """Stands for each array by a symbol."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def __call__(self, x: Any) -> Any:
        return self.tracer.input(x.shape, x.dtype)


def by_torch(cls: type[Op]) -> bool:
    """Whether the op runs on PyTorch's tensors, for its first sample."""
    import torch

    from adjoint.backends.torch import from_host
    from adjoint.ir.compute import compute

    sample = next(iter(cls.samples()))
    where = torch.device("cpu")
    try:
        compute(sample.op, _arrays(sample, lambda x: from_host(x, where)))
    except (ad.Unsupported, NotImplementedError):
        return False
    return True


def _registry() -> list[str]:
    from adjoint.backends.torch.execution import DRAWN_HERE

    ops = _ops()
    traced = {name for name, cls in ops.items() if is_traced(cls)}
    libraries = {name for name, cls in ops.items() if cls.library}
    views = {name for name, cls in ops.items() if cls.view}
    drawn = {name for name, cls in ops.items() if _draws(cls)}
    torch = {name for name, cls in ops.items() if by_torch(cls)}
    rest = set(ops) - traced - libraries - views
    rows = [
        "## Primitives\n",
        "Every function of adjoint is a primitive or a composition of primitives.\n",
        "| backend | primitives | of |",
        "|---|---:|---:|",
        f"| NumPy, the reference | {len(ops)} | {len(ops)} |",
        f"| native: kernels generated from the op's own definition | {len(traced)} | {len(ops)} |",
        f"| native: oneDNN, generated products and pooling | {len(libraries)} | {len(ops)} |",
        f"| views, which compute nothing | {len(views)} | {len(ops)} |",
        f"| PyTorch (CPU, CUDA) | {len(torch)} | {len(ops)} |",
        "",
        f"The native backend leaves {len(rest)} to NumPy, or to code written for them: what "
        f"gathers, sorts, scans, draws, solves, or has complex numbers. They are {_listed(rest)}."
        "\n",
        "Random numbers are the same on every device. On PyTorch's tensors large draws of "
        f"{_listed(DRAWN_HERE)} are computed on the device; those of "
        f"{_listed(drawn - set(DRAWN_HERE))} on the host, and copied.\n",
    ]
    if missing := set(ops) - torch:
        rows.append(f"PyTorch's backend lacks {_listed(missing)}.\n")
    return rows


def _draws(cls: type[Op]) -> bool:
    return bool(next(iter(cls.samples())).op.drawn)


# ---- the array API -------------------------------------------------------------------------------


def _functions(module: Any) -> set[str]:
    """The functions of a namespace that the standard names."""
    names = {*(getattr(module, "__all__", None) or vars(module)), "__array_namespace_info__"}
    return {
        name
        for name in names
        if isinstance(getattr(module, name, None), types.FunctionType)
        and (not name.startswith("_") or name == "__array_namespace_info__")
    }


def _array_api() -> list[str]:
    from adjoint import array_api

    spaces = (array_api, array_api.linalg, array_api.fft)
    return [
        "## The array API standard, 2024.12\n",
        "| namespace | functions | of |",
        "|---|---:|---:|",
        *(
            f"| `array_api{name}` | {len(_functions(space))} | {count} |"
            for space, (name, count) in zip(spaces, STANDARD.items(), strict=True)
        ),
        "",
        "[Where it was tried](array_api.md), with which libraries.\n",
    ]


# ---- files ---------------------------------------------------------------------------------------


def _onnx() -> list[str]:
    import onnx

    from adjoint.onnx import export_elementwise, export_ops  # noqa: F401 - they fill the table
    from adjoint.onnx.export_table import TABLE as WRITTEN
    from adjoint.onnx.importing.operator_table import TABLE as READ

    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    ops = set(_ops())
    written = ops & set(WRITTEN)
    read = known & set(READ)
    return [
        "## ONNX\n",
        "| | there | of |",
        "|---|---:|---:|",
        f"| operators read | {len(read)} | {len(known)} |",
        f"| primitives written | {len(written)} | {len(ops)} |",
        "",
        f"Operators are those of opset {onnx.defs.onnx_opset_version()}, functions and deprecated "
        "ones included. [What they were tried with](onnx.md).\n",
        "Not read:\n",
        *_by_reason(known - read, NOT_READ),
        "",
        "Not written:\n",
        *_by_reason(ops - written, NOT_WRITTEN),
        "",
    ]


def _pnnx() -> list[str]:
    from adjoint import pnnx
    from adjoint.pnnx import layers, operators  # noqa: F401 - they fill the table
    from adjoint.pnnx.step import TABLE

    assert pnnx.load
    kinds = {
        "modules (`nn.*`)": [k for k in TABLE if k.startswith("nn.")],
        "functions (`F.*`)": [k for k in TABLE if k.startswith("F.")],
        "tensor functions (`torch.*`, `Tensor.*`)": [
            k for k in TABLE if k.startswith(("torch.", "Tensor."))
        ],
    }
    counted = {k for each in kinds.values() for k in each}
    kinds["others (`aten::*`, `pnnx.*`, ...)"] = [k for k in TABLE if k not in counted]
    return [
        "## PNNX\n",
        "| operators read | |",
        "|---|---:|",
        *(f"| {name} | {len(each)} |" for name, each in kinds.items()),
        f"| together | {len(TABLE)} |",
        "",
        "The format has no list of its operators: they are PyTorch's. A file with another one is "
        "refused by its name; the remedy is to export ONNX.\n",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
