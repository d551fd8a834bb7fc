"""Modules and functions of nn that PyTorch's module_db does not hold, beside PyTorch's."""

from __future__ import annotations

import copy
import itertools
import typing
from collections import OrderedDict

import numpy as np
import pytest

import adjoint as ad
from tests.native import COMPILED_OR_NOT

torch = pytest.importorskip("torch")


def both(*arrays, grad=True):
    """The same arrays as adjoint's and PyTorch's tensors."""
    mine, theirs = [], []
    for a in arrays:
        real = a.dtype.kind == "f" and grad
        mine.append(ad.from_numpy(a.copy()).requires_grad_(real))
        theirs.append(torch.from_numpy(a.copy()).requires_grad_(real))
    return mine, theirs


def assert_alike(function, *arrays, tolerance=1e-10):
    """`function(t, *tensors)` and its gradients agree."""
    mine, theirs = both(*arrays)
    found, expected = function(ad, *mine), function(torch, *theirs)
    np.testing.assert_allclose(
        found.detach().numpy(), expected.detach().numpy(), tolerance, tolerance
    )
    if not expected.requires_grad:
        return
    weight = np.random.default_rng(1).standard_normal(expected.shape)
    (found * ad.from_numpy(np.asarray(weight))).sum().backward()
    (expected * torch.from_numpy(np.asarray(weight))).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        if b.grad is not None:
            gradient = 0 * b.grad.numpy() if a.grad is None else a.grad.numpy()
            np.testing.assert_allclose(gradient, b.grad.numpy(), tolerance * 10, tolerance * 10)


RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 3, 5, 7))
SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 7), 3: (1, 2, 3, 4, 5)}

RESIZINGS = [
    (rank, mode, options)
    for rank, modes in {
        1: ("nearest", "nearest-exact", "linear", "area"),
        2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
        3: ("nearest", "nearest-exact", "trilinear", "area"),
    }.items()
    for mode in modes
    for options in (
        {"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6}, {"size": 4},
        {"size": 11}, {"size": 1}, {"scale_factor": 1.7, "recompute_scale_factor": True},
        {"size": 4, "align_corners": True}, {"scale_factor": 2, "align_corners": True},
    )
    if mode.endswith(("linear", "cubic")) or "align_corners" not in options
]  # fmt: skip


@pytest.mark.parametrize(("rank", "mode", "options"), RESIZINGS)
def test_interpolate(rank, mode, options):
    x = RNG.standard_normal(SHAPES[rank])
    assert_alike(lambda t, x: t.nn.functional.interpolate(x, mode=mode, **options), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(2, 3), (9, 4), (5, 7)])
@pytest.mark.parametrize("align", [False, True])
def test_interpolate_antialiased(mode, size, align):
    assert_alike(
        lambda t, x: t.nn.functional.interpolate(
            x, size, mode=mode, antialias=True, align_corners=align
        ),
        IMAGE,
    )


def test_interpolate_sums_bytes_as_pytorch_does():
    rng = np.random.default_rng(0)
    for mode, antialias, align in itertools.product(
        ("bilinear", "bicubic"), (False, True), (False, True)
    ):
        for shape, size in (
            ((1, 3, 7, 9), (4, 12)),
            ((2, 5, 12, 6), (12, 4)),
            ((1, 1, 1, 2), (3, 3)),
        ):
            x = rng.integers(0, 256, shape, dtype=np.uint8)
            given = {"mode": mode, "antialias": antialias, "align_corners": align}
            ours = ad.nn.functional.interpolate(ad.tensor(x), size, **given)
            theirs = torch.nn.functional.interpolate(torch.tensor(x), size, **given)
            assert ours.numpy().tolist() == theirs.tolist(), (given, shape, size)
    whole = ad.tensor(rng.integers(0, 256, (1, 2, 3, 3), dtype=np.uint8))
    same = ad.nn.functional.interpolate(whole, (3, 3), mode="bilinear")
    assert same.equal(whole) and same.data_ptr() != whole.data_ptr()
    for mode, dtype in (("bilinear", ad.int64), ("area", ad.uint8), ("bicubic", ad.int16)):
        with pytest.raises(ad.Unsupported, match="float"):
            ad.nn.functional.interpolate(whole.to(dtype), (2, 2), mode=mode)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"size": 2, "scale_factor": 2}, {"size": 4, "mode": "cubic"}, {"size": (1, 2, 3)},
     {"size": 4, "align_corners": True}, {"size": 4, "mode": "linear"}, {"size": 0}],
    ids=str,
)  # fmt: skip
def test_interpolate_errors(arguments):
    with pytest.raises((ValueError, NotImplementedError, RuntimeError), match="interpolate"):
        ad.nn.functional.interpolate(ad.zeros(1, 1, 4, 4), **arguments)


