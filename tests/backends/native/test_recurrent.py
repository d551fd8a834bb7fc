"""Recurrent layers as machine code give what their operations give, and touch nothing else."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.backends.codegen import target
from adjoint.backends.native.gemm.products import matmul
from adjoint.backends.native.recurrent import eager_recurrent
from adjoint.backends.native.recurrent import loop as recurrent_loop
from adjoint.backends.native.recurrent import packing as recurrent_packing
from adjoint.backends.native.runtime.pool import default_pool
from adjoint.core import policy
from adjoint.core.errors import AutogradError, NotTraceable
from adjoint.nn.functional.recurrent import STEPS, recurrent_cell, recurrent_layer
from adjoint.runtime import fused as core_fused
from tests.native import needs_native
from tests.sweep import one_in

pytestmark = needs_native

KINDS = list(STEPS)
BODY: Any = recurrent_layer.__wrapped__  # type: ignore[attr-defined]
CELL_BODY: Any = recurrent_cell.__wrapped__  # type: ignore[attr-defined]
SHAPES = [  # time, batch, features, hidden
    (1, 1, 1, 1), (5, 3, 4, 6), (7, 10, 3, 16), (4, 33, 5, 40), (6, 1, 8, 17), (2, 70, 20, 33),
    (3, 2, 2, 100), (1, 9, 5, 8), (9, 4, 1, 64), (40, 16, 3, 5),
]  # fmt: skip


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code for tensors of every size."""
    monkeypatch.setattr(core_fused, "SMALLEST", 0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which loops have run."""
    names: list[str] = []
    for routine, name in (
        (eager_recurrent.Recurrent, "forward"),
        (eager_recurrent.SingleCell, "forward"),
        (eager_recurrent.Recurrent, "backward"),
    ):
        method = getattr(routine, name)

        def counted(self: Any, *args: Any, name: str = name, method: Any = method) -> Any:
            names.append(name)
            return method(self, *args)

        monkeypatch.setattr(routine, name, counted)
    return names


def draw(shape: tuple[int, ...], seed: int, dtype: Any = ad.float64, grad: bool = True) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return ad.tensor(values).to(dtype).requires_grad_(grad)


def arguments(
    kind: str,
    sizes: tuple[int, int, int, int],
    dtype: Any = ad.float64,
    bias: bool = True,
    lengths: tuple[int, ...] | None = None,
    projected: int = 0,
) -> list[Any]:
    """The tensors among the arguments of `recurrent_layer`; None for those that there are not."""
    steps, batch, features, hidden = sizes
    rows = STEPS[kind][1] * hidden
    first = (steps, batch, features) if lengths is None else (sum(lengths), features)
    output = projected or hidden
    shapes: list[Any] = [first, (rows, features), (rows, output)]
    shapes += [(rows,), (rows,)] if bias else [None, None]
    shapes += [(projected, hidden) if projected else None]
    shapes += [(batch, output), (batch, hidden) if kind == "LSTM" else None]
    drawn = [None if s is None else draw(s, 7 + n, dtype, False) for n, s in enumerate(shapes)]
    # Weights of such a size that differences do not grow from step to step.
    return [None if x is None else (x / x.shape[-1] ** 0.5).requires_grad_() for x in drawn]


def results(function: Callable[..., Any], tensors: list[Any], *options: Any) -> list[Any]:
    """Outputs, and the gradients of all inputs, for some gradients of all outputs."""
    for x in tensors:
        if x is not None:
            x.grad = None
    ys = function(*tensors, *options)
    gs = [draw(tuple(y.shape), 90 + n, y.dtype, False) for n, y in enumerate(ys)]
    wanted = [(y, g) for y, g in zip(ys, gs, strict=True) if y.requires_grad]
    ad.autograd.backward([y for y, _ in wanted], [g for _, g in wanted])
    gradients = [None if x is None else x.grad for x in tensors]
    return [None if y is None else y.detach().double().numpy() for y in (*ys, *gradients)]


def assert_close(found: list[Any], expected: list[Any], tolerance: float) -> None:
    assert len(found) == len(expected)
    for n, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert (x is None) == (y is None), n
        if x is not None:
            assert x.shape == y.shape, n
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(1, abs(y).max()))


# ---- the same results ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sizes", "reverse"),
    one_in(3, itertools.product(KINDS, SHAPES, [False, True])),
    ids=str,
)
def test_layer_in_double_precision(
    kind: str, sizes: tuple[int, int, int, int], reverse: bool, runs: list[str]
) -> None:
    tensors = arguments(kind, sizes, bias=not reverse)
    found = results(recurrent_layer, tensors, kind, reverse, None)
    assert runs == ["forward", "backward"]
    assert_close(found, results(BODY, tensors, kind, reverse, None), 1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(50, 32, 32, 128), (12, 5, 70, 48), (3, 40, 9, 21)])
def test_layer_in_single_precision(
    kind: str, sizes: tuple[int, int, int, int], runs: list[str]
) -> None:
    tensors = arguments(kind, sizes, ad.float32)
    wide = [None if x is None else x.detach().double().requires_grad_() for x in tensors]
    found = results(recurrent_layer, tensors, kind, False, None)
    assert runs == ["forward", "backward"]
    assert_close(found, results(BODY, wide, kind, False, None), 3e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [9, 33])
def test_the_products_with_large_weights_are_made_before(
    kind: str, batch: int, monkeypatch: pytest.MonkeyPatch, runs: list[str]
) -> None:
    made = []

    def spying(a: Any, b: Any) -> Any:
        made.append((a.shape, b.shape))
        return matmul(a, b)

    monkeypatch.setattr(eager_recurrent, "matmul", spying)
    monkeypatch.setattr(policy, "RECURRENT_LARGE", 1000)
    tensors = arguments(kind, (5, batch, 29, 23))
    found = results(recurrent_layer, tensors, kind, False, None)
    before = ((5 * batch, 29), (29, 23 * STEPS[kind][1]))
    assert runs == ["forward", "backward"] and (before in made) == (batch == 9)
    assert_close(found, results(BODY, tensors, kind, False, None), 1e-11)


@pytest.mark.parametrize(
    ("kind", "reverse", "lengths"),
    one_in(
        5,
        itertools.product(
            KINDS,
            [False, True],
            [(6, 6, 4, 1), (30, 17, 17, 9, 8, 2, 1), (3, 3), (5, 1), (2,), (20,) * 40],
        ),
    ),
)
def test_packed_sequences(
    kind: str, reverse: bool, lengths: tuple[int, ...], runs: list[str]
) -> None:
    tensors = arguments(kind, (0, lengths[0], 5, 18), lengths=lengths)
    found = results(recurrent_layer, tensors, kind, reverse, lengths)
    assert runs == ["forward", "backward"]
    assert_close(found, results(BODY, tensors, kind, reverse, lengths), 1e-11)


@pytest.mark.parametrize(
    ("sizes",), one_in(4, [((*s, p),) for s in SHAPES for p in (1, 18, 64) if p < s[3]])
)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_projections(sizes: tuple[int, ...], reverse: bool, packed: bool, runs: list[str]) -> None:
    steps, batch, features, hidden, projected = sizes
    lengths = tuple(max(1, batch - n) for n in range(steps)) if packed else None
    shape = steps, batch, features, hidden
    tensors = arguments("LSTM", shape, lengths=lengths, projected=projected)
    found = results(recurrent_layer, tensors, "LSTM", reverse, lengths)
    assert runs == ["forward", "backward"]
    assert_close(found, results(BODY, tensors, "LSTM", reverse, lengths), 1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 4, 6), (20, 70, 33), (64, 5, 128)])
def test_cell(kind: str, sizes: tuple[int, int, int], runs: list[str]) -> None:
    batch, features, hidden = sizes
    tensors = arguments(kind, (1, batch, features, hidden), lengths=(batch,))
    del tensors[5]
    found = results(recurrent_cell, tensors, kind)
    assert runs == ["forward", "backward"]
    assert_close(found, results(CELL_BODY, tensors, kind), 1e-12)


@pytest.mark.parametrize(
    ("kind", "sizes", "missing"),
    one_in(
        3,
        itertools.product(KINDS, [(3, 4, 6), (600, 7, 33)], [(5,), (5, 6), (3,), (4,), (3, 4, 5)]),
    ),
)
def test_cell_without_a_state_or_biases(
    kind: str, sizes: tuple[int, int, int], missing: tuple[int, ...], runs: list[str]
) -> None:
    batch, features, hidden = sizes
    tensors = arguments(kind, (1, batch, features, hidden), lengths=(batch,))
    del tensors[5]
    for n in missing:
        tensors[n] = None
    found = results(recurrent_cell, tensors, kind)
    assert runs == ["forward", "backward"]
    assert_close(found, results(CELL_BODY, tensors, kind), 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [3, 4])
def test_layer_with_one_of_the_biases(kind: str, missing: int, runs: list[str]) -> None:
    tensors = arguments(kind, (4, 5, 3, 18))
    tensors[missing] = None
    found = results(recurrent_layer, tensors, kind, False, None)
    assert runs == ["forward", "backward"]
    assert_close(found, results(BODY, tensors, kind, False, None), 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_cell_without_a_batch_is_made_of_operations(kind: str, runs: list[str]) -> None:
    tensors = arguments(kind, (1, 3, 4, 6), lengths=(3,))
    del tensors[5]
    tensors[0], tensors[5] = draw((4,), 1), draw((6,), 2)
    if kind == "LSTM":
        tensors[6] = draw((6,), 3)
    found = results(recurrent_cell, tensors, kind)
    assert not runs
    assert_close(found, results(CELL_BODY, tensors, kind), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_sums(kind: str, runs: list[str]) -> None:
    tensors = arguments(kind, (4, 5, 3, 7))
    with ad.no_grad():
        tensors[0].mul_(1e4)
        tensors[0][1, 2, 0] = float("nan")
        tensors[0][2, 3, 1] = float("inf")
    found = recurrent_layer(*tensors, kind, False, None)
    assert runs == ["forward"]
    for y, expected in zip(found, BODY(*tensors, kind, False, None), strict=True):
        np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-12)


def strided(x: Any, how: str) -> Any:
    """The same values, lying in memory in another way."""
    if how == "transposed":
        return x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    if how == "every other":
        wide = ad.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
        wide[..., ::2] = x.detach()
        return wide[..., ::2].requires_grad_()
    wide = ad.zeros(x.shape[0] + 3, *x.shape[1:-1], x.shape[-1] + 5, dtype=x.dtype)
    wide[2:-1, ..., 1:-4] = x.detach()
    return wide[2:-1, ..., 1:-4].requires_grad_()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["transposed", "every other", "part"])
@pytest.mark.parametrize("batch", [2, 9])
def test_strided_inputs(kind: str, how: str, batch: int, runs: list[str]) -> None:
    tensors = arguments(kind, (6, batch, 4, 10))
    expected = results(BODY, tensors, kind, False, None)
    tensors = [
        x if x is None else strided(x, "every other" if x.ndim == 1 else how) for x in tensors
    ]
    assert_close(results(recurrent_layer, tensors, kind, False, None), expected, 1e-11)
    assert runs == ["forward", "backward"]


@pytest.mark.parametrize("kind", KINDS)
def test_strided_gradients(kind: str, runs: list[str]) -> None:
    tensors = arguments(kind, (6, 5, 4, 10))
    grads = []
    for function in (recurrent_layer, BODY):
        for x in tensors:
            if x is not None:
                x.grad = None
        output = function(*tensors, kind, False, None)[0]
        (
            output.transpose(0, 2)[::3].sum() + output[-1].exp().sum() + output[:, 1:4].sum()
        ).backward()
        grads.append([None if x is None else x.grad.numpy() for x in tensors])
    assert_close(*grads, 1e-11)
    assert runs == ["forward", "backward"]


@pytest.mark.parametrize("module", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False, "batch_first": True},
        {"num_layers": 3},
        {"num_layers": 2, "bidirectional": True, "proj_size": 7},
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_modules_against_pytorch(
    module: str, options: dict[str, Any], given: bool, runs: list[str]
) -> None:
    torch = pytest.importorskip("torch")
    if "proj_size" in options and module != "LSTM":
        options = {k: v for k, v in options.items() if k != "proj_size"}
    theirs = getattr(torch.nn, module)(5, 19, dtype=torch.float64, **options)
    ours = getattr(ad.nn, module)(5, 19, dtype=ad.float64, **options)
    ours.load_state_dict({k: ad.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    places = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    random = np.random.default_rng(3)
    x = random.standard_normal((6, 11, 5))
    batch = 6 if options.get("batch_first") else 11
    h = random.standard_normal((places, batch, options.get("proj_size") or 19))
    c = random.standard_normal((places, batch, 19))
    found = []
    for lib, model in ((ad, ours), (torch, theirs)):
        inputs = [lib.tensor(v, requires_grad=True) for v in (x, h, c)]
        hx: Any = (inputs[1], inputs[2]) if module == "LSTM" else inputs[1]
        output, final = model(inputs[0], hx) if given else model(inputs[0])
        final = final if isinstance(final, tuple) else (final,)
        loss = (output * output.cos()).sum()
        for part in final:
            loss = loss + part.sin().sum()
        loss.backward()
        used = inputs[: 1 + given * len(final)]
        tensors = [output, *final, *(p.grad for p in model.parameters()), *(x.grad for x in used)]
        found.append([t.detach().numpy() for t in tensors])
    assert_close(found[0], found[1], 1e-10)
    assert runs == ["forward"] * places + ["backward"] * places


def test_packed_module_against_pytorch(runs: list[str]) -> None:
    torch = pytest.importorskip("torch")
    options = {"num_layers": 2, "bidirectional": True}
    theirs = torch.nn.LSTM(4, 9, dtype=torch.float64, **options)
    ours = ad.nn.LSTM(4, 9, dtype=ad.float64, **options)
    ours.load_state_dict({k: ad.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(3).standard_normal((7, 6, 4))
    found = []
    for lib, model in ((ad, ours), (torch, theirs)):
        data = lib.tensor(x, requires_grad=True)
        utils = lib.nn.utils.rnn
        packed = utils.pack_padded_sequence(data, [3, 7, 1, 7, 2, 5], enforce_sorted=False)
        output, (h, c) = model(packed)
        padded, _ = utils.pad_packed_sequence(output)
        (padded.sin().sum() + h.exp().sum() + (c * c).sum()).backward()
        tensors = [padded, h, c, data.grad, *(p.grad for p in model.parameters())]
        found.append([t.detach().numpy() for t in tensors])
    assert_close(found[0], found[1], 1e-10)
    assert len(runs) == 8


# ---- gradients that are wanted, and those that are given -----------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(5, 3, 4, 6), (20, 30, 3, 7)])
def test_each_input_alone_may_want_a_gradient(kind: str, sizes: tuple[int, int, int, int]) -> None:
    tensors = arguments(kind, sizes)
    expected = results(BODY, tensors, kind, True, None)
    outputs = len(expected) - len(tensors)
    for n, x in enumerate(tensors):
        if x is not None:
            alone = [y if y is None else y.detach().requires_grad_(y is x) for y in tensors]
            found = results(recurrent_layer, alone, kind, True, None)
            only = [y if m in (n, *range(-outputs, 0)) else None
                    for m, y in enumerate(expected, -outputs)]  # fmt: skip
            assert_close(found, only, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_each_output_alone_may_get_a_gradient(kind: str, runs: list[str]) -> None:
    tensors = arguments(kind, (5, 6, 4, 7))
    used = [x for x in tensors if x is not None]
    for n in range(3 if kind == "LSTM" else 2):
        found, expected = (
            ad.autograd.grad(function(*tensors, kind, False, None)[n].exp().sum(), used)
            for function in (recurrent_layer, BODY)
        )
        assert_close([g.numpy() for g in found], [g.numpy() for g in expected], 1e-11)
    assert "backward" in runs


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str) -> None:
    tensors = arguments(kind, (4, 3, 2, 5))
    used = [x for x in tensors if x is not None]
    found = []
    for function in (recurrent_layer, BODY):
        output, *final = function(*tensors, kind, False, None)
        loss = output.sin().sum() + sum(y.exp().sum() for y in final)
        first = ad.autograd.grad(loss, used, create_graph=True)
        second = ad.autograd.grad(sum((g * g).sum() for g in first), used)
        found.append([g.detach().numpy() for g in (*first, *second)])
    assert_close(found[0], found[1], 1e-10)


def test_backward_twice(runs: list[str]) -> None:
    tensors = arguments("LSTM", (5, 6, 4, 7))
    loss = recurrent_layer(*tensors, "LSTM", False, None)[0].sin().sum()
    loss.backward(retain_graph=True)
    first = [x.grad.clone() for x in tensors if x is not None]
    loss.backward()
    again = [x.grad for x in tensors if x is not None]
    for x, y in zip(first, again, strict=True):
        assert np.array_equal(2 * x.numpy(), y.numpy())
    with pytest.raises(AutogradError):
        loss.backward()
    assert runs == ["forward", "backward", "backward"]


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer = ad.nn.GRU(4, 6, dtype=ad.float64)
    layer.weight_hh_l0.requires_grad_(False)
    x = draw((5, 3, 4), 1)
    layer(x)[0].sum().backward()
    assert layer.weight_hh_l0.grad is None
    assert layer.weight_ih_l0.grad is not None and x.grad is not None


def test_an_output_changed_in_place_is_an_error() -> None:
    tensors = arguments("LSTM", (5, 3, 4, 6))
    output = recurrent_layer(*tensors, "LSTM", False, None)[0]
    loss = output.sum()
    with ad.no_grad():
        output.mul_(2)
    with pytest.raises(AutogradError, match="inplace"):
        loss.backward()


def test_gradients_of_biases_are_apart() -> None:
    layer = ad.nn.LSTM(3, 4)
    layer(draw((5, 3, 3), 1, ad.float32, False))[0].sum().backward()
    before = layer.bias_hh_l0.grad.clone()
    layer.bias_ih_l0.grad.zero_()
    assert np.array_equal(layer.bias_hh_l0.grad.numpy(), before.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_kept_without_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    method = eager_recurrent.Recurrent.forward

    def spying(self: Any, arrays: list[Any]) -> Any:
        found = method(self, arrays)
        kept.append(found[1])
        return found

    monkeypatch.setattr(eager_recurrent.Recurrent, "forward", spying)
    tensors = arguments(kind, (5, 3, 4, 6))
    with ad.no_grad():
        quiet = recurrent_layer(*tensors, kind, False, None)
    loud = recurrent_layer(*tensors, kind, False, None)
    assert kept[0] == []
    assert all(y.grad_fn is None for y in quiet)
    for x, y in zip(quiet, loud, strict=True):
        assert np.array_equal(x.numpy(), y.detach().numpy())


# ---- other ways to execute -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_lazily(kind: str, runs: list[str]) -> None:
    tensors = arguments(kind, (5, 6, 4, 7))
    expected = results(recurrent_layer, tensors, kind, False, None)
    count = len(runs)
    with ad.lazy():
        found = results(recurrent_layer, tensors, kind, False, None)
    assert len(runs) == count
    assert_close(found, expected, 1e-11)


def test_in_a_graph() -> None:
    model = ad.nn.LSTM(3, 5, dtype=ad.float64)
    x = draw((4, 2, 3), 1, grad=False)
    expected = model(x)[0].detach().numpy()
    graph = ad.Graph()
    with graph:
        source = graph.input(x, name="x")
        output = model(source)[0]
    np.testing.assert_allclose(output.detach().numpy(), expected, 1e-12)
    source.set(x * 2)
    np.testing.assert_allclose(output.detach().numpy(), model(x * 2)[0].detach().numpy(), 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, (3, 2, 2)])
def test_shapes_that_do_not_fit_are_refused(
    kind: str, lengths: tuple[int, ...] | None, runs: list[str]
) -> None:
    good = arguments(kind, (3, 3, 4, 6), lengths=lengths)
    for n, x in enumerate(good):
        for shape in () if x is None else ((2, *x.shape[1:]), (*x.shape[:-1], 5), (1, *x.shape)):
            if shape != x.shape and not (n == 0 and lengths is None and shape[-1] == 4):
                bad = list(good)
                bad[n] = draw(shape, 1)
                try:
                    expected: Any = BODY(*bad, kind, False, lengths)[0].shape
                except Exception as error:
                    expected = type(error)
                try:
                    found: Any = recurrent_layer(*bad, kind, False, lengths)[0].shape
                except Exception as error:
                    found = type(error)
                assert found == expected, (n, shape)
    assert not runs


@pytest.mark.parametrize("sizes", [(2, 3, 3), (3, 3, 0), (4, 4), (9,)])
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, ...]) -> None:
    tensors = arguments("LSTM", (3, 3, 4, 6), lengths=(3, 3, 2))
    specs = [x.spec for x in tensors if x is not None]
    statics = [x if x is None else NotImplemented for x in tensors]
    with pytest.raises(NotTraceable):
        eager_recurrent.plan(specs, [*statics, "LSTM", False, sizes], [True] * len(specs))


def test_what_has_no_code_is_made_of_operations(runs: list[str]) -> None:
    model = ad.nn.LSTM(4, 6, dtype=ad.bfloat16)
    output, (_, c) = model(draw((5, 3, 4), 1, ad.bfloat16, False))
    output.sum().backward()
    assert output.shape == (5, 3, 6) and c.shape == (1, 3, 6)
    assert model.weight_hh_l0.grad is not None
    assert not runs


# ---- other processors ----------------------------------------------------------------------------

AVX2 = target.Target(target.host().triple, "haswell", "+avx2,+fma,+f16c,+avx,+bmi2")
NEON = target.Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")


@pytest.mark.skipif(not target.host().has("avx2"), reason="runs code for AVX2")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_code_for_avx2(kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = (11, 11, 9, 2)
    projected = 7 if kind == "LSTM" else 0
    tensors = arguments(kind, (0, 11, 5, 21), lengths=lengths, projected=projected)
    expected = results(BODY, tensors, kind, False, lengths)
    given = [x.detach().numpy().astype(dtype) for x in tensors if x is not None]
    statics = [x if x is None else NotImplemented for x in tensors]
    statics += [kind, False, lengths]
    specs = [ad.tensor(x).spec for x in given]
    monkeypatch.setattr(target, "host", lambda: AVX2)
    for make in (recurrent_loop.forward, recurrent_loop.backward, recurrent_packing.packing):
        monkeypatch.setattr(
            eager_recurrent, make.__name__, make.__wrapped__
        )  # what it made is not kept
    routine = eager_recurrent.plan(specs, statics, [True] * len(specs))
    assert routine.lanes == 32 // np.dtype(dtype).itemsize
    outputs, kept = routine.forward(given)
    gs = [draw(y.shape, 90 + n).detach().numpy().astype(dtype) for n, y in enumerate(outputs)]
    found = [*outputs, *routine.backward(given, outputs, kept, gs)]
    assert_close(
        found, [x for x in expected if x is not None], 1e-11 if dtype is np.float64 else 1e-5
    )


@pytest.mark.parametrize("loop", [recurrent_loop._Forward, recurrent_loop._Backward])
def test_code_for_neon(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "host", lambda: NEON)
    layer = recurrent_loop.RecurrentLoop("LSTM", "float32", 5, 21, 7, True)
    text = NEON.assembly(loop(layer).text("f"))
    assert "fmla\tv" in text and "ldp\tq" in text


# ---- threads and memory --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, (90, 90, 61, 8, 7)])
def test_results_do_not_depend_on_the_threads(kind: str, lengths: tuple[int, ...] | None) -> None:
    tensors = arguments(kind, (6, 90, 8, 37), ad.float32, lengths=lengths)
    pool = default_pool()
    before = pool.num_threads
    found = []
    try:
        for threads in (1, 2, 3, 4):
            pool.set_num_threads(threads)
            with ad.no_grad():
                found.append(recurrent_layer(*tensors, kind, True, lengths))
    finally:
        pool.set_num_threads(before)
    for ys in found[1:]:
        for x, y in zip(found[0], ys, strict=True):
            assert np.array_equal(x.numpy(), y.numpy())


def test_gradients_of_sums_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the backward loop gives, before it is multiplied."""
    sums = []
    method = eager_recurrent.Recurrent._of_weights

    def spying(self: Any, of_sums: Any, *args: Any) -> Any:
        sums.append(of_sums.copy())
        return method(self, of_sums, *args)

    monkeypatch.setattr(eager_recurrent.Recurrent, "_of_weights", spying)
    tensors = arguments("GRU", (6, 90, 8, 37), ad.float32)
    pool = default_pool()
    before = pool.num_threads
    try:
        for threads in (1, 4):
            pool.set_num_threads(threads)
            results(recurrent_layer, tensors, "GRU", False, None)
    finally:
        pool.set_num_threads(before)
    assert len(sums) == 4
    assert np.array_equal(sums[0], sums[2]) and np.array_equal(sums[1], sums[3])


def test_between_guard_pages() -> None:
    """In a child process, which an access outside an array would end."""
    code = "from tests.backends.native.test_recurrent import guarded; guarded(40)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def guarded(rounds: int) -> None:
    """Routines on random sizes, whose arrays touch forbidden pages."""
    from tests.backends.native.onednn.test_onednn_bounds import Guarded

    pages = Guarded()
    eager_recurrent.np = pages  # type: ignore[assignment]
    random = np.random.default_rng(5)
    default_pool().set_num_threads(2)
    for n in range(rounds):
        pages.front = bool(n % 3 == 0)
        kind = KINDS[n % 4]
        dtype = np.dtype([np.float32, np.float64][int(random.integers(2))])
        steps, batch, features, hidden = (int(random.integers(1, m)) for m in (6, 20, 9, 40))
        lengths = tuple(sorted(random.integers(1, batch + 1, steps).tolist(), reverse=True))
        packed = bool(random.integers(2))
        batch = lengths[0] if packed else batch
        projected = int(random.integers(0, hidden)) if kind == "LSTM" else 0
        shape = steps, batch, features, hidden
        tensors = arguments(kind, shape, lengths=lengths if packed else None, projected=projected)
        given = [pages.random(random, tuple(x.shape), dtype) for x in tensors if x is not None]
        specs = [ad.tensor(x).spec for x in given]
        statics = [x if x is None else NotImplemented for x in tensors]
        statics += [kind, bool(random.integers(2)), lengths if packed else None]
        routine = eager_recurrent.plan(specs, statics, [True] * len(specs))
        outputs, kept = routine.forward(given)
        gs = [pages.random(random, y.shape, dtype) for y in outputs]
        gradients = routine.backward(given, outputs, kept, gs)
        assert [g.shape for g in gradients if g is not None] == [x.shape for x in given]
        assert all(np.isfinite(x).all() for x in (*outputs, *gradients) if x is not None)
