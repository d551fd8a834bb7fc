"""PyTorch's names that are not here: why, and what is nearest. Read where one is asked for only.

Each namespace has patterns of names; the first that fits counts. `docs/pytorch.md` lists them, and
stops where a name has no reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .core import config
from .core.errors import MissingName, Unsupported

Reasons = tuple[tuple[str, str], ...]

_SPARSE = "use sparse.mm and sparse.addmm, which give dense results, and to_sparse()"
_COPIES = "the method without _copy, and clone()"
_RESIZED = "sparse tensors keep their size and their places; make another one"
_QUANTIZED = "quantized tensors are not here; int8 tensors and a scale, or ONNX Runtime"
_LIBRARIES = "of one library (cuDNN, MIOpen, oneDNN); the function without the prefix serves"
_SCRIPT = (
    "not here, if PyTorch has it (most such names are of TorchScript's compiler); docs/pytorch.md "
    "lists what there is"
)

TOP: Reasons = (
    (r"spmm dsmm hsmm hspmm smm saddmm sspaddmm", _SPARSE),
    (r"\w*indices_copy values_copy", _COPIES),
    (r"resize_as_sparse_", _RESIZED),
    (r"q_.* q(u?int\d+(x\d+)?|scheme) quint\dx\d (de)?quantize.* quantized_.* int_repr fbgemm_.* "
     r"fake_quantize_.* fused_moving_avg_obs_fake_quant choose_qparams_optimized empty_quantized",
     _QUANTIZED),
    (r"cudnn_.* miopen_.* mkldnn_.* is_vulkan_available", _LIBRARIES),
    (r"u?int[1-7] bits?\d*(x\d)?\w* float4_\w+",
     "no such dtype; int8, uint8, float16, bfloat16 and complex64 are the narrowest"),
    (r"(gru|lstm|rnn_tanh|rnn_relu)(_cell)?", "use the modules nn.GRU, nn.LSTM and nn.RNN"),
    (r"native_.* batch_norm_.* convolution grid_sampler.* affine_grid_generator embedding_bag "
     r"embedding_renorm_ ctc_loss conv_tbc max_pool1d_with_indices segment_reduce norm_except_dim",
     "the form for ATen; nn.functional has the one for users"),
    (r".*dropout_? ", "nn.functional.dropout and its like"),
    (r"feature_dropout_? (feature_)?alpha_dropout_ dropout_", "nn.functional has dropout"),
    (r"conj_physical_ slice_inverse hash_tensor from_file lobpcg thread_safe_generator",
     "not here; compose it from others"),
    (r"ModuleDict ParameterDict BufferDict", "nn.ModuleDict and nn.ParameterDict"),
    (r"\w+Storage \w*StorageContext", "tensors have no storage objects; data_ptr(), numpy()"),
    (r"StreamObjType DeviceObjType AcceleratorError",
     "of accelerators; adjoint.cuda has streams and events"),
    (r"(set|get|is|autocast)_\w*autocast\w* autocast_\w+", "adjoint.autocast, is_autocast_enabled"),
    (r"has_\w+ get_device_module get_device init_num_threads is_distributed",
     "adjoint.backends says what there is"),
    (r"(get|set)_deterministic_debug_mode is_deterministic\w* (is|set)_warn_always\w* "
     r"set_anomaly_enabled is_anomaly_check_nan_enabled set_default_tensor_type",
     "use_deterministic_algorithms, detect_anomaly and set_default_dtype serve"),
    (r"sym_\w+", "shapes are plain ints; use Python's numbers"),
    (r"\w+", _SCRIPT),
)  # fmt: skip

ABSENT: dict[str, Reasons] = {
    "": TOP,
    "nn": (
        ("UninitializedBuffer", "UninitializedParameter is here; buffers get their shape at once"),
        ("factory_kwargs", "give device and dtype as they are"),
        ("Container NLLLoss2d", "removed names; nn.Module, nn.NLLLoss"),
    ),
    "nn.functional": (
        ("grouped_mm scaled_\\w+ ScalingType SwizzleType", "of accelerators; matmul or bmm"),
        ("conv_tbc", "conv1d, on a transposed view"),
        ("GRID_SAMPLE_\\w+ assert_int_or_pair", "what annotations need only"),
    ),
    "nn.init": ((".+", "the name with _ at its end"),),
    "nn.utils": (
        ("convert_conv\\w+", "tensors are row-major here; the values are the same without it"),
        (".+", "not here yet"),
    ),
    "optim": (
        ("swap_in_optimizer_params_and_state", "load_state_dict"),
    ),
    "optim.lr_scheduler": (),
    "linalg": (("ldl_\\w+", "linalg.lu_factor and lu_solve, or cholesky"),),
    "fft": (),
    "special": (),
    "distributions": (),
    "func": (
        ("debug_unwrap", "inside a transform, a tensor shows what it wraps when it is printed"),
        ("rearrange", "einops.rearrange, which runs on adjoint's tensors"),
    ),
    "sparse": (
        ("check_sparse_tensor_invariants", "indices are checked in any case"),
        ("as_sparse_gradcheck", "give gradcheck the values, and make the tensor inside"),
        ("\\w*[sS]emi_?[sS]tructured\\w*", "of accelerators; dense tensors, or sparse_csr"),
        (".+", "not here; sparse.mm, or SciPy's matrices on the values"),
    ),
    "utils.data": ((".+", "of torchdata's pipes; Dataset, IterableDataset and samplers serve"),),
    "autograd": (
        ("variable", "autograd.Variable is Tensor"),
        (".+", "not here; autograd.Function serves"),
    ),
    "amp": (),
    "fx": (),
    "Tensor": (
        (r"smm sspaddmm", _SPARSE),
        (r"sparse_resize_\w* resize_as_sparse_", _RESIZED),
        (r"to_padded_tensor", "of nested tensors, which are not here"),
        (r"q_\w+ qscheme int_repr dequantize", _QUANTIZED),
        (r"eig lstsq solve symeig", "PyTorch refuses it, too; linalg has it"),
        (r"ipu xpu mtia to_mkldnn record_stream", "no such device here; to('cpu')"),
        (r"resize resize_as reinforce volatile storage_type", "PyTorch's old names; reshape, data"),
        (r"\w+", "not here; compose it from others"),
    ),
}  # fmt: skip

MODULES: dict[str, str] = {
    "ao": "quantization; ONNX Runtime, or int8 by hand",
    "quantization": "quantization; ONNX Runtime, or int8 by hand",
    "nested": "nested tensors; nn.utils.rnn.pad_sequence and masks",
    "package": "adjoint.save and adjoint.export write files",
    "cpp_extension": "C++ for PyTorch's own tensors; autograd.Function, or adjoint's primitives",
    "xpu": "no such device here",
    "mps": "no such device here",
}


def why(space: str, name: str) -> str | None:
    """Why a namespace has no such name, and what is nearest; None where no reason is given."""
    for patterns, reason in ABSENT.get(space, ()):
        if any(re.fullmatch(pattern, name) for pattern in patterns.split()):
            return reason
    return None


def missing(space: str, name: str) -> AttributeError:
    """The error for a name that is not there, which says what is nearest."""
    place = f"{space}." if space else ""
    reason = MODULES.get(name) if not space else None
    if name.startswith("__"):
        return AttributeError(f"module {config.CALLED}.{place} has no attribute {name!r}")
    if reason is None:
        reason = why(space, name) or "docs/pytorch.md lists what there is"
    return MissingName(
        f"module '{config.CALLED}{'.' + space if space else ''}' has no attribute {name!r}: "
        f"{reason}"
    )


class Unmade:
    """Base of classes that programs may import, and ask whether something is one of: none is made.

    Errors: Unsupported.
    """

    said: tuple[str, str]  # where it stands, and why

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        place, why = self.said
        raise Unsupported(f"{place}.{type(self).__name__}: {why}")


def refused(place: str, name: str, why: str) -> Callable[..., Any]:
    """A function that programs may import, and that refuses to be called."""

    def function(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported(f"{place}.{name}: {why}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Refused: {why}.\n\n    Errors: Unsupported.\n"
    return function
