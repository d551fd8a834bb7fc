"""Writes to what a mask selects, in compiled functions."""

import pytest

import adjoint as ad
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native
w = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)


def number(y):
    y[y < 0] = 0


def scalar(y):
    y[y < 1] = w.sum()


def rows(y):
    y[y.sum(1) > 0] = w


def one_row(y):
    y[y.sum(1) > 0] = ad.full((1, 3), 2.0)


def columns(y):
    y[..., y[0] > 0] = 1


def part(y):
    y[:, 1:][y[:, 1:] < 1] = 7


def bytes_as_mask(y):
    y[(y < 0).to(ad.uint8)] = 4


@pytest.mark.parametrize("write", [number, scalar, rows, one_row, columns, part, bytes_as_mask])
def test_a_masked_write_is_captured_for_any_mask(write):
    def function(x):
        y = x * w
        if write is bytes_as_mask:
            y = x * w.detach() + w
        write(y)
        return y, ad.autograd.grad(y.square().sum(), w)[0]

    compiled = ad.compile(function)
    for values in ([[1.0, -1.0, 2.0], [0.0, 3.0, -9.0]], [[-1.0] * 3] * 2, [[1.0] * 3] * 2):
        x = ad.tensor(values)
        for found, wanted in zip(compiled(x), function(x), strict=True):
            ad.testing.assert_close(found, wanted)
    assert compiled.reasons == ["first call"]


def test_parameters_and_arguments_are_written():
    state = ad.arange(4.0)

    @ad.compile
    def function(x, mask):
        x[mask] = -1
        state[state > 2] = 0

    x = ad.ones(4)
    function(x, ad.tensor([True, False, False, True]))
    assert x.tolist() == [-1.0, 1.0, 1.0, -1.0]
    assert state.tolist() == [0.0, 1.0, 2.0, 0.0]


def test_other_shapes_and_dtypes_are_refused_as_eagerly():
    def function(value):
        y = x * 0
        y[y.sum(1) == 0] = value
        return y

    x = ad.ones(2, 3)
    for value in (ad.ones(4), ad.ones(3, dtype=ad.float64)):
        with pytest.raises(Exception) as eager:
            function(value)
        with pytest.raises(type(eager.value)):
            ad.compile(function)(value)
    with pytest.raises(Unsupported, match=r"reads a value.*where.*test_masks.py:\d+, in function"):
        ad.compile(function)(ad.ones(2, 3))  # a row for each


# ---- what is computed of what a mask selects -----------------------------------------------------

s = ad.tensor(2.0, requires_grad=True)


def add(y):
    y[y > 1] += 1


def multiply(y):
    y[y > 1] *= s


def mask_again(y):
    y[y > 1] = y[y > 1] * 2 + s


def row_for_all(y):
    y[y.sum(1) > 0] += w


def reciprocal(y):  # infinite where nothing is selected, as are its gradients
    mask = y != 0
    y[mask] = s / (1 / y[mask])


def two_tensors(y):
    z, mask = y * 3, y < 0
    y[mask] = (z[mask] - y[mask]).exp().clamp(max=3.0)


def in_place(y):
    mask = y > 0
    t = y[mask]
    t *= 2
    t += s
    t.sqrt_()
    y[mask] = t


def part_of_it(y):
    y[:, 1:][y[:, 1:] > 0] /= s


def behind(y):
    y[:, y[0] > 0] -= 5


def composite(y):
    y[y > 0] = ad.nn.functional.gelu(y[y > 0])


def detached(y):
    mask = y > 0
    y[mask] = y[mask].detach() * 2 + y[mask]


def in_a_branch(y):
    def write(y):
        y = y.clone()
        y[y > 0] *= 3
        return y

    y.copy_(ad.cond(y.sum() > 0, write, lambda y: y * 2, (y.clone(),)))


