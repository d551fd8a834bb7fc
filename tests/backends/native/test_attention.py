"""Attention in tiles: what the ops give, in less memory, and the same for any number of threads."""

from __future__ import annotations

import ctypes
import math
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
import adjoint.nn.functional as nf
from adjoint.backends.codegen import target
from adjoint.backends.native.attention import attention_code as attention_code
from adjoint.backends.native.attention import eager_attention
from adjoint.backends.native.runtime import pool
from adjoint.core import policy
from adjoint.core.errors import NotTraceable
from adjoint.ops.shape import concatenation
from adjoint.runtime import dispatch
from tests.native import needs_native

pytestmark = needs_native

# queries, keys, features of queries and keys, features of values
SIZES = [
    (64, 64, 32, 32),
    (128, 128, 64, 64),
    (65, 129, 16, 16),
    (100, 70, 40, 24),
    (9, 200, 5, 3),
    (200, 9, 16, 17),
    (8, 1, 1, 1),
    (130, 67, 96, 200),
    (33, 33, 33, 33),
    (17, 80, 128, 130),
]


@pytest.fixture
def routines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What ran natively."""
    ran: list[str] = []
    for name in ("forward", "backward"):

        def run(self: Any, *args: Any, name: str = name, own: Any = None) -> Any:
            ran.append(name)
            return own(self, *args)

        own = getattr(eager_attention.Attention, name)
        monkeypatch.setattr(
            eager_attention.Attention,
            name,
            lambda self, *args, run=run, own=own: run(self, *args, own=own),
        )
    yield ran


def values(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def inputs(sizes: tuple[int, ...], heads: tuple[int, ...] = (2, 3)) -> list[np.ndarray]:
    length, source, features, columns = sizes
    shapes = ((length, features), (source, features), (source, columns))
    return [values((*heads, *shape), seed) for seed, shape in enumerate(shapes)]


def results(
    arrays: list[Any],
    dtype: Any = ad.float32,
    view: Callable[[Any], Any] = lambda x: x,
    **options: Any,
) -> list[np.ndarray]:
    """The output, and the gradients of the arrays that the tensors' views are made from."""
    leaves = [ad.tensor(x).to(dtype).requires_grad_() for x in arrays]
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype.is_floating_point:
        options["attn_mask"] = mask.to(dtype)
    y = nf.scaled_dot_product_attention(*map(view, leaves), **options)
    g = ad.tensor(values(tuple(y.shape), 9)).to(dtype)
    y.backward(g)
    return [y.detach().numpy(), *(x.grad.numpy() for x in leaves)]


def check(arrays: list[Any], tolerance: float = 3e-6, **options: Any) -> list[np.ndarray]:
    """Results are those of float64, in which the ops run one by one; relative to the largest."""
    found = results(arrays, **options)
    for x, y in zip(found, results(arrays, ad.float64, **options), strict=True):
        assert x.dtype == np.float32 and x.shape == y.shape
        assert np.isfinite(y).all()
        assert np.abs(x - y).max() <= tolerance * max(1.0, np.abs(y).max())
    return found


