"""Passes over graph modules."""

from . import shape_prop as shape_prop
from . import split_module as split_module

__all__ = ["shape_prop", "split_module"]
