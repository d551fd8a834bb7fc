"""Convolution and pooling beside PyTorch: values, gradients, errors, on grids of arguments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint.ops.nn import averaging, pooling, unfolding
from tests.native import COMPILED_OR_NOT

torch = pytest.importorskip("torch")
F = torch.nn.functional


def both(*arrays):
    """The same leaves for PyTorch and adjoint; None stays None."""
    pairs = [
        (None, None)
        if a is None
        else (torch.tensor(a, requires_grad=True), ad.tensor(a, requires_grad=True))
        for a in arrays
    ]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def assert_same(theirs, ours, xs, ys, seed=0):
    """Equal values, and equal gradients of a weighted sum."""
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-9)
    g = np.random.default_rng(seed).normal(size=tuple(theirs.shape))
    theirs.backward(torch.tensor(g))
    ours.backward(ad.tensor(g))
    for x, y in zip(xs, ys, strict=True):
        if x is not None:
            np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), atol=1e-9)


def compare(theirs, ours, *arrays):
    """Run both functions on the same arrays; where PyTorch refuses, adjoint must too."""
    xs, ys = both(*arrays)
    try:
        expected = theirs(*xs)
    except RuntimeError:
        with pytest.raises(ad.AdjointError):
            ours(*ys)
        return
    assert_same(expected, ours(*ys), xs, ys)


rng = np.random.default_rng(0)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, (3, 2)])
def test_conv2d_grid(kernel, groups):
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x, w = rng.normal(size=(2, 4, 8, 7)), rng.normal(size=(6, 4 // groups, kh, kw))
    grid = itertools.product([1, 2, (2, 1)], [0, 1, (1, 2), "valid", "same"], [1, 2], [False, True])
    for stride, padding, dilation, bias in grid:
        b = rng.normal(size=6) if bias else None
        options = (stride, padding, dilation, groups)
        compare(
            lambda *a, o=options: F.conv2d(*a, *o), lambda *a, o=options: ad.conv2d(*a, *o), x, w, b
        )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_and_transpose_of_every_rank(rank):
    size = (7, 5, 4)[:rank]
    for stride, padding, dilation, groups, more in itertools.product(
        [1, 2, 3], [0, 1], [1, 2], [1, 2], [0, 1]
    ):
        x, b = rng.normal(size=(2, 4, *size)), rng.normal(size=4)
        w = rng.normal(size=(4, 4 // groups, *(2,) * rank))
        name, args = f"conv{rank}d", (stride, padding, dilation, groups)
        compare(
            lambda *a, n=name, o=args: getattr(F, n)(*a, *o),
            lambda *a, n=name, o=args: getattr(ad, n)(*a, *o),
            x, w, b,
        )  # fmt: skip
        name, args = f"conv_transpose{rank}d", (stride, padding, more, groups, dilation)
        b = rng.normal(size=4 // groups * groups)
        compare(
            lambda *a, n=name, o=args: getattr(F, n)(*a, *o),
            lambda *a, n=name, o=args: getattr(ad, n)(*a, *o),
            x, w, b,
        )  # fmt: skip


def test_unbatched_empty_and_complex():
    x, w = rng.normal(size=(4, 5, 5)), rng.normal(size=(3, 4, 2, 2))
    compare(F.conv2d, ad.conv2d, x, w)
    compare(F.conv_transpose2d, ad.conv_transpose2d, x, rng.normal(size=(4, 3, 2, 2)))
    compare(F.conv2d, ad.conv2d, np.zeros((0, 4, 5, 5)), w)
    z = rng.normal(size=(1, 2, 5)) + 1j * rng.normal(size=(1, 2, 5))
    v = rng.normal(size=(2, 2, 3)) + 1j * rng.normal(size=(2, 2, 3))
    np.testing.assert_allclose(
        ad.conv1d(ad.tensor(z), ad.tensor(v)).numpy(),
        F.conv1d(torch.tensor(z), torch.tensor(v)).numpy(),
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_precision_and_blocks(dtype):
    # Larger than a block of columns, so that the batch is worked on in parts.
    x, w = rng.normal(size=(5, 16, 60, 60)), rng.normal(size=(4, 16, 3, 3))
    t = [torch.tensor(a, dtype=getattr(torch, dtype), requires_grad=True) for a in (x, w)]
    a = [ad.tensor(v, dtype=getattr(ad, dtype), requires_grad=True) for v in (x, w)]
    theirs, ours = F.conv2d(*t, padding=1), ad.conv2d(*a, padding=1)
    assert ours.dtype is getattr(ad, dtype)
    tolerance = {"float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}[dtype]
    value = theirs.detach().float().numpy()
    np.testing.assert_allclose(ours.detach().float().numpy(), value, rtol=tolerance, atol=tolerance)
    theirs.sum().backward()
    ours.sum().backward()
    for p, q in zip(t, a, strict=True):
        scale = float(p.grad.abs().max())
        error = np.abs(q.grad.float().numpy() - p.grad.float().numpy()).max()
        assert error <= tolerance * scale


def test_memory_of_a_convolution_is_its_output():
    """No columns stay behind: what forward keeps alive is the output alone."""
    import tracemalloc

    x, w = ad.ones(8, 16, 32, 32, requires_grad=True), ad.ones(16, 16, 3, 3, requires_grad=True)
    ad.conv2d(x, w, padding=1)  # the native backend keeps its plan and work memory
    tracemalloc.start()
    y = ad.conv2d(x, w, padding=1)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < y.nbytes + 20_000
    assert peak < y.nbytes + 16 * 2**20  # a block of columns, not the 9 * x.nbytes of all


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 3, (3, 2)])
def test_max_pool2d_grid(kernel, ceil_mode):
    for stride, padding, dilation in itertools.product([None, 1, 2, 3], [0, 1], [1, 2]):
        x = rng.integers(0, 4, size=(2, 3, 9, 8)).astype(float)  # many ties
        args = (kernel, stride, padding, dilation, ceil_mode)
        compare(lambda a, o=args: F.max_pool2d(a, *o), lambda a, o=args: ad.max_pool2d(a, *o), x)
        try:
            _, expected = F.max_pool2d(torch.tensor(x), *args, True)
        except RuntimeError:
            continue
        _, found = ad.max_pool2d(ad.tensor(x), *args, return_indices=True)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_max_pool_of_nan_and_infinity():
    x = rng.normal(size=(2, 2, 8))
    x[0, 0, [1, 2, 3]] = np.nan
    x[1] = -np.inf
    t, a = torch.tensor(x, requires_grad=True), ad.tensor(x, requires_grad=True)
    for padding in (0, 1):
        (y, i), (v, j) = (
            F.max_pool1d(t, 3, 2, padding, return_indices=True),
            ad.max_pool1d(a, 3, 2, padding, return_indices=True),
        )
        np.testing.assert_array_equal(v.detach().numpy(), y.detach().numpy())
        np.testing.assert_array_equal(j.numpy(), i.numpy())
        y.sum().backward()
        v.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), t.grad.numpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_of_every_rank(rank):
    x = rng.normal(size=(2, 3, *(7, 6, 5)[:rank]))
    for kernel, stride, padding, ceil_mode in itertools.product(
        [2, 3], [None, 1, 3], [0, 1], [False, True]
    ):
        args = (kernel, stride, padding)
        compare(
            lambda a, o=args, c=ceil_mode: getattr(F, f"max_pool{rank}d")(a, *o, ceil_mode=c),
            lambda a, o=args, c=ceil_mode: getattr(pooling, f"max_pool{rank}d")(a, *o, ceil_mode=c),
            x,
        )
        for include in (False, True):
            more = (ceil_mode, include)
            compare(
                lambda a, o=args + more: getattr(F, f"avg_pool{rank}d")(a, *o),
                lambda a, o=args + more: getattr(averaging, f"avg_pool{rank}d")(a, *o),
                x,
            )
    if rank > 1:
        compare(
            lambda a: getattr(F, f"avg_pool{rank}d")(a, 2, divisor_override=3),
            lambda a: getattr(averaging, f"avg_pool{rank}d")(a, 2, divisor_override=3),
            x,
        )
    compare(
        lambda a: getattr(F, f"lp_pool{rank}d")(a.abs(), 3.0, 2),
        lambda a: getattr(averaging, f"lp_pool{rank}d")(a.abs(), 3.0, 2),
        x,
    )


@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
@pytest.mark.parametrize("power", [2, 2.0, 3.0])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lp_pools_have_no_gradient_at_zero(rank, power, compiled):
    def gradient(x):
        x = x.clone().requires_grad_()
        getattr(averaging, f"lp_pool{rank}d")(x, power, 2).sum().backward()
        return x.grad

    found = (ad.compile(gradient) if compiled else gradient)(ad.zeros(1, *[2] * rank))
    np.testing.assert_array_equal(found.numpy(), np.zeros((1, *[2] * rank)))


@pytest.mark.parametrize(
    ("power", "expected", "gradient"),
    [(float("inf"), [0.0, 4.0], [0.0, 0, 0, -1]), (-float("inf"), [0.0, 3.0], [0.0, 0, 1, 0])],
)
def test_lp_pools_of_an_infinite_exponent(power, expected, gradient):
    x = ad.tensor([[0.0, 0.0, 3.0, -4.0]], requires_grad=True)
    y = averaging.lp_pool1d(x, power, 2)
    y.sum().backward()
    assert y.tolist() == [expected]
    assert x.grad.tolist() == [gradient]


def test_lp_pools_of_a_window_of_zeros_beside_others():
    x = ad.tensor([[0.0, 0.0, 3.0, -4.0]], requires_grad=True)
    y = averaging.lp_pool1d(x, 2.0, 2)
    y.sum().backward()
    np.testing.assert_allclose(y.tolist(), [[0.0, 5.0]], rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), [[0.0, 0.0, 0.6, -0.8]], rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("out", [1, 2, 3, 5])
def test_adaptive_pools(rank, out):
    x = rng.normal(size=(2, 3, *(6, 7, 4)[:rank]))
    name = f"adaptive_avg_pool{rank}d"
    compare(lambda a: getattr(F, name)(a, out), lambda a: getattr(averaging, name)(a, out), x)
    name = f"adaptive_max_pool{rank}d"
    theirs = getattr(F, name)
    t, a = torch.tensor(x, requires_grad=True), ad.tensor(x, requires_grad=True)
    values, places = theirs(t, out, return_indices=True)
    found = getattr(averaging, name)(a, out, return_indices=True)
    np.testing.assert_array_equal(found[1].numpy(), places.numpy())
    assert_same(values, found[0], [t], [a])


def test_adaptive_sizes_may_be_none():
    x = rng.normal(size=(2, 3, 6, 7))
    for size in ((None, 2), (3, None), [5, 7]):
        compare(
            lambda a, s=size: F.adaptive_avg_pool2d(a, s),
            lambda a, s=size: averaging.adaptive_avg_pool2d(a, s),
            x,
        )


def test_max_unpool_restores_places():
    x = rng.normal(size=(2, 3, 6, 6))
    y, i = F.max_pool2d(torch.tensor(x), 2, return_indices=True)
    found = averaging.max_unpool2d(ad.tensor(y.numpy()), ad.tensor(i.numpy()), 2)
    np.testing.assert_array_equal(found.numpy(), F.max_unpool2d(y, i, 2).numpy())
    with pytest.raises(ad.InvalidArgument, match="invalid max index"):
        averaging.max_unpool2d(ad.ones(1, 1, 1), ad.full((1, 1, 1), 9), 2)


def test_unfold_and_fold_grid():
    for kernel, dilation, padding, stride in itertools.product([2, (3, 2)], [1, 2], [0, 1], [1, 2]):
        args = (kernel, dilation, padding, stride)
        x = rng.normal(size=(2, 3, 6, 5))
        compare(lambda a, o=args: F.unfold(a, *o), lambda a, o=args: unfolding.unfold(a, *o), x)
        columns = F.unfold(torch.tensor(x), *args).numpy()
        compare(
            lambda a, o=args: F.fold(a, (6, 5), *o),
            lambda a, o=args: unfolding.fold(a, (6, 5), *o),
            columns,
        )


def test_second_order():
    x = ad.tensor(rng.normal(size=(2, 2, 5, 4)), requires_grad=True)
    w = ad.tensor(rng.normal(size=(2, 2, 2, 2)), requires_grad=True)
    functions = [
        lambda a, b: ad.conv2d(a, b, stride=2, padding=1),
        lambda a, b: ad.conv_transpose2d(a, b, stride=2, output_padding=1),
        lambda a, b: ad.conv2d(ad.max_pool2d(a, 2, 1), b).tanh(),
        lambda a, b: averaging.avg_pool2d(a * a, 2, 1) * b.sum(),
    ]
    for function in functions:
        assert ad.autograd.gradgradcheck(function, (x, w))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ad.conv2d(ad.ones(1, 3, 4, 4), ad.ones(2, 2, 3, 3)), ad.ShapeError,
         r"weight of size \[2, 2, 3, 3\], expected input\[1, 3, 4, 4\] to have 2 channels"),
        (lambda: ad.conv2d(ad.ones(4, 4), ad.ones(2, 2, 3, 3)), ad.ShapeError, "Expected 3D"),
        (lambda: ad.conv2d(ad.ones(1, 2, 2, 2), ad.ones(2, 2, 3, 3)), ad.ShapeError,
         "Kernel size can't be greater than actual input size"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3).double()), ad.DTypeError,
         "should be the same"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), ad.ones(3)), ad.ShapeError,
         "expected bias to be 1-dimensional with 2 elements"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), stride=0), ad.InvalidArgument,
         "stride must be at least 1"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), stride=2, padding="same"),
         ad.InvalidArgument, "not supported for strided"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), padding="full"),
         ad.InvalidArgument, "Invalid padding string"),
        (lambda: ad.conv2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), stride=1.5), ad.InvalidType,
         "stride must be an int"),
        (lambda: ad.conv_transpose2d(ad.ones(1, 2, 4, 4), ad.ones(2, 2, 3, 3), output_padding=1),
         ad.InvalidArgument, "output padding must be smaller"),
        (lambda: ad.max_pool2d(ad.ones(1, 4, 4), 2, padding=2), ad.InvalidArgument, "pad should"),
        (lambda: ad.max_pool2d(ad.ones(1, 4, 4), 5), ad.ShapeError, "output size is too small"),
        (lambda: ad.max_pool2d(ad.ones(4, 4), 2), ad.ShapeError, "Expected 3D"),
        (lambda: averaging.avg_pool2d(ad.ones(1, 4, 4), (2, 2, 2)), ad.InvalidArgument,
         "list of 2 values"),
        (lambda: unfolding.fold(ad.ones(1, 4, 3), (2, 2), 2), ad.ShapeError, "sliding blocks"),
    ],
)  # fmt: skip
def test_errors_name_the_values(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_names_for_nn_functional():
    assert ad.max_pool2d is pooling.max_pool2d
    assert ad.avg_pool1d is averaging.avg_pool1d
