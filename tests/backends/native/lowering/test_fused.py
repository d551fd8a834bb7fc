"""`@fused` composites: kernels give what the ops give, and there are as few as there should be."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
import adjoint.nn.functional as nf
from adjoint.autograd import fusion
from adjoint.backends import native
from adjoint.backends.codegen import Kernel
from adjoint.backends.codegen.schedule import plan
from adjoint.backends.native.lowering import composite
from adjoint.core import policy
from adjoint.core.errors import (
    AutogradError,
    DTypeError,
    IndexingError,
    InvalidArgument,
    ShapeError,
)
from adjoint.models.rotary import Rotary, turn
from adjoint.runtime import fused as core_fused
from adjoint.runtime.fused import Declared, fused
from tests.native import needs_native
from tests.sweep import few_or_many, one_in

pytestmark = needs_native


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for tensors of every size."""
    monkeypatch.setattr(core_fused, "SMALLEST", 0)


class Kernels:
    """Counts the kernels that composites run, where no call is known and launched at once."""

    def __enter__(self) -> Kernels:
        self.launched = core_fused.run_known
        core_fused.run_known = lambda known, args, by_gradient=False: None
        self.before = composite.launches[0]
        return self

    def __exit__(self, *exception: object) -> None:
        core_fused.run_known = self.launched
        self.count = composite.launches[0] - self.before


def values(
    shape: tuple[int, ...], dtype: Any = ad.float64, seed: int = 0, grad: bool = True
) -> Any:
    rng = np.random.default_rng(seed)
    return ad.tensor(rng.standard_normal(shape)).to(dtype).requires_grad_(grad)


def classes(shape: tuple[int, ...], count: int, seed: int = 3) -> Any:
    return ad.tensor(np.random.default_rng(seed).integers(0, count, shape))


