"""Custom operators: `torch.library` for an eager framework.

An operator has a name in a namespace, a schema, kernels in Python by kind of device, and, where
they were registered, a backward, a rule for batches, and a function that says only what its
results look like. It is called by what `custom_op` returns, and as `torch.ops.NAMESPACE.NAME`.

>>> @ad.library.custom_op("doc::scaled", mutates_args=())
... def scaled(x: ad.Tensor, k: float = 2.0) -> ad.Tensor:
...     return ad.tensor(x.numpy() * k)
>>> scaled.register_autograd(
...     lambda ctx, g: (g * ctx.k, None),
...     setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]),
... )
>>> x = ad.ones(2, requires_grad=True)
>>> scaled(x, 3.0).sum().backward(); x.grad
tensor([3., 3.])
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..autograd.function import Function
from ..core.argument_repr import argument_repr
from ..core.dtype import dtype
from ..core.errors import AutogradError, InvalidArgument, InvalidType, MissingName, Unsupported
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from ..runtime.record import version_count
from ..runtime.writes import assert_writable, rebase
from .operator_schemas import _declared, _parameters, flat, infer_schema, is_alias, kind_of

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl",
    "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd",
    "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op",
    "wrap_triton",
]  # fmt: skip

OPERATORS: dict[str, CustomOpDef] = {}  # by their full names, "namespace::name"
_FAKES: dict[str, Callable[..., Any]] = {}  # of operators that were not declared yet

# Keys of PyTorch's dispatcher: which of an operator's functions they set.
_KERNEL_KEYS = {
    "": None, "CompositeExplicitAutograd": None, "CompositeImplicitAutograd": "whole",
    "CompositeExplicitAutogradNonFunctional": None, "CPU": "cpu", "CUDA": "cuda", "Meta": "meta",
    "Autograd": "whole", "AutogradCPU": "whole", "AutogradCUDA": "whole",
}  # fmt: skip
_OTHER_KEYS = frozenset(("MPS", "XPU", "HPU", "XLA", "PrivateUse1", "IPU", "BackendSelect"))

infer_schema.__module__ = __name__  # where PyTorch has it


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Declare a function as the operator `name` ("namespace::name"), a decorator where `fn` is not
    given. `mutates_args` names the arguments that it writes to.

    Errors: InvalidArgument for a name without namespace, or a signature whose types are not said.
    Source: https://docs.pytorch.org/docs/stable/library.html#torch.library.custom_op

    >>> @ad.library.custom_op("doc::twice", mutates_args=())
    ... def twice(x: ad.Tensor) -> ad.Tensor:
    ...     return x + x
    >>> twice(ad.ones(2))
    tensor([2., 2.])
    """

    def declare(function: Callable[..., Any]) -> CustomOpDef:
        said = schema or infer_schema(function, mutates_args=mutates_args)
        op = CustomOpDef(name, said, _parameters(function))
        op.register_kernel(device_types, function)
        OPERATORS[op.name] = op
        return op

    return declare if fn is None else declare(fn)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """`custom_op` whose function may call Triton's kernels; it is run as it is.

    >>> schema = "(Tensor x) -> Tensor"
    >>> ad.library.triton_op("doc::same", lambda x: +x, mutates_args=(), schema=schema)
    <CustomOpDef(doc::same)>
    """
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel, unchanged.

    >>> ad.library.wrap_triton(len) is len
    True
    """
    return triton_kernel


class CustomOpDef:
    """A custom operator: see `custom_op`."""

    def __init__(
        self, name: str, schema: str, parameters: Sequence[inspect.Parameter] | None = None
    ) -> None:
        namespace, separator, short = name.partition("::")
        if not (separator and namespace and short) or "::" in short:
            raise InvalidArgument(
                f"custom_op: the name {name!r} has no namespace; call it as in 'mylib::{name}'"
            )
        self.name = self._qualname = name
        self._namespace = namespace
        self._name, _, self._overload = short.partition(".")
        self._schema = f"{short}{schema}"
        self.mutated = frozenset(re.findall(r"\(\w*!\)[\[\]?]* (\w+)", schema))
        self.signature = inspect.Signature(
            [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
            if parameters is not None
            else _declared(schema)
        )
        only = inspect.Parameter.KEYWORD_ONLY
        self._named = [k for k, each in self.signature.parameters.items() if each.kind is only]
        self._kernels: dict[str | None, Callable[..., Any]] = {}  # None: on every device
        self._disabled: set[str | None] = set()
        self._autocasts: dict[str, Callable[..., Any]] = {}  # by kind of device
        self._function: type[Function] = _function_of(self)
        self._has_autograd = False
        if name in _FAKES:
            self.register_fake(_FAKES.pop(name))

    @property
    def default(self) -> CustomOpDef:
        """The operator itself, which has no overloads."""
        return self

    def overloads(self) -> list[str]:
        """The names of the overloads: one."""
        return ["default"]

    # ---- registrations ---------------------------------------------------------------------------

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Register a function that computes the operator on devices of these kinds (None: on
        all).
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            kinds = [device_types] if isinstance(device_types, str) else device_types
            for kind in [None] if kinds is None else kinds:
                self._kernels[kind] = function
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register a function that gives shapes and dtypes of the results without computing them;
        `opcheck` compares.
        """
        self._kernels["meta"] = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register `backward(ctx, *gradients)`, which returns a gradient for each positional
        argument; `setup_context(ctx, inputs, output)` saves values for it. Of an operator with
        keyword-only arguments it is `setup_context(ctx, inputs, keyword_only_inputs, output)`.
        """
        self._has_autograd = True
        saving, rule = setup_context or _keep_nothing, backward
        if self._named:
            nones = (None,) * len(self._named)

            def rule(ctx: object, *gs: object) -> tuple[object, ...]:
                found = backward(ctx, *gs)
                return (*(found if isinstance(found, tuple) else (found,)), *nones)

            def saving(ctx: object, inputs: Sequence[object], output: object) -> None:
                args, named = self._parted(inputs)
                if setup_context is not None:
                    setup_context(ctx=ctx, inputs=args, keyword_only_inputs=named, output=output)

        self._function.backward = staticmethod(rule)  # type: ignore[method-assign, assignment]
        self._function.setup_context = staticmethod(saving)  # type: ignore[method-assign, assignment]

    def _parted(self, values: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """The positional and the keyword-only arguments, of all in a row."""
        count = len(values) - len(self._named)
        return tuple(values[:count]), dict(zip(self._named, values[count:], strict=True))

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Register the rule for `vmap`: `func(info, in_dims, *args)` returns results, and their
        dimensions that hold the examples.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            def rule(info: object, in_dims: Sequence[object], *values: object) -> object:
                args, named = self._parted(values)
                return function(info, in_dims[: len(args)], *args, **named)

            self._function.vmap = staticmethod(rule if self._named else function)  # type: ignore[method-assign, assignment]
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: dtype) -> None:
        """Convert floating-point tensors to a dtype under autocast."""
        self._casts = {**getattr(self, "_casts", {}), device_type: cast_inputs}

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Refused: operations do not dispatch to classes here.

        Errors: Unsupported.
        """
        raise Unsupported(f"{self.name}: __torch_dispatch__; register_kernel serves")

    # ---- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator by the kernel of its tensors' device."""
        if self._autocasts and MODE.get().casts:
            casting = self._autocasts.get(kind_of((*args, *kwargs.values())))
            if casting is not None:
                return casting(*args, **kwargs)
        whole = self._kernels.get("whole")
        if whole is not None:
            return whole(*args, **kwargs)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidType(f"{self.name}: {error}; its schema is {self._schema}") from None
        bound.apply_defaults()
        if MODE.get().casts:
            self._cast(bound)
        written = [bound.arguments[name] for name in self.mutated]
        written = [x for x in written if isinstance(x, TensorBase)]
        for x in written:
            assert_writable(x, self.name)
        counts = [version_count(x) for x in written]
        results = self._function.apply(*bound.args, *bound.kwargs.values())
        for x, count in zip(written, counts, strict=True):
            if version_count(x) == count:  # no op of ours has written to it
                rebase(x, x._node, self.name)
        return results

    def _cast(self, bound: inspect.BoundArguments) -> None:
        casts = getattr(self, "_casts", {})
        for name, x in bound.arguments.items():
            to = casts.get(x.device.type) if isinstance(x, TensorBase) else None
            if to is not None and x._data.dtype.kind in "fV":
                bound.arguments[name] = x.to(to)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the kernel, which must not share memory with its inputs."""
        tensors = [x for x in flat((*args, *kwargs.values())) if isinstance(x, TensorBase)]
        kind = kind_of(tensors)
        kernel = self._kernels.get(kind) or self._kernels.get(None)
        if kernel is None:
            raise Unsupported(
                f"Could not run '{self.name}' with arguments from the '{kind.upper()}' backend: "
                f"there are kernels for {sorted(map(str, self._kernels))}; register one"
            )
        results = kernel(*args, **kwargs)
        for y in flat(results if isinstance(results, (tuple, list)) else (results,)):
            if isinstance(y, TensorBase) and any(is_alias(y, x) for x in tensors):
                raise AutogradError(
                    f"{self.name}: The output of this custom operator (1) must not also be an "
                    "input to this custom operator and (2) may not alias any inputs to this "
                    "custom operator or other returns; return a clone"
                )
        return results

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.name})>"


def _keep_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    return None


def _function_of(op: CustomOpDef) -> type[Function]:
    """The Function that computes an operator; until a backward is registered, its backward is
    refused.
    """

    def forward(*values: object) -> object:
        args, named = op._parted(values)
        return op.compute(*args, **named)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [
        each if each.kind is inspect.Parameter.VAR_POSITIONAL else inspect.Parameter(name, kind)
        for name, each in op.signature.parameters.items()
    ]
    forward.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]

    def backward(ctx: Any, *gs: Any) -> Any:
        raise AutogradError(
            f"Trying to backward through {op.name.replace('::', '.')}.default but no autograd "
            "formula was registered. Please use register_autograd to add one."
        )

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(_keep_nothing),
        "backward": staticmethod(backward),
    }
    return type(f"{op._namespace}_{op._name}", (Function,), members)


# ---- libraries -----------------------------------------------------------------------------------


class Library:
    """A namespace for custom operators: `define` adds them by schema, `impl` adds their functions.

    Source: https://docs.pytorch.org/docs/stable/library.html#torch.library.Library

    >>> library = ad.library.Library("doc2", "DEF")
    >>> library.define("half(Tensor x) -> Tensor")
    'half'
    >>> library.impl("half", lambda x: x / 2, "CPU")
    >>> ad.library.operator("doc2", "half")(ad.ones(2))
    tensor([0.5000, 0.5000])
    """

    __repr__ = argument_repr

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise InvalidArgument(f"Library: Unsupported kind {kind!r}; DEF, IMPL or FRAGMENT")
        self.ns = ns
        self.kind = kind
        self.dispatch_key = dispatch_key
        self._defined: list[str] = []

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Add the operator that `schema` describes; returns its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise InvalidArgument(f"Library: Invalid alias_analysis type {alias_analysis}")
        name = schema[: schema.index("(")].strip()
        op = CustomOpDef(f"{self.ns}::{name}", schema[schema.index("(") :])
        OPERATORS[op.name] = op
        self._defined.append(op.name)
        return name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a function as the operator's for a dispatch key."""
        if with_keyset:
            raise Unsupported("Library.impl: with_keyset; there are no keysets here")
        name = op_name.name if isinstance(op_name, CustomOpDef) else str(op_name)
        full = name if "::" in name else f"{self.ns}::{name}"
        _set(_found(full), dispatch_key or self.dispatch_key, fn)

    def fallback(self, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Refused: registration of functions for all operators of a key.

        Errors: Unsupported.
        """
        raise Unsupported("Library.fallback: there is no dispatcher of PyTorch's here")

    def _register_fake(self, op_name: str, fn: Callable[..., Any], *_: Any, **__: Any) -> None:
        _found(op_name if "::" in op_name else f"{self.ns}::{op_name}").register_fake(fn)

    def _destroy(self) -> None:
        for name in self._defined:
            OPERATORS.pop(name, None)


def _set(op: CustomOpDef, key: str, fn: Callable[..., Any]) -> None:
    """Register `fn` as the operator's function for a key of PyTorch's dispatcher, or a device."""
    if key.removeprefix("Autocast") in _OTHER_KEYS:
        return  # of devices that there are not
    if key.startswith("Autocast"):
        op._autocasts[key.removeprefix("Autocast").lower() or "cuda"] = fn
        return
    if key not in _KERNEL_KEYS and key.upper() not in _KERNEL_KEYS:
        raise Unsupported(f"library: no dispatch key {key!r}; one of {sorted(_KERNEL_KEYS)}")
    op.register_kernel(_KERNEL_KEYS.get(key, _KERNEL_KEYS.get(key.upper())), fn)


def _found(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    operator_of_name = OPERATORS.get(str(op).removesuffix(".default"))
    if operator_of_name is None:
        raise InvalidArgument(
            f"operator {op} does not exist: define it with custom_op or Library.define (operators "
            "of PyTorch's own have no functions of others here)"
        )
    return operator_of_name


def operator(namespace: str, name: str) -> CustomOpDef:
    """The operator `namespace::name`, also available as `torch.ops.NAMESPACE.NAME`.

    Errors: MissingName where it was not declared.
    """
    declared = OPERATORS.get(f"{namespace}::{name}")
    if declared is None:
        raise MissingName(
            f"torch.ops.{namespace}.{name}: no such operator was declared (operators in C++ are "
            "PyTorch's); use the function of adjoint's that computes the same, or library.custom_op"
        )
    return declared


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Add the operator `qualname` ("namespace::name") with a schema ("(Tensor x) -> Tensor").

    >>> ad.library.define("doc3::f", "(Tensor x) -> Tensor")
    """
    op = CustomOpDef(qualname, schema)
    OPERATORS[op.name] = op


def impl(qualname: str, types: str | Sequence[str], func: Any = None, *, lib: Any = None) -> Any:
    """Register a function that computes an operator on devices of these kinds, or for a dispatch
    key; a decorator if `func` is not given.

    >>> ad.library.define("doc3::g", "(Tensor x) -> Tensor")
    >>> ad.library.impl("doc3::g", "cpu", lambda x: x * 2)
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in [types] if isinstance(types, str) else types:
            _set(_found(qualname), "" if key == "default" else key, function)
        return function

    if func is None:
        return register
    register(func)
    return None


def register_kernel(
    op: Any, device_types: str | Sequence[str] | None, func: Any = None, /, *, lib: Any = None
) -> Any:
    """`CustomOpDef.register_kernel` of the operator `op`, or of that name."""
    return _found(op).register_kernel(device_types, func)


def register_fake(
    op: Any,
    func: Any = None,
    /,
    *,
    lib: Any = None,
    _stacklevel: int = 1,
    allow_override: bool = False,
) -> Any:
    """`CustomOpDef.register_fake` of the operator `op`, or of that name, which may be declared
    later; a decorator where `func` is not given.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(op, str) and op not in OPERATORS:
            _FAKES[op] = function
            return function
        return _found(op).register_fake(function)

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Any = None
) -> None:
    """`CustomOpDef.register_autograd` of the operator `op`, or of that name."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """`CustomOpDef.register_vmap` of the operator `op`, or of that name."""
    return _found(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: dtype, /, *, lib: Any = None) -> None:
    """`CustomOpDef.register_autocast` of the operator `op`, or of that name."""
    _found(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(op: Any, cls: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Refused: operations do not dispatch to classes here.

    Errors: Unsupported.
    """
    raise Unsupported(f"register_torch_dispatch({op}): __torch_dispatch__; register_kernel serves")


