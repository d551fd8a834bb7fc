"""The Tensor itself: facts, values out, copies, pickles, NumPy, subclasses."""

from __future__ import annotations

import copy
import fractions
import gc
import operator
import pickle
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import dtype as dt

from .pytorch import torch

NAMES = [d.name for d in dt.ALL]


def example(name):
    return ad.tensor([[0.0, 1.0, 2.5], [3.0, 4.0, 100.0]]).to(dt.by_name(name))


# ---- facts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("view", ["plain", "transposed", "sliced", "0-d", "empty"])
def test_facts_agree_with_pytorch(name, view):
    x, t = example(name), torch.zeros(2, 3, dtype=getattr(torch, name))
    x, t = {
        "plain": lambda: (x, t),
        "transposed": lambda: (x.t(), t.t()),
        "sliced": lambda: (x[1:, ::2], t[1:, ::2]),
        "0-d": lambda: (x[0, 0], t[0, 0]),
        "empty": lambda: (x[2:], t[2:]),
    }[view]()
    assert tuple(x.shape) == tuple(x.size()) == tuple(t.shape)
    assert x.ndim == x.dim() == x.ndimension() == t.dim()
    assert x.numel() == x.nelement() == t.numel() == x.shape.numel()
    assert x.element_size() == x.itemsize == t.element_size()
    assert x.nbytes == t.nbytes
    if x.numel():
        assert x.stride() == t.stride()
        assert x.storage_offset() == t.storage_offset()
    assert x.is_contiguous() == t.is_contiguous()
    assert x.is_floating_point() == t.is_floating_point()
    assert x.is_complex() == t.is_complex()
    assert x.is_signed() == t.is_signed()
    assert x.get_device() == t.get_device()
    assert x.type().removeprefix("adjoint") == t.type().removeprefix(torch.__name__)
    assert x.device.type == "cpu"
    assert not x.is_cuda


def test_size_of_one_dimension():
    x = ad.zeros(2, 3)
    assert x.size(0) == 2
    assert x.size(-1) == 3
    with pytest.raises(IndexError, match="out of range"):
        x.size(2)


def test_shape_is_a_tuple_that_stays_a_size():
    shape = ad.zeros(2, 3, 4).shape
    assert shape == (2, 3, 4)
    assert isinstance(shape[1:], ad.Size)
    assert (shape + shape[:1]).numel() == 48
    assert repr(shape) == "adjoint.Size([2, 3, 4])"


def test_a_size_has_ints_alone():
    size = ad.Size((2, True, ad.tensor(3), np.int32(4)))
    assert repr(size) == "adjoint.Size([2, 1, 3, 4])"
    assert {type(each) for each in size} == {int}
    for wrong in (1.5, "a", ad.tensor(2.5), [1]):
        with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item 1 is"):
            ad.Size((2, wrong))


# ---- values out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_values_as_python_and_numpy(name):
    x = example(name)
    t = torch.tensor([[0.0, 1.0, 2.5], [3.0, 4.0, 100.0]]).to(getattr(torch, name))
    assert x.tolist() == t.tolist()
    assert [type(v) for v in x[0].tolist()] == [type(v) for v in t[0].tolist()]
    assert x[1, 2].item() == t[1, 2].item()
    assert type(x[1, 2].item()) is type(t[1, 2].item())
    assert np.shares_memory(x.numpy(), x._data)
    assert np.asarray(x).dtype == x.dtype.numpy
    assert bool(x[0, 0]) is False
    assert bool(x[0, 1]) is True


def test_numbers():
    x = ad.tensor(2.75)
    assert (int(x), float(x), complex(x)) == (2, 2.75, 2.75 + 0j)
    assert [10, 20, 30][ad.tensor(1)] == 20
    assert round(float(ad.tensor([2.5])), 1) == 2.5
    with pytest.raises(TypeError, match="integer tensors"):
        [10][ad.tensor(1.0)]
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(ad.ones(2))
    with pytest.raises(RuntimeError, match="2 elements"):
        ad.ones(2).item()
    with pytest.raises(TypeError, match="0-d"):
        len(ad.tensor(1))
    with pytest.raises(TypeError, match="0-d"):
        iter(ad.tensor(1))


def test_iteration_gives_rows_that_share_memory():
    x = ad.zeros(2, 3)
    for i, row in enumerate(x):
        row.fill_(i + 1)
    assert x.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert len(x) == 2
    assert 2.0 in x
    assert 7.0 not in x


def test_a_tensor_that_requires_grad_is_not_given_to_numpy_unasked():
    x = ad.ones(2, requires_grad=True)
    for call in (x.numpy, lambda: np.asarray(x), lambda: np.from_dlpack(x)):
        with pytest.raises(RuntimeError, match="detach"):
            call()
    assert x.numpy(force=True).tolist() == [1, 1]


