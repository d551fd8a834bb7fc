"""Creation, conversion and shared memory, side by side with PyTorch."""

from __future__ import annotations

import itertools
import os
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import dtype as dt

torch = pytest.importorskip("torch")

# Each line runs with `torch` and `T` (its `tensor`) standing for either library: the same text must
# come out, or an error that is also of PyTorch's class.
SAME = """
T(np.float64(1.))
T([np.float64(1.)])
T([np.float32(1.)])
T([np.float64(1.), np.float32(1.)])
T([np.int32(1)])
T(np.int32(1))
T([np.int64(1), True])
T([T(1.,dtype=torch.float64), 2])
T([T([1,2]),T([3,4])])
T([T([1]),T([3])])
T([[T(1),2],[3,4.]])
T([T(1.,requires_grad=True)])
T([np.array([1,2]),np.array([3,4])])
T([np.array([1.,2]),np.array([3,4])])
T([np.array([1.,2]),[3,4]])
T([1,[2]])
T([[1,2],[3]])
T([[1],[3,2]])
T([[1,2],3])
T([[[1],[2]],[[3],[4,5]]])
T('a')
T(['a'])
T(b'ab')
T(None)
T([None])
T({})
T({1})
T(object())
T(range(3))
T((1,2.))
T([])
T([[],[]])
T([[[]]])
T([True, False])
T([True, 2])
T([1,2+1j])
T(2**63)
T(2**63-1)
T([2**63])
T([-2**63])
T(2**70)
T([2**70,1.])
T(300,dtype=torch.uint8)
T([300],dtype=torch.uint8)
T(-1,dtype=torch.uint8)
T([[1.5,-3.]],dtype=torch.int8)
T(1.7,dtype=torch.int64)
T(float('nan'),dtype=torch.int64)
T([float('inf')],dtype=torch.int32)
T(1+2j,dtype=torch.float32)
T([1+0j],dtype=torch.float32)
T([1, 0.5, 0],dtype=torch.bool)
T([1.,2.],dtype=torch.bfloat16)
T(1e40)
T(1e10,dtype=torch.float16)
T(1,requires_grad=True)
T([1.],requires_grad=True)
T([True,False],dtype=torch.float32)
T(T([1.,2.]))
T(np.array(['a']))
T(np.array([1,2],dtype=object))
T(np.array([1,2],dtype='>i4'))
T(np.array([3,2,1])[::-1])
T(np.zeros((0,3)))
T(bytearray(b'ab'))
T(np.array([1.5]),dtype=torch.int32)
T(np.bool_(True))
T([np.bool_(True)])
T([1], dtype=float)
T([1], dtype=int)
T([1], dtype=bool)
T([1], device='cpu')
T([1], device='foo')
torch.zeros(2,3,dtype=int)
torch.zeros([2,3])
torch.zeros((2,3))
torch.zeros(())
torch.zeros()
torch.zeros(-1)
torch.zeros(2.5)
torch.zeros('a')
torch.zeros(size=(2,))
torch.zeros(torch.Size([2]))
torch.zeros(T(2),T(3))
torch.zeros(0,3)
torch.ones(2,dtype=torch.bfloat16)
torch.ones(2,dtype=torch.complex64)
torch.ones(2,dtype=torch.bool)
torch.ones(2,requires_grad=True)
torch.ones(2,out=torch.empty(2))
torch.empty(2,0)
torch.empty(2,3,4).shape
torch.full((2,),1)
torch.full((2,),1.)
torch.full((2,),True)
torch.full((2,),1j)
torch.full((2,),T(3))
torch.full((2,),T([3]))
torch.full(2,1)
torch.full((2,),'a')
torch.full((2,),1.5,dtype=torch.int32)
torch.full((2,),300,dtype=torch.uint8)
torch.full((2,),-1,dtype=torch.uint8)
torch.full((2,),256,dtype=torch.int8)
torch.full((2,),float('nan'))
torch.full_like(T([1]),2.7)
torch.full_like(T([1.]),7)
torch.zeros_like([1])
torch.zeros_like(T([1]),dtype=torch.float32)
torch.zeros_like(T([[1,2],[3,4]]).T).stride()
torch.zeros_like(torch.zeros(4,4)[::2,::2]).stride()
torch.zeros_like(torch.zeros(1,3).expand(2,3)).stride()
torch.zeros_like(torch.zeros(2,3).T, memory_format=torch.contiguous_format).stride()
torch.ones_like(T([1.],requires_grad=True))
torch.empty_like(torch.empty(2,3,4,5).permute(0,2,3,1)).stride()
torch.empty_strided((2,3),(1,2)).stride()
torch.empty_permuted((2,3),(1,0)).stride()
torch.arange(5)
torch.arange(5.)
torch.arange(1,5,2)
torch.arange(5,1)
torch.arange(5,1,-2)
torch.arange(1,2,0.25)
torch.arange(0)
torch.arange(1,1)
torch.arange(1,5,0)
torch.arange(5,dtype=torch.float32)
torch.arange(0,1,0.1)
torch.arange(0,float('inf'))
torch.arange(T(1),T(4))
torch.arange(0,5,dtype=torch.bool)
torch.arange(0.5,5,dtype=torch.int64)
torch.arange(0.5,5,dtype=torch.int32)
torch.arange(0,5,1.5,dtype=torch.int64)
torch.arange(end=3)
torch.arange(start=1,end=3)
torch.arange(3,dtype=torch.bfloat16)
torch.arange(3,dtype=torch.complex64)
torch.arange(3,out=torch.empty(3,dtype=torch.float64))
torch.arange('a')
torch.linspace(0,1,5)
torch.linspace(-3,10,7,dtype=torch.float64)
torch.linspace(0,10,5,dtype=torch.int64)
torch.linspace(0,1,0)
torch.linspace(0,1,1)
torch.linspace(0,1,-1)
torch.linspace(0,1,2.5)
torch.linspace(0,1)
torch.linspace(1,-1,3,dtype=torch.complex64)
torch.linspace(0,1j,3)
torch.linspace(T(0.),T(1.),3)
torch.linspace(0,7,4,dtype=torch.int32)
torch.linspace(0,1,5,dtype=torch.bool)
torch.linspace(0,1,5,out=torch.empty(5,dtype=torch.bool))
torch.logspace(0,2,3,dtype=torch.bool)
torch.logspace(0,2,3)
torch.logspace(0,2,3,base=2)
torch.logspace(0,2,3,dtype=torch.int64)
torch.logspace(-1,1,4,dtype=torch.float64)
torch.logspace(0,2,1)
torch.logspace(0,2,0)
torch.eye(2)
torch.eye(2,3)
torch.eye(3,2,dtype=torch.int64)
torch.eye(-1)
torch.eye(0)
torch.eye(2,dtype=torch.bool)
torch.scalar_tensor(3)
torch.scalar_tensor(3,dtype=torch.int32)
torch.asarray([1,2])
torch.asarray(3)
torch.asarray(np.array([1.]))
torch.asarray(np.array([1.]),dtype=torch.int64,copy=False)
torch.asarray([1.],copy=False)
torch.asarray(b'abcd',dtype=torch.uint8)
torch.asarray('a')
torch.asarray([1.],requires_grad=True)
torch.asarray(T([1.],requires_grad=True))
torch.frombuffer(bytearray(b'abcdefgh'),dtype=torch.int32)
torch.frombuffer(bytearray(b'abcdefgh'),dtype=torch.int32,count=1,offset=4)
torch.frombuffer(bytearray(b'abcdefgh'),dtype=torch.int16,offset=1,count=2)
torch.frombuffer(bytearray(b'abcdefg'),dtype=torch.int32)
torch.frombuffer(bytearray(b''),dtype=torch.int32)
torch.frombuffer(bytearray(b'abcd'),dtype=torch.int32,offset=5)
torch.frombuffer(bytearray(b'abcd'),dtype=torch.int32,count=2)
torch.frombuffer([1],dtype=torch.int32)
torch.from_numpy(np.array([1,2,3])[::-1])
torch.from_numpy(np.array(['a']))
torch.from_numpy([1])
torch.from_numpy(np.float32(1))
torch.from_numpy(np.array([1],dtype='>i4'))
torch.from_numpy(np.array([(1,2.)],dtype=[('a','i1'),('b','f4')])['b'])
torch.from_numpy(np.array([1+2j]))
torch.from_numpy(np.arange(6).reshape(2,3).T).stride()
torch.as_tensor([1,2],dtype=torch.float32)
torch.as_tensor(np.array([1]))
torch.as_tensor(3)
torch.Tensor([1,2])
torch.Tensor(2,3).shape
torch.Tensor()
torch.Tensor(2.5)
torch.Tensor(T([1,2]))
torch.Tensor((2,3))
torch.Tensor(torch.Size([2,3])).shape
torch.Tensor(np.array([1,2.]))
torch.FloatTensor([1,2])
torch.LongTensor([1.5,2])
torch.LongTensor(2,3).shape
torch.BoolTensor([1,0])
torch.ByteTensor([1,2])
torch.HalfTensor([1,2])
isinstance(T([1]), torch.LongTensor)
isinstance(T([1.]), torch.LongTensor)
T([1.]).type()
T([1]).type()
T([1j]).type()
T([True]).type()
T([1.]).type(torch.int32)
T([1.]).type(torch.IntTensor)
T([1.]).type_as(T([1]))
T([1.]).to(torch.int32,copy=True)
T([1.]).to('cpu',torch.int32)
T([1.]).to('cpu',torch.int32,True,True)
T([1.]).to(torch.int32,False,True)
T([1.]).to(T([1]))
T([1.]).to(float)
T([1.]).to(device='cpu',dtype=torch.int8)
T([1.]).to()
T([1.]).to(None)
T([1.9,-1.9]).byte()
T([1.9,-1.9]).int()
T([1.9,0.]).bool()
T([1]).half()
T([1]).cdouble()
T([1.]).cpu()
T([1.]).new_tensor([1,2])
T([1.]).new_tensor(T([1,2]))
T([1.]).new_tensor(2.5)
T([1]).new_tensor([2.5])
T([1]).new_zeros(2,3)
T([1]).new_zeros((2,3),dtype=torch.float32)
T([1]).new_full((2,),2.5)
T([1.]).new_full((2,),True)
T([1]).new_ones(2,requires_grad=True)
T([1.]).new_empty((0,3))
T([1.]).new(2,3).shape
T([1]).new([1.5])
torch.is_nonzero(T([1,2]))
torch.is_nonzero(T([]))
torch.is_nonzero(T([0.]))
torch.is_tensor(3)
torch.numel(T([1,2]))
torch.typename(T([1.]))
T([1.]).resize_(3).shape
T([1.,2,3,4]).resize_(2,2)
T([1.,2,3,4]).resize_(2)
T([1.,2,3,4]).set_(T([5.]))
T([1.]).set_(T([5]))
torch.get_default_device()
torch.is_storage(T([1.]).untyped_storage())
T([1.,2]).untyped_storage().nbytes()
len(T([1.,2]).untyped_storage())
T([1.,2]).untyped_storage().tolist()
T([[1.,2],[3,4]])[1].untyped_storage().size()
"""


