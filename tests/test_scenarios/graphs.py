"""Shapes of graphs: diamonds, fan-out and fan-in, depth, unused parts, joins and splits."""

from __future__ import annotations

from .harness import const, leaf, scenario, see


@scenario
def diamond(t):
    x = leaf(t, 2.0)
    a = x * 3
    b, c = a.sin(), a.cos()
    (b * c).backward()
    return x.grad


@scenario
def diamonds_10000_deep(t):
    x = leaf(t, 1.0)
    y = x
    for _ in range(10_000):
        y = y * 0.5 + y * 0.5
    y.backward()
    return y, x.grad


@scenario
def chain_20000_deep(t):
    x = leaf(t, [1.0, -1.0])
    y = x
    for _ in range(20_000):
        y = y + 0.001
    (y * y).sum().backward()
    return y, x.grad


@scenario
def fan_out_to_1000(t):
    x = leaf(t, [1.0, 2.0])
    parts = [x * float(i) for i in range(1000)]
    sum(parts[1:], parts[0]).sum().backward()
    return x.grad


@scenario
def fan_in_of_500_leaves(t):
    leaves = [leaf(t, float(i % 7)) for i in range(500)]
    total = leaves[0] * 1
    for i, x in enumerate(leaves[1:], 2):
        total = total + x * x * i
    total.backward()
    return [x.grad for x in leaves]


@scenario
def fan_out_and_in_through_stack(t):
    x = leaf(t, [0.1, 0.2, 0.3])
    t.stack([x * i for i in range(5)]).prod(dim=0).sum().backward()
    y = leaf(t, [0.1, 0.2, 0.3])
    t.stack([y + i for i in range(5)]).logsumexp(0).sum().backward()
    return x.grad, y.grad


@scenario
def nested_diamonds(t):
    x = leaf(t, [0.3, -0.4])
    a = x.tanh()
    b = a * x
    c = a + b
    d = b * c + a
    e = (c - d) * (a + x)
    (e * b).sum().backward()
    return x.grad


@scenario
def residual_blocks(t):
    x = leaf(t, [[0.1, 0.2], [0.3, 0.4]])
    w = [leaf(t, [[0.1 * i, 0.2], [-0.3, 0.4]]) for i in range(5)]
    h = x
    for each in w:
        h = h + (h @ each).tanh()
    h.sum().backward()
    return x.grad, [each.grad for each in w]


@scenario
def dense_connections(t):
    x = leaf(t, [0.5, 0.25])
    outputs = [x]
    for _ in range(6):
        outputs.append(sum(outputs[1:], outputs[0]).sin())
    outputs[-1].sum().backward()
    return x.grad


@scenario
def unused_parameter_has_no_grad(t):
    used, unused = leaf(t, 1.0), leaf(t, 2.0)
    dead_end = unused * 3
    (used * 2).backward()
    return used.grad, unused.grad, dead_end.requires_grad


