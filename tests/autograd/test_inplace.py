"""In-place operations beside PyTorch: values, dtypes, errors, versions, random programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
import adjoint.nn.functional as F
from tests.native import COMPILED_OR_NOT

from ..pytorch import torch
from ..sweep import few_or_many

DTYPES = [
    "bool",
    "uint8",
    "int32",
    "int64",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
]


def outcome(lib, function):
    """The values and dtype that `function` leaves, or the kind of error."""
    try:
        x = function(lib)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return "refused"
    wide = x.detach()
    wide = wide if str(x.dtype).split(".")[-1].startswith("complex") else wide.to(lib.float64)
    return str(x.dtype).split(".")[-1], wide.numpy().tolist()


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_for_all_pairs_of_dtypes(name, dtype):
    for other in DTYPES:

        def function(lib, other=other):
            x = lib.tensor([1, 2, 3]).to(getattr(lib, dtype))
            return getattr(x, name)(lib.tensor([3, 1, 2]).to(getattr(lib, other)))

        assert outcome(ad, function) == outcome(torch, function), other


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_with_numbers(name, dtype):
    for number in (True, 3, -2, 1000, 2.5, 1e10, 1j):

        def function(lib, number=number):
            x = lib.tensor([1, 2, 3]).to(getattr(lib, dtype))
            return getattr(x, name)(number)

        if dtype == "uint8" and number in (-2, 1000):
            continue  # PyTorch's own answer depends on the operation
        ours, theirs = outcome(ad, function), outcome(torch, function)
        assert ours == theirs, (number, ours, theirs)


@pytest.mark.parametrize("name", ["add_", "sub_"])
@pytest.mark.parametrize("alpha", [2, -0.5])
@pytest.mark.parametrize("dtype", ["int64", "float16", "float32", "float64"])
def test_alpha(name, alpha, dtype):
    def function(lib):
        x = lib.tensor([1, 2, 3]).to(getattr(lib, dtype))
        return getattr(x, name)(lib.tensor([3, 1, 2]).to(getattr(lib, dtype)), alpha=alpha)

    assert outcome(ad, function) == outcome(torch, function)


@pytest.mark.parametrize("shape", [(3,), (1,), (), (2, 3), (2, 1), (4,), (1, 2, 3)])
def test_broadcasting_into_the_tensor_only(shape):
    def function(lib):
        x = lib.ones(2, 3)
        return x.add_(lib.full(shape, 2.0))

    assert outcome(ad, function) == outcome(torch, function)


@pytest.mark.parametrize(
    "part", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1], lambda x: x.expand(2, 4, 4)]
)
def test_writes_through_strided_views(part):
    def function(lib):
        x = lib.arange(16.0).reshape(4, 4)
        part(x).mul_(2.0).add_(1.0)
        return x

    assert outcome(ad, function) == outcome(torch, function)


def test_in_place_returns_the_tensor_itself_and_keeps_its_memory():
    x = ad.ones(3)
    address = x.data_ptr()
    assert x.add_(1) is x and x.mul_(ad.ones(3)) is x and x.exp_() is x
    x += 1
    assert x.data_ptr() == address


def test_array_given_by_the_user_is_written():
    array = np.zeros(3, np.float32)
    ad.from_numpy(array).add_(2)
    np.testing.assert_array_equal(array, [2, 2, 2])


def test_read_only_memory_is_refused():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    x = ad.from_numpy(array)
    for write in (lambda: x.add_(1), lambda: x.exp_(), lambda: x.zero_()):
        with pytest.raises(RuntimeError, match="read-only; clone it first"):
            write()


def test_overlapping_operands():
    def function(lib):
        x = lib.arange(6.0)
        x[1:].add_(x[:-1].clone())
        x[:3].mul_(x[3:])
        return x.add_(x)

    assert outcome(ad, function) == outcome(torch, function)


def test_every_write_bumps_the_version_once():
    x = ad.ones(3)
    view = x[1:]
    counts = []
    for write in (
        lambda: x.add_(1), lambda: x.mul_(2.0), lambda: x.exp_(), lambda: view.sub_(1),
        lambda: x.zero_(), lambda: x.fill_(2), lambda: x.copy_(ad.ones(3)),
        lambda: x.__setitem__(0, 5.0), lambda: x.masked_fill_(x > 1, 0.0),
    ):  # fmt: skip
        before = x._changes.count if x._changes is not None else 0
        write()
        counts.append(x._changes.count - before)
    assert counts == [1] * len(counts)
    assert view._changes is x._changes


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.add_(1), "add_"),
        (lambda t: t.exp_(), "exp_"),
        (lambda t: t.zero_(), "zero_"),
        (lambda t: t[0:1].mul_(2), "mul_"),
        (lambda t: t.detach().sub_(1), "sub_"),
        (lambda t: t.copy_(ad.zeros(2)), "copy_"),
        (lambda t: t.__setitem__(0, 1.0), "setitem"),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_error_names_the_op_that_changed_a_saved_tensor(change, named, recorded):
    x = ad.ones(2, requires_grad=True)
    t = x * 2
    y = t.square().sum() if hasattr(t, "square") else (t * t).sum()
    with ad.set_grad_enabled(recorded):
        change(t)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
        y.backward()
    text = str(error.value)
    assert named in text and "saved at version 0 is at version 1" in text and "(2,)" in text


def test_a_change_of_any_of_several_saved_tensors_is_noticed():
    parts = [ad.ones(2, requires_grad=True) * 1 for _ in range(3)]
    y = (parts[0] * parts[1]).cumprod(0).sum() + parts[2].exp().sum()
    with ad.no_grad():
        parts[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_failed_write_changes_nothing():
    x = ad.ones(2, 3)
    before = x._changes
    with pytest.raises(RuntimeError):
        x.add_(ad.ones(4))
    with pytest.raises(RuntimeError):
        x.mul_(ad.ones(2, 2, 3))
    with pytest.raises(RuntimeError):
        ad.ones(3, dtype=ad.int64).div_(2)
    assert x._changes is before or x._changes.count == 0
    np.testing.assert_array_equal(x.numpy(), np.ones((2, 3)))


def test_in_place_of_an_optimizer_step_allocates_nothing_of_the_tensors_size():
    import tracemalloc

    x, g = ad.ones(2**18), ad.ones(2**18)

    def step():
        with ad.no_grad():
            x.add_(g).mul_(0.5).sub_(g).div_(2.0)

    step()  # makes the kernels
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        step()
        assert tracemalloc.get_traced_memory()[1] - before < 2**16
    finally:
        tracemalloc.stop()


# ---- random programs of views and writes ---------------------------------------------------------

VIEWS = [
    lambda t: t[1:], lambda t: t[::2], lambda t: t[:, :2], lambda t: t.swapaxes(0, -1),
    lambda t: t.unsqueeze(0),
    lambda t: t.reshape(-1), lambda t: t[0], lambda t: t.transpose(0, -1), lambda t: t[..., -1:],
    lambda t: t.squeeze(), lambda t: t.diagonal(), lambda t: t.flatten(), lambda t: t.detach(),
]  # fmt: skip
WRITES = [
    lambda t, w: t.mul_(w), lambda t, w: t.add_(w), lambda t, w: t.mul_(2.0), lambda t, w: t.exp_(),
    lambda t, w: t.copy_(w * 3.0), lambda t, w: t.zero_(), lambda t, w: t.add_(t * w),
    lambda t, w: t.div_(w + 2.0), lambda t, w: t.__setitem__(..., w), lambda t, w: t.tanh_(),
]  # fmt: skip
READS = [lambda t: t * 2.0, lambda t: t.tanh(), lambda t: t.clone()]

step = st.one_of(
    st.tuples(st.just("view"), st.integers(0, 9), st.integers(0, len(VIEWS) - 1)),
    st.tuples(st.just("write"), st.integers(0, 9), st.integers(0, len(WRITES) - 1)),
    st.tuples(st.just("read"), st.integers(0, 9), st.integers(0, len(READS) - 1)),
)


def run_program(lib, steps, device="cpu"):
    x = lib.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]], dtype=lib.float64)
    w = lib.tensor(0.5, dtype=lib.float64)
    x, w = (t.to(device).requires_grad_() for t in (x, w))
    live = [x * 1.0]
    log = []
    for kind, which, what in steps:
        t = live[which % len(live)]
        _ = t.grad_fn  # PyTorch brings a view's history up to date when it is asked for
        try:
            if kind == "view":
                live.append(VIEWS[what](t))
            elif kind == "write":
                WRITES[what](t, w)
            else:
                live.append(READS[what](t))
            log.append("done")
        except (RuntimeError, IndexError, ValueError):
            log.append("refused")
    log.append([t.detach().cpu().numpy().tolist() for t in live])
    log.append([t.requires_grad for t in live])
    total = sum((t.sum() * (i + 1) for i, t in enumerate(live)), start=w * 0.0)
    try:
        total.backward()
        log.append([None if t.grad is None else t.grad.cpu().numpy() for t in (x, w)])
    except RuntimeError:
        log.append("modified")
    return log


@few_or_many("count", 100, 1000)
def test_random_programs_like_pytorch(count):
    @settings(max_examples=count, deadline=None)
    @given(st.lists(step, max_size=8))
    def check(steps):
        check_program(steps)

    check()


def check_program(steps, device="cpu"):
    ours, theirs = run_program(ad, steps, device), run_program(torch, steps)
    assert ours[:-3] == theirs[:-3]
    for a, b in zip(ours[-3], theirs[-3], strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12)
    assert ours[-2] == theirs[-2]
    assert isinstance(ours[-1], str) == isinstance(theirs[-1], str), (ours[-1], theirs[-1])
    if not isinstance(theirs[-1], str):
        for a, b in zip(ours[-1], theirs[-1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["relu_", "exp_", "add_", "mul_", "clamp_", "lerp_", "addcmul_"])
def test_small_plain_tensors_are_written_again_like_the_first_time(name):
    one = ad.ones(4)
    arguments = {
        "add_": (2.0,), "mul_": (3.0,), "clamp_": (-0.5, 0.5), "lerp_": (one, 0.5),
        "addcmul_": (one, one),
    }  # fmt: skip
    given = arguments.get(name, ())
    named = {"value": 0.5} if name == "addcmul_" else {}
    leaf = ad.ones(4, requires_grad=True)
    x = ad.tensor([-1.0, 0.5, 2.0, float("nan")])
    part, expected = x[1:], x.clone()
    for _ in range(3):
        expected = getattr(expected, name[:-1])(*given, **named)
        saving = leaf * x
        before = x._changes.count
        assert getattr(x, name)(*given, **named) is x
        assert x._changes.count == before + 1
        np.testing.assert_array_equal(x.numpy(), expected.numpy())
        np.testing.assert_array_equal(part.numpy(), expected.numpy()[1:])
        with pytest.raises(ad.AutogradError, match=f"last changed by '{name}'"):
            saving.sum().backward()
    with pytest.raises(ad.ShapeError, match="doesn't match the broadcast shape"):
        x.add_(ad.ones(2, 4))
    with pytest.raises(RuntimeError, match="can't be cast"):
        ad.ones(4).long().zero_().add_(0.5)
    x.addcmul_(one, one, value=0.5).addcmul_(one, tensor2=leaf, value=2.0)
    assert x.requires_grad


def test_small_tensors_written_by_index_are_what_the_functions_give():
    index, values = ad.tensor([2, 0]), ad.tensor([5.0, 7.0])
    mask = ad.tensor([True, False, True, False])
    calls = {
        "scatter": (0, index, values), "scatter_add": (0, index, values),
        "index_add": (0, index, values), "index_copy": (0, index, values),
        "index_fill": (0, index, 3.0), "index_put": ((index,), values),
        "masked_fill": (mask, -1.0), "fill": (2.0,),
    }  # fmt: skip
    for name, args in calls.items():
        x = ad.arange(4.0)
        part = x[1:]
        expected = x
        for _ in range(3):
            expected = getattr(ad, name)(expected, *args)
            before = x._changes.count
            assert getattr(x, f"{name}_")(*args) is x
            assert x._changes.count == before + 1
            np.testing.assert_array_equal(x.numpy(), expected.numpy(), name)
            np.testing.assert_array_equal(part.numpy(), expected.numpy()[1:], name)
        changed = ad.zeros(4).add_(0)
        for _ in range(2):
            leaf = ad.ones(2, requires_grad=True)
            if args[-1] is values:
                result = getattr(changed.detach().clone().add_(0), f"{name}_")(*args[:-1], leaf * 2)
                result.sum().backward()
                np.testing.assert_array_equal(leaf.grad.numpy(), [2, 2], name)
        with pytest.raises((IndexError, RuntimeError, TypeError)):
            getattr(x, f"{name}_")(ad.tensor([9]), *args[1:])
        np.testing.assert_array_equal(x.numpy(), expected.numpy(), name)


def test_a_copy_has_no_more_dimensions_than_what_it_is_written_to():
    for way in (lambda x: x.copy_(ad.ones(1, 3)), lambda x: (x * 1).copy_(ad.ones(1, 3))):
        for _ in range(2):
            with pytest.raises(ad.ShapeError, match="doesn't match the broadcast shape"):
                way(ad.ones(3))
    x = ad.zeros(2, 3)
    x[0] = ad.ones(1, 3)
    assert x.tolist() == [[1.0] * 3, [0.0] * 3]


POOLED = {
    "max_pool1d": lambda x: F.max_pool1d(x[0], 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool3d": lambda x: F.max_pool3d(x[None], (1, 2, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "overlapping": lambda x: F.max_pool2d(x, 3, 1, 1),
    "lp_pool1d": lambda x: F.lp_pool1d(x[0].abs(), 2, 2),
    "lp_pool2d": lambda x: F.lp_pool2d(x.abs(), 2, 2),
    "lp_pool3d": lambda x: F.lp_pool3d(x[None].abs(), 2, (1, 2, 2)),
    "root": lambda x: x.abs() ** 0.5,
    "inverse": lambda x: (x.abs() + 0.1) ** -1,
    "var": lambda x: x.var(-1),
    "var_mean": lambda x: ad.var_mean(x, -1)[0],
}


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("compiled", COMPILED_OR_NOT)
def test_outputs_that_pytorch_does_not_save_may_be_changed_in_place(name, compiled):
    """As in `Sequential(Conv2d, MaxPool2d, ReLU(inplace=True))`."""
    values = ad.randn(2, 3, 6, 6)

    def gradient(in_place, changed=False):
        def step(values):
            x = values.clone().requires_grad_()
            z = x * 2
            y = POOLED[name](z)
            y = y.mul_(3).relu_() if in_place else (y * 3).relu()
            if changed:
                z.add_(1)
            return ad.autograd.grad((y * y).sum(), x, create_graph=not compiled)[0]

        return (ad.compile(step) if compiled else step)(values)

    assert ad.allclose(gradient(True), gradient(False), atol=1e-5)
    if not compiled:
        if "abs" in POOLED[name].__code__.co_names:  # which does not save what it gives
            return
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradient(True, changed=True)


TURNS = [
    ("t_", ()), ("transpose_", (0, 1)), ("swapaxes_", (0, 1)), ("unsqueeze_", (0,)),
    ("squeeze_", ()),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments"), TURNS)
@pytest.mark.parametrize("function", ["x * w", "x @ w", "x.exp()", "x.relu()", "x + w", "x.sum(0)"])
def test_turning_what_a_node_has_saved(method, arguments, function):
    """It lies otherwise then: refused, as by PyTorch; not a wrong gradient."""
    found = []
    for t in (ad, torch):
        x = t.arange(4.0).reshape(2, 2) if method != "squeeze_" else t.arange(2.0).reshape(1, 2)
        w = t.ones(2, 2) if method != "squeeze_" or "@" in function else t.ones(1, 2)
        w.requires_grad_()
        x = x * 1.0
        x.requires_grad_()
        given = x * 1.0
        y = eval(function, {"x": given, "w": w})
        saved = y if function in ("x.exp()", "x.relu()") else given
        getattr(saved, method)(*arguments)
        try:
            y.sum().backward()
            found.append([p.grad if p.grad is None else p.grad.tolist() for p in (x, w)])
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append("refused")
    assert found[0] == found[1]


def test_turning_a_leaf_that_a_node_has_saved():
    """Under no_grad, too."""
    for t in (ad, torch):
        x, w = t.ones(2, 2, requires_grad=True), t.arange(4.0).reshape(2, 2).requires_grad_()
        y = (x * w).sum()
        with t.no_grad():
            w.t_()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.backward()


MEANS = {
    "avg_pool1d": lambda F, x: F.avg_pool1d(x[0], 2),
    "avg_pool2d": lambda F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_pool3d": lambda F, x: F.avg_pool3d(x[None], (1, 2, 2)),
    "adaptive_avg_pool2d": lambda F, x: F.adaptive_avg_pool2d(x, 4),
    "adaptive_max_pool2d": lambda F, x: F.adaptive_max_pool2d(x, 4, return_indices=True)[0],
    "max_pool2d": lambda F, x: F.max_pool2d(x, 2, return_indices=True)[0],
    "lp_pool2d": lambda F, x: F.lp_pool2d(x, 2, 2),
    "lp_pool2d of 3": lambda F, x: F.lp_pool2d(x, 3, 2, stride=1),
}


@pytest.mark.parametrize("name", MEANS)
def test_pooled_values_may_be_changed_in_place_where_pytorchs_may(name):
    torch = pytest.importorskip("torch")
    values, found = np.random.default_rng(0).random((2, 3, 6, 6)).astype("f4") + 0.1, []
    for f in (ad, torch):
        x = f.tensor(values, requires_grad=True)
        y = MEANS[name](f.nn.functional, x)
        y.add_(1).mul_(y.detach().clone())
        y.sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("method", "arguments"), [("t_", ()), ("unsqueeze_", (0,))])
def test_a_gradient_of_another_shape_than_the_one_that_is_there(method, arguments):
    """Of a leaf that was turned under no_grad between two backwards."""
    for t in (ad, torch):
        x = t.arange(6.0).reshape(2, 3).requires_grad_()
        (x * x).sum().backward()
        with t.no_grad():
            getattr(x, method)(*arguments)
        with pytest.raises(RuntimeError, match=r"shape|size"):
            (x * x).sum().backward()
        x.grad = None
        (x * x).sum().backward()
        assert x.grad.tolist() == (2 * x).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", ["out", "resize_", "set_", "set_ after a write"])
def test_a_gradient_that_needs_what_shows_other_elements_is_refused(kind, size):
    """Also where their number would be broadcast, or is the same."""
    x, w = ad.arange(1.0, 4.0), ad.ones(3, requires_grad=True)
    if kind == "set_ after a write":
        x.add_(0)
    y = w * x
    if kind == "out":
        ad.add(ad.ones(size), 1, out=x)
    elif kind == "resize_":
        x.resize_(size)
    else:
        x.set_(ad.ones(size))
    if (kind, size) == ("resize_", 3):  # which changes nothing
        y.sum().backward()
        assert w.grad.tolist() == [1, 2, 3]
        return
    with pytest.raises(ad.AutogradError, match="modified"):
        y.sum().backward()