def one_by_one(function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `function` gives without kernels."""
    with monkeypatch.context() as patch:
        patch.setattr(core_fused, "SMALLEST", 1 << 62)
        return function()


def results(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """Outputs and gradients, as float64 arrays."""
    for x in inputs:
        x.grad = None
    ys = function(*inputs)
    ys = ys if isinstance(ys, tuple) else (ys,)
    wanted = [y for y in ys if y.requires_grad]
    gs = [values(tuple(y.shape), y.dtype, 9, False) for y in wanted]
    ad.autograd.backward(wanted, gs)
    gradients = [x.grad for x in inputs if x.requires_grad and x.grad is not None]
    for y in (*ys, *gradients):
        assert y.dtype in (ad.float64, ad.float32, ad.bfloat16)
    return [y.detach().double().numpy() for y in (*ys, *gradients)]


# (name, function of the inputs, shapes, kernels forward, kernels backward)
def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return nf.layer_norm(x, x.shape[-1:], w, b)


def _batch_norm(x: Any, w: Any, b: Any) -> Any:
    n = x.shape[1]
    return nf.batch_norm(x, ad.zeros(n, dtype=x.dtype), ad.ones(n, dtype=x.dtype), w, b, True)


def _rotary(x: Any) -> Any:
    rotary = Rotary(x.shape[-1], 16, {"rope_theta": 100.0})
    return turn(x, rotary.waves(ad.arange(x.shape[-2])[None], x.dtype))


def _nll(**options: Any) -> Callable[..., Any]:
    return lambda x: nf.nll_loss(x, classes((x.shape[0], *x.shape[2:]), x.shape[1]), **options)


def _entropy(**options: Any) -> Callable[..., Any]:
    def loss(x: Any, *weight: Any) -> Any:
        target = classes((x.shape[0], *x.shape[2:]), x.shape[1])
        if "ignore_index" in options:
            target = target.reshape(-1).index_fill(0, ad.tensor([1]), options["ignore_index"])
            target = target.reshape(x.shape[0], *x.shape[2:])
        given = weight[0].detach().abs() + 0.5 if weight else None
        return nf.cross_entropy(x, target, given, **options)

    return loss


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int, int]] = {
    "layer_norm": (_layer_norm, [(6, 10), (10,), (10,)], 1, 2),
    "layer_norm-3d": (_layer_norm, [(2, 3, 9), (9,), (9,)], 1, 2),
    "layer_norm-one-row": (_layer_norm, [(1, 9), (9,), (9,)], 1, 1),
    "layer_norm-square": (_layer_norm, [(7, 7), (7,), (7,)], 1, 2),
    "layer_norm-plain": (lambda x: nf.layer_norm(x, x.shape[1:]), [(3, 4, 5)], 1, 1),
    "rms_norm": (lambda x, w: nf.rms_norm(x, x.shape[-1:], w), [(6, 10), (10,)], 1, 2),
    "batch_norm": (_batch_norm, [(4, 3, 2, 5), (3,), (3,)], 1, 1),
    "batch_norm-2d": (_batch_norm, [(8, 5), (5,), (5,)], 1, 1),
    "batch_norm-eval": (
        lambda x, w, b: nf.batch_norm(x, w.detach(), b.detach() ** 2, w, b),
        [(4, 3, 5), (3,), (3,)], 1, 1,
    ),
    "group_norm": (lambda x, w, b: nf.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)], 1, 2),
    "softmax": (lambda x: x.softmax(1), [(5, 9)], 0, 1),
    "log_softmax": (lambda x: x.log_softmax(0), [(5, 9)], 0, 1),
    "gelu": (nf.gelu, [(5, 9)], 0, 1),
    "gelu-tanh": (lambda x: nf.gelu(x, approximate="tanh"), [(5, 9)], 0, 1),
    "silu": (nf.silu, [(5, 9)], 0, 1),
    "mse": (nf.mse_loss, [(5, 9), (5, 9)], 1, 1),
    "mse-none": (lambda x, t: nf.mse_loss(x, t, reduction="none"), [(5, 9), (5, 9)], 1, 1),
    "mse-broadcast": (nf.mse_loss, [(5, 9), (9,)], 1, 1),
    "mse-weighted": (lambda x, t, w: nf.mse_loss(x, t, weight=w), [(5, 9)] * 3, 1, 1),
    "l1": (nf.l1_loss, [(5, 9), (5, 9)], 1, 1),
    "smooth_l1": (nf.smooth_l1_loss, [(5, 9), (5, 9)], 1, 1),
    "huber": (lambda x, t: nf.huber_loss(x, t, "sum", 0.7), [(5, 9), (5, 9)], 1, 1),
    "bce_with_logits": (
        lambda x, p: nf.binary_cross_entropy_with_logits(
            x, (x.detach() > 0).to(x.dtype), pos_weight=p.detach().abs()
        ),
        [(5, 9), (9,)], 1, 1,
    ),
    "kl_div": (
        lambda x, t: nf.kl_div(x, t.detach().abs(), reduction="batchmean"), [(5, 9), (5, 9)], 1, 1
    ),
    "cross_entropy": (_entropy(), [(6, 5)], 2, 2),
    "cross_entropy-sum": (_entropy(reduction="sum"), [(6, 5)], 2, 1),
    "cross_entropy-none": (_entropy(reduction="none"), [(6, 5)], 1, 1),
    "cross_entropy-images": (_entropy(), [(3, 5, 2, 4)], 2, 2),
    "cross_entropy-ignored": (_entropy(ignore_index=-100), [(6, 5)], 2, 2),
    "cross_entropy-ignored-class": (_entropy(ignore_index=2), [(6, 5)], 2, 2),
    "cross_entropy-smoothed": (_entropy(label_smoothing=0.2), [(6, 5)], 2, 2),
    "cross_entropy-all": (
        _entropy(label_smoothing=0.2, ignore_index=-1), [(6, 5), (5,)], 2, 2,
    ),
    "cross_entropy-soft": (
        lambda x, t: nf.cross_entropy(x, t.softmax(1).detach()), [(6, 5), (6, 5)], 2, 1
    ),
    "group_norm-square": (lambda x, w, b: nf.group_norm(x, 4, w, b), [(4, 4, 4), (4,), (4,)], 1, 2),
    "instance_norm": (nf.instance_norm, [(3, 4, 5)], 1, 1),
    "glu": (nf.glu, [(5, 8)], 1, 1),
    "glu-first": (lambda x: nf.glu(x, 0), [(6, 6)], 1, 1),
    "glu-middle": (lambda x: nf.glu(x, 1), [(2, 6, 5)], 1, 1),
    "glu-pairs": (nf.glu, [(4, 2)], 1, 1),
    "glu-one": (nf.glu, [(2,)], 1, 1),
    "rotary": (_rotary, [(2, 3, 5, 8)], 1, 1),
    "rotary-strided": (lambda x: _rotary(x.transpose(1, 2)), [(2, 3, 5, 8)], 1, 1),
    "cosine_similarity": (nf.cosine_similarity, [(5, 9), (5, 9)], 1, 1),
    "cosine_similarity-broadcast": (
        lambda x, y: nf.cosine_similarity(x, y, 0), [(5, 9), (5, 1)], 1, 1,
    ),
    "normalize": (nf.normalize, [(5, 9)], 1, 1),
    "normalize-columns": (lambda x: nf.normalize(x, 1.0, 0), [(5, 9)], 1, 1),
    "bce": (
        lambda x, t: nf.binary_cross_entropy(x.sigmoid(), t.sigmoid()), [(5, 9), (5, 9)], 1, 1
    ),
    "bce-weighted": (
        lambda x, w: nf.binary_cross_entropy(
            x.sigmoid(), (x.detach() > 0).to(x.dtype), w.detach().abs()
        ),
        [(5, 9), (5, 9)], 1, 1,
    ),
    "nll": (_nll(), [(6, 5)], 1, 1),
    "nll-square": (_nll(), [(5, 5)], 1, 1),
    "nll-images": (_nll(reduction="sum"), [(3, 4, 3, 3)], 1, 1),
}  # fmt: skip
TOLERANCES = {ad.float64: 1e-12, ad.float32: 2e-6, ad.bfloat16: 0.02}


def of_dtypes(first: Any) -> list[Any]:
    """All cases in all dtypes; of the dtypes but the first, one in five is in `make test`."""
    others = [(name, dtype) for dtype in TOLERANCES if dtype is not first for name in CASES]
    return [*((name, first) for name in CASES), *one_in(5, others)]


def inputs_of(name: str, dtype: Any) -> tuple[Callable[..., Any], list[Any]]:
    function, shapes, _, _ = CASES[name]
    return function, [values(shape, dtype, i) for i, shape in enumerate(shapes)]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("name", "dtype"), of_dtypes(ad.float32))
def test_kernels_give_what_the_ops_give(name: str, dtype: Any, monkeypatch: Any) -> None:
    function, inputs = inputs_of(name, dtype)
    found = results(function, inputs)
    if dtype is ad.bfloat16:  # rounded once: compared with what float32 gives
        inputs = [x.detach().float().requires_grad_() for x in inputs]
    expected = one_by_one(lambda: results(function, inputs), monkeypatch)
    assert len(found) == len(expected)
    for y, z in zip(found, expected, strict=True):
        scale = max(np.abs(z).max(), 1.0)
        np.testing.assert_allclose(y, z, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * scale)


@pytest.fixture
def all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values of the forward kernels are kept whatever the size of the inputs."""
    monkeypatch.setattr(policy, "KEPT_LARGE", 0)
    monkeypatch.setattr(policy, "KEPT_SHARE", 2)
    monkeypatch.setattr(
        core_fused,
        "_execute",
        lambda declared, args: fusion.execute(Declared(declared.function, "", False), args),
    )
    monkeypatch.setattr(core_fused, "run_known", lambda known, args, by_gradient=False: None)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("name", "dtype"), of_dtypes(ad.float64))
