"""Module calls inside a graph: names of the modules that nodes belong to.

A call runs the module's forward, and what that does becomes nodes: nothing of an earlier call is
used again, since no one can tell what else than its arguments a forward reads. (Steps reuse values,
not calls: steps.py.)
"""

from __future__ import annotations

import weakref
from typing import Any

from ..nn.modules.module import Module
from ..nn.roots import root_name
from ..runtime.cells import GraphState


class Calls:
    """The module calls of one graph."""

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names: dict[int, str] | None = None  # of the modules inside the one being called

    def modules(self) -> list[Any]:
        """The modules called from outside any other, while they live."""
        return list(self._modules)

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `module(*args, **kwargs)`; its nodes remember the modules that they belong to."""
        state = self._state
        with state.lock:
            scope, names = state.scope, self._names
            if names is None:
                self._modules.add(module)
                self._names = {id(m): name for name, m in module.named_modules()}
                state.scope = (root_name(module),)
            else:
                name = names.get(id(module), type(module).__name__)
                state.scope = (*scope[:1], *name.split(".")) if name else scope
            try:
                return module._call_impl(*args, **kwargs)
            finally:
                state.scope, self._names = scope, names
