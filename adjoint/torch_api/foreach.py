"""`adjoint._foreach_add` and similar functions: an operation on each tensor of a list.

>>> ad._foreach_add([ad.ones(1), ad.ones(2)], [1, 2])
[tensor([2.]), tensor([3., 3.])]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import InvalidArgument
from ..namespaces import linalg
from ..tensor import Tensor

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = ("add", "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul", "pow", "sub")
THREE = ("addcdiv", "addcmul")
_BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # by a number


def _rows(name: str, tensors: Any, *others: Any) -> list[tuple[Any, ...]]:
    """The arguments of each call: one element of each list, other arguments unchanged.

    Errors: InvalidArgument for no tensor, and for lists of other lengths.
    """
    held = list(tensors)
    if not held:
        raise InvalidArgument(f"{name}: Tensor list must have at least one tensor.")
    columns: list[Any] = [held]
    for other in others:
        if isinstance(other, (list, tuple)):
            if len(other) != len(held):
                raise InvalidArgument(
                    f"{name}: lists must have one length, got {len(held)} and {len(other)}"
                )
            columns.append(other)
        else:
            columns.append([other] * len(held))
    return list(zip(*columns, strict=True))


def _unary(full: str, method: str) -> Callable[..., list[Tensor]]:
    def function(self: Any) -> list[Tensor]:
        return [getattr(x, method)() for (x,) in _rows(full, self)]

    return function


def _binary(full: str, name: str, end: str) -> Callable[..., list[Tensor]]:
    def function(self: Any, other: Any, **options: Any) -> list[Tensor]:
        if name == "pow" and not end and isinstance(self, (int, float, complex)):
            return [self**y for (y,) in _rows(full, other)]
        results = []
        for x, y in _rows(full, self, other):
            bound = name in _BOUNDS and not isinstance(y, Tensor)
            if end and name in _BOUNDS and not bound:  # there is no such method
                results.append(x.copy_(getattr(x, name)(y)))
                continue
            results.append(getattr(x, (_BOUNDS[name] if bound else name) + end)(y, **options))
        return results

    return function


def _three(full: str, method: str) -> Callable[..., list[Tensor]]:
    def function(
        self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None
    ) -> list[Tensor]:
        factors = value if scalars is None else scalars
        numbers = factors.tolist() if isinstance(factors, Tensor) and factors.ndim else factors
        rows = _rows(full, self, tensor1, tensor2, numbers)
        return [getattr(x, method)(a, b, value=v) for x, a, b, v in rows]

    return function


def _lerp(full: str, method: str) -> Callable[..., list[Tensor]]:
    def function(self: Any, tensors1: Any, weight: Any) -> list[Tensor]:
        return [getattr(x, method)(y, w) for x, y, w in _rows(full, self, tensors1, weight)]

    return function


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [linalg.vector_norm(x, ord, dtype=dtype) for (x,) in _rows("_foreach_norm", self)]


def _foreach_max(self: Any) -> list[Tensor]:
    return [x.max() for (x,) in _rows("_foreach_max", self)]


def _foreach_mm(self: Any, mat2: Any) -> list[Tensor]:
    return [x.mm(y) for x, y in _rows("_foreach_mm", self, mat2)]


def _foreach_clone(self: Any) -> list[Tensor]:
    return [x.clone() for (x,) in _rows("_foreach_clone", self)]


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> list[Tensor]:
    return [x.copy_(y) for x, y in _rows("_foreach_copy_", self, src)]


def _foreach_zero_(self: Any) -> list[Tensor]:
    return [x.zero_() for (x,) in _rows("_foreach_zero_", self)]


def _all() -> dict[str, Callable[..., list[Tensor]]]:
    functions: dict[str, Callable[..., list[Tensor]]] = {
        each.__name__: each
        for each in (
            _foreach_clone, _foreach_copy_, _foreach_max, _foreach_mm, _foreach_norm,
            _foreach_zero_,
        )
    }  # fmt: skip
    for end in ("", "_"):
        for name in UNARY:
            functions[f"_foreach_{name}{end}"] = _unary(f"_foreach_{name}{end}", name + end)
        for name in BINARY:
            functions[f"_foreach_{name}{end}"] = _binary(f"_foreach_{name}{end}", name, end)
        functions[f"_foreach_lerp{end}"] = _lerp(f"_foreach_lerp{end}", f"lerp{end}")
        for name in THREE:
            functions[f"_foreach_{name}{end}"] = _three(f"_foreach_{name}{end}", name + end)
    for name, function in functions.items():
        function.__name__ = function.__qualname__ = name
    return functions


FUNCTIONS = _all()
