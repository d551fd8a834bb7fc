"""Keywords that no constructor takes: the error says what was meant."""

from __future__ import annotations

import abc
import copy
import inspect
import pickle
from typing import Generic, TypeVar

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

T = TypeVar("T")
PARAMETERS = [nn.Parameter(ad.ones(2))]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: nn.Linear(in_featurs=3, out_features=2), "in_features"),
        (lambda: nn.Conv2d(1, 2, 3, strides=2), "stride"),
        (lambda: nn.Dropout(rate=0.1), "p"),
        (lambda: nn.Linear(3, units=2), "out_features"),
        (lambda: ad.optim.Adam(PARAMETERS, learning_rate=0.1), "lr"),
        (lambda: ad.optim.SGD(PARAMETERS, momentun=0.9), "momentum"),
        (lambda: ad.optim.lr_scheduler.StepLR(None, stepsize=3), "step_size"),
        (lambda: ad.data.DataLoader([1], batchsize=2), "batch_size"),
        (lambda: ad.data.TensorDataset(tensor=[1]), None),
        (lambda: ad.distributions.Normal(mean=0.0, scale=1.0), "loc"),
        (lambda: ad.data.RandomSampler([1], replacment=True), "replacement"),
        (lambda: ad.cat([ad.ones(1)], axes=0), "dim"),
    ],
)
def test_the_keyword_that_was_meant(call, meant):
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call()
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    text = str(caught.value)
    assert meant is None or f"did you mean {meant}? it is called as " in text


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda x: F.linear(x, x, bais=x), "bias"),
        (lambda x: F.relu(x, inplcae=True), "inplace"),
        (lambda x: F.dropout(x, rate=0.1), "p"),
        (lambda x: F.embedding(x.long(), x, paddng_idx=1), "padding_idx"),
        (lambda x: F.cross_entropy(x, x, reducton="sum"), "reduction"),
        (lambda x: ad.tensor([1.0], dytpe=ad.float64), "dtype"),
        (lambda x: ad.zeros(2, dtpye=ad.float64), "dtype"),
        (lambda x: ad.add(x, x, alhpa=2), "alpha"),
        (lambda x: ad.sub(x, x, ouput=x), None),
        (lambda x: ad.div(x, x, roundingmode="floor"), "rounding_mode"),
        (lambda x: ad.where(x > 0, x, othr=x), "other"),
        (lambda x: ad.pow(x, 2, outt=x), "out"),
        (lambda x: x.add(x, alhpa=2), "alpha"),
        (lambda x: x.sum(dmi=1), "dim"),
        (lambda x: x.softmax(axes=1), "dim"),
        (lambda x: x.clamp(mni=0), "min"),
        (lambda x: x.clamp_(mni=0), "min"),
        (lambda x: x.to(dytpe=ad.float64), "dtype"),
        (lambda x: x.new_zeros(2, dytpe=ad.float64), "dtype"),
        (lambda x: x.split(1, dimm=0), "dim"),
        (lambda x: x.flip(dim=1), "dims"),
        (lambda x: x.roll(1, dim=0), "dims"),
        (lambda x: x.backward(retain_grph=True), "retain_graph"),
        (lambda x: ad.autograd.grad(x, x, retain_grph=True), "retain_graph"),
        (lambda x: ad.vmap(ad.exp, in_dim=1), "in_dims"),
        (lambda x: ad.compile(ad.exp, fulgraph=True), "fullgraph"),
        (lambda x: ad.load("f", map_locaton="cpu"), "map_location"),
        (lambda x: nn.init.xavier_uniform_(x, gian=2.0), "gain"),
        (lambda x: nn.utils.clip_grad_norm_([x], max_nrom=1.0), "max_norm"),
        (lambda x: nn.utils.rnn.pad_sequence([x], batchfirst=True), "batch_first"),
    ],
)  # fmt: skip
def test_the_keyword_of_a_function_that_was_meant(call, meant):
    with pytest.raises(ad.AdjointError, match="got an unexpected keyword argument") as caught:
        call(ad.ones(2, 2))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    text = str(caught.value)
    assert isinstance(caught.value, TypeError) and "others" not in text
    assert meant is None or f"did you mean {meant}? it is called as " in text


def test_functions_that_take_the_rest_do_not_show_it():
    for function in (F.linear, F.dropout, ad.add, ad.div, ad.where, ad.pow):
        assert "others" not in inspect.signature(function).parameters
        assert not any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()
        )


def test_the_name_is_that_of_the_class_that_is_made():
    with pytest.raises(
        TypeError, match=r"^Conv2d: .*called as Conv2d\(in_channels, out_channels, k"
    ):
        nn.Conv2d(1, 2, 3, foo=1)


def test_constructors_of_users_are_left_to_python():
    class Net(nn.Module):
        def __init__(self, size, **options):
            super().__init__()
            self.options = options

    class Small(Net):
        def __init__(self, hidden=1):
            super().__init__(2, anything=3)

    class Inheriting(nn.Linear):
        pass

    assert Net(1, other=2).options == {"other": 2} and Small(hidden=3).options
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'hiden'"):
        Small(hiden=3)
    with pytest.raises(TypeError, match=r"Inheriting: .* did you mean in_features\?"):
        Inheriting(in_featurs=3, out_features=1)


class Text(str):
    def __new__(cls, value, size=2):
        return str.__new__(cls, value * size)


class Both(nn.Module, Text):
    def __init__(self, value, size=2):
        nn.Module.__init__(self)


class Typed(nn.Module, Generic[T], abc.ABC):
    def __init__(self, size, *, hidden=3):
        super().__init__()
        self.hidden = hidden


def test_other_bases_and_copies_are_made_as_before():
    assert str.__str__(Both("ab", size=3)) == "ababab"
    assert Typed[int](1, hidden=4).hidden == 4
    assert copy.deepcopy(Typed(1)).hidden == pickle.loads(pickle.dumps(Typed(1))).hidden == 3
    assert list(inspect.signature(nn.Linear).parameters)[:2] == ["in_features", "out_features"]
    assert next(iter(inspect.signature(ad.optim.Optimizer).parameters)) == "params"
    assert list(inspect.signature(Typed).parameters) == ["size", "hidden"]