@pytest.mark.parametrize("make", [
    lambda t: t.nn.PixelShuffle(2), lambda t: t.nn.PixelUnshuffle(2),
    lambda t: t.nn.ChannelShuffle(4), lambda t: t.nn.Upsample(scale_factor=(2.0, 1.5)),
    lambda t: t.nn.Upsample(size=(3, 4), mode="bilinear"), lambda t: t.nn.UpsamplingNearest2d(3),
    lambda t: t.nn.UpsamplingBilinear2d(scale_factor=2), lambda t: t.nn.Unfold(3, 1, 1, 2),
    lambda t: t.nn.Sequential(t.nn.Unfold((2, 3)), t.nn.Fold((4, 6), (2, 3))),
    lambda t: t.nn.CrossMapLRN2d(3), lambda t: t.nn.LocalResponseNorm(2, 0.1, 0.5, 2.0),
])  # fmt: skip
def test_image_modules(make):
    x = RNG.standard_normal((2, 8, 4, 6))
    mine, theirs = make(ad), make(torch)
    assert repr(mine) == repr(theirs)
    tolerance = 1e-6 if isinstance(theirs, torch.nn.CrossMapLRN2d) else 1e-10
    if not isinstance(theirs, torch.nn.CrossMapLRN2d):  # PyTorch's needs float32 and is old
        assert_alike(lambda t, x: (mine if t is ad else theirs)(x), x, tolerance=tolerance)
    else:
        plain = ad.nn.LocalResponseNorm(3)
        a = ad.from_numpy(x)
        np.testing.assert_array_equal(mine(a).numpy(), plain(a).numpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("given", [False, True])
def test_max_unpool(rank, given):
    x = RNG.standard_normal((2, 3, *((5, 6, 7) if given else (4, 6, 8))[:rank]))

    def run(t, x):
        pooled, index = getattr(t.nn, f"MaxPool{rank}d")(2, return_indices=True)(x)
        size = x.shape if given else None
        return getattr(t.nn, f"MaxUnpool{rank}d")(2)(pooled, index, output_size=size)

    assert_alike(run, x)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fractional_max_pool(rank, batched):
    x = RNG.standard_normal((2, 3, 9, 8, 7)[: rank + 2])
    samples = RNG.uniform(size=(2, 3, rank))
    if not batched:
        x, samples = x[0], samples[:1]

    def run(t, x):
        pool = getattr(t.nn, f"FractionalMaxPool{rank}d")
        draws = t.from_numpy(samples.copy())
        y, i = pool(2, output_ratio=0.6, return_indices=True, _random_samples=draws)(x)
        z = pool((3,) * rank, output_size=(4,) * rank, _random_samples=draws)(x)
        return y.sum() + (i.to(t.float64) * 1e-3).sum() + (z * z).sum()

    assert_alike(run, x)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(mode, padding, align):
    grid = RNG.uniform(-1.6, 1.6, (2, 4, 3, 2))
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}
    assert_alike(lambda t, x, g: t.nn.functional.grid_sample(x, g, **options), IMAGE, grid)
    if mode != "bicubic":
        volume = RNG.standard_normal((2, 2, 3, 4, 5))
        places = RNG.uniform(-1.6, 1.6, (2, 2, 3, 2, 3))
        assert_alike(lambda t, x, g: t.nn.functional.grid_sample(x, g, **options), volume, places)


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align):
    for size in ((2, 3, 4, 5), (2, 3, 2, 4), (2, 3, 4, 5, 2)):
        theta = RNG.standard_normal((2, len(size) - 2, len(size) - 1))
        assert_alike(lambda t, x, s=size: t.nn.functional.affine_grid(x, s, align), theta)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bag(mode, padding, last):
    index = RNG.integers(0, 6, 11)
    offsets = np.array([0, 3, 3, 9, 11] if last else [0, 3, 3, 9])
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}

    def run(t, w):
        bags = t.nn.EmbeddingBag.from_pretrained(w, freeze=False, **options)
        y = t.nn.functional.embedding_bag(t.from_numpy(index), w, t.from_numpy(offsets), **options)
        fixed = t.nn.functional.embedding_bag(
            t.from_numpy(index[:10].reshape(2, 5)), w, mode=mode, padding_idx=padding
        )
        assert repr(bags).startswith(f"EmbeddingBag(6, 3, mode='{mode}'")
        return t.cat([y, fixed])

    assert_alike(run, RNG.standard_normal((6, 3)))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_of_nothing_have_a_history(mode):
    for t in (ad, torch):
        w = t.ones(5, 3, requires_grad=True)
        index, starts = t.zeros(0, dtype=t.int64), t.zeros(2, dtype=t.int64)
        y = t.nn.functional.embedding_bag(index, w, starts, mode=mode)
        y.sum().backward()
        assert tuple(y.shape) == (2, 3) and w.grad.abs().sum() == 0


