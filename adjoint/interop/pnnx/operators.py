"""Operators whose arguments are written otherwise than PyTorch's functions take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import nn
from ...core.dtype import dtype as DType  # noqa: N812 - `dtype` is an argument here
from ...core.errors import CheckpointError
from ...namespaces import linalg
from ...ops.create import creation, ranges
from ...ops.create.exchange import from_numpy
from ...runtime.public import FUNCTIONS
from ...tensor import Tensor
from . import names
from .expression import evaluated, number_of
from .layers import RECURRENT, bare
from .step import GraphStep, operator, words
from .text import product

F: Any = nn.functional
MOST = 1 << 31  # elements of a tensor whose size is in the file
LAST = (1 << 31) - 1  # how an end that is left out, and an index that is none, are written
NATURAL = (None, LAST, (1 << 63) - 1)


def sizes_of(s: GraphStep, xs: Sequence[Any], *keys: str) -> list[int]:
    """Sizes: a list among the inputs, or a parameter called one of `keys`."""
    given = xs[0] if xs else next((s.params[k] for k in keys if s.params.get(k) is not None), ())
    sizes = [int(v) for v in (given if isinstance(given, (list, tuple)) else (given,))]
    if product(max(v, 1) for v in sizes) > MOST:
        raise CheckpointError(f"pnnx: {s.label}: a tensor of sizes {sizes[:8]}")
    return sizes


# ---- pnnx's own ----------------------------------------------------------------------------------


@operator("pnnx.Expression")
def _(s: GraphStep, *xs: Any) -> Any:
    found = evaluated(s.params["expr"], xs)
    return tuple(found) if len(s.outputs) > 1 else found


@operator("pnnx.SliceIndexes")
def _(s: GraphStep, *xs: Any) -> Any:
    return [
        xs[int(v[1:])] if isinstance(v, str) and v[:1] == "@" else v for v in s.get("indexes", ())
    ]


operator("prim::ListConstruct")(lambda s, *xs: list(xs))
operator("prim::TupleConstruct")(lambda s, *xs: (xs,))
operator("prim::DictConstruct")(lambda s, *xs: dict(zip(s.params["keys"], xs, strict=True)))
operator("prim::TupleUnpack", "prim::ListUnpack")(lambda s, x: tuple(x))


# ---- shapes --------------------------------------------------------------------------------------


@operator("Tensor.reshape", "Tensor.view", "torch.reshape")
def _(s: GraphStep, x: Any, *sizes: Any) -> Any:
    size = sizes_of(s, sizes, "shape", "size")
    return x.reshape([max(n, -1) for n in size])  # pnnx multiplies a size of -1, too


operator("Tensor.expand")(lambda s, x, *sizes: x.expand(sizes_of(s, sizes, "sizes", "shape")))


@operator("Tensor.repeat", "torch.tile")
def _(s: GraphStep, x: Any, *sizes: Any) -> Any:
    counts = sizes_of(s, sizes, "sizes", "dims")
    if product(counts) * x.numel() > MOST:
        raise CheckpointError(f"pnnx: {s.label}: {counts} times {tuple(x.shape)}")
    return x.repeat(counts) if s.kind == "Tensor.repeat" else FUNCTIONS["tile"](x, counts)


operator("Tensor.unflatten")(lambda s, x: x.unflatten(s.params["dim"], list(s.params["sizes"])))


@operator("Tensor.size")
def _(s: GraphStep, x: Any) -> Any:
    dim = s.get("dim")
    return [int(v) for v in x.shape] if dim is None else int(x.shape[dim])


operator("Tensor.dim")(lambda s, x: x.ndim)
operator("aten::numel")(lambda s, x: int(x.numel()))
operator("torch.permute")(lambda s, x: x.permute(*s.params["dims"]))


@operator("Tensor.squeeze", "Tensor.unsqueeze", "Tensor.flatten")
def _(s: GraphStep, x: Any) -> Any:
    return getattr(x, s.kind[7:])(**s.params)


@operator("torch.squeeze")
def _(s: GraphStep, x: Any) -> Any:
    return x.squeeze() if s.get("dim") is None else x.squeeze(s.params["dim"])


@operator("aten::mT", "aten::mH", "aten::numpy_T")
def _(s: GraphStep, x: Any) -> Any:
    return x.T if s.kind == "aten::numpy_T" else getattr(x, s.kind[6:])


# ---- joining -------------------------------------------------------------------------------------


@operator("torch.cat", "torch.stack")
def _(s: GraphStep, *xs: Any) -> Any:
    parts = xs[0] if len(xs) == 1 and isinstance(xs[0], list) else list(xs)
    return FUNCTIONS[s.kind[6:]](parts, s.get("dim", 0))


operator("torch.einsum")(lambda s, *xs: FUNCTIONS["einsum"](s.params["equation"], *xs))


@operator("aten::unsafe_chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
def _(s: GraphStep, x: Any, parts: Any, dim: int = 0) -> Any:
    function = FUNCTIONS["chunk" if s.kind == "aten::unsafe_chunk" else "split"]
    return list(function(x, parts, dim))


@operator("torch.tensor_split")
def _(s: GraphStep, x: Any) -> Any:
    where = s.get("sections") if s.get("indices") is None else s.params["indices"]
    return tuple(FUNCTIONS["tensor_split"](x, where, s.get("dim", 0)))


# ---- indexing ------------------------------------------------------------------------------------


def _one(value: Any) -> Any:
    """A place: a number, or a tensor of one element."""
    return int(value.item()) if isinstance(value, Tensor) else value


def slice_key(s: GraphStep, named: dict[str, Any], rank: int) -> tuple[Any, ...]:
    """The index that the arguments of `Tensor.slice` write down."""

    def column(one: str, many: str) -> list[Any]:
        value = named.get(one, s.params.get(one))
        if value is not None:
            return [_one(value)] * len(dims)
        values = named.get(many, s.params.get(many))
        return [None] * len(dims) if values is None else [_one(v) for v in values]

    dims = s.params["dims"] if s.get("dims") is not None else (s.params["dim"],)
    key: list[Any] = [slice(None)] * rank
    columns = [column(one, one + "s") for one in ("select", "start", "end", "step")]
    for dim, select, start, end, step in zip(dims, *columns, strict=True):
        if not -rank <= dim < rank:
            raise IndexError(f"dimension {dim} of a tensor of {rank}")
        if select not in NATURAL:
            key[dim] = select
        else:
            key[dim] = slice(start, None if end in NATURAL else end, step)
    return tuple(key)


def _named(s: GraphStep, xs: Sequence[Any]) -> dict[str, Any]:
    return {key: x for key, x in zip(s.keys, xs, strict=True) if key}


operator("Tensor.slice")(lambda s, x, *xs: x[slice_key(s, _named(s, (x, *xs)), x.ndim)])


@operator("Tensor.slice_copy")
def _(s: GraphStep, x: Any, src: Any, *xs: Any) -> Any:
    result = x.clone()
    result[slice_key(s, _named(s, (x, src, *xs)), x.ndim)] = src
    return result


operator("Tensor.copy")(lambda s, x, src: src.to(x.dtype).expand(x.shape).clone())


@operator("Tensor.select")
def _(s: GraphStep, x: Any, *index: Any) -> Any:
    return x.select(s.params["dim"], _one(index[0] if index else s.params["index"]))


def _index(entries: Sequence[Any]) -> tuple[Any, ...]:
    """An index from a list: None keeps a dimension whole."""
    return tuple(
        slice(None) if entry is None
        else from_numpy(np.array(entry, np.int64)) if isinstance(entry, list) else entry
        for entry in entries
    )  # fmt: skip


@operator("Tensor.index")
def _(s: GraphStep, x: Any, *xs: Any) -> Any:
    entries = s.params["expr"] if s.get("expr") is not None else xs[0]
    if isinstance(entries, tuple):  # not computed yet
        entries = evaluated(entries, (x, *xs))
    return x[_index(entries if isinstance(entries, list) else [entries])]


@operator("Tensor.index_put")
def _(s: GraphStep, x: Any, *xs: Any) -> Any:
    given = {**s.params, **_named(s, (x, *xs))}
    if given.get("accumulate"):
        raise s.unsupported("accumulate=True")
    result = x.clone()
    result[_index(given["indices"])] = given["values"]
    return result


# ---- elements ------------------------------------------------------------------------------------


@operator("Tensor.to")
def _(s: GraphStep, x: Any) -> Any:
    dtype = s.params.get("dtype")
    return x.to(dtype) if isinstance(dtype, DType) else x


@operator("Tensor.fill")
def _(s: GraphStep, x: Any, *value: Any) -> Any:
    return creation.full_like(x, number_of(value[0] if value else s.params["value"]))


@operator("Tensor.contiguous", "Tensor.detach", "aten::contiguous", "aten::detach", "aten::alias")
def _(s: GraphStep, x: Any, *rest: Any) -> Any:
    return x


def _with_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison or an operation of two operands, of which one may be the parameter `other`."""
    return lambda s, *xs: function(*xs) if len(xs) == 2 else function(xs[0], s.params["other"])


