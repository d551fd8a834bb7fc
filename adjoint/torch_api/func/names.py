"""Names of PyTorch's `func` beside the transforms: what a tensor wraps there, and `rearrange`."""

from __future__ import annotations

import math
import re
from typing import Any

from ...autograd.levels import Leveled
from ...core.argument_errors import assert_tensor
from ...core.errors import AdjointError, InvalidType, ShapeError
from ...ops.shape.concatenation import stack
from ...runtime.public import explaining, naming
from ...tensor import Tensor

__all__ = ["debug_unwrap", "rearrange"]


@naming
def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Any:
    """The tensor wrapped by one inside a transform: with `recurse`, through all of them. Outside,
    itself.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.debug_unwrap.html

    >>> seen = []
    >>> _ = ad.func.vmap(lambda x: seen.append(ad.func.debug_unwrap(x)) or x)(ad.ones(3))
    >>> seen[0].shape
    adjoint.Size([3])
    """
    assert_tensor("debug_unwrap", tensor)
    while isinstance(tensor._data, Leveled):
        tensor = tensor._data.inner
        if not recurse:
            break
    return tensor


class PatternError(AdjointError, ValueError):
    """A pattern of `rearrange` that is none, or does not fit the tensor."""


_WORD = re.compile(r"\s*(\(|\)|\.\.\.|[A-Za-z_]\w*|1(?!\d))")


def _side(text: str, pattern: str) -> list[list[str]]:
    """The dimensions of one side: of each, the names that it is made of."""
    found: list[list[str]] = []
    inside = False
    place = 0
    text = text.strip()
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            raise PatternError(f"rearrange: {text[place:]!r} means nothing in {pattern!r}")
        word, place = match.group(1), match.end()
        if word in "()" and (word == "(") == inside:
            raise PatternError(f"rearrange: brackets do not match in {pattern!r}")
        if word == "(":
            found.append([])
            inside = True
        elif word == ")":
            inside = False
        elif inside:
            found[-1] += [] if word == "1" else [word]
        else:
            found.append([] if word == "1" else [word])
    if inside:
        raise PatternError(f"rearrange: brackets do not match in {pattern!r}")
    names = [name for each in found for name in each]
    if len(set(names)) < len(names):
        raise PatternError(f"rearrange: a name stands twice on one side of {pattern!r}")
    return found


@explaining
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """The dimensions of a tensor in another order, split and put together as a pattern says it:
    "b (h w) c -> b c h w" (Rogozhnikov, 2022). `...` stands for any dimensions, 1 for one of size
    1; a sequence of tensors is stacked first.

    Shapes: as the left side says; `axes_lengths` are sizes of names that cannot be known else.
    Errors: PatternError, a ValueError, for a pattern that is none or does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.rearrange.html

    >>> ad.func.rearrange(ad.arange(6), "(a b) -> b a", a=2)
    tensor([[0, 3],
            [1, 4],
            [2, 5]])
    """
    if not isinstance(tensor, Tensor):
        if not isinstance(tensor, (list, tuple)):
            raise InvalidType(f"rearrange: expected a tensor or several, got {tensor!r:.60}")
        tensor = stack(list(tensor))
    if pattern.count("->") != 1:
        raise PatternError(f"rearrange: a pattern is 'left -> right', got {pattern!r}")
    left, right = (_side(side, pattern) for side in pattern.split("->"))
    if {n for each in left for n in each} != {n for each in right for n in each}:
        raise PatternError(f"rearrange: both sides of {pattern!r} need the same names")
    spread = tensor.ndim - sum(each != ["..."] for each in left)
    has = ["..."] in left
    if any("..." in each and each != ["..."] for each in left):
        raise PatternError(f"rearrange: '...' stands alone on the left side, got {pattern!r}")
    if spread < 0 or (spread and not has):
        raise ShapeError(
            f"rearrange: {pattern!r} is for {tensor.ndim - spread} dimensions, got shape "
            f"{tuple(tensor.shape)}"
        )
    sizes: dict[str, int] = {}
    order: list[str] = []
    axis = 0
    for each in left:
        if each == ["..."]:
            for i in range(spread):
                sizes[f"...{i}"] = tensor.shape[axis + i]
                order.append(f"...{i}")
            axis += spread
            continue
        sizes.update(_split(each, int(tensor.shape[axis]), axes_lengths, pattern))
        order += each
        axis += 1
    if unknown := axes_lengths.keys() - sizes.keys():
        raise PatternError(f"rearrange: {pattern!r} has no {sorted(unknown)}")
    rest = [f"...{i}" for i in range(spread)]
    wanted = [[n for name in each for n in (rest if name == "..." else [name])] for each in right]
    shape: list[int] = []
    for each, names in zip(right, wanted, strict=True):
        alone = [[name] for name in names] if each == ["..."] else [names]
        shape += [math.prod(sizes[name] for name in part) for part in alone]
    y = tensor.reshape([sizes[name] for name in order])
    y = y.permute([order.index(name) for names in wanted for name in names])
    return y.reshape(shape)


def _split(names: list[str], size: int, given: dict[str, int], pattern: str) -> dict[str, int]:
    """The sizes of the names that make up one dimension."""
    known = {name: given[name] for name in names if name in given}
    open_ = [name for name in names if name not in given]
    product = math.prod(known.values())
    if len(open_) > 1:
        raise PatternError(f"rearrange: give the sizes of all but one of {open_} in {pattern!r}")
    if open_ and product and size % product == 0:
        known[open_[0]] = size // product
    elif open_ or product != size:
        raise ShapeError(
            f"rearrange: a dimension of {size} is not made of {names} with {known} in {pattern!r}"
        )
    return known
