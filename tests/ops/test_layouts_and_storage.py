"""`set_`, memory formats as hints, complex values made real, and printing as C++ does."""

from __future__ import annotations

import functools
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

LAST = {
    "to": lambda t, x: x.to(memory_format=t.channels_last),
    "contiguous": lambda t, x: x.contiguous(memory_format=t.channels_last),
    "clone": lambda t, x: x.clone(memory_format=t.channels_last),
    "empty_like": lambda t, x: t.empty_like(x, memory_format=t.channels_last).fill_(1),
    "ones_like": lambda t, x: t.ones_like(x, memory_format=t.channels_last),
    "empty": lambda t, x: t.empty(2, 3, 4, 5, memory_format=t.channels_last).fill_(1),
    "float": lambda t, x: x.double().float(memory_format=t.channels_last),
    "module": lambda t, x: t.nn.Conv2d(3, 2, 2).to(memory_format=t.channels_last)(x) * 0,
    "3d": lambda t, x: x[:, :, None].clone(memory_format=t.channels_last_3d),
}  # fmt: skip
WARNED = ("to", "contiguous", "clone", "3d")  # whose results are often seen with channels last


@pytest.mark.parametrize("name", list(LAST))
def test_channels_last_is_a_hint(name):
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    said = pytest.warns(UserWarning, match="is a hint") if name in WARNED else nullcontext()
    with said:
        ours = LAST[name](ad, ad.from_numpy(x))
    theirs = LAST[name](torch, torch.from_numpy(x))
    assert np.array_equal(ours.detach().numpy(), theirs.detach().numpy())
    assert ours.is_contiguous() and not ours.is_contiguous(memory_format=ad.channels_last)
    assert ours.stride() == ad.empty(ours.shape).stride()  # the truth


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (1, 1, 1, 1), (1, 4, 4, 1), (2, 3, 4, 5, 6)])
def test_what_lies_channels_last_says_so(shape):
    order = (0, len(shape) - 1, *range(1, len(shape) - 1))
    for t in ("channels_last", "channels_last_3d"):
        for permuted in (False, True):
            found = []
            for f in (ad, torch):
                x = f.zeros(shape).permute(order) if permuted else f.zeros(shape)
                found.append(x.is_contiguous(memory_format=getattr(f, t)))
            assert found[0] == found[1], (t, permuted)


def test_set_shows_a_part():
    for arguments in [
        (1, (2, 2), (2, 1)),
        (0, (3,), (2,)),
        (2, (4,)),
        (5, (1, 1), (9, 9)),
        (0, ()),
    ]:
        results = []
        for t in (ad, torch):
            source = t.arange(6.0)
            x = t.zeros(1)
            given = source.untyped_storage()
            if t is torch and len(arguments) == 2:
                arguments = (*arguments, t.empty(arguments[1]).stride())
            x.set_(given, *arguments)
            x.add_(10)
            results.append((x.tolist(), source.tolist(), x.stride(), x.storage_offset()))
        assert results[0] == results[1]
    with pytest.raises(ad.AdjointError):
        ad.zeros(1).set_(ad.arange(6.0), 4, (3,), (1,))  # beyond it
    with pytest.raises(ad.InvalidArgument, match="size"):
        ad.zeros(1).set_(ad.arange(6.0), 4)
    with pytest.raises(ad.DTypeError):
        ad.zeros(1).set_(ad.arange(6), 0, (2,))


def test_a_resized_view_shows_that_much_of_the_memory():
    for part, shape in (
        (lambda x: x[1:3], (4,)), (lambda x: x[1:3], (2,)), (lambda x: x[1:3], (0, 3)),
        (lambda x: x.view(2, 3).t(), (2, 2)), (lambda x: x.view(2, 3).t(), (3, 2)),
        (lambda x: x[::2][1:], (2, 2)), (lambda x: x[4], (2,)),
    ):  # fmt: skip
        results = []
        for t in (ad, torch):
            x = t.arange(6.0)
            view = part(x)
            view.resize_(shape)
            view.add_(10)
            x.mul_(2)
            results.append((x.tolist(), view.tolist(), view.stride(), view.storage_offset()))
        assert results[0] == results[1], shape
    for t in (ad, torch):  # the history begins behind it
        x, w = t.zeros(6), t.ones(4, requires_grad=True)
        x[1:3].resize_(4).mul_(3).add_(w)
        results.append(x.tolist())
    assert results[-1] == results[-2]
    with pytest.raises(ad.AutogradError, match="requires grad"):
        ad.ones(4, requires_grad=True)[1:].resize_(2)


def shrunk(t):
    x = t.arange(6.0)
    view = x[2:4]
    x.resize_(3)
    view.fill_(9)
    return x, view, x.clone().resize_(2), x.resize_as_(t.zeros(2, 3))


def grown(t):
    x = t.arange(6.0)
    view = x[2:4]
    inner = view[1:]
    x.resize_(9)[6:] = 7
    inner.fill_(1)
    x.add_(1)
    return x, view, inner


