"""Named tuples that functions with several results return, as `torch.return_types` does."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ..core import config


def return_type(name: str, *fields: str) -> Any:
    """The class of `name`'s result: a named tuple that prints one field per line."""
    base: Any = namedtuple(name, fields)  # type: ignore[misc]

    def __repr__(self: Any) -> str:  # noqa: N807 - becomes the class's
        lines = ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self, strict=True))
        return f"{config.CALLED}.return_types.{name}(\n{lines})"

    return type(name, (base,), {"__slots__": (), "__repr__": __repr__, "__module__": __name__})


max = return_type("max", "values", "indices")
min = return_type("min", "values", "indices")
aminmax = return_type("aminmax", "min", "max")
median = return_type("median", "values", "indices")
nanmedian = return_type("nanmedian", "values", "indices")
mode = return_type("mode", "values", "indices")
sort = return_type("sort", "values", "indices")
topk = return_type("topk", "values", "indices")
kthvalue = return_type("kthvalue", "values", "indices")
cummax = return_type("cummax", "values", "indices")
cummin = return_type("cummin", "values", "indices")
histogram = return_type("histogram", "hist", "bin_edges")
histogramdd = return_type("histogramdd", "hist", "bin_edges")
frexp = return_type("frexp", "mantissa", "exponent")