def test_kernels_that_keep_small_values_give_the_same(
    name: str, dtype: Any, monkeypatch: Any, request: Any
) -> None:
    function, inputs = inputs_of(name, dtype)
    expected = results(function, inputs)
    request.getfixturevalue("all_kept")
    for y, z in zip(results(function, inputs), expected, strict=True):
        scale = max(np.abs(z).max(), 1.0)
        np.testing.assert_allclose(y, z, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * scale)


def test_statistics_of_rows_are_kept(all_kept: None, monkeypatch: Any) -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]

    def second_order() -> Any:
        y = _layer_norm(x, w, b)
        (g,) = ad.autograd.grad((y**3).sum(), x, create_graph=True)
        return ad.autograd.grad((g**2).sum(), x)[0].numpy()

    saved = _layer_norm(x, w, b)._node.saved
    assert sorted(tuple(s.shape) for s in saved) == [(6, 1), (6, 1), (6, 10), (10,)]
    np.testing.assert_allclose(second_order(), one_by_one(second_order, monkeypatch), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", CASES)
def test_number_of_kernels(name: str) -> None:
    function, inputs = inputs_of(name, ad.float32)
    with Kernels() as forward:
        ys = function(*inputs)
    with Kernels() as backward:
        ys.backward(ad.ones_like(ys))
    assert (forward.count, backward.count) == CASES[name][2:]


@pytest.mark.parametrize(
    "name",
    ["layer_norm", "batch_norm", "group_norm", "mse", "cross_entropy", "nll", "softmax", "glu",
     "rotary"],
)  # fmt: skip
def test_any_strides(name: str, monkeypatch: Any) -> None:
    function, inputs = inputs_of(name, ad.float64)
    whole = inputs[0].detach()
    order = tuple(reversed(range(whole.ndim)))
    layouts = [
        whole.permute(order).contiguous().permute(order),
        whole.repeat_interleave(2, 1)[:, ::2],
        whole.flip(0).contiguous().flip(0),
        whole[:, :1].expand(whole.shape),
    ]
    for x in layouts:
        given = [x.detach().requires_grad_(), *inputs[1:]]
        expected = one_by_one(lambda given=given: results(function, given), monkeypatch)
        for y, z in zip(results(function, given), expected, strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wants", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)])
def test_frozen_inputs_get_no_gradient(wants: tuple[int, ...], monkeypatch: Any) -> None:
    function, inputs = inputs_of("layer_norm", ad.float64)
    given = [x.detach().requires_grad_(bool(w)) for x, w in zip(inputs, wants, strict=True)]
    found = results(function, given)
    assert [x.grad is not None for x in given] == [bool(w) for w in wants]
    for y, z in zip(found, one_by_one(lambda: results(function, given), monkeypatch), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["layer_norm", "rms_norm", "batch_norm", "group_norm", "softmax", "gelu", "silu", "glu",
     "rotary", "mse", "cross_entropy", "cross_entropy-all", "bce_with_logits"],
)  # fmt: skip
def test_higher_orders(name: str) -> None:
    function, inputs = inputs_of(name, ad.float64)
    if name in ("bce_with_logits", "cross_entropy-all"):  # they detach the others
        inputs, others = inputs[:1], inputs[1:]
    else:
        others = []
    assert ad.autograd.gradcheck(lambda *xs: function(*xs, *others), inputs)
    assert ad.autograd.gradgradcheck(lambda *xs: function(*xs, *others), inputs)


def test_a_tensor_given_twice_gets_both_gradients(monkeypatch: Any) -> None:
    x = values((4, 6))

    def twice(x: Any) -> Any:
        return nf.mse_loss(x * 2, x) + nf.mse_loss(x, x.exp())

    found = results(twice, [x])
    expected = one_by_one(lambda: results(twice, [x]), monkeypatch)
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-12)
    assert ad.autograd.gradgradcheck(twice, [x])


def test_gradient_of_the_gradient_where_an_input_was_not_saved() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    y = _layer_norm(x, w, b)
    (gx, gb) = ad.autograd.grad((y**3).sum(), [x, b], create_graph=True)
    (gxb,) = ad.autograd.grad(gx.sum() + gb.sum(), b)
    y0 = y.detach()
    np.testing.assert_allclose(gb.detach().numpy(), (3 * y0**2).sum(0).numpy(), rtol=1e-9)
    assert np.isfinite(gxb.numpy()).all()


def test_hooks_see_the_fresh_gradients() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    y = _layer_norm(x, w, b)
    seen = []
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: seen.append(g.clone()))
    y.sum().backward()
    np.testing.assert_array_equal(b.grad.numpy(), np.full(10, 12.0))
    np.testing.assert_array_equal(seen[0].numpy(), x.grad.numpy())


