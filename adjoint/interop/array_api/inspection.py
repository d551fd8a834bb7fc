"""Inspection of the namespace: capabilities, devices, dtypes."""

from __future__ import annotations

from typing import Any

from ...core.device import device as Device  # noqa: N812 - a class, in spite of PyTorch's name
from ...core.dtype import dtype as DType  # noqa: N812 - likewise
from . import functions as ad
from .data_types import STANDARD, isdtype

__all__ = ["__array_namespace_info__"]


class NamespaceInfo:
    """The answers of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities of arrays: indexing with masks, shapes that depend on data, ranks.

        >>> ad.array_api.__array_namespace_info__().capabilities()["max dimensions"]
        64
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Device on which arrays are made when none is named.

        >>> ad.array_api.__array_namespace_info__().default_device()
        device(type='cpu')
        """
        return ad.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes that arrays get when none is named (`set_default_dtype` decides the first).

        >>> ad.array_api.__array_namespace_info__().default_dtypes()["integral"]
        adjoint.int64
        """
        floating = ad.get_default_dtype()
        return {
            "real floating": floating,
            "complex floating": floating.to_complex(),
            "integral": ad.int64,
            "indexing": ad.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes of a kind (all for None), by name.

        >>> list(ad.array_api.__array_namespace_info__().dtypes(kind="real floating"))
        ['float32', 'float64']
        """
        return {d.name: d for d in STANDARD if kind is None or isdtype(d, kind)}

    def devices(self) -> list[Device]:
        """The devices that exist here.

        >>> ad.array_api.__array_namespace_info__().devices()[0]
        device(type='cpu')
        """
        count = ad.cuda.device_count() if ad.cuda.is_available() else 0
        return [ad.device("cpu"), *(ad.device("cuda", i) for i in range(count))]


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 - the standard's name
    """Facts about this namespace: capabilities, default device and dtypes, devices and dtypes.

    Source: https://data-apis.org/array-api/2024.12/API_specification/inspection.html

    >>> sorted(ad.array_api.__array_namespace_info__().capabilities())
    ['boolean indexing', 'data-dependent shapes', 'max dimensions']
    """
    return NamespaceInfo()