def outcome(line, library):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = eval(line, {"torch": library, "T": library.tensor, "np": np})
        except Exception as error:
            return error
    return re.sub(r"\s+", " ", repr(value)).replace("adjoint.", "torch.")


@pytest.mark.parametrize("line", SAME.strip().splitlines())
def test_same_as_pytorch(line):
    expected, found = outcome(line, torch), outcome(line, ad)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, type(expected)), f"{expected!r}, not {found!r}"
        assert isinstance(found, ad.AdjointError) or "argument" in str(found)


def test_the_comparison_rejects_a_difference():
    with pytest.raises(AssertionError):
        test_same_as_pytorch("torch.zeros(2) if torch.__name__ == 'torch' else torch.ones(2)")
    with pytest.raises(AssertionError):
        test_same_as_pytorch("T([1, [2]]) if torch.__name__ == 'torch' else T([1])")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ad.tensor([[1, 2], [3]]), ["length 2", "dim 1", "got 1", "pad"]),
        (lambda: ad.tensor([1, "a"]), ["str", "'a'", "numbers"]),
        (lambda: ad.tensor(300, dtype=ad.uint8), ["300", "uint8", "overflow", "wider"]),
        (lambda: ad.zeros(2, -1), ["(2, -1)", "non-negative"]),
        (lambda: ad.from_numpy(np.array(["a"])), ["<U1", "supported", "astype"]),
        (lambda: ad.from_numpy(np.arange(3)[::-1]), ["negative", "(-8,)", "copy()"]),
        (lambda: ad.ones(1).to("cuda:99"), ["cuda", "cpu"]),
        (lambda: ad.ones(1).cuda(99), ["cuda", "cpu"]),
        (lambda: ad.arange(5, 1), ["5 -> 1", "sign of step"]),
        (lambda: ad.ones(1, dtype="floot32"), ["dtype", "'floot32'", "known: bool"]),
        pytest.param(
            lambda: ad.zeros(2, pin_memory=True), ["pin_memory", "leave it out"],
            marks=pytest.mark.skipif(ad.cuda.is_available(), reason="there is a CUDA device"),
        ),
        (lambda: ad.ones(1).to(memory_format="last"), ["'last'", "channels_last", "leave it out"]),
        (lambda: ad.set_default_device("cuda:99"), ["cuda", "cpu"]),
    ],
)  # fmt: skip
def test_errors_name_values_and_remedy(call, words):
    with pytest.raises(ad.AdjointError) as raised:
        call()
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("name", [d.name for d in dt.ALL])
def test_ranges_and_lines_of_every_dtype(name):
    d, t = dt.by_name(name), getattr(torch, name)
    rng = np.random.default_rng(3)
    for _ in range(10):
        start, end = sorted(rng.integers(0, 50, 2).tolist())
        steps = int(rng.integers(0, 30))
        if d.category in (1, 2):
            ours, other = ad.arange(start, end, 3, dtype=d), torch.arange(start, end, 3, dtype=t)
            assert ours.tolist() == other.tolist()
        if d.category > 0:
            ours = ad.linspace(start, end, steps, dtype=d).to(ad.complex128).numpy()
            other = torch.linspace(start, end, steps, dtype=t).to(torch.complex128).numpy()
            narrow = {"float16": 2e-3, "bfloat16": 2e-2}
            tolerance = narrow.get(name, 0 if d.category == 1 else 1e-6)
            np.testing.assert_allclose(ours, other, rtol=tolerance, atol=tolerance * 10)