def test_what_backward_reads_must_not_change_and_the_rest_may() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    y = _layer_norm(x, w, b)
    with ad.no_grad():
        b.add_(1)  # no gradient reads it
    y.sum().backward()
    y = _layer_norm(x, w, b)
    with ad.no_grad():
        w.mul_(2)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


def test_second_backward_needs_retain_graph() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    y = _layer_norm(x, w, b).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(AutogradError, match="second time"):
        y.backward()


def test_only_what_backward_reads_is_kept_alive() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    node = _layer_norm(x, w, b).grad_fn
    assert [s is t for s, t in zip(node.saved, (x, w), strict=True)] == [True, True]
    assert repr(node).startswith("<Standardize")


def test_empty_and_special_values(monkeypatch: Any) -> None:
    empty = values((0, 5))
    assert nf.layer_norm(empty, (5,)).shape == (0, 5)
    with Kernels() as run:
        nf.layer_norm(empty, (5,)).sum().backward()
    assert run.count == 0
    inf, nan = np.inf, np.nan
    x = ad.tensor([[nan, 1, 2], [inf, 0, 1], [-inf, 0, 1], [0, 0, 0]]).requires_grad_()
    for function in (_entropy(), lambda x: nf.layer_norm(x, (3,)), lambda x: x.softmax(1)):
        expected = one_by_one(lambda f=function: results(f, [x]), monkeypatch)
        for y, z in zip(results(function, [x]), expected, strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-5)


