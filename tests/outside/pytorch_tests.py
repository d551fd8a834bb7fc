"""A plugin of pytest: what PyTorch's own tests are made of (`torch.testing._internal`).

Both PyTorch and adjoint run them with these few classes and decorators, so that the ids are the
same. Tests of every function of PyTorch's table (`ops`) are left out: tests/peers has them. Of an
error they ask the type, and no text. Modules in NAMES that a program cannot import are stood in for
by names that raise where they are called.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import sys
import types
import unittest
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch


class Tolerance(NamedTuple):
    atol: float
    rtol: float


class subtest(NamedTuple):
    arg_values: Any
    name: str | None = None
    decorators: Any = ()


class TestCase(unittest.TestCase):
    """unittest's, whose assertEqual takes tensors, and collections of them."""

    tolerances: Any = None

    def assertEqual(self, x, y, msg=None, *, atol=None, rtol=None, exact_dtype=True, **options):
        del options
        given = {"atol": atol, "rtol": rtol, "exact_dtype": exact_dtype}
        if isinstance(x, torch.Tensor) and isinstance(y, Sequence):
            y = torch.tensor(y, dtype=x.dtype)
        elif isinstance(y, torch.Tensor) and isinstance(x, Sequence):
            x = torch.tensor(x, dtype=y.dtype)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            super().assertEqual(set(x), set(y), msg)
            for key, each in x.items():
                self.assertEqual(each, y[key], msg, **given)
        elif isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
            super().assertEqual(len(x), len(y), msg)
            for one, other in zip(x, y, strict=True):
                self.assertEqual(one, other, msg, **given)
        elif isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            if rtol is None and self.tolerances and x.dtype in self.tolerances:
                atol, rtol = self.tolerances[x.dtype]
            limits = {} if atol is None and rtol is None else {"atol": atol or 0, "rtol": rtol or 0}
            torch.testing.assert_close(
                x, y, equal_nan=True, check_device=False, check_dtype=exact_dtype, **limits
            )
        elif isinstance(x, torch.Tensor) and x.numel() == 1 and isinstance(y, (int, float)):
            self.assertEqual(x.item(), y, msg, **given)
        elif isinstance(y, torch.Tensor) and y.numel() == 1 and isinstance(x, (int, float)):
            self.assertEqual(x, y.item(), msg, **given)
        elif isinstance(x, float) and isinstance(y, float):
            self.assertAlmostEqual(x, y, delta=max(atol or 1e-5, abs(y) * (rtol or 1.3e-6)))
        else:
            super().assertEqual(x, y, msg)

    def assertRaisesRegex(self, kind, text, *args, **kwargs):
        """That an error of this type is raised, whatever its text: not theirs to say."""
        del text
        return self.assertRaises(kind, *args, **kwargs)

    def assertExpectedInline(self, actual, expect):
        self.assertMultiLineEqual(str(actual), expect)


def parametrize(names, values, **_):
    """A decorator: a test for each value, or tuple of values, of the names."""

    def decorate(function):
        function.cases = [(names.split(","), list(values)), *getattr(function, "cases", [])]
        return function

    return decorate


def named(names, number, value):
    """The end of a test's name, and its keywords."""
    case = value if isinstance(value, subtest) else subtest(value)
    values = case.arg_values if len(names) > 1 else (case.arg_values,)
    plain = (bool, int, float, str)
    parts = [
        f"{name.strip()}_{each}" if isinstance(each, plain) else f"{name.strip()}{number}"
        for name, each in zip(names, values, strict=True)
    ]
    keywords = dict(zip((name.strip() for name in names), values, strict=True))
    return "_".join(parts) if case.name is None else case.name, keywords


def variants(function, devices):
    """The tests that a method stands for: (end of the name, keywords)."""
    cases = [
        [named(names, number, value) for number, value in enumerate(values)]
        for names, values in getattr(function, "cases", [])
    ]
    for chosen in itertools.product(*cases):
        ends, keywords = [end for end, _ in chosen], {}
        for _, given in chosen:
            keywords |= given
        if not devices:
            yield ends, keywords
            continue
        for dtype in getattr(function, "kinds", (None,)):
            more = {} if dtype is None else {"dtype": dtype}
            kinds = [] if dtype is None else [str(dtype).rpartition(".")[2]]
            yield [*ends, "cpu", *kinds], {**keywords, **more, "device": "cpu"}


def method(function, keywords):
    wanted = inspect.signature(function).parameters

    @functools.wraps(function)
    def test(self):
        self.tolerances = getattr(function, "tolerances", None)
        return function(self, **{key: each for key, each in keywords.items() if key in wanted})

    test.__signature__ = inspect.Signature([inspect.Parameter("self", 1)])
    return test


def filled(owner, target, devices):
    for name in [each for each in dir(owner) if each.startswith("test")]:
        function = getattr(owner, name)
        if devices or hasattr(function, "cases"):
            setattr(target, name, None)
            for ends, keywords in variants(function, devices):
                if not getattr(function, "left_out", False):
                    setattr(target, "_".join([name, *ends]), method(function, keywords))


def instantiate_device_type_tests(owner, scope, **_):
    made = type(f"{owner.__name__}CPU", (owner,), {"__module__": owner.__module__})
    filled(owner, made, devices=True)
    del scope[owner.__name__]
    scope[made.__name__] = made