def test_fractional_ranges():
    rng = np.random.default_rng(0)
    for _ in range(200):
        start, end = rng.normal(size=2).round(2).tolist()
        step = float(np.copysign(round(rng.uniform(0.01, 0.3), 3), end - start))
        ours, other = ad.arange(start, end, step), torch.arange(start, end, step)
        assert ours.shape == other.shape
        np.testing.assert_allclose(ours.numpy(), other.numpy(), rtol=1e-6, atol=1e-7)


def test_random_nestings():
    rng = np.random.default_rng(1)

    def nested(depth):
        kind = rng.integers(6)
        if depth == 0 or kind == 0:
            return [True, 2, 2.5, 1j, np.float32(1), -7][rng.integers(6)]
        length = rng.integers(0, 3) if rng.random() < 0.7 else 2
        return [nested(depth - 1) for _ in range(length)]

    agreed = 0
    for _ in range(2000):
        data = nested(3)
        found, expected = outcome(f"T({data!r})", ad), outcome(f"T({data!r})", torch)
        if expected == found:
            agreed += 1
        elif isinstance(expected, str):  # PyTorch looks no further once a size is 0
            assert "size=(" in expected, data
            assert re.search("sequence|nested deeper", str(found)), data
        else:
            assert isinstance(found, Exception), data
    assert agreed > 300