def test_cosine_similarity_of_small_halves_has_finite_gradients():
    for t in (ad, torch):
        x = t.tensor([[1e-4, 0, 0]], dtype=t.float16, requires_grad=True)
        t.nn.functional.cosine_similarity(x, t.ones_like(x)).sum().backward()
        assert t.isfinite(x.grad).all()


@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
@pytest.mark.parametrize(
    ("other", "expected"),
    [([1.0, 0.0], [1e8, 0.0]), ([1.0, 1.0], [70710680.0, 70710680.0]), ([0.0, 0.0], [0.0, 0.0])],
)
def test_cosine_similarity_has_a_gradient_at_zero(other, expected, compiled):
    def gradient(x):
        x = x.clone().requires_grad_()
        ad.nn.functional.cosine_similarity(x, ad.tensor([other])).sum().backward()
        return x.grad

    found = (ad.compile(gradient) if compiled else gradient)(ad.zeros(1, 2))
    np.testing.assert_allclose(found.numpy(), [expected], rtol=1e-6)


def test_cosine_similarity_of_vectors_whose_squares_vanish_has_a_gradient():
    x = ad.tensor([[1e-30, 1e-30]], requires_grad=True)
    ad.nn.functional.cosine_similarity(x, ad.tensor([[1.0, 0.0]])).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[1e8, 0.0]], rtol=1e-6)


def test_embedding_bag_weights():
    index, offsets = RNG.integers(0, 6, 5), np.array([0, 2])

    def run(t, w, s):
        return t.nn.functional.embedding_bag(
            t.from_numpy(index), w, t.from_numpy(offsets), mode="sum", per_sample_weights=s
        )

    assert_alike(run, RNG.standard_normal((6, 3)), RNG.standard_normal(5))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss_of_padded_and_joined_targets(reduction):
    logits = RNG.standard_normal((12, 3, 5))
    targets = RNG.integers(1, 5, (3, 4))
    targets[0, 1] = targets[0, 0]
    lengths = np.array([4, 0, 3])
    joined = np.concatenate([row[:n] for row, n in zip(targets, lengths, strict=True)])
    for given in (targets, joined):

        def run(t, x, given=given):
            return t.nn.functional.ctc_loss(
                x.log_softmax(2), t.from_numpy(given), (12, 10, 7), tuple(lengths.tolist()),
                reduction=reduction,
            )  # fmt: skip

        assert_alike(run, logits)


def test_ctc_loss_without_alignment():
    logs = ad.zeros(2, 1, 3).log_softmax(2).requires_grad_()
    targets = ad.tensor([[1, 1]])  # needs a blank between: three steps
    assert ad.nn.functional.ctc_loss(logs, targets, [2], [2]).item() == float("inf")
    loss = ad.nn.functional.ctc_loss(logs, targets, [2], [2], zero_infinity=True)
    loss.backward()
    assert loss.item() == 0.0 and not np.isnan(logs.grad.numpy()).any()