COMPUTED = [
    add, multiply, mask_again, row_for_all, reciprocal, two_tensors, in_place, part_of_it, behind,
    composite, detached, in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("write", COMPUTED)
def test_arithmetic_on_what_a_mask_selects_is_captured_for_any_mask(write):
    def function(x):
        y = x * w
        write(y)
        found = ad.autograd.grad(y.square().sum(), [w, s], allow_unused=True)
        return y, *[g for g in found if g is not None]

    compiled = ad.compile(function)
    for values in ([[1.0, -1.0, 2.0], [0.0, 3.0, -9.0]], [[-1.0] * 3] * 2, [[1.0] * 3] * 2):
        x = ad.tensor(values)
        for found, wanted in zip(compiled(x), function(x), strict=True):
            ad.testing.assert_close(found, wanted)
    assert compiled.reasons == ["first call"]


@pytest.mark.parametrize("dtype", [ad.int64, ad.bool, ad.bfloat16, ad.float64])
@pytest.mark.parametrize("size", [0, 1, 15])
def test_other_dtypes_and_sizes(dtype, size):
    def function(x):
        y = x.clone()
        y[y > 1] *= True
        y[y == 1] = y[y == 1] * y[y == 1]
        return y

    x = (ad.arange(size) % 5).to(dtype)
    assert ad.compile(function)(x).tolist() == function(x).tolist()


def test_an_integer_division_by_zero_is_raised_for_what_is_selected_only():
    def function(x):
        y = x.clone()
        mask = y > 0
        y[mask] //= y[mask] - 4
        return y

    compiled = ad.compile(function)
    for values in ([5, 4], [5, 0, -3], [0, 0]):
        results = []
        for call in (function, compiled):
            try:
                results.append(call(ad.tensor(values)).tolist())
            except Exception as error:
                results.append((type(error), str(error)))
        assert results[0] == results[1]


REFUSED = [
    lambda x: x[x > 0].sum(),
    lambda x: x[x > 0],
    lambda x: x[x > 0].mean(),
    lambda x: len(x[x > 0]),
    lambda x: x[x > 0].shape[0] * 2,
    lambda x: x[x > 0].numel(),
    lambda x: ad.zeros_like(x[x > 0]),
    lambda x: ad.softmax(x[x > 0], 0),
    lambda x: x[x > 0][0],
    lambda x: x[x > 0].reshape(-1),
    lambda x: x[x > 0] + x[x < 0],
    lambda x: x[x > 0] + ad.ones(2),
    lambda x: x.add_(x[x > 0]),
    lambda x: x.copy_(x[x > 0]),
    lambda x: list(x[x > 0]),
    lambda x: x[x > 0].tolist(),
    lambda x: (x * w.detach())[x > 0].requires_grad_() + 1,
    lambda x: (x * w)[x > 0].register_hook(print),
    lambda x: (x * w)[x > 0].retain_grad(),
    lambda x: x.__setitem__(x > 0, x[x < 0]),
    lambda x: x.__setitem__(x > 0, ad.ones(2)),
    lambda x: x[x > 0, None].sum(),
    lambda x: x[None, x > 0] * 2,
    lambda x: ad.cond(x.sum() > 0, lambda y: y[y > 0], lambda y: y, (x,)),
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_needs_to_know_how_much_is_selected_is_refused(function):
    with pytest.raises(Unsupported, match=r"reads a value.*where"):
        ad.compile(function)(ad.tensor([1.0, -2.0, 3.0]))


# ---- masks from outside --------------------------------------------------------------------------


def test_a_mask_from_outside_has_known_values():
    keep = ad.tensor([True, False, True])

    @ad.compile
    def function(x):
        y = x * w
        chosen, others = y[keep], y[~keep]
        y[keep] = ad.ones(chosen.shape[0]) * 5
        return chosen, others, y, ad.autograd.grad(chosen.square().sum(), w)[0]

    x = ad.ones(3)
    for values in ([True, False, True], [True, True, True], [False] * 3):
        keep.copy_(ad.tensor(values))
        for found, wanted in zip(function(x), function.function(x), strict=True):
            ad.testing.assert_close(found, wanted)
    assert len(function.reasons) == 3
    assert function.reasons[1] == "values of a tensor of shape (3,) that selects were changed"
    keep.copy_(ad.tensor([True, True, True]))
    function(x)
    assert len(function.reasons) == 3  # that program was kept


def test_a_mask_from_outside_that_changes_is_read_in_each_call_where_selects_are_enough():
    keep = ad.tensor([True, False, True])

    @ad.compile
    def by_others(x):
        y = x * 1
        y[keep] *= 3
        return y

    @ad.compile
    def by_itself(x):
        y = by_others.function(x)
        keep.logical_not_()
        return y

    x = ad.ones(3)
    for n in range(6):
        keep[n % 3] = not keep[n % 3].item()
        assert by_others(x).tolist() == by_others.function(x).tolist()
    assert len(by_others.programs) == 2
    for _ in range(4):
        wanted = by_others.function(x).tolist(), keep.logical_not().tolist()
        assert (by_itself(x).tolist(), keep.tolist()) == wanted
    assert by_itself.reasons == ["first call"]


def test_masks_of_arguments_and_of_states_of_floats_are_unknown():
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(lambda x, mask: x[mask].sum())(ad.ones(3), ad.ones(3) > 0)
    with pytest.raises(Unsupported, match="reads a value"):
        ad.compile(lambda x: x[w > 0].sum())(ad.ones(3))
    compiled = ad.compile(lambda x: x[ad.tensor([True, False, True])])
    assert compiled(ad.arange(3.0)).tolist() == [0.0, 2.0]
