"""Formats and protocols of other libraries: ONNX, PNNX, the array API standard, einops, ..."""
