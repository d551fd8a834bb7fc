"""What ONNX operators are in adjoint, one file per family."""
