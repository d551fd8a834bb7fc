"""Paths of the modules in whose calls a capture records ops: "blocks.3.fc"."""

from __future__ import annotations

import bisect

from ...nn import Module
from ...nn.error_paths import paths_below
from ...runtime.node import Node, next_order

__all__ = ["ModulePlaces"]

_COMPILED = "_orig_mod"  # what is in place of a module that is compiled


class ModulePlaces:
    """The module whose call runs, while a function is captured: by its path within the outermost
    one. It also observes backward passes, in which that is the module of the forward's node.

    What calls of modules recorded is known by the orders of nodes, which grow: `_orders[i]` begins
    what belongs to `_paths[i]`.
    """

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._known: dict[int, tuple[Module, dict[int, str]]] = {}  # of outermost modules, by id
        self._root: dict[int, str] = {}
        self._orders: list[int] = [0]
        self._paths: list[str] = [""]

    @property
    def path(self) -> str:
        """Where ops are recorded now; empty outside of all modules, and in the outermost."""
        return self._calls[-1] if self._calls else ""

    def call(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Call a module, whose ops are its own until it calls another."""
        if not self._calls:
            if id(module) not in self._known:
                self._known[id(module)] = module, self._paths_in(module)
            self._root = self._known[id(module)][1]
        path = self._root.get(id(module))  # of none that is below the outermost: its caller's
        self._calls.append(self.path if path is None else _shown(path))
        self._note()
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            self._calls.pop()
            self._note()

    def _paths_in(self, root: Module) -> dict[int, str]:
        """The paths below an outermost module; those of further ones begin with their class and
        number, as in "Sequential_2.fc".
        """
        paths = paths_below(root)
        if not self._known:
            return paths
        name = f"{type(root).__name__}_{len(self._known) + 1}"
        return {key: f"{name}.{path}" if path else name for key, path in paths.items()}

    def _note(self) -> None:
        self._orders.append(next_order())
        self._paths.append(self.path)

    # ---- backward, as its observer (autograd.protocols.Observer) ---------------------------------

    def begin(self, name: str) -> None:
        """A gradient is stored: outside of modules."""
        self._calls.append("")

    def begin_node(self, node: Node) -> None:
        """A node's gradient is recorded: as of the module that recorded the node."""
        self._calls.append(self._paths[bisect.bisect(self._orders, node.order) - 1])

    def end(self) -> None:
        """The gradient of that node is recorded."""
        self._calls.pop()

    end_node = end

    def depth(self) -> int:
        """Number of calls and nodes that run."""
        return len(self._calls)

    def close(self, depth: int) -> None:
        """Leave what an error has left open."""
        del self._calls[depth:]


def _shown(path: str) -> str:
    """The path without what is in place of modules that are compiled."""
    return ".".join(part for part in path.split(".") if part != _COMPILED)