def fallthrough_kernel(*_: Any, **__: Any) -> Any:
    """Refused: it stands for the next key of PyTorch's dispatcher.

    Errors: Unsupported.
    """
    raise Unsupported("fallthrough_kernel() should never be called.")


def get_ctx() -> Any:
    """Refused: the context of shape functions with symbolic sizes.

    Errors: Unsupported.
    """
    raise Unsupported("library.get_ctx: sizes are numbers here; take them from the inputs")


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = None,
    raise_exception: bool = True,
    **_: Any,
) -> dict[str, str]:
    """Check an operator against its registrations: it writes only to the arguments that its schema
    names, its gradients exist, and its results look as `register_fake` says.

    Errors: AutogradError where they do not.

    >>> twice = ad.library.custom_op(
    ...     "doc3::twice", lambda x: x + x, mutates_args=(), schema="(Tensor x) -> Tensor"
    ... )
    >>> ad.library.opcheck(twice, (ad.ones(2),))["test_schema"]
    'SUCCESS'
    """
    checked = _found(op)
    kwargs = kwargs or {}
    checks = {
        "test_schema": _check_schema,
        "test_autograd_registration": _check_autograd,
        "test_faketensor": _check_fake,
    }
    results = {}
    for name, check in checks.items():
        if test_utils is not None and name not in (
            (test_utils,) if isinstance(test_utils, str) else test_utils
        ):
            continue
        try:
            check(checked, args, kwargs)
            results[name] = "SUCCESS"
        except AutogradError as error:
            if raise_exception:
                raise
            results[name] = str(error)
    return results