# ---- sharing -------------------------------------------------------------------------------------


def test_tensor_copies_and_from_numpy_shares():
    array = np.array([1.0, 2.0])
    copied, shared = ad.tensor(array), ad.from_numpy(array)
    assert ad.as_tensor(array).data_ptr() == shared.data_ptr() == array.ctypes.data
    assert ad.asarray(array).data_ptr() == array.ctypes.data
    assert ad.asarray(array, copy=True).data_ptr() != array.ctypes.data
    array[0] = 9
    assert copied.tolist() == [1, 2]
    assert shared.tolist() == [9, 2]
    assert np.shares_memory(shared.numpy(), array)
    assert np.shares_memory(np.asarray(shared), array)
    assert not np.shares_memory(np.array(shared, copy=True), array)


def test_as_tensor_and_to_return_the_same_object_where_nothing_changes():
    x = ad.ones(2, requires_grad=True)
    assert ad.as_tensor(x) is x
    for same in (x.to(ad.float32), x.to("cpu"), x.float(), x.cpu(), x.to(x), x.type(ad.float32)):
        assert same is x
    assert x.to(ad.float32, copy=True) is not x
    assert x.to(ad.float32, copy=True).data_ptr() != x.data_ptr()


def test_gradients_flow_through_conversions():
    x = ad.ones(2, requires_grad=True)
    (x.double() * ad.tensor([2.0, 3.0], dtype=ad.float64)).sum().backward()
    assert x.grad.dtype is ad.float32
    assert x.grad.tolist() == [2, 3]
    x.grad = None
    (x.to(ad.complex64) * (1 + 2j)).real.sum().backward()
    assert x.grad.tolist() == [1, 1]
    assert not x.int().requires_grad
    y = x.to(ad.float32, copy=True)
    (y * 5).sum().backward()
    assert x.grad.tolist() == [6, 6]