def test_wrong_targets_are_refused() -> None:
    x = values((4, 3))
    for wrong in (3, -1):
        with pytest.raises(IndexingError, match=f"Target {wrong} is out of bounds"):
            nf.cross_entropy(x, ad.tensor([0, 1, wrong, 2]))
    assert nf.cross_entropy(x, ad.tensor([0, 1, -1, 2]), ignore_index=-1).item() > 0


def test_wrong_probabilities_are_refused() -> None:
    for wrong in (-0.1, 1.1):
        x = ad.tensor([0.1, 0.5, wrong]).requires_grad_()
        with pytest.raises(InvalidArgument, match="between 0 and 1"):
            nf.binary_cross_entropy(x, ad.ones(3))


def test_lazy_and_graph_modes_record_the_ops() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    expected = _layer_norm(x, w, b).detach().numpy()
    with Kernels() as run:
        with ad.lazy():
            y = _layer_norm(x, w, b)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
        graph = ad.Graph()
        with graph:
            z = _layer_norm(x, w, b)
        assert len(graph.nodes) > 1
        np.testing.assert_allclose(z.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert run.count == 1  # of the graph, whose walk calls the composite for its nodes together


def test_backward_inside_lazy() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    y = _layer_norm(x, w, b)
    (expected,) = ad.autograd.grad(y.exp().sum(), x, retain_graph=True)
    with ad.lazy():
        (g,) = ad.autograd.grad(y.exp().sum(), x)
    np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)


def test_without_the_native_backend_ops_run() -> None:
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    native.enable(False)
    try:
        with Kernels() as run:
            _layer_norm(x, w, b).sum().backward()
    finally:
        native.enable()
    assert run.count == 0


def test_small_tensors_are_left_alone(monkeypatch: Any) -> None:
    monkeypatch.setattr(core_fused, "SMALLEST", 61)
    x, w, b = inputs_of("layer_norm", ad.float64)[1]
    with Kernels() as run:
        _layer_norm(x, w, b)
    assert run.count == 0


def test_what_has_no_kernel_runs_op_by_op_and_is_remembered(
    monkeypatch: Any, falls_back: None
) -> None:
    captures = []
    original = fusion.plan_for

    def noted(*args: Any) -> Any:
        captures.append(original(*args))
        return captures[-1]

    monkeypatch.setattr(fusion, "plan_for", noted)

    @fused
    def sorts(x: Any) -> Any:
        return x.sort(0).values * 2

    x = values((5, 2))
    for _ in range(3):
        y = sorts(x)
    np.testing.assert_array_equal(y.detach().numpy(), np.sort(x.detach().numpy(), 0) * 2)
    assert captures == ["arg_sort: no kernel does ranked"]