def test_numpy_functions_take_tensors():
    x = ad.tensor([1.0, 4.0])
    assert np.sqrt(x).tolist() == [1, 2]
    assert isinstance(np.sqrt(x), ad.Tensor)
    assert np.mean(x.numpy()) == 2.5
    assert np.array(x, dtype=np.float64).dtype == np.float64
    assert isinstance(np.float32(2) * x, ad.Tensor)
    with pytest.raises(ValueError, match="copy"):
        np.array(x, dtype=np.float64, copy=False)


# ---- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_deepcopies_and_pickles_are_equal_and_independent(name, duplicate):
    for x in (example(name), example(name).t(), example(name)[0, 0], example(name)[2:]):
        y = duplicate(x)
        assert type(y) is ad.Tensor
        assert y.dtype is x.dtype
        assert tuple(y.shape) == tuple(x.shape)
        assert y.tolist() == x.tolist()
        assert y.untyped_storage() != x.untyped_storage() or not x.numel()
        y.zero_()
        assert x.tolist() == x.clone().tolist() == duplicate(x).tolist()


def test_a_duplicate_keeps_gradient_flags_and_attributes():
    x = ad.ones(2, requires_grad=True)
    x.label = ["weights"]
    (x * 3).sum().backward()
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.requires_grad
        assert y.is_leaf
        assert y.label == ["weights"]
        assert y.label is not x.label
        y.grad = None
        (y * 2).sum().backward()
        assert y.grad.tolist() == [2, 2]
        assert x.grad.tolist() == [3, 3]
    assert copy.deepcopy(x).grad.tolist() == [3, 3]
    assert copy.deepcopy(x).grad is not x.grad


def test_deepcopy_keeps_the_order_of_memory():
    assert copy.deepcopy(ad.ones(2, 3).t()).stride() == (1, 3)


def test_deepcopy_keeps_sharing_within_one_structure():
    x = ad.ones(2)
    first, second = copy.deepcopy([x, x])
    assert first is second


def test_deepcopy_keeps_views_of_one_memory():
    x, plain = ad.zeros(2, 3), ad.zeros(2)
    parameter = ad.nn.Parameter(x[1])
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (3, 0, 1, 4, 2)):
        given = [x, x.t(), x[1, 1:], parameter, x.detach()]
        made = dict(zip(order, copy.deepcopy([given[i] for i in order]), strict=True))
        assert made[1].stride() == (1, 3) and type(made[3]) is ad.nn.Parameter
        made[0].add_(1)
        made[2].add_(1)
        assert made[1].tolist() == [[1, 1], [1, 2], [1, 2]]
        assert made[3].tolist() == [1, 2, 2] and made[3].requires_grad
        assert made[4].tolist() == [[1, 1, 1], [1, 2, 2]]
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]]
    first, second = copy.deepcopy([plain, plain.clone()])
    first.add_(1)
    assert second.tolist() == [0, 0]


