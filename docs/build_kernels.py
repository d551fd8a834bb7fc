"""Write docs/kernels.md and adjoint/backends/native/lowering/kernel_table.py: how each op is
computed on large arrays, and why the others are NumPy's.

    python docs/build_kernels.py

A test holds both to what this program finds by tracing every sample of every op.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import numpy as np

import adjoint  # noqa: F401 - fills the registry
from adjoint.backends.native.lowering import kernel_execution
from adjoint.core.op import REGISTRY, Op

PAGE = pathlib.Path(__file__).parent / "kernels.md"
TABLE = pathlib.Path(kernel_execution.__file__).parent / "kernel_table.py"

HEAD = """\
# How each op is computed on large arrays

Written by `docs/build_kernels.py` from the samples of the registry;
`tests/backends/native/lowering/test_strict.py` holds it to that. `ADJOINT_DEBUG=dispatch` says
which way each call of a program went.

- **kernel**: generated code, from the op's own `compute` ([compiler](compiler.md)). Behind it, what
  of the op is NumPy's nevertheless.
- **library**: products, convolutions, pooling (oneDNN and generated code); **routine**: machine
  code that moves by an index; **generator**: machine code for random numbers. Sizes and strides
  decide, too: `ADJOINT_DEBUG=dispatch` tells.
- **view**: nothing is computed.
- **NumPy**: with the reason. No kernel computes complex numbers; that is not said again.

| op | way | NumPy's, because of |
|---|---|---|
"""

LIBRARIES = {"moves": "routine", "draws": "generator"}


def way_of(kind: type[Op]) -> tuple[str, list[str]]:
    """How an op is computed, and the reasons for which samples of it are NumPy's."""
    traced, reasons = False, set()
    for sample in kind.samples():
        op = sample.op
        if op.library:
            return LIBRARIES.get(op.library, "library"), []
        if op.view:
            return "view", []
        if not any(isinstance(x, np.ndarray) for x in sample.inputs):
            return "NumPy", ["nothing to compute from"]
        found = kernel_execution._prepare(op, sample.inputs)
        if not isinstance(found, str):
            traced = True
        elif "complex" not in found:
            reasons.add(found)
    if not traced and not reasons:
        reasons.add("complex numbers")
    return "kernel" if traced else "NumPy", sorted(reasons)


def ways() -> dict[str, tuple[str, list[str]]]:
    """That of every op of the package, by its name."""
    kinds = (kind for name, kind in REGISTRY.items() if name.startswith("adjoint."))
    return {kind.__name__: way_of(kind) for kind in sorted(kinds, key=lambda k: k.__name__)}


def page(found: dict[str, tuple[str, list[str]]]) -> str:
    """The table."""
    counts: dict[str, int] = {}
    for way, _ in found.values():
        counts[way] = counts.get(way, 0) + 1
    rows = [f"| `{name}` | {way} | {'; '.join(why)} |" for name, (way, why) in found.items()]
    total = ", ".join(f"{n} {way}" for way, n in sorted(counts.items(), key=lambda c: -c[1]))
    return HEAD + "\n".join(rows) + f"\n\nOf {len(found)} ops: {total}.\n"


def table(found: dict[str, tuple[str, list[str]]]) -> str:
    """The module that strict mode reads."""
    return (
        '"""Table of the ops that are kernels, and why NumPy computes some of their calls.\n\n'
        'Written by docs/build_kernels.py, as is docs/kernels.md.\n"""\n\n'
        "KERNELS: dict[str, tuple[str, ...]] = {\n"
        + "".join(_entry(name, why) for name, (way, why) in found.items() if way == "kernel")
        + "}\n"
    )


def _entry(name: str, why: Iterable[str]) -> str:
    """One op's, as `ruff format` lays it out."""
    words = [f'"{w}"' for w in why]
    comma = "," if len(words) == 1 else ""
    line = f'    "{name}": ({", ".join(words)}{comma}),\n'
    if len(line) <= 101:
        return line
    return f'    "{name}": (\n' + "".join(f"        {w},\n" for w in words) + "    ),\n"


if __name__ == "__main__":
    everything = ways()
    PAGE.write_text(page(everything))
    TABLE.write_text(table(everything))
