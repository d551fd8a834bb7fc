"""ShapeProp: nodes note the shapes of their values, by running."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....ops.create.conversion import contiguous_format
from ....tensor import Tensor
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Properties of a node's tensor value."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    """Properties of a tensor."""
    format_ = contiguous_format if include_contiguity and result.is_contiguous() else None
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), format_, False, {}
    )


class ShapeProp(Interpreter):
    """Runs a graph module; each node's `meta["tensor_meta"]` is shape, dtype and strides of its
    value then, `meta["type"]` its type.

    Source: https://docs.pytorch.org/docs/stable/fx.html

    >>> module = ad.fx.symbolic_trace(lambda x: x.sum(0))
    >>> _ = ad.fx.passes.shape_prop.ShapeProp(module).propagate(ad.ones(2, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in module.graph.nodes]
    [(2, 3), (3,), (3,)]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp: there are no fake tensors; leave fake_mode out")

    def run_node(self, n: Node) -> Any:
        """The value, noted."""
        result = super().run_node(n)
        found = False

        def noted(value: Any) -> Any:
            nonlocal found
            if isinstance(value, Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, noted)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on these inputs."""
        return self.run(*args)
