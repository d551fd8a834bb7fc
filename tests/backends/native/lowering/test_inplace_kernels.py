"""In-place methods as kernels that write over their tensor: values, aliases, versions, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.autograd import overwriting
from adjoint.backends.codegen import run as compiler_run
from adjoint.backends.native.runtime import pool
from adjoint.core import policy
from adjoint.core.errors import AutogradError, DTypeError, ShapeError
from adjoint.ir import compute
from adjoint.runtime import writes
from tests.native import needs_native
from tests.sweep import one_in

pytestmark = needs_native


class Launches:
    """Counts the kernels that write inside."""

    def __enter__(self) -> Launches:
        self.before = writes.launches[0]
        return self

    def __exit__(self, *exception: object) -> None:
        self.count = writes.launches[0] - self.before


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a function without kernels."""

    def run(function: Callable[[], Any]) -> Any:
        compute.forget()
        with monkeypatch.context() as patch:
            patch.setattr(compute, "accelerate", None)
            found = function()
        compute.forget()
        return found

    return run


def values(shape: tuple[int, ...], dtype: Any = ad.float32, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal(shape) * 4
    return ad.tensor(x.astype(np.float32)).to(dtype)


def showing(array: np.ndarray) -> Any:
    """A tensor of this memory, however it lies there."""
    x = ad.zeros(1)
    x._data = array
    return x


def bits(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x.detach()._data).reshape(-1).view(np.uint8)


# Exact in NumPy as in kernels; y and z are tensors of x's shape and dtype.
EXACT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add_": lambda x, y, z: x.add_(y),
    "add_-number": lambda x, y, z: x.add_(3),
    "sub_": lambda x, y, z: x.sub_(y),
    "mul_": lambda x, y, z: x.mul_(y),
    "neg_": lambda x, y, z: x.neg_(),
    "abs_": lambda x, y, z: x.abs_(),
    "clamp_": lambda x, y, z: x.clamp_(-1, 2),
    "clamp_-tensors": lambda x, y, z: x.clamp_(y, z),
    "copy_": lambda x, y, z: x.copy_(y),
    "relu_": lambda x, y, z: x.relu_(),
    "sign_": lambda x, y, z: x.sign_(),
}
FLOATING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add_-alpha": lambda x, y, z: x.add_(y, alpha=0.3),
    "div_": lambda x, y, z: x.div_(y),
    "mul_-number": lambda x, y, z: x.mul_(0.3),
    "fill_": lambda x, y, z: x.fill_(2.5),
    "addcmul_": lambda x, y, z: x.addcmul_(y, z, value=0.3),
    "addcdiv_": lambda x, y, z: x.addcdiv_(y, z, value=-0.3),
    "lerp_": lambda x, y, z: x.lerp_(y, 0.3),
    "lerp_-far": lambda x, y, z: x.lerp_(y, 0.7),
    "lerp_-tensor": lambda x, y, z: x.lerp_(y, z),
    "sqrt_": lambda x, y, z: x.abs().sqrt_(),
    "reciprocal_": lambda x, y, z: x.reciprocal_(),
    "floor_": lambda x, y, z: x.floor_(),
    "round_": lambda x, y, z: x.round_(),
}
CLOSE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "exp_": lambda x, y, z: x.exp_(),
    "tanh_": lambda x, y, z: x.tanh_(),
    "sigmoid_": lambda x, y, z: x.sigmoid_(),
    "erf_": lambda x, y, z: x.erf_(),
    "sin_": lambda x, y, z: x.sin_(),
    "log1p_": lambda x, y, z: x.abs().log1p_(),
    "atan2_": lambda x, y, z: x.atan2_(y),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "part": lambda x: x.repeat_interleave(2, 0).repeat_interleave(3, 1)[::2, ::3],
    "column": lambda x: x.repeat(1, 3)[:, 5 : 5 + x.shape[1]],
    "backwards": lambda x: showing(x.numpy()[::-1, ::-1].copy()[::-1, ::-1]),
}


FLOATS, INTS = (ad.float32, ad.float64), (ad.int32, ad.int8)
EXACTLY = [(name, dtype) for name in EXACT for dtype in (*FLOATS, *INTS)]
EXACTLY += [(name, dtype) for name in FLOATING for dtype in FLOATS]


