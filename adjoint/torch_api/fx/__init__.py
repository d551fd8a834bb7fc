"""Symbolic tracing: a function or a module becomes a graph that a program reads and changes
(`torch.fx`).

`node.py`, `graph.py`: the graph; `codegen.py`, `targets.py`: the text that is made of it, and what
functions are called in it; `proxy.py`, `_symbolic_trace.py`: tracing; `graph_module.py`,
`interpreter.py`: running; `subgraph_rewriter.py`, `passes/`: changing. Files have PyTorch's names.

Source: https://docs.pytorch.org/docs/stable/fx.html

>>> module = ad.fx.symbolic_trace(lambda x: ad.relu(x) + 1)
>>> module.graph.nodes, module(ad.tensor([-1.0]))
([x, relu, add, output], tensor([1.]))
"""

from . import _symbolic_trace as _symbolic_trace
from . import graph as graph
from . import graph_module as graph_module
from . import immutable_collections as immutable_collections
from . import interpreter as interpreter
from . import node as node
from . import passes as passes
from . import proxy as proxy
from . import subgraph_rewriter as subgraph_rewriter
from ._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta",
    "Tracer", "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace",
    "wrap",
]  # fmt: skip