def instantiate_parametrized_tests(owner):
    filled(owner, owner, devices=False)
    return owner


def marked(**attributes):
    def decorate(function):
        function.__dict__.update(attributes)
        return function

    return decorate


def unchanged(*_, **__):
    return lambda function: function


def as_is(function):
    return function


class Anything:
    """Whatever is asked of it, and called with, is it."""

    def __getattr__(self, name):
        return self

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and inspect.isfunction(args[0]) else self


class Lacking:
    """What raises where it is called; its attributes, too."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        return Lacking(f"{self.name}.{name}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.name}: PyTorch's own, and not here")


@contextlib.contextmanager
def freeze_rng_state():
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


INTERNAL = "torch.testing._internal"
WITHOUT = {"op_db": [], "module_db": [], "autograd_function_db": [], "additional_op_db": []}
MODULES = {
    f"{INTERNAL}.common_utils": {
        "TestCase": TestCase, "run_tests": None, "parametrize": parametrize, "subtest": subtest,
        "instantiate_parametrized_tests": instantiate_parametrized_tests, "IS_FBCODE": False,
        "freeze_rng_state": freeze_rng_state, "skipIfTorchDynamo": unchanged,
        "TEST_WITH_UBSAN": False, "skipIfRocm": as_is,
    },
    f"{INTERNAL}.common_device_type": {
        "instantiate_device_type_tests": instantiate_device_type_tests, "onlyCPU": as_is,
        "onlyCUDA": marked(left_out=True), "dtypes": lambda *kinds: marked(kinds=kinds),
        "ops": lambda *_, **__: marked(left_out=True), "OpDTypes": Anything(), "tol": Tolerance,
        "toleranceOverride": lambda given: marked(tolerances=given),
    },
    f"{INTERNAL}.common_methods_invocations": {"DecorateInfo": Anything(), **WITHOUT},
    f"{INTERNAL}.common_modules": WITHOUT,
    f"{INTERNAL}.autograd_function_db": WITHOUT,
    f"{INTERNAL}.common_dtype": {
        "get_all_fp_dtypes": lambda: [torch.float16, torch.bfloat16, torch.float32, torch.float64],
    },
    f"{INTERNAL}.common_cuda": {"with_tf32_off": as_is},
    "functorch_additional_op_db": WITHOUT,
}  # fmt: skip
NAMES = {  # what is PyTorch's own, and imported at the top of its tests
    "torch._C._functorch": (
        "reshape_dim_into",
        "reshape_dim_outof",
        "is_batchedtensor",
        "TransformType",
    ),
    "torch._functorch": (),
    "torch._functorch.make_functional": ("functional_init", "functional_init_with_buffers"),
    "torch._functorch.eager_transforms": ("_slice_argnums",),
    "torch._functorch.utils": ("enable_single_level_autograd_function",),
    "torch._functorch.vmap": ("restore_vmap",),
    "torch._functorch.autograd_function": ("CtxWithSavedTensors",),
    "torch._subclasses": (),
    "torch._subclasses.fake_tensor": ("FakeTensorMode",),
    "torch._dispatch": (),
    "torch._dispatch.python": ("enable_python_dispatcher",),
    "functorch": ("make_fx",),
    "functorch.experimental": ("replace_all_batch_norm_modules_", "functionalize", "chunk_vmap"),
}


SWITCHES = (  # of warnings where an op has no rule for batches
    ("torch._C", "_debug_only_are_vmap_fallback_warnings_enabled"),
    ("torch._C", "_debug_only_display_vmap_fallback_warnings"),
    ("torch._C._functorch", "_is_vmap_fallback_enabled"),
    ("torch._C._functorch", "_set_vmap_fallback_enabled"),
)


def stand_in():
    """Put the modules in their places."""
    for name, names in MODULES.items():
        module = types.ModuleType(name)
        module.__dict__.update(names)
        sys.modules[name] = module
    sys.modules[INTERNAL] = types.ModuleType(INTERNAL)
    for name, names in NAMES.items():
        try:
            module = importlib.import_module(name)
        except Exception:
            module = sys.modules[name] = types.ModuleType(name)
            module.__path__ = []
            above, _, last = name.rpartition(".")
            setattr(sys.modules[above], last, module)
        for each in names:
            try:
                getattr(module, each)
            except Exception:
                setattr(module, each, Lacking(f"{name}.{each}"))
    for name, each in SWITCHES:
        if each not in vars(sys.modules[name]):
            setattr(sys.modules[name], each, lambda *_: False)
    try:
        importlib.import_module("torch._dynamo")  # whatever derives from the class
        module = importlib.import_module("torch._ops")
        operator = module.HigherOrderOperator
    except Exception:
        module = sys.modules["torch._ops"] = types.ModuleType("torch._ops")
        operator = Anything
    # the file makes one as it is imported: its `__call__` was not abstract when that was written
    call = {"__call__": lambda self, *args, **keywords: operator.__call__(self, *args, **keywords)}
    call["__new__"] = lambda kind, *args, **keywords: object.__new__(type("Made", (kind,), {}))
    module.HigherOrderOperator = type("HigherOrderOperator", (operator,), call)
    with contextlib.suppress(ImportError):  # of the tests' folder
        common = importlib.import_module("common_utils")
        common.skipOps = common.opsToleranceOverride = unchanged


stand_in()