@pytest.mark.parametrize(
    ("name", "dtype", "layout"),
    one_in(3, ((*case, layout) for case in EXACTLY for layout in LAYOUTS)),
    ids=lambda x: getattr(x, "name", x),
)
def test_the_bits_of_numpy(name: str, dtype: Any, layout: str, by_numpy: Any) -> None:
    function = EXACT.get(name) or FLOATING[name]

    def run() -> Any:
        x, y, z = (values((33, 17), dtype, seed) for seed in range(3))
        x = LAYOUTS[layout](x)
        before = x._changes.count if x._changes is not None else 0
        result = function(x, y, z)
        if name != "sqrt_":
            assert result is x and x._changes.count == before + 1
        return result

    with Launches() as launched:
        found = run()
    assert launched.count == 1
    np.testing.assert_array_equal(bits(found), bits(by_numpy(run)))
    assert launched.count == 1


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", [*FLOATING, *CLOSE])
def test_values_of_numpy(name: str, dtype: Any, by_numpy: Any) -> None:
    function = FLOATING.get(name) or CLOSE[name]

    def run() -> Any:
        inputs = [values((9, 40), dtype, seed) for seed in range(3)]
        return function(*inputs).double().numpy()

    with Launches() as launched:
        found = run()
    assert launched.count == 1
    tolerance = {ad.float32: 1e-6, ad.float64: 1e-14, ad.bfloat16: 1e-2}[dtype]
    np.testing.assert_allclose(found, by_numpy(run), rtol=tolerance, atol=tolerance)


SQUARE = 24
ALIASES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x.add_(x),
    "itself thrice": lambda x: x.addcmul_(x, x, value=0.25),
    "transposed": lambda x: x.mul_(x.t()),
    "shifted down": lambda x: x[1:].add_(x[:-1]),
    "shifted up": lambda x: x[:-1].sub_(x[1:]),
    "reversed": lambda x: x.add_(showing(x.numpy()[::-1])),
    "a row of it": lambda x: x.mul_(x[3]),
    "a column of it": lambda x: x.add_(x[:, 2:3]),
    "an element of it": lambda x: x.div_(x[2, 2]),
    "steps": lambda x: x[::2].add_(x[1::2]),
    "halves": lambda x: x[: SQUARE // 2].copy_(x[SQUARE // 4 : SQUARE * 3 // 4]),
    "copied onto itself transposed": lambda x: x.copy_(x.t()),
    "three views": lambda x: x[1:].addcmul_(x[:-1], x[1:], value=2.0),
}


OF_FLOATS = ("an element of it", "itself thrice", "three views")
READ = [(name, ad.float32) for name in ALIASES]
READ += [(name, ad.int64) for name in ALIASES if name not in OF_FLOATS]


@pytest.mark.parametrize(("name", "dtype"), READ, ids=lambda x: getattr(x, "name", x))
def test_what_is_read_is_what_was_there_before(name: str, dtype: Any, by_numpy: Any) -> None:
    def run() -> Any:
        x = values((SQUARE, SQUARE), dtype) + 1
        ALIASES[name](x)
        return x

    with Launches() as launched:
        found = run()
    assert launched.count == name.startswith("itself")  # elsewhere it is copied first
    np.testing.assert_array_equal(bits(found), bits(by_numpy(run)))


def test_large_overlapping_views_over_several_threads(by_numpy: Any) -> None:
    def run() -> Any:
        x = values((300, 700))
        x[1:].add_(x[:-1]).mul_(0.5)
        x.reshape(-1)[7:].sub_(x.reshape(-1)[:-7])
        return x

    assert pool.default_pool().num_threads >= 1
    np.testing.assert_array_equal(bits(run()), bits(by_numpy(run)))


def test_elements_that_share_memory_are_left_to_numpy(by_numpy: Any) -> None:
    def run() -> Any:
        x = ad.arange(20.0)
        x.as_strided((6, 4), (2, 1)).mul_(3.0)
        return x

    with Launches() as launched:
        found = run()
    assert launched.count == 0
    np.testing.assert_array_equal(bits(found), bits(by_numpy(run)))


