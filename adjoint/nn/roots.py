"""Names of the modules that are called from outside any other."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from .modules.module import Module

ROOTS: WeakKeyDictionary[Module, str] = WeakKeyDictionary()


def root_name(module: Module) -> str:
    """Name a module by its class, with a number where another such module has that name.

    >>> from adjoint.nn.roots import root_name
    >>> first, second = ad.nn.RReLU(), ad.nn.RReLU()
    >>> root_name(first), root_name(second), root_name(first)
    ('RReLU', 'RReLU#2', 'RReLU')
    """
    name = ROOTS.get(module)
    if name is None:
        name = base = type(module).__name__
        taken = set(ROOTS.values())
        number = 1
        while name in taken:
            number += 1
            name = f"{base}#{number}"
        ROOTS[module] = name
    return name