BORDERS = {  # a tensor, and NumPy's array of its memory
    "numpy": lambda t, array: (x := t.tensor(array), x.numpy()),
    "numpy of a view": lambda t, array: (x := t.tensor(array)[:], x.numpy()),
    "numpy of a detached leaf": lambda t, array: (
        x := t.tensor(array, requires_grad=True),
        x.detach().numpy(),
    ),
    "force": lambda t, array: (x := t.tensor(array), x.numpy(force=True)),
    "asarray of NumPy": lambda t, array: (x := t.tensor(array), np.asarray(x)),
    "from_numpy": lambda t, array: (t.from_numpy(array), array),
    "as_tensor": lambda t, array: (t.as_tensor(array), array),
    "asarray": lambda t, array: (t.asarray(array), array),
    "from_dlpack": lambda t, array: (t.from_dlpack(array), array),
}


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype)")
def test_what_is_done_to_an_array_object_leaves_the_tensor(border):
    for t in (ad, torch):
        x, array = BORDERS[border](t, np.arange(6.0))
        array.shape = (2, 3)
        array.dtype = np.int64
        array.setflags(write=False)
        assert tuple(x.shape) == (6,)
        assert x.dtype is t.float64
        x.detach().add_(1)
        assert np.array_equal(array.view(np.float64).ravel(), np.arange(1.0, 7.0))
        assert x.detach().numpy().flags.writeable


