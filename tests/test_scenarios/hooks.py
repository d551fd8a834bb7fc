"""Hooks: order, replacement, in-place change, removal, on leaves and on computed tensors."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see


@scenario
def hook_observes(t):
    x = leaf(t, [1.0, 2.0])
    seen = []
    x.register_hook(lambda g: seen.append(see(g)))
    (x * x).sum().backward()
    return seen, x.grad


@scenario
def hook_on_a_leaf_replaces(t):
    x = leaf(t, [1.0, 2.0])
    x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    return x.grad


@scenario
def hook_on_a_computed_tensor_replaces(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.register_hook(lambda g: g * 0.5)
    (y * y).sum().backward()
    return x.grad


@scenario
def hook_sees_the_sum_of_all_paths_once(t):
    x = leaf(t, 2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(see(g)))
    (y * y + y.exp() * 0.1 + 5 * y).backward()
    return seen, x.grad


@scenario
def hooks_run_in_order_of_registration(t):
    x = leaf(t, 1.0)
    order = []

    def first(g):
        order.append("first")
        return g + 1

    def second(g):
        order.append("second")
        return g * 10

    x.register_hook(first)
    x.register_hook(second)
    (x * 2).backward()
    return order, x.grad


@scenario
def hook_returning_none_keeps_the_gradient(t):
    x = leaf(t, 1.0)
    x.register_hook(lambda g: None)
    x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: None)
    (x * 2).backward()
    return x.grad


@scenario
def hook_that_is_removed(t):
    x = leaf(t, 1.0)
    handle = x.register_hook(lambda g: g * 100)
    (x * 2).backward()
    first = see(x.grad)
    handle.remove()
    (x * 2).backward()
    handle.remove()
    return first, x.grad


@scenario
def hook_that_removes_itself(t):
    x = leaf(t, 1.0)
    handles = []

    def once(g):
        handles[0].remove()
        return g * 100

    handles.append(x.register_hook(once))
    for _ in range(2):
        (x * 2).backward()
    return x.grad


@scenario
def middle_hook_removed(t):
    x = leaf(t, 1.0)
    x.register_hook(lambda g: g + 1)
    handle = x.register_hook(lambda g: g * 100)
    x.register_hook(lambda g: g * 2)
    handle.remove()
    x.backward()
    return x.grad


@scenario
def hook_changes_the_gradient_in_place(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1

    def change(g):
        g.mul_(3)

    y.register_hook(change)
    (y * 5).sum().backward()
    return x.grad


@scenario
def hook_replaces_with_zeros(t):
    x, w = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    h = x * w
    h.register_hook(lambda g: g * 0)
    (h + w).sum().backward()
    return x.grad, w.grad


@scenario
def hook_clamps_every_step_of_a_recurrence(t):
    x = leaf(t, 2.0)
    h = x * 1
    for _ in range(4):
        h = h * h
        h.register_hook(lambda g: g.clamp(-1, 1))
    h.backward()
    return x.grad


@scenario
def hook_runs_in_each_backward(t):
    x = leaf(t, 1.0)
    calls = []
    y = x * 2
    y.register_hook(lambda g: calls.append(see(g)))
    z = y * y
    z.backward(retain_graph=True)
    z.backward()
    return calls, x.grad


@scenario
def hook_on_a_leaf_sees_the_fresh_gradient(t):
    x = leaf(t, 3.0)
    seen = []
    x.register_hook(lambda g: seen.append(see(g)))
    for _ in range(3):
        (x * x).backward()
    return seen, x.grad


@scenario
def hook_is_not_called_off_the_path(t):
    x, y = leaf(t, 1.0), leaf(t, 2.0)
    calls = []
    y.register_hook(lambda g: calls.append(1))
    (x * 2).backward()
    return calls, y.grad


@scenario
def hook_on_the_output(t):
    x = leaf(t, [1.0, 2.0])
    y = (x * x).sum()
    y.register_hook(lambda g: g * 7)
    y.backward()
    return x.grad


@scenario
def hook_and_retain_grad(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    (y * 3).sum().backward()
    return y.grad, x.grad


@scenario
def hook_before_retain_grad(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    (y * 3).sum().backward()
    return y.grad, x.grad


@scenario
def hook_with_autograd_grad(t):
    x = leaf(t, 2.0)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    (gx,) = t.autograd.grad(y * y, x)
    return gx, x.grad


@scenario
def hook_on_the_leaf_with_autograd_grad(t):
    x = leaf(t, 2.0)
    x.register_hook(lambda g: g * 10)
    (gx,) = t.autograd.grad(x * x, x)
    return gx, x.grad


@scenario
def hook_on_the_intermediate_that_is_asked_for(t):
    x = leaf(t, 2.0)
    y = x * 3
    y.register_hook(lambda g: g + 1)
    (gy,) = t.autograd.grad(y * y, y)  # beside x, PyTorch captures it before the hook
    return gy, x.grad


@scenario
def hook_under_create_graph_is_differentiated(t):
    x = leaf(t, 2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (gx,) = t.autograd.grad(y, x, create_graph=True)
    (ggx,) = t.autograd.grad(gx, x)
    return gx, ggx


@scenario
def grad_mode_inside_a_hook(t):
    x = leaf(t, 2.0)
    modes = []
    x.register_hook(lambda g: modes.append(t.is_grad_enabled()))
    (x * x).backward()
    (x * x).backward(create_graph=True)
    return modes


@scenario
def hook_on_a_tensor_without_grad_is_refused(t):
    c = const(t, [1.0])
    return raises(lambda: c.register_hook(lambda g: g), "hook")


@scenario
def hook_that_raises_stops_backward(t):
    x = leaf(t, 1.0)
    y = x * 2

    def fail(g):
        raise KeyError("from the hook")

    handle = y.register_hook(fail)
    try:
        y.backward(retain_graph=True)
        outcome = "no error"
    except KeyError as error:
        outcome = str(error)
    before = see(x.grad)
    handle.remove()
    y.backward()
    return outcome, before, x.grad


@scenario
def post_accumulate_hook_sees_the_sum(t):
    x = leaf(t, 3.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append((see(p.grad), p is x)))
    (x * x).backward()
    (x * x).backward()
    return seen, x.grad


@scenario
def post_accumulate_hook_steps_and_frees(t):
    w = leaf(t, [1.0, 2.0])

    def step(p):
        with t.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    handle = w.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (w * w).sum().backward()
    handle.remove()
    (w * w).sum().backward()
    return w, w.grad


@scenario
def post_accumulate_hooks_in_order_after_tensor_hooks(t):
    x = leaf(t, 1.0)
    order = []
    x.register_post_accumulate_grad_hook(lambda p: order.append("post 1"))
    x.register_hook(lambda g: order.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda p: order.append("post 2"))
    (x * x).backward()
    return order


@scenario
def post_accumulate_hook_is_not_run_by_autograd_grad(t):
    x = leaf(t, 1.0)
    calls = []
    x.register_post_accumulate_grad_hook(lambda p: calls.append(1))
    t.autograd.grad(x * x, x)
    return calls, x.grad


@scenario
def post_accumulate_hook_on_a_computed_tensor_is_refused(t):
    x = leaf(t, 1.0)
    y = x * 2
    return raises(lambda: y.register_post_accumulate_grad_hook(lambda p: None), "leaf")


@scenario
def hook_on_a_view(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    v = x[1:]
    v.register_hook(lambda g: g * 10)
    (v.sum() + x.sum()).backward()
    return x.grad


@scenario
def hook_on_one_chunk(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    a, b = (x * 1).chunk(2)
    b.register_hook(lambda g: g * -1)
    (a * b).sum().backward()
    return x.grad


@scenario
def hook_registered_before_an_in_place_change(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(see(g)))
    y.mul_(5)
    y.sum().backward()
    return seen, x.grad


@scenario
def hook_registered_after_an_in_place_change(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.mul_(5)
    seen = []
    y.register_hook(lambda g: seen.append(see(g)))
    y.sum().backward()
    return seen, x.grad


@scenario
def gradient_noise_replaced_by_sign(t):
    w = leaf(t, [0.5, -0.25, 0.0])
    w.register_hook(lambda g: g.sign())
    ((w - 0.1) ** 2).sum().backward()
    return w.grad


@scenario
def two_backwards_through_one_hooked_tensor_accumulate(t):
    x = leaf(t, 1.0)
    h = x * 2
    h.register_hook(lambda g: g * 3)
    a, b = h * 5, h * 7
    a.backward(retain_graph=True)
    b.backward()
    return x.grad
