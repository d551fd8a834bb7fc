"""Layers of frozen programs, by oneDNN or as products of panels: every kind, with what follows, in
parts for threads.
"""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.core import policy
from adjoint.inference import freeze

onednn = pytest.importorskip("adjoint.backends.native.onednn.api")
missing = native.unusable() or onednn.unavailable()
if missing:
    pytest.skip(f"oneDNN: {missing}", allow_module_level=True)
F = nn.functional


@pytest.fixture(params=[1, 3])
def threads(request):
    before = ad.get_num_threads()
    ad.set_num_threads(request.param)
    yield request.param
    ad.set_num_threads(before)


@pytest.fixture(params=["panels", "oneDNN"])
def products(request, monkeypatch):
    """What computes products of few rows."""
    if request.param == "oneDNN":
        monkeypatch.setattr(policy, "PANELS_ROWS", -1)
    return request.param


def layers(program):
    """How layers are computed."""
    return [step.how for step in program.steps if step.how in ("oneDNN", "panels")]


def check(function, *inputs, tolerance=1e-5, wanted=1):
    """Frozen equals eager; `wanted` steps are layers."""
    program = freeze(function, *inputs)
    expected = function(*inputs).detach().numpy()
    for _ in range(2):
        found = program(*inputs).numpy()
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * largest)
    assert len(layers(program)) == wanted, program
    return program


CONVOLUTIONS = [
    # shape of x, outputs, kernel, options
    ((1, 3, 12, 10), 4, 3, {"padding": 1}),
    ((4, 16, 9, 9), 32, 3, {"stride": 2, "padding": 1}),
    ((2, 8, 8, 8), 8, 3, {"groups": 8, "padding": 1}),
    ((2, 8, 8, 8), 12, 3, {"groups": 4}),
    ((1, 4, 15, 15), 4, 3, {"dilation": 2, "padding": 2}),
    ((1, 64, 40, 40), 64, 3, {"padding": 1}),
    ((5, 32, 40, 20), 40, 1, {}),
    ((2, 6, 30), 8, 5, {"padding": 2}),
    ((1, 3, 6, 6, 6), 4, 3, {"padding": 1}),
    ((3, 5, 7, 7), 1, (7, 1), {"padding": (3, 0)}),
]


@pytest.mark.parametrize(("shape", "outputs", "kernel", "options"), CONVOLUTIONS)
def test_convolutions(threads, shape, outputs, kernel, options):
    ad.manual_seed(0)
    kind = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[len(shape)]
    layer = kind(shape[1], outputs, kernel, **options)
    x = ad.randn(*shape)
    check(layer, x)
    other = ad.randn(*layer(x).shape)
    check(lambda x, y: (layer(x) + y).relu(), x, other)
    check(lambda x, y: F.gelu(layer(x)) + y, x, other)


SMALL_IMAGES = [
    # shape of x, outputs, kernel, options, what the product is
    ((9, 8, 2, 2), 12, 3, {"padding": 1}, "(9, 32) @ (32, 48)"),
    ((1, 8, 1, 1), 5, 3, {"padding": 1}, "(1, 8) @ (8, 5)"),
    ((2, 4, 2, 1), 5, 3, {"padding": 1, "stride": 2}, "(2, 8) @ (8, 5)"),
    ((8, 3, 3), 4, 5, {"padding": 2}, "(8, 9) @ (9, 12)"),
    ((1, 256, 4, 4), 256, 3, {"padding": 1}, "(16, 2304) @ (2304, 256)"),
    ((2, 256, 7, 5), 300, 3, {"padding": 1, "stride": 2}, "(24, 2304) @ (2304, 300)"),
    ((1, 200, 9, 9), 160, (5, 3), {"padding": (2, 1), "dilation": (1, 2), "stride": 3},
     "(9, 3000) @ (3000, 160)"),
    ((1, 512, 9), 300, 5, {}, "(5, 2560) @ (2560, 300)"),
]  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "outputs", "kernel", "options", "product"), SMALL_IMAGES)
def test_convolutions_of_small_images(
    threads, products, shape, outputs, kernel, options, product, bias
):
    """Images hardly larger than the kernel, and few windows with large weights: products."""
    ad.manual_seed(0)
    kind = nn.Conv2d if len(shape) == 4 else nn.Conv1d
    layer = kind(shape[1], outputs, kernel, bias=bias, **options)
    x = ad.randn(*shape)
    other = ad.randn(*layer(x).shape)
    program = check(lambda x, y: (layer(x) + y).relu(), x, other)
    assert program.steps[-1].layer.what == f"layer {product}"
    assert layers(program) == [products]