def grown_from_a_view(t):
    x = t.arange(6.0)
    view = x.view(2, 3)[1]
    view.resize_(5)[3:] = 4
    view.mul_(2)
    x.add_(1)
    return x, view


def put_elsewhere(t):
    x = t.zeros(3)
    view, source = x[1:], t.arange(4.0)
    x.set_(source[1:])
    x.add_(1)
    view.add_(5)
    inner = view[1:]
    view.set_()
    inner.sub_(2)
    return x, view, source, inner


@pytest.mark.parametrize("program", [shrunk, grown, grown_from_a_view, put_elsewhere])
def test_views_live_through_another_size_or_memory(program):
    ours, theirs = program(ad), program(torch)
    assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]
    assert [x.stride() for x in ours if x.numel()] == [x.stride() for x in theirs if x.numel()]


def test_a_storage_is_a_source():
    for t in (ad, torch):
        source = t.arange(6.0)
        x = t.zeros(1).set_(source[2:].untyped_storage())
        x.add_(1)
        assert x.tolist() == source.tolist() == [1, 2, 3, 4, 5, 6]
        read = t.zeros(1, dtype=t.int32).set_(source.untyped_storage()[4:23])
        assert read.tolist() == [0x40000000, 0x40400000, 0x40800000, 0x40A00000]
        read[1] = 0
        assert source.tolist() == [1, 2, 0, 4, 5, 6]
    with pytest.raises(ad.DTypeError, match="source has"):
        ad.zeros(1).set_(ad.arange(6).storage())
    with pytest.raises(ad.InvalidType, match="expected a tensor for argument 'source', got list"):
        ad.zeros(1).set_([1.0])


REAL = {
    "to": lambda x: x.to(ad.float32), "float": lambda x: x.float(), "int": lambda x: x.int(),
    "copy_": lambda x: ad.ones(2).copy_(x), "type": lambda x: x.type("float64"),
    "setitem": lambda x: ad.ones(2).__setitem__(0, x[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REAL))
def test_complex_made_real_warns(name):
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
        REAL[name](ad.tensor([1 + 2j, 3j]))


def test_other_casts_and_gradients_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = ad.tensor([1 + 2j, 3j], requires_grad=True)
        w = ad.ones(2, requires_grad=True)
        (x * w).abs().sum().backward()
        assert w.grad.dtype is ad.float32
        assert x.detach().bool().all() and x.detach().real.double().dtype is ad.float64
        assert x.detach().to(ad.complex128).dtype is ad.complex128


COLUMNS = {
    "matrix": (
        lambda: ad.tensor([[1.5, -2.0], [10.0, 0.25]]),
        "  1.5000 -2.0000\n 10.0000  0.2500\n[ CPUFloatType{2,2} ]",
    ),
    "images": (
        lambda: ad.arange(8).reshape(2, 2, 1, 2),
        "(0,0,.,.) =\n 0 1\n(0,1,.,.) =\n 2 3\n(1,0,.,.) =\n 4 5\n(1,1,.,.) =\n 6 7\n"
        "[ CPULongType{2,2,1,2} ]",
    ),
    "vector": (lambda: ad.tensor([True, False]), "  True\n False\n[ CPUBoolType{2} ]"),
    "number": (lambda: ad.tensor(2.5), " 2.5000\n[ CPUFloatType{} ]"),
    "empty": (lambda: ad.zeros(0, 2), "[ CPUFloatType{0,2} ]"),
    "history": (
        lambda: ad.ones(1, requires_grad=True) * 2,
        " 2.\n[ CPUFloatType{1} ], grad_fn=<MulBackward0>",
    ),
}


@pytest.mark.parametrize("name", list(COLUMNS))
def test_printed_as_libtorch_does(name):
    make, wanted = COLUMNS[name]
    with ad.printoptions(profile="libtorch"):
        assert str(make()) == wanted
    assert "CPU" not in str(make())


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_is_memory(shared, tmp_path):
    for t in (ad, torch):
        path = tmp_path / t.__name__
        path.write_bytes(np.arange(6, dtype=np.float32).tobytes())
        found = t.UntypedStorage.from_file(str(path), shared, 24)
        part = found[8:16]
        assert (found.nbytes(), part.nbytes(), part.untyped().tolist()[:2]) == (24, 8, [0, 0])
        x = t.asarray(part, dtype=t.uint8).view(t.float32)
        assert x.tolist() == [2.0, 3.0]
        x.mul_(10)  # the memory is one; the file's, where it is shared
        assert t.asarray(found, dtype=t.uint8).view(dtype=t.float32)[2] == 20
        del x, part, found
        assert np.frombuffer(path.read_bytes(), np.float32)[2] == (20 if shared else 2)


def test_a_file_that_is_too_short_is_no_memory(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"abc")
    assert ad.UntypedStorage.from_file(path).nbytes() == 0
    for count in (4, -1, 1 << 62):
        with pytest.raises(ValueError, match="which has 3"):
            ad.UntypedStorage.from_file(path, nbytes=count)
    with pytest.raises(TypeError):
        ad.UntypedStorage.from_file(path, nbytes=2.5)
    with pytest.raises(FileNotFoundError):
        ad.UntypedStorage.from_file(tmp_path / "none")


def test_a_like_tensor_of_one_without_memory():
    full = functools.partial(ad.full_like, fill_value=2)
    for make in (ad.empty_like, ad.zeros_like, ad.ones_like, full):
        x = ad.zeros(2, 3, dtype=ad.float64, device="meta")
        assert make(x).is_meta
        y = make(x, device="cpu")
        assert not y.is_meta and y.shape == (2, 3) and y.dtype is ad.float64


def test_bytes_of_storages_are_written():
    for lib in (ad, torch):
        a, b = lib.zeros(3), lib.ones(3)
        view = a[1:]
        a.untyped_storage().copy_(b.untyped_storage())
        assert view.tolist() == [1, 1]
        a[:1].untyped_storage().fill_(0)
        assert a.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="copy_ of 8 bytes into 12"):
        ad.ones(3).untyped_storage().copy_(ad.ones(2).untyped_storage())


