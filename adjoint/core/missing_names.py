"""Names of PyTorch that are absent here: why, and the nearest alternative. Read only when such a
name is asked for.

Each namespace has patterns of names; the first that fits counts. `docs/pytorch.md` lists them, and
stops where a name has no reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from . import config
from .errors import MissingName, Unsupported
from .package import NAME
from .tracebacks import is_ours

Reasons = tuple[tuple[str, str], ...]

_QUANTIZED = "quantized tensors are not here; fake_quantize_per_tensor_affine, or ONNX Runtime"
_SCRIPT = "of TorchScript's compiler; adjoint.compile makes functions fast"

TOP: Reasons = (
    (r"quantize_.* quantized_\w+_cell fbgemm_.* choose_qparams_optimized "
     r"fused_moving_avg_obs_fake_quant", _QUANTIZED),
    ("mkldnn_rnn_layer", "of oneDNN alone; lstm, gru, rnn_tanh and rnn_relu"),
    ("slice_inverse", "private to PyTorch's compiler; slice_scatter writes into a copy"),
    ("LockingLogger NoopLogger", "of PyTorch's own counters; adjoint.profiler counts"),
    ("FileCheck", "checks texts of PyTorch's compilers; use `in`, or re"),
    ("ExcludeDispatchKeyGuard", "there is no dispatcher; autocast(enabled=False) switches it off"),
    ("cpp", "PyTorch's own C++ modules"),
    (r"import_ir_module\w* parse_ir parse_type_comment merge_type_from_type_comment", _SCRIPT),
    (r"\w+", "not here, if PyTorch has it; docs/pytorch.md lists what there is"),
)  # fmt: skip

ABSENT: dict[str, Reasons] = {
    "": TOP,
    "nn": (),
    "nn.functional": (
        ("scaled_\\w+", "of 8-bit floats, which there are no tensors of; matmul or grouped_mm"),
    ),
    "nn.init": ((".+", "the name with _ at its end"),),
    "nn.utils": (),
    "optim": (),
    "optim.lr_scheduler": (),
    "linalg": (),
    "fft": (),
    "special": (),
    "distributions": (),
    "func": (),
    "sparse": (
        ("\\w*[sS]emi_?[sS]tructured\\w*", "of accelerators; dense tensors, or sparse_csr"),
        (".+", "not here; sparse.mm, or SciPy's matrices on the values"),
    ),
    "utils.data": ((".+", "of torchdata's pipes; Dataset, IterableDataset and samplers serve"),),
    "autograd": (
        ("enforce_grad_layout_policy", "gradients lie as they were computed; contiguous()"),
        (".+", "not here; autograd.Function serves"),
    ),
    "amp": (),
    "fx": (),
    "Tensor": (
        ("chalf", "there are no tensors of complex32; complex64 is the narrowest"),
        ("index", "of PyTorch's first-class dimensions; vmap, or einops' names"),
        ("to_mkldnn", "oneDNN computes with dense tensors as they are"),
        ("slice_inverse", "private to PyTorch's compiler; slice_scatter writes into a copy"),
        (r"\w+", "not here; compose it from others"),
    ),
}  # fmt: skip

_STARTS = "adjoint run --nproc starts ranks, and starts them again (--max-restarts)"

MODULES: dict[str, str] = {
    "ao": "quantization; ONNX Runtime, or int8 by hand",
    "quantization": "quantization; ONNX Runtime, or int8 by hand",
    "nested": "nested tensors; nn.utils.rnn.pad_sequence and masks",
    "package": "adjoint.save and adjoint.export write files",
    "distributed.elastic.agent": _STARTS,
    "distributed.elastic.events": _STARTS,
    "distributed.elastic.metrics": _STARTS,
    "distributed.elastic.rendezvous": _STARTS,
    "distributed.elastic.timer": _STARTS,
    "distributed.launch": _STARTS,
    "distributed.launcher": _STARTS,
    "distributed.run": _STARTS,
    "cpp_extension": "C++ for PyTorch's own tensors; autograd.Function, or adjoint's primitives",
}


def why(space: str, name: str) -> str | None:
    """The reason why a namespace lacks a name, and the nearest alternative; None where no reason is
    recorded.
    """
    for patterns, reason in ABSENT.get(space, ()):
        if any(re.fullmatch(pattern, name) for pattern in patterns.split()):
            return reason
    return None


def nearest(name: str, names: Iterable[str]) -> str:
    """The name that another one may have been meant for; empty where there is none."""
    import difflib  # which costs an import that nobody else makes

    alike = [each for each in names if abs(len(each) - len(name)) < 3]
    lower = name.lower()
    swapped = [each for each in alike if sorted(each.lower()) == sorted(lower)]
    return (swapped or difflib.get_close_matches(name, alike, 1, 0.75) or [""])[0]


def missing(space: str, name: str) -> AttributeError:
    """The error for an absent name, which says what to use instead."""
    place = f"{space}." if space else ""
    reason = MODULES.get(name) if not space else None
    if name.startswith("__"):
        return AttributeError(f"module {config.CALLED}.{place} has no attribute {name!r}")
    near = ""
    asking = sys._getframe(2)  # who asks: an import does so before it imports a submodule
    library = is_ours(asking.f_globals.get("__name__") or "")
    frozen = asking.f_code.co_filename.startswith("<frozen")
    # Private names are what tools ask each module for, as pytest does.
    if reason is None and not library and not frozen and not name.startswith("_"):
        near = nearest(name, dir(sys.modules[f"{NAME}.{space}".rstrip(".")]))
    if reason is None:
        reason = why(space, name) or "docs/pytorch.md lists what there is"
    return MissingName(
        f"module '{config.CALLED}{'.' + space if space else ''}' has no attribute {name!r}: "
        f"{f'did you mean {near}? Else: ' if near else ''}{reason}"
    )


class Unmade:
    """Base of stand-in classes that programs may import and use in `isinstance`; they have no
    instances.

    Errors: Unsupported.
    """

    said: tuple[str, str]  # where it stands, and why

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        place, why = self.said
        raise Unsupported(f"{place}.{type(self).__name__}: {why}")


def refused(place: str, name: str, why: str) -> Callable[..., Any]:
    """A function that programs may import, but that refuses to be called."""

    def function(*args: object, **kwargs: object) -> NoReturn:
        raise Unsupported(f"{place}.{name}: {why}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Refused: {why}.\n\n    Errors: Unsupported.\n"
    return function