@pytest.mark.parametrize("shape", [(5,), (1,), (), (1, 5), (4, 1), (1, 1)])
def test_broadcasting(shape: tuple[int, ...], by_numpy: Any) -> None:
    def run() -> Any:
        x, y = values((4, 5)), values(shape, seed=1)
        return x.add_(y).mul_(y).addcmul_(y, x, value=2.0)

    with Launches() as launched:
        found = run()
    assert launched.count == 3
    np.testing.assert_array_equal(bits(found), bits(by_numpy(run)))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (1, 1, 1), (3, 0, 2), (2, 3, 4, 5, 6)])
def test_any_shape(shape: tuple[int, ...], by_numpy: Any) -> None:
    def run() -> Any:
        return values(shape).add_(values(shape, seed=1), alpha=0.5).lerp_(values(shape), 0.1)

    np.testing.assert_array_equal(bits(run()), bits(by_numpy(run)))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda x: x.add_(values((3, 4, 5))), ShapeError),
        (lambda x: x.add_(values((6,))), ShapeError),
        (lambda x: x.copy_(values((6,))), ShapeError),
        (lambda x: x.add_(values((2, 4, 5))), ShapeError),
        (lambda x: x.int().add_(values((4, 5))), (DTypeError, RuntimeError)),
        (lambda x: x.int().div_(2), (DTypeError, RuntimeError)),
        (lambda x: x.lerp_(values((4, 5), ad.float64), 0.5), DTypeError),
        (lambda x: x[:1].expand(4, 5).add_(1.0), AutogradError),
        (lambda x: x.add_("text"), TypeError),
        (lambda x: x.no_such_method_(), AttributeError),
    ],
)
def test_errors_leave_the_tensor_as_it_was(change: Any, error: Any, by_numpy: Any) -> None:
    x = values((4, 5))
    before = x.clone()
    with pytest.raises(error) as found:
        change(x)
    assert x.equal(before) and (x._changes is None or x._changes.count == 0)
    with pytest.raises(error) as expected:
        by_numpy(lambda: change(x))
    assert str(found.value) == str(expected.value)


def test_read_only_memory_is_refused() -> None:
    x = ad.ones(4)
    x._data.flags.writeable = False
    for change in (lambda: x.add_(1.0), lambda: x.exp_(), lambda: x.copy_(ad.zeros(4))):
        with pytest.raises((AutogradError, ValueError), match="read-only"):
            change()
    assert x.tolist() == [1] * 4


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(values((4, 5), ad.float64)),
        lambda x: x.add_(values((), ad.float64)),
        lambda x: x.mul_(values((4, 5), ad.int32)),
        lambda x: x.copy_(values((4, 5), ad.float64)),
        lambda x: x.copy_(values((4, 5), ad.int16)),
        lambda x: x.copy_(values((4, 5), ad.bfloat16)),
        lambda x: x.int().copy_(values((4, 5))),
        lambda x: x.int().add_(values((4, 5), ad.int8)),
        lambda x: x.bfloat16().add_(values((4, 5))),
        lambda x: x.half().mul_(values((4, 5), ad.float16)).mul_(0.1),
        lambda x: (x > 0).logical_and_(values((4, 5), seed=3) > 0),
        lambda x: x.int().bitwise_and_(7),
        lambda x: x.eq_(x.round()),
        lambda x: x.cfloat().mul_(2j),
    ],
)
def test_dtype_rules(change: Any, by_numpy: Any) -> None:
    def run() -> Any:
        return change(values((4, 5)))

    found, expected = run(), by_numpy(run)
    assert found.dtype is expected.dtype
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_other_numbers_need_no_other_code() -> None:
    x, y = values((40,)), values((40,), seed=1)
    expected = x.numpy().copy()
    for n in range(50):
        alpha = 0.01 * (n + 3)
        x.add_(y, alpha=alpha).mul_(alpha)
        expected = (expected + y.numpy() * np.float32(alpha)) * np.float32(alpha)
        if n == 0:
            codes = len(compiler_run._codes)
    np.testing.assert_array_equal(x.numpy(), expected)
    assert len(compiler_run._codes) == codes
    x.add_(y, alpha=1.0)  # which is another formula
    np.testing.assert_array_equal(x.numpy(), expected + y.numpy())


def test_zeros_have_signs() -> None:
    x = ad.ones(3)
    for zero in (0.0, -0.0):
        x.fill_(zero)
        assert np.signbit(x.numpy()).tolist() == [bool(np.signbit(zero))] * 3
        y = ad.ones(3).mul_(zero)
        assert np.signbit(y.numpy()).tolist() == [bool(np.signbit(zero))] * 3


