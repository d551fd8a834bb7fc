"""Groups of ops as Triton kernels: run by Triton's interpreter, and compiled for a GPU elsewhere.

The interpreter is chosen when Triton is imported, so a process of its own runs the tests that need
it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import adjoint as ad
from adjoint.backends.torch import fused
from adjoint.compiled.capture import capture
from adjoint.compiled.device_step import TritonKernel, inline_host_numbers
from adjoint.core.errors import NotTraceable
from adjoint.inference.kernels import fuse_kernels
from adjoint.kernels import triton as text
from adjoint.kernels.ir import Kernel

F = ad.nn.functional
HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
WITHOUT = "Triton is not installed (pip install triton)"
interpreted = pytest.mark.skipif(
    not (HAS_TRITON and INTERPRETED), reason="run by test_the_interpreter_runs_them"
)

# name: (function, shapes, kernels)
CASES = {
    "a chain": (lambda x: (x * 2 + 1).tanh() * x.sigmoid(), [(7, 33)], 1),
    "functions": (
        lambda x: (
            (x.abs() + 0.1).log() + x.exp() + x.sin() * x.cos() + (x.abs() + 1).sqrt() + x.erf()
            + x.abs().log1p() + x.expm1() + (x * 3).trunc() + x.floor() - x.ceil()
        ),
        [(5, 9)], 1,
    ),
    "powers": (lambda x: (x**2 + x**3).abs() ** 0.5, [(15,)], 1),
    "choices": (lambda x: ad.where((x > 0) & (x < 1), x * 2, -x).clamp(min=-1), [(4, 40)], 1),
    "gelu": (lambda x: F.gelu(x + 1) * x + F.gelu(x, approximate="tanh"), [(15,)], 1),
    "no dimensions": (lambda x: x * 2 + 1, [()], 1),
    "one element": (lambda x: (x * 2 + 1).sum(-1), [(1, 1)], 1),
    "several blocks": (lambda x: (x * 2 + 1).exp(), [(5, 700)], 1),
    "broadcasting": (lambda x, y: (x + y) * y, [(4, 1, 5), (3, 1)], 1),
    "a transposed input": (lambda x: x.mT * 2 + x.mT.exp(), [(4, 40)], 1),
    "softmax": (lambda x: (x * 3).softmax(-1), [(7, 33)], 1),
    "softmax of columns": (lambda x: (x * 3).softmax(0), [(33, 7)], 1),
    "softmax between": (lambda x: (x * 3).softmax(1), [(3, 33, 7)], 1),
    "softmax of long rows": (lambda x: (x * 3).softmax(-1), [(2, 9000)], 1),
    "norm": (lambda x, w, b: F.layer_norm(x + 1, (33,), w, b), [(7, 33), (33,), (33,)], 1),
    "norm of long rows": (
        lambda x, w: F.rms_norm(x + 1, (9000,), w) * 2, [(2, 9000), (9000,)], 1
    ),
    "a sum": (lambda x: (x * x).sum(), [(7, 33)], 1),
    "sums of columns": (lambda x: (x * x).sum(0), [(300, 70)], 1),
    "sums of long columns": (lambda x: (x * x).sum(0), [(9000, 3)], 1),
    "means": (lambda x: (x * x).mean((0, 2)), [(3, 4, 5)], 1),
    "maxima, with NaN": (lambda x: (x * (x - 1).sqrt()).amax(-1), [(4, 40)], 1),
    "any and all": (lambda x: ((x * 2 > 4).any(-1), (x * 2 > -9).all(-1)), [(4, 40)], 1),
    "logsumexp": (lambda x: (x * 2).logsumexp(-1) + 1, [(4, 15)], 1),
    "two sets of axes": (lambda x: x - x.mean(0) - (x - x.mean(0)).amax(1, True), [(6, 5)], 2),
}  # fmt: skip


def given(shapes, dtype, device="torch"):
    ad.manual_seed(0)
    return [ad.randn(shape, device=device).to(dtype) for shape in shapes]


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, which interprets
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_ops_compute(name, dtype):
    function, shapes, kernels = CASES[name]
    xs = given(shapes, getattr(ad, dtype))
    compiled = ad.compile(function)
    before = fused.launches[0]
    found = compiled(*xs)
    assert fused.launches[0] - before == kernels
    expected = function(*[x.float() for x in xs])
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    rtol = 1e-5 if dtype == "float32" else 0.02  # the interpreter cuts bfloat16 off
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is (b.dtype if b.dtype is ad.bool else xs[0].dtype)
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=rtol, atol=rtol)


@interpreted
def test_kernels_are_written_again_for_other_strides():
    compiled = ad.compile(lambda x: (x * 2 + 1).sum(-1))
    x = ad.randn(6, 8, device="torch")
    for y in (x, x[:, ::2].repeat_interleave(2, 1), ad.randn(8, 6, device="torch").mT):
        np.testing.assert_allclose(compiled(y).tolist(), (y * 2 + 1).sum(-1).tolist(), rtol=1e-5)
    (kernel,) = [
        node.op for node in compiled.programs[0].parts[0].graph.nodes
        if isinstance(node.op, TritonKernel)
    ]  # fmt: skip
    assert len(kernel.composite.stages[0].made) == 2


@interpreted
def test_what_pytorch_does_as_well_is_left_to_it():
    layer = ad.nn.Linear(4, 3).to("torch")
    compiled = ad.compile(lambda x: (layer(x).relu(), x.double().exp() * 2))
    compiled(ad.ones(2, 4, device="torch"))
    names = [node.op.name for node in compiled.programs[0].parts[0].graph.nodes]
    assert not any(
        isinstance(n.op, TritonKernel) for n in compiled.programs[0].parts[0].graph.nodes
    )
    assert {"linear", "relu", "exp", "mul"} <= set(names)  # doubles, and single ops


@pytest.mark.skipif(not HAS_TRITON, reason=WITHOUT)
@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_the_interpreter_runs_them():
    here = Path(__file__).parent
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
        str(Path(__file__)), str(here / "test_device.py"),
    ]  # fmt: skip
    found = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


@pytest.mark.skipif(not HAS_TRITON, reason=WITHOUT)
@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("functions", "norm", "softmax of long rows", "any and all")
        else pytest.param(name, marks=pytest.mark.sweep)
        for name in CASES
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")  # Triton's own, of its next version
def test_they_compile_for_a_gpu(name, monkeypatch):
    """By the real compiler, to machine code of an H100; it needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setattr(fused, "reason_off", lambda device: "")
    function, shapes, _ = CASES[name]
    for dtype in (ad.float32, ad.bfloat16):
        graph = capture(function, given(shapes, dtype)).program
        inline_host_numbers(graph)
        assert fuse_kernels(graph, kind=TritonKernel)
        made = [n.op.composite for n in graph.nodes if isinstance(n.op, TritonKernel)]
        for composite, stage, source in (
            (c, *each) for c in made for each in zip(c.stages, c.sources(), strict=True)
        ):
            kernel = stage.written.kernel
            kinds = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
            names = {"float32": "*fp32", "bfloat16": "*bf16", "bool": "*i1"}
            signature = {f"p{k}": names[kind] for k, kind in enumerate(kinds)}
            written = ASTSource(fused._function(source, composite.name), signature, constexprs={})
            assert triton.compile(written, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


# ---- the text ------------------------------------------------------------------------------------


def test_adjacent_axes_along_which_all_lies_alike_are_one():
    kernel = Kernel(rank=3)
    kernel.output(kernel.input("float32") + kernel.input("float32", axes=(1, 2)))
    alike = text.write(kernel, (4, 5, 6), [(30, 6, 1), (6, 1)], "f").source
    assert "tl.load(p0 + (at)," in alike
    assert "tl.load(p1 + ((at % 30))," in alike
    other = text.write(kernel, (4, 5, 6), [(30, 1, 5), (6, 1)], "f").source
    assert "tl.load(p0 + ((at // 30) * 30 + (at // 6 % 5) + (at % 6) * 5)," in other
    assert "tl.store(p2 + (at)," in other


def test_long_rows_are_read_in_one_loop_for_each_reduction_that_depends_on_another():
    kernel = Kernel(rank=2)
    x = kernel.input("float32")
    e = kernel.exp(x - kernel.max(x, axes=(1,)))
    kernel.output(e / kernel.sum(e, axes=(1,)))
    short = text.write(kernel, (8, 100), [(100, 1)], "f")
    assert "for start" not in short.source
    assert short.source.count("tl.load") == 1
    long = text.write(kernel, (8, 10000), [(10000, 1)], "f")
    assert long.source.count("for start in range(0, 10000, ") == 3
    assert long.programs == 8


@pytest.mark.parametrize("op", ["erfc", "acos", "pow"])
def test_what_triton_has_no_function_for_is_refused(op):
    kernel = Kernel(rank=1)
    x = kernel.input("float32")
    kernel.output(kernel.op(op, x, x) if op == "pow" else kernel.op(op, x))
    with pytest.raises(NotTraceable, match=f"{op} is no function of Triton's"):
        text.write(kernel, (8,), [(1,)], "f")


def test_doubles_are_refused():
    kernel = Kernel(rank=1)
    kernel.output(kernel.exp(kernel.input("float64")))
    with pytest.raises(NotTraceable, match="float64 on a GPU"):
        text.write(kernel, (8,), [(1,)], "f")


def test_numbers_of_the_host_are_written_as_such():
    graph = capture(lambda x: x * 0.1 + 1, given([(3,)], ad.bfloat16)).program
    assert [x.array is None for x in graph.nodes[1].values] == [True, False]
    assert inline_host_numbers(graph) == 1
    assert [node.inputs[1] for node in graph.nodes] == [0.1, 1.0]
    graph.verify()
