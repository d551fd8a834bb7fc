"""Indexing beside PyTorch: reading, writing, gradients of base and value, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad

torch = pytest.importorskip("torch")

FEW = settings(max_examples=150, deadline=None)


def both(array, requires_grad=False):
    """The same values as a tensor of ours and of PyTorch's."""
    ours = ad.tensor(array)
    theirs = torch.tensor(array)
    if requires_grad:
        ours, theirs = ours.requires_grad_(), theirs.requires_grad_()
    return ours, theirs


def assert_same(ours, theirs, exact=True):
    """The same values, shape and dtype; where `exact` bit for bit."""
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    if exact:
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


def distinct(shape, dtype=np.float64):
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def translate(index, library):
    """An index of plain values with ("tensor", nested list) for index tensors."""
    if isinstance(index, tuple) and len(index) == 2 and index[0] == "tensor":
        make = ad.tensor if library is ad else torch.tensor
        values = np.array(index[1])
        return make(values if values.size else values.astype(np.int64))
    if isinstance(index, tuple):
        return tuple(translate(each, library) for each in index)
    return index


@st.composite
def shapes_and_indices(draw, advanced=True):
    """A shape, and an index expression that fits it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=4)))
    common = draw(st.sampled_from([(2,), (1,), (2, 2), (3, 1)]))
    index = []
    axis = 0
    seen_ellipsis = False
    while True:
        kinds = ["none"] + ["stop"] * 2
        if not seen_ellipsis:
            kinds.append("ellipsis")
        if axis < len(shape):
            kinds += ["int", "slice", "slice"]
            if advanced:
                kinds += ["tensor", "list", "mask", "zero_dim", "bool"]
        kind = draw(st.sampled_from(kinds))
        if kind == "stop" or len(index) > 6:
            break
        if kind == "none":
            index.append(None)
        elif kind == "ellipsis":
            index.append(Ellipsis)
            seen_ellipsis = True
            axis = axis + draw(st.integers(0, len(shape) - axis))
            left = axis  # what the ellipsis stands for is known only at the end
            rest = len(shape) - left
            for _ in range(rest):
                if draw(st.booleans()):
                    index.append(slice(None, None, draw(st.integers(1, 2))))
                else:
                    index.append(draw(st.integers(-shape[axis], shape[axis] - 1)))
                axis += 1
            break
        elif kind == "bool":
            index.append(draw(st.booleans()))
        else:
            size = shape[axis]
            if kind == "int":
                index.append(draw(st.integers(-size, size - 1)))
            elif kind == "zero_dim":
                index.append(("tensor", draw(st.integers(-size, size - 1))))
            elif kind == "slice":
                bound = st.none() | st.integers(-size - 1, size + 1)
                index.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
            elif kind in ("tensor", "list"):
                values = np.array(
                    draw(
                        st.lists(
                            st.integers(-size, size - 1),
                            min_size=int(np.prod(common)),
                            max_size=int(np.prod(common)),
                        )
                    )
                ).reshape(common)
                index.append(("tensor", values.tolist()) if kind == "tensor" else values.tolist())
            else:
                dims = draw(st.integers(1, len(shape) - axis))
                count = int(np.prod(shape[axis : axis + dims]))
                flat = draw(st.lists(st.booleans(), min_size=count, max_size=count))
                mask = np.array(flat).reshape(shape[axis : axis + dims])
                index.append(("tensor", mask.tolist()))
                axis += dims - 1
            axis += 1
    return shape, tuple(index)


def run(function):
    """The result, or the exception."""
    try:
        return function(), None
    except Exception as error:
        return None, error


@given(shapes_and_indices())
@FEW
def test_reading_equals_pytorch_with_gradient(case):
    shape, index = case
    ours, theirs = both(distinct(shape), requires_grad=True)
    expected, error = run(lambda: theirs[translate(index, torch)])
    if error is not None:
        with pytest.raises(type(error)):
            ours[translate(index, ad)]
        return
    found = ours[translate(index, ad)]
    assert_same(found, expected)
    weight = distinct(expected.shape)
    (found * ad.tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    assert_same(ours.grad, theirs.grad)


@given(shapes_and_indices(advanced=False))
@FEW
def test_basic_indexing_shares_storage_with_pytorchs_strides(case):
    shape, index = case
    ours, theirs = both(distinct(shape))
    found, expected = ours[index], theirs[index]
    assert_same(found, expected)
    if expected.numel():
        assert found.data_ptr() - ours.data_ptr() == expected.data_ptr() - theirs.data_ptr()
        assert found.storage_offset() == expected.storage_offset()
        for size, a, b in zip(expected.shape, found.stride(), expected.stride(), strict=True):
            assert size == 1 or a == b
    assert found.is_contiguous() == expected.is_contiguous()
    assert found._base is ours


@given(
    shapes_and_indices(), st.sampled_from(["number", "full", "one", "zero_dim", "row"]), st.data()
)
@FEW
def test_writing_equals_pytorch_with_gradients_of_base_and_value(case, kind, data):
    shape, index = case
    ours, theirs = both(distinct(shape), requires_grad=True)
    selected, error = run(lambda: theirs.detach()[translate(index, torch)])
    if error is not None:
        return
    wanted = tuple(selected.shape)
    value_shape = {
        "number": None,
        "full": wanted,
        "one": (1,) * len(wanted),
        "zero_dim": (),
        "row": wanted[-1:],
    }[kind]
    if value_shape is None:
        values = (-7.0, -7.0)
    else:
        # Where an index repeats an element, which value stays is not defined: let them be equal.
        values = both(np.full(value_shape, -7.0), requires_grad=True)
    a, b = ours * 1, theirs * 1
    _, error = run(lambda: b.__setitem__(translate(index, torch), values[1]))
    if error is not None:
        with pytest.raises(type(error)):
            a[translate(index, ad)] = values[0]
        return
    a[translate(index, ad)] = values[0]
    assert_same(a, b)
    weight = distinct(shape)
    (a * ad.tensor(weight)).sum().backward()
    (b * torch.tensor(weight)).sum().backward()
    assert_same(ours.grad, theirs.grad)
    if value_shape is not None:
        assert_same(values[0].grad, values[1].grad)


@given(shapes_and_indices(advanced=False), st.data())
@FEW
def test_writing_a_view_of_a_view_reaches_the_base(case, data):
    shape, index = case
    ours, theirs = both(distinct(shape), requires_grad=True)
    a, b = ours * 1, theirs * 1
    try:
        view_a, view_b = a[index].transpose(0, -1), b[index].transpose(0, -1)
    except IndexError:
        view_a, view_b = a[index], b[index]
    other_a, other_b = a.reshape(-1), b.reshape(-1)
    view_a.mul_(3)
    view_b.mul_(3)
    assert_same(a, b)
    assert_same(other_a, other_b)
    (a * other_a.reshape(shape)).sum().backward()
    (b * other_b.reshape(shape)).sum().backward()
    assert_same(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    "index",
    [
        5,
        -4,
        (0, 0, 0),
        1.0,
        slice(None, None, 0),
        slice(0.5, 1),
        ("tensor", [1.0]),
        ("tensor", [5]),
        ("tensor", [True, False]),
        (("tensor", [0, 1]), ("tensor", [0, 1, 2])),
        [0, 9],
        (Ellipsis, 7),
        object,
    ],
    ids=str,
)
def test_errors_are_of_pytorchs_type_and_name_the_values(index):
    ours, theirs = both(distinct((3, 4)))
    _, error = run(lambda: theirs[translate(index, torch)])
    assert error is not None
    expected = type(error) if type(error) in (IndexError, ValueError, TypeError) else IndexError
    if type(error) is TypeError and not isinstance(index, slice):
        expected = (TypeError, IndexError)
    with pytest.raises(expected):
        ours[translate(index, ad)]
    with pytest.raises(expected):
        ours[translate(index, ad)] = 1.0


def test_indexing_a_0d_tensor_names_item():
    with pytest.raises(IndexError, match=r"item\(\)"):
        ad.tensor(1.0)[0]


@pytest.mark.parametrize("index", [True, False, ("tensor", True), ("tensor", False), None, ..., ()])
def test_0d_tensors(index):
    ours, theirs = both(np.array(2.0))
    assert_same(ours[translate(index, ad)], theirs[translate(index, torch)])
    ours[translate(index, ad)] = 5
    theirs[translate(index, torch)] = 5
    assert_same(ours, theirs)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_sequences_stand_for_tuples_as_in_pytorch():
    ours, theirs = both(distinct((3, 4, 2)))
    for index in ([[0, 1], [2, 3]], [slice(0, 1), 0], [0, 2], range(2), (range(2),), [], [True] * 3,
                  np.array([2, 0]), np.int64(1), (np.array(1), [0, 1])):  # fmt: skip
        assert_same(ours[index], theirs[index])


def test_uint8_masks_and_dtypes_of_index_tensors():
    ours, theirs = both(distinct((3, 2)))
    mask = np.array([1, 0, 1], np.uint8)
    with pytest.warns(UserWarning):
        expected = theirs[torch.tensor(mask)]
    assert_same(ours[ad.tensor(mask)], expected)
    assert_same(ours[ad.tensor([1, 0], dtype=ad.int32)], theirs[torch.tensor([1, 0]).int()])
    for dtype in (ad.int8, ad.int16, ad.float32):
        with pytest.raises(IndexError, match="must be long, int, byte or bool"):
            ours[ad.tensor([1, 0], dtype=dtype)]


def test_written_values_are_converted_without_index_tensors_and_refused_with_them():
    x = ad.tensor([1, 2, 3])
    x[0] = ad.tensor(7.9)
    x[1:] = 4.9
    assert x.tolist() == [7, 4, 4]
    with pytest.raises(RuntimeError, match="dtypes match"):
        x[[0, 1]] = ad.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="can't assign a list"):
        x[0] = [1]
    with pytest.raises(TypeError, match="can't assign a ndarray"):
        x[0] = np.ones(1)
    with pytest.raises(RuntimeError, match="broadcast"):
        x[:2] = ad.tensor([1, 2, 3])


def test_writing_into_a_leaf_that_requires_grad_is_refused():
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x[0] = 1.0
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x[[0]] = 1.0
    with ad.no_grad():
        x[0] = 5.0
    assert x.tolist() == [5.0, 2.0]


def test_a_saved_tensor_written_by_index_is_found_out():
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    for index in (0, [0], slice(0, 1)):
        y = x * 1
        z = y * y
        y[index] = 3.0
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*setitem"):
            z.sum().backward()


def test_second_order_through_indexing():
    x = ad.tensor([1.0, 2.0, 3.0], dtype=ad.float64, requires_grad=True)

    def read(x):
        return (x[[0, 0, 2]] ** 2).sum() * x[1]

    def write(x):
        y = x * 1
        y[[0, 2]] = x[:2] ** 2
        y[1] = y[0].clone() * x[2]
        return (y * y).sum()

    for function in (read, write):
        assert ad.autograd.gradcheck(function, (x,))
        assert ad.autograd.gradgradcheck(function, (x,))


# ---- functions of indices ------------------------------------------------------------------------


def compare(call, *arrays, exact=False):
    """`call(library, *tensors)` in both: values, and gradients of every floating input."""
    pairs = [both(a, requires_grad=a.dtype == np.float64) for a in arrays]
    ours = call(ad, *(p[0] for p in pairs))
    theirs = call(torch, *(p[1] for p in pairs))
    assert_same(ours, theirs, exact)
    if theirs.requires_grad:
        weight = np.cos(distinct(theirs.shape))
        (ours * ad.tensor(weight)).sum().backward()
        (theirs * torch.tensor(weight)).sum().backward()
        for a, b in pairs:
            if b.grad is not None:
                assert_same(a.grad, b.grad, exact=False)
            elif b.requires_grad:
                assert a.grad is None or not a.grad.numpy().any()


RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
SRC = RNG.standard_normal((5, 4))
ROWS = np.array([0, 2, 0, 1, 2])
PLACES = np.array([[0, 1, 2, 0], [2, 1, 0, 0], [0, 0, 0, 0]])
MASK = X > 0

CALLS = {
    "gather0": (lambda m, x, i: m.gather(x, 0, i), X, PLACES),
    "gather1": (lambda m, x, i: x.gather(1, i), X, PLACES[:2, :3]),
    "gather-int32": (lambda m, x, i: x.gather(1, i), X, PLACES[:2, :3].astype(np.int32)),
    "take_along_dim": (lambda m, x, i: m.take_along_dim(x, i, 0), X, PLACES[:1, :1]),
    "take_along_dim-flat": (lambda m, x, i: m.take_along_dim(x, i), X, PLACES),
    "scatter": (lambda m, x, s: x.scatter(0, m.tensor([[1, 0, 2, 2]]), s[1:2]), X, SRC),
    "scatter-value": (lambda m, x, i: x.scatter(1, i, 2.5), X, PLACES),
    "scatter-value-name": (lambda m, x, i: x.scatter(1, i, value=3), X, PLACES),
    "scatter_add": (lambda m, x, i, s: x.scatter_add(0, i, s[:3]), X, PLACES, SRC),
    "index_select": (lambda m, x, i: m.index_select(x, 0, i), X, ROWS),
    "index_select-1": (lambda m, x, i: x.index_select(-1, i), X, ROWS),
    "index_add": (lambda m, x, i, s: x.index_add(0, i, s, alpha=2), X, ROWS, SRC),
    "index_copy": (lambda m, x, i, s: x.index_copy(0, i[:2], s[:2]), X, ROWS, SRC),
    "index_fill": (lambda m, x, i: x.index_fill(0, i[:1], 3), X, ROWS),
    "index_fill-negative": (lambda m, x: x.index_fill(0, m.tensor([-1]), 3), X),
    "index_put": (
        lambda m, x, s: x.index_put((m.tensor([0, 2]), m.tensor([1, 3])), s[0, :2]), X, SRC),
    "index_put-mask": (lambda m, x, i, s: x.index_put((i,), s[0, 0]), X, MASK, SRC),
    "index_put-accumulate": (
        lambda m, x, i, s: x.index_put((i,), s, accumulate=True), X, ROWS, SRC),
    "masked_fill": (lambda m, x, i: x.masked_fill(i, 9), X, MASK),
    "masked_fill-broadcast": (lambda m, x, i: x[0].masked_fill(i, 9), X, MASK),
    "masked_fill-tensor": (lambda m, x, i, s: x.masked_fill(i, s[0, 0]), X, MASK, SRC),
    "masked_select": (lambda m, x, i: m.masked_select(x, i), X, MASK),
    "masked_select-broadcast": (lambda m, x, i: m.masked_select(x, i[0]), X, MASK),
    "masked_scatter": (lambda m, x, i, s: x.masked_scatter(i, s), X, MASK, SRC),
    "take": (lambda m, x: m.take(x, m.tensor([[0, -1], [5, 5]])), X),
    "put": (lambda m, x, s: x.put(m.tensor([[0, -1], [5, 7]]), s[0]), X, SRC),
    "put-accumulate": (
        lambda m, x, s: x.put(m.tensor([0, 0, 5, 5]), s[0], accumulate=True), X, SRC),
    "gather-empty": (lambda m, x: x.gather(0, m.tensor([[]]).long()), X),
    "gather-empty-any-dtype": (lambda m, x: x[0].gather(0, m.tensor([], dtype=m.uint8)), X),
    "take_along_dim-negative": (
        lambda m, x: m.take_along_dim(x, m.tensor([[-1], [0], [-4]]), 1), X),
    "index_add-0d": (lambda m, x, s: x[0, 0].index_add(0, m.tensor([0]), s[0, 0]), X, SRC),
    "index_copy-0d": (lambda m, x, s: x[0, 0].index_copy(0, m.tensor([0]), s[0, 0]), X, SRC),
    "index_fill-0d": (lambda m, x: x[0, 0].index_fill(0, m.tensor([-1]), 4), X),
    "index_fill-repeated": (
        lambda m, x, s: x.index_fill(1, m.tensor([2, 0, 2]), s[0, 0]), X, SRC),
    "fill": (lambda m, x, s: m.fill(x, s[0, 0]), X, SRC),
    "nonzero": (lambda m, x: m.nonzero(x), MASK),
    "argwhere": (lambda m, x: m.argwhere(x), MASK),
    "nonzero-0d": (lambda m, x: m.nonzero(x), np.array(3.0)),
    "nonzero-tuple": (lambda m, x: m.nonzero(x, as_tuple=True)[1], MASK),
    "unravel_index": (lambda m, x: m.stack(m.unravel_index(x, (2, 7))), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_indices(name):
    compare(*CALLS[name])


def test_one_hot():
    i = np.array([[0, 2], [1, 1]])
    assert_same(ad.one_hot(ad.tensor(i)), torch.nn.functional.one_hot(torch.tensor(i)))
    assert_same(ad.one_hot(ad.tensor(i), 5), torch.nn.functional.one_hot(torch.tensor(i), 5))
    for values, count in (([3], 3), ([-1], 3)):
        with pytest.raises(RuntimeError, match="Class values"):
            ad.one_hot(ad.tensor(values), count)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("zeros", [False, True])
def test_scatter_reduce(reduce, include_self, zeros):
    x, src = X.copy(), SRC.copy()
    if zeros:
        x[0, 0] = x[1] = src[0, 1] = src[:2, 0] = 0

    def call(m, x, i, s):
        return x.scatter_reduce(0, i, s[:3], reduce, include_self=include_self)

    compare(call, x, PLACES, src)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(reduce, include_self):
    def call(m, x, i, s):
        return x.index_reduce(0, i, s, reduce, include_self=include_self)

    compare(call, X, ROWS, SRC)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float32", "complex64"])
def test_scatter_dtypes(dtype):
    x, src = X.astype(dtype), SRC.astype(dtype)
    if dtype in ("int64", "int32", "uint8"):
        x, src = (np.abs(v) * 3 for v in (X, SRC))
        x, src = x.astype(dtype), src.astype(dtype)
    for ours, theirs in (
        (lambda m, x, s: x.scatter_add(0, m.tensor(PLACES), s),) * 2,
        (lambda m, x, s: x.index_add(0, m.tensor(ROWS), s),) * 2,
        (lambda m, x, s: x.index_put((m.tensor(ROWS),), s, True),) * 2,
        (lambda m, x, s: x.masked_fill(m.tensor(MASK), 1),) * 2,
    ):
        a, b = ours(ad, ad.tensor(x), ad.tensor(src)), theirs(torch, *map(torch.tensor, (x, src)))
        assert_same(a, b, exact=False)


IN_PLACE = {
    "scatter_": lambda m, x, s: x.scatter_(0, m.tensor(PLACES[:1]), s[:1]),
    "scatter_add_": lambda m, x, s: x.scatter_add_(0, m.tensor(PLACES), s[1:4]),
    "scatter_reduce_": lambda m, x, s: x.scatter_reduce_(0, m.tensor(PLACES), s[:3], "amax"),
    "index_add_": lambda m, x, s: x.index_add_(0, m.tensor(ROWS), s),
    "index_copy_": lambda m, x, s: x.index_copy_(0, m.tensor([2, 0]), s[:2]),
    "index_fill_": lambda m, x, s: x.index_fill_(1, m.tensor([2, 0]), 4),
    "index_put_": lambda m, x, s: x.index_put_((m.tensor([2, 0]),), s[0]),
    "index_put_-acc": lambda m, x, s: x.index_put_((m.tensor(ROWS),), s, accumulate=True),
    "masked_fill_": lambda m, x, s: x.masked_fill_(m.tensor(MASK), 4),
    "masked_fill_-tensor": lambda m, x, s: x.masked_fill_(m.tensor(MASK[:1]), s[0, 0]),
    "masked_scatter_": lambda m, x, s: x.masked_scatter_(m.tensor(MASK), s),
    "put_": lambda m, x, s: x.put_(m.tensor([1, 2]), s[0, :2]),
    "zero_": lambda m, x, s: x.zero_(),
    "fill_": lambda m, x, s: x.fill_(3),
    "fill_-tensor": lambda m, x, s: x.fill_(s[0, 0]),
    "copy_": lambda m, x, s: x.copy_(s[0]),
    "fill_diagonal_": lambda m, x, s: x.fill_diagonal_(2.0),
}


@pytest.mark.parametrize("layout", ["whole", "transposed", "part"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_bases_and_views(name, layout):
    def call(m, x, s):
        y = x * 1
        view = {"whole": lambda: y, "transposed": lambda: y.t().clone().t(), "part": lambda: y}
        target = view[layout]()
        if layout == "part":
            y = m.cat([y, y], 1)
            target = y[:, 2:6]
        pointer = target.data_ptr()
        result = IN_PLACE[name](m, target, s)
        assert result is target
        assert target.data_ptr() == pointer
        return target * 2 if layout != "part" else y * 2

    compare(call, X, SRC)


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_with_reduce_and_larger_sources(reduce):
    def call(m, x, s):
        a = x.scatter(0, m.tensor(PLACES), s, reduce=reduce)
        return (a * 1).scatter_(1, m.tensor(PLACES), 3.0, reduce=reduce)

    assert_same(call(ad, ad.tensor(X), ad.tensor(SRC)), call(torch, *map(torch.tensor, (X, SRC))))
    source = ad.tensor(SRC, requires_grad=True)
    call(ad, ad.tensor(X), source).sum().backward()
    assert source.grad[:3].all()
    assert not source.grad[3:].any()


def test_an_overwritten_tensor_keeps_requires_grad_with_zero_gradient():
    x = ad.ones(3, requires_grad=True)
    y = x * 2
    y.zero_()
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_in_place_errors_leave_the_tensor_alone():
    x = ad.zeros(3)
    for bad in (
        lambda: x.index_add_(0, ad.tensor([0, 5]), ad.ones(2)),
        lambda: x.scatter_add_(0, ad.tensor([0, -1]), ad.ones(2)),
        lambda: x.index_put_((ad.tensor([0, 7]),), ad.ones(2)),
        lambda: x.copy_(ad.ones(2)),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            bad()
        assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: x.gather(0, ad.tensor([[5]])), IndexError, "5 is out of bounds for dimension 0"),
        (lambda x: x.gather(0, ad.tensor([[-1]])), IndexError, "-1 is out of bounds"),
        (lambda x: x.gather(0, ad.tensor([0])), RuntimeError, "same number of dimensions"),
        (lambda x: x.gather(0, ad.tensor([[0.0]])), RuntimeError, "int32 or int64"),
        (
            lambda x: x.gather(0, ad.zeros(1, 9, dtype=ad.int64)),
            RuntimeError,
            "no larger than self",
        ),
        (lambda x: x.gather(0, 3), TypeError, "expected a tensor"),
        (lambda x: x.index_select(0, ad.tensor([-1])), IndexError, "out of range"),
        (lambda x: x.index_select(0, ad.tensor([9])), IndexError, "out of bounds"),
        (lambda x: x.index_select(0, ad.tensor([[0]])), IndexError, "vector"),
        (lambda x: x.index_select(5, ad.tensor([0])), IndexError, "Dimension out of range"),
        (lambda x: x.scatter(0, ad.tensor([[9]]), 1.0), IndexError, "out of bounds"),
        (lambda x: x.scatter(0, ad.tensor([[0]]), ad.ones(1, 1).double()), RuntimeError, "dtype"),
        (
            lambda x: x.scatter_reduce(0, ad.tensor([[0]]), x, "most"),
            RuntimeError,
            "must be either",
        ),
        (lambda x: x.masked_fill(x, 1), RuntimeError, "boolean masks"),
        (lambda x: x.masked_fill(x > 0, ad.ones(2)), RuntimeError, "0-dim"),
        (lambda x: x.masked_fill(ad.ones(7) > 0, 0), RuntimeError, "broadcast"),
        (lambda x: x.masked_fill_(ad.ones(7) > 0, 0), RuntimeError, "broadcast"),
        (lambda x: x.index_add(0, ad.tensor([0]), x), RuntimeError, "Number of indices"),
        (lambda x: x.take(ad.tensor([99])), IndexError, "out of bounds"),
        (lambda x: x.put(ad.tensor([0]), ad.ones(2)), IndexError, "same number of elements"),
        (lambda x: x.fill_(ad.ones(2)), RuntimeError, "0-dim"),
        (lambda x: x.copy_(ad.ones(2, 3, 4)), RuntimeError, "broadcast"),
        (lambda x: x.masked_scatter(x == 0, ad.ones(1)), RuntimeError, "Number of elements"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(ad.zeros(3, 4))


def test_embedding_gradient_adds_repeated_rows():
    table = RNG.standard_normal((50, 8))
    index = RNG.integers(0, 50, (30, 7))

    def call(m, t, i):
        return t[i]

    compare(call, table, index)


@pytest.mark.parametrize(("step", "start", "other"), [(2, 0, 8), (1, 8, 0), (3, 1, 0), (-1, 90, 3)])
def test_copy_from_the_same_memory_in_other_steps(step, start, other):
    """NumPy assigns overlapping rows of other strides in place; what is read is what was there."""
    memory = ad.arange(200) % 9
    expected = memory.numpy().copy()
    to = slice(start, start + 30 * step, step) if step > 0 else slice(start, start - 30, -1)
    expected[to] = expected[other : other + 30].copy()
    x, y = memory.detach(), memory.detach()
    x._data, y._data = memory._data[to], memory._data[other : other + 30]
    x.copy_(y)
    assert memory.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["min", "max"])
def test_reductions_into_places_by_their_short_names(name):
    x, at, values = ad.ones(3), ad.tensor([0, 0, 1]), ad.tensor([5.0, -1.0, 3.0])
    short = x.scatter_reduce(0, at, values, name)
    assert short.equal(x.scatter_reduce(0, at, values, f"a{name}"))