for _name in words("""
    eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift fmod remainder floor_divide mul sub add div
"""):
    operator(f"torch.{_name}")(_with_number(FUNCTIONS[_name]))


@operator("torch.max", "torch.min")
def _(s: GraphStep, *xs: Any) -> Any:
    if len(xs) == 2:
        return FUNCTIONS[s.kind[6:] + "imum"](*xs)
    return names.call_by_name(FUNCTIONS[s.kind[6:]], s, *xs)


@operator("aten::meshgrid")
def _(s: GraphStep, xs: Any, indexing: str = "ij") -> Any:
    return list(FUNCTIONS["meshgrid"](*xs, indexing=indexing))


@operator("aten::std", "aten::var")
def _(s: GraphStep, x: Any, *rest: Any) -> Any:
    if len(rest) != 1:
        raise s.unsupported(f"a call of {len(rest) + 1} arguments")
    return getattr(x, s.kind[6:])(unbiased=rest[0])


operator("aten::prod")(lambda s, x, dtype=None: x.prod())
operator("aten::one_hot")(lambda s, x, classes: F.one_hot(x, classes))


@operator("aten::linalg_norm", "aten::linalg_vector_norm")
def _(s: GraphStep, x: Any, ord: Any, dim: Any, keepdim: Any, dtype: Any = None) -> Any:
    function = linalg.norm if s.kind == "aten::linalg_norm" else linalg.vector_norm
    return function(x, 2 if ord is None else ord, dim, keepdim)


