"""ATen's forms beside PyTorch's: values, gradients, errors of each."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.faces import FILES

from ...pytorch import torch

F64 = np.float64


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def whole(*values: Any) -> Any:
    return np.array(values, np.int64)


LOGS = np.log(np.full((4, 2, 3), 1 / 3))
IMAGE, GRID = normal(2, 3, 4, 5), np.clip(normal(2, 2, 3, 2), -1.2, 1.2)
VOLUME, PLACES = normal(1, 2, 3, 3, 2), np.clip(normal(1, 2, 2, 2, 3), -0.9, 0.9)
X, W, B = normal(2, 3, 4), normal(3), normal(3, seed=1)
CELL = (normal(2, 3), normal(2, 4), normal(4, 3), normal(4, 4), normal(4), normal(4, seed=1))
GATED = (normal(2, 3), normal(2, 4), normal(12, 3), normal(12, 4))
LONG = (normal(2, 3), (normal(2, 4), normal(2, 4, seed=1)), normal(16, 3), normal(16, 4))


def layers(gates: int, inputs: int, hidden: int, biases: bool, count: int, both: bool) -> list[Any]:
    """Parameters of a network."""
    found = []
    for place in range(count * (1 + both)):
        width = inputs if place < 1 + both else hidden * (1 + both)
        found += [normal(gates * hidden, width, seed=place), normal(gates * hidden, hidden)]
        if biases:
            found += [normal(gates * hidden), normal(gates * hidden, seed=9)]
    return found


CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("affine_grid_generator", (normal(2, 2, 3), (2, 1, 3, 4), False), {}),
    ("affine_grid_generator", (normal(1, 3, 4), (1, 1, 2, 3, 4), True), {}),
    ("batch_norm", (X, W, B, np.zeros(3), np.ones(3), True, 0.1, 1e-5, True), {}),
    ("batch_norm", (X, None, None, np.zeros(3), np.ones(3), False, 0.1, 1e-5, False), {}),
    ("binary_cross_entropy_with_logits", (X, abs(X)), {}),
    ("binary_cross_entropy_with_logits", (X, abs(X), abs(X), None, 2), {}),
    ("conv_tbc", (normal(5, 2, 3), normal(2, 3, 4), normal(4)), {}),
    ("conv_tbc", (normal(5, 2, 3), normal(3, 3, 4), normal(4), 2), {}),
    ("convolution", (X, normal(6, 1, 2), normal(6), (2,), (1,), (1,), False, (0,), 3), {}),
    ("convolution", (IMAGE, normal(2, 3, 2, 2), None, [1], [1], [2], False, [0], 1), {}),
    ("convolution", (IMAGE, normal(3, 2, 2, 2), None, (2, 1), (1, 0), (1, 1), True, (1, 0), 1), {}),
    ("convolution", (VOLUME, normal(2, 2, 1, 2, 2), normal(2), [1], [0], [1], False, [0], 1), {}),
    ("cosine_embedding_loss", (normal(4, 3), normal(4, 3, seed=1), np.sign(normal(4))), {}),
    ("cosine_embedding_loss", (normal(4, 3), normal(4, 3, seed=1), -np.ones(4), 0.1, 0), {}),
    ("ctc_loss", (LOGS, whole([1, 2], [2, 2]), (4, 4), (2, 1)), {}),
    ("ctc_loss", (LOGS, whole(1, 2, 2), whole(4, 3), whole(2, 1), 0, 0), {}),
    ("ctc_loss", (LOGS, whole([1, 2], [2, 2]), whole(4, 4), whole(2, 2), 0, 2, True), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2, 2)), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2), False, 1), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2, 2), False, 2), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 4), whole(0, 1, 3), False, 0, False,
                       normal(3), True), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2), False, 1, False,
                       None, False, 2), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2), False, 2, False,
                       None, False, 2), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2, 2, 4), whole(0, 2), False, 0, False,
                       None, False, -1), {}),
    ("frobenius_norm", (X, ()), {}),
    ("frobenius_norm", (X, 1), {"keepdim": True}),
    ("frobenius_norm", (X, (0, 2)), {}),
    ("grid_sampler", (IMAGE, GRID, 0, 0, False), {}),
    ("grid_sampler", (VOLUME, PLACES, 1, 1, True), {}),
    ("grid_sampler_2d", (IMAGE, GRID, 2, 2, False), {}),
    ("grid_sampler_3d", (VOLUME, PLACES, 0, 2, True), {}),
    ("gru_cell", GATED, {}),
    ("gru_cell", (*GATED, normal(12), normal(12, seed=1)), {}),
    ("hinge_embedding_loss", (X, np.sign(X)), {}),
    ("hinge_embedding_loss", (X, np.sign(X), 0.5, 0), {}),
    ("instance_norm", (X, W, B, None, None, True, 0.1, 1e-5, True), {}),
    ("instance_norm", (X, W, B, np.zeros(3), np.ones(3), False, 0.1, 1e-5, True), {}),
    ("kl_div", (-abs(X), abs(normal(2, 3, 4, seed=1))), {}),
    ("kl_div", (-abs(X), normal(2, 3, 4, seed=1), 2), {"log_target": True}),
    ("kl_div", (-abs(X), abs(normal(2, 3, 4, seed=1)), 0), {}),
    ("lstm_cell", LONG, {}),
    ("lstm_cell", (*LONG, normal(16), normal(16, seed=1)), {}),
    ("margin_ranking_loss", (W, B, np.sign(W)), {}),
    ("margin_ranking_loss", (W, B, np.sign(W), 0.5, 2), {}),
    ("max_pool1d_with_indices", (X, 2), {}),
    ("max_pool1d_with_indices", (X, 2, (1,), 1, 2, True), {}),
    ("mkldnn_convolution", (np.float32(IMAGE), np.float32(normal(2, 3, 2, 2)), None, (1, 0),
                            (1, 2), (1, 1), 1), {}),
    ("native_batch_norm", (X, W, B, np.zeros(3), np.ones(3), True, 0.1, 1e-5), {}),
    ("native_batch_norm", (X, W, B, np.zeros(3), np.ones(3), False, 0.1, 1e-5), {}),
    ("native_channel_shuffle", (normal(2, 6, 4), 3), {}),
    ("native_dropout", (X, 0.5, False), {}),
    ("native_dropout", (X, 1.0, True), {}),
    ("native_group_norm", (normal(2, 4, 3), normal(4), normal(4), 2, 4, 3, 2, 1e-5), {}),
    ("native_layer_norm", (X, (4,), normal(4), normal(4), 1e-5), {}),
    ("native_layer_norm", (X, (3, 4), None, None, 1e-5), {}),
    ("norm_except_dim", (X,), {}),
    ("norm_except_dim", (X, 3, 1), {}),
    ("norm_except_dim", (X, 2, -2), {}),
    ("norm_except_dim", (X, 2, -1), {}),
    ("nuclear_norm", (X,), {}),
    ("nuclear_norm", (X, True), {}),
    ("nuclear_norm", (X, (0, 2)), {"keepdim": True}),
    ("poisson_nll_loss", (X, abs(X), True, True, 1e-8, 1), {}),
    ("poisson_nll_loss", (abs(X), abs(X), False, False, 1e-6, 0), {}),
    ("rnn_relu_cell", CELL, {}),
    ("rnn_tanh_cell", CELL[:4], {}),
    ("_segment_reduce", (normal(6), "sum"), {"lengths": whole(2, 0, 4)}),
    ("segment_reduce", (normal(6), "sum"), {"lengths": whole(2, 0, 4)}),
    ("segment_reduce", (normal(6), "mean"), {"lengths": whole(2, 0, 4)}),
    ("segment_reduce", (normal(6, 2), "mean"), {"lengths": whole(2, 0, 4), "initial": 3}),
    ("segment_reduce", (normal(6, 2), "max"), {"lengths": whole(2, 0, 4), "initial": 0.5}),
    ("segment_reduce", (normal(2, 6, 2), "min"), {"lengths": whole([2, 4], [3, 3]), "axis": 1}),
    ("segment_reduce", (normal(6), "prod"), {"offsets": whole(0, 2, 5)}),
    ("segment_reduce", (normal(6), "sum"), {"lengths": whole(2, 2), "unsafe": True}),
    ("triplet_margin_loss", (normal(4, 3), normal(4, 3, seed=1), normal(4, 3, seed=2)), {}),
    ("triplet_margin_loss", (normal(4, 3), normal(4, 3, seed=1), normal(4, 3, seed=2), 2.0, 1.0,
                             1e-6, True, 2), {}),
    *((name, (normal(5, 2, 3), state(2, both), layers(gates, 3, 4, biases, 2, both), biases, 2,
              0.0, True, both, False), {})
      for state in (lambda rows, both: normal(rows * (1 + both), 2, 4),)
      for name, gates in (("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
      for biases, both in ((True, False), (False, True))),
    ("lstm", (normal(5, 2, 3), (normal(2, 2, 4), normal(2, 2, 4)),
              layers(4, 3, 4, True, 1, True), True, 1, 0.0, True, True, False), {}),
    ("lstm", (normal(2, 5, 3), (normal(1, 2, 2), normal(1, 2, 4)),
              [normal(16, 3), normal(16, 2), normal(2, 4)], False, 1, 0.0, False, False, True), {}),
    ("lstm", (normal(5, 3), whole(2, 2, 1), (normal(1, 2, 4), normal(1, 2, 4)),
              layers(4, 3, 4, True, 1, False), True, 1, 0.0, True, False), {}),
    ("gru", (), {"data": normal(5, 3), "batch_sizes": whole(2, 2, 1), "hx": normal(1, 2, 4),
                 "params": layers(3, 3, 4, True, 1, False), "has_biases": True, "num_layers": 1,
                 "dropout": 0.0, "train": True, "bidirectional": False}),
]  # fmt: skip


def given(value: Any, space: Any, leaves: list[Any]) -> Any:
    """Arrays as tensors of one of both, those of floating point as leaves."""
    if isinstance(value, np.ndarray):
        tensor = space.from_numpy(value.copy())
        if value.dtype.kind == "f":
            leaves.append(tensor.requires_grad_())
        return tensor
    if isinstance(value, (list, tuple)):
        return type(value)(given(each, space, leaves) for each in value)
    return value


UNDERIVED = ("native_channel_shuffle",)  # those that PyTorch has no gradient of


def ran(space: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
    """The results, and the gradients of the leaves, of one call."""
    leaves: list[Any] = []
    args = given(args, space, leaves)
    kwargs = {key: given(value, space, leaves) for key, value in kwargs.items()}
    if "batch_norm" in name or "instance_norm" in name:
        for running in args[3:5]:
            if running is not None:
                running.requires_grad_(False)
                leaves = [leaf for leaf in leaves if leaf is not running]
    if name.endswith("loss") or name in ("kl_div", "binary_cross_entropy_with_logits"):
        for target in leaves[1:]:
            target.requires_grad_(False)
        leaves = leaves[:1]
    result = getattr(space, name)(*args, **kwargs)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    total: Any = 0
    for place, each in enumerate(results):
        if each.requires_grad and each.numel():
            finite = each[each.detach().isfinite()]
            total = total + (finite * (place + 1)).cos().sum()
    if name in UNDERIVED or not results[0].requires_grad:
        leaves = []
    found = space.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
    running = [x for x in args[3:5] if hasattr(x, "shape")] if "batch_norm" in name else []
    return [*results, *running], list(found)


@pytest.mark.filterwarnings("ignore:at..nuclear_norm", "ignore:at..frobenius_norm")
@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i][0]}")
def test_values_and_gradients(case):
    name, args, kwargs = CASES[case]
    ours, my_gradients = ran(ad, name, args, kwargs)
    theirs, gradients = ran(torch, name, args, kwargs)
    assert len(ours) == len(theirs) and len(my_gradients) == len(gradients)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype.name == str(b.dtype).removeprefix("torch.")
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
    for a, b in zip(my_gradients, gradients, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_every_form_is_compared():
    drawn = {"alpha_dropout_", "dropout_", "feature_alpha_dropout_", "feature_dropout",
             "feature_dropout_"}  # fmt: skip
    own = {"batch_norm_update_stats", "embedding_renorm_", "native_norm"}  # below
    written = {"conv_tbc"} | {
        n for file, names in FILES.items() if file in COMPARED for n in names.split()
    }
    assert written - drawn - own == {name for name, _, _ in CASES}


COMPARED = (
    *(f"torch_api.aten.{name}" for name in ("dropouts", "embeddings", "images", "losses")),
    *(f"torch_api.aten.{name}" for name in ("normalization", "recurrent_cells", "segments")),
)  # fmt: skip

WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("conv_tbc", (normal(5, 2), normal(2, 3, 4), normal(4)), {}),
    ("conv_tbc", (normal(5, 2, 3), normal(2, 2, 4), normal(4)), {}),
    ("conv_tbc", (normal(5, 2, 3), normal(2, 3, 4), normal(5)), {}),
    ("conv_tbc", (normal(5, 2, 3), normal(2, 3, 4), None), {}),
    ("convolution", (X, normal(6, 2, 2), normal(6), (1,), (0,), (1,), False, (0,), 1), {}),
    ("embedding_bag", (normal(5, 3), whole(0, 2), whole(0), False, 3), {}),
    ("frobenius_norm", (X, (0, 1, 2)), {}),
    ("frobenius_norm", (X,), {}),
    ("grid_sampler_3d", (IMAGE, GRID, 0, 0, False), {}),
    ("gru_cell", (normal(2, 2), *GATED[1:]), {}),
    ("gru_cell", (normal(2, 3), normal(2, 5), *GATED[2:]), {}),
    ("lstm_cell", (LONG[0], LONG[1][:1], *LONG[2:]), {}),
    ("lstm", (normal(5, 2, 3), (normal(1, 2, 4),), layers(4, 3, 4, True, 1, False), True, 1, 0.0,
              True, False, False), {}),
    ("gru", (normal(5, 2, 3), normal(1, 2, 4), layers(3, 3, 4, False, 1, False), True, 1, 0.0,
             True, False, False), {}),
    ("gru", (normal(5, 2, 3), normal(1, 2, 4)), {}),
    ("native_dropout", (X, 2.0, True), {}),
    ("native_group_norm", (normal(2, 4, 3), None, None, 2, 4, 4, 2, 1e-5), {}),
    ("native_layer_norm", (X, (5,), None, None, 1e-5), {}),
    ("native_norm", (X,), {}),
    ("norm_except_dim", (X, 2, 3), {}),
    ("nuclear_norm", (X, (2,)), {}),
    ("segment_reduce", (normal(6), "median"), {"lengths": whole(2, 4)}),
    ("segment_reduce", (normal(6), "sum"), {}),
    ("segment_reduce", (normal(6), "sum"), {"lengths": whole(2, 5)}),
    ("segment_reduce", (normal(6), "sum"), {"lengths": whole(7, -1)}),
    ("segment_reduce", (normal(6), "sum"), {"indices": whole(7, -1)}),
    ("segment_reduce", (normal(6, 2), "sum"), {"lengths": whole(1, 1), "axis": 1}),
    ("segment_reduce", (whole(1, 2), "sum"), {"lengths": whole(1, 1)}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)), ids=lambda i: f"{i}-{WRONG[i][0]}")
def test_errors(case):
    name, args, kwargs = WRONG[case]
    with pytest.raises(Exception) as theirs:
        getattr(torch, name)(*given(args, torch, []), **{
            key: given(value, torch, []) for key, value in kwargs.items()
        })  # fmt: skip
    with pytest.raises(theirs.type):
        getattr(ad, name)(*given(args, ad, []), **{
            key: given(value, ad, []) for key, value in kwargs.items()
        })  # fmt: skip


def test_a_reduction_that_is_no_number_of_one_is_refused():
    with pytest.raises(ad.InvalidArgument, match="kl_div: reduction is 0"):
        ad.kl_div(ad.zeros(2), ad.zeros(2), 3)


def test_statistics_of_a_batch_are_updated_in_place():
    mine, theirs = [], []
    for space, kept in ((ad, mine), (torch, theirs)):
        mean, variance = space.zeros(3), space.ones(3)
        x = space.from_numpy(np.float32(X))
        kept += [*space.batch_norm_update_stats(x, mean, variance, 0.3), mean, variance]
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_rows_are_bounded_in_place():
    for space in (ad, torch):
        weight = space.from_numpy(normal(4, 3) * 4)
        found = space.embedding_renorm_(weight, space.tensor([[0, 2], [0, 0]]), 1.0, 2.0)
        assert found is weight
        np.testing.assert_allclose(weight.norm(2, 1).numpy().round(5)[[0, 2]], [1, 1], atol=1e-5)
        np.testing.assert_array_equal(weight[1].numpy(), (normal(4, 3) * 4)[1])


def test_norm_of_a_sparse_tensor():
    for space in (ad, torch):
        x = space.from_numpy(normal(3, 4)).to_sparse()
        found = space.native_norm(x).item(), space.native_norm(x, 1, (0, 1), False, None).item()
        assert found == (pytest.approx(np.linalg.norm(normal(3, 4))), abs(normal(3, 4)).sum())
        for dim, keepdim in (((0,), False), ((0, 1), True)):
            with pytest.raises(RuntimeError):
                space.native_norm(x, 2, dim, keepdim, None)


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout",
                                  "feature_dropout"])  # fmt: skip
def test_dropout_in_place_drops_what_the_function_drops(name):
    function = getattr(ad, name)
    x = ad.from_numpy(normal(5, 6, 4))
    ad.manual_seed(3)
    expected = function(x, 0.5, True)
    ad.manual_seed(3)
    written = x.clone()
    assert getattr(ad, f"{name}_")(written, 0.5, True) is written
    assert ad.equal(written, expected) and not ad.equal(written, x)
    assert ad.equal(getattr(ad, f"{name}_")(x.clone(), 0.5, False), x)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        getattr(ad, f"{name}_")(x, 1.5, True)


def test_dropout_of_features_keeps_or_drops_whole_channels():
    y = ad.feature_dropout(ad.ones(8, 9, 5), 0.5, True)
    assert {tuple(row) for row in y.reshape(-1, 5).tolist()} == {(0.0,) * 5, (2.0,) * 5}
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        ad.feature_dropout(ad.ones(8), 0.5, True)


def test_the_mask_of_dropout_is_what_was_kept():
    x = ad.ones(40, 50, requires_grad=True)
    y, mask = ad.native_dropout(x, 0.25, True)
    assert mask.dtype is ad.bool and ad.equal(y != 0, mask) and 0.7 < mask.float().mean() < 0.8
    y.sum().backward()
    assert ad.allclose(x.grad, mask / 0.75)


def test_forms_in_lazy_mode_in_graphs_and_under_autocast():
    call = functools.partial(ad.native_layer_norm, normalized_shape=(4,), weight=None, bias=None,
                             eps=1e-5)  # fmt: skip
    x = ad.from_numpy(np.float32(X))
    with ad.lazy():
        lazily = call(x)
    graph = ad.Graph()
    with graph:
        source = graph.leaf(x) if hasattr(graph, "leaf") else x
        recorded = call(source)
    for a, b, c in zip(call(x), lazily, recorded, strict=True):
        assert ad.allclose(a, b) and ad.allclose(a, c)
    with ad.autocast("cpu"):
        y = ad.convolution(x, ad.ones(2, 3, 1), None, [1], [0], [1], False, [0], 1)
    assert y.dtype is ad.bfloat16
