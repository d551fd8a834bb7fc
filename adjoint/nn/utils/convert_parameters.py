"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.errors import InvalidArgument, InvalidType
from ...ops.shape.concatenation import cat
from ...tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All parameters, flattened, one after the other, as one vector.

        vector = (p_1, p_2, ...)

    Args:
        parameters: Parameters, an iterable of tensors.

    Shapes: any -> (number of elements,).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parameters_to_vector.html

    >>> ad.nn.utils.parameters_to_vector([ad.ones(1, 2), ad.zeros(1)])
    tensor([1., 1., 0.])
    """
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Any]) -> None:
    """Give each parameter its part of a vector as data, a view of it.

        p_i = the next elements of vec, as many as p_i has

    Args:
        vec: Vector of at least as many elements as the parameters have together.
        parameters: Parameters to change, an iterable of tensors.

    Errors: InvalidType where `vec` is no tensor; InvalidArgument where it is too short.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.vector_to_parameters.html

    >>> p = ad.nn.Parameter(ad.zeros(2))
    >>> ad.nn.utils.vector_to_parameters(ad.tensor([1., 2.]), [p])
    >>> p.tolist()
    [1.0, 2.0]
    """
    if not isinstance(vec, Tensor):
        raise InvalidType(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        if end > vec.numel():
            raise InvalidArgument(
                f"vector_to_parameters: the vector has {vec.numel()} elements, at least {end} are "
                "needed"
            )
        parameter.data = vec[start:end].reshape(parameter.shape).data
        start = end