operator("aten::unfold")(lambda s, x, dim, size, step: x.unfold(dim, size, step))


# ---- creation ------------------------------------------------------------------------------------


def _created(s: GraphStep, *xs: Any) -> Any:
    """A new tensor; its sizes are limited before it is made."""
    function = getattr(creation, s.kind.rpartition(".")[2], None)
    params = dict(s.params)
    if s.kind.startswith("Tensor."):
        x, *xs = xs  # type: ignore[assignment]
        params.setdefault("dtype", x.dtype)
        function = getattr(creation, s.kind[11:])
    params["size"] = sizes_of(s, xs, "size", "sizes")
    params.pop("sizes", None)
    return function(**params)  # type: ignore[misc]


for _name in ("zeros", "ones", "empty", "full"):
    operator(f"torch.{_name}", f"Tensor.new_{_name}")(_created)
for _name in ("zeros_like", "ones_like", "empty_like", "full_like"):
    operator(f"torch.{_name}")(lambda s, x: getattr(creation, s.kind[6:])(x, **s.params))


@operator("torch.arange")
def _(s: GraphStep, *xs: Any) -> Any:
    given = {**s.params, **_named(s, xs)}
    start, end, step = given.pop("start", 0), given.pop("end"), given.pop("step", 1)
    start, end, step = (number_of(v) for v in (start or 0, end, 1 if step is None else step))
    if (end - start) / step > MOST:
        raise CheckpointError(f"pnnx: {s.label}: from {start} to {end} by {step}")
    return ranges.arange(start, end, step, **given)


@operator("torch.randn", "torch.randn_like")
def _(s: GraphStep, *xs: Any) -> Any:
    if s.kind == "torch.randn_like":
        return FUNCTIONS["randn_like"](*xs)
    return FUNCTIONS["randn_like"](creation.zeros(sizes_of(s, xs, "size")))


# ---- functional layers ---------------------------------------------------------------------------


@operator("F.upsample", "F.upsample_nearest", "F.upsample_bilinear", "F.interpolate")
def _(s: GraphStep, x: Any, *size: Any) -> Any:
    params = dict(s.params)
    if size:
        params["size"] = [_one(v) for v in size[0]]
    if s.kind == "F.upsample_bilinear":
        params |= {"mode": "bilinear", "align_corners": True}
    if s.kind == "F.upsample_nearest":
        params["mode"] = "nearest"
    if isinstance(params.get("size"), (list, tuple)) and product(params["size"]) > MOST:
        raise CheckpointError(f"pnnx: {s.label}: a size of {params['size']}")
    return F.interpolate(x, **params)


