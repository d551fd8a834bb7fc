"""Views and in-place changes: what a write does to values, to other views and to gradients."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario, see

MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@scenario
def write_to_a_row(t):
    x = leaf(t, MATRIX)
    y = x * 1
    y[0].mul_(10)
    (y * y).sum().backward()
    return y, x.grad


@scenario
def write_to_a_slice(t):
    x = leaf(t, MATRIX)
    y = x * 2
    part = y[:, 1:]
    part.add_(1).pow_(2)
    y.sum().backward()
    return y, part, x.grad


@scenario
def write_to_a_strided_slice(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    y = x.clone()
    y[::2].mul_(const(t, [2.0, 3.0, 4.0]))
    (y**2).sum().backward()
    return y, x.grad


@scenario
def write_through_a_transpose(t):
    x = leaf(t, MATRIX)
    y = x.exp()
    z = y.clone()
    z.t()[0].mul_(5)
    (z * y).sum().backward()
    return z, x.grad


@scenario
def write_through_a_reshape(t):
    x = leaf(t, MATRIX)
    y = x * 1
    y.view(-1)[2:4].zero_()
    (y**3).sum().backward()
    return y, x.grad


@scenario
def write_through_view_of_view_of_view(t):
    x = leaf(t, [[float(4 * i + j) for j in range(4)] for i in range(4)])
    y = x.sin()
    y[1:][:, 1:].t()[0].mul_(3)
    (y * x).sum().backward()
    return y, x.grad


@scenario
def write_through_unsqueeze_and_squeeze(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 2
    y.unsqueeze(0).unsqueeze(2).squeeze(0)[1].mul_(7)
    (y * y).sum().backward()
    return y, x.grad


@scenario
def write_through_a_diagonal(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    y.diagonal().add_(const(t, [10.0, 20.0]))
    (y * y).sum().backward()
    return y, x.grad


@scenario
def write_through_permute(t):
    x = leaf(t, [[[1.0, 2.0], [3.0, 4.0]]])
    y = x + 0
    y.permute(2, 0, 1)[1].mul_(-1)
    (y * const(t, [[[1.0, 2.0], [3.0, 4.0]]])).sum().backward()
    return y, x.grad


@scenario
def write_through_narrow(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    y = x * x
    y.narrow(0, 1, 2).mul_(2)
    y.sum().backward()
    return y, x.grad


@scenario
def view_sees_a_later_write_to_its_base(t):
    x = leaf(t, MATRIX)
    y = x * 1
    row = y[1]
    y.mul_(2)
    (row * row).sum().backward()
    return row, x.grad


@scenario
def base_written_then_view_of_it_written(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 1
    view = y[:2]
    y.mul_(3)
    view.add_(1)
    y.mul_(2)
    (view * const(t, [1.0, 10.0])).sum().backward(retain_graph=True)
    first = see(x.grad)
    y.sum().backward()
    return view, y, first, x.grad


@scenario
def two_views_written_one_after_the_other(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    y = x.clone()
    left, right = y[:3], y[1:]
    left.mul_(2)
    right.mul_(5)
    (y * y).sum().backward()
    return left, right, x.grad


@scenario
def overlapping_write_seen_by_the_other_view(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 1
    a, b = y[:2], y[1:]
    a.mul_(10)
    b.sum().backward()
    return b, x.grad


@scenario
def write_a_leaf_into_a_constant_buffer(t):
    buffer = t.zeros(3, dtype=t.float64)
    x = leaf(t, [1.0, 2.0])
    buffer[1:] = x * x
    flags = buffer.requires_grad, buffer.is_leaf
    (buffer * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return flags, buffer, x.grad


@scenario
def write_a_leaf_through_a_view_of_a_constant(t):
    buffer = t.zeros(2, 2, dtype=t.float64)
    x = leaf(t, [1.0, 2.0])
    buffer[0].copy_(x)
    buffer.t()[1].add_(x.sum())
    (buffer**2).sum().backward()
    return buffer, x.grad


@scenario
def fill_a_buffer_step_by_step(t):
    x = leaf(t, 0.5)
    outputs = t.zeros(4, dtype=t.float64)
    h = x * 1
    for i in range(4):
        h = (h * x).sin()
        outputs[i] = h
    outputs.sum().backward()
    return outputs, x.grad


@scenario
def assignment_of_a_number_blocks_the_gradient(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 2
    y[1] = 7.0
    (y * y).sum().backward()
    return y, x.grad


@scenario
def assignment_of_a_tensor_redirects_the_gradient(t):
    x, v = leaf(t, [1.0, 2.0, 3.0]), leaf(t, [10.0, 20.0])
    y = x * 2
    y[1:] = v
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def assignment_broadcasts(t):
    x, v = leaf(t, MATRIX), leaf(t, 5.0)
    y = x * 1
    y[:, 0] = v
    y[0, 1:] = v * 2
    (y * const(t, MATRIX)).sum().backward()
    return y, x.grad, v.grad


@scenario
def assignment_by_mask(t):
    x, v = leaf(t, MATRIX), leaf(t, [7.0, 8.0])
    y = x * 1
    y[const(t, [[1, 0, 0], [0, 1, 0]], "bool")] = v
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def assignment_by_index_list(t):
    x, v = leaf(t, MATRIX), leaf(t, [[7.0, 8.0, 9.0]])
    y = x * 1
    y[[1]] = v
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def copy_moves_the_gradient_to_the_source(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, 3.0)
    y = x * 2
    y.copy_(v)
    (y * const(t, [1.0, 10.0])).sum().backward()
    return y, x.grad, v.grad


@scenario
def copy_converts_dtypes(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0], "float32")
    y = x * 2
    y.copy_(v)
    (y * y).sum().backward()
    return y, v.grad, x.grad


@scenario
def fill_and_zero_cut_the_gradient(t):
    x = leaf(t, [1.0, 2.0])
    a, b = x * 2, x * 3
    a.fill_(5)
    b.zero_()
    (a + b + x).sum().backward()
    return a, b, x.grad, a.requires_grad


@scenario
def fill_with_a_tensor(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, 4.0)
    y = x * 2
    y.fill_(v)
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def masked_fill_in_place(t):
    x = leaf(t, MATRIX)
    y = x * 2
    y.masked_fill_(y > 6, -1.0)
    (y * y).sum().backward()
    return y, x.grad


@scenario
def masked_fill_with_minus_infinity_then_softmax(t):
    x = leaf(t, MATRIX)
    mask = const(t, [[0, 1, 0], [0, 0, 1]], "bool")
    p = x.masked_fill(mask, float("-inf")).softmax(dim=-1)
    (p * const(t, MATRIX)).sum().backward()
    return p, x.grad


@scenario
def chain_of_in_place_operations(t):
    x = leaf(t, [0.1, 0.2, 0.3])
    y = x * 1
    y.add_(1).mul_(2).sub_(0.5).div_(3)
    y += x
    y *= x
    y -= 1
    y /= 2
    y.sum().backward()
    return y, x.grad


@scenario
def in_place_with_a_tensor_that_requires_grad(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    y = t.ones(2, dtype=t.float64)
    y.mul_(x).add_(v).mul_(x)
    y.sum().backward()
    return y, x.grad, v.grad, y.is_leaf


@scenario
def in_place_functions_that_save_their_output(t):
    x = leaf(t, [0.1, 0.5, 0.9])
    found = []
    for name in ("exp_", "tanh_", "sigmoid_", "sqrt_", "relu_", "rsqrt_", "expm1_"):
        y = getattr(x * 1, name)()
        y.sum().backward()
        found.append((y, see(x.grad)))
    return found


@scenario
def in_place_change_of_a_saved_output(t):
    x = leaf(t, [0.1, 0.5, 0.9])
    y = (x * 1).exp_().sigmoid_().sqrt_()
    return y, raises(lambda: y.sum().backward(), "modified by an inplace operation")


@scenario
def in_place_relu(t):
    x = leaf(t, [-1.0, 0.0, 2.0])
    y = x * 3
    z = y.relu_()
    (z * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return z is y, y, x.grad


@scenario
def relu_in_place_of_a_view(t):
    x = leaf(t, [[-1.0, 2.0], [3.0, -4.0]])
    y = x * 1
    y[:, 1].relu_()
    (y * y).sum().backward()
    return y, x.grad


@scenario
def clamp_in_place(t):
    x = leaf(t, [-2.0, 0.5, 2.0])
    y = (x * 1).clamp_(-1, 1)
    (y * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return y, x.grad


@scenario
def in_place_on_a_clone_leaves_the_source(t):
    x = leaf(t, [1.0, 2.0])
    y = x.clone()
    y.mul_(5)
    (x * y).sum().backward()
    return x, y, x.grad


@scenario
def in_place_on_a_leaf_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    found = raises(lambda: x.add_(1), "leaf", "in-place")
    return found, x


@scenario
def in_place_on_a_view_of_a_leaf_is_refused(t):
    x = leaf(t, [1.0, 2.0])
    return raises(lambda: x[0].mul_(2), "leaf"), raises(lambda: x.view(2, 1).zero_(), "leaf"), x


@scenario
def assignment_into_a_leaf_is_refused(t):
    x = leaf(t, [1.0, 2.0])

    def write():
        x[0] = 5.0

    return raises(write, "leaf"), x


@scenario
def in_place_on_a_leaf_under_no_grad(t):
    x = leaf(t, [1.0, 2.0])
    with t.no_grad():
        x.mul_(3)
        x[0] = 10.0
        x[1:].add_(1)
    (x * x).sum().backward()
    return x, x.grad, x.is_leaf, x.requires_grad


@scenario
def in_place_through_data(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 3
    x.data.mul_(100)
    y.sum().backward()
    return x, y, x.grad


@scenario
def in_place_through_detach_is_noticed(t):
    x = leaf(t, [1.0, 2.0])
    y = x * x
    x.detach().mul_(100)
    return x, raises(lambda: y.sum().backward(), "modified by an inplace operation")


@scenario
def in_place_on_an_expanded_tensor_is_refused(t):
    x = leaf(t, [[1.0], [2.0]])
    y = (x * 1).expand(2, 3)
    return raises(lambda: y.add_(1), "single memory location"), y


@scenario
def in_place_on_an_output_of_unbind_is_refused(t):
    x = leaf(t, MATRIX)
    y = x * 1
    first, _ = y.unbind(0)
    return raises(lambda: first.mul_(2)), y


@scenario
def in_place_on_an_output_of_split_is_refused(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    first, _ = (x * 1).split(2)
    return raises(lambda: first.mul_(2)), first


@scenario
def in_place_on_a_chunk_of_a_constant_works(t):
    c = const(t, [1.0, 2.0, 3.0, 4.0])
    first, second = c.chunk(2)
    first.mul_(10)
    second.add_(1)
    return c, first, second


@scenario
def in_place_of_a_wider_dtype_is_refused(t):
    x = const(t, [1, 2], "int64")
    found = raises(lambda: x.mul_(0.5), "can't be cast")
    return found, x


@scenario
def in_place_that_would_grow_is_refused(t):
    x = const(t, [1.0, 2.0])
    return raises(lambda: x.add_(t.ones(2, 2, dtype=t.float64)), "shape"), x


@scenario
def in_place_needed_by_an_earlier_operation(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = y * y
    y.add_(1)
    return raises(lambda: z.sum().backward(), "modified by an inplace operation"), z


@scenario
def in_place_not_needed_by_an_earlier_operation(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 1
    z = y + 5
    y.mul_(2)
    (z * y).sum().backward()
    return z, y, x.grad


@scenario
def view_of_saved_tensor_written(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 1
    z = y.sin()
    y[:1].zero_()
    return raises(lambda: z.sum().backward(), "modified by an inplace operation")


@scenario
def base_of_a_saved_view_written(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x * 1
    z = y[1:] ** 2
    y.mul_(2)
    return raises(lambda: z.sum().backward(), "modified by an inplace operation")


@scenario
def in_place_makes_a_constant_require_grad(t):
    c, x = const(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    view = c[:1]
    c.mul_(x)
    flags = c.requires_grad, c.is_leaf, view.requires_grad, view.is_leaf
    view.sum().backward()
    return flags, c, x.grad


@scenario
def writing_a_view_makes_its_base_require_grad(t):
    c, x = const(t, [1.0, 2.0]), leaf(t, [3.0])
    c[:1].mul_(x)
    flag = c.requires_grad
    (c * c).sum().backward()
    return flag, c, x.grad


@scenario
def retain_grad_follows_an_in_place_change(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return y.grad, x.grad


@scenario
def transpose_in_place_of_a_matrix(t):
    x = leaf(t, MATRIX)
    y = x * 1
    y.t_()
    (y * const(t, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
    return y, x.grad


@scenario
def unsqueeze_in_place(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.unsqueeze_(0)
    (y @ y.t()).sum().backward()
    return y, x.grad


@scenario
def detach_in_place_cuts_history(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    y.detach_()
    flags = y.requires_grad, y.is_leaf
    (y * x).sum().backward()
    return flags, x.grad


@scenario
def detach_shares_memory(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    d = y.detach()
    d[0] = 50.0
    y.sum().backward()
    return y, d, x.grad


@scenario
def detached_view_of_a_view(t):
    x = leaf(t, MATRIX)
    y = x * 1
    d = y[0].detach()
    (y.sum() * d.sum()).backward()
    return d.requires_grad, x.grad


@scenario
def reshape_that_copies_is_no_view(t):
    x = leaf(t, MATRIX)
    y = x * 1
    flat = y.t().reshape(-1)
    flat.mul_(10)
    (y.sum() + flat.sum()).backward()
    return y, flat, x.grad


@scenario
def contiguous_of_a_transpose_is_a_copy(t):
    x = leaf(t, MATRIX)
    y = x * 1
    c = y.t().contiguous()
    c.mul_(2)
    (c.sum() + (y * y).sum()).backward()
    return y, c, x.grad


@scenario
def view_made_under_no_grad_then_written(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    with t.no_grad():
        v = y[:1]
    return raises(lambda: v.mul_(2)), y


@scenario
def write_under_no_grad_to_a_computed_tensor(t):
    x = leaf(t, [1.0, 2.0])
    y = x * 2
    with t.no_grad():
        y.mul_(10)
    (y + 1).sum().backward()
    return y, x.grad


@scenario
def swap_rows_with_a_clone(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    old = y[0].clone()
    y[0] = y[1]
    y[1] = old
    (y * const(t, [[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return y, x.grad


@scenario
def out_argument_with_gradients_is_refused(t):
    x, out = leaf(t, [1.0]), t.zeros(1, dtype=t.float64)
    return raises(lambda: t.exp(x, out=out), "out="), out


@scenario
def out_argument_without_gradients(t):
    x, out = const(t, [1.0, 2.0]), t.zeros(2, dtype=t.float64)
    result = t.mul(x, 3, out=out)
    return out, result is out


@scenario
def index_add_and_index_fill_in_place(t):
    x, v = leaf(t, MATRIX), leaf(t, [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    y = x * 1
    y.index_add_(0, const(t, [0, 0], "int64"), v)
    y.index_fill_(1, const(t, [2], "int64"), 0.0)
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def scatter_in_place(t):
    x, v = leaf(t, MATRIX), leaf(t, [[10.0], [20.0]])
    y = x * 1
    y.scatter_(1, const(t, [[2], [0]], "int64"), v)
    (y * y).sum().backward()
    return y, x.grad, v.grad


@scenario
def triangular_and_other_in_place_functions(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    y.tril_().neg_().abs_().add_(x, alpha=2).lerp_(x, 0.25)
    y.sum().backward()
    return y, x.grad


@scenario
def addcmul_addcdiv_in_place(t):
    x, a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0]), leaf(t, [5.0, 6.0])
    y = x * 1
    y.addcmul_(a, b, value=2).addcdiv_(a, b, value=-1)
    (y * y).sum().backward()
    return y, x.grad, a.grad, b.grad