def test_ctc_loss_by_enumeration():
    """Against the sum over all paths, and to second order by gradcheck."""
    import itertools

    logs = np.log(RNG.dirichlet(np.ones(3), 4))[:, None]
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        kept = [a for a, b in zip(path, (None, *path), strict=False) if a != b and a != 0]
        if kept == [1, 2]:
            total += np.exp(sum(logs[t, 0, c] for t, c in enumerate(path)))
    found = ad.nn.functional.ctc_loss(
        ad.from_numpy(logs), ad.tensor([[1, 2]]), [4], [2], reduction="sum"
    )
    assert found.item() == pytest.approx(-np.log(total))
    x = ad.from_numpy(RNG.standard_normal((4, 1, 3))).requires_grad_()

    def loss(x):
        return ad.nn.functional.ctc_loss(
            x.log_softmax(2), ad.tensor([[1, 2]]), [4], [2], reduction="sum"
        )

    assert ad.autograd.gradcheck(loss, (x,))
    assert ad.autograd.gradgradcheck(loss, (x,))


@pytest.mark.parametrize("swap", [False, True])
def test_triplet_loss_with_a_distance(swap):
    def run(t, a, p, n):
        far = t.nn.TripletMarginWithDistanceLoss(
            distance_function=lambda x, y: (x - y).abs().max(-1)[0], margin=2.0, swap=swap
        )
        return far(a, p, n) + t.nn.TripletMarginWithDistanceLoss(swap=swap)(a, p, n)

    assert_alike(run, *(RNG.standard_normal((4, 3)) for _ in range(3)))


def test_distances():
    def run(t, a, b):
        return t.nn.PairwiseDistance(p=3, keepdim=True)(a, b).sum() + t.nn.CosineSimilarity(-1)(
            a, b
        )

    assert_alike(run, RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3)))


def test_adaptive_log_softmax():
    torch.manual_seed(0)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True)
    mine = ad.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True)
    copy_state(mine.double(), theirs.double())
    assert repr(mine) == repr(theirs)
    targets = np.array([0, 3, 4, 9, 10, 19])
    x = RNG.standard_normal((6, 8))
    assert_alike(
        lambda t, x: (
            (mine if t is ad else theirs)(x, t.from_numpy(targets)).output
            + (mine if t is ad else theirs)(x, t.from_numpy(targets)).loss
        ),
        x,
    )
    assert_alike(lambda t, x: (mine if t is ad else theirs).log_prob(x), x)
    a, b = both(x)
    assert mine.predict(a[0]).tolist() == theirs.predict(b[0]).tolist()
    with pytest.raises(IndexError, match="Target values"):
        mine(a[0], ad.tensor([0, 1, 2, 3, 4, 20]))


def copy_state(mine, theirs):
    """PyTorch's weights into ours, whose names must be the same."""
    state = theirs.state_dict()
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict({key: ad.from_numpy(v.numpy().copy()) for key, v in state.items()})


# ---- recurrent layers ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_packed_sequences(kind, bidirectional, given):
    torch.manual_seed(0)
    options = {"num_layers": 2, "bidirectional": bidirectional}
    theirs = getattr(torch.nn, kind)(3, 4, **options).double()
    mine = getattr(ad.nn, kind)(3, 4, **options).double()
    copy_state(mine, theirs)
    lengths = np.array([2, 6, 4, 6])
    rows = 4 if bidirectional else 2
    states = [RNG.standard_normal((rows, 4, 4)) for _ in range(2 if kind == "LSTM" else 1)]

    def run(t, x, *hx):
        layer = mine if t is ad else theirs
        rnn = t.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, t.from_numpy(lengths), enforce_sorted=False)
        state = (hx if kind == "LSTM" else hx[0]) if given else None
        y, h = layer(packed, state)
        padded, sizes = rnn.pad_packed_sequence(y, batch_first=True, total_length=8)
        assert sizes.tolist() == lengths.tolist()
        last = h if kind == "LSTM" else (h,)
        return t.cat([padded.reshape(-1), *(s.reshape(-1) for s in last)])

    assert_alike(run, RNG.standard_normal((6, 4, 3)), *states)


