"""Keywords of constructors and functions: one that none takes is an error that names what may have
been meant.

Python binds arguments where no handler sees a failure. Before `__init__`, `__new__` gets the same;
a function takes all and looks at them (`naming`, in runtime/public.py), or has `**others`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from .errors import InvalidType
from .missing_names import nearest
from .tracebacks import is_ours

__all__ = ["concealing", "explain_keywords", "meant", "unexpected", "wrongly_called"]

C = TypeVar("C", bound=type[object])
F = TypeVar("F", bound=Callable[..., object])

# Words of Keras, JAX, SciPy and NumPy, by what they are called here; the first that is taken.
_SYNONYMS = {
    "lr": "learning_rate eta step_size", "weight_decay": "wd decay l2", "eps": "epsilon",
    "betas": "beta1 beta2 beta_1 beta_2 b1 b2", "momentum": "beta", "p": "prob rate dropout",
    "dim": "axis axes", "keepdim": "keepdims keep_dims", "bias": "use_bias with_bias",
    "in_features": "input_size input_dim in_dim", "out_features": "units output_size out_dim",
    "in_channels": "channels", "out_channels": "filters features", "loc": "mean mu",
    "scale": "std sigma stddev", "num_workers": "workers n_jobs", "batch_size": "batchsize bs",
    "num_embeddings": "vocab_size input_dim", "embedding_dim": "output_dim",
    "num_layers": "layers depth", "hidden_size": "units hidden", "normalized_shape": "dim size",
}  # fmt: skip


def meant(name: str, names: Iterable[str]) -> str:
    """The keyword of `names` that another one may have been meant for; empty where none is."""
    names = list(names)
    like = nearest(name, names)
    words = (here for here, others in _SYNONYMS.items() if name in others.split())
    return like or next((here for here in words if here in names), "")


def explain_keywords(owner: C) -> C:
    """Class decorator: a keyword that a constructor of ours does not take is an error that says
    what was meant, for this class and those below it. Constructors of users are left to Python.

    Errors: InvalidType.
    """

    def new(cls: type[object], *args: object, **kwargs: object) -> object:
        if kwargs:
            _assert_taken(cls, vars(next(c for c in cls.__mro__ if "__init__" in vars(c))), kwargs)
        after = cls.__mro__[cls.__mro__.index(owner) + 1 :]
        make: Callable[..., object] = next(c for c in after if "__new__" in vars(c)).__new__
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    new.__name__, new.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
    signature = inspect.signature(vars(owner).get("__init__", object.__init__))
    vars(new)["__signature__"] = signature  # which is asked of `__new__` first
    type.__setattr__(owner, "__new__", staticmethod(new))  # unseen by checkers of types
    return owner


def _assert_taken(
    cls: type[object], members: Mapping[str, Callable[..., object]], kwargs: Iterable[str]
) -> None:
    init = members["__init__"]
    code = getattr(init, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return
    taken = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    wrong = next((each for each in kwargs if each not in taken), None)
    if wrong is None or not is_ours(init.__module__ or ""):
        return
    raise wrongly_called(cls.__name__, "", inspect.signature(init), [wrong])


def unexpected(function: Callable[..., object], given: Iterable[str]) -> InvalidType:
    """The error for the first keyword of those given that a function does not take."""
    return wrongly_called(function.__name__, "", inspect.signature(function), given)


def wrongly_called(
    name: str, reason: str, signature: inspect.Signature, given: Iterable[str]
) -> InvalidType:
    """The error of a call that a signature does not take: for a keyword that it does not name,
    which is why another may be missing; else for the reason.
    """
    shown = [each for each in signature.parameters.values() if each.name != "self"]
    takes_all = any(each.kind is each.VAR_KEYWORD for each in shown)
    wrong = [each for each in given if each not in signature.parameters and not takes_all]
    if wrong:
        near = meant(wrong[0], [each.name for each in shown])
        reason = f"got an unexpected keyword argument {wrong[0]!r}"
        reason += f"; did you mean {near}?" if near else ";"
    else:
        reason += ";"
    plain = [each.replace(annotation=each.empty) for each in shown]
    return InvalidType(f"{name}: {reason} it is called as {name}{inspect.Signature(plain)}")


def concealing(function: F) -> F:
    """Declare a function whose `**others` are for `unexpected` alone: its signature has none."""
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.name != "others"]
    vars(function)["__signature__"] = signature.replace(parameters=shown)
    return function
