"""Docstrings of layers, losses, functions and optimizers: every argument, and what is computed."""

import inspect
import re

import pytest

import adjoint as ad

FACES = {
    "nn": ad.nn,
    "nn.functional": ad.nn.functional,
    "nn.init": ad.nn.init,
    "nn.utils": ad.nn.utils,
    "nn.utils.parametrizations": ad.nn.utils.parametrizations,
    "nn.utils.parametrize": ad.nn.utils.parametrize,
    "nn.utils.prune": ad.nn.utils.prune,
    "nn.utils.rnn": ad.nn.utils.rnn,
    "optim": ad.optim,
    "optim.lr_scheduler": ad.optim.lr_scheduler,
    "optim.swa_utils": ad.optim.swa_utils,
}

# Names that are described elsewhere, and why.
ELSEWHERE = {
    "nn.functional.handle_torch_function": "a function of `adjoint.overrides`",
    "nn.functional.has_torch_function": "a function of `adjoint.overrides`",
    "nn.functional.has_torch_function_unary": "a function of `adjoint.overrides`",
    "nn.functional.has_torch_function_variadic": "a function of `adjoint.overrides`",
}


def described():
    """The public classes and functions of each face, without what a module imports for itself."""
    for face, module in FACES.items():
        for name in sorted(getattr(module, "__all__", None) or vars(module)):
            value = getattr(module, name)
            if name.startswith("_") or not callable(value) or inspect.ismodule(value):
                continue
            if not str(getattr(value, "__module__", "")).startswith("adjoint"):
                continue
            if getattr(module, "__all__", None) is None and not is_own(value):
                continue  # imported for the module's own use
            if f"{face}.{name}" not in ELSEWHERE:
                yield pytest.param(value, id=f"{face}.{name}")


def is_own(value):
    return value.__module__.startswith(("adjoint.nn", "adjoint.optim"))


def arguments(value):
    """The parameters that have a name: not `*args` and `**kwargs`."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(value).parameters.values()
    return [p.name for p in parameters if p.kind not in variadic and not p.name.startswith("_")]


@pytest.mark.parametrize("value", list(described()))
def test_every_argument_is_named(value):
    text = inspect.getdoc(value) or ""
    lines = re.findall(r"(?m)^    ([*\w, ]+): ", text.partition("\nArgs:\n")[2])
    named = {name for line in lines for name in line.replace("*", "").split(", ")}
    missing = [name for name in arguments(value) if name not in named]
    assert not missing, f"no line for {missing} in the Args of:\n{text}"


@pytest.mark.parametrize("value", list(described()))
def test_what_is_computed_is_said(value):
    text = inspect.getdoc(value) or ""
    body = re.split(r"(?m)^(?:Args:|Shapes?: |Dtypes?: |Errors: |Source: |>>> )", text)[0]
    summary, _, rest = body.partition("\n\n")
    assert summary.strip().endswith(".")
    assert rest.strip(), f"no formula and no second sentence in:\n{text}"


def test_exceptions_are_needed():
    for path in ELSEWHERE:
        face, _, name = path.rpartition(".")
        assert hasattr(FACES[face], name), f"{path} is not there"
