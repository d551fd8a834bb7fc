"""All of ONNX's operators that are read: which inputs are structure, and what may be folded."""

from __future__ import annotations

from . import elementwise_ops, gather_ops, reductions, shapes  # noqa: F401
from .imported_node import TABLE

HOST_INPUTS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "TopK": (1,), "Split": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "CumSum": (1,), "CumProd": (1,), "ReverseSequence": (1,), "Compress": (1,),
    "Trilu": (1,), "Clip": (1, 2), "Dropout": (1, 2),
    "OneHot": (1, 2), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,), "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4), "ConstantOfShape": (0,), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5),
    "TensorScatter": (2,), "CenterCropPad": (1,), "Col2Im": (1, 2), "AffineGrid": (1,),
    "DFT": (1, 2), "STFT": (1, 3), "MaxUnpool": (2,), "NonMaxSuppression": (2, 3, 4),
}  # fmt: skip
HEAVY = {"Constant", "MatMul", "NonZero", "TopK", "Dropout", "Unique", "Det", "Compress"}
FOLDED = set(TABLE) - HEAVY  # computed while loading where the inputs are constants

from . import control, image_ops, language_models, layer_ops, quantized, recurrent_ops, signal  # noqa: E402, F401 - these enter what is not folded
