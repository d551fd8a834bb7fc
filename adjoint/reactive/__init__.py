"""Reactive execution: a lasting graph in which a change costs only the recomputation of what it
affects.

Source: the version rules are those of incremental build systems and spreadsheets; see
docs/graphs.md.
"""

from .events import Log as Log
from .graph import Graph as Graph
from .nodes import is_of_graph as is_of_graph

__all__ = ["Graph", "Log"]