def test_projected_lstm():
    torch.manual_seed(0)
    options = {"num_layers": 2, "proj_size": 2, "bidirectional": True, "batch_first": True}
    theirs = torch.nn.LSTM(3, 5, **options).double()
    mine = ad.nn.LSTM(3, 5, **options).double()
    copy_state(mine, theirs)
    assert repr(mine) == repr(theirs)
    assert_alike(lambda t, x: (mine if t is ad else theirs)(x)[0], RNG.standard_normal((2, 6, 3)))


def test_sequences_of_different_lengths():
    arrays = [RNG.standard_normal((n, 2)) for n in (3, 5, 1)]
    mine = [ad.from_numpy(a) for a in arrays]
    theirs = [torch.from_numpy(a) for a in arrays]
    ours, other = ad.nn.utils.rnn, torch.nn.utils.rnn
    for side in ("left", "right"):
        for first in (False, True):
            a = ours.pad_sequence(mine, first, -1.0, side)
            b = other.pad_sequence(theirs, first, -1.0, side)
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    packed = ours.pack_sequence(mine, enforce_sorted=False)
    expected = other.pack_sequence(theirs, enforce_sorted=False)
    np.testing.assert_array_equal(packed.data.numpy(), expected.data.numpy())
    assert packed.batch_sizes.tolist() == expected.batch_sizes.tolist()
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    for found, array in zip(ours.unpack_sequence(packed), arrays, strict=True):
        np.testing.assert_array_equal(found.numpy(), array)
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        ours.pack_sequence(mine)
    with pytest.raises(RuntimeError, match="greater than 0"):
        ours.pack_padded_sequence(ad.zeros(3, 2, 1), [3, 0])


@pytest.mark.parametrize("arguments", [
    {"hidden_size": 0}, {"num_layers": 0}, {"dropout": 2.0}, {"proj_size": 9},
], ids=str)  # fmt: skip
def test_recurrent_layers_refuse(arguments):
    with pytest.raises(ValueError, match="LSTM"):
        ad.nn.LSTM(**{"input_size": 2, "hidden_size": 3, **arguments})
    with pytest.raises(ValueError, match="Unknown nonlinearity"):
        ad.nn.RNN(2, 3, nonlinearity="sin")
    with pytest.raises(RuntimeError, match="input_size"):
        ad.nn.GRU(2, 3)(ad.zeros(4, 1, 5))
    with pytest.raises(RuntimeError, match="hidden size"):
        ad.nn.GRU(2, 3)(ad.zeros(4, 1, 2), ad.zeros(1, 2, 3))


def test_dropout_between_layers_only():
    layer = ad.nn.GRU(2, 3, num_layers=2, dropout=1.0)
    layer.train()
    dropped, _ = layer(ad.ones(4, 1, 2))
    again, _ = layer(5 * ad.ones(4, 1, 2))
    np.testing.assert_array_equal(dropped.detach().numpy(), again.detach().numpy())
    assert dropped.abs().sum().item() > 0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_scaled_dot_product_attention(masked, causal):
    mask = RNG.uniform(size=(4, 6)) > 0.3
    both = mask & np.tril(np.ones((4, 6), bool))
    both[:, 0] = mask[:, 0] = True

    def run(t, q, k, v):
        given = t.from_numpy(mask) if masked else None
        is_causal = causal
        if masked and causal and t is torch:  # which refuses both of other sizes
            given, is_causal = t.from_numpy(both), False
        return t.nn.functional.scaled_dot_product_attention(
            q, k, v, given, is_causal=is_causal, scale=0.3
        )

    shapes = ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5))
    assert_alike(run, *(RNG.standard_normal(s) for s in shapes))


def test_grouped_attention():
    def run(t, q, k, v):
        return t.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    shapes = ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8))
    assert_alike(run, *(RNG.standard_normal(s) for s in shapes))


# ---- lazy layers and parametrizations ------------------------------------------------------------


