"""Names of functions and types in graphs and in the code made of them."""

from __future__ import annotations

import builtins
import enum
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

from ...core import config
from ...tensor import Tensor

__all__ = ["SIDE_EFFECTS", "qualified_name", "recorded_call", "shown_target"]

SIDE_EFFECTS: set[Callable[..., Any]] = set()  # functions whose calls are never dead

# Functions that nodes have with their arguments as they were given, by position or by name: those
# that PyTorch has at its top level, too, and others that are no functions of Python there.
AT_TOP = frozenset((
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_similarity", "hardshrink", "native_channel_shuffle", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "rrelu_", "selu_", "threshold_",
))  # fmt: skip
AS_GIVEN = AT_TOP | {
    "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "logsigmoid",
    "one_hot", "scaled_dot_product_attention", "softplus", "softshrink",
}  # fmt: skip
# Those of the top level that PyTorch writes in Python, whose nodes name what has a default.
NAMED = frozenset((
    "cdist", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unravel_index",
))  # fmt: skip
_SPACES = (
    "", "nn.functional", "linalg", "fft", "special", "signal.windows", "nn.init", "nn.utils.rnn",
    "fx._symbolic_trace",
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _public() -> dict[int, tuple[Any, str]]:
    """The public functions, by identity, with where they are found."""
    import adjoint

    found: dict[int, tuple[Any, str]] = {}
    for space in _SPACES:
        module: Any = operator.attrgetter(space)(adjoint) if space else adjoint
        for name, value in list(vars(module).items()):
            if not callable(value) or isinstance(value, type) or name.startswith("__"):
                continue
            if name.startswith("_") and not name.startswith("_assert"):
                continue
            seen = found.get(id(value))
            own = getattr(value, "__name__", name)
            better = seen is None or (name == own and seen[1].rpartition(".")[2] != own)
            if not better and space == "nn.functional":
                better = name not in AT_TOP and "." not in seen[1]  # type: ignore[index]
            if better:
                found[id(value)] = value, f"{space}.{name}".lstrip(".")
    return found


def home(target: Any) -> str:
    """The public name of one of our functions below the package; empty for any other object."""
    found = _public().get(id(target))
    return found[1] if found is not None and found[0] is target else ""


def qualified_name(target: Any) -> str:
    """Qualified name of an object: `operator.add` stands in the module `_operator`.

    >>> ad.fx.targets.qualified_name(ad.nn.functional.relu)
    'adjoint.nn.functional.relu'
    """
    name = home(target)
    if name:
        return f"{config.CALLED}.{name}"
    short = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if short is None:
        return type(target).__name__
    if getattr(builtins, short, None) is target:
        return str(short)
    module = getattr(target, "__module__", None) or ""
    return f"{module}.{short}".lstrip(".")


def is_ours(target: Any) -> bool:
    """Whether code finds it by its qualified name below the package, or below `torch`."""
    if home(target):
        return True
    module = getattr(target, "__module__", None) or ""
    top, _, rest = module.partition(".")
    if not isinstance(target, type) or top != config.CALLED:
        return False
    import adjoint

    try:
        return operator.attrgetter(f"{rest}.{target.__qualname__}".lstrip("."))(adjoint) is target
    except AttributeError:
        return False


def shown_target(target: Any) -> str:
    """A target in the words of `print(graph)`."""
    if isinstance(target, str):
        return target
    if hasattr(target, "__module__") and hasattr(target, "__name__"):
        name = qualified_name(target)
        if getattr(builtins, name, None) is target:
            return f"builtins.{name}"
        return name.replace("_operator.", "operator.", 1)
    return target.name if isinstance(target, enum.Enum) else repr(target)


def recorded_call(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
    """Op, target and arguments of the node of a call, as PyTorch records them: operators of a
    tensor are methods; functions that PyTorch writes in Python name what has a default.
    """
    name = getattr(function, "__name__", "")
    if name in ("getitem", "setitem"):
        name = f"__{name}__"
    if name.startswith("__") and name.endswith("__"):
        return "call_method", _METHODS.get(name, name), args, kwargs
    place = home(function)
    if not place and vars(Tensor).get(name) is function:  # not the public function: a method
        return "call_method", name, args, kwargs
    short = place.rpartition(".")[2]
    if place in ("nn.functional.sigmoid", "nn.functional.tanh"):
        return "call_method", short, args, kwargs
    functional = place.startswith("nn.functional.") and short not in AS_GIVEN
    if functional or place in NAMED:
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError:
            return "call_function", function, args, kwargs
        bound.apply_defaults()
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in bound.signature.parameters.values():
            value = bound.arguments[parameter.name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                named.update(value)
            elif parameter.default is parameter.empty:
                positional.append(value)
            else:
                named[parameter.name] = value
        return "call_function", function, tuple(positional), named
    return "call_function", function, args, kwargs


_METHODS = {
    f"__{name}__": method
    for name, method in {
        "add": "add", "radd": "add", "sub": "sub", "mul": "mul", "rmul": "mul", "truediv": "div",
        "matmul": "matmul", "pow": "pow", "mod": "remainder", "eq": "eq", "ne": "ne", "lt": "lt",
        "le": "le", "gt": "gt", "ge": "ge", "neg": "neg", "abs": "abs", "invert": "bitwise_not",
        "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_",
    }.items()
}  # fmt: skip