@pytest.mark.parametrize("rows", [policy.PANELS_ROWS, policy.PANELS_ROWS + 1])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}, {"groups": 2}])
def test_kernels_of_one_element(threads, rows, options):
    """They are products with a row for each place, where there are few and nothing lies between."""
    layer = nn.Conv1d(30, 18, 1, **options)
    x, other = ad.randn(1, 30, rows), ad.randn(*layer(ad.zeros(1, 30, rows)).shape)
    program = check(lambda x, y: F.relu6(layer(x) + y), x, other)
    few = rows <= policy.PANELS_ROWS and not options
    assert layers(program) == ["panels" if few else "oneDNN"]


TRANSPOSED = [
    ((2, 8, 8, 8), 4, 2, {"stride": 2}),
    ((1, 16, 5, 5), 8, 3, {"stride": 1, "padding": 1}),
    ((2, 8, 6, 6), 6, 4, {"stride": 2, "padding": 1}),
    ((4, 8, 6, 6), 8, 3, {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ((2, 4, 9), 6, 3, {"stride": 2}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "outputs", "kernel", "options"), TRANSPOSED)
def test_transposed_convolutions(threads, shape, outputs, kernel, options, bias):
    ad.manual_seed(0)
    kind = {3: nn.ConvTranspose1d, 4: nn.ConvTranspose2d}[len(shape)]
    layer = kind(shape[1], outputs, kernel, bias=bias, **options)
    program = freeze(lambda x: layer(x).relu(), ad.randn(*shape))
    for _ in range(2):
        x = ad.randn(*shape)
        expected = layer(x).relu().detach().numpy()
        np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert len(program.steps) == 1


@pytest.mark.parametrize("rows", [(1,), (7,), (2, 3), (64,), (0,)])
@pytest.mark.parametrize("sizes", [(6, 5), (300, 200), (64, 1)])
def test_products(threads, products, rows, sizes):
    ad.manual_seed(0)
    layer = nn.Linear(*sizes)
    x = ad.randn(*rows, sizes[0])
    wanted = int(0 not in rows)
    program = freeze(lambda x: layer(x).tanh(), x)
    expected = layer(x).tanh().detach().numpy()
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert layers(program) == [products] * wanted
    w = layer.weight.detach().t().contiguous()
    if wanted:
        check(lambda x: x @ w + x.sum(-1, True), x, tolerance=1e-4)


FOLLOWING = [
    ad.relu, ad.sigmoid, ad.tanh, F.silu, F.gelu, F.elu, F.relu6, F.hardswish, F.hardsigmoid,
    lambda x: F.gelu(x, approximate="tanh"), lambda x: F.leaky_relu(x, 0.2),
    lambda x: x.clamp(-0.5, 0.25), lambda x: F.hardtanh(F.silu(x)),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(FOLLOWING)))
def test_what_follows(products, place):
    """One step: the layer takes the function along."""
    ad.manual_seed(0)
    conv, linear = nn.Conv2d(3, 5, 3), nn.Linear(8, 5)
    function = FOLLOWING[place]
    for layer, x in ((conv, ad.randn(2, 3, 9, 9)), (linear, ad.randn(4, 8))):
        program = check(lambda x, layer=layer: function(layer(x) * 3), x)
        assert len(program.steps) == 1


POOLS = [
    lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x: F.avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 3, 1, 1), lambda x: F.adaptive_avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(POOLS)))
