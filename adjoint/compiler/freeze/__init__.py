"""Frozen programs for inference: a module as a static graph with planned memory."""

from .program import Memory as Memory
from .program import Program as Program
from .program import freeze as freeze

__all__ = ["Memory", "Program", "freeze"]