def test_memory_of_an_object_that_has_an_array_is_known_to_others():
    class Holder:
        array = np.zeros(2)

        def __array__(self, dtype=None, copy=None):
            return self.array

    graph, holder = ad.Graph(), Holder()
    outside = ad.as_tensor(holder)
    with graph:
        y = outside + 1
    assert y.tolist() == [1, 1]
    holder.array[0] = 5
    assert y.tolist() == [6, 1]


def test_dlpack_shares_memory_both_ways():
    for theirs in (np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])):
        x = ad.from_dlpack(theirs)
        x.mul_(3)
        assert theirs.tolist() == [3, 6]
        theirs[0] = 7
        assert x.tolist() == [7, 6]
    x = ad.tensor([[1, 2], [3, 4]])
    torch.from_dlpack(x)[0, 0] = 9
    assert x.tolist() == [[9, 2], [3, 4]]
    assert np.shares_memory(np.from_dlpack(x), x.numpy())
    transposed = ad.from_dlpack(torch.arange(6).reshape(2, 3).T)
    assert transposed.stride() == (1, 3)
    assert torch.from_dlpack(x.T).stride() == (1, 2)
    assert torch.from_dlpack(ad.tensor([True])).tolist() == [True]


def test_dlpack_carries_every_dtype_that_both_have():
    for d in dt.ALL:
        t = torch.tensor([[1, 0], [2, 3]]).to(getattr(torch, d.name))
        x = ad.from_dlpack(t)
        assert x.dtype is d
        assert x.tolist() == t.tolist()
        back = torch.from_dlpack(x.t())
        assert back.dtype is t.dtype
        assert back.tolist() == t.t().tolist()
        assert back.data_ptr() == t.data_ptr() == x.data_ptr()


def test_memory_outlives_the_object_it_came_from():
    x = ad.from_dlpack(torch.arange(1000.0).bfloat16())
    y = torch.from_dlpack(ad.arange(1000.0).bfloat16())
    z = ad.from_numpy(np.arange(1000.0))
    junk = [np.zeros(1000) for _ in range(50)]
    assert len(junk) == 50
    assert float(x[512]) == float(y[512]) == float(z[512]) == 512


def test_dlpack_errors():
    with pytest.raises(RuntimeError, match="detach"):
        ad.to_dlpack(ad.ones(1, requires_grad=True))
    with pytest.raises(RuntimeError, match="detach"):
        ad.from_dlpack(ad.ones(1, requires_grad=True))
    with pytest.raises(TypeError, match="__dlpack__"):
        ad.from_dlpack([1, 2])


def test_storage_is_shared_by_views():
    x = ad.arange(6.0).reshape(2, 3)
    y = x[1:]
    assert y.untyped_storage() == x.untyped_storage()
    assert y.untyped_storage().data_ptr() == x.data_ptr()
    assert y.storage_offset() == 3
    assert x.clone().untyped_storage() != x.untyped_storage()
    assert x.storage().tolist() == list(range(6))
    assert x.is_set_to(x.detach())
    assert not x.is_set_to(y)


@pytest.mark.parametrize("number", [-1.0, -0.5, -2.5])
def test_negative_floats_do_not_wrap(number):
    """As in PyTorch, where -1 is 255 as uint8 and -1.0 is refused."""
    assert ad.zeros(1, dtype=ad.uint8).fill_(-1).tolist() == [255]
    x = ad.zeros(1, dtype=ad.uint8)
    for call in (lambda: x.fill_(number), lambda: ad.full((1,), number, dtype=ad.uint8),
                 lambda: x.masked_fill_(x == 0, number)):  # fmt: skip
        with pytest.raises(ad.InvalidArgument, match="without overflow"):
            call()