def test_errors_are_those_of_the_ops() -> None:
    @fused
    def add(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(ShapeError, match="add"):
        add(values((2, 3)), values((4, 3)))


def test_shapes_differ_between_kernels() -> None:
    """Reductions of reductions over other axes, used again at full size."""

    @fused
    def function(x: Any) -> Any:
        rows = (x * x).sum(1, keepdim=True)
        columns = (x / rows).sum(0, keepdim=True)
        return (x * columns).exp().mean() + columns.max(), rows.squeeze(1)

    for shape in ((4, 6), (5, 5), (1, 7), (7, 1), (1, 1)):
        x = values(shape, ad.float64, 4)
        with Kernels() as run:
            y, rows = function(x)
        assert run.count > 0
        z, expected = function.__wrapped__(x)
        np.testing.assert_allclose(y.item(), z.item(), rtol=1e-12)
        np.testing.assert_allclose(rows.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
        (g,) = ad.autograd.grad(y + rows.sum(), x)
        (h,) = ad.autograd.grad(z + expected.sum(), x)
        np.testing.assert_allclose(g.numpy(), h.numpy(), rtol=1e-11)
        y, rows = function(x)
        (g,) = ad.autograd.grad(rows.sum(), x)  # one of two outputs only
        np.testing.assert_allclose(g.numpy(), 2 * x.detach().numpy(), rtol=1e-12)


def test_many_threads_get_the_same(monkeypatch: Any) -> None:
    x, w, b = (values(s, ad.float32, i, False) for i, s in enumerate([(130, 257), (257,), (257,)]))
    expected = _layer_norm(x, w, b).numpy()
    found: list[Any] = [None] * 8

    def work(i: int) -> None:
        mine = x.clone().requires_grad_()
        for _ in range(10):
            y = _layer_norm(mine, w, b)
            y.sum().backward()
        found[i] = (y.detach().numpy(), mine.grad.numpy())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for y, g in found:
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(g, found[0][1])


@few_or_many("count", 12, 200)
def test_random_expressions(count: int, monkeypatch: Any, falls_back: None) -> None:
    """Composites of random elementwise ops and reductions, against the ops themselves."""
    rng = np.random.default_rng(11)
    fused_runs = 0
    for trial in range(count):
        plan = [
            (int(rng.integers(8)), int(rng.integers(3)), int(rng.integers(100))) for _ in range(6)
        ]

        def body(x: Any, w: Any, plan: Any = tuple(plan)) -> Any:
            known = [x, w, x * w]
            for kind, axis, pick in plan:
                a, b = known[pick % len(known)], known[(pick * 7 + 1) % len(known)]
                if kind < 2:
                    known.append(a.tanh() * b)
                elif kind < 4:
                    known.append(ad.sigmoid(a) - b)
                elif kind < 5:
                    known.append(ad.where(a > b, a, b * 0.5))
                elif kind < 7:
                    axes = (0, 1) if axis == 2 else (axis % a.ndim,)
                    known.append(a.mean(tuple(d for d in axes if d < a.ndim), keepdim=True))
                else:
                    known.append((a - b).exp() / 8)
            return known[-1] * known[-2]

        function = fused(body)
        shape = tuple(int(n) for n in rng.integers(1, 7, 2))
        x, w = values(shape, ad.float64, trial), values(shape[1:], ad.float64, trial + 100)
        with Kernels() as run:
            found = results(function, [x, w])
        fused_runs += run.count > 0
        for y, z in zip(found, results(body, [x, w]), strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-11)
    assert fused_runs > 0.75 * count


def test_what_is_small_does_not_decide_how_vectors_run() -> None:
    """Rows are reduced along memory, however many values per row are read and written beside."""
    kernel = Kernel(rank=2)
    x, y, z = (kernel.input("float32", axes) for axes in ((0, 1), (0,), (0,)))
    kernel.output(kernel.sum(x, axes=(1,)) * y + z)
    strides = [(256, 4), (4, 0), (4, 0), (4, 0)]
    assert not plan(kernel, (64, 64), strides, ["float32"] * 4).layout.columns


def test_inference_mode_fuses_too() -> None:
    x = ad.randn(64, 80)
    expected = ad.nn.functional.layer_norm(x, (80,))
    with ad.inference_mode(), Kernels() as kernels:
        found = ad.nn.functional.layer_norm(x, (80,))
    assert kernels.count > 0
    assert found.is_inference() and found.equal(expected)
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (found * ad.ones(1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("function", "shape", "p"),
    one_in(
        4,
        itertools.product(
            [nf.dropout, nf.alpha_dropout],
            [(1,), (7,), (5, 9), (1, 33, 1), (70, 130)],
            [0.1, 0.5, 1.0],
        ),
    ),
)
def test_dropout_draws_the_same_numbers_as_op_by_op(
    function: Callable[..., Any], shape: tuple[int, ...], p: float, monkeypatch: Any
) -> None:
    def run(x: Any) -> Any:
        ad.manual_seed(2**64 - 3)
        function(x, p, True)  # so that the draw is not the first
        return function(x, p, True)

    for dtype, tolerance in TOLERANCES.items():
        x = values(shape, dtype)
        for given in (x, x.detach().flip(0).contiguous().flip(0).requires_grad_()):
            found = results(run, [given])
            expected = one_by_one(lambda given=given: results(run, [given]), monkeypatch)
            for y, z in zip(found, expected, strict=True):
                np.testing.assert_allclose(y, z, rtol=tolerance, atol=tolerance)
                if function is nf.dropout:
                    np.testing.assert_array_equal(y == 0, z == 0)


def test_dropout_is_one_kernel_each_way_and_keeps_a_byte_per_element() -> None:
    x = values((64, 65), ad.float32)
    with Kernels() as forward:
        y = nf.dropout(x, 0.3, True)
    seed, draw, mask = y.grad_fn.saved
    assert (seed.shape, draw.shape, mask.dtype) == ((), (), ad.bool)
    with ad.no_grad():
        x.mul_(2)  # no gradient reads it
    with Kernels() as backward:
        y.backward(ad.ones_like(y))
    assert (forward.count, backward.count) == (1, 1)
    np.testing.assert_array_equal(x.grad.numpy() == 0, y.detach().numpy() == 0)
    for p in (0.2, 0.6):  # other probabilities are other plans, other draws are not
        ys = [nf.dropout(ad.ones(10000), p, True) for _ in range(2)]
        assert not ys[0].equal(ys[1])
        assert abs((ys[0] == 0).float().mean().item() - p) < 0.02


def test_dropout_of_any_strides_and_higher_orders(monkeypatch: Any) -> None:
    def run(x: Any) -> Any:
        ad.manual_seed(3)
        return nf.dropout(x, 0.4, True)

    whole = values((6, 7), grad=False)
    for x in (whole.t(), whole.repeat_interleave(2, 1)[:, ::2], whole[:, :1].expand(6, 7)):
        given = [x.detach().requires_grad_()]
        expected = one_by_one(lambda given=given: results(run, given), monkeypatch)
        for y, z in zip(results(run, given), expected, strict=True):
            np.testing.assert_array_equal(y, z)
    x = values((3, 5))
    assert ad.autograd.gradcheck(lambda x: run(x) ** 2, [x])
    assert ad.autograd.gradgradcheck(lambda x: run(x) ** 2, [x])


def test_numbers_beside_narrow_floats_are_no_tensors() -> None:
    x = values((8, 9), ad.bfloat16)
    with Kernels() as run:
        y = fused(lambda x: (1 - x) * (x + 0.3))(x)
    assert run.count == 1
    assert y.dtype is ad.bfloat16


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "name",
    ["batch_norm", "group_norm", "layer_norm", "gelu", "silu", "mish", "softplus", "glu", "rotary",
     "normalize", "cosine_similarity", "cross_entropy", "mse", "expanded"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [ad.float32, ad.bfloat16], ids=lambda d: d.name)
def test_autocast_converts_inside_composites(name: str, dtype: Any, monkeypatch: Any) -> None:
    others: dict[str, Any] = {
        "mish": (nf.mish, [(5, 9)]),
        "softplus": (nf.softplus, [(5, 9)]),
        "expanded": (fused(lambda x: ((x * 2).exp() + x * x).log() * x), [(5, 9)]),
    }
    function, shapes = others.get(name) or CASES[name][:2]
    inputs = [values(shape, dtype, i) for i, shape in enumerate(shapes)]

    def run(*given: Any) -> Any:
        with ad.autocast("cpu", dtype=ad.bfloat16):
            return function(*given)

    expected_dtype = one_by_one(lambda: run(*inputs).dtype, monkeypatch)
    expected = one_by_one(lambda: results(run, inputs), monkeypatch)
    assert run(*inputs).dtype is expected_dtype
    tolerance = TOLERANCES[ad.bfloat16 if dtype is ad.bfloat16 else expected_dtype]
    for y, z in zip(results(run, inputs), expected, strict=True):
        scale = max(np.abs(z).max(), 1.0)
        np.testing.assert_allclose(y, z, rtol=tolerance, atol=tolerance * scale)


def test_autocast_runs_composites_as_kernels_and_plans_apart() -> None:
    @fused
    def body(x: Any, w: Any) -> Any:
        return (x * 0.1).exp().sum(0) * w

    x, w = values((6, 7), ad.bfloat16), values((7,), ad.bfloat16)
    found = []
    with Kernels() as run:
        for enabled in (True, False, True):
            with ad.autocast("cpu", dtype=ad.bfloat16, enabled=enabled):
                found.append(body(x, w))
            found[-1].sum().backward()
    assert run.count == 6
    plain = [y.dtype for y in found]
    assert plain[0] is plain[2]
    assert x.grad.dtype is ad.bfloat16
    double = values((4, 5), ad.float64)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert ad.autograd.gradgradcheck(lambda x: body(x, double[0]), [double])


# ---- calls that are known ------------------------------------------------------------------------


KNOWN: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "leaky_relu": (lambda x: nf.leaky_relu(x, negative_slope=0.1), [(8, 6)]),
    "glu": (nf.glu, [(8, 6)]),
    "glu-first": (lambda x: nf.glu(x, 0), [(8, 6)]),
    "softmax": (lambda x: nf.softmax(x, dim=-1), [(8, 6)]),
    "layer_norm": (_layer_norm, [(8, 6), (6,), (6,)]),
    "group_norm": (lambda x, w, b: nf.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "batch_norm": (lambda x, w: nf.batch_norm(x, None, None, w, training=True), [(6, 4, 5), (4,)]),
    "nll": (_nll(), [(6, 4)]),
    "cross_entropy": (_entropy(ignore_index=1), [(6, 4, 5)]),
}


@pytest.mark.parametrize("name", one_in(2, KNOWN))
def test_known_calls_give_what_first_ones_give(name: str) -> None:
    """Also for another dtype, for tensors that lie otherwise, and with fewer wanted gradients."""
    function, shapes = KNOWN[name]
    for dtype in (ad.float64, ad.float32, ad.float64):
        for turned in (False, True):
            for wanted in (len(shapes), 1):
                inputs = [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]
                for x in inputs[wanted:]:
                    x.requires_grad_(False)
                if turned:
                    leaf = inputs[0].detach().transpose(0, 1).contiguous().transpose(0, 1)
                    inputs[0] = leaf.requires_grad_()
                with Kernels():  # no call is known
                    expected = results(function, inputs)
                for _ in range(3):
                    found = results(function, inputs)
                    for y, z in zip(found, expected, strict=True):
                        np.testing.assert_array_equal(y, z)


def test_known_calls_refuse_what_first_ones_refuse() -> None:
    x, targets = values((8, 6), ad.float32, grad=False), classes((8,), 6)
    for _ in range(3):
        nf.nll_loss(x, targets)
        nf.softmax(x, 1)
        nf.leaky_relu(x, 0.5)
    for _ in range(2):
        with pytest.raises(IndexingError, match="out of bounds"):
            nf.nll_loss(x, targets.index_fill(0, ad.tensor([2]), 6))
    with pytest.raises(ShapeError):
        nf.nll_loss(x, targets[:7])
    with pytest.raises(TypeError):
        nf.softmax(x, 1.0)
    with pytest.raises(DTypeError):
        nf.leaky_relu(x.long(), 0.5)
    with pytest.raises(TypeError):
        nf.leaky_relu(x._data, 0.5)
    with pytest.raises(ShapeError):
        nf.layer_norm(x, [5])
    assert nf.nll_loss(x, targets).isfinite()


def test_known_calls_tell_zeros_of_either_sign_apart() -> None:
    x = -values((8, 8), ad.float32, grad=False).abs() - 1
    for _ in range(3):
        assert not bool(nf.leaky_relu(x, -0.0).signbit().any())
        assert bool(nf.leaky_relu(x, 0.0).signbit().all())


def test_known_calls_warn_each_time() -> None:
    x, targets = values((8, 6), ad.float32, grad=False), classes((8,), 6)
    for _ in range(3):
        with pytest.warns(UserWarning, match="Implicit dimension"):
            nf.log_softmax(x)
        with pytest.warns(UserWarning, match="size_average"):
            nf.nll_loss(x, targets, size_average=False)


def test_one_output_in_a_tuple_stays_one() -> None:
    @fused
    def halved(x: Any) -> Any:
        return (x * 0.5,)

    x = values((8, 6), ad.float32)
    for _ in range(3):
        found = halved(x)
        assert type(found) is tuple and len(found) == 1
