"""Numbers of composites and ops are arguments of their kernels: other numbers, the same kernels,
and bit for bit what kernels for those numbers alone give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
import adjoint.nn.functional as nf
from adjoint.backends.codegen import run as kernels_run
from adjoint.backends.native.lowering import kernel_execution
from adjoint.core import policy
from adjoint.core.symbolic_scalar import as_float32
from adjoint.ir import compute, executable
from adjoint.ops.elementwise.arithmetic import MUL
from adjoint.ops.nn import piecewise
from adjoint.runtime.dispatch import run_known
from adjoint.runtime.fused import fused
from tests.native import needs_native

pytestmark = needs_native

ROWS, WIDTH = 12, 40
_rng = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return ad.tensor(_rng.standard_normal(shape).astype(np.float32))


Y, CLASSES = normal(ROWS, WIDTH), ad.tensor(_rng.integers(0, WIDTH, ROWS))
WEIGHT, BIAS, CHANNELS = normal(WIDTH), normal(WIDTH), normal(4)

FUNCTIONS: dict[str, Callable[[Any, float], Any]] = {
    "softplus": lambda x, v: nf.softplus(x, v),
    "softplus threshold": lambda x, v: nf.softplus(x, 1.0, 30 * v),
    "elu": lambda x, v: nf.elu(x, v),
    "celu": lambda x, v: nf.celu(x, v + 0.1),
    "leaky_relu": lambda x, v: nf.leaky_relu(x, v),
    "threshold": lambda x, v: nf.threshold(x, v, -v),
    "hardtanh": lambda x, v: nf.hardtanh(x, -v - 0.1, v + 0.1),
    "hardshrink": lambda x, v: nf.hardshrink(x, v),
    "softshrink": lambda x, v: nf.softshrink(x, v),
    "layer_norm": lambda x, v: nf.layer_norm(x, (WIDTH,), WEIGHT.to(x.dtype), BIAS.to(x.dtype), v),
    "rms_norm": lambda x, v: nf.rms_norm(x, (WIDTH,), WEIGHT.to(x.dtype), v),
    "group_norm": lambda x, v: nf.group_norm(
        x.reshape(3, 4, WIDTH), 2, CHANNELS.to(x.dtype), CHANNELS.to(x.dtype), v
    ),
    "batch_norm": lambda x, v: nf.batch_norm(
        x, None, None, WEIGHT.to(x.dtype), BIAS.to(x.dtype), True, 0.1, v
    ),
    "dropout": lambda x, v: nf.dropout(x, min(v, 1.0)),
    "alpha_dropout": lambda x, v: nf.alpha_dropout(x, min(v, 1.0), True),
    "normalize": lambda x, v: nf.normalize(x, 2.0, 1, v),
    "normalize p": lambda x, v: nf.normalize(x, 1.0 + v, 1),
    "cosine_similarity": lambda x, v: nf.cosine_similarity(x, Y.to(x.dtype), 1, v),
    "huber_loss": lambda x, v: nf.huber_loss(x, Y.to(x.dtype), delta=v + 0.1),
    "smooth_l1_loss": lambda x, v: nf.smooth_l1_loss(x, Y.to(x.dtype), beta=v),
    "cross_entropy": lambda x, v: nf.cross_entropy(x, CLASSES, label_smoothing=min(v, 1.0)),
    "soft cross_entropy": lambda x, v: nf.cross_entropy(
        x, Y.to(x.dtype).softmax(1), label_smoothing=min(v, 1.0)
    ),
    "logit": lambda x, v: ad.logit(x.sigmoid(), v / 4),
    "nan_to_num": lambda x, v: ad.nan_to_num(x / x.relu(), v),
    "gumbel": lambda x, v: nf.softmax(x / (v + 0.5), -1),
    "polynomial": lambda x, v: (x * x + 1) ** v,
    "mul": lambda x, v: x * v,
}
NUMBERS = [0.3, 0.7, 1.0, 0.5, 2.0, 1e-30, 0.3, 0.3]


def of_one_dtype(*dtypes: Any) -> list[Any]:
    """Every function with every dtype; all but one dtype of each are left to the sweep."""
    return [
        pytest.param(name, dtype, id=f"{name}-{dtype.name}", marks=marks)
        for number, name in enumerate(FUNCTIONS)
        for other, dtype in enumerate(dtypes)
        for marks in [[pytest.mark.sweep] if (number - other) % len(dtypes) else []]
    ]


FEWEST = 30  # kernels would be at least as many, if each number had its own


@pytest.fixture(autouse=True)
def fresh() -> Any:
    """Nothing is known before, and nothing of this is kept."""
    executable.forget()
    yield
    executable.forget()


def bits(function: Callable[[Any, float], Any], number: float, dtype: Any) -> list[Any]:
    """The result and the gradient, as bytes; random numbers are drawn anew."""
    ad.manual_seed(3)
    x = ad.tensor(np.random.default_rng(1).standard_normal((ROWS, WIDTH))).to(dtype)
    x.requires_grad_()
    y = function(x, number)
    y.backward(y.detach() + 1)
    return [y.detach()._data.tobytes(), x.grad._data.tobytes()]


@pytest.mark.parametrize(("name", "dtype"), of_one_dtype(ad.float32, ad.float64, ad.bfloat16))
def test_bits_are_those_of_kernels_for_the_number_alone(
    name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = FUNCTIONS[name]
    found = [bits(function, number, dtype) for number in NUMBERS]
    monkeypatch.setattr(policy, "VARIANTS", 0)
    executable.forget()
    expected = [bits(function, number, dtype) for number in NUMBERS]
    for number, one, other in zip(NUMBERS, found, expected, strict=True):
        assert one == other, number


@pytest.mark.parametrize("dtype", [ad.float32, ad.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_numbers_are_no_other_kernels(name: str, dtype: Any) -> None:
    function = FUNCTIONS[name]
    kernels = dict.fromkeys(kernels_run._codes)
    for k in range(FEWEST):
        bits(function, (k + 1) / (FEWEST + 1), dtype)
    assert len(kernels_run._codes.keys() - kernels) < FEWEST // 2


def test_eight_hundred_numbers_are_a_few_kernels_and_no_more_memory() -> None:
    """p, alpha, eps and beta change with each call, as in a schedule."""
    names = ("dropout", "elu", "layer_norm", "softplus")
    for name in names:
        for number in (0.9, 0.8):
            bits(FUNCTIONS[name], number, ad.float32)
    kernels, known = len(kernels_run._codes), executable.counts()
    mappings = mapped()
    for k in range(200):
        for name in names:
            bits(FUNCTIONS[name], (k + 1) / 256, ad.float32)
    assert len(kernels_run._codes) == kernels
    assert mapped() <= mappings + 2
    assert sum(executable.counts().values()) <= sum(known.values()) + 20


def mapped() -> int:
    """How many mappings of memory the process has; 0 where nothing says it."""
    try:
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def test_numbers_that_decide_get_a_kernel_each() -> None:
    @fused
    def chosen(x: Any, number: float) -> Any:
        return x * number if number > 0.5 else x + number

    x = normal(ROWS, WIDTH)
    for number in (0.25, 0.75, 0.3, 0.8, 0.5, -1.0):
        expected = x * number if number > 0.5 else x + number
        assert chosen(x, number).equal(expected)
    (family,) = chosen.declared.families.values()  # type: ignore[attr-defined]
    assert len(family.made) == 2


def test_numbers_that_must_be_known_are() -> None:
    @fused
    def rooted(x: Any, number: float) -> Any:
        return x * math.sqrt(number)  # the symbol's own value is NaN

    @fused
    def repeated(x: Any, number: float) -> Any:
        for _ in range(int(number)):
            x = x + 1
        return x

    x = normal(ROWS, WIDTH)
    for number in (4.0, 9.0, 2.0, 4.0):
        assert rooted(x, number).equal(x * math.sqrt(number))
        expected = x
        for _ in range(int(number)):
            expected = expected + 1
        assert repeated(x, number).equal(expected)
    assert not any(f.made for f in rooted.declared.families.values())  # type: ignore[attr-defined]


def test_gradients_are_those_of_the_numbers_of_their_call() -> None:
    """Three calls, then three gradients: each with its own number, to second order too."""
    x = normal(ROWS, WIDTH).requires_grad_()
    for create_graph in (False, True):
        ys = [nf.layer_norm(x, (WIDTH,), eps=eps) for eps in (0.1, 1.0, 10.0)]
        for y, eps in zip(ys, (0.1, 1.0, 10.0), strict=True):
            (g,) = ad.autograd.grad((y * Y).sum(), x, create_graph=create_graph)
            executable.forget()
            again = nf.layer_norm(x, (WIDTH,), eps=eps)
            (expected,) = ad.autograd.grad((again * Y).sum(), x)
            ad.testing.assert_close(g.detach(), expected)


def test_a_number_beyond_float32_is_infinite() -> None:
    x = ad.ones(ROWS, WIDTH)
    for number in (1e300, -1e39, 3.5e38, 1e-60):
        for _ in range(3):
            expected = ad.full((ROWS, WIDTH), as_float32(number))
            assert (x * number).equal(expected)
            assert nf.leaky_relu(-x, number).equal(-expected)
    assert (x * 10**39).isinf().all()


def test_repeated_numbers_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that stay get a launcher; those that change leave nothing behind."""
    x = normal(ROWS, WIDTH)
    for number in (0.1, 0.2, 0.2, 0.2):
        nf.leaky_relu(x, number)
    counted = sum(executable.counts().values())
    for k in range(20):
        nf.leaky_relu(x, 0.3 + k / 64)
    assert sum(executable.counts().values()) == counted
    monkeypatch.setattr(compute, "accelerate", None)  # nothing is asked but what is known
    assert nf.leaky_relu(x, 0.2).equal(ad.where(x > 0, x, x * 0.2))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * n,
        lambda x, n: n - x,
        lambda x, n: x > n,
        lambda x, n: x.clamp(-n, n),
        lambda x, n: ad.where(x > 0, x, n),
    ],
    ids=["mul", "rsub", "gt", "clamp", "where"],
)
def test_whole_numbers_that_change_make_no_kernel_each(function, dtype):
    x = ad.tensor([1, 2, 3, 4]).to(getattr(ad, dtype))

    def check(n: int) -> None:
        found = function(x, n)
        assert found.tolist() == function(x.double(), float(n)).to(found.dtype).tolist()

    check(1), check(2), check(3)
    before = len(kernels_run._codes)
    for n in range(4, 30):
        check(n)
    assert len(kernels_run._codes) == before