# ---- what else sees a write ----------------------------------------------------------------------


def test_a_saved_tensor_that_was_changed_is_noticed() -> None:
    w = ad.ones(4, requires_grad=True)
    x = values((4,))
    y = (w * x).sum()
    with Launches() as launched:
        x.exp_()
    assert launched.count == 1
    with pytest.raises(AutogradError, match="last changed by 'exp_'"):
        y.backward()


def test_gradients_flow_through_writes_as_before() -> None:
    with Launches() as launched:
        w = ad.ones(4, requires_grad=True)
        x = w * 3
        x.mul_(2.0)
        x[1:].add_(w[1:])
        with pytest.raises(AutogradError, match="leaf Variable"):
            w.add_(1.0)
    x.sum().backward()
    assert w.grad.tolist() == [6, 7, 7, 7]
    assert launched.count == 0
    with ad.no_grad(), Launches() as launched:
        w.add_(1.0)
        w[1:].mul_(2.0)
    assert w.tolist() == [2, 4, 4, 4] and launched.count == 2


def test_a_tensor_that_wants_a_gradient_is_written_with_history() -> None:
    x, w = ad.ones(4), ad.ones(4, requires_grad=True)
    with Launches() as launched:
        x.add_(w, alpha=2.0)
    assert launched.count == 0
    x.sum().backward()
    assert w.grad.tolist() == [2] * 4


def test_views_lazy_values_and_graphs_see_the_write() -> None:
    x = values((6, 4))
    view = x.t()[1:]
    with ad.lazy():
        before = x * 1.0
    graph = ad.Graph()
    with graph:
        after = x * 2
    old = x.numpy().copy()
    assert after[0, 0].item() == 2 * old[0, 0]
    with Launches() as launched:
        x.add_(1.0).tanh_()
    assert launched.count == 2
    new = x.numpy()
    assert not np.array_equal(old, new)
    np.testing.assert_array_equal(before.numpy(), old)
    np.testing.assert_array_equal(after.numpy(), 2 * new)
    np.testing.assert_array_equal(view.numpy(), new.T[1:])


def test_inference_tensors_are_protected() -> None:
    with ad.inference_mode():
        x = ad.ones(3)
        x.add_(1.0)
    with pytest.raises(AutogradError, match="inference"):
        x.mul_(2.0)
    assert x.tolist() == [2] * 3


def test_recorded_tensors_are_recorded() -> None:
    with Launches() as launched, ad.lazy():
        x = ad.ones(3) * 2
        x.mul_(3.0)
    assert x.tolist() == [6] * 3 and launched.count == 0


def test_threads_do_not_change_the_bits() -> None:
    shared = pool.default_pool()
    before = shared.num_threads
    found = []
    try:
        for threads in (1, 2, 3, 4):
            shared.set_num_threads(threads)
            x = values((401, 503))
            x.addcdiv_(values((401, 503), seed=1), values((503,), seed=2), value=0.1).tanh_()
            found.append(bits(x))
    finally:
        shared.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_other_numbers_are_the_same_kernel() -> None:
    from adjoint.backends.codegen import run

    x = values((33, 5))
    for numbers in ((0.5, 3), (-2.5, 4), (7, 1 << 40), (0, 0)):
        made = len(run._codes)
        x.mul_(numbers[0]).add_(numbers[1]).fill_(numbers[0]).clamp_(-1, numbers[1])
        if numbers[0] != 0.5:
            assert len(run._codes) == made, numbers
    n, made = ad.arange(7), len(run._codes)
    for number in range(100):
        n.add_(number)
    assert n.tolist() == [4950 + i for i in range(7)]
    assert len(run._codes) <= made + policy.VARIANTS


def test_what_has_no_kernel_is_asked_once(monkeypatch: Any) -> None:
    captures: list[Any] = []
    original = overwriting._InPlaceWriter

    def noted(*args: Any) -> Any:
        captures.append(args[0])
        return original(*args)

    monkeypatch.setattr(overwriting, "_InPlaceWriter", noted)
    x = ad.rand(7, 3)
    x.cumsum_(0)
    asked = len(captures)
    x.cumsum_(0)
    x.cumsum_(0)
    assert asked == len(captures) > 0
