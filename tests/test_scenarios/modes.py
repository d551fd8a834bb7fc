"""no_grad, enable_grad, set_grad_enabled, inference_mode; detach, requires_grad_, data."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see


@scenario
def no_grad_records_nothing(t):
    x = leaf(t, 2.0)
    with t.no_grad():
        y = x * 2
    return y.requires_grad, y.is_leaf, y.grad_fn is None, y


@scenario
def no_grad_part_counts_as_a_constant(t):
    x = leaf(t, 2.0)
    with t.no_grad():
        c = x * x
    (c * x).backward()
    return x.grad


@scenario
def enable_grad_inside_no_grad(t):
    x = leaf(t, 2.0)
    with t.no_grad():
        a = x * 2
        with t.enable_grad():
            b = x * 3
        c = x * 4
    return a.requires_grad, b.requires_grad, c.requires_grad, t.is_grad_enabled()


@scenario
def set_grad_enabled_as_context_and_function(t):
    x = leaf(t, 2.0)
    found = []
    for mode in (True, False):
        with t.set_grad_enabled(mode):
            found.append((x * 2).requires_grad)
    t.set_grad_enabled(False)
    try:
        found.append((x * 2).requires_grad)
    finally:
        t.set_grad_enabled(True)
    return found, (x * 2).requires_grad


@scenario
def modes_are_restored_after_an_exception(t):
    found = []
    for mode in (t.no_grad, t.inference_mode):
        try:
            with mode():
                found.append(t.is_grad_enabled())
                raise ValueError
        except ValueError:
            found.append(t.is_grad_enabled())
    return found


@scenario
def deep_nesting(t):
    found = []
    with t.no_grad():
        with t.enable_grad():
            with t.no_grad():
                with t.set_grad_enabled(True):
                    found.append(t.is_grad_enabled())
                found.append(t.is_grad_enabled())
            found.append(t.is_grad_enabled())
        found.append(t.is_grad_enabled())
    return found


@scenario
def modes_as_decorators(t):
    x = leaf(t, 2.0)

    @t.no_grad()
    def frozen():
        return x * 2

    @t.enable_grad()
    def live():
        return x * 2

    @t.inference_mode()
    def inferred():
        return x * 2

    @t.set_grad_enabled(False)
    def off():
        return x * 2

    with t.no_grad():
        inside = live().requires_grad
    return (
        frozen().requires_grad, inside, inferred().requires_grad, off().requires_grad,
        t.is_grad_enabled(), inferred().is_inference(),
    )  # fmt: skip


@scenario
def no_grad_decorator_without_call(t):
    x = leaf(t, 2.0)

    @t.no_grad
    def frozen(factor):
        return x * factor

    return frozen(3), frozen(3).requires_grad


@scenario
def decorated_generator(t):
    x = leaf(t, 2.0)

    @t.no_grad()
    def generate():
        for i in range(3):
            yield (x * i).requires_grad

    return [(inside, t.is_grad_enabled()) for inside in generate()]


@scenario
def one_context_object_used_twice(t):
    context = t.no_grad()
    found = []
    for _ in range(2):
        with context:
            found.append(t.is_grad_enabled())
        found.append(t.is_grad_enabled())
    return found


@scenario
def factory_with_requires_grad_under_no_grad(t):
    with t.no_grad():
        x = t.ones(2, dtype=t.float64, requires_grad=True)
    (x * 3).sum().backward()
    return x.requires_grad, x.is_leaf, x.grad


@scenario
def backward_under_no_grad(t):
    x = leaf(t, 2.0)
    y = x * x
    with t.no_grad():
        y.backward()
    return x.grad


@scenario
def backward_of_what_was_computed_under_no_grad(t):
    x = leaf(t, 2.0)
    with t.no_grad():
        y = x * x
    return raises(lambda: y.backward(), "does not require grad")


@scenario
def create_graph_under_no_grad_still_records(t):
    x = leaf(t, 2.0)
    y = x**3
    with t.no_grad():
        (g,) = t.autograd.grad(y, x, create_graph=True)
    return g, g.requires_grad


@scenario
def inference_tensors(t):
    x = leaf(t, 2.0)
    with t.inference_mode():
        y = x * 3
        flags = (
            y.is_inference(),
            y.requires_grad,
            t.is_inference_mode_enabled(),
            t.is_grad_enabled(),
        )
    return flags, x.is_inference(), t.is_inference_mode_enabled(), y


@scenario
def inference_tensor_may_not_be_saved(t):
    x = leaf(t, [2.0])
    with t.inference_mode():
        c = const(t, [3.0]) * 1
    return raises(lambda: x * c, "inference"), see(x + c), see(x * c.clone())


@scenario
def inference_tensor_may_not_change_outside(t):
    with t.inference_mode():
        c = const(t, [3.0]) * 1
        c.add_(1)
    return raises(lambda: c.add_(1), "inference")  # PyTorch has written by then


@scenario
def inference_tensor_may_not_require_grad(t):
    with t.inference_mode():
        c = const(t, [3.0]) * 1
    return raises(lambda: c.requires_grad_(), "inference")


@scenario
def inference_mode_switched_off_inside(t):
    x = leaf(t, 2.0)
    with t.inference_mode():
        with t.inference_mode(False):
            y = x * 2
        z = x * 2
    return y.requires_grad, y.is_inference(), z.requires_grad, z.is_inference()


@scenario
def detach_cuts_one_path(t):
    x = leaf(t, 3.0)
    (x * x.detach()).backward()
    return x.grad


@scenario
def detach_in_the_middle(t):
    x, w = leaf(t, 2.0), leaf(t, 3.0)
    h = (x * x).detach()
    (h * w).backward()
    return x.grad, w.grad, h.requires_grad, h.is_leaf


@scenario
def detached_tensor_can_become_a_leaf(t):
    x = leaf(t, 2.0)
    h = x * 3
    cut = h.detach().requires_grad_()
    (cut**2).backward()
    first = see(x.grad), see(cut.grad)
    h.backward(cut.grad)
    return first, x.grad


@scenario
def requires_grad_toggled_on_and_off(t):
    x = const(t, 2.0)
    a = x * 2
    x.requires_grad_()
    b = x * 3
    x.requires_grad_(False)
    c = x * 4
    flags = a.requires_grad, b.requires_grad, c.requires_grad
    return flags, x.requires_grad, x.is_leaf


@scenario
def requires_grad_by_assignment(t):
    x = const(t, 2.0)
    x.requires_grad = True
    (x * x).backward()
    return x.grad, x.requires_grad


@scenario
def frozen_leaf_lets_the_gradient_pass(t):
    w1, w2, w3 = leaf(t, 2.0), leaf(t, 3.0), leaf(t, 4.0)
    w2.requires_grad_(False)
    (w1.exp() * w2 * w3).backward()
    return w1.grad, w2.grad, w3.grad


@scenario
def freezing_keeps_the_stored_gradient(t):
    w = leaf(t, 2.0)
    (w * w).backward()
    w.requires_grad_(False)
    kept = see(w.grad)
    w.requires_grad_()
    (w * w).backward()
    return kept, w.grad


@scenario
def requires_grad_of_a_computed_tensor_cannot_be_removed(t):
    x = leaf(t, 2.0)
    y = x * 2
    return raises(lambda: y.requires_grad_(False), "leaf"), y.requires_grad


@scenario
def requires_grad_of_integers_is_refused(t):
    i = const(t, [1, 2], "int64")
    b = const(t, [True], "bool")
    return (
        raises(lambda: i.requires_grad_(), "floating point"),
        raises(lambda: b.requires_grad_()),
        i,
    )


@scenario
def requires_grad_in_the_constructor_for_integers_is_refused(t):
    return raises(lambda: t.tensor([1, 2], requires_grad=True), "floating point")


@scenario
def data_is_detached_and_shared(t):
    x = leaf(t, [1.0, 2.0])
    d = x.data
    d[0] = 9.0
    return d.requires_grad, x, x.requires_grad


@scenario
def data_assignment_swaps_the_values(t):
    x = leaf(t, [1.0, 2.0])
    (x * x).sum().backward()
    x.data = const(t, [5.0, 6.0])
    (x * x).sum().backward()
    return x, x.grad, x.is_leaf


@scenario
def clone_is_differentiable_detach_clone_is_not(t):
    x = leaf(t, [1.0, 2.0])
    a, b = x.clone(), x.detach().clone()
    (a * b).sum().backward()
    return a.requires_grad, b.requires_grad, x.grad


@scenario
def numpy_of_a_tensor_with_history_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    return raises(lambda: x.numpy(), "requires grad", "detach()"), x.detach().numpy().tolist()


@scenario
def item_and_tolist_of_a_leaf(t):
    x = leaf(t, [1.5, 2.5])
    return x.sum().item(), x.tolist()


@scenario
def comparisons_do_not_require_grad(t):
    x = leaf(t, [1.0, 2.0])
    return [
        y.requires_grad
        for y in (x > 1, x == x, x.argmax(), x.isnan(), x.sign(), x.floor(), x.round())
    ]


@scenario
def steps_have_a_zero_gradient(t):
    x = leaf(t, [1.2, -2.7])
    (x.floor() + x.ceil() + x.round() + x.trunc() + x.sign()).sum().backward()
    return x.grad


@scenario
def results_under_no_grad_can_be_made_leaves(t):
    x = leaf(t, 2.0)
    with t.no_grad():
        y = x * 3
    y.requires_grad_()
    (y * y).backward()
    return y.is_leaf, y.grad, x.grad


@scenario
def deepcopy_of_leaves_and_of_computed_tensors(t):
    import copy

    x = leaf(t, [1.0, 2.0])
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    y.data.add_(1)
    return y.requires_grad, y.is_leaf, y.grad, x, raises(lambda: copy.deepcopy(x * 2), "deepcopy")


@scenario
def tensor_of_a_tensor_is_a_new_leaf(t):
    x = leaf(t, [1.0, 2.0])
    y = (x * 2).detach().clone().requires_grad_()
    (y * 3).sum().backward()
    return x.grad, y.grad