def masks(length: int, source: int, heads: tuple[int, ...]) -> dict[str, np.ndarray]:
    r = np.random.default_rng(5)
    some = r.random((length, source)) > 0.4
    some[:: max(1, length // 3)] = False
    ones = (1,) * len(heads)
    low = np.where(some, r.standard_normal((length, source)), -np.inf).astype(np.float32)
    return {
        "bool": some,
        "bool of heads": r.random((*heads, length, source)) > 0.5,
        "padding": r.random((heads[0], *ones[1:], 1, source)) > 0.5,
        "queries only": r.random((length, 1)) > 0.5,
        "transposed": np.ascontiguousarray(some.T).T,
        "one dimension": r.random(source) > 0.3,
        "float": low,
        "float of heads": values((*heads, length, source), 6),
        "bias of keys": values((*ones, 1, source), 7),
    }


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients(sizes: tuple[int, ...], causal: bool, routines: list[str]) -> None:
    check(inputs(sizes), is_causal=causal)
    assert routines == ["forward", "backward"]


@pytest.mark.parametrize("kind", list(masks(8, 8, (1, 1))))
@pytest.mark.parametrize("sizes", [(64, 64, 32, 32), (70, 131, 8, 24)], ids=str)
def test_masks(sizes: tuple[int, ...], kind: str, routines: list[str]) -> None:
    mask = masks(*sizes[:2], (2, 3))[kind]
    check(inputs(sizes), attn_mask=ad.tensor(mask))
    assert routines == ["forward", "backward"]


@pytest.mark.parametrize("low", [False, -math.inf])
def test_queries_that_may_attend_to_nothing(low: Any, routines: list[str]) -> None:
    mask = np.full((70, 90), True if low is False else 0.0, bool if low is False else np.float32)
    mask[[0, 5, 69]] = low
    arrays = inputs((70, 90, 16, 16), ())
    y, query_grad, *_ = check(arrays, attn_mask=ad.tensor(mask))
    for found in (y, query_grad):
        assert not found[[0, 5, 69]].any() and found[1].all()
    assert routines == ["forward", "backward"]


@pytest.mark.parametrize("heads", [(), (5,), (2, 1, 3)], ids=str)
def test_dimensions_of_heads(heads: tuple[int, ...], routines: list[str]) -> None:
    check(inputs((80, 100, 16, 16), heads), is_causal=True)
    assert routines == ["forward", "backward"]


VIEWS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "heads inside": ((2, 70, 3, 16), lambda x: x.transpose(1, 2)),
    "positions first": ((70, 2, 3, 16), lambda x: x.permute(1, 2, 0, 3)),
    "features first": ((2, 3, 16, 70), lambda x: x.transpose(2, 3)),
    "slices": ((2, 3, 150, 40), lambda x: x[:, :, 3:143:2, 5:21]),
    "every second feature": ((2, 3, 70, 32), lambda x: x[..., ::2]),
    "expanded": ((1, 1, 70, 16), lambda x: x.expand(2, 3, 70, 16)),
    "backwards": ((2, 3, 70, 16), lambda x: x.flip(2)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_strides(name: str, routines: list[str]) -> None:
    shape, view = VIEWS[name]
    check([values(shape, seed) for seed in range(3)], view=view, is_causal=True)
    assert routines == ["forward", "backward"]


def test_output_lies_as_models_want_it(routines: list[str]) -> None:
    q = ad.tensor(values((2, 70, 3, 16)))
    for x in (q.transpose(1, 2), q.transpose(1, 2).contiguous()):
        y = nf.scaled_dot_product_attention(x, x, x)
        assert y.transpose(1, 2).is_contiguous()
    packed = ad.tensor(values((70, 6, 16))).transpose(0, 1)  # as nn.MultiheadAttention has it
    assert nf.scaled_dot_product_attention(packed, packed, packed).transpose(0, 1).is_contiguous()
    assert routines == ["forward"] * 3


def test_large_scores(routines: list[str]) -> None:
    arrays = [x * s for x, s in zip(inputs((70, 90, 16, 16)), (60, 60, 1), strict=True)]
    check(arrays, 3e-4)  # scores are thousands: their rounding alone is a ten-thousandth
    y = results([x * 1e17 for x in arrays[:2]] + arrays[2:], is_causal=True)[0]
    assert np.isfinite(y).all()
    assert len(routines) == 4


def test_nan_stays_where_it_belongs(routines: list[str]) -> None:
    q, k, v = inputs((70, 70, 16, 16), ())
    q[3] = np.nan
    y, query_grad, *_ = results([q, k, v])
    for found in (y, query_grad):
        assert np.isnan(found[3]).all() and np.isfinite(np.delete(found, 3, 0)).all()
    q[3] = 0
    k[60] = np.nan  # seen by later queries only, or masked
    y = results([q, k, v], is_causal=True)[0]
    assert np.isfinite(y[:60]).all() and np.isnan(y[60:]).all()
    mask = np.ones((70, 70), bool)
    mask[:, 60] = False
    assert np.isfinite(results([q, k, v], attn_mask=ad.tensor(mask))[0]).all()
    assert len(routines) == 6


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_some_inputs_want_gradients(wanted: tuple[int, ...], routines: list[str]) -> None:
    arrays = inputs((70, 90, 16, 24))
    whole = results(arrays)[1:]
    tensors = [ad.tensor(x).requires_grad_(n in wanted) for n, x in enumerate(arrays)]
    y = nf.scaled_dot_product_attention(*tensors)
    y.backward(ad.tensor(values(tuple(y.shape), 9)))
    for n, (x, expected) in enumerate(zip(tensors, whole, strict=True)):
        assert (x.grad is not None) == (n in wanted)
        if x.grad is not None:
            assert np.array_equal(x.grad.numpy(), expected)
    assert routines == ["forward", "backward"] * 2


def test_without_gradients_nothing_is_kept(routines: list[str]) -> None:
    q, k, v = (ad.tensor(x) for x in inputs((70, 90, 16, 24)))
    assert nf.scaled_dot_product_attention(q, k, v).grad_fn is None
    with ad.no_grad():
        assert nf.scaled_dot_product_attention(q.requires_grad_(), k, v).grad_fn is None
    assert routines == ["forward", "forward"]


def test_grads_of_any_strides(routines: list[str]) -> None:
    arrays = inputs((70, 90, 16, 24))
    found = []
    for total in (lambda y: y.sum(), lambda y: (y * ad.ones(())).sum()):
        leaves = [ad.tensor(x).requires_grad_() for x in arrays]
        total(nf.scaled_dot_product_attention(*leaves)).backward()
        found.append([x.grad.numpy() for x in leaves])
    for x, y in zip(*found, strict=True):
        assert np.array_equal(x, y)
    assert routines == ["forward", "backward"] * 2


def _split(kind: str, x: Any) -> Any:
    """Queries, keys and values of 2 heads, all from one tensor, as models split it."""
    if kind == "unbind":
        return x.view(2, 64, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
    first, second, third = (p.view(2, 64, 2, 16).transpose(1, 2) for p in x.chunk(3, dim=-1))
    return {"chunk": (first, second, third), "turned": (third, first, second)}.get(
        kind, (first, first, third)
    )


@pytest.mark.parametrize("kind", ["chunk", "unbind", "turned", "shared"])
@pytest.mark.parametrize("hooked", [False, True])
def test_gradients_of_parts_of_one_tensor(
    kind: str, hooked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = []

    def gradients(native: bool) -> list[Any]:
        leaf = ad.tensor(values((2, 64, 96)), requires_grad=True)
        x = leaf * 1.0
        x.retain_grad()
        parts = _split(kind, x)
        seen = []
        if hooked:
            x.register_hook(lambda g: seen.append(g) or g.mul_(2))
            parts[0].register_hook(seen.append)
        y = nf.scaled_dot_product_attention(*parts, is_causal=True)
        y.backward(ad.tensor(values(y.shape, 1)))
        if native:
            joins.append(any("cat" in name or "stack" in name for name in ran))
        return [g.numpy() for g in (leaf.grad, x.grad, *seen)]

    ran: list[str] = []
    compute = dispatch.compute_anew
    monkeypatch.setattr(
        dispatch, "compute_anew", lambda op, arrays: ran.append(op.name) or compute(op, arrays)
    )
    found = gradients(True)
    monkeypatch.setattr(eager_attention, "_like", lambda *arrays: None)
    monkeypatch.setattr(concatenation, "_whole", lambda tensors, join: None)
    for one, other in zip(found, gradients(False), strict=True):
        assert np.array_equal(one, other)
    assert joins == [hooked or kind == "shared"]


def test_gradients_of_parts_have_memory_of_their_own_where_they_are_kept() -> None:
    leaf = ad.tensor(values((2, 64, 96)), requires_grad=True)
    parts = _split("chunk", leaf)
    kept: list[Any] = []
    parts[1].register_hook(kept.append)
    parts[2].retain_grad()
    nf.scaled_dot_product_attention(*parts).sum().backward()
    kept += [parts[2].grad]
    before = [g.numpy().copy() for g in kept]
    leaf.grad.zero_()
    assert all(np.array_equal(g.numpy(), b) for g, b in zip(kept, before, strict=True))


@pytest.mark.parametrize("shared", [1, 2])
def test_heads_that_share_keys(shared: int, routines: list[str]) -> None:
    q, _, _ = inputs((70, 90, 16, 24), (2, 4))
    _, k, v = inputs((70, 90, 16, 24), (2, shared))
    for mask in (None, values((2, 4, 70, 90), 4), values((2, 1, 70, 90), 4), values((70, 90), 4)):
        mask = None if mask is None else ad.tensor(mask)
        y, *grads = check([q, k, v], enable_gqa=True, attn_mask=mask)
        wide = [np.repeat(x, 4 // shared, 1) for x in (k, v)]
        expected, *_ = results([q, *wide], attn_mask=mask)
        assert np.array_equal(y, expected)
        assert [g.shape for g in grads] == [q.shape, k.shape, v.shape]
    assert routines == ["forward", "backward"] * 8


def test_second_derivatives(routines: list[str]) -> None:
    mask = ad.tensor(masks(20, 12, (1,))["bool"])

    def second(dtype: Any, **options: Any) -> list[np.ndarray]:
        xs = [ad.tensor(x).to(dtype).requires_grad_() for x in inputs((20, 12, 16, 8), (2,))]
        y = nf.scaled_dot_product_attention(*xs, **options)
        first = ad.autograd.grad((y * y).sum(), xs, create_graph=True)
        total = sum((g * g).sum() for g in first)
        return [x.numpy() for x in ad.autograd.grad(total, xs)]

    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        for x, y in zip(second(ad.float32, **options), second(ad.float64, **options), strict=True):
            assert np.abs(x - y).max() <= 1e-4 * np.abs(y).max()
    # The gradient that is differentiated is the body's; the last one goes through the output, too.
    assert routines == ["forward", "backward"] * 3


def test_gradients_twice_with_retained_graph(routines: list[str]) -> None:
    xs = [ad.tensor(x).requires_grad_() for x in inputs((70, 90, 16, 24))]
    y = nf.scaled_dot_product_attention(*xs)
    y.sum().backward(retain_graph=True)
    once = [x.grad.numpy().copy() for x in xs]
    y.sum().backward()
    for x, g in zip(xs, once, strict=True):
        assert np.array_equal(x.grad.numpy(), 2 * g)
    assert routines == ["forward", "backward", "backward"]


def test_recorded_execution_gives_the_same(routines: list[str]) -> None:
    arrays = inputs((70, 90, 16, 24))
    eager = results(arrays)
    with ad.lazy():
        lazy = results(arrays)
    graph = ad.Graph()
    with graph:
        xs = [ad.tensor(x).requires_grad_() for x in arrays]
        y = nf.scaled_dot_product_attention(*xs)
        y.backward(ad.tensor(values(tuple(y.shape), 9)))
        recorded = [y.detach().numpy(), *(x.grad.numpy() for x in xs)]
    for other in (lazy, recorded):
        for x, y in zip(eager, other, strict=True):
            assert np.abs(x - y).max() <= 3e-6 * max(1.0, np.abs(y).max())
    assert routines == ["forward", "backward"]


def test_changed_inputs_are_noticed() -> None:
    xs = [ad.tensor(x).requires_grad_() for x in inputs((70, 90, 16, 24))]
    y = nf.scaled_dot_product_attention(*xs)
    with ad.no_grad():
        xs[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


@pytest.mark.parametrize("causal", [False, True])
def test_threads_do_not_change_a_bit(causal: bool) -> None:
    arrays = inputs((300, 300, 16, 24), (3,))
    threads = pool.default_pool().num_threads
    found = []
    try:
        for count in (1, 2, 4, 3):
            pool.default_pool().set_num_threads(count)
            found.append(results(arrays, is_causal=causal))
    finally:
        pool.default_pool().set_num_threads(threads)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            assert np.array_equal(x, y)


def test_what_runs_op_by_op(routines: list[str]) -> None:
    few = inputs((7, 90, 16, 24))
    large = inputs((70, 90, 260, 24))
    crowd = [values((1, 1, 2, 3, 20, 16), seed) for seed in range(3)]
    for arrays in (few, large, crowd):
        check(arrays)
    q, k, v = (ad.tensor(x) for x in inputs((70, 90, 16, 24)))
    bias = ad.zeros(70, 90, requires_grad=True)
    nf.scaled_dot_product_attention(q, k, v, bias).sum().backward()
    assert bias.grad is not None
    nf.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    with pytest.raises(RuntimeError, match="dtype"):
        nf.scaled_dot_product_attention(q, k, v, ad.zeros(70, 90, dtype=ad.float64))
    narrow = (x.bfloat16().requires_grad_() for x in (q, k, v))
    nf.scaled_dot_product_attention(*narrow)  # the library multiplies these faster
    assert routines == []


@pytest.mark.parametrize("dtype", [ad.bfloat16, ad.float16])
def test_narrow_floats_are_widened(
    dtype: Any, routines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "ATTENTION_MANY", 0)
    arrays = [ad.tensor(x).to(dtype).float().numpy() for x in inputs((70, 91, 15, 24))]
    mask = ad.tensor(masks(70, 91, (2, 3))["float"]).to(dtype)
    for options in ({"is_causal": True}, {"attn_mask": mask}):
        exact = results(arrays, ad.float64, **options)
        for x, y in zip(results(arrays, dtype, **options), exact, strict=True):
            assert str(x.dtype) == str(dtype).split(".")[-1]
            assert np.abs(x.astype(np.float64) - y).max() < 2e-2 * np.abs(y).max()
    assert routines == ["forward", "backward"] * 2


def test_wrong_shapes_are_refused() -> None:
    q, k, v = (ad.tensor(x) for x in inputs((70, 90, 16, 24)))
    for arguments in ((q, k[..., :8], v), (q, k, v[..., :30, :]), (q, k, v, ad.zeros(70, 80))):
        with pytest.raises(RuntimeError):
            nf.scaled_dot_product_attention(*arguments)
    specs = [x.spec for x in (q, k, v)]
    unknown = (NotImplemented,) * 3
    with pytest.raises(NotTraceable):
        eager_attention.plan(
            [specs[0], specs[2], specs[1]], (*unknown, None, False, 1.0), (True,) * 3
        )


def test_layers_use_it(routines: list[str]) -> None:
    x = ad.tensor(values((2, 20, 32))).requires_grad_()
    layer = ad.nn.MultiheadAttention(32, 4, batch_first=True)
    padding = ad.tensor(np.arange(20) > np.array([[15], [19]]))
    later = ad.ones(20, 20, dtype=ad.bool_).triu(1)
    for options in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": later},
        {"attn_mask": later, "key_padding_mask": padding},
        {"attn_mask": later, "is_causal": True},
        {"attn_mask": later, "is_causal": True, "key_padding_mask": padding},
        {"attn_mask": ad.tensor(values((8, 20, 20))), "key_padding_mask": padding},
    ):
        with_weights, _ = layer(x, x, x, **options)
        assert routines == []
        without, weights = layer(x, x, x, need_weights=False, **options)
        assert weights is None and routines == ["forward"]
        routines.clear()
        assert np.abs((with_weights - without).detach().numpy()).max() < 1e-6
    encoder = ad.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder(x).sum().backward()
    assert routines == []  # attention drops out, so its weights are stored
    encoder.eval()(x).sum().backward()
    assert routines == ["forward", "backward"]


def test_extra_keys_of_layers(routines: list[str]) -> None:
    x = ad.tensor(values((2, 20, 32)))
    later = ad.ones(20, 20, dtype=ad.bool_).triu(1)
    layer = ad.nn.MultiheadAttention(32, 4, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    for options in ({"attn_mask": later}, {"attn_mask": later, "is_causal": True}):
        expected, _ = layer(x, x, x, **options)
        found, _ = layer(x, x, x, need_weights=False, **options)
        assert np.abs((expected - found).detach().numpy()).max() < 1e-6
    assert routines == ["forward", "forward"]


PEAK = """
import adjoint as ad

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

def step(length, **options):
    q, k, v = (ad.randn(1, 4, length, 32, requires_grad=True) for _ in range(3))
    if options:
        options["attn_mask"] = ad.ones(length, dtype=ad.bool_)
    ad.nn.functional.scaled_dot_product_attention(q, k, v, **options).sum().backward()

step(64)
before = status("VmHWM")
step(2048)
step(2048, attn_mask=True)
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_matrix_of_scores_is_stored() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=600
    )
    kibibytes = int(found.stdout)
    assert kibibytes < 4 * 2048 * 2048 * 4 // 1024 // 2  # of 4 heads, half


BOUNDS = """
import numpy as np
import adjoint as ad
from adjoint.backends.native.attention import eager_attention as attention
from tests.backends.native.onednn.test_onednn_bounds import Guarded

guarded = Guarded()
attention.np = guarded
r = np.random.default_rng(3)
unknown = (NotImplemented,) * 3
ENDS = ((8, 150), (1, 150), (1, 70), (1, 70))
for n in range(120):
    guarded.front = n % 3 == 0
    length, source, features, columns = (int(r.integers(*ends)) for ends in ENDS)
    heads = (int(r.integers(1, 3)),)
    shapes = [(length, features), (source, features), (source, columns)]
    arrays = [guarded.random(r, (*heads, *shape), np.float32) for shape in shapes]
    if n % 2:
        mask = guarded.empty((length, source), np.float32 if n % 4 == 1 else bool)
        mask[...] = r.random(mask.shape) > 0.5
        arrays.append(mask)
    specs = [ad.tensor(x).spec for x in arrays]
    statics = (*unknown, NotImplemented if n % 2 else None, bool(r.integers(2)), 0.5)
    routine = attention.plan(specs, statics, (True, True, True, False)[:len(specs)])
    [y], kept = routine.forward(arrays)
    g = guarded.random(r, y.shape, np.float32)
    found = routine.backward(arrays, [y], kept, [g])
    assert all(np.isfinite(x).all() for x in (y, *found[:3]))
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guards are Linux's")
def test_nothing_outside_arrays_is_touched() -> None:
    found = subprocess.run(
        [sys.executable, "-c", BOUNDS], capture_output=True, text=True, timeout=600
    )
    assert found.stdout == "done\n", found.stderr[-2000:]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86 code")
@pytest.mark.parametrize("features", ["+sse4.2,+avx,+avx2,+fma", "+sse4.2,+avx,+fma"])
def test_narrower_vectors(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all(target.host().has(f[1:]) for f in features.split(",")):
        pytest.skip("this processor has no AVX2")
    narrow = target.Target(target.host().triple, "haswell", features)
    code = narrow.compile(
        attention_code.text(narrow)
        .replace("@forward(", f"@forward{len(features)}(")
        .replace("@backward(", f"@backward{len(features)}(")
    )
    names = [f"{name}{len(features)}" for name in ("forward", "backward")]
    monkeypatch.setattr(
        attention_code, "code", lambda: attention_code.AttentionCode(*target.load(code, *names))
    )
    for sizes in ((100, 70, 40, 24), (130, 67, 33, 64)):
        arrays = inputs(sizes)
        mask = masks(*sizes[:2], (2, 3))["bool of heads"]
        specs = [ad.tensor(x).spec for x in (*arrays, mask)]
        expected = results(arrays, attn_mask=ad.tensor(mask))
        routine = eager_attention.plan(
            specs, (*(NotImplemented,) * 4, False, 1 / math.sqrt(sizes[2])), (True,) * 3 + (False,)
        )
        [y], kept = routine.forward([*arrays, mask])
        found = routine.backward([*arrays, mask], [y], kept, [values(y.shape, 9)])
        for x, other in zip((y, *found[:3]), expected, strict=True):
            assert np.abs(x - other).max() < 1e-5 * max(1.0, np.abs(other).max())


def test_other_processors_have_code() -> None:
    arm = target.Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fp-armv8")
    assembly = arm.assembly(attention_code.text(arm))
    assert "fmla" in assembly


def test_small_calls_are_the_body_too(routines: list[str]) -> None:
    q, k = ad.ones(1, 3, 4), ad.arange(12.0).reshape(1, 3, 4)
    found = nf.scaled_dot_product_attention(q, k, k)
    weights = ad.softmax(q @ k.transpose(-1, -2) / 2, -1)
    assert found.allclose(weights @ k)
    assert ctypes.sizeof(ctypes.c_void_p) == 8  # words of kernels are addresses
