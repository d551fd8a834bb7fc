"""The form in which a function gave what it returned, and in which runs give theirs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from .handover import end_all, tensors_of


class Made:
    """What a run gives, from which results are made."""

    __slots__ = ("arguments", "computed", "numbers", "objects")

    def __init__(
        self, computed: list[Any], arguments: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        self.computed = computed  # tensors
        self.arguments = arguments
        self.numbers = numbers
        self.objects: dict[int, Any] = {}  # that were made already and stand twice, by form


class Form:
    """A part of what is returned."""

    __slots__ = ("shared",)

    shared: bool  # it stands twice, and is one object

    def __init__(self) -> None:
        self.shared = False

    def of(self, made: Made) -> Any:
        """The part; the same object again within one run."""
        if not self.shared:
            return self.new(made)
        if id(self) not in made.objects:
            made.objects[id(self)] = self.new(made)
        return made.objects[id(self)]

    def new(self, made: Made) -> Any:
        """The part, anew."""
        raise NotImplementedError


class Constant(Form):
    """What was there before."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.shared = False
        self.value = value

    def new(self, made: Made) -> Any:
        """Itself."""
        return self.value


class Computed(Form):
    """A tensor that was computed, by its place."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.shared = False
        self.place = place

    def new(self, made: Made) -> Any:
        """The tensor of this run."""
        return made.computed[self.place]


class Given(Computed):
    """An argument."""

    __slots__ = ()

    def new(self, made: Made) -> Any:
        """That of this run."""
        return made.arguments[self.place]


class Numbered(Computed):
    """A number that is computed for each run."""

    __slots__ = ()

    def new(self, made: Made) -> Any:
        """That of this run."""
        return made.numbers[self.place]


class Items(Form):
    """A tuple or list, or what is made as one is."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: Any, parts: list[Form]) -> None:
        self.shared = False
        self.kind, self.parts = kind, parts

    def new(self, made: Made) -> Any:
        """One of its own."""
        found: list[Any] = []
        for part in self.parts:
            found.append(part.of(made))
        return found if self.kind is list else self.kind(found)


class Named(Items):
    """A named tuple."""

    __slots__ = ()

    def new(self, made: Made) -> Any:
        """One of its own."""
        return self.kind(*[part.of(made) for part in self.parts])


class Filled(Form):
    """A dict."""

    __slots__ = ("parts", "shell")

    def __init__(self, shell: Any, parts: dict[Any, Form]) -> None:
        self.shared = False
        self.shell, self.parts = shell, parts

    def new(self, made: Made) -> Any:
        """One of its own, of the same kind."""
        result = copy.copy(self.shell)
        for key, part in self.parts.items():
            result[key] = part.of(made)
        return result


class Fields(Filled):
    """A dataclass, whose fields are set."""

    __slots__ = ()

    def new(self, made: Made) -> Any:
        """One of its own."""
        result = copy.copy(self.shell)
        for name, part in self.parts.items():
            object.__setattr__(result, name, part.of(made))
        return result


class Results:
    """What gives a run's results the form in which the function gave its own."""

    __slots__ = ("_closed", "_ended", "_form", "_leaves", "_wanting")

    def __init__(
        self, form: Form, wanting: list[int], leaves: list[int], ended: Any, closed: bool
    ) -> None:
        """Results `wanting` gradients without a node of their own have the op `ended`, behind all
        that was there before (`closed`), or nothing; `leaves` were made by the function.
        """
        self._form = form
        self._wanting, self._leaves = wanting, leaves
        self._ended, self._closed = ended, closed

    def wrapped(
        self, arrays: list[Any], nodes: Any, states: tuple[Any, ...], arguments: Sequence[Any]
    ) -> list[Any]:
        """Tensors of what was computed now, some of which have `nodes` (by number, or None), some
        are leaves. Others that want gradients stand behind the nodes `states` and those of
        `arguments`, to which there is no way.
        """
        found = tensors_of(arrays)
        if nodes is not None:
            for n, node in nodes.items():
                found[n]._node = node
        if self._wanting:
            if self._closed:
                end_all(found, self._wanting, self._ended, states, arguments)
            else:
                end_all(found, self._wanting, self._ended, (), [])
        for n in self._leaves:
            found[n].requires_grad_()
        return found

    def rebuilt(
        self, computed: list[Any], arguments: Sequence[Any], numbers: Sequence[Any] = ()
    ) -> Any:
        """What the function would return."""
        return self._form.of(Made(computed, arguments, numbers))
