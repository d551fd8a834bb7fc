"""What must be refused: changed saved tensors, used-up graphs, and the state that errors leave."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see


def _changed(name, forward, change):
    def misuse(t):
        x = leaf(t, [[0.5, 1.5], [2.5, 3.5]])
        y = x * 1
        z = forward(t, y)
        change(t, y)
        return raises(lambda: z.sum().backward(), "modified by an inplace operation"), x.grad

    misuse.__name__ = f"saved_tensor_changed_{name}"
    scenario(misuse)


_changed("by_add_after_mul", lambda t, y: y * y, lambda t, y: y.add_(1))
_changed("by_assignment_after_sin", lambda t, y: y.sin(), lambda t, y: y.__setitem__(0, 5.0))
_changed("by_copy_after_matmul", lambda t, y: y @ y, lambda t, y: y.copy_(t.ones_like(y)))
_changed("by_zero_after_log", lambda t, y: y.log(), lambda t, y: y.zero_())
_changed("by_fill_after_pow", lambda t, y: y**3, lambda t, y: y.fill_(2.0))
_changed("through_a_view_after_division", lambda t, y: 1 / y * y, lambda t, y: y[0].mul_(2))
_changed("through_a_transpose_after_abs", lambda t, y: y.abs(), lambda t, y: y.t().neg_())
_changed("under_no_grad_after_cos", lambda t, y: y.cos(), lambda t, y: _no_grad_add(t, y))
_changed("by_masked_fill_after_prod", lambda t, y: y.prod(), lambda t, y: y.masked_fill_(y > 1, 0))


def _no_grad_add(t, y):
    with t.no_grad():
        y.add_(1)


@scenario
def saved_output_changed(t):
    x = leaf(t, [1.0, 2.0])
    found = []
    for function in ("exp", "tanh", "sigmoid", "sqrt", "relu"):
        y = getattr(x, function)()
        z = y + 0
        y.add_(1)
        found.append(raises(lambda z=z: z.sum().backward(), "modified by an inplace operation"))
    return found, x.grad


@scenario
def output_that_is_not_saved_may_change(t):
    x = leaf(t, [1.0, 2.0])
    for function in ("sin", "log", "square"):
        y = getattr(x, function)()
        y.mul_(2)
        y.sum().backward()
    return x.grad


@scenario
def weight_changed_by_the_optimizer_before_backward(t):
    w1, w2 = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    h = (w1 * 2).tanh()
    loss1, loss2 = (h * w2).sum(), (h * w2).pow(2).sum()
    loss1.backward(retain_graph=True)
    with t.no_grad():
        w2 -= 0.1 * w2.grad
    return raises(lambda: loss2.backward(), "modified by an inplace operation")


@scenario
def error_names_both_versions(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = y.exp() * y
    y.add_(1)
    y.add_(1)
    return raises(lambda: z.sum().backward(), "version 2", "version 0")


@scenario
def state_after_a_refused_backward(t):
    x, w = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    x.grad = const(t, [7.0, 7.0])
    y = x * 1
    z = y.sin() * w
    y.zero_()
    error = raises(lambda: z.sum().backward(), "modified")
    (x * w).sum().backward()
    return error, x.grad


@scenario
def clone_before_the_change_is_the_remedy(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = y.clone() ** 2
    y.add_(1)
    (z.sum() + y.sum()).backward()
    return x.grad


@scenario
def saved_tensors_unchanged_by_a_write_to_another_copy(t):
    x = leaf(t, [1.0, 2.0])
    y = x.exp()
    z = y.clone()
    z.zero_()
    (y.sum() + z.sum()).backward()
    return x.grad


@scenario
def write_and_write_back_is_still_a_change(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = y * y
    y.add_(1)
    y.sub_(1)
    return raises(lambda: z.sum().backward(), "modified by an inplace operation"), y


@scenario
def retain_grad_without_requires_grad_is_refused(t):
    c = const(t, [1.0])
    return raises(lambda: c.retain_grad(), "requires_grad")


@scenario
def detach_in_place_of_a_view_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    v = (x * 2)[:1]
    return raises(lambda: v.detach_(), "view"), v.requires_grad


@scenario
def truth_of_several_elements_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    return raises(lambda: bool(x > 0), "ambiguous"), bool(x.sum() > 0)


@scenario
def item_of_several_elements_is_refused(t):
    return raises(lambda: leaf(t, [1.0, 2.0]).item(), "elements", "converted to Scalar")


@scenario
def anomaly_mode_names_the_function(t):
    x = leaf(t, [-1.0, 4.0])
    with t.autograd.detect_anomaly():
        y = x.sqrt()
        return raises(lambda: y.sum().backward(), "SqrtBackward", "nan")


@scenario
def anomaly_mode_passes_clean_gradients(t):
    x = leaf(t, [1.0, 4.0])
    with t.autograd.detect_anomaly():
        x.sqrt().sum().backward()
    return x.grad


@scenario
def backward_after_a_failed_forward(t):
    x = leaf(t, [1.0, 2.0])
    error = raises(lambda: x + const(t, [1.0, 2.0, 3.0]))
    (x * 2).sum().backward()
    return error, x.grad


@scenario
def shapes_that_do_not_match_leave_the_inputs_alone(t):
    x, y = leaf(t, [[1.0, 2.0]]), leaf(t, [[1.0, 2.0, 3.0]])
    return raises(lambda: x @ y), raises(lambda: x + y), x, y, x.grad


@scenario
def releasing_is_per_graph(t):
    x = leaf(t, 2.0)
    a, b = x.exp(), x.exp()
    a.backward()
    first = see(x.grad)
    b.backward()
    return first, x.grad, raises(lambda: a.backward(), "second time")
