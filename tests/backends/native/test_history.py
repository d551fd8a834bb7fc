"""What a process computed before changes no bit of what it computes now.

Kernels, launchers, plans, families of kernels for numbers, and blocks of memory are kept from one
call to the next. The same computations, in two orders, in processes of their own, give the same
bits.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.core.op import REGISTRY, Op
from adjoint.runtime.dispatch import apply
from adjoint.runtime.tensors import wrap
from tests.native import needs_native
from tests.sweep import swept

pytestmark = needs_native

ROOT = Path(__file__).parents[3]
BLOCKS = 24
SIZES = (2, 15, 50)  # what sizes of samples become: arrays that NumPy, or kernels, compute
MOST = 4000  # elements
AGAIN = 9  # calls of everything, one after the other
NUMBERS = (0.5, 2.0, -1.0, 3.0, 0.0, 1.0, -0.5, 1e-3, 7.25, -3.0, 40.0)  # beside arrays


# ---- what is computed ----------------------------------------------------------------------------


def ops() -> list[type[Op]]:
    return [
        cls
        for name, cls in sorted(REGISTRY.items())
        if name.startswith("adjoint.") and not cls.view and not cls.drawn
    ]


def resized(x: Any, size: int) -> Any:
    """A sample's input with its values repeated, for sizes above 1 another one, if not large."""
    if not isinstance(x, np.ndarray):
        return x
    shape = tuple(size if n > 1 else n for n in x.shape)
    if math.prod(shape) > MOST:
        return x
    return np.resize(x, shape) if x.size else np.zeros(shape, x.dtype)


def registry(block: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every op of a part of the registry on its samples, made larger where it takes that."""
    for cls in ops()[block::BLOCKS]:
        for number, sample in enumerate(cls.samples()):
            for size in (0, *SIZES):
                inputs = [resized(x, size) if size else x for x in sample.inputs]
                name = f"{cls.__name__} {number} {size}"
                yield name, lambda op=sample.op, inputs=inputs: computed(op, inputs)
                if any(type(x) is float for x in inputs) and size:
                    for value in NUMBERS:
                        given = [value if type(x) is float else x for x in inputs]
                        yield f"{name} {value}", lambda op=sample.op, g=given: computed(op, g)


def computed(op: Op, inputs: list[Any]) -> Any:
    return apply(op, *[wrap(x) if isinstance(x, np.ndarray) else x for x in inputs])


def composites(block: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Composites with their gradients, in-place methods, and layers."""
    from .lowering.test_fused import CASES, values
    from .lowering.test_inplace_kernels import CLOSE, FLOATING

    for name, (function, shapes, *_) in list(CASES.items())[block::BLOCKS]:
        for dtype in (ad.float32, ad.float64):
            yield (
                f"{name} {dtype}",
                lambda f=function, s=shapes, d=dtype: differentiated(
                    f, [values(shape, d, i) for i, shape in enumerate(s)]
                ),
            )
    for name, method in list({**FLOATING, **CLOSE}.items())[block::BLOCKS]:
        for size in (5, 40, 200):
            yield (
                f"{name} {size}",
                lambda m=method, n=size: m(
                    *[values((n, n), ad.float32, seed, False) for seed in range(3)]
                ),
            )
    for number in range(20):  # more than a family of kernels has members
        for size in (5, 40, 200):
            yield (
                f"add_ {number} {size}",
                lambda n=size, k=number: values((n, n), ad.float32, 1, False).add_(
                    values((n, n), ad.float32, 2, False), alpha=0.1 * (k - 5)
                ),
            )


def differentiated(function: Callable[..., Any], inputs: list[Any]) -> Any:
    """The outputs, and the gradients of their sum."""
    ys = function(*inputs)
    ys = ys if isinstance(ys, tuple) else (ys,)
    sum(y.sum() for y in ys if y.requires_grad).backward()
    return (*ys, *[x.grad for x in inputs if x.grad is not None])


def optimizers(block: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Steps of each optimizer, also by one whose steps began with other options."""
    kinds = [
        kind for name, kind in sorted(vars(ad.optim).items())
        if isinstance(kind, type) and issubclass(kind, ad.optim.Optimizer)
        and name not in ("Optimizer", "LBFGS", "SparseAdam")  # which want other steps
    ]  # fmt: skip
    for kind, size in list(itertools.product(kinds, (20, 2000)))[block::BLOCKS]:
        yield f"{kind.__name__} {size}", lambda k=kind, n=size: trained(k, n)


def trained(kind: Any, size: int) -> Any:
    """Parameters after some steps at many rates."""
    rng = np.random.default_rng(size)
    shape = (size // 5, 5)  # Muon takes matrices
    p = ad.nn.Parameter(ad.tensor(rng.standard_normal(shape).astype(np.float32)))
    optimizer = kind([p], lr=0.1)
    for step in range(20):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        p.grad = ad.tensor(rng.standard_normal(shape).astype(np.float32))
        optimizer.step()
    return p


def digest(compute: Callable[[], Any]) -> str:
    """The bits of a result."""
    try:
        found = compute()
    except Exception as error:
        return type(error).__name__
    state = hashlib.sha1()
    for y in found if isinstance(found, tuple) else (found,):
        array = np.ascontiguousarray(y.detach()._data)
        state.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return state.hexdigest()


def run(kind: str, blocks: Sequence[int], backwards: bool) -> dict[str, list[str]]:
    """All that came out for each computation: once in order, or many times in reverse order."""
    cases = [case for block in blocks for case in globals()[kind](block)]
    found: dict[str, list[str]] = {name: [] for name, _ in cases}
    with np.errstate(all="ignore"):
        for name, compute in reversed(cases) if backwards else cases:
            for _ in range(AGAIN if backwards else 1):
                found[name].append(digest(compute))
    if backwards:  # everything is known by now
        for name, compute in cases:
            found[name].append(digest(compute))
    return {name: sorted(set(digests)) for name, digests in found.items()}


# ---- the tests -----------------------------------------------------------------------------------


def in_a_process(kind: str, blocks: Sequence[int], backwards: bool) -> dict[str, list[str]]:
    code = (
        "import json; from tests.backends.native import test_history as t\n"
        f"print(json.dumps(t.run({kind!r}, {list(blocks)}, {backwards})))"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "ADJOINT_NUM_THREADS": "2"},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "blocks", [range(1), swept(range(1, BLOCKS // 2)), swept(range(BLOCKS // 2, BLOCKS))]
)
@pytest.mark.parametrize("kind", ["registry", "composites", "optimizers"])
def test_the_order_of_computations_changes_no_bit(kind: str, blocks: Sequence[int]) -> None:
    fresh = in_a_process(kind, blocks, backwards=False)
    warm = in_a_process(kind, blocks, backwards=True)
    assert fresh.keys() == warm.keys() and fresh
    differing = [name for name in fresh if fresh[name] != warm[name] or len(warm[name]) > 1]
    assert not differing, f"{len(differing)} of {len(fresh)}: {differing[:40]}"