CONJUGATED = {
    "whole": lambda x: x.conj().mul_(2),
    "part": lambda x: x.conj().imag.fill_(7),
    "adjoint": lambda x: x.mH.__setitem__((0, 1), 5j),
    "view": lambda x: x[1].conj().add_(1),
    "twice": lambda x: x.conj().conj().mul_(1j),
    "copy": lambda x: x.conj().resolve_conj().zero_(),
    "physical": lambda x: x.conj_physical().zero_(),
}


@pytest.mark.parametrize("name", list(CONJUGATED))
def test_a_conjugate_is_a_view(name):
    found = []
    for t in (ad, torch):
        x = t.tensor([[1 + 2j, 3j], [4 - 1j, 2]])
        held = x.conj()
        part = held[0]
        CONJUGATED[name](x)
        found.append((x.tolist(), held.tolist(), part.tolist()))
        x[0, 0] = 1 - 9j
        found[-1] += (held.tolist(), part.tolist())
    assert found[0] == found[1]


def test_what_a_gradient_needs_is_not_changed_through_its_conjugate():
    for t in (ad, torch):
        x, w = t.tensor([1j]), t.ones(1, dtype=t.complex64, requires_grad=True)
        y = w * x
        x.conj().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.abs().sum().backward()


@pytest.mark.parametrize(
    "write",
    [
        lambda x, w: (w * 2).conj().mul_(2),
        lambda x, w: x.conj().copy_(w),
        lambda x, w: ad.compile(lambda x: x.clone().conj().mul_(2))(x),
        lambda x, w: ad.compile(lambda x: (x.conj(), x.mul_(2)))(x),
        lambda x, w: ad.func.vmap(lambda x: x.clone().conj().mul_(2))(x),
    ],
)
def test_writes_that_a_conjugate_cannot_carry_are_refused(write):
    x = ad.ones(2, dtype=ad.complex64)
    with pytest.raises(ad.Unsupported, match=r"conj_physical\(\)"):
        write(x, ad.ones(2, dtype=ad.complex64, requires_grad=True))


def test_storages_are_written_by_place():
    found = []
    for t in (ad, torch):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # typed storages are deprecated
            x = t.ones(3)
            x.storage()[0] = 2
            x.storage()[1:] = 4
            x.untyped_storage()[4:8] = 0
            found.append((x.tolist(), x.storage()[2], x.untyped_storage()[4]))
    assert found[0] == found[1] == ([2.0, 0.0, 4.0], 4.0, 0)


def test_a_part_of_a_storage_is_where_it_is():
    for t in (ad, torch):
        x = t.zeros(5)
        part = x.untyped_storage()[4:16]
        part[4:8].fill_(1)
        part[8:].copy_(t.ones(1).untyped_storage())
        assert x.view(t.uint8).tolist() == [0] * 8 + [1] * 4 + [0, 0, 128, 63] + [0] * 4
        y = t.zeros(()).set_(part)
        assert y.untyped_storage().nbytes() == 12 and y.data_ptr() == x.data_ptr() + 4
        with pytest.raises(RuntimeError, match="step"):
            part[::2]
    x = ad.ones(4, requires_grad=True) * 1
    product = (x * x).sum()
    ad.zeros(1).set_(x.detach().untyped_storage()[:8]).add_(1)
    with pytest.raises(ad.AutogradError, match="modified"):
        product.backward()


def test_a_capsule_serves_once():
    x = ad.ones(2)
    capsule = ad.to_dlpack(x)
    ad.from_dlpack(capsule).add_(1)
    assert x.tolist() == [2.0, 2.0]
    assert ad.from_dlpack(np.ones(2).__dlpack__()).tolist() == [1.0, 1.0]
    assert ad.from_dlpack(torch.ones(2, dtype=torch.bfloat16).__dlpack__()).dtype is ad.bfloat16
    with pytest.raises(RuntimeError, match="taken over already"):
        ad.from_dlpack(capsule)