def test_computed_tensors_refuse_deepcopy_and_are_pickled_without_history():
    y = ad.ones(1, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(y)
    again = pickle.loads(pickle.dumps(y))
    assert again.tolist() == [2] and again.is_leaf
    assert copy.deepcopy(y.detach()).tolist() == [2]


def test_a_shallow_copy_shares_memory_and_gradient():
    x = ad.ones(2, requires_grad=True)
    y = copy.copy(x)
    assert y.data_ptr() == x.data_ptr()
    (y * 4).sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_detach_and_data_share_memory():
    x = ad.ones(2, requires_grad=True)
    x.detach()[0] = 5
    assert x.tolist() == [5, 1]
    x.data[1] = 7
    assert x.tolist() == [5, 7]
    x.data = ad.tensor([1.0, 2.0, 3.0])
    assert x.shape == (3,)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


# ---- identity and class --------------------------------------------------------------------------


def test_tensors_are_hashed_by_identity():
    x, y = ad.ones(1), ad.ones(1)
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2


def test_a_tensor_is_freed_at_once():
    gc.disable()
    try:
        x = ad.ones(2, requires_grad=True)
        y = (x * 2).exp()
        reference = weakref.ref(y)
        y.sum().backward()
        del y
        assert reference() is None
    finally:
        gc.enable()


def test_subclasses_are_made_like_tensors():
    class Labelled(ad.Tensor):
        pass

    x = Labelled([1.0, 2.0])
    assert isinstance(x, Labelled)
    assert x.tolist() == [1, 2]
    assert type(copy.deepcopy(x)) is Labelled
    assert x.requires_grad_().requires_grad


def test_comparison_with_none_and_strings():
    x = ad.ones(1)
    assert (x == None) is False  # noqa: E711 - what users write
    assert (x != "a") is True


def test_augmented_assignment_is_in_place():
    x = y = ad.ones(2)
    x += 1
    x *= 3
    x -= 2
    x /= 2
    assert y is x
    assert y.tolist() == [2, 2]


def test_axis_and_keepdims_stand_for_dim_and_keepdim():
    x = ad.arange(6.0).reshape(2, 3)
    assert ad.equal(x.sum(axis=0), x.sum(0))
    assert ad.equal(ad.mean(x, axis=1, keepdims=True), x.mean(1, keepdim=True))
    assert ad.equal(x.max(axis=1).values, x.amax(1))
    assert ad.equal(ad.cat([x, x], axis=1), ad.cat([x, x], 1))
    assert ad.equal(ad.linalg.norm(x, axis=0), ad.linalg.norm(x, dim=0))
    with pytest.raises(TypeError, match="axes"):
        x.sum(axes=0)


def test_names_of_the_top_level():
    x = ad.zeros(2)
    assert ad.exp_(x) is x and x.tolist() == [1.0, 1.0]
    assert ad.pi > 3 and ad.inf == float("inf") and ad.nan != ad.nan and ad.newaxis is None
    assert ad.vander(ad.tensor([2, 3]), 3, increasing=True).tolist() == [[1, 2, 4], [1, 3, 9]]
    assert ad.embedding(ad.eye(3), ad.tensor([2])).tolist() == [[0.0, 0.0, 1.0]]
    assert not ad.detach(ad.ones(1, requires_grad=True)).requires_grad


def test_a_format_is_for_single_numbers():
    assert f"{ad.tensor(1.5):.2f}" == "1.50"
    with pytest.raises(TypeError, match="format string"):
        f"{ad.ones(2):.2f}"


def test_stride_of_a_dimension_out_of_range():
    assert ad.zeros(2, 3).stride(-2) == 3
    with pytest.raises(IndexError, match="stride: Dimension out of range"):
        ad.zeros(2, 3).stride(2)


class Named(ad.Tensor):
    """With what its instances carry."""

    name = "nothing"


def test_a_tensor_becomes_one_of_a_subclass_with_memory_and_history():
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).as_subclass(Named)
    y.name = "doubled"
    assert type(y) is Named and y.requires_grad and type(y.as_subclass(ad.Tensor)) is ad.Tensor
    assert type(y + 1) is Named and type(ad.ones(2) + y) is Named
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
    z = ad.zeros(2)
    w = z.as_subclass(Named)
    w[0] = 3
    assert z.tolist() == [3, 0] and type(z) is ad.Tensor
    made = ad.Tensor._make_subclass(Named, z, True)
    assert type(made) is Named and made.requires_grad and made.is_leaf
    z[1] = 4
    assert made.tolist() == [3, 4] and not z.requires_grad
    with pytest.raises(ad.core.errors.InvalidType, match="derive"):
        z.as_subclass(int)


def test_checks_that_programs_write():
    ad._check(True)
    ad._assert(ad.tensor(True), "")
    with pytest.raises(AssertionError, match="why"):
        ad._assert(False, "why")
    for check, error in (
        (ad._check, RuntimeError), (ad._check_index, IndexError), (ad._check_value, ValueError),
        (ad._check_type, TypeError), (ad._check_not_implemented, NotImplementedError),
    ):  # fmt: skip
        with pytest.raises(error, match="said"):
            check(False, lambda: "said")
    with pytest.raises(RuntimeError):
        ad._check_is_size(-1)


class Answering:
    """A class of its own, with answers from the right of every operator."""


ANSWERS = (
    "radd rsub rmul rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift eq ne lt le gt ge"
)
for _name in ANSWERS.split():
    setattr(Answering, f"__{_name}__", lambda self, left, name=_name: name)
OPERATORS = (
    "add sub mul floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge iadd imul "
    "ifloordiv imod ipow iand ior ixor ilshift irshift"
)


@pytest.mark.parametrize("name", OPERATORS.split())
def test_objects_of_other_classes_answer_operators(name):
    run = getattr(operator, name)
    for right in (Answering(), object(), fractions.Fraction(1, 2), [1.0], None, slice(1), "a"):
        found = []
        for t in (ad, torch):
            try:
                y = run(t.ones(2, dtype=t.int64), right)
                found.append(y.tolist() if isinstance(y, t.Tensor) else y)
            except (TypeError, RuntimeError) as error:
                found.append(TypeError if isinstance(error, TypeError) else RuntimeError)
        assert found[0] == found[1], right


def test_a_tensor_is_sought_among_other_objects():
    for t in (ad, torch):
        x = t.ones(1)
        assert x not in [object(), "a", None, [1], int] and x in [object(), x]
        items = [1.0]
        items += x
        assert len(items) == 2 and [1, 2] * t.tensor(2) == [1, 2, 1, 2]