@scenario
def multiplied_by_zero_is_used(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    (x * 0 + y).backward()
    return x.grad, y.grad


@scenario
def two_disjoint_graphs(t):
    x, y = leaf(t, 2.0), leaf(t, 3.0)
    a, b = x * x, y * y
    a.backward()
    first = see(x.grad), see(y.grad)
    b.backward()
    return first, x.grad, y.grad


@scenario
def branch_kept_after_the_other_was_used(t):
    x = leaf(t, 2.0)
    a, b = x * x, x.exp()
    a.backward()
    b.backward()
    return x.grad


@scenario
def one_output_of_several_is_used(t):
    x = leaf(t, [[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]])
    values, indices = x.max(dim=1)
    (values * const(t, [1.0, 10.0])).sum().backward()
    return x.grad, indices, indices.requires_grad


@scenario
def both_outputs_are_used(t):
    x = leaf(t, [[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]])
    var, mean = t.var_mean(x, dim=1)
    (var * 2 + mean * 3).sum().backward()
    return x.grad


@scenario
def one_chunk_of_three_is_used(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    _, middle, _ = x.chunk(3)
    (middle**2).sum().backward()
    return x.grad


@scenario
def cat_split_roundtrip(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0, 5.0])
    joined = t.cat([a, b, a])
    left, right = joined.split([3, 4])
    ((left**2).sum() + (right**3).sum()).backward()
    return a.grad, b.grad


@scenario
def cat_with_itself(t):
    x = leaf(t, [[1.0, 2.0]])
    (t.cat([x, x, x * 2], dim=0) * const(t, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
    return x.grad


@scenario
def cat_of_leaf_and_constant(t):
    x, c = leaf(t, [[1.0], [2.0]]), const(t, [[3.0], [4.0]])
    y = t.cat([c, x], dim=1)
    (y * y).sum().backward()
    return x.grad, c.grad, y.requires_grad


@scenario
def stack_and_unbind(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    rows = t.stack([a, b], dim=1).unbind(0)
    (rows[0] * rows[1]).sum().backward()
    return a.grad, b.grad


@scenario
def split_with_uneven_sizes(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    parts = x.split(2)
    (parts[0].sum() * parts[2].sum() + parts[1].prod()).backward()
    return len(parts), x.grad


@scenario
def graph_survives_the_outputs_name(t):
    x = leaf(t, 2.0)
    y = x * x
    z = y * 3
    del y
    z.backward()
    return x.grad


@scenario
def intermediate_grad_is_none(t):
    x = leaf(t, 2.0)
    y = x * x
    (y * 2).backward()
    return x.grad, y.is_leaf, y.retains_grad


@scenario
def retain_grad_on_several_levels(t):
    x = leaf(t, [1.0, 2.0])
    a = x * 2
    b = a.exp()
    c = b.log()
    for each in (a, b, c):
        each.retain_grad()
    (c * a).sum().backward()
    return x.grad, a.grad, b.grad, c.grad


@scenario
def retain_grad_twice_and_on_a_leaf(t):
    x = leaf(t, [1.0, 2.0])
    x.retain_grad()
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.sum().backward()
    return x.grad, y.grad, x.retains_grad, y.retains_grad


@scenario
def retained_grad_accumulates_over_backwards(t):
    x = leaf(t, 2.0)
    y = x * 3
    y.retain_grad()
    (y * y).backward(retain_graph=True)
    first = see(y.grad)
    (y * 5).backward()
    return first, y.grad, x.grad


@scenario
def python_control_flow(t):
    x = leaf(t, [1.0, -2.0, 3.0])
    total = 0
    for i in range(3):
        element = x[i]
        total = total + (element * 2 if element > 0 else element**2)
    total.backward()
    return x.grad, total


@scenario
def reuse_after_leaf_update_under_no_grad(t):
    w, x = leaf(t, 2.0), leaf(t, 3.0)
    y = w + x
    with t.no_grad():
        w.add_(10)
    (y * 2).backward()
    return w, y, w.grad, x.grad


@scenario
def properties_of_leaves_and_results(t):
    x, c = leaf(t, [1.0]), const(t, [1.0])
    y, z = x * 2, c * 2
    return [(v.is_leaf, v.requires_grad, v.grad_fn is None) for v in (x, c, y, z)]


@scenario
def output_unrelated_to_constant_inputs(t):
    x, c = leaf(t, [1.0, 2.0]), const(t, [3.0, 4.0])
    y = (x * c).sum() + (c * c).sum()
    y.backward()
    return x.grad, c.grad


@scenario
def wide_mlp_with_bias(t):
    x = const(t, [[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]])
    w1, b1 = leaf(t, [[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]]), leaf(t, [0.1, 0.2, 0.3])
    w2, b2 = leaf(t, [[1.0], [-1.0], [0.5]]), leaf(t, [0.0])
    y = (x @ w1 + b1).relu() @ w2 + b2
    (y.squeeze(-1) - const(t, [1.0, 2.0, 3.0])).pow(2).mean().backward()
    return [p.grad for p in (w1, b1, w2, b2)]
