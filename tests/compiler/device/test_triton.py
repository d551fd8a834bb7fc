"""Groups of ops as Triton kernels: run by Triton's interpreter, and compiled for a GPU elsewhere.

The interpreter is chosen when Triton is imported, so a process of its own runs the tests that need
it.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch, whose tensors are the storage, is not installed")

import torch

import adjoint as ad
from adjoint.backends.codegen import triton as text
from adjoint.backends.codegen.ir import Kernel
from adjoint.backends.torch import fused, losses, max_pooling, moments
from adjoint.backends.torch.array import Array
from adjoint.compiler.capture.step_capture import capture
from adjoint.compiler.device import device_graph, device_step
from adjoint.compiler.device.device_step import TritonKernel
from adjoint.compiler.passes.device_passes import inline_host_numbers
from adjoint.compiler.passes.kernels import fuse_kernels
from adjoint.core import policy
from adjoint.core.errors import NotTraceable
from adjoint.core.op import REGISTRY, snake_case
from adjoint.core.spec import Spec

from ..run.test_step import OPTIMIZERS
from .test_device import Pair

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
    "sums of columns": (lambda x: (x * x).sum(0), [(100, 70)], 1),
    "sums of long columns": (lambda x: (x * x).sum(0), [(9000, 3)], 2),
    "a sum of many": (lambda x: (x * x).sum() * 2, [(200, 150)], 2),
    "sums of many in one kernel, and elements": (
        lambda x, y: ((x * y).sum(0), (x - y).amax(0) + 1, x + y), [(3000, 3), (3,)], 2,
    ),
    "any and all of many": (lambda x: ((x * 2 > 4).any(), (x * 2 > -9).all()), [(90, 200)], 2),
    "a mean of many maxima": (lambda x: (x * 2).amax(0).mean(), [(9000, 3)], 3),
    "means": (lambda x: (x * x).mean((0, 2)), [(3, 4, 5)], 1),
    "maxima, with NaN": (lambda x: (x * (x - 1).sqrt()).amax(-1), [(4, 40)], 1),
    "any and all": (lambda x: ((x * 2 > 4).any(-1), (x * 2 > -9).all(-1)), [(4, 40)], 1),
    "logsumexp": (lambda x: (x * 2).logsumexp(-1) + 1, [(4, 15)], 1),
    "two sets of axes": (lambda x: x - x.mean(0) - (x - x.mean(0)).amax(1, True), [(6, 5)], 2),
}  # fmt: skip


POINTERS = {"float32": "*fp32", "bfloat16": "*bf16", "bool": "*i1", "int8": "*i8"}


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
    assert len(kernel.composite.stages[0][0].made) == 2


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
    here = Path(__file__).parents[1]
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
        name if name in ("functions", "norm", "softmax of long rows", "any and all of many")
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
        for launch in (launch for c in made for launch, _ in c.stages):
            kernel, written = launch.kernel, launch.written()
            kinds = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
            signature = {f"p{k}": POINTERS[kind] for k, kind in enumerate(kinds)}
            names = [launch.name]
            if written.shares is not None:
                names.append(f"{launch.name}_end")
                kinds = written.shares.dtypes
                signature |= {f"s{k}": POINTERS[kind] for k, kind in enumerate(kinds)}
            for each in names:
                kernel = fused.function_of(written.source, each)
                source = ASTSource(kernel, signature, constexprs={})
                assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


@pytest.mark.skipif(not HAS_TRITON, reason=WITHOUT)
@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.filterwarnings("ignore")
def test_an_optimizer_s_kernel_compiles_for_a_gpu(dtype):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    w = ad.nn.Parameter(ad.ones(3, dtype=getattr(ad, dtype)))
    w.grad = ad.ones_like(w)
    optimizer = ad.optim.AdamW([w], lr=0.1, amsgrad=True)
    optimizer.step()
    names = tuple(name for name in optimizer.state[w] if name != "step")
    (batch,) = optimizer._batches(optimizer.param_groups[0], [w])
    dtypes = (w._data.dtype,) * (2 + len(names))
    formula, values = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
    rows = fused.Rows(formula.run.kernel, formula.run.columns, "AdamW")
    assert rows.count == len(values)
    signature = dict.fromkeys(("table", "rows", "starts", "lengths"), "*i64")
    for source in rows.sources:
        written = ASTSource(
            fused.function_of(source, "AdamW"), {**signature, "numbers": "*fp32"}, constexprs={}
        )
        made = triton.compile(written, target=GPUTarget("cuda", 90, 32))
        assert made.asm["cubin"]
        # Several elements at once, where addresses are known to be multiples.
        assert (".v4.b32" in made.asm["ptx"]) == (source == rows.sources[True])


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


def test_inline_host_numbers():
    graph = capture(lambda x: x * 0.1 + 1, given([(3,)], ad.bfloat16)).program
    assert [x.array is None for x in graph.nodes[1].values] == [True, False]
    assert inline_host_numbers(graph) == 1
    assert [node.inputs[1] for node in graph.nodes] == [0.1, 1.0]
    graph.verify()


# ---- losses --------------------------------------------------------------------------------------


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (7, 33), (3, 9000)])
def test_cross_entropy(reduction, dtype, rows, classes, monkeypatch):
    monkeypatch.setattr(losses, "LOGITS", 0)
    weight = ad.nn.Parameter(ad.randn(classes, device="torch"))
    x = ad.randn(rows, classes, device="torch")
    target = ad.randint(0, classes, (rows,), device="torch")
    target[0] = -100

    def function(x):
        with ad.autocast("torch", dtype=ad.bfloat16, enabled=dtype == "bfloat16"):
            found = (x * weight).to(getattr(ad, dtype))
            return F.cross_entropy(found, target, reduction=reduction)

    if reduction == "mean" and rows == 1:
        assert ad.compile(function)(x).isnan() and function(x).isnan()
        return
    gradients = []
    steps = (
        ad.compile(lambda x: function(x).sum().backward()),
        lambda x: function(x).sum().backward(),
    )
    for step in steps:
        weight.grad = None
        step(x)
        gradients.append(weight.grad.tolist())
    tolerance = 1e-5 if dtype == "float32" else 5e-2  # the interpreter cuts bfloat16 off
    size = np.abs(gradients[1]).max()
    np.testing.assert_allclose(*gradients, rtol=tolerance, atol=tolerance * size)
    names = [node.op.name for node in steps[0].programs[0].parts[0].graph.nodes]
    assert "_cross_entropy_backward" in names and "log_softmax" not in names
    assert "cast" not in names  # neither for the loss to read, nor of its gradient
    found = ad.compile(function)(x)
    logs = (x * weight).log_softmax(-1).gather(1, target.clamp(min=0)[:, None])[:, 0]
    expected = ad.where(target < 0, 0.0, -logs)
    if reduction != "none":
        expected = expected.sum() / (rows - 1 if reduction == "mean" else 1)
    np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=tolerance, atol=tolerance)
    assert found.dtype is ad.float32


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_target_out_of_range_is_no_loss(monkeypatch):
    monkeypatch.setattr(losses, "LOGITS", 0)
    target = ad.tensor([0, 4, 3], device="torch")
    found = F.cross_entropy(ad.zeros(3, 4, device="torch"), target, reduction="none")
    assert found.isnan().tolist() == [False, True, False]


# ---- kernels that are written by hand ------------------------------------------------------------

LAYOUTS = {"row-major": torch.contiguous_format, "channels last": torch.channels_last}


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 3), (1, 0)),
     ((5, 3), (2, 1), (2, 1)), ((1, 1), (2, 2), (0, 0)), ((2, 2), (3, 3), (1, 1))],
)  # fmt: skip
def test_pools_and_their_gradients_are_pytorch_s(kernel, stride, padding, dtype, layout):
    """With NaN, -inf, and many that are equal, of which the first is the largest."""
    torch.manual_seed(0)
    ran = 0
    for shape in ((2, 3, 12, 12), (1, 5, 7, 9), (2, 4, 15, 1), (3, 1, 6, 5)):
        x = torch.randint(-3, 4, shape).to(getattr(torch, dtype))
        x.view(-1)[::7] = float("-inf")
        x.view(-1)[::11] = float("nan")
        x = x.contiguous(memory_format=LAYOUTS[layout]).requires_grad_()
        if any(n + 2 * p < k for n, p, k in zip(shape[2:], padding, kernel, strict=True)):
            continue
        y = torch.nn.functional.max_pool2d(x, kernel, stride, padding)
        g = torch.randn(y.shape).to(x.dtype)
        y.backward(g)
        pairs, given = [(p, p) for p in padding], Array(x.detach())
        assert max_pooling.has_kernels(
            Spec(shape, getattr(ad, dtype), ad.device("torch")), kernel, stride, pairs, (1, 1)
        )
        largest, places = max_pooling.largest(
            given, kernel, stride, tuple(pairs), tuple(y.shape[2:])
        )
        spread = max_pooling.spread(given, places, Array(g), kernel, stride, tuple(pairs))
        torch.testing.assert_close(largest.tensor, y.detach(), rtol=0, atol=0, equal_nan=True)
        tolerance = 4e-2 if dtype == "bfloat16" else 1e-6  # PyTorch rounds each sum
        torch.testing.assert_close(spread.tensor, x.grad, rtol=tolerance, atol=tolerance)
        ran += 1
    assert ran > 1


@interpreted
def test_pools_of_no_windows_are_empty():
    x = torch.randn(2, 3, 4, 4)
    largest, places = max_pooling.largest(Array(x), (2, 2), (1, 1), ((0, 0), (0, 0)), (0, 3))
    assert (largest.shape, places.shape) == ((2, 3, 0, 3), (2, 3, 0, 3))
    spread = max_pooling.spread(Array(x), places, largest, (2, 2), (1, 1), ((0, 0), (0, 0)))
    assert not spread.tensor.any()


@interpreted
def test_only_large_casts_among_floats_are_kernels_alone(monkeypatch):
    monkeypatch.setattr(policy, "CAST", 64)
    for size, source, target, count in (
        (64, "float32", "bfloat16", 1), (64, "bfloat16", "float32", 1),
        (63, "float32", "bfloat16", 0), (64, "float32", "int32", 0), (64, "float32", "float64", 0),
    ):  # fmt: skip
        x = ad.randn(size, device="torch").to(getattr(ad, source)) * 3
        compiled = ad.compile(lambda x, target=target: x.to(getattr(ad, target)))
        before = fused.launches[0]
        found = compiled(x)
        assert fused.launches[0] - before == count, (source, target)
        expected = x.to(getattr(ad, target)).tolist()
        near = 1e-2 if target == "bfloat16" else 0  # the interpreter cuts off
        np.testing.assert_allclose(found.tolist(), expected, rtol=near)


@interpreted
@pytest.mark.parametrize("programs", [1024, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("middle", [0, 1e4])
def test_moments_are_exact_wherever_the_mean_and_the_first_lie(
    middle, layout, programs, monkeypatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(text, "PROGRAMS", programs)
    moments._text.cache_clear()
    for shape in ((2, 3, 5, 7), (4, 70, 33, 20), (1, 1, 1, 2), (3, 16, 1, 1), (2, 64, 40, 40)):
        for far in (0, 100, 1e6):
            x = torch.randn(shape) + middle
            x[0, :, 0, 0] = middle + far
            x = x.contiguous(memory_format=LAYOUTS[layout])
            mean, variance, root = moments.moments_of_channels(Array(x), 1e-5)
            expected, middles = torch.var_mean(x.double(), (0, 2, 3), correction=0)
            distance = (mean.tensor.double() - middles).abs()
            assert (distance <= 1e-6 * (middles.abs() + expected.sqrt() + 1)).all()
            rounded = 1e-6 if middle else 1e-9  # a mean of that size
            torch.testing.assert_close(variance.tensor.double(), expected, rtol=2e-4, atol=rounded)
            torch.testing.assert_close(root.tensor, (variance.tensor + 1e-5).rsqrt())
    moments._text.cache_clear()


@interpreted
@pytest.mark.parametrize("shape", [(64, 3, 7, 7), (5, 17, 3, 3), (2, 2, 1, 2), (70, 80)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_elements_are_brought_into_another_order_and_dtype(shape, dtype, monkeypatch):
    monkeypatch.setattr(policy, "BROUGHT", 1)
    x = torch.randn(shape).to(dtype)
    orders = LAYOUTS.values() if len(shape) == 4 else [torch.contiguous_format]
    for source in orders:
        for target in orders:
            given = x.contiguous(memory_format=source)
            out = torch.empty(shape, memory_format=target)
            before = fused.launches[0]
            fused.bring(Array(given), Array(out))
            assert torch.equal(out, x.float())
            moved = given.stride() != out.stride() or dtype is not torch.float32
            assert fused.launches[0] - before == moved
    monkeypatch.setattr(text, "OFFSETS", x.numel())  # more than programs count: PyTorch's copy
    before, out = fused.launches[0], torch.empty(shape, dtype=torch.float16)
    fused.bring(Array(x), Array(out))
    assert torch.equal(out, x.half()) and fused.launches[0] == before
    strided = torch.randn(8, 6)[::2, ::2]  # with gaps, likewise
    out = torch.empty(4, 3)
    fused.bring(Array(strided), Array(out))
    assert torch.equal(out, strided)


@interpreted
def test_opened_batch_norms_compute_what_eager_ones_do(monkeypatch):
    monkeypatch.setattr(policy, "OPENED_NORM", 1)
    monkeypatch.setattr(policy, "EXPANDED", 1)
    ad.manual_seed(0)
    nn = ad.nn
    first = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6, affine=False), nn.ReLU(),
        nn.Conv2d(6, 2, 1), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(),
    ).to("torch")  # fmt: skip
    second = copy.deepcopy(first)
    images = ad.randn(5, 3, 40, 40, device="torch")
    found = []
    for model in (first, second):
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).sin().square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = step if model is first else ad.compile(step)
        losses = [run(images * (0.5 + i)).item() for i in range(4)]
        found.append((losses, [x.tolist() for x in model.state_dict().values()]))
    names = [node.op.name for node in run.programs[-1].parts[0].graph.nodes]
    assert names.count("moments") == 2 and names.count("_standardize_channels") == 1
    for a, b in zip(*found, strict=True):
        for u, v in zip(a, b, strict=True):
            np.testing.assert_allclose(v, u, rtol=2e-3, atol=2e-4)


@interpreted
def test_gradients_are_computed_where_they_are_read(recorded, monkeypatch):
    """Casts and kernels write them there: nothing is copied but what a library has given."""
    ad.manual_seed(0)
    model = ad.nn.Sequential(ad.nn.Linear(12, 8), ad.nn.LayerNorm(8), ad.nn.Linear(8, 4))
    model = model.to("torch")
    other = copy.deepcopy(model)
    x = ad.randn(6, 12, device="torch")
    there = []
    bring = device_graph._bring

    def watched(place, array):
        there.append(device_graph._is_same(array, place))
        bring(place, array)

    monkeypatch.setattr(device_graph, "_bring", watched)

    def step_of(model):
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            with ad.autocast("torch", dtype=ad.bfloat16):
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()

        return step

    eager, compiled = step_of(other), ad.compile(step_of(model))
    for _ in range(5):
        eager(x)
        compiled(x)
    assert recorded.made == 1
    assert there and all(there)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=2e-2, atol=2e-3)
        np.testing.assert_allclose(a.grad.tolist(), b.grad.tolist(), rtol=5e-2, atol=5e-3)


@interpreted
@pytest.mark.parametrize("size", [1, 15, 1024, 1025, 2 * 1024 + 3])
@pytest.mark.parametrize("offset", [0, 1])
def test_an_optimizer_s_rows_may_begin_anywhere(size, offset):
    whole = [ad.randn(size + offset, device="torch") for _ in range(2)]
    found = []
    for compiled in (False, True):
        w = ad.nn.Parameter(whole[0].clone()[offset:].detach())
        optimizer = ad.optim.AdamW([w], lr=0.1)

        def step(x, w=w, optimizer=optimizer):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()

        run = ad.compile(step) if compiled else step
        for _ in range(3):
            run(whole[1][offset:])
        found.append(w.tolist())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


# ---- whole steps, recorded -----------------------------------------------------------------------


class Recording:
    """What a CUDA graph does, by calling the function again: outputs stay where they are, and
    nothing is computed while it is recorded.
    """

    made = 0

    def __init__(self, run):
        type(self).made += 1
        self.run, self.outputs = run, None

    def replay(self):
        found = self.run()
        if self.outputs is None:
            self.outputs = found
        for place, y in zip(self.outputs, found, strict=True):
            place[...] = y


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(device_step, "recording_on", lambda place: Recording)
    monkeypatch.setattr(Recording, "made", 0)
    return Recording


@interpreted
@pytest.mark.parametrize("name", ["an MLP with dropout", "a convolutional net", "an encoder"])
def test_a_recorded_step_computes_what_eager_steps_do(name, recorded):
    pair = Pair(name, "torch")
    for i in range(6):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0]["lr"] = 0.05 / (i + 1)
        pair.x = ad.randn(pair.x.shape, device="torch")
        pair.run()
    pair.check()
    assert (pair.program.obstacles, pair.program.recorded, recorded.made) == ([], 1, 1)


@interpreted
def test_what_moves_is_recorded_again_and_gradients_that_are_kept_stay(recorded):
    pair = Pair("an MLP with dropout", "torch")
    for _ in range(4):
        pair.run()
    kept = [model[0].weight.grad for model in pair.models]
    shown = [model[3].bias.grad[1:] for model in pair.models]
    before = [[x.tolist() for x in each] for each in (kept, shown)]
    pair.run()
    assert [[x.tolist() for x in each] for each in (kept, shown)] == before
    assert recorded.made == 2
    for model in pair.models:
        model[3].bias.data = ad.ones(4, device="torch")
    for _ in range(2):
        pair.run()
    pair.check()
    assert recorded.made == 3


@interpreted
def test_what_would_mostly_be_copied_is_not_recorded(recorded, monkeypatch):
    function = ad.compile(lambda x: (x * 2).tanh())
    monkeypatch.setattr(device_graph, "COPIED", 4 * (8 + 8))
    for size in (8, 9):
        x = ad.randn(size, device="torch")
        for _ in range(4):
            found = function(x)
        np.testing.assert_allclose(found.tolist(), (x * 2).tanh().tolist(), rtol=1e-5)
    small, large = function.programs
    assert small.obstacles == [] and small.recorded == recorded.made == 1
    assert "0 MiB of arguments and results would be copied for 1 ops" in str(large.obstacles)


@interpreted
def test_recorded_gradients_accumulate(recorded):
    w = ad.nn.Parameter(ad.ones(3, device="torch"))

    @ad.compile
    def step(x):
        (w * x * 2).sum().backward()

    x = ad.arange(3.0, device="torch")
    for i in range(1, 8):
        step(x)
        assert w.grad.tolist() == [0, 2 * i, 4 * i]
    assert 0 < recorded.made <= 3


@interpreted
@pytest.mark.parametrize("scheduled", [False, True])
def test_recorded_steps_write_arguments_and_follow_options(scheduled, recorded):
    def steps(compiled):
        w = ad.nn.Parameter(ad.ones(3, device="torch"))
        optimizer = ad.optim.SGD([w], lr=0.5, momentum=0.9)
        schedule = ad.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        counted = {"n": 0}

        def step(x, y):
            counted["n"] += 1
            optimizer.zero_grad()
            loss = (w * x).square().sum()
            loss.backward()
            if not scheduled:
                optimizer.param_groups[0]["momentum"] = 0.9 / counted["n"]
            optimizer.step()
            y.mul_(2).add_(x)
            if scheduled:
                schedule.step()
            return loss, counted["n"]

        run = ad.compile(step) if compiled else step
        x, y = ad.ones(3, device="torch"), ad.zeros(3, device="torch")
        found = []
        for _ in range(9):
            loss, n = run(x * 0.5, y)
            found.append([loss.item(), n, y.tolist(), w.tolist(), w.grad.tolist()])
        return run, found

    _, rows = steps(False)
    run, found = steps(True)
    for each, expected in zip(found, rows, strict=True):
        for a, b in zip(each, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    # The function names options that the schedule changes, of which one more program comes.
    assert [program.obstacles for program in run.programs] == [[]] * (1 + scheduled)
    assert recorded.made == 1
    assert run.programs[0].bytes > 0


@interpreted
def test_what_the_device_refuses_to_record_is_computed_all_the_same(monkeypatch):
    class Refusing:
        def __init__(self, run):
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(device_step, "recording_on", lambda place: Refusing)
    pair = Pair("an MLP with dropout", "torch")
    for _ in range(5):
        pair.run()
    pair.check()
    (obstacle,) = pair.program.obstacles
    assert obstacle.why == "operation not permitted when stream is capturing"


@interpreted
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_s_formula_is_one_kernel(name):
    ad.manual_seed(0)
    first = ad.nn.Sequential(ad.nn.Linear(70, 80), ad.nn.Tanh(), ad.nn.Linear(80, 3)).to("torch")
    second = copy.deepcopy(first)
    x = ad.randn(5, 70, device="torch")
    for model in (first, second):
        optimizer = OPTIMIZERS[name](list(model.parameters()))

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()

        compiled = ad.compile(step)
        for i in range(4):
            optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
            (step if model is first else compiled)(x)
    (program,) = compiled.programs
    (update,) = program.steps
    assert {type(rows) for rows in update.rows.values()} == {fused.Rows}
    assert len(update.rows) == (2 if name == "groups" else 1)  # one group does not decay
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-3, atol=2e-5)


def test_ops_that_are_waited_for_exist():
    names = {snake_case(kind.__name__) for kind in REGISTRY.values()}
    assert names >= device_graph.WAITING


def test_what_keeps_a_step_from_being_recorded_is_said():
    def why(function, *args):
        compiled = ad.compile(function)
        for _ in range(2):  # optimizers make their state
            compiled(*args)
        return [obstacle.what for obstacle in compiled.programs[0].obstacles]

    x = ad.full((3,), 0.5, device="torch")
    w = ad.nn.Parameter(ad.ones(3, device="torch"))
    optimizer = ad.optim.SGD([w], lr=0.1)

    def step(x):
        (w * x).sum().backward()
        optimizer.step()

    assert why(lambda x: x * 2 + 1, x) == ["torch"]
    assert "bernoulli" in why(lambda x: ad.bernoulli(x), x)
    assert "transfer" in why(lambda x: x.to("cpu"), x)
    assert "mul" in why(lambda x, y: x * y, x, ad.tensor(2.0))
    assert "inverse" in why(lambda x: ad.linalg.inv(x.diag() + 1e-3), x)
    assert "floor_divide" in why(lambda x: x.long() // 2, x)
    assert "floor_divide" not in why(lambda x: x // 2, x)
    assert "backward" in why(lambda x: w * x, x)
    assert ("SGD" in why(step, x)) != INTERPRETED  # where its formula is a kernel, it is none
