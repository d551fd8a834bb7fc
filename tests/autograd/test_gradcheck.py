"""gradcheck accepts right gradients and, above all, rejects wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import GradcheckError, gradcheck, gradgradcheck
from adjoint.core.op import Op
from adjoint.runtime.dispatch import apply


class Cube(Op, abstract=True):
    """x^3 with a derivative, and derivative of the derivative, that tests can spoil."""

    needs = "x"

    def __init__(self, factor=3.0, undefined=False, offset=0.0):
        self.factor, self.undefined, self.offset = factor, undefined, offset

    def infer(self, spec):
        return spec

    def compute(self, xp, x):
        return x**3

    def gradient(self, g, x):
        if self.undefined:
            return (None,)
        found = g * x * x * self.factor
        return (found + self.offset if self.offset else found,)


class TwoOutputs(Op, abstract=True):
    """(2x, x^2); the second gradient is wrong where `wrong`."""

    needs = "x"
    n_outputs = 2

    def __init__(self, wrong=False):
        self.wrong = wrong

    def infer(self, spec):
        return (spec, spec)

    def compute(self, xp, x):
        return (2 * x, x * x)

    def gradient(self, g, x):
        total = None if g[0] is None else g[0] * 2
        if g[1] is not None:
            second = g[1] * x * (2.5 if self.wrong else 2)
            total = second if total is None else total + second
        return (total,)


def leaf(*values, dtype=ad.float64):
    return ad.tensor(np.array(values), dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("fast_mode", [None, False, True])
def test_right_gradients_pass(fast_mode):
    x = leaf(0.5, 2.0, -1.0)
    assert gradcheck(lambda x: apply(Cube(), x), x, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: apply(Cube(), x), (x,), fast_mode=fast_mode)
    assert gradcheck(lambda x: apply(TwoOutputs(), x), (x,), fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [None, False, True])
@pytest.mark.parametrize(
    "op", [Cube(factor=3.1), Cube(factor=-3.0), Cube(undefined=True), TwoOutputs(wrong=True)]
)
def test_wrong_gradients_are_rejected(op, fast_mode):
    x = leaf(0.5, 2.0, -1.0)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output"):
        gradcheck(lambda x: apply(op, x), (x,), fast_mode=fast_mode)
    assert not gradcheck(lambda x: apply(op, x), (x,), fast_mode=fast_mode, raise_exception=False)


def test_message_names_output_input_index_and_values():
    def function(n, a, x):
        return a * 1.0, apply(Cube(factor=4.0), x)

    with pytest.raises(GradcheckError) as error:
        gradcheck(function, (3, leaf(1.0), leaf(0.1, 2.0)))
    text = str(error.value)
    assert "output 1 with respect to input 2" in text
    assert "output index (1,) and input index (1,)" in text
    assert "numerical 12.0" in text.replace("np.float64(", "").replace("11.99999", "12.0")
    assert "analytical" in text and "16.0" in text


def test_only_the_second_derivative_is_wrong():
    class Square(Op, abstract=True):
        needs = "x"

        def infer(self, spec):
            return spec

        def compute(self, xp, x):
            return x * x

        def gradient(self, g, x):
            return (g * x.detach() * 2,)

    def square(x):
        return apply(Square(), x)

    x = leaf(0.5, 2.0)
    assert gradcheck(square, x)
    for fast_mode in (False, True):
        with pytest.raises(GradcheckError, match="Jacobian mismatch"):
            gradgradcheck(square, x, fast_mode=fast_mode)


def test_gradient_that_ignores_its_cotangent_is_rejected():
    with pytest.raises(GradcheckError, match=r"not multiplied by grad_output|Jacobian mismatch"):
        gradcheck(lambda x: apply(Cube(offset=1e-3), x), leaf(1.0), atol=1e-2)


def test_large_jacobians_use_a_projection_and_still_reject():
    x = ad.tensor(np.random.default_rng(0).standard_normal(300), requires_grad=True)
    assert gradcheck(lambda x: apply(Cube(), x), x)
    with pytest.raises(GradcheckError, match="random direction"):
        gradcheck(lambda x: apply(Cube(factor=3.5), x), x)


def test_other_inputs_are_handed_through():
    index = ad.tensor([1, 0])
    fixed = ad.tensor([2.0], dtype=ad.float64)

    def function(x, index, number, fixed):
        assert index.dtype is ad.int64 and number == 3
        return x * number * fixed

    assert gradcheck(function, (leaf(1.0, 2.0), index, 3, fixed))


def test_inputs_are_left_as_they_were():
    x = leaf(0.1, 0.7)
    before = x.detach().numpy().copy()
    gradcheck(lambda x: x * x, x)
    np.testing.assert_array_equal(x.detach().numpy(), before)
    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: 1 / 0, x)
    np.testing.assert_array_equal(x.detach().numpy(), before)
    assert x.grad is None


def test_output_that_hides_its_dependence_is_rejected():
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: (x * 2, (x * x).detach()), leaf(1.0))


def test_nondeterministic_backward_is_rejected():
    calls = []

    class Drifting(Op, abstract=True):
        needs = ""

        def infer(self, spec):
            return spec

        def compute(self, xp, x):
            return x * 2

        def gradient(self, g):
            calls.append(1)
            return (g * (2 + 1e-9 * len(calls)),)

    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(lambda x: apply(Drifting(), x), leaf(1.0))
    assert gradcheck(lambda x: apply(Drifting(), x), leaf(1.0), nondet_tol=1e-6)


def test_bad_input():
    with pytest.raises(RuntimeError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, (ad.tensor([1.0]),))
    with pytest.raises(TypeError, match="output 0 is a float"):
        gradcheck(lambda x: 1.0, leaf(1.0))
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double"):
        gradcheck(lambda x: x * 2, leaf(1.0, dtype=ad.float32), atol=1e-1, rtol=1e-1, eps=1e-3)
    expanded = ad.from_numpy(np.broadcast_to(np.ones(1), (3,))).requires_grad_()
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda x: x * 2, expanded)
    for options in (
        {"check_backward_ad": False},
        {"check_batched_forward_grad": True},
        {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": True},
    ):
        with pytest.raises(AssertionError, match="to be True"):
            gradcheck(lambda x: x * 2, leaf(1.0), **options)
    with pytest.raises(AssertionError, match="check_rev_over_rev"):
        gradgradcheck(lambda x: x * 2, leaf(1.0), check_rev_over_rev=False)


FORWARD = {"check_forward_ad": True, "check_batched_forward_grad": True}


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.sin() * y,
        lambda x, y: (x * y, (x @ y).exp()),
        lambda x, y: (x > 0, x * 2),
        lambda x, y: x.clone().mul_(y).add_(1),
        lambda x, y: ad.zeros(2, dtype=ad.float64).copy_(x * y),
        lambda x, y: ad.complex(x, y).abs(),
        lambda x, y: x.softmax(0).cumsum(0),
    ],
)
def test_forward_mode(function, fast_mode):
    x, y = leaf(0.5, 2.0), leaf(1.5, -0.5)
    assert gradcheck(function, (x, y), fast_mode=fast_mode, check_forward_ad=True)
    assert gradcheck(
        function, (x, y), fast_mode=fast_mode, check_forward_ad=True, check_backward_ad=False
    )
    assert gradgradcheck(function, (x, y), fast_mode=fast_mode, check_fwd_over_rev=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_forward_mode_of_complex_numbers_and_batches(fast_mode):
    z = leaf(0.5 + 1j, -2.0 + 0.25j, dtype=ad.complex128)
    x = leaf(0.5, 2.0)
    for function in (lambda z, x: z * x, lambda z, x: (z * z.conj()).real, lambda z, x: z.exp()):
        assert gradcheck(function, (z, x), fast_mode=fast_mode, **FORWARD)
    assert gradcheck(lambda x: x.sin() * x, leaf(0.5, 2.0), check_batched_grad=True, **FORWARD)


def pushing(jvp, materialize=True):
    class Doubled(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(materialize)
            return x * 2 + y

        @staticmethod
        def backward(ctx, g):
            return g * 2, g

        @staticmethod
        def jvp(ctx, t, s):
            return jvp(t, s)

    return Doubled.apply


@pytest.mark.parametrize("fast_mode", [False, True])
def test_wrong_tangents_are_rejected(fast_mode):
    x, y = leaf(0.5, 2.0), leaf(1.5, -0.5)
    right = pushing(lambda t, s: t * 2 + s)
    assert gradcheck(right, (x, y), check_forward_ad=True, fast_mode=fast_mode)
    for wrong in (lambda t, s: t * 3 + s, lambda t, s: t * 2, lambda t, s: t * 2 + s + 1):
        with pytest.raises(GradcheckError, match="forward mode mismatch"):
            gradcheck(pushing(wrong), (x, y), check_forward_ad=True, fast_mode=fast_mode)
        assert not gradcheck(
            pushing(wrong), (x, y), check_forward_ad=True, check_backward_ad=False,
            raise_exception=False, fast_mode=fast_mode,
        )  # fmt: skip
        assert gradcheck(pushing(wrong), (x, y), fast_mode=fast_mode)


def test_a_tangent_that_is_not_there_must_count_as_zero():
    def careless(t, s):
        return (0 if t is None else t * 2) + (s if s is not None else 1.0 if t is None else t)

    x, y = leaf(0.5, 2.0), leaf(1.5, -0.5)
    wrong = pushing(careless, materialize=False)
    with pytest.raises(GradcheckError, match=r"forward mode|undefined tangent"):
        gradcheck(wrong, (x, y), check_forward_ad=True)

    def odd(t, s):  # right where one of them moves, and where both do
        if s is None:
            return t * 2
        return s if t is None else t * 2 + s + (not t.any()) + (not s.any())

    with pytest.raises(GradcheckError, match="undefined tangent"):
        gradcheck(pushing(odd, materialize=False), (x, y), check_forward_ad=True)


def test_second_derivatives_by_tangents_of_gradients():
    class Cubed(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return Slope.apply(g, x)

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return t * 3 * x**2

    class Slope(ad.autograd.Function):
        factor = 6.0

        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            ctx.save_for_forward(g, x)
            return g * 3 * x**2

        @staticmethod
        def backward(ctx, v):
            g, x = ctx.saved_tensors
            return v * 3 * x**2, v * g * 6 * x

        @staticmethod
        def jvp(ctx, v, t):
            g, x = ctx.saved_tensors
            return v * 3 * x**2 + Slope.factor * g * x * t

    assert gradgradcheck(Cubed.apply, leaf(0.5, 2.0), check_fwd_over_rev=True)
    Slope.factor = 5.0
    assert gradgradcheck(Cubed.apply, leaf(0.5, 2.0))
    with pytest.raises(GradcheckError, match="forward mode mismatch"):
        gradgradcheck(Cubed.apply, leaf(0.5, 2.0), check_fwd_over_rev=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_complex_inputs_and_outputs(fast_mode):
    z = leaf(0.5 + 1j, -2.0 + 0.25j, dtype=ad.complex128)
    x = leaf(0.5, 2.0)
    assert gradcheck(lambda z: z * z, z, fast_mode=fast_mode)
    assert gradcheck(lambda x, z: x * z, (x, z), fast_mode=fast_mode)
    assert gradgradcheck(lambda x, z: x * z * z, (x, z), fast_mode=fast_mode)


def test_complex_gradient_without_conjugate_is_rejected():
    with pytest.raises(GradcheckError, match=r"\((real|imaginary) part\)"):
        gradcheck(lambda z: apply(Cube(), z), leaf(0.5 + 1j, dtype=ad.complex128))


def test_empty_and_zero_dimensional():
    assert gradcheck(lambda x: x * x, ad.tensor(np.zeros((0, 3)), requires_grad=True))
    assert gradcheck(lambda x: x * x, ad.tensor(np.array(2.0), requires_grad=True))
    x = ad.from_numpy(np.arange(6.0).reshape(2, 3).T).requires_grad_()
    assert gradcheck(lambda x: x * x, x)
