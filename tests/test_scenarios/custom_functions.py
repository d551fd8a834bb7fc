"""autograd.Function and checkpointing."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see, submodule


@scenario
def function_with_a_saved_input(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = leaf(t, [1.0, 2.0])
    y = Square.apply(x * 3)
    (y * y).sum().backward()
    return y, y.requires_grad, x.grad


@scenario
def function_with_a_saved_output(t):
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = leaf(t, [1.0, 2.0])
    y = Exp.apply(x)
    (y * 2).sum().backward()
    return y, x.grad


@scenario
def gradient_reversal(t):
    class Reverse(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.scale * g, None

    w, head = leaf(t, [1.0, 2.0]), leaf(t, [3.0, -1.0])
    features = w * 2
    (features.sum() + (Reverse.apply(features, 0.5) * head).sum()).backward()
    return w.grad, head.grad


@scenario
def straight_through_estimator(t):
    class Round(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(t, [0.3, 1.7, -0.6])
    y = Round.apply(x)
    (y * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return y, x.grad


@scenario
def straight_through_by_detach(t):
    x = leaf(t, [0.3, 1.7, -0.6])
    y = x + (x.round() - x).detach()
    (y**2).sum().backward()
    return y, x.grad


@scenario
def sign_with_clipped_straight_through(t):
    class Binarize(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.abs() <= 1)

    x = leaf(t, [0.3, 1.7, -0.6])
    Binarize.apply(x).sum().backward()
    return x.grad


@scenario
def several_inputs_and_outputs(t):
    class SumAndProduct(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a + b, a * b

        @staticmethod
        def backward(ctx, g_sum, g_product):
            a, b = ctx.saved_tensors
            return g_sum + g_product * b, g_sum + g_product * a

    a, b = leaf(t, 2.0), leaf(t, 3.0)
    total, product = SumAndProduct.apply(a, b)
    (total * 10 + product).backward()
    return total, product, a.grad, b.grad


@scenario
def unused_output_gets_zeros(t):
    seen = []

    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g1, g2):
            seen.append((see(g1), see(g2)))
            return g1 * 2 + g2 * 3

    x = leaf(t, [1.0, 2.0])
    Two.apply(x)[1].sum().backward()
    return seen, x.grad


@scenario
def unused_output_gets_none_where_asked(t):
    seen = []

    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g1, g2):
            seen.append((g1 is None, see(g2)))
            return g2 * 3

    x = leaf(t, [1.0, 2.0])
    Two.apply(x)[1].sum().backward()
    return seen, x.grad


@scenario
def none_for_an_input_without_gradient(t):
    class Scale(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, name):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None, None

    x = leaf(t, 2.0)
    Scale.apply(x, 4.0, "name").backward()
    return x.grad


@scenario
def none_for_a_tensor_input_leaves_it_without_grad(t):
    class First(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, None

    a, b = leaf(t, 2.0), leaf(t, 3.0)
    First.apply(a, b).backward()
    return a.grad, b.grad


@scenario
def needs_input_grad(t):
    seen = []

    class Product(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, c):
            ctx.save_for_backward(a, b)
            return a * b * c

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append(tuple(ctx.needs_input_grad))
            return g * b if ctx.needs_input_grad[0] else None, g * a, None

    a, b = const(t, 2.0), leaf(t, 3.0)
    Product.apply(a, b, 1.0).backward()
    return seen, a.grad, b.grad


@scenario
def mark_non_differentiable(t):
    class SortIndices(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            ctx.mark_non_differentiable(order)
            ctx.save_for_backward(order)
            return values, order

        @staticmethod
        def backward(ctx, g, _):
            (order,) = ctx.saved_tensors
            return t.zeros_like(g).scatter(0, order, g)

    x = leaf(t, [3.0, 1.0, 2.0])
    values, order = SortIndices.apply(x)
    (values * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return values.requires_grad, order.requires_grad, order, x.grad


@scenario
def mark_dirty(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = Double.apply(y)
    (z * y).sum().backward()
    return z, y, z is y, x.grad


@scenario
def double_backward_through_a_function(t):
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = leaf(t, 2.0)
    (a,) = t.autograd.grad(Cube.apply(x), x, create_graph=True)
    (b,) = t.autograd.grad(a, x, create_graph=True)
    (c,) = t.autograd.grad(b, x)
    return a, b, c


@scenario
def once_differentiable_refuses_a_second_derivative(t):
    from_module = submodule(t, "autograd.function")

    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @from_module.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = leaf(t, 2.0)
    (first,) = t.autograd.grad(Cube.apply(x) ** 2, x, create_graph=True)
    return see(first), raises(lambda: first.backward(), "once_differentiable")


@scenario
def forward_of_a_function_runs_without_recording(t):
    modes = []

    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(t.is_grad_enabled())
            return x * 1

        @staticmethod
        def backward(ctx, g):
            modes.append(t.is_grad_enabled())
            return g

    x = leaf(t, 2.0)
    Identity.apply(x).backward()
    return modes, t.is_grad_enabled()


@scenario
def function_on_constants_requires_nothing(t):
    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(t, 2.0)
    with t.no_grad():
        frozen = Identity.apply(x).requires_grad
    return Identity.apply(const(t, 2.0)).requires_grad, frozen


@scenario
def function_returning_its_input(t):
    class Pass(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 10

    x = leaf(t, 2.0)
    y = Pass.apply(x)
    y.backward()
    return y is x, y.is_leaf, x.grad


@scenario
def wrong_number_of_gradients(t):
    class Bad(t.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g

    a, b = leaf(t, 2.0), leaf(t, 3.0)
    y = Bad.apply(a, b)
    return raises(lambda: y.backward(), "incorrect number of gradients"), a.grad


@scenario
def gradient_of_the_wrong_shape(t):
    class Bad(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return t.ones(5, dtype=t.float64)

    a = leaf(t, [1.0, 2.0])
    y = Bad.apply(a)
    return raises(lambda: y.sum().backward(), "shape"), a.grad


@scenario
def saved_input_changed_in_place(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = Square.apply(y)
    y.add_(1)
    return raises(lambda: z.sum().backward(), "modified by an inplace operation")


@scenario
def second_backward_through_a_function(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(t, 2.0)
    y = Square.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, raises(lambda: y.backward(), "second time")


@scenario
def setup_context_apart_from_forward(t):
    class Scale(t.autograd.Function):
        @staticmethod
        def forward(x, factor):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.factor = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * ctx.factor + 0 * (x + y), None

    x = leaf(t, [1.0, 2.0])
    Scale.apply(x, 3.0).sum().backward()
    return x.grad


@scenario
def hook_on_the_output_of_a_function(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(t, 1.0)
    y = Double.apply(x)
    y.register_hook(lambda g: g * 5)
    y.backward()
    return x.grad


@scenario
def function_inside_a_network(t):
    class Swish(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = x.sigmoid()
            return g * (s + x * s * (1 - s))

    w1, w2 = leaf(t, [[0.5, -0.3], [0.2, 0.8]]), leaf(t, [[1.0], [-2.0]])
    x = const(t, [[1.0, 2.0], [3.0, 4.0]])
    (Swish.apply(x @ w1) @ w2).pow(2).mean().backward()
    return w1.grad, w2.grad


@scenario
def function_with_a_view_as_output(t):
    class Flat(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.reshape(-1).clone()

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape)

    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    (Flat.apply(x) ** 2).sum().backward()
    return x.grad


@scenario
def checkpoint_gives_the_same_gradients(t):
    checkpoint = submodule(t, "utils.checkpoint").checkpoint
    w, x = leaf(t, [[0.5, -0.3], [0.2, 0.8]]), leaf(t, [[1.0, 2.0]])

    def block(h):
        return (h @ w).tanh().exp()

    y = checkpoint(block, x, use_reentrant=False)
    (checkpoint(block, y, use_reentrant=False) ** 2).sum().backward()
    return y, x.grad, w.grad


@scenario
def checkpoint_recomputes(t):
    checkpoint = submodule(t, "utils.checkpoint").checkpoint
    calls = []
    x = leaf(t, [1.0, 2.0])

    def block(h):
        calls.append(t.is_grad_enabled())
        return h.exp() * h

    y = checkpoint(block, x, use_reentrant=False)
    before = len(calls)
    y.sum().backward()
    return before, len(calls), x.grad


@scenario
def checkpoint_with_several_arguments_and_outputs(t):
    checkpoint = submodule(t, "utils.checkpoint").checkpoint
    a, b = leaf(t, 2.0), leaf(t, 3.0)

    def block(p, q, factor):
        return p * q * factor, p.exp()

    product, power = checkpoint(block, a, b, 5.0, use_reentrant=False)
    (product * power).backward()
    return product, power, a.grad, b.grad


@scenario
def checkpoint_twice_differentiated(t):
    checkpoint = submodule(t, "utils.checkpoint").checkpoint
    x = leaf(t, 1.5)
    y = checkpoint(lambda v: v**3, x, use_reentrant=False)
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (gg,) = t.autograd.grad(g, x)
    return g, gg


@scenario
def chain_of_checkpoints(t):
    checkpoint = submodule(t, "utils.checkpoint").checkpoint
    x, w = leaf(t, [0.1, 0.2]), leaf(t, 0.9)
    h = x
    for i in range(8):
        h = checkpoint(lambda v, i=i: (v * w + i).sin(), h, use_reentrant=False)
    h.sum().backward()
    return h, x.grad, w.grad
