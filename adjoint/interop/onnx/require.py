"""The onnx package, imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

from ...core.errors import Unsupported


def onnx_package(function: str) -> Any:
    """The onnx package with its helpers; Unsupported says how to get it."""
    try:
        for part in ("onnx", "onnx.checker", "onnx.helper", "onnx.shape_inference"):
            importlib.import_module(part)
    except ImportError as error:
        raise Unsupported(f"onnx.{function}: needs the onnx package; pip install onnx") from error
    return importlib.import_module("onnx")
