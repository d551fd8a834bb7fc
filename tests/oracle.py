"""What the code computed before a change, bit for bit: recorded once, compared afterwards.

    PYTHONPATH=/path/to/the/commit/before python tests/oracle.py record DIR
    python -m tests.oracle compare DIR

(as a script, so that the `adjoint` of PYTHONPATH is imported and not the one beside this file;
`make oracle BASE=<commit>` does both). Every case is computed three times in a row, in the default
configuration, so that calls that are remembered, and launched, are among what is recorded.

What a case says: the bits of its results and of their gradients, how many nodes of each kind the
results have behind them, how many kernels each of the three runs launched; an error is recorded
with its message. Bits belong to one machine and its libraries: they are not committed.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib
import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import adjoint as ad
import adjoint.nn.functional as nf
from adjoint.runtime.dispatch import apply

RUNS = 3
SIZES = [(1,), (3, 5), (64,), (4099,), (70000,)]  # both sides of every threshold
ROWS = [(1, 1), (3, 5), (8, 8), (1, 4099), (70, 1000)]  # for what works along rows
CHANNELS = [(1, 1), (3, 5), (8, 8), (7, 2500)]  # and what each has
DTYPES = ["float32", "float64", "bfloat16"]
ITERATED = {"BetaMoment", "GammaMoment"}  # which take seconds for a large array
COUNTERS = [  # where launches have been counted, in any commit
    ("adjoint.backends.native.lowering.composite", "launches"),
    ("adjoint.runtime.writes", "launches"),
    ("adjoint.backends.native.lowering.writing", "launches"),
    ("adjoint.backends.native.lowering.multi_tensor", "launches"),
]


class Case(NamedTuple):
    name: str
    run: Callable[[], dict[str, Any]]  # tensors by what they are; new ones with every call


class Result(NamedTuple):
    arrays: dict[str, np.ndarray]
    nodes: dict[str, int]
    launches: int | None


# ---- inputs ------------------------------------------------------------------------------------


def values(name: str, shape: tuple[int, ...], dtype: Any = "float32") -> Any:
    """Normally distributed numbers that `name` decides."""
    dtype = getattr(ad, dtype) if isinstance(dtype, str) else dtype
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x = rng.standard_normal(shape)
    if dtype.is_complex:
        return ad.tensor(x + 1j * rng.standard_normal(shape)).to(dtype)
    return ad.tensor(x).to(dtype)


def places(name: str, shape: tuple[int, ...], most: int) -> Any:
    """Whole numbers below `most`."""
    return ad.tensor(np.random.default_rng(zlib.crc32(name.encode())).integers(0, most, shape))


def differentiated(function: Callable[..., Any], *inputs: Any) -> dict[str, Any]:
    """The outputs without history and with it, and the gradients of all inputs that have some, or
    the error that there is instead.
    """
    ad.manual_seed(0)
    plain = function(*inputs)
    leaves = [_leaf(x) for x in inputs]
    ad.manual_seed(0)
    ys = function(*leaves)
    found = {f"output {i} without history": y for i, y in enumerate(_tuple(plain))}
    found |= {f"output {i}": y for i, y in enumerate(_tuple(ys))}
    wanted = [y for y in _tuple(ys) if isinstance(y, ad.Tensor) and y.requires_grad]
    given = [i for i, x in enumerate(leaves) if isinstance(x, ad.Tensor) and x.requires_grad]
    if wanted and given:
        cotangents = [values(f"cotangent {i}", y.shape, y.dtype) for i, y in enumerate(wanted)]
        asked = [leaves[i] for i in given]
        try:
            gradients = ad.autograd.grad(
                wanted, asked, cotangents, retain_graph=True, allow_unused=True
            )
        except Exception as error:
            return found | {"error of the gradients": said(error)}
        found |= {f"gradient {i}": g for i, g in zip(given, gradients, strict=True)}
    return found


def said(error: Exception) -> str:
    """An error as it is recorded."""
    return f"{type(error).__name__}: {error}"


def _leaf(x: Any) -> Any:
    if isinstance(x, ad.Tensor) and (x.is_floating_point() or x.is_complex()):
        return x.detach().requires_grad_()
    return x


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


# ---- cases -------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Everything that is recorded."""
    yield from registry()
    yield from composites()
    yield from layers()
    yield from in_place()
    yield from optimizers()


