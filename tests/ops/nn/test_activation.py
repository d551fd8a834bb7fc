"""Activation functions beside PyTorch's: values, gradients, dtypes, memory kept for backward."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.runtime.node import Node

torch = pytest.importorskip("torch")
F = torch.nn.functional

INF, NAN = float("inf"), float("nan")
VALUES = np.array([-100, -20.5, -6, -3, -2, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 2, 3, 6, 20.5, 1000])

# Name, arguments. The names are torch.nn.functional's and adjoint's.
CASES = [
    ("relu", {}), ("relu6", {}), ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}),
    ("elu", {}), ("elu", {"alpha": 2.5}), ("selu", {}), ("celu", {}), ("celu", {"alpha": 0.25}),
    ("celu", {"alpha": -2.0}), ("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {}),
    ("mish", {}), ("softplus", {}), ("softplus", {"beta": 3.0, "threshold": 2.0}),
    ("softplus", {"beta": 0.1, "threshold": 50.0}), ("softsign", {}), ("hardtanh", {}),
    ("hardtanh", {"min_val": -3.0, "max_val": 0.5}), ("hardsigmoid", {}), ("hardswish", {}),
    ("hardshrink", {}), ("hardshrink", {"lambd": 2.0}), ("softshrink", {}),
    ("softshrink", {"lambd": 2.0}), ("tanhshrink", {}),
    ("threshold", {"threshold": 0.5, "value": 9.0}),
    ("rrelu", {}), ("rrelu", {"lower": 0.1, "upper": 0.5}), ("logsigmoid", {}),
    ("softmax", {"dim": 0}), ("log_softmax", {"dim": 0}), ("softmin", {"dim": 0}),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(map(str, kwargs.values()))}" for name, kwargs in CASES]


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_values_and_gradients_beside_pytorch(name, kwargs, dtype):
    theirs = torch.tensor(VALUES, dtype=getattr(torch, dtype), requires_grad=True)
    ours = ad.tensor(VALUES, dtype=getattr(ad, dtype), requires_grad=True)
    weights = np.linspace(0.5, 2.0, VALUES.size)
    y, expected = getattr(ad, name)(ours, **kwargs), getattr(F, name)(theirs, **kwargs)
    (y * ad.tensor(weights, dtype=y.dtype)).sum().backward()
    (expected * torch.tensor(weights, dtype=expected.dtype)).sum().backward()
    assert y.dtype.name == dtype
    # PyTorch rounds constants such as 1/6 to float32, also where it computes in float64.
    tolerance = {"float64": 1e-7, "float32": 1e-5, "bfloat16": 1.6e-2, "float16": 4e-3}[dtype]
    for mine, other in ((y, expected), (ours.grad, theirs.grad)):
        np.testing.assert_allclose(
            mine.detach().double().numpy(),
            other.detach().double().numpy(),
            rtol=tolerance,
            atol=tolerance,
        )


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (2, 3), (2, 3, 4)])
def test_distributions_over_every_dimension(name, shape):
    x = np.linspace(-3, 3, int(np.prod(shape))).reshape(shape)
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        y = getattr(ad, name)(ad.tensor(x), dim)
        expected = getattr(F, name)(torch.tensor(x), dim)
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_distributions_of_extreme_rows(name):
    x = np.array(
        [[-INF, 0, 1], [-INF] * 3, [INF, 0, 1], [NAN, 0, 1], [1e4, -1e4, 0], [700, 710, 0]]
    )
    ours, theirs = ad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, expected = getattr(ad, name)(ours, 1), getattr(torch, name)(theirs, 1)
    weights = np.array([1.0, 2.0, 3.0])
    (y * ad.tensor(weights)).nansum().backward()
    (expected * torch.tensor(weights)).nansum().backward()
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


def test_log_softmax_does_not_underflow():
    y = ad.log_softmax(ad.tensor([0.0, 1e5]), 0)
    assert y.tolist() == [-1e5, 0.0]


def test_softmax_converts_first():
    x = ad.tensor([1, 2, 3])
    assert ad.softmax(x, 0, dtype=ad.float64).dtype is ad.float64
    low = ad.tensor([1.0, 2.0], dtype=ad.bfloat16, requires_grad=True)
    y = low.softmax(0, dtype=ad.float32)
    y[0].backward()
    assert y.dtype is ad.float32
    assert low.grad.dtype is ad.bfloat16


@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [((3,), (1,)), ((3,), ()), ((), (1,)), ((), ()), ((2, 3), (3,)), ((2, 3, 4), (3,)),
     ((2, 3, 4), (1,)), ((3,), (1,)), ((0, 3), (3,))],
)  # fmt: skip
def test_prelu_shapes(x_shape, w_shape):
    x = np.linspace(-2, 2, int(np.prod(x_shape))).reshape(x_shape)
    w = np.linspace(0.1, 0.5, int(np.prod(w_shape))).reshape(w_shape)
    ours = [ad.tensor(v, requires_grad=True) for v in (x, w)]
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, w)]
    y, expected = ad.prelu(*ours), torch.prelu(*theirs)
    y.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy())
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy())


@pytest.mark.parametrize("shape", [(4,), (2, 4), (4, 2, 3), (4, 0)])
def test_glu(shape):
    x = np.linspace(-2, 2, int(np.prod(shape))).reshape(shape)
    dims = [d for d in range(-len(shape), len(shape)) if shape[d] % 2 == 0]
    for dim in dims:
        ours, theirs = ad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, expected = ad.glu(ours, dim), F.glu(theirs, dim)
        (y * y).sum().backward()
        (expected * expected).sum().backward()
        np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy())
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy())


INPLACE = ["relu", "leaky_relu", "elu", "selu", "celu", "hardtanh", "threshold", "rrelu"]


@pytest.mark.parametrize("name", INPLACE)
def test_in_place_functions(name):
    arguments = (0.5, 9.0) if name == "threshold" else ()
    x = ad.tensor(VALUES, requires_grad=True)
    y = x * 1
    z = getattr(ad, f"{name}_")(y, *arguments)
    assert z is y
    z.sum().backward()
    expected = torch.tensor(VALUES, requires_grad=True)
    result = getattr(F, name)(expected * 1, *arguments)
    result.sum().backward()
    np.testing.assert_allclose(z.detach().numpy(), result.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), expected.grad.numpy())


def test_integers_where_pytorch_takes_them():
    x = ad.tensor([-2, 0, 3])
    assert ad.relu(x).tolist() == [0, 0, 3]
    assert ad.relu(x).dtype is ad.int64
    assert ad.relu6(ad.tensor([7, -1])).tolist() == [6, 0]
    assert ad.hardtanh(ad.tensor([1, 5]), -1.5, 2.5).tolist() == [1, 2]
    assert ad.threshold(ad.tensor([-2, 3]), 1, 7.5).tolist() == [7, 3]
    assert ad.softsign(x).dtype is ad.float32


def test_rrelu_in_training_draws_slopes_in_range():
    x = ad.tensor(np.full(2000, -1.0), requires_grad=True)
    y = ad.rrelu(x, 0.1, 0.4, training=True)
    slopes = -y.detach().numpy()
    assert 0.1 <= slopes.min() < 0.12 < 0.38 < slopes.max() <= 0.4
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slopes)
    assert ad.rrelu(ad.tensor([3.0]), training=True).tolist() == [3.0]


@pytest.mark.parametrize(
    ("name", "saved"),
    [("relu", 1), ("elu", 1), ("selu", 1), ("celu", 1), ("gelu", 1), ("silu", 1), ("mish", 1),
     ("softplus", 1), ("softmax", 1), ("log_softmax", 1)],
)  # fmt: skip
def test_one_tensor_is_kept_for_backward(name, saved):
    x = ad.tensor(VALUES, requires_grad=True)
    y = getattr(ad, name)(x, 0) if "softmax" in name else getattr(ad, name)(x)
    assert type(y._node) is Node
    assert y._node.parents == (x._node,)
    assert sum(value is not None for value in y._node.saved) == saved


def test_the_gradient_reads_the_output_only():
    x = ad.tensor(VALUES, requires_grad=True)
    h = x * 1
    y = h.relu()
    h.detach().zero_()  # would be an error if relu had saved its input
    y.sum().backward()
    assert x.grad.tolist() == (VALUES > 0).tolist()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ad.relu(3), TypeError, ("relu", "int", "tensor()")),
        (lambda: ad.relu(ad.tensor([True])), RuntimeError, ("relu", "bool")),
        (lambda: ad.gelu(ad.tensor([1])), RuntimeError, ("gelu", "int64", ".float()")),
        (lambda: ad.gelu(ad.ones(2), approximate="erf"), RuntimeError, ("gelu", "erf", "tanh")),
        (lambda: ad.hardtanh(ad.ones(2), 2.0, 1.0), ValueError, ("hardtanh", "2.0", "1.0")),
        (lambda: ad.softshrink(ad.ones(2), -1.0), RuntimeError, ("softshrink", "-1.0")),
        (lambda: ad.celu(ad.ones(2), 0.0), RuntimeError, ("celu", "alpha")),
        (lambda: ad.rrelu(ad.ones(2), 0.5, 0.1), RuntimeError, ("rrelu", "0.5", "0.1")),
        (lambda: ad.glu(ad.ones(3)), RuntimeError, ("glu", "even", "(3,)")),
        (lambda: ad.glu(ad.tensor(1.0)), RuntimeError, ("glu", "scalar")),
        (lambda: ad.softmax(ad.ones(2), 1), IndexError, ("softmax", "[-1, 0]", "1")),
        (lambda: ad.softmax(ad.tensor([1, 2]), 0), RuntimeError, ("softmax", "int64")),
        (lambda: ad.prelu(ad.ones(2, 3), ad.ones(2)), RuntimeError, ("prelu", "2", "3")),
        (lambda: ad.prelu(ad.ones(2, 3), ad.ones(3, 1)), RuntimeError, ("prelu", "(3, 1)")),
        (lambda: ad.prelu(ad.ones(2), ad.ones(1).double()), RuntimeError, ("prelu", "float64")),
    ],
)  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, ad.AdjointError)
    for word in words:
        assert word in str(caught.value)