def test_code_that_nothing_refers_to_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for one number each: only the last ones stay, and those that something still uses."""
    monkeypatch.setattr(policy, "VARIANTS", 0)
    monkeypatch.setattr(policy, "KERNELS", 16)
    x = normal(ROWS, WIDTH)
    kept = []
    for number in (0.25, 0.5):
        nf.leaky_relu(x, number)
        (plan,) = piecewise._leaky_relu.declared.plans.values()
        kept.append(plan.forward)
        executable.forget()
    expected = [[y.copy() for y in each([x._data])] for each in kept]
    for k in range(40):
        nf.leaky_relu(x, (k + 1) / 64)
    executable.forget()
    mappings = mapped()
    for k in range(80):
        number = -(k + 1) / 64
        assert nf.leaky_relu(x, number).equal(ad.where(x > 0, x, x * number))
        executable.forget()
    assert len(kernels_run._codes) <= 16
    assert mapped() <= mappings + 2 * 16
    for each, ys in zip(kept, expected, strict=True):
        for found, y in zip(each([x._data]), ys, strict=True):
            np.testing.assert_array_equal(found, y)


def test_a_whole_number_that_comes_again_is_launched():
    x = ad.ones(4)
    for _ in range(3):
        x * 2, x * 3
    assert run_known(MUL, (x, 2)).tolist() == [2.0] * 4
    assert run_known(MUL, (x, 3)).tolist() == [3.0] * 4
    assert run_known(MUL, (x, 4)).tolist() == [4.0] * 4


def test_programs_of_whole_numbers_are_forgotten() -> None:
    """A child that was forked must not run them by its parent's threads."""
    x = ad.tensor([1, 2, 3, 4])
    for n in range(2, 5):
        x * n
    assert any(
        each.pattern.box for family in kernel_execution._families.values() for each in family.made
    )
    executable.forget()
    assert not kernel_execution._families
    assert (x * 5).tolist() == [5, 10, 15, 20]