def registry() -> Iterator[Case]:
    """Every op on every sample; elementwise ones on large arrays of the same numbers, too."""
    counts: collections.Counter[str] = collections.Counter()
    large: set[str] = set()
    for cls, sample in ad.testing.samples():
        if not cls.__module__.startswith("adjoint."):
            continue
        fields = ",".join(getattr(cls, "__dataclass_fields__", ()))
        kind = f"{cls.__name__}({fields})"  # no module: a class may move
        arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
        dtypes = "-".join(str(x.dtype) for x in arrays)
        name = f"{kind} sample {counts[kind]} {sample.label} {dtypes}"
        counts[kind] += 1
        yield Case(name, _of_sample(sample.op, sample.inputs))
        same = len({x.shape for x in arrays}) == 1 and arrays[0].size > 0
        if "Elementwise" in [c.__name__ for c in cls.__mro__] and same:
            for size in (4099,) if cls.__name__ in ITERATED else (4099, 70000):
                name = f"{kind} {sample.op} of {size} {dtypes}"
                if name not in large:
                    large.add(name)
                    yield Case(name, _of_sample(sample.op, sample.inputs, size))


def _of_sample(op: Any, inputs: Any, size: int = 0) -> Callable[[], dict[str, Any]]:
    def given(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return ad.from_numpy(np.resize(x, size) if size else x)
        return x

    def run() -> dict[str, Any]:
        return differentiated(lambda *xs: apply(op, *xs), *map(given, inputs))

    return run


def _batch_norm(training: bool) -> Callable[..., Any]:
    def run(x: Any, w: Any, b: Any) -> Any:
        mean, var = ad.zeros(x.shape[1], dtype=x.dtype), ad.ones(x.shape[1], dtype=x.dtype)
        return nf.batch_norm(x, mean, var, w, b, training), mean, var

    return run


def _attention(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v: nf.scaled_dot_product_attention(q, k, v, **options)


ALONG_ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: nf.softmax(x, -1),
    "softmax of columns": lambda x: nf.softmax(x, 0),
    "log_softmax": lambda x: nf.log_softmax(x, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(1),
    "sum of columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(0),
    "argmin": lambda x: x.argmin(1),
    "var": lambda x: x.var(1, correction=0),
    "norm": lambda x: x.norm(dim=1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(1, 1),
    "normalize": lambda x: nf.normalize(x, dim=1),
    "cosine_similarity": lambda x: nf.cosine_similarity(x, x.flip(1), dim=1),
    "transpose": lambda x: x.t().contiguous(),
    "slices": lambda x: x[:, ::2] * 2,
    "cat": lambda x: ad.cat([x, x * 2], 1),
    "stack": lambda x: ad.stack([x, x]),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "where": lambda x: ad.where(x > 0, x, x * 0.5),
    "chain": lambda x: ((x * 2 + 1).tanh() / 3 - x).exp().sum(0),
    "product": lambda x: x @ x.t(),
    "linear": lambda x: nf.linear(x, x[:1], x[:1, 0]),
    "gelu": nf.gelu,
    "gelu by tanh": lambda x: nf.gelu(x, approximate="tanh"),
    "silu": nf.silu,
    "mish": nf.mish,
    "softplus": nf.softplus,
    "elu": nf.elu,
    "selu": nf.selu,
    "leaky_relu": nf.leaky_relu,
    "hardswish": nf.hardswish,
    "logsigmoid": nf.logsigmoid,
    "glu": lambda x: nf.glu(ad.cat([x, x], 1), 1),
    "dropout": lambda x: nf.dropout(x, 0.3),
    "dropout of channels": lambda x: nf.dropout1d(x, 0.3),
    "rms_norm": lambda x: nf.rms_norm(x, x.shape[1:]),
    "layer_norm without weights": lambda x: nf.layer_norm(x, x.shape[1:]),
    "mse_loss": lambda x: nf.mse_loss(x, x.detach().flip(1)),
    "l1_loss": lambda x: nf.l1_loss(x, x.detach().flip(1)),
    "smooth_l1_loss": lambda x: nf.smooth_l1_loss(x, x.detach().flip(1)),
    "huber_loss": lambda x: nf.huber_loss(x, x.detach().flip(1), reduction="sum"),
    "kl_div": lambda x: nf.kl_div(x, x.detach().flip(1).sigmoid(), reduction="batchmean"),
    "binary_cross_entropy_with_logits": lambda x: nf.binary_cross_entropy_with_logits(
        x, x.detach().flip(1).sigmoid()
    ),
    "cross_entropy": lambda x: nf.cross_entropy(x, places("target", x.shape[:1], x.shape[1])),
    "cross_entropy, smoothed": lambda x: nf.cross_entropy(
        x, places("target", x.shape[:1], x.shape[1]), label_smoothing=0.1, reduction="sum"
    ),
    "cross_entropy of probabilities": lambda x: nf.cross_entropy(x, x.detach().flip(0).softmax(1)),
    "nll_loss": lambda x: nf.nll_loss(x, places("target", x.shape[:1], x.shape[1])),
    "embedding": lambda x: nf.embedding(places("rows", (7,), x.shape[0]), x),
    "gather": lambda x: x.gather(1, places("columns", tuple(x.shape), x.shape[1])),
    "index_select": lambda x: x.index_select(1, places("column", (9,), x.shape[1])),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 3.0),
}

# function, shapes of its inputs
OTHERS: dict[str, tuple[Callable[..., Any], list[list[tuple[int, ...]]]]] = {
    "layer_norm": (
        lambda x, w, b: nf.layer_norm(x, x.shape[-1:], w, b),
        [[(r, c), (c,), (c,)] for r, c in ROWS],
    ),
    "batch_norm": (
        _batch_norm(True), [[(4, c, n), (c,), (c,)] for c, n in CHANNELS]
    ),
    "batch_norm of use": (
        _batch_norm(False), [[(4, c, n), (c,), (c,)] for c, n in CHANNELS]
    ),
    "group_norm": (
        lambda x, w, b: nf.group_norm(x, 2, w, b),
        [[(3, c, n), (c,), (c,)] for c, n in ((2, 3), (4, 5), (8, 8), (6, 4000))],
    ),
    "instance_norm": (lambda x: nf.instance_norm(x), [[(2, 3, 5)], [(4, 7, 2500)]]),
    "attention": (_attention(), [[(2, 3, n, 8)] * 3 for n in (1, 5, 130)]),
    "attention, causal": (_attention(is_causal=True), [[(2, 3, n, 8)] * 3 for n in (1, 5, 130)]),
    "attention, dropped": (_attention(dropout_p=0.2), [[(2, 3, n, 8)] * 3 for n in (1, 5, 130)]),
    "broadcast": (
        lambda a, b: a * b + a, [[(3, 5), (5,)], [(70, 1000), (1000,)], [(70, 1), (1, 1000)]]
    ),
    "matmul": (lambda a, b: a @ b, [[(1, 1)] * 2, [(3, 5), (5, 2)], [(70, 300), (300, 90)]]),
    "bmm": (lambda a, b: a @ b, [[(2, 3, 5), (2, 5, 4)], [(5, 40, 60), (5, 60, 50)]]),
    "linear with bias": (nf.linear, [[(3, 5), (2, 5), (2,)], [(70, 300), (90, 300), (90,)]]),
    "conv1d": (
        lambda x, w: nf.conv1d(x, w, padding=1), [[(1, 2, 5), (3, 2, 3)], [(4, 8, 600), (6, 8, 3)]]
    ),
    "conv2d": (
        lambda x, w, b: nf.conv2d(x, w, b, padding=1),
        [[(1, 2, 5, 5), (3, 2, 3, 3), (3,)], [(4, 8, 30, 30), (6, 8, 3, 3), (6,)]],
    ),
    "max_pool2d": (lambda x: nf.max_pool2d(x, 2), [[(1, 2, 4, 4)], [(4, 8, 50, 50)]]),
    "avg_pool2d": (lambda x: nf.avg_pool2d(x, 2), [[(1, 2, 4, 4)], [(4, 8, 50, 50)]]),
}  # fmt: skip


def composites() -> Iterator[Case]:
    """Functions of several ops, in every dtype on both sides of the thresholds."""
    for dtype in DTYPES:
        for name, function in ALONG_ROWS.items():
            for shape in ROWS:
                yield _composite(name, function, [shape], dtype)
        for name, (function, shapes) in OTHERS.items():
            for each in shapes:
                yield _composite(name, function, each, dtype)


def _composite(
    name: str, function: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: str
) -> Case:
    def run() -> dict[str, Any]:
        inputs = [values(f"input {i}", shape, dtype) for i, shape in enumerate(shapes)]
        return differentiated(function, *inputs)

    shown = " and ".join("x".join(map(str, shape)) for shape in shapes)
    return Case(f"{name} of {shown} {dtype}", run)


# what makes one of a size, the shape of its input, sizes
LAYERS: dict[str, tuple[Callable[[int], Any], Callable[[int], Any], tuple[int, ...]]] = {
    "LSTM": (lambda n: ad.nn.LSTM(n, n, 2), lambda n: (7, 3, n), (1, 5, 64)),
    "GRU": (lambda n: ad.nn.GRU(n, n, bidirectional=True), lambda n: (7, 3, n), (1, 5, 64)),
    "RNN": (lambda n: ad.nn.RNN(n, n), lambda n: (7, 3, n), (1, 5, 64)),
    "MultiheadAttention": (
        lambda n: _Itself(ad.nn.MultiheadAttention(n, 2, batch_first=True)),
        lambda n: (2, 9, n), (4, 64),
    ),
    "TransformerEncoderLayer": (
        lambda n: ad.nn.TransformerEncoderLayer(n, 2, 2 * n), lambda n: (2, 9, n), (4, 64)
    ),
    "perceptron": (
        lambda n: ad.nn.Sequential(ad.nn.Linear(n, 2 * n), ad.nn.ReLU(), ad.nn.Linear(2 * n, 3)),
        lambda n: (33, n), (1, 5, 64, 300),
    ),
    "convolutional": (
        lambda n: ad.nn.Sequential(
            ad.nn.Conv2d(3, n, 3), ad.nn.BatchNorm2d(n), ad.nn.GELU(), ad.nn.MaxPool2d(2)
        ),
        lambda n: (2, 3, 16, 16), (1, 5, 64),
    ),
}  # fmt: skip


class _Itself(ad.nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)


def layers() -> Iterator[Case]:
    """Modules with their parameters' gradients, through `backward`."""
    for name, (make, shape, sizes) in LAYERS.items():
        for n in sizes:
            yield Case(f"{name} of {n}", _layer(make, shape(n), n))


def _layer(make: Callable[[int], Any], shape: tuple[int, ...], n: int) -> Callable[[], Any]:
    def run() -> dict[str, Any]:
        ad.manual_seed(0)
        module = make(n)
        x = values("input", shape).requires_grad_()
        y = _tuple(module(x))[0]
        y.backward(values("cotangent 0", y.shape), retain_graph=True)
        found = {"output": y, "gradient": x.grad}
        for key, p in module.named_parameters():
            found |= {key: p, f"gradient of {key}": p.grad}
        return found | dict(module.named_buffers())

    return run


def _set(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def _through(view: Any, write: Callable[[Any], Any]) -> None:
    write(view)


# Each writes into x; y has its shape and dtype.
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda x, y: x.add_(y),
    "add_ with alpha": lambda x, y: x.add_(y, alpha=0.3),
    "add_ of a number": lambda x, y: x.add_(2),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "pow_": lambda x, y: x.pow_(2),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "addcdiv_": lambda x, y: x.addcdiv_(y, y + 9, value=0.5),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "exp_": lambda x, y: x.exp_(),
    "tanh_": lambda x, y: x.tanh_(),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "relu_": lambda x, y: x.relu_(),
    "clamp_": lambda x, y: x.clamp_(-0.5, 0.5),
    "neg_": lambda x, y: x.neg_(),
    "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(1.5),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 2.0),
    "index_add_": lambda x, y: x.index_add_(0, places("rows", (2,), x.shape[0]), y[:1].repeat(
        2, *[1] * (y.ndim - 1))),
    "scatter_add_": lambda x, y: x.scatter_add_(0, places("to", tuple(x.shape), x.shape[0]), y),
    "a slice": lambda x, y: _set(x, slice(0, None, 2), 3.0),
    "a mask": lambda x, y: _set(x, y > 0, 3.0),
    "through a view": lambda x, y: (_through(x.reshape(-1)[::2], lambda v: v.mul_(2)), x)[1],
    "twice": lambda x, y: x.mul_(0.9).add_(y, alpha=0.1),
    "uniform_": lambda x, y: x.uniform_(-1, 1),
    "normal_": lambda x, y: x.normal_(),
    "bernoulli_": lambda x, y: x.bernoulli_(0.3),
    "exponential_": lambda x, y: x.exponential_(),
}  # fmt: skip


def in_place() -> Iterator[Case]:
    """Methods that write: on a plain tensor, and on one whose history goes on."""
    for dtype in ("float32", "float64", "bfloat16"):
        for name, write in IN_PLACE.items():
            for shape in SIZES:
                shown = "x".join(map(str, shape))
                yield Case(f"{name} of {shown} {dtype}", _written(write, shape, dtype))


def _written(write: Callable[..., Any], shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
    def run() -> dict[str, Any]:
        return differentiated(
            lambda x, y: write(x.clone(), y), values("x", shape, dtype), values("y", shape, dtype)
        )

    return run


OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD, momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "SGD, nesterov": (
        "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True}
    ),
    "Adam": ("Adam", {"lr": 0.1}),
    "Adam, amsgrad": ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "AdamW": ("AdamW", {"lr": 0.1}),
    "Adamax": ("Adamax", {"lr": 0.1, "weight_decay": 0.01}),
    "NAdam": ("NAdam", {"lr": 0.1}),
    "NAdam, decoupled": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": ("RAdam", {"lr": 0.1, "betas": (0.8, 0.9)}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "Adadelta": ("Adadelta", {}),
    "RMSprop": ("RMSprop", {"lr": 0.1}),
    "RMSprop, centered": ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    "Rprop": ("Rprop", {"lr": 0.1}),
    "ASGD": ("ASGD", {"lr": 0.1, "t0": 2, "lambd": 0.1}),
    "Adafactor": ("Adafactor", {"lr": 0.1}),
    "Muon": ("Muon", {"lr": 0.1}),
    "LBFGS": ("LBFGS", {"lr": 0.5, "max_iter": 3}),
}  # fmt: skip


def optimizers() -> Iterator[Case]:
    """Five steps on one parameter, small and large, and on three together; with the state."""
    for name, (kind, options) in OPTIMIZERS.items():
        for dtype in ("float32", "bfloat16"):
            if kind == "LBFGS" and dtype == "bfloat16":
                continue  # its line search needs a precision
            for shapes in ([(3, 5)], [(280, 250)], [(3, 5), (280, 250), (64, 64)]):
                shown = " and ".join("x".join(map(str, shape)) for shape in shapes)
                yield Case(f"{name} on {shown} {dtype}", _steps(kind, options, shapes, dtype))


def _steps(
    kind: str, options: dict[str, Any], shapes: list[tuple[int, ...]], dtype: str
) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        params = [
            ad.nn.Parameter(values(f"parameter {i}", shape, dtype))
            for i, shape in enumerate(shapes)
        ]
        optimizer = getattr(ad.optim, kind)(params, **options)
        targets = [values(f"target {i}", shape, dtype) for i, shape in enumerate(shapes)]

        def closure() -> Any:
            optimizer.zero_grad()
            pairs = zip(params, targets, strict=True)
            loss = sum((((p - t) ** 2).sum() for p, t in pairs), start=ad.zeros((), dtype=p_dtype))
            loss.backward()
            return loss

        p_dtype = params[0].dtype
        for step in range(5):
            if kind == "LBFGS":
                optimizer.step(closure)
                continue
            for i, p in enumerate(params):
                p.grad = values(f"gradient {i} of step {step}", p.shape, p.dtype)
            optimizer.step()
        found = {f"parameter {i}": p for i, p in enumerate(params)}
        for i, p in enumerate(params):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, (ad.Tensor, int, float)):
                    found[f"{key} of parameter {i}"] = value
        return found

    return run


# ---- running ------------------------------------------------------------------------------------


def counters() -> list[list[int]] | None:
    """The counters of launches that this commit has; None where it has none of those."""
    found = []
    for module, name in COUNTERS:
        try:
            found.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError):
            continue
    return found or None


