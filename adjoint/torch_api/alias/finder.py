"""Answers imports of `torch` and of what is below it by adjoint's own modules."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ...core.device import register_loader
from ...core.errors import Unsupported
from ...io.class_paths import PACKAGE
from .naming import name_types
from .top import HERE, OWN, SHARED, Torch, why_absent

REFUSED = {  # they compute with, or talk by, PyTorch itself
    f"{PACKAGE}.backends.torch": "the devices 'cuda' and 'torch'",
    f"{PACKAGE}.distributed.engines.gloo": "ranks of the engine 'gloo'",
}


class Given(importlib.abc.Loader):
    """A loader of a module that is there already, which importing leaves as it is."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def exec_module(self, module: ModuleType) -> None:
        """The module takes the place of the one that was made for it."""
        assert module.__spec__ is not None
        sys.modules[module.__spec__.name] = self.module


class Finder(importlib.abc.MetaPathFinder):
    """`torch.X` is `adjoint.X`, where PyTorch has such a module, and the same module; `functorch`,
    which comes with PyTorch, is here, too.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        """The spec of a module below `torch`, or of one of ours that is imported later."""
        top, _, rest = fullname.partition(".")
        if top == PACKAGE:
            return self._ours(fullname, path, target)
        if fullname in ("functorch", "functorch.experimental"):
            module = importlib.import_module(f"{HERE}.{fullname.replace('.', '_')}")
        elif top == "torch":
            module = the_module() if not rest else find(rest)
        else:
            return None
        # `name_types` may have put it there: Python would then take its own spec, and run it again
        sys.modules.pop(fullname, None)
        return importlib.machinery.ModuleSpec(
            fullname, Given(module), origin=PACKAGE, is_package=hasattr(module, "__path__")
        )

    def _ours(self, name: str, path: Any, target: Any) -> Any:
        """Found by the others; its types get PyTorch's names when it has run."""
        if name in REFUSED:
            refuse(REFUSED[name])
        for other in sys.meta_path:
            spec = None if other is self else other.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if loader is not None:
            loader.exec_module = _then_named(loader.exec_module)
        return spec


def _then_named(run: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        run(module)
        name_types(module)
        offer(module)

    return exec_module


def offer(module: ModuleType) -> None:
    """Makes modules that PyTorch alone has below one of ours its attributes, too."""
    above = module.__name__.partition(".")[2]
    below = {name.rpartition(".")[2] for name in OWN if name.rpartition(".")[0] == above}
    if not above or not below:
        return
    vars(module).setdefault("__path__", [])  # so that what is below it can be imported
    before = vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:  # noqa: N807 - of the module
        if name in below:
            return importlib.import_module(f"torch.{above}.{name}")
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    vars(module)["__getattr__"] = __getattr__


def find(rest: str) -> ModuleType:
    """The module `torch.REST`.

    Errors: ModuleNotFoundError, which says what is nearest, where there is none.
    """
    full = f"torch.{rest}"
    first = rest.partition(".")[0]
    name = OWN.get(rest) or (f"{PACKAGE}.{rest}" if first in SHARED else None)
    missing = ModuleNotFoundError(f"No module named {full!r}: {why_absent(rest)}", name=full)
    if name is None:
        raise missing
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a library that the module needs
        raise missing from None
    above, _, last = name.rpartition(".")
    seen = getattr(sys.modules[above], last, module)
    if rest not in OWN and seen is not module:  # a function has that name
        raise missing
    return module


_made: list[Torch] = []


def the_module() -> Torch:
    """The module `torch`, of which there is one."""
    if not _made:
        _made.append(Torch(find))
    return _made[0]


def refuse(name: str) -> Any:
    """Say why what needs PyTorch itself is not there.

    Errors: Unsupported, always.
    """
    raise Unsupported(
        f"as_torch: {name} need PyTorch itself, and `torch` is adjoint in this process; use the "
        "CPU, or run without the alias (import adjoint as torch)"
    )


def install() -> Torch:
    """Answer imports from now on, and refuse the devices that PyTorch serves."""
    torch = the_module()
    register_loader(("cuda", "torch"), lambda: refuse("the devices 'cuda' and 'torch'"))
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        for each in list(sys.modules.values()):
            if getattr(each, "__name__", "").startswith(f"{PACKAGE}."):
                offer(each)
    for name in [each for each in sys.modules if each.startswith("torch.")]:
        del sys.modules[name]
    sys.modules["torch"] = torch
    return torch