def test_lazy_layers_become_what_they_stand_for():
    model = ad.nn.Sequential(
        ad.nn.LazyConv2d(4, 3), ad.nn.LazyBatchNorm2d(), ad.nn.Flatten(), ad.nn.LazyLinear(2)
    )
    assert repr(model[3].weight) == "<UninitializedParameter>"
    assert model(ad.randn(2, 3, 5, 5)).shape == (2, 2)
    assert [type(m) for m in model] == [
        ad.nn.Conv2d, ad.nn.BatchNorm2d, ad.nn.Flatten, ad.nn.Linear,
    ]  # fmt: skip
    assert model[3].in_features == 36 and model[3]._call_hooks is None
    fresh = ad.nn.Sequential(
        ad.nn.LazyConv2d(4, 3), ad.nn.LazyBatchNorm2d(), ad.nn.Flatten(), ad.nn.LazyLinear(2)
    )
    fresh.load_state_dict(model.state_dict())
    x = ad.randn(2, 3, 5, 5)
    np.testing.assert_array_equal(fresh(x).detach().numpy(), model(x).detach().numpy())
    with pytest.raises(RuntimeError, match="Expected 3D"):
        ad.nn.LazyConv2d(4, 3)(ad.zeros(2, 2))


@pytest.mark.parametrize("make", [
    lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 4)),
    lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Conv1d(2, 4, 3), dim=None),
    lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Conv1d(2, 4, 3), dim=1),
    lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(3, 4), n_power_iterations=2),
    lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.ConvTranspose1d(2, 4, 3)),
    lambda t: t.nn.utils.weight_norm(t.nn.Linear(3, 4)),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_reparametrized_layers_train_alike(make):
    torch.manual_seed(0)
    theirs, mine = make(torch).double(), make(ad).double()
    copy_state(mine, theirs)
    x = RNG.standard_normal((5, 3) if isinstance(theirs, torch.nn.Linear) else (5, 2, 6))
    for t, model in ((ad, mine), (torch, theirs)):
        optimizer = t.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (model(t.from_numpy(x)) ** 2).mean().backward()
            optimizer.step()
    for (key, a), b in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-9, 1e-9, err_msg=key)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_can_be_taken_away():
    for make, remove in (
        (ad.nn.utils.weight_norm, ad.nn.utils.remove_weight_norm),
        (
            ad.nn.utils.parametrizations.weight_norm,
            lambda m: ad.nn.utils.parametrize.remove_parametrizations(m, "weight"),
        ),
    ):
        layer = ad.nn.Linear(3, 2)
        before = layer.weight.detach().numpy().copy()
        assert "weight" not in dict(make(layer).named_parameters())
        assert type(remove(layer)) is ad.nn.Linear
        np.testing.assert_allclose(layer.weight.detach().numpy(), before, rtol=1e-6)
        assert set(dict(layer.named_parameters())) == {"weight", "bias"}
    with pytest.raises(ValueError, match="not found"):
        ad.nn.utils.remove_weight_norm(ad.nn.Linear(1, 1))