COUNTS = counters()


def launched() -> int | None:
    """Kernels launched so far."""
    return None if COUNTS is None else sum(count[0] for count in COUNTS)


def array(value: Any) -> np.ndarray:
    """The elements, as they lie one after the other."""
    if not isinstance(value, ad.Tensor):
        return np.asarray(value)
    return np.ascontiguousarray(value.detach().resolve_conj().numpy())


def nodes(found: dict[str, Any]) -> dict[str, int]:
    """The nodes behind these tensors, counted by what they are."""
    waiting = [y.grad_fn for y in found.values() if isinstance(y, ad.Tensor)]
    seen: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if hasattr(node, "next_functions") and id(node) not in seen:  # a leaf has none
            seen[id(node)] = node
            waiting += [parent for parent, _ in node.next_functions]
    return dict(sorted(collections.Counter(node.name() for node in seen.values()).items()))


def computed(case: Case) -> Result:
    """What one run of the case gives."""
    before = launched()
    try:
        found = case.run()
    except Exception as error:
        found = {"error": said(error)}
    after = launched()
    count = None if after is None or before is None else after - before
    arrays = {key: array(value) for key, value in found.items() if value is not None}
    return Result(arrays, nodes(found), count)


class Recording:
    """What all cases gave: arrays by case and part, and for each case nodes and launches."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.counts: dict[str, dict[str, Any]] = {}
        self.differing: list[str] = []  # cases that gave different bits from one run to the next

    def add(self, case: Case) -> None:
        """Run the case."""
        runs = [computed(case) for _ in range(RUNS)]
        assert case.name not in self.counts, f"two cases are called {case.name!r}"
        for number, run in enumerate(runs[1:], 2):
            for line in differences(runs[0].arrays, run.arrays):
                self.differing.append(f"{case.name}: run {number}: {line}")
        self.counts[case.name] = {
            "nodes": runs[0].nodes,
            "launches": [run.launches for run in runs],
            "parts": {part: str(x.dtype) for part, x in runs[0].arrays.items()},
        }
        for part, x in runs[0].arrays.items():
            self.arrays[f"{case.name} | {part}"] = x

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        starts: dict[bytes, int] = {}  # equal bits are written once
        shapes = {}
        with (folder / "bits").open("wb") as file:
            for key, x in self.arrays.items():
                bits = x.tobytes()
                digest = hashlib.sha256(bits).digest()
                if digest not in starts:
                    starts[digest] = file.tell()
                    file.write(bits)
                shapes[key] = (str(x.dtype), x.shape, starts[digest])
        about = {"arrays": shapes, "counts": self.counts}
        (folder / "index.json").write_text(json.dumps(about))

    @classmethod
    def load(cls, folder: Path) -> Recording:
        recording = cls()
        about = json.loads((folder / "index.json").read_text())
        bits = (folder / "bits").read_bytes()
        for key, (name, shape, start) in about["arrays"].items():
            dtype = _dtype(name)
            count = int(np.prod(shape))
            recording.arrays[key] = np.frombuffer(bits, dtype, count, start).reshape(shape)
        recording.counts = about["counts"]
        return recording

    def parts(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of one case."""
        return {part: self.arrays[f"{name} | {part}"] for part in self.counts[name]["parts"]}


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, None) or name)


