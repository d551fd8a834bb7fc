"""Reading and writing by index: repeats accumulate, masks, gather and scatter, rearrangements."""

from __future__ import annotations

from .harness import const, leaf, raises, scenario

MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@scenario
def repeated_indices_accumulate(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    (x[[0, 0, 2, 0]] * const(t, [1.0, 10.0, 100.0, 1000.0])).sum().backward()
    return x.grad


@scenario
def tensor_index(t):
    x = leaf(t, MATRIX)
    y = x[const(t, [[1, 0], [1, 1]], "int64")]
    (y**2).sum().backward()
    return y, x.grad


@scenario
def two_index_lists(t):
    x = leaf(t, MATRIX)
    y = x[[0, 1, 1], [2, 0, 0]]
    (y * const(t, [1.0, 2.0, 3.0])).sum().backward()
    return y, x.grad


@scenario
def index_list_beside_slices(t):
    x = leaf(
        t, [[[float(12 * i + 4 * j + k) for k in range(4)] for j in range(3)] for i in range(2)]
    )
    a, b, c = x[:, [0, 2, 2]], x[[1], :, 1:3], x[0, :, [3, 0]]
    (a.sum() * 2 + (b**2).sum() + (c * 3).sum()).backward()
    return a, b, c, x.grad


@scenario
def negative_indices_and_steps(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    (x[-1] * x[-2:].sum() + x[::2].prod() + x[[-1, -5]].sum()).backward()
    return x.grad


@scenario
def ellipsis_and_none(t):
    x = leaf(t, MATRIX)
    y = x[..., 0, None] * x[None, :, 1:]
    y.sum().backward()
    return y, x.grad


@scenario
def boolean_mask(t):
    x = leaf(t, MATRIX)
    (x[x > 2.5] ** 2).sum().backward()
    return x.grad


@scenario
def boolean_mask_of_rows(t):
    x = leaf(t, MATRIX)
    (x[const(t, [False, True], "bool")] ** 2).sum().backward()
    return x.grad


@scenario
def mask_that_selects_nothing(t):
    x = leaf(t, MATRIX)
    y = x[x > 100]
    (y.sum() + x.sum()).backward()
    return y, x.grad


@scenario
def index_out_of_range(t):
    x = leaf(t, MATRIX)
    return (
        raises(lambda: x[2], "out of"),
        raises(lambda: x[[0, 5]], "out of"),
        raises(lambda: x[0, 0, 0]),
    )


@scenario
def slice_then_write_elsewhere(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    y = x * 1
    head = y[:2] * 2
    y[2:] = head
    (y * y).sum().backward()
    return y, x.grad


@scenario
def gather_with_repeats(t):
    x = leaf(t, MATRIX)
    y = x.gather(1, const(t, [[0, 0, 2], [1, 1, 1]], "int64"))
    (y * const(t, MATRIX)).sum().backward()
    return y, x.grad


@scenario
def gather_of_fewer_rows(t):
    x = leaf(t, MATRIX)
    y = x.gather(0, const(t, [[1, 0]], "int64"))
    (y**2).sum().backward()
    return y, x.grad


@scenario
def take_along_dim_and_take(t):
    x = leaf(t, MATRIX)
    order = x.detach().argsort(dim=1, descending=True)
    (t.take_along_dim(x, order, dim=1) * const(t, MATRIX)).sum().backward()
    first = x.grad.clone()
    (t.take(x, const(t, [0, 5, 5], "int64")) ** 2).sum().backward()
    return first, x.grad


@scenario
def scatter_replaces(t):
    x, v = leaf(t, MATRIX), leaf(t, [[10.0, 20.0], [30.0, 40.0]])
    y = x.scatter(1, const(t, [[0, 2], [1, 0]], "int64"), v)
    (y**2).sum().backward()
    return y, x.grad, v.grad


@scenario
def scatter_of_a_number(t):
    x = leaf(t, MATRIX)
    y = x.scatter(1, const(t, [[0], [1]], "int64"), 9.0)
    (y**2).sum().backward()
    return y, x.grad


@scenario
def scatter_add_accumulates(t):
    x, v = leaf(t, [0.0, 1.0, 2.0]), leaf(t, [1.0, 2.0, 3.0, 4.0])
    y = x.scatter_add(0, const(t, [0, 0, 2, 0], "int64"), v)
    (y**2).sum().backward()
    return y, x.grad, v.grad


@scenario
def scatter_reduce_families(t):
    found = []
    for reduce in ("sum", "mean", "amax", "amin", "prod"):
        x, v = leaf(t, [1.0, 2.0, 3.0]), leaf(t, [4.0, 0.5, 3.0, 2.0])
        y = x.scatter_reduce(0, const(t, [0, 0, 2, 1], "int64"), v, reduce=reduce)
        (y * const(t, [1.0, 2.0, 3.0])).sum().backward()
        found.append((y, x.grad, v.grad))
    return found


@scenario
def index_select_and_index_add(t):
    x, v = leaf(t, MATRIX), leaf(t, MATRIX)
    rows = const(t, [1, 1], "int64")
    y = x.index_select(0, rows) * 2
    z = t.zeros(2, 3, dtype=t.float64).index_add(0, rows, v * y)
    z.sum().backward()
    return z, x.grad, v.grad


@scenario
def index_put_replaces_and_accumulates(t):
    x, v = leaf(t, [1.0, 2.0, 3.0]), leaf(t, [10.0, 20.0])
    index = (const(t, [1, 1], "int64"),)
    y = x.index_put(index, v, accumulate=True)
    z = x.index_put((const(t, [0, 2], "int64"),), v)
    ((y**2).sum() + (z**2).sum()).backward()
    return y, z, x.grad, v.grad


@scenario
def index_copy_and_index_fill(t):
    x, v = leaf(t, MATRIX), leaf(t, [[7.0], [8.0]])
    y = x.index_copy(1, const(t, [2], "int64"), v).index_fill(0, const(t, [0], "int64"), 3.0)
    (y**2).sum().backward()
    return y, x.grad, v.grad


@scenario
def masked_select_and_masked_scatter(t):
    x, v = leaf(t, MATRIX), leaf(t, [10.0, 20.0, 30.0, 40.0])
    mask = const(t, [[True, False, True], [False, False, True]], "bool")
    picked = x.masked_select(mask)
    filled = x.masked_scatter(mask, v)
    ((picked**2).sum() + (filled**2).sum()).backward()
    return picked, filled, x.grad, v.grad


@scenario
def where_with_broadcasting(t):
    a, b = leaf(t, [[1.0], [2.0]]), leaf(t, [10.0, 20.0, 30.0])
    y = t.where(const(t, [[True, False, True], [False, True, True]], "bool"), a, b)
    (y**2).sum().backward()
    return y, a.grad, b.grad


@scenario
def where_with_numbers(t):
    x = leaf(t, [-1.0, 2.0])
    y = t.where(x > 0, x, 0.0) + t.where(x > 0, 1.0, x * 3)
    y.sum().backward()
    return y, x.grad


@scenario
def diagonal_diag_and_trace(t):
    x, v = leaf(t, MATRIX), leaf(t, [1.0, 2.0])
    ((x.diagonal(1) ** 2).sum() + (t.diag(v) @ x).sum() + x[:, :2].trace() ** 2).backward()
    return x.grad, v.grad


@scenario
def triangles(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    ((x.tril() ** 2).sum() + (x.triu(1) ** 3).sum()).backward()
    return x.grad


@scenario
def unfold_overlapping_windows(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    y = x.unfold(0, 3, 1)
    (y * const(t, [1.0, 10.0, 100.0])).sum().backward()
    return y, x.grad


@scenario
def as_strided_overlapping(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0])
    y = (x * 1).as_strided((3, 2), (1, 1))
    (y**2).sum().backward()
    return y, x.grad


@scenario
def flips_rolls_rotations(t):
    x = leaf(t, MATRIX)
    y = x.flip(1) + x.roll((1, 1), (0, 1)) + t.rot90(x, 2)
    (y * const(t, MATRIX)).sum().backward()
    return y, x.grad


@scenario
def repeat_tile_and_interleave(t):
    x = leaf(t, [1.0, 2.0])
    parts = [x.repeat(2, 2).flatten(), t.tile(x, (3,)), x.repeat_interleave(2)]
    weights = [float(i) for i in range(18)]
    (t.cat(parts) * const(t, weights)).sum().backward()
    return t.cat(parts), x.grad


@scenario
def repeat_interleave_with_counts(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x.repeat_interleave(const(t, [2, 0, 3], "int64"))
    (y**2).sum().backward()
    return y, x.grad


@scenario
def movedim_transpose_flatten(t):
    x = leaf(t, [[MATRIX[0], MATRIX[1]]])
    y = x.movedim(0, -1).transpose(0, 1).flatten(1).unflatten(1, (2, 1))
    (y * const(t, [[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]])).sum().backward()
    return y, x.grad


@scenario
def narrow_select_and_unbind(t):
    x = leaf(t, MATRIX)
    (x.narrow(1, 1, 2).prod() + x.select(0, 1).sum() ** 2 + x.unbind(1)[2].sum()).backward()
    return x.grad


@scenario
def hstack_vstack_dstack(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    parts = [
        t.hstack([a, b]).sum(),
        (t.vstack([a, b]) ** 2).sum(),
        (t.stack([a, b], -1)[0] ** 3).sum(),
    ]
    sum(parts[1:], parts[0]).backward()
    return parts, a.grad, b.grad


@scenario
def chunks_of_uneven_size(t):
    x = leaf(t, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    parts = x.chunk(3)
    sum(p.prod() * (i + 1) for i, p in enumerate(parts)).backward()
    return [p.detach() for p in parts], x.grad


@scenario
def pads_of_every_kind(t):
    found = []
    for mode in ("constant", "reflect", "replicate", "circular"):
        x = leaf(t, [[1.0, 2.0, 3.0, 4.0]])
        y = t.nn.functional.pad(x, (2, 1), mode=mode)
        (y * const(t, [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]])).sum().backward()
        found.append((y, x.grad))
    return found


@scenario
def one_hot_product_picks_rows(t):
    table = leaf(t, MATRIX)
    codes = t.nn.functional.one_hot(const(t, [1, 0, 1], "int64"), 2).to(t.float64)
    (codes @ table * const(t, [[1.0, 2.0, 3.0]] * 3)).sum().backward()
    return table.grad


@scenario
def integer_results_of_argmax_feed_gather(t):
    x = leaf(t, [[1.0, 5.0, 2.0], [7.0, 3.0, 0.0]])
    best = x.argmax(dim=1, keepdim=True)
    (x.gather(1, best) ** 2).sum().backward()
    return best, x.grad
