"""`nn.*`: a layer of ours for each, with the file's weights in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...core.errors import CheckpointError, InvalidType
from ...namespaces.random import fork_rng
from ...nn import Module, Parameter
from ...tensor import Tensor
from .step import GraphStep, operator, run_layer, words
from .text import Operator, product

SMALL = 1 << 16  # elements that a layer may have without the file having as many

LAYERS = words("""
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d
AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d
CELU ChannelShuffle ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d
ConvTranspose2d ConvTranspose3d Dropout Dropout2d Dropout3d ELU Embedding Flatten Fold GELU GLU GRU
GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh Identity InstanceNorm1d InstanceNorm2d
InstanceNorm3d LPPool1d LPPool2d LSTM LayerNorm LeakyReLU Linear LocalResponseNorm LogSigmoid
LogSoftmax MaxPool1d MaxPool2d MaxPool3d Mish MultiheadAttention PReLU PixelShuffle PixelUnshuffle
RMSNorm RNN RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d
ReplicationPad2d ReplicationPad3d SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink
Softsign Tanh Tanhshrink Threshold Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d
ZeroPad1d ZeroPad2d ZeroPad3d
""")

RECURRENT = {"nn.LSTM": 4, "nn.GRU": 3, "nn.RNN": 1}  # gates


def _kernel(a: dict[str, Any]) -> int:
    sizes: Any = a["kernel_size"]
    return product(sizes) if isinstance(sizes, tuple) else int(sizes)


def _convolution(a: dict[str, Any]) -> int:
    return int(a["in_channels"] * a["out_channels"] * _kernel(a) // max(a.get("groups", 1), 1))


def _normalized(a: dict[str, Any]) -> int:
    shape = a["normalized_shape"]
    return product(shape) if isinstance(shape, tuple) else int(shape)


# how many elements the layer's largest tensors have: known before the layer is made
_ELEMENTS: dict[str, Callable[[dict[str, Any]], int]] = {
    **{f"nn.{name}{d}d": _convolution for name in ("Conv", "ConvTranspose") for d in (1, 2, 3)},
    **{f"nn.{name}{d}d": lambda a: int(a["num_features"])
       for name in ("BatchNorm", "InstanceNorm") for d in (1, 2, 3)},
    "nn.Linear": lambda a: a["in_features"] * a["out_features"],
    "nn.Embedding": lambda a: a["num_embeddings"] * a["embedding_dim"],
    "nn.GroupNorm": lambda a: int(a["num_channels"]), "nn.LayerNorm": _normalized,
    "nn.RMSNorm": _normalized, "nn.PReLU": lambda a: int(a.get("num_parameters", 1)),
    "nn.MultiheadAttention": lambda a: a["embed_dim"] * max(
        a["embed_dim"], a.get("kdim") or 0, a.get("vdim") or 0),
    **{kind: lambda a, gates=gates: gates * a["hidden_size"] * max(  # type: ignore[misc]
        a["input_size"], a["hidden_size"]) for kind, gates in RECURRENT.items()},
}  # fmt: skip


def make_layer(op: Operator, params: dict[str, Any], weights: dict[str, Tensor]) -> Module:
    """The layer that an operator describes, with its weights.

    Errors: CheckpointError where the weights are not those of such a layer.
    """
    arguments = _arguments(op, params)
    elements = sum(tensor.numel() for tensor in weights.values())
    if op.kind in _ELEMENTS and _ELEMENTS[op.kind](arguments) > max(elements, SMALL):
        raise CheckpointError(
            f"{op.label} describes a layer larger than its weights, which have {elements} elements"
        )
    if op.kind in RECURRENT and arguments.get("num_layers", 1) > len(weights):
        raise CheckpointError(f"{op.label} has more layers than weights")
    return _with_weights(op, bare(getattr(nn, op.kind[3:]), arguments), weights)


def make_own(
    op: Operator, params: dict[str, Any], weights: dict[str, Tensor], make: Callable[..., Any]
) -> Module:
    """The module that `make` gives for an operator of the user's, with its weights. Constants of
    its forward, which pnnx keeps beside them, are those of the module.

    Errors: InvalidType where that is no module; CheckpointError where the weights are others.
    """
    layer = make(**params)
    if not isinstance(layer, Module):
        raise InvalidType(
            f"pnnx.load: operators={{{op.kind!r}: ...}} gave {type(layer).__name__}; give a class "
            "of modules, or a function that returns one"
        )
    own = {name: x for name, x in weights.items() if not name.startswith("pnnx_")}
    return _with_weights(op, layer, own)


def _with_weights(op: Operator, layer: Module, weights: dict[str, Tensor]) -> Module:
    """The layer, with these in place of its parameters and buffers."""
    state = dict(layer.state_dict(keep_vars=True))
    missing = [name for name in state if name not in weights and name != "num_batches_tracked"]
    extra = [name for name in weights if name not in state]
    if missing or extra:
        raise CheckpointError(
            f"{op.label}: weights {', '.join(missing)[:200] or 'none'} are missing, "
            f"{', '.join(extra)[:200] or 'none'} are not of such a layer"
        )
    for name, tensor in weights.items():
        if tuple(state[name].shape) != tuple(tensor.shape):
            raise CheckpointError(
                f"{op.label}: {name} should be {tuple(state[name].shape)}, is {tuple(tensor.shape)}"
            )
        *path, leaf = name.split(".")
        owner = layer.get_submodule(".".join(path))
        if leaf in owner._parameters:
            owner._parameters[leaf] = Parameter(tensor)
        else:
            owner._buffers[leaf] = tensor
    return layer


def _arguments(op: Operator, params: dict[str, Any]) -> dict[str, Any]:
    """The layer's arguments as its constructor takes them."""
    arguments = {key: value for key, value in params.items() if key != "dtype"}
    if op.kind.startswith("nn.Adaptive"):  # 0 is how a size that stays is written
        size = arguments.get("output_size")
        if isinstance(size, tuple) and len(size) > 1:
            arguments["output_size"] = tuple(each or None for each in size)
    if op.kind in ("nn.LayerNorm", "nn.RMSNorm") and "normalized_shape" not in arguments:
        raise CheckpointError(f"{op.label} has no normalized_shape")
    return arguments


