"""`autograd.grad` and `backward`: their options, and what each leaves behind."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see


@scenario
def grad_leaves_dot_grad_alone(t):
    x = leaf(t, 2.0)
    (g,) = t.autograd.grad(x * x, x)
    return g, x.grad


@scenario
def several_inputs_in_order(t):
    a, b, c = leaf(t, 1.0), leaf(t, 2.0), leaf(t, 3.0)
    return list(t.autograd.grad(a * b + b * c, [c, a, b]))


@scenario
def several_outputs_are_summed(t):
    x = leaf(t, [1.0, 2.0])
    a, b = (x * x).sum(), (x * 3).sum()
    return list(t.autograd.grad([a, b], x))


@scenario
def several_outputs_weighted(t):
    x = leaf(t, [1.0, 2.0])
    weights = [const(t, [1.0, 0.0]), const(t, [0.0, 10.0])]
    return list(t.autograd.grad([x * x, x * 3], x, grad_outputs=weights))


@scenario
def grad_outputs_with_none_for_a_scalar(t):
    x = leaf(t, [1.0, 2.0])
    return list(
        t.autograd.grad([(x * x).sum(), x * 3], x, grad_outputs=[None, const(t, [1.0, 2.0])])
    )


@scenario
def unused_input_is_refused(t):
    x, y = leaf(t, 1.0), leaf(t, 2.0)
    return raises(lambda: t.autograd.grad(x * 2, [x, y]), "not have been used", "allow_unused")


@scenario
def unused_input_allowed(t):
    x, y = leaf(t, 1.0), leaf(t, 2.0)
    return list(t.autograd.grad(x * 2, [x, y], allow_unused=True))


@scenario
def unused_input_materialised(t):
    x, y = leaf(t, 1.0), leaf(t, [[1.0, 2.0]])
    return list(t.autograd.grad(x * 2, [x, y], materialize_grads=True))


@scenario
def materialize_and_allow_unused_contradict(t):
    x = leaf(t, 1.0)
    return raises(
        lambda: t.autograd.grad(x * 2, x, allow_unused=False, materialize_grads=True),
        "allow_unused",
    )


@scenario
def computed_tensors_as_inputs(t):
    x = leaf(t, 2.0)
    y = x * 3
    z = y.exp()
    return list(t.autograd.grad(z * y, [y, z, x]))


@scenario
def the_output_itself_as_input(t):
    x = leaf(t, 2.0)
    y = x * 3
    return list(t.autograd.grad(y, [y])), raises(lambda: t.autograd.grad(y * 2, [x, const(t, 1.0)]))


@scenario
def same_input_twice(t):
    x = leaf(t, 2.0)
    return list(t.autograd.grad(x * x, [x, x]))


@scenario
def input_without_grad_is_refused(t):
    x, c = leaf(t, 1.0), const(t, 2.0)
    return raises(lambda: t.autograd.grad(x * c, c), "does not require grad")


@scenario
def output_without_history_is_refused(t):
    x, c = leaf(t, 1.0), const(t, 2.0)
    return raises(lambda: t.autograd.grad(c * 2, x), "does not require grad")


@scenario
def empty_inputs_are_refused(t):
    x = leaf(t, 1.0)
    return raises(lambda: t.autograd.grad(x * 2, [])), raises(
        lambda: (x * 2).backward(inputs=[]), "inputs"
    )


@scenario
def gradient_of_another_shape_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    return (
        raises(lambda: (x * 2).backward(const(t, [1.0])), "shape"),
        raises(lambda: t.autograd.grad(x * 2, x, const(t, [[1.0, 2.0]])), "shape"),
        x.grad,
    )


@scenario
def wrong_number_of_gradients_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    return raises(lambda: t.autograd.grad([x * 2, x * 3], x, [const(t, [1.0, 1.0])]))


@scenario
def backward_into_chosen_inputs_only(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    (x * y).backward(inputs=[x])
    return x.grad, y.grad


@scenario
def backward_into_one_input_given_alone(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    (x * y * y).backward(inputs=y)
    return x.grad, y.grad


@scenario
def backward_into_a_leaf_on_the_path_of_another(t):
    a, b = leaf(t, 2.0), leaf(t, 3.0)
    h = a * b
    (h * b).backward(inputs=[a], retain_graph=True)
    first = see(a.grad), see(b.grad)
    (h * b).backward(inputs=[b])
    return first, a.grad, b.grad


@scenario
def backward_inputs_accumulate(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    for _ in range(3):
        (x * y).backward(inputs=[x])
    return x.grad, y.grad


@scenario
def backward_into_a_computed_tensor(t):
    x = leaf(t, 2.0)
    y = x * 3
    y.retain_grad()
    (y * y).backward(inputs=[y])
    return y.grad, x.grad


@scenario
def autograd_backward_with_inputs(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    t.autograd.backward([x * y, x + y], inputs=[y])
    return x.grad, y.grad


@scenario
def scalar_with_gradient_argument(t):
    x = leaf(t, 2.0)
    (x * x).backward(const(t, 5.0))
    return x.grad


@scenario
def gradient_by_keyword(t):
    x = leaf(t, [1.0, 2.0])
    (x * x).backward(gradient=const(t, [1.0, -1.0]))
    return x.grad


@scenario
def vector_output_weighted(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    (x @ x).backward(const(t, [[1.0, 0.0], [0.0, 2.0]]))
    return x.grad


@scenario
def one_element_outputs_need_no_gradient(t):
    x = leaf(t, [2.0])
    y = leaf(t, [[3.0]])
    (x * x).backward()
    (y**3).backward()
    return x.grad, y.grad


@scenario
def gradient_that_requires_grad(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    (x * x).backward(v)
    return x.grad, x.grad.requires_grad, v.grad


@scenario
def second_backward_is_refused(t):
    x = leaf(t, 2.0)
    y = x * x
    y.backward()
    before = see(x.grad)
    return raises(lambda: y.backward(), "second time", "retain_graph=True"), before, x.grad


@scenario
def second_backward_of_a_linear_function(t):
    x = leaf(t, 2.0)
    y = x + 1
    y.backward()
    y.backward()
    return x.grad


@scenario
def second_grad_is_refused(t):
    x = leaf(t, 2.0)
    y = x.exp()
    t.autograd.grad(y, x)
    return raises(lambda: t.autograd.grad(y, x), "second time")


@scenario
def backward_of_a_part_that_was_used_up(t):
    x = leaf(t, 2.0)
    h = x.exp()
    a, b = h * 2, h * 3
    a.backward()
    return raises(lambda: b.backward(), "second time"), x.grad


@scenario
def retain_graph_then_release(t):
    x = leaf(t, 2.0)
    y = x.exp()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, raises(lambda: y.backward(), "second time")


@scenario
def grad_of_one_input_releases_only_what_it_walked(t):
    x, w = leaf(t, 2.0), leaf(t, 3.0)
    y = (x * x) * (w * w)
    (gw,) = t.autograd.grad(y, w, retain_graph=True)
    (gx,) = t.autograd.grad(y, x)
    return gw, gx


@scenario
def backward_of_a_constant_is_refused(t):
    c = const(t, 2.0)
    return raises(lambda: (c * 2).backward(), "does not require grad", "grad_fn")


@scenario
def batched_grad_outputs(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    (jacobian,) = t.autograd.grad(
        x**2, x, grad_outputs=t.eye(3, dtype=t.float64), is_grads_batched=True
    )
    return jacobian


@scenario
def tuple_in_tuple_out(t):
    x = leaf(t, 2.0)
    found = t.autograd.grad((x * x,), (x,))
    return isinstance(found, tuple), len(found), found[0]


@scenario
def functional_jacobian(t):
    x = const(t, [1.0, 2.0])
    return t.autograd.functional.jacobian(
        lambda v: t.stack([v.prod(), v.sum() ** 2, v[0].sin()]), x
    )


@scenario
def functional_jacobian_of_two_inputs(t):
    x, y = const(t, [1.0, 2.0]), const(t, [[3.0], [4.0]])
    return t.autograd.functional.jacobian(lambda a, b: (a * b).sum(0), (x, y))


@scenario
def functional_hessian(t):
    x = const(t, [1.0, 2.0, 3.0])
    return t.autograd.functional.hessian(lambda v: v.prod() + (v**3).sum(), x)


@scenario
def functional_products(t):
    functional = t.autograd.functional
    x, v = const(t, [1.0, 2.0]), const(t, [0.5, -1.0])

    def scalar(a):
        return (a**3).sum() + a.prod()

    return {
        "vjp": functional.vjp(lambda a: a.exp(), x, v),
        "jvp": functional.jvp(lambda a: a.exp() * a.sum(), x, v),
        "hvp": functional.hvp(scalar, x, v),
        "vhp": functional.vhp(scalar, x, v),
    }


@scenario
def functional_jacobian_with_create_graph(t):
    x = leaf(t, [1.0, 2.0])
    j = t.autograd.functional.jacobian(lambda v: v**3, x, create_graph=True)
    j.sum().backward()
    return j, x.grad


@scenario
def gradcheck_accepts_and_rejects(t):
    x = leaf(t, [0.3, 0.7])

    class Wrong(t.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    return (
        t.autograd.gradcheck(lambda v: v.sin() * v, (x,)),
        t.autograd.gradgradcheck(lambda v: v.sin() * v, (x,)),
        t.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False),
    )
