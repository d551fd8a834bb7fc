"""Tensors on a device: where they are, views and writes, values in and out, what is refused."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint.nn import functional as F
from tests.autograd.test_inplace import check_program, step
from tests.sweep import few_or_many


@pytest.fixture
def x(device):
    return ad.arange(6.0, device=device).reshape(2, 3)


# ---- where ---------------------------------------------------------------------------------------


def test_pytorch_is_imported_only_for_its_devices():
    program = (
        "import sys, adjoint as ad\n"
        "ad.nn.Linear(2, 2)(ad.ones(1, 2)).sum().backward()\n"
        "assert not ad.cuda.is_available() or True\n"
        "print('torch' in sys.modules and not ad.cuda.is_available(), end=' ')\n"
        "ad.ones(1, device='torch')\n"
        "print('torch' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"], found.stderr


def test_devices(x, device):
    assert x.device.type == device and x.is_cuda == (device == "cuda")
    assert x.to(device) is x and x.to(x.device) is x
    assert x.cpu().device == ad.device("cpu") and x.cpu().to(device).equal(x)
    assert x.to("cpu", ad.float64).dtype is ad.float64
    assert x.to(ad.zeros(1, dtype=ad.int32)).dtype is ad.int32
    assert (x + 1).device == (x > 1).device == x.sum().device == x[0].device == x.device
    assert x.new_zeros(2).device == ad.ones_like(x).device == x.new_tensor([1]).device == x.device
    assert ad.device("torch") == ad.device(ad.device("torch")) != ad.device("cpu")


def test_tensors_are_made_where_they_are_wanted(device):
    makers = [
        lambda **k: ad.zeros(2, **k), lambda **k: ad.ones(2, **k), lambda **k: ad.empty(2, **k),
        lambda **k: ad.full((2,), 3.0, **k), lambda **k: ad.tensor([1, 2], **k),
        lambda **k: ad.arange(3, **k), lambda **k: ad.linspace(0, 1, 3, **k),
        lambda **k: ad.eye(2, **k), lambda **k: ad.rand(2, **k), lambda **k: ad.randn(2, **k),
        lambda **k: ad.randint(0, 5, (2,), **k), lambda **k: ad.randperm(3, **k),
        lambda **k: ad.as_tensor(np.ones(2), **k), lambda **k: ad.hann_window(4, **k),
    ]  # fmt: skip
    for make in makers:
        assert make(device=device).device.type == device
        with ad.device(device):
            assert make().device.type == device
            assert make(device="cpu").device.type == "cpu"
        assert make().device.type == "cpu"
    with ad.device(device):
        assert ad.nn.Linear(2, 2).weight.device.type == device
        assert ad.from_numpy(np.ones(2)).device.type == "cpu"  # it shares the array's memory


def test_devices_that_are_not_there_are_named():
    if not ad.cuda.is_available():
        with pytest.raises(ad.DeviceError, match=r"'cuda' needs a CUDA device.*'torch'"):
            ad.ones(1).cuda()
    with pytest.raises(ad.DeviceError, match="torch"):
        ad.device("tpu")


# ---- several devices -----------------------------------------------------------------------------


MIXTURES = {
    "add": lambda x, y: x + y,
    "add_reflected": lambda x, y: y + x,
    "matmul": lambda x, y: x @ y.T,
    "cat": lambda x, y: ad.cat([x, y]),
    "where": lambda x, y: ad.where(x > 1, y, x),
    "linear": lambda x, y: ad.nn.functional.linear(x, y),
    "gather": lambda x, y: x.gather(0, y.long()),
    "masked_fill": lambda x, y: x.masked_fill(y > 1, 0.0),
    "in_place": lambda x, y: x.add_(y),
    "in_place_on_the_host": lambda x, y: y.add_(x),
    "mse_loss": lambda x, y: ad.nn.functional.mse_loss(x, y),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_devices_do_not_mix(name, x):
    y = ad.ones(2, 3)
    before = x.clone()
    with pytest.raises(ad.DeviceError, match=r"same device.*cpu.*move them to one with \.to\("):
        MIXTURES[name](x, y)
    assert x.equal(before) and y.equal(ad.ones(2, 3))


def test_what_stands_for_a_number_or_an_index_may_be_the_hosts(x):
    two = ad.tensor(2.0, requires_grad=True)
    assert (x * two.detach()).equal(x + x) and (two.detach() * x).equal(x + x)
    (x * two).sum().backward()
    assert two.grad.item() == 15 and two.grad.device.type == "cpu"
    assert x[ad.tensor([1, 0])].equal(x.flip(0))
    assert x.masked_fill(x > 2, ad.tensor(9.0)).max().item() == 9


def test_copies_between_devices(x, device):
    y = ad.zeros(2, 3)
    y.copy_(x)
    assert y.equal(x.cpu()) and y.device.type == "cpu"
    z = ad.zeros(2, 3, device=device)
    z.copy_(y)
    z[0] = ad.tensor([7.0, 8.0, 9.0])
    assert z[0].tolist() == [7, 8, 9] and z.device.type == device
    leaf = ad.ones(2, requires_grad=True)
    (leaf.to(device) * 3).to("cpu").sum().backward()
    assert leaf.grad.tolist() == [3, 3] and leaf.grad.device.type == "cpu"


LAYOUTS = {
    "whole": lambda x: x, "turned": lambda x: x.T, "steps": lambda x: x[::2, 1:],
    "nothing": lambda x: x[:0], "0-d": lambda x: x[1, 1], "expanded": lambda x: x.expand(2, 4, 3),
    "backwards": lambda x: x.flip(0),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_travels_in_every_layout(layout, device):
    for dtype in ("bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64"):
        x = LAYOUTS[layout]((ad.arange(12).reshape(4, 3) % 5).to(getattr(ad, dtype)))
        y = x.to(device)
        assert (y.shape, y.dtype, y.device.type) == (x.shape, x.dtype, device)
        assert y.cpu().equal(x)
        there, here = (ad.zeros(x.shape, dtype=x.dtype, device=d) for d in (device, "cpu"))
        assert there.copy_(x).cpu().equal(x) and here.copy_(y).equal(x)


def test_assignments_from_the_host(device):
    x = ad.zeros(3, 4, device=device)
    x[1] = ad.arange(4.0)
    x[:, 1] = 7
    x[0, 0] = ad.tensor(3.0)
    x[x > 5] = ad.tensor(1.5)
    x[2, 1:3] = ad.tensor([8, 9])
    assert x.tolist() == [[3, 1.5, 0, 0], [0, 1.5, 2, 3], [0, 8, 9, 0]]


# ---- views and writes ----------------------------------------------------------------------------


def test_views_show_writes(x):
    row, flat, turned, part = x[0], x.view(-1), x.T, x[:, 1:]
    x.mul_(2)
    assert row.tolist() == [0, 2, 4] and flat.tolist() == [0, 2, 4, 6, 8, 10]
    turned[0, 0] = 50
    part.zero_()
    assert x.tolist() == [[50, 0, 0], [6, 0, 0]]
    assert row._is_view() and row._base is x._base and x.expand(2, 2, 3).stride() == (0, 3, 1)
    assert x.T.stride() == (1, 3) and x[:, 1:].storage_offset() == 1
    assert not x.T.is_contiguous() and x.T.contiguous().is_contiguous()
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:1].expand(2, 3).add_(1)


def test_gradients_through_writes(device):
    def run(device):
        leaf = ad.arange(4.0, device=device).requires_grad_()
        y = leaf * 2
        y[1:3].mul_(3)
        y[0] = 7
        y.view(2, 2)[1] += leaf[:2]
        (y * y).sum().backward()
        return leaf.grad.cpu()

    assert run(device).equal(run("cpu"))


@few_or_many("count", 60, 1000)
def test_random_programs_of_views_and_writes(count, device):
    @settings(max_examples=count, deadline=None)
    @given(st.lists(step, max_size=8))
    def check(steps):
        check_program(steps, device)

    check()


def test_a_changed_value_is_refused_by_backward(device):
    leaf = ad.ones(3, device=device, requires_grad=True)
    y = leaf * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


IN_PLACE = {
    "add_": lambda x: x.add_(x, alpha=2), "sub_": lambda x: x.sub_(1), "mul_": lambda x: x.mul_(x),
    "div_": lambda x: x.div_(4), "pow_": lambda x: x.pow_(2), "exp_": lambda x: x.exp_(),
    "clamp_": lambda x: x.clamp_(1, 3), "fill_": lambda x: x.fill_(2), "zero_": lambda x: x.zero_(),
    "index_add_": lambda x: x.index_add_(0, ad.tensor([1, 1], device=x.device), x.clone()),
    "scatter_": lambda x: x.scatter_(1, ad.tensor([[2], [0]], device=x.device), 9.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, -1), "relu_": lambda x: x.sub_(2).relu_(),
    "addcmul_": lambda x: x.addcmul_(x, x, value=2), "lerp_": lambda x: x.lerp_(x * 2, 0.5),
    "index_put_": lambda x: x.index_put_((ad.tensor([0], device=x.device),), x[1]),
    "cumsum_": lambda x: x.cumsum_(0), "bool": lambda x: x.__setitem__(x > 3, 0.5),
    "steps": lambda x: x[:, ::2].add_(10), "t_": lambda x: x.t_(),
    "copy_": lambda x: x.copy_(x + 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, device):
    expected, found = (ad.arange(6.0, device=d).reshape(2, 3) for d in ("cpu", device))
    for tensor in (expected, found):
        memory = tensor.data_ptr()
        IN_PLACE[name](tensor)
        assert tensor.data_ptr() == memory  # written where it was
    np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-6)
    assert found.device.type == device


INDICES = {
    "int": lambda x: x[1], "slice": lambda x: x[:, 1:], "step": lambda x: x[..., ::2],
    "none": lambda x: x[:, None, 0], "list": lambda x: x[[1, 0, 1]], "mask": lambda x: x[x > 2],
    "tensors": lambda x: x[ad.tensor([0, 1]).to(x.device), ad.tensor([[2], [0]]).to(x.device)],
    "negative": lambda x: x[ad.tensor([-1]).to(x.device)], "array": lambda x: x[np.array([0, 0])],
    "row mask": lambda x: x[ad.tensor([True, False]).to(x.device)],
    "take": lambda x: x.take(ad.tensor([5, 0]).to(x.device)), "ellipsis": lambda x: x[...],
    "nonzero": lambda x: x.nonzero(),
    "mixed": lambda x: x[1, ad.tensor([2, 0]).to(x.device)], "backwards": lambda x: x[:, ::-1],
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_indexing(name, x):
    found, expected = INDICES[name](x), INDICES[name](x.cpu())
    assert found.device == x.device and found.cpu().equal(expected)


def test_indices_out_of_range_are_refused(device):
    if device == "cuda":
        pytest.skip("CUDA checks indices on the device, and ends the process's use of it")
    with pytest.raises(IndexError):
        ad.ones(3, device=device)[ad.tensor([3], device=device)]


def test_errors_are_those_of_the_host(x, device):
    for wrong in (
        lambda x: x @ x, lambda x: x + ad.ones(4, device=x.device), lambda x: x.reshape(4),
        lambda x: ad.cat([x, x[0]]), lambda x: x.sum(5), lambda x: x[3],
    ):  # fmt: skip
        with pytest.raises(ad.AdjointError) as here:
            wrong(x)
        with pytest.raises(ad.AdjointError) as there:
            wrong(x.cpu())
        assert type(here.value) is type(there.value) and str(here.value) == str(there.value)


# ---- values in and out ---------------------------------------------------------------------------


def test_values_out(x):
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x[1, 1].item() == 4.0
    assert (float(x[0, 1]), int(x[0, 2]), bool(x[0, 0]), len(x)) == (1.0, 2, False, 2)
    assert f"{x[1, 2]:.2f}" == "5.00" and [row.sum().item() for row in x] == [3, 12]
    assert x.to(ad.bfloat16).tolist() == x.tolist()
    assert repr(x).startswith("tensor([[0., 1., 2.]") and f"device='{x.device}'" in repr(x)


def test_numpy(x, device):
    if device == "cuda":
        with pytest.raises(TypeError, match=r"can't convert cuda:0.*tensor\.cpu\(\)"):
            x.numpy()
    else:
        x.numpy()[0, 0] = 8  # the same memory
        assert x[0, 0].item() == 8 and np.asarray(x).sum() == 23
    assert x.numpy(force=True).tolist() == x.tolist()
    assert x.to(ad.bfloat16).cpu().numpy().dtype == ad.bfloat16.numpy


def test_dlpack(x):
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 42
    assert x[0, 0].item() == 42  # the same memory


def test_copies_and_pickles(x, device):
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert other.device == x.device and other.equal(x) and other is not x
    parameter = ad.nn.Parameter(x)
    other = pickle.loads(pickle.dumps(parameter))
    assert type(other) is ad.nn.Parameter and other.requires_grad and other.device == x.device


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_narrow_floats_are_computed_in_their_dtype(dtype, device):
    a = ad.linspace(-2, 2, 12, dtype=ad.float64).reshape(3, 4).to(getattr(ad, dtype))
    w = ad.linspace(-1, 1, 8, dtype=ad.float64).reshape(2, 4).to(a.dtype)
    for run in (
        lambda a, w: ad.nn.functional.linear(a, w), lambda a, w: ad.nn.functional.gelu(a),
        lambda a, w: a.softmax(-1), lambda a, w: a.sum(),
        lambda a, w: ad.nn.functional.layer_norm(a, (4,)),
        lambda a, w: (a * a).mean(0), lambda a, w: a.exp() / 3,
    ):  # fmt: skip
        expected, found = run(a, w), run(a.to(device), w.to(device))
        assert found.dtype is a.dtype is expected.dtype
        close = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-5)
        np.testing.assert_allclose(
            found.cpu().double().numpy(), expected.double().numpy(), rtol=close, atol=close
        )


def test_a_graph_is_freed_at_once(device):
    gc.disable()
    try:
        leaf = ad.ones(3, device=device, requires_grad=True)
        y = (leaf * 2).exp()
        kept = weakref.ref(y.grad_fn)
        y.sum().backward()
        del y
        assert kept() is None
    finally:
        gc.enable()


def test_memory_stays_on_the_device(x, device):
    assert x[1].storage().size() == 6 and x[1].untyped_storage().nbytes() == 24
    assert x.storage().device == x.device
    assert x.new(2).device == x.new([1.0]).device == x.device
    assert x.clone().resize_(3, 3).device == x.clone().set_().device == x.device
    assert x.clone().share_memory_().is_shared()


def test_floats_are_no_classes(x):
    with pytest.raises(ad.DTypeError, match="one_hot: one_hot is only applicable"):
        F.one_hot(x, 7)


def test_products_of_integers(device, monkeypatch):
    """CUDA's libraries have none; the way around is tried on every device."""
    from adjoint.backends.torch import algebra

    monkeypatch.setattr(algebra, "has_products", lambda t: t.is_floating_point())
    for a, b in (
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)), ((0, 3), (3, 0)), ((1, 300), (300, 1)),
    ):  # fmt: skip
        for dtype in (ad.int64, ad.int32, ad.uint8):
            x, y = (ad.randint(0, 9, shape).to(dtype) for shape in (a, b))
            assert (x.to(device) @ y.to(device)).cpu().equal(x @ y)
    with pytest.raises(ad.ShapeError):
        ad.ones(2, 3, dtype=ad.int64, device=device) @ ad.ones(2, 3, dtype=ad.int64, device=device)