def test_pooling(threads, place):
    ad.manual_seed(0)
    for shape in ((1, 3, 8, 8), (5, 16, 12, 8)):
        program = freeze(POOLS[place], ad.randn(*shape))
        for _ in range(2):
            x = ad.randn(*shape)
            expected = POOLS[place](x).numpy()
            np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", range(len(FOLLOWING) - 1))
def test_what_follows_numbers_that_are_none(place):
    """NaN and infinities become what they become eagerly."""
    layer = nn.Linear(1, 3)
    layer.weight.data = ad.tensor([[1.0], [2.0], [-1.0]])
    layer.bias.data = ad.zeros(3)
    x = ad.tensor([[float("nan")], [float("inf")], [-float("inf")], [90.0], [-90.0], [-5.5]])
    program = freeze(lambda x: FOLLOWING[place](layer(x)), x)
    assert layers(program) == ["panels"]
    expected = FOLLOWING[place](layer(x)).detach().numpy()
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_added_may_be_overwritten_by_the_sum():
    """Each element is read where it is written; not so what is multiplied."""
    ad.manual_seed(0)
    first, second = nn.Linear(40, 40), nn.Linear(40, 40)

    def function(x):
        y = first(x)
        return ad.cat([second(x) + y, second(y) + y])

    check(function, ad.randn(9, 40), wanted=3, tolerance=1e-4)


def test_weights_are_reordered_once():
    """Plans for other batches share what they need."""
    layer = nn.Conv2d(32, 32, 3, padding=1)
    program = freeze(layer, ad.randn(1, 32, 8, 8))
    for batch in (2, 3):
        program(ad.randn(batch, 32, 8, 8))
    kept = program._packing._kept
    assert len(kept) == 1
    blocked = [step.layer.packed["w"] for plan in program._plans.values()
               for step in plan.schedule.steps]  # fmt: skip
    assert len(blocked) == 3 and len({id(x) for x in blocked}) == 1


def test_primitives_are_planned_for_one_thread(monkeypatch):
    """The pool's threads run parts; one made for several of OpenMP's would start its own team."""
    library = onednn.library()
    if library.threads is None:
        pytest.skip("oneDNN without OpenMP")
    seen, make = [], onednn.described_by

    def described_by(*arguments, **options):
        seen.append(library.threads[1]())
        return make(*arguments, **options)

    monkeypatch.setattr(onednn, "described_by", described_by)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 2, 2))
    freeze(nn.Sequential(layers, nn.Linear(8, 5)), ad.randn(1, 3, 10, 10))(ad.randn(1, 3, 10, 10))
    assert len(seen) >= 4 and set(seen) == {1}


def test_a_matrix_and_its_transpose_are_different_weights():
    w = ad.randn(6, 6)
    x = ad.randn(4, 6)
    check(lambda x: F.linear(x, w) @ w, x, wanted=2, tolerance=1e-4)
    check(lambda x: F.linear(x, w.t()) @ w.t() @ w, x, wanted=3, tolerance=1e-4)


def test_images_are_copied_only_at_the_ends():
    """Between layers images stay as the library has them; transposes and joins see their values."""
    a, b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(32, 8, 3, padding=1)

    def function(x):
        y = a(x).relu()
        z = b(ad.cat([y, y.flip(1)], 1))
        return z.permute(0, 2, 3, 1).flatten(1), z.flatten(1), z[:, ::2]

    x = ad.randn(2, 3, 8, 8)
    program = freeze(function, x)
    for found, expected in zip(program(x), function(x), strict=True):
        np.testing.assert_allclose(
            found.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5
        )  # fmt: skip


def test_other_dtypes_run_without_the_library():
    layer = nn.Conv2d(3, 4, 3).double()
    x = ad.randn(1, 3, 6, 6, dtype=ad.float64)
    program = check(lambda x: layer(x).relu(), x, tolerance=1e-12, wanted=0)
    assert [step.how for step in program.steps] == ["compute"]