def test_old_weight_norm_states_load_into_parametrizations():
    with pytest.warns(FutureWarning):
        old = ad.nn.utils.weight_norm(ad.nn.Linear(3, 2))
    new = ad.nn.utils.parametrizations.weight_norm(ad.nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    x = ad.randn(4, 3)
    np.testing.assert_allclose(new(x).detach().numpy(), old(x).detach().numpy(), rtol=1e-6)


def test_own_parametrizations():
    class Symmetric(ad.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    layer = ad.nn.Linear(3, 3)
    ad.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    weight = layer.weight.detach().numpy()
    np.testing.assert_array_equal(weight, weight.T)
    layer.weight = ad.eye(3) * 2
    np.testing.assert_array_equal(layer.weight.detach().numpy(), 2 * np.eye(3))
    layer(ad.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    copied = copy.deepcopy(layer)
    np.testing.assert_array_equal(copied.weight.detach().numpy(), 2 * np.eye(3))
    with pytest.raises(ValueError, match="does not have a parameter"):
        ad.nn.utils.parametrize.register_parametrization(layer, "absent", Symmetric())


UNUSUAL = [
    ("ReLU", ()), ("ReLU6", (True,)), ("SELU", (True,)), ("SiLU", (True,)), ("Mish", (True,)),
    ("Hardsigmoid", (True,)), ("Hardswish", (True,)), ("ELU", (2.0, True)), ("CELU", (2.0,)),
    ("LeakyReLU", (0.1, True)), ("RReLU", (0.1, 0.2, True)), ("GELU", ("tanh",)),
    ("Softplus", (2.0, 3.0)), ("Softshrink", (0.2,)), ("Hardshrink", (0.2,)),
    ("Hardtanh", (0.0, 1.0, True)), ("Threshold", (0.1, 2, True)), ("GLU", (1,)),
    ("Softmax", (1,)), ("LogSoftmax", (1,)), ("Softmin", (1,)), ("PReLU", (3,)),
    ("Embedding", (4, 3)), ("Embedding", (4, 3, 1, 2.0, 3.0, True, True)), ("RNN", (2, 3)),
    ("LSTM", (2, 3, 2, False, True, 0.5, True, 2)), ("RNNCell", (2, 3)),
    ("RNNCell", (2, 3, False, "relu")), ("GRUCell", (2, 3, False)), ("Linear", (2, 3, False)),
    ("Bilinear", (2, 3, 4)), ("ZeroPad2d", (1,)), ("ConstantPad1d", (1, 2.0)),
    ("LayerNorm", ((2, 3),)), ("RMSNorm", ((2, 3),)), ("GroupNorm", (2, 4)),
    ("LocalResponseNorm", (2,)), ("Dropout", (0.1, True)), ("LazyLinear", (3,)),
    ("LPPool2d", (2, 3)), ("MaxUnpool2d", (2,)), ("Fold", ((4, 5), (2, 2))), ("Unfold", ((2, 2),)),
    ("Flatten", (0, 1)), ("Unflatten", (1, (2, 3))), ("ChannelShuffle", (2,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), UNUSUAL, ids=str)
def test_unusual_settings_are_shown_as_pytorch_shows_them(name: str, settings: tuple) -> None:
    assert repr(getattr(ad.nn, name)(*settings)) == repr(getattr(torch.nn, name)(*settings))


@pytest.mark.parametrize("t", [ad, torch])
def test_hooks_are_seen_and_changed_by_their_kinds(t):
    layer, ran = t.nn.Linear(2, 2), []
    handle = layer.register_forward_hook(lambda *_: ran.append("after"))
    layer.register_forward_pre_hook(lambda *_: ran.append("before"))
    layer.register_full_backward_hook(lambda *_: ran.append("back"))
    kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    assert [len(getattr(layer, kind)) for kind in kinds] == [1, 1, 1, 0]
    assert list(layer._forward_hooks) == [handle.id]
    layer._forward_hooks.clear()
    layer(t.ones(1, 2))
    assert ran == ["before"]
    layer._forward_pre_hooks = OrderedDict()
    layer._backward_hooks = OrderedDict()
    layer._forward_hooks[7] = lambda module, inputs, output: output * 0
    assert layer(t.ones(1, 2)).tolist() == [[0, 0]] and ran == ["before"]
    del layer._forward_hooks[7]
    assert layer(t.ones(1, 2)).tolist() != [[0, 0]]
    handle.remove()
    with pytest.raises(KeyError):
        del layer._forward_hooks[7]


@pytest.mark.parametrize("t", [ad, torch])
def test_programs_may_use_other_names(t):
    class Own(t.nn.Module):
        _registry: typing.ClassVar = {}
        _repr = "x"

        def __init__(self):
            super().__init__()
            self._hooks, self._call, self.is_frozen = [1], 3, "mine"
            self.layer = t.nn.Linear(2, 2)
            self.register_buffer("b", t.ones(1))

        def _get_member(self):
            raise AssertionError("nobody asks")

        _set_buffer = _forget = _assert_new_name = _to_floating = _get_member

        def forward(self, x):
            return self.layer(x)

    module = Own()
    module.b = t.zeros(1)
    module.layer = t.nn.Linear(2, 3)
    module.double()
    assert module(t.ones(1, 2).double()).dtype == t.float64 and module.is_frozen == "mine"
    assert list(module.state_dict()) == ["b", "layer.weight", "layer.bias"]
    assert module.get_parameter("layer.weight").shape == (3, 2) and "layer" in repr(module)


def test_fans_by_mode():
    w = ad.empty(4, 3, 2)
    for mode in ("fan_in", "FAN_OUT"):
        expected = torch.nn.init._calculate_correct_fan(torch.empty(4, 3, 2), mode)
        assert ad.nn.init._calculate_correct_fan(w, mode) == expected
    with pytest.raises(ValueError, match="not supported"):
        ad.nn.init._calculate_correct_fan(w, "fan")