def test_resize_and_set_refuse_what_would_lose_track():
    x = ad.from_numpy(np.ones(4))
    view = x[:2]
    for call in (lambda: x.resize_(5), lambda: view.resize_(9)):
        with pytest.raises(RuntimeError, match="known outside"):
            call()
    with pytest.raises(RuntimeError, match="requires grad"):
        ad.ones(2, requires_grad=True).resize_(3)


def test_shared_memory_is_seen_by_a_forked_process():
    x = ad.ones(3).share_memory_()
    assert x.is_shared()
    assert x.tolist() == [1, 1, 1]
    assert not ad.ones(3).is_shared()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads are idle
        child = os.fork()
    if not child:
        x._data[1] = 5
        os._exit(0)
    os.waitpid(child, 0)
    assert x.tolist() == [1, 5, 1]


def test_tensors_made_in_inference_mode_are_inference_tensors():
    with ad.inference_mode():
        made = [ad.ones(1), ad.tensor([1.0]), ad.zeros_like(ad.ones(2)), ad.rand(2), ad.arange(2)]
    assert all(x.is_inference() for x in made)
    assert not ad.ones(1).is_inference()


def test_default_device():
    assert ad.get_default_device() == ad.device("cpu")
    with ad.device("cpu"):
        assert ad.zeros(1).device == ad.device("cpu")
    ad.set_default_device(None)
    with pytest.raises(RuntimeError, match="cuda"), ad.device("cuda:99"):
        pass
    assert ad.get_default_device() == ad.device("cpu")


def test_large_lists_take_the_short_way():
    values = list(range(100_000))
    assert ad.tensor(values).tolist() == values
    assert ad.tensor([values, values], dtype=ad.float64).shape == (2, 100_000)
    assert ad.tensor([*values, 0.5]).dtype is ad.float32


def test_the_bounds_of_randint_like_have_names():
    for t in (ad, torch):
        x = t.zeros(3)
        assert t.randint_like(x, high=1).tolist() == t.randint_like(x, 1).tolist() == [0, 0, 0]
        for found in (t.randint_like(x, 4, 5), t.randint_like(x, low=4, high=5)):
            assert found.tolist() == [4, 4, 4] and found.dtype is x.dtype


@pytest.mark.filterwarnings("ignore:torch.asarray. unspecified requires_grad:UserWarning")
def test_asarray_of_tensors_with_history():
    def outcomes(lib):
        for copy, options, place, kind in itertools.product(
            (None, True, False), ({}, {"requires_grad": False}, {"requires_grad": True}), range(3),
            (None, lib.float64),
        ):  # fmt: skip
            leaf = lib.ones(2, requires_grad=True)
            x = (leaf, leaf * 2, lib.ones(2))[place]
            try:
                y = lib.asarray(x, copy=copy, dtype=kind, **options)
            except ValueError:
                yield None
            else:
                yield y is x, y.requires_grad, y.is_leaf, x.requires_grad

    assert list(outcomes(ad)) == list(outcomes(torch))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("start", "end", "steps"), [(-1.21905, 1.21905, 128), (0.1, 7.3, 1001)])
def test_each_number_of_a_line_is_rounded_once(kind, start, end, steps):
    """PyTorch's bits: half of them differed, and with them a grid's step where others took it."""
    first, last = kind(start), kind(end)
    step, half = Fraction(float((last - first) / kind(steps - 1))), steps // 2
    right = [Fraction(float(first)) + step * i for i in range(half)]
    right += [Fraction(float(last)) - step * (steps - 1 - i) for i in range(half, steps)]
    found = ad.linspace(start, end, steps, dtype=getattr(ad, kind.__name__))
    assert found.tolist() == [float(kind(float(each))) for each in right]


def test_a_line_wider_than_its_dtype_stays_finite():
    assert ad.linspace(-3e38, 3e38, 5).isfinite().all()
    assert ad.linspace(0.0, 1e308, 5, dtype=ad.float64).isfinite().all()
