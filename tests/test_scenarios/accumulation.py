"""Accumulation into leaves: several backwards, shared parameters, leaves that feed leaves."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see


@scenario
def two_backwards_add_up(t):
    x = leaf(t, [1.0, 2.0])
    (x * x).sum().backward()
    first = see(x.grad)
    (x * 3).sum().backward()
    return first, x.grad


@scenario
def one_leaf_used_three_times(t):
    x = leaf(t, [1.0, -2.0, 3.0])
    (x * x + x.exp() - 2 * x).sum().backward()
    return x.grad


@scenario
def same_tensor_on_both_sides(t):
    x = leaf(t, 3.0)
    (x * x).backward()
    y = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    (y @ y).sum().backward()
    z = leaf(t, 5.0)
    (z - z + z / z).backward()
    return x.grad, y.grad, z.grad


@scenario
def shared_parameter_in_two_losses(t):
    w = leaf(t, [0.5, -0.5])
    a, b = const(t, [1.0, 2.0]), const(t, [3.0, 4.0])
    loss1, loss2 = (w * a).sum() ** 2, (w * b).sum() ** 3
    loss1.backward()
    after_first = see(w.grad)
    loss2.backward()
    return after_first, w.grad, loss1, loss2


@scenario
def sum_of_losses_equals_two_backwards(t):
    w1, w2 = leaf(t, [1.0, 2.0]), leaf(t, [1.0, 2.0])
    (w1.sin().sum() + w1.cos().sum()).backward()
    w2.sin().sum().backward()
    w2.cos().sum().backward()
    return w1.grad, w2.grad


@scenario
def u_to_w_to_out_without_double_counting(t):
    u = leaf(t, 2.0)
    w = u * 3
    w.retain_grad()
    out = w * w
    out.backward(retain_graph=True)
    first = see(u.grad), see(w.grad)
    out.backward()
    return first, u.grad, w.grad


@scenario
def retained_grad_is_not_fed_back(t):
    u = leaf(t, [1.0, 2.0])
    w = u * 2
    w.retain_grad()
    (w * w).sum().backward()
    before = see(u.grad), see(w.grad)
    (w.detach() * u).sum().backward()
    return before, u.grad, w.grad


@scenario
def prefilled_grad_is_added_to(t):
    x = leaf(t, [1.0, 2.0])
    x.grad = const(t, [10.0, 20.0])
    (x * 5).sum().backward()
    return x.grad


@scenario
def prefilled_grad_of_a_leaf_on_anothers_path(t):
    a, b = leaf(t, 2.0), leaf(t, 3.0)
    b.grad = const(t, 100.0)
    (a * b * b).backward()
    return a.grad, b.grad


@scenario
def leaf_feeds_another_leafs_path(t):
    a, b, c = leaf(t, 2.0), leaf(t, 3.0), leaf(t, 4.0)
    h = a * b
    out = (h + b) * c + b
    out.backward()
    return a.grad, b.grad, c.grad


@scenario
def three_backwards_through_leaf_chain(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    grads = []
    for scale in (1.0, 2.0, 3.0):
        ((a * b + b) * scale).sum().backward()
        grads.append((see(a.grad), see(b.grad)))
    return grads


@scenario
def zeroing_between_backwards(t):
    x = leaf(t, [1.0, 2.0])
    (x**2).sum().backward()
    x.grad.zero_()
    (x**3).sum().backward()
    after_zero = see(x.grad)
    x.grad = None
    (x**4).sum().backward()
    return after_zero, x.grad


@scenario
def grad_is_updated_in_place(t):
    x = leaf(t, [1.0, 2.0])
    (x * 2).sum().backward()
    held = x.grad
    (x * 3).sum().backward()
    return held, held is x.grad


@scenario
def grad_set_to_none_is_a_new_tensor(t):
    x = leaf(t, [1.0, 2.0])
    (x * 2).sum().backward()
    held = x.grad
    x.grad = None
    (x * 3).sum().backward()
    return held, x.grad, held is x.grad


@scenario
def grad_does_not_share_memory_with_the_argument(t):
    x = leaf(t, [1.0, 2.0])
    g = const(t, [1.0, 1.0])
    (x * 1.0).backward(g)
    x.grad.mul_(10)
    return g, x.grad


@scenario
def two_leaves_do_not_share_a_gradient(t):
    x, y = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    (x + y).sum().backward()
    x.grad.add_(1)
    return x.grad, y.grad


@scenario
def gradient_reaches_a_leaf_that_is_the_output(t):
    x = leaf(t, 2.0)
    x.backward()
    x.backward()
    return x.grad


@scenario
def leaf_output_with_gradient_argument(t):
    x = leaf(t, [1.0, 2.0])
    x.backward(const(t, [3.0, 4.0]))
    return x.grad


@scenario
def weight_tying_transposed(t):
    w = leaf(t, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    x = const(t, [[1.0, -1.0, 0.5]])
    code = (x @ w).tanh()
    (code @ w.T - x).pow(2).sum().backward()
    return w.grad


@scenario
def recurrent_weight_used_at_every_step(t):
    w = leaf(t, [[0.5, -0.2], [0.1, 0.3]])
    h = const(t, [[1.0, 2.0]])
    total = 0
    for _ in range(6):
        h = (h @ w).tanh()
        total = total + h.sum()
    total.backward()
    return w.grad, total


@scenario
def micro_batches_equal_one_batch(t):
    x = const(t, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    w1, w2 = leaf(t, [0.1, 0.2]), leaf(t, [0.1, 0.2])
    ((x @ w1) ** 2).mean().backward()
    for part in (x[:1], x[1:2], x[2:]):
        (((part @ w2) ** 2).sum() / 4).backward()
    return w1.grad, w2.grad


@scenario
def list_of_outputs_shares_one_walk(t):
    x = leaf(t, [1.0, 2.0])
    h = x.exp()
    t.autograd.backward([h.sum(), (h * h).sum()])
    return x.grad


@scenario
def list_of_outputs_with_gradients(t):
    x = leaf(t, [1.0, 2.0])
    t.autograd.backward([x * 2, x * x], [const(t, [1.0, 10.0]), const(t, [0.5, 0.25])])
    return x.grad


@scenario
def same_output_twice(t):
    x = leaf(t, 3.0)
    y = x * x
    t.autograd.backward([y, y], [const(t, 1.0), const(t, 2.0)])
    return x.grad


@scenario
def output_and_its_ancestor_together(t):
    x = leaf(t, 2.0)
    y = x * x
    z = y * y
    t.autograd.backward([y, z])
    return x.grad


@scenario
def broadcast_gradients_are_summed(t):
    a, b, c = leaf(t, [[1.0], [2.0]]), leaf(t, [3.0, 4.0, 5.0]), leaf(t, 2.0)
    (a * b + c).sum().backward()
    return a.grad, b.grad, c.grad


@scenario
def broadcast_over_leading_ones(t):
    a, b = leaf(t, [[[1.0, 2.0]]]), leaf(t, [[1.0], [2.0], [3.0]])
    (a / b - b).pow(2).sum().backward()
    return a.grad, b.grad


@scenario
def expanded_leaf_collects_all_copies(t):
    x = leaf(t, [[1.0], [2.0]])
    (x.expand(2, 4) * const(t, [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])).sum().backward()
    return x.grad


@scenario
def assigning_a_wrong_grad_is_refused(t):
    x = leaf(t, [1.0, 2.0])

    def wrong_shape():
        x.grad = const(t, [1.0])

    def wrong_dtype():
        x.grad = const(t, [1.0, 2.0], "float32")

    def not_a_tensor():
        x.grad = 1.0

    return raises(wrong_shape, "size"), raises(wrong_dtype), raises(not_a_tensor), x.grad


@scenario
def grad_does_not_require_grad(t):
    x = leaf(t, [1.0, 2.0])
    (x**3).sum().backward()
    return x.grad.requires_grad, x.grad.is_leaf, x.grad.grad_fn is None


@scenario
def parameter_updated_between_forwards(t):
    w = leaf(t, 1.0)
    losses = []
    for _ in range(4):
        loss = (w - 3) ** 2
        losses.append(see(loss))
        w.grad = None
        loss.backward()
        with t.no_grad():
            w -= 0.1 * w.grad
    return losses, w, w.grad, w.is_leaf
