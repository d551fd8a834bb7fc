"""Objects that stand for tensors say what public functions do with them."""

from __future__ import annotations

import inspect
import operator
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.core import overrides


@pytest.fixture
def followed():
    """Types that are followed within the test alone."""
    former = list(overrides.FOLLOWED)
    yield overrides.follow
    overrides.FOLLOWED[:] = former


class Diagonal:
    """A diagonal matrix, as an example of NumPy's and PyTorch's documentation."""

    def __init__(self, values):
        self.values = values

    asked: tuple = ()

    @classmethod
    def __torch_function__(cls, function, types, args, kwargs):
        cls.asked = function, types, args, kwargs
        if function is ad.mean:
            return args[0].values.sum() / len(args[0].values) ** 2
        return NotImplemented


class Special(Diagonal):
    @classmethod
    def __torch_function__(cls, function, types, args, kwargs):
        return "special" if function is ad.sin else NotImplemented


def test_nothing_is_asked_before_a_type_is_followed():
    program = "import adjoint; print(adjoint.core.overrides.FOLLOWED)"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_object_says_what_the_function_gives(followed):
    x = Diagonal(ad.tensor([1.0, 3.0]))
    followed(Diagonal)
    assert ad.mean(x).item() == 1
    with pytest.raises(ad.InvalidType, match="gave NotImplemented"):
        ad.exp(x)
    function, types, args, kwargs = Diagonal.asked
    assert (function, types, args, kwargs) == (ad.exp, (Diagonal,), (x,), {})
    with pytest.raises(ad.InvalidType):
        ad.stack([ad.ones(2), x], dim=1)
    assert Diagonal.asked[0] is ad.stack and Diagonal.asked[3] == {"dim": 1}
    with pytest.raises(ad.InvalidType):
        ad.ones(2) + x
    assert Diagonal.asked[0] is ad.Tensor.__add__
    for T in (np.ones(2), None, "x"):  # others are refused as ever
        with pytest.raises(ad.InvalidType, match="expected a tensor"):
            ad.exp(T)
    assert ad.exp(ad.zeros(1)).item() == 1


@pytest.mark.usefixtures("followed")
def test_an_object_of_a_type_that_nobody_followed_is_asked_as_well():
    overrides.FOLLOWED.clear()
    x = Diagonal(ad.tensor([1.0, 3.0]))
    assert ad.mean(x).item() == 1 and ad.mean(x).item() == 1
    with pytest.raises(ad.InvalidType, match="gave NotImplemented"):
        ad.ones(2) + x
    assert Diagonal.asked[0] is ad.Tensor.add  # as PyTorch tells; types that are followed get more


def test_a_subclass_is_asked_before_its_base(followed):
    followed(Diagonal)
    x, y = Diagonal(ad.ones(1)), Special(ad.ones(1))
    assert ad.sin(y) == "special"
    with pytest.raises(ad.InvalidType, match="Special, Diagonal gave"):
        ad.maximum(x, y)


def public_functions():
    torch = pytest.importorskip("torch")
    from torch.overrides import get_testing_overrides

    known = get_testing_overrides()
    spaces = {"": (torch, ad), "nn.functional": (torch.nn.functional, F)}
    for name in ("linalg", "fft", "special"):
        spaces[name] = getattr(torch, name), getattr(ad, name)
    for space, (theirs, ours) in spaces.items():
        for name in dir(theirs):
            function = getattr(theirs, name)
            if name[0] == "_" or not callable(function) or isinstance(function, type):
                continue
            if function in known and hasattr(ours, name):
                yield f"{space}.{name}", getattr(ours, name), inspect.signature(known[function])


ELSEWHERE = {".unsafe_split"}  # another name of `split`


def test_every_public_function_asks():
    """All functions that PyTorch lets objects override, by adjoint's names: each becomes one node
    that calls it, whatever it would do with a tensor.
    """
    wrong, seen = [], 0
    for name, function, signature in public_functions():
        graph = ad.fx.Graph()
        x = ad.fx.Proxy(graph.placeholder("x"))
        args = [x for p in signature.parameters.values()
                if p.default is p.empty and p.kind is not p.VAR_KEYWORD]  # fmt: skip
        if not args or name in ELSEWHERE:
            continue
        seen += 1
        result = function(*args)
        nodes = list(graph.nodes)
        is_one = isinstance(result, ad.fx.Proxy) and len(nodes) == 2
        if not is_one or (nodes[1].op == "call_function" and nodes[1].target is not function):
            wrong.append(name)
    assert seen > 600 and not wrong


@pytest.mark.parametrize("name", ["add", "sub", "truediv"])
def test_the_first_call_tells_of_the_public_function(followed, name):
    class Asked:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    operation, public = getattr(operator, name), {"truediv": "div"}.get(name, name)
    overrides.leave(overrides.OTHERS)  # as in a process that met no such class
    told = [operation(ad.ones(2), Asked()) for _ in range(2)]
    assert [each is getattr(ad.Tensor, public) for each in told] == [True, True]
