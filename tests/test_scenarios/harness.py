"""Scenarios of gradient flow, written once and run on PyTorch and on adjoint.

A scenario is a function of the framework module `t` that returns observations: tensors, numbers,
booleans, strings, None, `Raised`, and dicts, lists and tuples of them. Both frameworks must
observe the same.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import adjoint as ad

SCENARIOS: dict[str, Any] = {}
TOLERANCE = {"bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-5, "complex64": 1e-5}


def scenario(function):
    """Collect `function(t)`; its name must be new within its topic (the file it is in)."""
    name = f"{function.__module__.split('.')[-1]}-{function.__name__}"
    assert name not in SCENARIOS, f"two scenarios are called {name}"
    SCENARIOS[name] = function
    return function


# ---- what scenarios use --------------------------------------------------------------------------


def leaf(t, values, dtype="float64"):
    """A tensor that requires grad."""
    return t.tensor(values, dtype=getattr(t, dtype), requires_grad=True)


def const(t, values, dtype="float64"):
    """A tensor that does not."""
    return t.tensor(values, dtype=getattr(t, dtype))


def see(x):
    """A snapshot of a tensor (or of each of several) that later changes do not reach."""
    if x is None:
        return None
    if isinstance(x, (list, tuple)):
        return [see(each) for each in x]
    return x.detach().clone()


def submodule(t, name):
    """`torch.name` or `adjoint.name`, imported."""
    return importlib.import_module(f"{t.__name__}.{name}")


@dataclass
class Raised:
    """An exception, and the words that both messages must contain."""

    error: Exception
    words: tuple[str, ...]


def raises(function, *words):
    """What `function()` raises; a string where it does not raise."""
    try:
        function()
    except Exception as error:
        return Raised(error, words)
    return "did not raise"


# ---- comparing -----------------------------------------------------------------------------------


def run(function, t):
    """The observations of `function(t)`; PyTorch's own warnings are not ours to judge."""
    with warnings.catch_warnings():
        if t is not ad:
            warnings.simplefilter("ignore")
        return function(t)


def builtin_of(error):
    """The first builtin class of an exception ("not implemented for" a dtype: RuntimeError)."""
    found = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    return RuntimeError if found is NotImplementedError else found


def assert_same(ours: Any, theirs: Any, path: str = "") -> None:
    """Both observations agree: structure, dtype, shape, values to 1e-6, kinds of exceptions."""
    where = path or "result"
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        assert list(ours) == list(theirs), where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{path}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple)), where
        assert len(ours) == len(theirs), f"{where}: {len(ours)} entries, PyTorch has {len(theirs)}"
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{path}[{i}]")
    elif isinstance(theirs, Raised):
        assert isinstance(ours, Raised), f"{where}: {ours!r}, PyTorch raised {theirs.error!r}"
        assert isinstance(ours.error, ad.AdjointError), f"{where}: {ours.error!r} is not ours"
        assert isinstance(ours.error, builtin_of(theirs.error)), (
            f"{where}: {type(ours.error).__mro__} for PyTorch's {theirs.error!r}"
        )
        for word in theirs.words:
            assert word.lower() in str(theirs.error).lower(), f"{where}: PyTorch: {theirs.error}"
            assert word.lower() in str(ours.error).lower(), f"{where}: adjoint: {ours.error}"
    elif hasattr(theirs, "detach"):
        assert isinstance(ours, ad.Tensor), f"{where}: {ours!r}, PyTorch has {theirs!r}"
        dtype = str(theirs.dtype).rpartition(".")[2]
        assert ours.dtype.name == dtype, f"{where}: {ours.dtype}, PyTorch has {theirs.dtype}"
        assert tuple(ours.shape) == tuple(theirs.shape), (
            f"{where}: shape {tuple(ours.shape)}, PyTorch has {tuple(theirs.shape)}"
        )
        tolerance = TOLERANCE.get(dtype, 1e-6)
        np.testing.assert_allclose(
            _wide(ours.detach().numpy(), dtype),
            _wide(theirs.detach().resolve_conj(), dtype),
            rtol=tolerance,
            atol=tolerance * 1e-3,
            err_msg=where,
        )
    elif isinstance(theirs, float):
        assert isinstance(ours, float), f"{where}: {ours!r}, PyTorch has {theirs!r}"
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=where)
    else:
        assert type(ours) is type(theirs), f"{where}: {ours!r}, PyTorch has {theirs!r}"
        assert ours == theirs, f"{where}: {ours!r}, PyTorch has {theirs!r}"


def _wide(x, dtype):
    if hasattr(x, "float") and dtype in ("bfloat16", "float16"):
        x = x.float()
    kind = np.complex128 if dtype.startswith("complex") else np.float64
    return np.asarray(x).astype(kind)


def is_empty(observed: Any) -> bool:
    """Whether a scenario observed nothing: such a one could not fail."""
    return observed is None or (isinstance(observed, (dict, list, tuple)) and not observed)
