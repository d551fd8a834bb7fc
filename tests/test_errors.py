"""Bad input: a table of cases, each run on PyTorch as well. The error is ours and also the builtin
that PyTorch raises; its message names the op, the values and the remedy; nothing has changed.
"""

# ruff: noqa: E501 - one case of the table is one line

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


class Case(NamedTuple):
    name: str
    inputs: Callable[[Any], tuple[Any, ...]]  # of the framework; what must be left unchanged
    call: Callable[..., Any]  # of the framework and the inputs; must raise
    error: type[Exception]  # our class
    words: tuple[str, ...]  # the op and the offending values
    remedy: str  # a part of the way out that the message names
    builtin: type[Exception] | None = None  # where PyTorch has no such call


def ones(*shapes: Any, dtype: str = "float32") -> Callable[[Any], tuple[Any, ...]]:
    """Tensors of ones, as inputs."""
    return lambda t: tuple(t.ones(*shape, dtype=getattr(t, dtype)) for shape in shapes)


def leaves(*shapes: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Tensors of ones that require grad, as inputs."""
    return lambda t: tuple(t.ones(*shape, requires_grad=True) for shape in shapes)


def assign(target: Any, index: Any, value: Any) -> None:
    target[index] = value


def after(t: Any, *steps: Callable[[], Any]) -> Any:
    """Run the steps and return what the last one gives."""
    result = None
    for step in steps:
        result = step()
    return result


def changed_before_backward(t: Any, x: Any) -> None:
    h = x * 1
    y = (h * h).sum()
    h.add_(1)
    y.backward()


def backward_twice(t: Any, x: Any) -> None:
    y = (x * x).sum()
    y.detach()
    t.autograd.grad(y, x)
    y.backward()


def linear_with(t: Any, state: dict[str, Any]) -> Any:
    """Load `state` into Linear(3, 2)."""
    return t.nn.Linear(3, 2).load_state_dict(state)


S, D, T, A = ad.ShapeError, ad.DTypeError, ad.InvalidType, ad.AutogradError
V, N, X, L = ad.InvalidArgument, ad.IndexingError, ad.DeviceError, ad.LinalgError
F = "nn.functional"

CASES = [
    # ---- elementwise ----
    Case("add-shapes", ones((2, 3), (4,)), lambda t, a, b: a + b, S, ("add", "(2, 3)", "(4,)"), "reshape"),
    Case("mul-shapes", ones((2, 3), (2,)), lambda t, a, b: t.mul(a, b), S, ("mul", "(2, 3)", "(2,)"), "reshape"),
    Case("maximum-shapes", ones((2,), (3,)), lambda t, a, b: t.maximum(a, b), S, ("maximum", "(2,)", "(3,)"), "reshape"),
    Case("where-shapes", lambda t: (t.ones(2) > 0, t.ones(3), t.ones(2)), lambda t, c, a, b: t.where(c, a, b), S, ("where", "(2,)", "(3,)"), "reshape"),
    Case("exp-non-tensor", ones(), lambda t: t.exp([1.0]), T, ("exp", "list", "[1.0]"), "tensor()"),
    Case("add-string", ones((2,)), lambda t, a: t.add(a, "three"), T, ("add", "three"), "tensor"),
    Case("sub-bools", ones((2,), (2,), dtype="bool"), lambda t, a, b: a - b, D, ("sub", "bool"), "logical_xor"),
    Case("neg-bool", ones((2,), dtype="bool"), lambda t, a: -a, D, ("neg", "bool"), ".int()"),
    Case("bitwise-and-floats", ones((2,), (2,)), lambda t, a, b: a & b, D, ("bitwise_and", "float32"), "convert"),
    Case("floor-complex", ones((2,), dtype="complex64"), lambda t, a: a.floor(), D, ("floor", "complex64"), "real"),
    Case("compare-complex", ones((2,), (2,), dtype="complex64"), lambda t, a, b: a < b, D, ("lt", "complex64"), "real"),
    Case("div-rounding-mode", ones((2,)), lambda t, a: t.div(a, 2, rounding_mode="up"), V, ("div", "'up'"), "trunc"),
    Case("clamp-without-bounds", ones((2,)), lambda t, a: t.clamp(a), V, ("clamp", "min", "max"), "At least one"),
    Case("integer-negative-power", ones((2,), dtype="int64"), lambda t, a: a**-1, V, ("pow", "-1"), "float"),
    Case("lerp-dtypes", lambda t: (t.ones(2), t.ones(2, dtype=t.float64)), lambda t, a, b: t.lerp(a, b, 0.5), D, ("lerp", "float32", "float64"), ".to("),
    Case("gelu-integers", ones((2,), dtype="int64"), lambda t, a: t.nn.functional.gelu(a), D, ("gelu", "int64"), ".float()"),
    # ---- in place, out= ----
    Case("in-place-shape", lambda t: (t.ones(2), t.ones(2, 2)), lambda t, a, b: a.add_(b), S, ("add_", "(2,)", "(2, 2)"), "cannot change"),
    Case("in-place-dtype", ones((2,), dtype="int64"), lambda t, a: a.mul_(0.5), D, ("mul_", "int64", "float"), "not in place"),
    Case("in-place-leaf", leaves((2,)), lambda t, a: a.add_(1), A, ("add_", "leaf"), "no_grad()"),
    Case("in-place-view-of-leaf", leaves((2,)), lambda t, a: a[:1].add_(1), A, ("add_", "view", "leaf"), "no_grad()"),
    Case("in-place-expanded", ones((1,)), lambda t, a: a.expand(3).add_(1), A, ("add_", "single memory location"), "clone"),
    Case("in-place-assign-leaf", leaves((2,)), lambda t, a: assign(a, 0, 1.0), A, ("leaf",), "no_grad()"),
    Case("copy-shape", ones((2,), (3,)), lambda t, a, b: a.copy_(b), S, ("copy_", "[2]", "[3]"), "broadcast"),
    Case("out-needs-grad", lambda t: (t.ones(2, requires_grad=True), t.zeros(2)), lambda t, a, b: t.exp(a, out=b), A, ("exp", "out="), "differentiation"),
    Case("out-dtype", lambda t: (t.ones(2), t.zeros(2, dtype=t.int64)), lambda t, a, b: t.exp(a, out=b), D, ("exp", "float32", "int64"), "convert"),
    # ---- reductions ----
    Case("sum-dim", ones((2, 3)), lambda t, a: a.sum(dim=2), N, ("sum", "2", "[-2, 1]"), "range"),
    Case("sum-dim-twice", ones((2, 3)), lambda t, a: a.sum(dim=(0, 0)), S, ("sum", "(0, 0)"), "multiple times"),
    Case("mean-integers", ones((2,), dtype="int64"), lambda t, a: a.mean(), D, ("mean", "int64"), "float"),
    Case("max-empty", ones((0,)), lambda t, a: a.max(), S, ("max", "(0,)"), "dim"),
    Case("argmax-empty-dim", ones((2, 0)), lambda t, a: a.argmax(dim=1), N, ("argmax", "1"), "non-zero size"),
    Case("argmax-dim", ones((2,)), lambda t, a: a.argmax(dim=3), N, ("argmax", "3", "[-1, 0]"), "range"),
    Case("softmax-dim", ones((2,)), lambda t, a: a.softmax(1), N, ("softmax", "1", "[-1, 0]"), "range"),
    Case("cumsum-dim", ones((2,)), lambda t, a: a.cumsum(1), N, ("cumsum", "1", "[-1, 0]"), "range"),
    Case("kthvalue-k", ones((3,)), lambda t, a: a.kthvalue(4), V, ("kthvalue", "4", "3"), "range"),
    Case("topk-k", ones((3,)), lambda t, a: a.topk(5), V, ("topk", "5", "3"), "range"),
    Case("quantile-q", ones((3,)), lambda t, a: a.quantile(1.5), V, ("quantile", "1.5"), "[0, 1]"),
    Case("sort-dim", ones((3,)), lambda t, a: a.sort(dim=2), N, ("sort", "2", "[-1, 0]"), "range"),
    # ---- movement ----
    Case("reshape-count", ones((2, 3)), lambda t, a: a.reshape(4, 2), S, ("reshape", "[4, 2]", "6"), "size"),
    Case("reshape-infer", ones((2, 3)), lambda t, a: a.reshape(-1, 4), S, ("reshape", "[-1, 4]", "6"), "size"),
    Case("reshape-two-inferred", ones((4,)), lambda t, a: a.reshape(-1, -1), S, ("reshape", "[-1, -1]"), "one"),
    Case("view-of-transpose", ones((2, 3)), lambda t, a: a.t().view(6), S, ("view", "[3, 2]", "[6]"), "reshape"),
    Case("permute-repeats", ones((2, 3)), lambda t, a: a.permute(0, 0), S, ("permute", "0"), "dim"),
    Case("permute-count", ones((2, 3)), lambda t, a: a.permute(0), S, ("permute", "2", "1"), "dims"),
    Case("transpose-dim", ones((2, 3)), lambda t, a: a.transpose(0, 2), N, ("transpose", "2", "[-2, 1]"), "range"),
    Case("expand-size", ones((2,)), lambda t, a: a.expand(3), S, ("expand", "[3]", "[2]"), "must match"),
    Case("squeeze-dim", ones((2,)), lambda t, a: a.squeeze(2), N, ("squeeze", "2"), "range"),
    Case("unsqueeze-dim", ones((2,)), lambda t, a: a.unsqueeze(3), N, ("unsqueeze", "3", "[-2, 1]"), "range"),
    Case("cat-sizes", ones((2, 3), (2, 4)), lambda t, a, b: t.cat([a, b]), S, ("cat", "3", "4"), "dimension"),
    Case("cat-nothing", ones(), lambda t: t.cat([]), V, ("cat",), "non-empty"),
    Case("stack-shapes", ones((2,), (3,)), lambda t, a, b: t.stack([a, b]), S, ("stack", "[2]", "[3]"), "equal size"),
    Case("split-sizes", ones((5,)), lambda t, a: a.split([2, 2]), S, ("split", "5", "[2, 2]"), "sum"),
    Case("chunk-count", ones((5,)), lambda t, a: a.chunk(0), S, ("chunk", "0"), "greater than 0"),
    Case("narrow-range", ones((5,)), lambda t, a: a.narrow(0, 3, 4), S, ("narrow", "3", "4", "5"), "exceed"),
    Case("flip-dim", ones((5,)), lambda t, a: a.flip(1), N, ("flip", "1", "[-1, 0]"), "range"),
    Case("repeat-too-few", ones((2, 2)), lambda t, a: a.repeat(2), S, ("repeat", "[2]", "(2, 2)"), "dimensions"),
    Case("unflatten", ones((6,)), lambda t, a: a.unflatten(0, (4, 2)), S, ("unflatten", "[4, 2]", "6"), "multiply"),
    # ---- matrix products, linear algebra ----
    Case("matmul-inner", ones((3, 4), (5, 6)), lambda t, a, b: a @ b, S, ("matmul", "3x4", "5x6"), "transpose"),
    Case("matmul-dtypes", lambda t: (t.ones(2, 2), t.ones(2, 2, dtype=t.float64)), lambda t, a, b: a @ b, D, ("matmul", "float32", "float64"), ".to()"),
    Case("matmul-number", lambda t: (t.ones(2), t.tensor(1.0)), lambda t, a, b: a @ b, S, ("matmul", "0D"), "*"),
    Case("mm-dimensions", ones((2, 2, 2), (2, 2)), lambda t, a, b: t.mm(a, b), S, ("mm", "(2, 2, 2)"), "matmul"),
    Case("bmm-batches", ones((2, 3, 3), (4, 3, 3)), lambda t, a, b: t.bmm(a, b), S, ("bmm", "[2, 3]", "[4, 3]"), "matmul broadcasts"),
    Case("dot-sizes", ones((2,), (3,)), lambda t, a, b: t.dot(a, b), S, ("dot", "2", "3"), "same"),
    Case("einsum-sizes", ones((2, 3), (4, 5)), lambda t, a, b: t.einsum("ij,jk->ik", a, b), S, ("einsum", "j", "3", "4"), "one letter"),
    Case("inv-shape", ones((2, 3)), lambda t, a: t.linalg.inv(a), S, ("linalg.inv", "2 by 3"), "square"),
    Case("inv-singular", ones((2, 2)), lambda t, a: t.linalg.inv(a), L, ("inv", "singular"), "pinv"),
    Case("cholesky-indefinite", lambda t: (-t.eye(2),), lambda t, a: t.linalg.cholesky(a), L, ("cholesky", "positive"), "definite"),
    Case("solve-shapes", ones((2, 2), (3, 1)), lambda t, a, b: t.linalg.solve(a, b), S, ("linalg.solve", "2x2", "3x1"), "shape"),
    # ---- indexing ----
    Case("index-range", ones((2, 3)), lambda t, a: a[2], N, ("index", "2", "size 2"), "range"),
    Case("index-list-range", ones((2, 3)), lambda t, a: a[[0, 5]], N, ("index", "5", "size 2"), "range"),
    Case("index-too-many", ones((2, 3)), lambda t, a: a[0, 0, 0], N, ("too many indices", "2"), "dimension"),
    Case("index-float", ones((2, 3)), lambda t, a: a[1.5], N, ("index", "float"), "int"),
    Case("index-mask-shape", lambda t: (t.ones(2), t.ones(3) > 0), lambda t, a, m: a[m], N, ("index", "mask", "[3]", "[2]"), "shape"),
    Case("assign-shape", ones((2, 3), (2,)), lambda t, a, b: assign(a, 0, b), S, ("copy_", "[3]", "[2]"), "broadcast"),
    Case("gather-dtype", ones((2,), (2,)), lambda t, a, i: a.gather(0, i), D, ("gather", "float32"), "int64"),
    Case("gather-range", lambda t: (t.ones(2), t.tensor([0, 7])), lambda t, a, i: a.gather(0, i), N, ("gather", "7", "2"), "range"),
    Case("scatter-reduce-name", lambda t: (t.ones(2), t.tensor([0])), lambda t, a, i: a.scatter_reduce(0, i, a, reduce="median"), V, ("scatter_reduce", "median"), "amax"),
    Case("masked-fill-mask", ones((2,), (2,)), lambda t, a, m: a.masked_fill(m, 0.0), D, ("masked_fill", "float32"), "bool"),
    Case("index-select-range", lambda t: (t.ones(2), t.tensor([3])), lambda t, a, i: a.index_select(0, i), N, ("index", "3", "size 2"), "range"),
    # ---- creation, conversion ----
    Case("ragged-list", ones(), lambda t: t.tensor([[1, 2], [3]]), V, ("tensor", "length"), "dim"),
    Case("zeros-negative", ones(), lambda t: t.zeros(-1), S, ("zeros", "-1"), "negative"),
    Case("arange-step", ones(), lambda t: t.arange(0, 1, 0), V, ("arange", "step", "0"), "nonzero"),
    Case("integers-require-grad", ones(), lambda t: t.tensor([1], requires_grad=True), A, ("int64",), "floating point"),
    Case("requires-grad-integers", ones((2,), dtype="int64"), lambda t, a: a.requires_grad_(), A, ("requires_grad_", "int64"), ".float()"),
    Case("unknown-device", ones((2,)), lambda t, a: a.to("quantum"), X, ("quantum",), "cpu"),
    Case("unknown-device-at-creation", ones(), lambda t: t.zeros(2, device="quantum:1"), X, ("quantum",), "cpu"),
    Case("missing-cuda", ones((2,)), lambda t, a: a.to("cuda:7"), ad.core.errors.NoCuda, ("cuda",), "cpu"),
    Case("item-of-many", ones((2,)), lambda t, a: a.item(), V, ("item", "2 elements", "(2,)"), "tolist"),
    Case("truth-of-many", ones((2,)), lambda t, a: bool(a), V, ("2 values", "(2,)"), "any()"),
    Case("len-of-0d", lambda t: (t.tensor(1.0),), lambda t, a: len(a), T, ("len", "0-d"), "0-d"),
    Case("numpy-needs-grad", leaves((2,)), lambda t, a: a.numpy(), A, ("numpy", "requires grad"), "detach()"),
    # ---- autograd ----
    Case("backward-constant", ones((2,)), lambda t, a: a.sum().backward(), A, ("backward", "does not require grad"), "requires_grad=True"),
    Case("backward-gradient-shape", leaves((2,)), lambda t, a: (a * 2).backward(t.ones(3)), S, ("backward", "(3,)", "(2,)"), "shape"),
    Case("backward-gradient-type", leaves((2,)), lambda t, a: (a * 2).backward("ones"), T, ("backward", "str"), "tensor"),
    Case("second-backward", leaves((2,)), backward_twice, A, ("mul", "second time"), "retain_graph=True"),
    Case("saved-tensor-changed", leaves((2,)), changed_before_backward, A, ("mul", "version 1", "version 0", "add_", "(2,)"), "Clone"),
    Case("grad-unused", leaves((2,), (3,)), lambda t, a, b: t.autograd.grad(a.sum(), b), A, ("grad", "(3,)"), "allow_unused=True"),
    Case("grad-of-constant", lambda t: (t.ones(2, requires_grad=True), t.ones(2)), lambda t, a, c: t.autograd.grad((a * c).sum(), c), A, ("grad", "(2,)"), "requires_grad_()"),
    Case("retain-grad-constant", ones((2,)), lambda t, a: a.retain_grad(), A, ("retain_grad", "requires_grad=False"), "requires_grad"),
    Case("hook-constant", ones((2,)), lambda t, a: a.register_hook(print), A, ("register_hook", "require"), "gradient"),
    Case("grad-assign-shape", leaves((2,)), lambda t, a: setattr(a, "grad", t.ones(3)), S, ("grad", "(3,)", "(2,)"), "size"),
    Case("freeze-computed", leaves((2,)), lambda t, a: (a * 2).requires_grad_(False), A, ("requires_grad_", "leaf"), "detach()"),
    Case("deepcopy-computed", leaves((2,)), lambda t, a: __import__("copy").deepcopy(a * 2), A, ("deepcopy",), "detach"),
    Case("inference-saved", leaves((2,)), lambda t, a: a * inference_tensor(t), A, ("nference",), "clone"),
    # ---- neural networks ----
    Case("linear-shape", ones((2, 4), (3, 5)), lambda t, x, w: t.nn.functional.linear(x, w), S, ("linear", "(2, 4)", "(3, 5)"), "last"),
    Case("conv-channels", ones((1, 3, 8, 8), (4, 2, 3, 3)), lambda t, x, w: t.nn.functional.conv2d(x, w), S, ("conv2d", "3", "2"), "channels"),
    Case("conv-kernel-size", ones((1, 1, 2, 2), (1, 1, 3, 3)), lambda t, x, w: t.nn.functional.conv2d(x, w), S, ("conv2d", "3", "2"), "pad the input"),
    Case("cross-entropy-target", lambda t: (t.ones(2, 3), t.tensor([0, 3])), lambda t, x, y: t.nn.functional.cross_entropy(x, y), N, ("cross_entropy: Target 3",), "targets must be"),
    Case("cross-entropy-batch", lambda t: (t.ones(2, 3), t.tensor([0, 1, 2])), lambda t, x, y: t.nn.functional.cross_entropy(x, y), S, ("cross_entropy", "2", "3"), "batch"),
    Case("dropout-p", ones((2,)), lambda t, x: t.nn.functional.dropout(x, 1.5), V, ("dropout", "1.5"), "between 0 and 1"),
    Case("state-dict-missing", ones(), lambda t: linear_with(t, {"weight": t.ones(2, 3)}), ad.CheckpointError, ("Linear", "bias"), "strict=False"),
    Case("state-dict-unexpected", ones(), lambda t: linear_with(t, {"weight": t.ones(2, 3), "bias": t.ones(2), "extra": t.ones(1)}), ad.CheckpointError, ("Linear", "extra"), "strict=False"),
    Case("state-dict-shape", ones(), lambda t: linear_with(t, {"weight": t.ones(3, 3), "bias": t.ones(2)}), ad.CheckpointError, ("Linear", "weight", "3, 3", "2, 3"), "shape"),
    Case("optimizer-empty", ones(), lambda t: t.optim.SGD([], lr=0.1), V, ("SGD", "empty"), "parameters()"),
    Case("optimizer-rate", leaves((2,)), lambda t, p: t.optim.Adam([p], lr=-1.0), V, ("learning rate", "-1.0"), "lr must be at least 0"),
    Case("optimizer-not-a-leaf", leaves((2,)), lambda t, p: t.optim.SGD([p * 2], lr=0.1), V, ("SGD", "leaf"), "detach"),
]  # fmt: skip


def inference_tensor(t: Any) -> Any:
    with t.inference_mode():
        return t.ones(2) * 1


def state(inputs: tuple[Any, ...]) -> list[Any]:
    """Everything that a failed call could have changed."""
    return [
        (
            x.detach().numpy().copy(),
            str(x.dtype),
            tuple(x.shape),
            x.requires_grad,
            None if x.grad is None else x.grad.numpy().copy(),
            x._changes.count if getattr(x, "_changes", None) is not None else 0,
        )
        for x in inputs
    ]


def builtin_of(error: BaseException) -> type:
    """The builtin class of PyTorch's error ("not implemented for" a dtype is a RuntimeError)."""
    found = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    return RuntimeError if found in (NotImplementedError, AssertionError) else found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input(case):
    inputs = case.inputs(ad)
    before = state(inputs)
    with pytest.raises(Exception) as caught:
        case.call(ad, *inputs)
    error = caught.value
    assert type(error) is case.error, repr(error)
    assert isinstance(error, ad.AdjointError)
    for word in (*case.words, case.remedy):
        assert word in str(error), f"{word!r} is not in: {error}"
    for mine, kept in zip(state(inputs), before, strict=True):
        for a, b in zip(mine, kept, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_builtin_is_pytorchs(case):
    if case.builtin is not None:
        assert issubclass(case.error, case.builtin)
        return
    with pytest.raises(Exception) as caught:
        case.call(torch, *case.inputs(torch))
    assert issubclass(case.error, builtin_of(caught.value)), repr(caught.value)


def test_there_are_at_least_60_cases():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