def bare(kind: type[Module], arguments: dict[str, Any]) -> Module:
    """A layer for which no initial values are drawn: all of them come from the file."""
    resets = ("reset_parameters", "_reset_parameters")
    layer = kind.__new__(kind)
    layer.__dict__.update(dict.fromkeys(resets, _leave))  # in front of the methods, for a moment
    with fork_rng():
        kind.__init__(layer, **arguments)
    for name in resets:
        del layer.__dict__[name]
    return layer


def _leave() -> None:
    """Leave parameters as they are."""


# ---- running -------------------------------------------------------------------------------------


for _name in LAYERS:
    if _name not in ("LSTM", "MultiheadAttention", "Linear", "Embedding"):
        operator(f"nn.{_name}")(run_layer)


@operator("nn.LSTM")
def _(s: GraphStep, x: Any, h: Any = None, c: Any = None) -> Any:
    output, state = s.layer(x, None if h is None else (h, c))
    return (output, *state)


@operator("nn.MultiheadAttention")
def _(s: GraphStep, *xs: Any) -> Any:
    masks = {key: x for key, x in zip(s.keys, xs, strict=True) if key.endswith("mask")}
    query, *rest = (x for key, x in zip(s.keys, xs, strict=True) if not key.endswith("mask"))
    key, value, *more = [query, query] if not rest else rest if len(rest) > 1 else rest * 2
    if more:
        masks["key_padding_mask"] = more[0]
    return s.layer(query, key, value, need_weights=len(s.outputs) > 1, **masks)


@operator("nn.Linear", "nn.Embedding")
def _(s: GraphStep, *xs: Any) -> Any:
    """A weight that another operator has too is listed before the input; it is in the layer."""
    return s.layer(xs[-1])