def everything() -> Recording:
    """Run all cases."""
    recording = Recording()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in cases():
            recording.add(case)
    return recording


# ---- comparing -----------------------------------------------------------------------------------


def differences(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> list[str]:
    """A line for each array that is not the same, bit for bit."""
    lines = [f"{part}: is gone" for part in old.keys() - new.keys()]
    lines += [f"{part}: is new" for part in new.keys() - old.keys()]
    for part in old.keys() & new.keys():
        a, b = old[part], new[part]
        if a.dtype.kind == b.dtype.kind == "U":
            if a != b:
                lines.append(f"{part}: {str(a)!r} became {str(b)!r}")
        elif a.dtype != b.dtype or a.shape != b.shape:
            lines.append(f"{part}: {a.dtype}{a.shape} became {b.dtype}{b.shape}")
        elif a.tobytes() != b.tobytes():
            lines.append(f"{part}: {distance(a, b)}")
    return sorted(lines)


def distance(a: np.ndarray, b: np.ndarray) -> str:
    """How far two arrays of one dtype and shape are from one another, in words."""
    if a.dtype.kind == "c":
        a, b = (x.reshape(-1).view(x.real.dtype) for x in (a, b))
    if a.dtype.kind not in "fV":
        wrong = int((a != b).sum())
        return f"{wrong} of {a.size} elements differ"
    kind = np.dtype(f"i{a.dtype.itemsize}")
    x, y = (np.ascontiguousarray(v).reshape(-1).view(kind) for v in (a, b))
    wrong = x != y
    place = int(np.argmax(wrong))
    was, now = (v.reshape(-1).astype(np.float64) for v in (a, b))
    shown = f"{wrong.sum()} of {a.size}, the first at {place}: {was[place]} became {now[place]}"
    numbers = wrong & ~(np.isnan(was) | np.isnan(now))
    if not numbers.any():
        return f"NaN in {shown}"
    steps = np.abs(_ordered(x[numbers]) - _ordered(y[numbers]))
    return f"up to {int(steps.max())} ulps in {shown}"


def _ordered(bits: np.ndarray) -> Any:
    """Bits of floats as integers in the floats' order (Python's, where 64 bits could overflow)."""
    lowest = np.iinfo(bits.dtype).min
    wide = bits.astype(object if bits.dtype.itemsize == 8 else np.int64)
    return np.where(bits < 0, lowest - wide, wide)


def compared(old: Recording, new: Recording) -> list[str]:
    """A line for each difference."""
    lines = []
    for name in old.counts:
        if name not in new.counts:
            lines.append(f"{name}: is gone")
            continue
        lines += [f"{name}: {line}" for line in differences(old.parts(name), new.parts(name))]
        for what in ("nodes", "launches"):
            was, now = old.counts[name][what], new.counts[name][what]
            if was != now:
                lines.append(f"{name}: {what} {was} became {now}")
    return lines + [f"{name}: is new" for name in new.counts if name not in old.counts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    start = time.process_time()
    print(f"{options.action}: adjoint of {Path(ad.__file__).parent}")
    recording = everything()
    lines = recording.differing
    if options.action == "record":
        recording.save(options.folder)
    else:
        lines = lines + compared(Recording.load(options.folder), recording)
    print(*lines, sep="\n", end="\n" if lines else "")
    size = sum(x.nbytes for x in recording.arrays.values()) / 2**20
    print(
        f"{len(recording.counts)} cases, {len(recording.arrays)} arrays, {size:.0f} MiB, "
        f"{time.process_time() - start:.0f} s of processor time: {len(lines)} differences"
    )
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
