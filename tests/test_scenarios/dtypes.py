"""Gradients across dtypes: promotion, conversion, integers and bools, half precision, complex."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario


@scenario
def float32_meets_float64(t):
    a, b = leaf(t, [1.0, 2.0], "float32"), leaf(t, [3.0, 4.0], "float64")
    y = a * b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def float32_with_python_numbers(t):
    a = leaf(t, [1.0, 2.0], "float32")
    y = a * 2.5 + 1 - 3 + True
    y.sum().backward()
    return y, a.grad


@scenario
def zero_dim_float64_does_not_promote(t):
    a, b = leaf(t, [1.0, 2.0], "float32"), leaf(t, 3.0, "float64")
    y = a * b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def integers_and_floats(t):
    a, i = leaf(t, [1.0, 2.0]), const(t, [3, 4], "int64")
    y = a * i + i / a
    y.sum().backward()
    return y, a.grad, i.grad, i.requires_grad


@scenario
def bool_mask_as_a_factor(t):
    a, m = leaf(t, [1.0, 2.0, 3.0]), const(t, [True, False, True], "bool")
    (a * m).sum().backward()
    return a.grad


@scenario
def conversion_is_differentiable(t):
    a = leaf(t, [1.5, 2.5], "float32")
    y = a.double().exp()
    y.sum().backward()
    return y, a.grad


@scenario
def conversion_there_and_back(t):
    a = leaf(t, [1.5, 2.5], "float64")
    y = a.float().to(t.float64).pow(2)
    y.sum().backward()
    return y, a.grad


@scenario
def conversion_to_integers_ends_the_gradient(t):
    a = leaf(t, [1.5, 2.5])
    y = a.long()
    return y, y.requires_grad, a.to(t.bool).requires_grad


@scenario
def to_the_same_dtype_is_the_same_tensor(t):
    a = leaf(t, [1.5])
    return a.to(t.float64) is a, a.double() is a, a.to(t.float32) is a


@scenario
def bfloat16_gradients(t):
    a, b = leaf(t, [1.0, 2.0], "bfloat16"), leaf(t, [3.0, 0.5], "bfloat16")
    y = (a * b).exp().sum()
    y.backward()
    return y, a.grad, b.grad


@scenario
def float16_gradients(t):
    a = leaf(t, [1.0, 2.0, -0.5], "float16")
    y = (a.tanh() * a).sum()
    y.backward()
    return y, a.grad


@scenario
def bfloat16_meets_float32(t):
    a, b = leaf(t, [1.0, 2.0], "bfloat16"), leaf(t, [3.0, 4.0], "float32")
    y = a * b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def float16_meets_bfloat16(t):
    a, b = leaf(t, [1.0, 2.0], "float16"), leaf(t, [3.0, 4.0], "bfloat16")
    y = a + b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def bfloat16_matmul(t):
    a, b = (
        leaf(t, [[1.0, 2.0], [3.0, 4.0]], "bfloat16"),
        leaf(t, [[0.5, 1.0], [2.0, -1.0]], "bfloat16"),
    )
    (a @ b).sum().backward()
    return a.grad, b.grad


@scenario
def master_weights_in_float32(t):
    w = leaf(t, [1.0, 2.0], "float32")
    x = const(t, [0.5, 0.25], "bfloat16")
    (w.bfloat16() * x).sum().backward()
    return w.grad


@scenario
def sum_with_a_dtype(t):
    a = leaf(t, [1.0, 2.0], "float32")
    y = a.sum(dtype=t.float64)
    (y * 3).backward()
    return y, a.grad


@scenario
def softmax_with_a_dtype(t):
    a = leaf(t, [1.0, 2.0, 3.0], "bfloat16")
    y = a.softmax(0, dtype=t.float32)
    (y * const(t, [1.0, 2.0, 3.0], "float32")).sum().backward()
    return y, a.grad


@scenario
def gradient_argument_in_another_dtype(t):
    a = leaf(t, [1.0, 2.0], "float32")
    (a * 2).backward(const(t, [1.0, 3.0], "float32"))
    return a.grad


@scenario
def complex_multiplication(t):
    z = leaf(t, [1 + 2j, -1 + 0.5j], "complex128")
    y = (z * z).abs().sum()
    y.backward()
    return y, z.grad


@scenario
def complex_holomorphic_functions(t):
    z = leaf(t, [0.3 + 0.2j, -0.1 + 0.5j], "complex128")
    y = (z.exp() + z.sin() * z.cos() + z.tanh() + 1 / z + z.sqrt() + z.log()).sum()
    (y * y.conj()).real.backward()
    return y, z.grad


@scenario
def complex_conjugate_and_parts(t):
    z = leaf(t, [1 + 2j, 3 - 1j], "complex128")
    (z.conj() * z).real.sum().backward()
    first = z.grad.clone()
    (z.real * 3 + z.imag * z.imag).sum().backward()
    return first, z.grad


@scenario
def complex_angle_and_absolute_value(t):
    z = leaf(t, [1 + 2j, 3 - 1j], "complex128")
    (z.angle() + z.abs() ** 2).sum().backward()
    return z.grad


@scenario
def absolute_value_of_complex_zero(t):
    z = leaf(t, [0j, 3 + 4j], "complex128")
    z.abs().sum().backward()
    return z.grad


@scenario
def real_leaf_in_a_complex_function(t):
    x = leaf(t, [1.0, 2.0])
    z = (x * 1j).exp() * (1 + 1j)
    z.real.sum().backward()
    return z, x.grad


@scenario
def complex_from_parts(t):
    re, im = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    t.complex(re, im).abs().pow(2).sum().backward()
    return re.grad, im.grad


@scenario
def view_as_real_of_complex(t):
    z = leaf(t, [1 + 2j, 3 - 1j], "complex128")
    (t.view_as_real(z) * const(t, [[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return z.grad


@scenario
def complex_matmul(t):
    a = leaf(t, [[1 + 1j, 2.0], [0.5j, -1.0]], "complex128")
    b = leaf(t, [[1.0, 1j], [2 - 1j, 0.0]], "complex128")
    (a @ b).abs().pow(2).sum().backward()
    return a.grad, b.grad


@scenario
def complex_output_needs_a_gradient(t):
    z = leaf(t, 1 + 2j, "complex128")
    error = raises(lambda: (z * z).backward(), "real")
    (z * z).backward(const(t, 1 + 1j, "complex128"))
    return error, z.grad


@scenario
def complex_second_derivative(t):
    z = leaf(t, [0.5 + 0.5j], "complex128")
    (g,) = t.autograd.grad((z**3).real.sum(), z, create_graph=True)
    (gg,) = t.autograd.grad(g.imag.sum(), z)
    return g, gg


@scenario
def complex64_keeps_its_dtype(t):
    z, x = leaf(t, [1 + 1j], "complex64"), leaf(t, [2.0], "float32")
    y = z * x
    y.abs().sum().backward()
    return y, z.grad, x.grad


@scenario
def power_of_complex_with_abs(t):
    z = leaf(t, [1 + 2j], "complex128")
    ((z.abs() - 1) ** 2).sum().backward()
    return z.grad


@scenario
def matmul_of_mixed_dtypes_is_refused(t):
    a, b = leaf(t, [[1.0]], "float32"), leaf(t, [[1.0]], "float64")
    return raises(lambda: a @ b, "dtype")


@scenario
def where_promotes(t):
    a, b = leaf(t, [1.0, 2.0], "float32"), leaf(t, [3.0, 4.0], "float64")
    y = t.where(const(t, [True, False], "bool"), a, b)
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def cat_promotes(t):
    a, b = leaf(t, [1.0], "float32"), leaf(t, [3.0, 4.0], "float64")
    y = t.cat([a, b])
    (y * y).sum().backward()
    return y, a.grad, b.grad


@scenario
def in_place_keeps_the_dtype(t):
    a, b = leaf(t, [1.0, 2.0], "float32"), leaf(t, [3.0, 4.0], "float64")
    y = a * 1
    y.mul_(b)
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def grad_keeps_the_leafs_dtype_over_several_backwards(t):
    a = leaf(t, [1.0, 2.0], "float32")
    (a.double() * 2).sum().backward()
    (a.bfloat16() * 3).sum().backward()
    (a * 4).sum().backward()
    return a.grad