@operator("F.adaptive_avg_pool2d", "F.adaptive_avg_pool3d", "F.adaptive_max_pool2d",
          "F.adaptive_max_pool3d")  # fmt: skip
def _(s: GraphStep, x: Any) -> Any:
    size = tuple(
        v or None for v in s.params["output_size"]
    )  # 0 is how a size that stays is written
    rest = {key: v for key, v in s.params.items() if key != "output_size"}
    return getattr(F, s.kind[2:])(x, size, **rest)


@operator("F.batch_norm", "F.instance_norm")
def _(s: GraphStep, *xs: Any) -> Any:
    named = {**s.params, **_named(s, xs)}
    x = named.pop("input")
    mean, var = named.pop("running_mean", None), named.pop("running_var", None)
    if s.kind == "F.instance_norm":
        return F.instance_norm(x, mean, var, use_input_stats=mean is None, **named)
    return F.batch_norm(x, mean, var, training=s.training or mean is None, **named)


@operator("F.dropout", "F.dropout2d", "F.dropout3d", "F.alpha_dropout", "F.feature_alpha_dropout")
def _(s: GraphStep, x: Any) -> Any:
    return getattr(F, s.kind[2:])(x, s.get("p", 0.5), s.training)


@operator("F.rrelu")
def _(s: GraphStep, x: Any) -> Any:
    return F.rrelu(x, s.get("lower", 1 / 8), s.get("upper", 1 / 3), s.training)


@operator("F.scaled_dot_product_attention")
def _(s: GraphStep, *xs: Any) -> Any:
    named = {**s.params, **_named(s, xs)}
    if not s.training:
        named["dropout_p"] = 0.0
    return F.scaled_dot_product_attention(**named)


@operator("aten::embedding_bag")
def _(s: GraphStep, weight: Any, indices: Any, offsets: Any, by_frequency: Any, mode: Any,
      sparse: Any, weights: Any, with_end: Any, padding: Any = None) -> Any:  # fmt: skip
    found = F.embedding_bag(
        indices, weight, offsets, mode=("sum", "mean", "max")[mode], per_sample_weights=weights,
        include_last_offset=with_end, padding_idx=padding,
    )  # fmt: skip
    return (found, None, None, None)  # and what ATen's backward would need


# ---- recurrence that is no layer of its own ------------------------------------------------------

_MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "aten::lstm": ("LSTM", {}), "aten::gru": ("GRU", {}), "aten::rnn_tanh": ("RNN", {}),
    "aten::rnn_relu": ("RNN", {"nonlinearity": "relu"}),
}  # fmt: skip


@operator(*_MODES)
def _(s: GraphStep, x: Any, state: Any, weights: Any, biases: Any, layers: Any, dropout: Any,
      training: Any, both: Any, batch_first: Any) -> Any:  # fmt: skip
    name, more = _MODES[s.kind]
    directions = 2 if both else 1
    each = len(weights) // (layers * directions) if layers > 0 else 0
    order = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if biases else [])]
    projected = each == len(order) + 1
    if each * layers * directions != len(weights) or each - projected != len(order):
        raise CheckpointError(f"pnnx: {s.label}: {len(weights)} weights of {layers} layers")
    gates = RECURRENT[f"nn.{name}"]
    layer = bare(getattr(nn, name), {
        "input_size": weights[0].shape[1], "hidden_size": weights[1].shape[0] // gates,
        "num_layers": layers, "bias": bool(biases), "batch_first": bool(batch_first),
        "bidirectional": bool(both), "proj_size": weights[1].shape[1] if projected else 0, **more,
    })  # fmt: skip
    order += ["weight_hr"] * projected
    for i, weight in enumerate(weights):
        place, rest = divmod(i, each)
        suffix = f"l{place // directions}" + ("_reverse" if place % directions else "")
        layer._parameters[f"{order[rest]}_{suffix}"] = weight
    output, last = layer(x, tuple(state) if name == "LSTM" else state)
    return (output, *last) if name == "LSTM" else (output, last)
