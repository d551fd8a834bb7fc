"""The one partition: which steps are one kernel, and the reason for every cut."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from adjoint.autograd.capture import program_of, recording, symbol
from adjoint.backends.codegen.ir import ITEMSIZE, REDUCTIONS, Kernel
from adjoint.backends.codegen.triton import shares_columns
from adjoint.core import dtype as dt
from adjoint.core import policy
from adjoint.core.spec import Spec
from adjoint.ir.partition import Device, KernelOutput, Regions, Role, kernels, regions

MATRIX = Spec((6, 4), dt.float32)


def parted(function: Any, *specs: Spec) -> Regions:
    """The regions of what a function does; products are a library's, names say the rest."""
    inputs = [symbol(spec) for spec in specs]
    with recording():
        found = function(*inputs)
    program = program_of([x._data for x in inputs], [found._data])

    def role(node: Any) -> Any:
        name = node.op.name
        return "a library's" if name == "mat_mul" else Role(name == "sum", name in ("exp", "tanh"))

    return regions(program, role)


def names(found: Regions) -> list[str]:
    return ["_".join(node.op.name for node in group) for group in found.groups]


def reasons(found: Regions) -> list[str]:
    return [f"{node.op.name}: {reason}" for node, reason in found.cuts]


def test_a_chain_and_its_reductions_are_one_region() -> None:
    found = parted(lambda x: (x * 2 + 1).sum(1, keepdim=True) * x, MATRIX)
    assert names(found) == ["mul_add_sum_mul"]
    assert found.cuts == []


def test_what_is_costly_is_not_computed_again_for_a_reduction() -> None:
    found = parted(lambda x: x.exp().sum(1), MATRIX)
    assert names(found) == ["exp", "sum"]
    assert reasons(found) == ["sum: what is costly would be computed again for a reduction"]
    assert names(parted(lambda x: x.sum(1, keepdim=True).exp(), MATRIX)) == ["sum_exp"]


def test_a_region_has_one_index_space() -> None:
    found = parted(lambda x, y: (x * 2).sum(1) + y.neg(), MATRIX, Spec((3, 6), dt.float32))
    assert names(found) == ["mul_sum", "neg_add"]
    assert reasons(found) == ["add: (3, 6) is not the index space (6, 4)"]


def test_what_lies_between_is_no_part_of_a_kernel() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        return y + y @ y

    found = parted(function, Spec((4, 4), dt.float32))
    assert names(found) == ["mul", "add"]
    assert reasons(found) == [
        "mat_mul: a library's",
        "add: a step that is no kernel's lies between",
    ]


def test_a_region_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "PROGRAM_OPS", 3)
    found = parted(lambda x: x.neg().neg().neg().neg(), MATRIX)
    assert names(found) == ["neg_neg_neg", "neg"]
    assert reasons(found) == ["neg: 3 steps are enough for one kernel"]


def independent(x: Any, w: Any) -> Any:
    """Two batches that share nothing but the sum in the end."""

    def batch(x: Any) -> tuple[Any, Any]:
        y = (x @ w).neg()
        return y.sum(0), y @ w  # what is computed of the first result waits for nothing else

    (first, one), (second, other) = batch(x), batch(x * 2)
    return (one.sum(0) - other.sum(0)) * (first + second)


def test_what_reads_a_result_does_not_wait_for_much_that_it_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs = Spec((8, 8), dt.float32), Spec((8, 8), dt.float32)
    reason = "what reads the first results would wait for much that lies between"
    together = parted(independent, *specs)
    assert "neg_neg_sum_sum_add" in names(together) and f"add: {reason}" not in reasons(together)
    monkeypatch.setattr(policy, "APART", 8 * 8 * 4)  # bytes: of one product
    apart = parted(independent, *specs)
    assert "neg_sum" in names(apart) and f"add: {reason}" in reasons(apart)


LOG = """
import adjoint as ad
from adjoint.runtime.fused import fused
@fused
def centred(x):
    rows = x - x.mean(dim=1, keepdim=True)
    return rows - rows.square().mean(dim=0, keepdim=True)
centred(ad.ones(64, 32, requires_grad=True)).sum().backward()
ad.inference.freeze(lambda x: x.exp().sum(1), ad.ones(6, 4))
"""