def test_windows_of_nothing(device):
    """Images without pixels, batches without images, channels that are none."""
    x = ad.zeros(5, 0, device=device, requires_grad=True)
    y = F.max_pool1d(x, 2, 1, padding=1)
    y.sum().backward()
    assert y.shape == (5, 1) and x.grad.shape == (5, 0)
    w = ad.ones(4, 3, 3, 3, device=device, requires_grad=True)
    F.conv2d(ad.zeros(0, 3, 5, 5, device=device), w, ad.ones(4, device=device)).sum().backward()
    assert w.grad.equal(ad.zeros_like(w))
    y = F.conv1d(
        *(ad.zeros(s, device=device) for s in ((2, 0, 4), (3, 0, 2))), ad.ones(3).to(device)
    )
    assert y.equal(ad.ones(2, 3, 3).to(device))


TOO_MANY = 1 << 46  # elements that no address space has room for
ASKING = {
    "empty": lambda x: ad.empty(TOO_MANY, device=x.device), "add": lambda x: x + 1,
    "rand": lambda x: ad.rand(16 * TOO_MANY, device=x.device), "clone": lambda x: x.clone(),
    "like": lambda x: ad.ones_like(x), "softmax": lambda x: x.softmax(0),
    "matmul": lambda x: x[:1 << 23, None] @ x[None, :1 << 23],
    "layer_norm": lambda x: F.layer_norm(x, x.shape), "cat": lambda x: ad.cat([x, x]),
    "to": lambda x: ad.zeros(1).expand(TOO_MANY).to(x.device), "float64": lambda x: x.double(),
    "new": lambda x: x.new_full((TOO_MANY,), 2), "index": lambda x: x[x.long()],
}  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_what_there_is_no_memory_for_is_refused(name, device):
    """And nothing is lost: the next operation runs."""
    x = ad.ones(1, device=device).expand(TOO_MANY)
    with pytest.raises(ad.OutOfMemoryError, match="memory"):
        ASKING[name](x)
    assert (x[:2] + 1).tolist() == [2, 2]


def test_a_training_goes_on_after_there_was_no_memory(device):
    model = ad.nn.Linear(4, 4).to(device)
    optimizer = ad.optim.Adam(model.parameters())
    x = ad.ones(1, 4, device=device)
    for _ in range(2):
        with pytest.raises(ad.cuda.OutOfMemoryError):
            model(x.expand(TOO_MANY, 4))
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model(x).isfinite().all()


def test_unknown_names_are_gaps(x):
    with pytest.raises(ad.BackendGap, match="'torch'"):
        x._data.namespace.no_such_function  # noqa: B018 - asking is what raises