def _check_schema(op: CustomOpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = op.signature.bind(*args, **kwargs).arguments
    before = {name: x.clone() for name, x in bound.items() if isinstance(x, TensorBase)}  # type: ignore[attr-defined]
    op(*args, **kwargs)
    for name, x in before.items():
        if name not in op.mutated and not bool((bound[name] == x).all()):
            raise AutogradError(
                f"opcheck: {op.name}: argument {name} is not defined as mutable but was mutated; "
                "name it in mutates_args"
            )


def _check_autograd(op: CustomOpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wants = any(isinstance(x, TensorBase) and x._node is not None for x in flat(args))
    if wants and not op._has_autograd and "whole" not in op._kernels:
        raise AutogradError(f"opcheck: {op.name} has inputs that require grad and no backward")


def _check_fake(op: CustomOpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    fake = op._kernels.get("meta")
    if fake is None:
        return
    real, said = op(*args, **kwargs), fake(*args, **kwargs)
    pairs = zip(flat((real,)), flat((said,)), strict=True)
    for y, z in pairs:
        if isinstance(y, TensorBase) and (y.shape != z.shape or y.dtype is not z.dtype):
            raise AutogradError(
                f"opcheck: {op.name}: the result is {tuple(y.shape)} {y.dtype}, its fake function "
                f"says {tuple(z.shape)} {z.dtype}"
            )