def test_the_log_gives_the_reason_of_each_cut() -> None:
    from adjoint.backends import native

    if native.unusable() is not None:
        pytest.skip(f"native backend: {native.unusable()}")
    environment = os.environ | {"ADJOINT_DEBUG": "dispatch"}
    done = subprocess.run(
        [sys.executable, "-c", LOG], env=environment, capture_output=True, text=True, check=True
    )
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("centred")]
    assert line.startswith("centred (64, 32) float32: kernels: forward cut before reductions over ")
    assert "backward cut before reductions over axes" in line
    cut = "cut from the kernel of an input: what is costly would be computed again for a reduction"
    assert f"sum (6, 4) adjoint.float32: {cut}" in done.stderr.splitlines()


def test_kernels_of_a_composite_are_cut_at_reductions() -> None:
    pytest.importorskip("llvmlite")
    from adjoint.backends.native.lowering.composite import Composite

    x = symbol(MATRIX)
    with recording():
        rows = x - x.mean(1, keepdim=True)
        y = rows - rows.mean(0, keepdim=True)
    made = Composite(program_of([x._data], [y._data]))
    assert len(made.stages) == 2
    (cut,) = made.cuts
    assert cut == "reductions over axes (0,) of (6, 4)"
    array = np.arange(24, dtype=np.float32).reshape(6, 4)
    (found,) = made([array])
    np.testing.assert_allclose(found, np.zeros((6, 4)), atol=1e-5)


# ---- kernels of a GPU ----------------------------------------------------------------------------

GPU = Device(ITEMSIZE, shares_columns)


def wanted(*values: Any, space: tuple[int, ...]) -> list[KernelOutput]:
    """Outputs of a kernel's values, each in its own dtype; narrow where it was cast."""
    found = []
    for v in values:
        narrow = v.op == "cast" and v.attr[0] in ("bfloat16", "float16")
        shape = tuple(space[a] if a in v.axes else 1 for a in range(len(space)))
        found.append(KernelOutput(v, v.axes, v.attr[0] if narrow else v.dtype, shape))
    return found


def total(k: Kernel, x: Any, axes: tuple[int, ...]) -> Any:
    """A sum; here, before they are parted, there may be some over other axes."""
    k.reduced = ()
    return k.sum(x, axes=axes)


def test_a_gpu_s_kernel_loads_what_an_earlier_one_has_written_where_that_is_less() -> None:
    """Of three tensors a row's kernel gives a narrow one, of which another sums columns."""
    k = Kernel(rank=2)
    x, y, z = (k.input("float32") for _ in range(3))
    rows = total(k, x * y, axes=(1,))
    narrow = k.cast(x * y + z * rows, "bfloat16")
    columns = total(k, narrow, axes=(0,))
    outputs = wanted(narrow, columns, space=(40, 50))
    host = kernels(outputs, (40, 50), REDUCTIONS)
    assert [part.loads for part in host] == [
        [("input", 0), ("input", 1), ("input", 2)],
        [("input", 0), ("input", 1), ("input", 2), ("value", rows.number)],
    ]
    gpu = kernels(outputs, (40, 50), REDUCTIONS, GPU)
    assert [part.loads for part in gpu] == [host[0].loads, [("output", 0)]]
    # What the second needs of the same inputs in any case is no reason to load more.
    more = total(k, x * y * z, axes=(0,))
    gpu = kernels(wanted(narrow, columns, more, space=(40, 50)), (40, 50), REDUCTIONS, GPU)
    assert ("output", 0) not in gpu[1].loads


def test_a_gpu_s_kernels_reduce_long_channels_one_after_another() -> None:
    space = (64, 8, 16, 16)
    k = Kernel(rank=4)
    x = k.input("float32")
    mean = total(k, x, axes=(0, 2, 3)) / 16384.0
    apart = x - mean
    variance = total(k, apart * apart, axes=(0, 2, 3))
    outputs = wanted(variance, apart / variance, space=space)
    (host,) = kernels(outputs, space, REDUCTIONS)
    assert len(host.results) == 2
    first, second, third = kernels(outputs, space, REDUCTIONS, GPU)
    assert first.outputs and not first.results
    assert [j for j, _ in second.results] == [0]
    assert ("input", 0) in third.loads and third.axes == () and [j for j, _ in third.results] == [1]
    # A short row, and a channel of few, fit into a program.
    assert len(kernels(outputs, (64, 8, 1, 1), REDUCTIONS, GPU)) == 1
    assert not shares_columns((64, 8192), (1,))
    assert shares_columns((2, 1 << 20), (1,))
    assert not shares_columns((4096, 1 << 20), (1,))
