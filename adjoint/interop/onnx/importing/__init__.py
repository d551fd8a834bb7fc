"""ONNX operators in terms of adjoint, one file per family."""
