"""Functions and classes take PyTorch's arguments, in PyTorch's order."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAMESPACES = (
    "", "autograd", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler",
    "distributions", "linalg", "utils.data",
)  # fmt: skip

# PyTorch's parameters that have no counterpart, and why
ABSENT = {
    "out": "added by a decorator, whatever the signature says",
    "pickle_module": "nothing is pickled", "pickle_protocol": "nothing is pickled",
    "_use_new_zipfile_serialization": "private", "_disable_byteorder_record": "private",
    "align_to_window": "new, and without effect where `center` is on",
    "min_value": "deprecated since 0.4", "max_value": "deprecated since 0.4",
}  # fmt: skip
OTHERWISE = {"enable_grad": "names what it decorates in another way"}
OTHERWISE |= dict.fromkeys(("SymBool", "SymFloat", "SymInt"), "no object is one")
HANDING_ON = r"LazyConv"  # all arguments, to what is tried beside them


def namespace(root: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        root = getattr(root, name)
    return root


def parameters(function: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # made in C++
        return None


def cases() -> list[Any]:
    found = []
    for path in NAMESPACES:
        theirs, ours = namespace(torch, path), namespace(ad, path)
        for name in sorted(set(dir(theirs)) & set(dir(ours))):
            one, other = getattr(theirs, name), getattr(ours, name)
            if name.startswith("_") or name in OTHERWISE or re.search(HANDING_ON, name):
                continue
            if not callable(one) or (inspect.isclass(one) and not inspect.isclass(other)):
                continue
            wanted = parameters(one)
            kinds = {p.kind for p in wanted or ()}
            if wanted is None or inspect.Parameter.VAR_POSITIONAL in kinds:  # it says nothing
                continue
            found.append(pytest.param(one, other, id=f"{path}.{name}".lstrip(".")))
    return found


CASES = cases()


def test_there_are_cases() -> None:
    assert len(CASES) >= 380


@pytest.mark.parametrize(("theirs", "ours"), CASES)
def test_arguments(theirs: Any, ours: Any) -> None:
    taken = parameters(ours)
    assert taken is not None
    kinds = {p.kind for p in taken}
    by_place = [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = {p.name for p in taken}
    wanted = [p for p in parameters(theirs) or () if p.name not in ABSENT]
    places = [p.name for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_place[: len(places)] == places
    missing = {p.name for p in wanted if p.kind is p.KEYWORD_ONLY} - names
    assert not missing or inspect.Parameter.VAR_KEYWORD in kinds


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_what_hands_its_arguments_on(rank: int) -> None:
    shape = (1, 2, *(6,) * rank)
    for name, *arguments in (
        ("LazyConv", 4, 3, 2, 1, 1, 2, False, "reflect"),
        ("LazyConvTranspose", 4, 3, 2, 1, 1, 2, False, 1, "zeros"),
    ):
        layers = [getattr(t.nn, f"{name}{rank}d")(*arguments) for t in (torch, ad)]
        results = [layer(t.ones(shape)) for t, layer in zip((torch, ad), layers, strict=True)]
        assert tuple(results[0].shape) == tuple(results[1].shape)
        assert layers[1].bias is None is layers[0].bias
    for name, *arguments in (
        ("max_pool", 3, 2, 1, 1, True, True), ("adaptive_max_pool", (2,) * rank, True),
    ):  # fmt: skip
        found = [
            getattr(t.nn.functional, f"{name}{rank}d_with_indices")(t.ones(shape), *arguments)
            for t in (torch, ad)
        ]
        assert [x.tolist() for x in found[0]] == [x.tolist() for x in found[1]]


def test_the_last_argument_of_activations_is_inplace() -> None:
    F = ad.nn.functional
    for name, *arguments in (
        ("relu",), ("relu6",), ("leaky_relu", 0.1), ("elu", 1.5), ("hardtanh", -2.0, 2.0),
        ("threshold", 0.0, 7.0), ("silu",), ("celu", 0.5), ("hardswish",),
    ):  # fmt: skip
        x = ad.tensor([-3.0, 0.5, 9.0])
        expected = getattr(F, name)(x, *arguments, False)
        assert x.tolist() == [-3.0, 0.5, 9.0]
        assert getattr(F, name)(x, *arguments, True) is x
        assert x.tolist() == expected.tolist()


def test_older_arguments_of_gradients() -> None:
    x = ad.ones(2, requires_grad=True)
    assert ad.autograd.grad(x.sum(), x, only_inputs=True)[0].tolist() == [1, 1]
    with pytest.warns(FutureWarning, match="only_inputs"):
        ad.autograd.grad(x.sum(), x, only_inputs=False)
    with pytest.warns(FutureWarning, match="grad_variables"):
        ad.autograd.backward(x.sum(), grad_variables=ad.tensor(3.0))
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="older name"):
        ad.autograd.backward(x.sum(), ad.tensor(1.0), grad_variables=ad.tensor(3.0))


def test_dlpack_to_a_device() -> None:
    x = ad.tensor([1.0, 2.0])
    shared, copied = ad.from_dlpack(x), ad.from_dlpack(x, device="cpu", copy=True)
    x[0] = 5.0
    assert shared.tolist() == [5, 2] and copied.tolist() == [1, 2]
    assert ad.from_dlpack(x, device="torch").device.type == "torch"
    with pytest.raises(ValueError, match="by a copy"):
        ad.from_dlpack(x, device="torch", copy=False)
