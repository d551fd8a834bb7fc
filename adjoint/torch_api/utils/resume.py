"""`Checkpoint`: all that a training needs to go on where it was, in one file."""

from __future__ import annotations

import copy
from typing import Any

from ...core.argument_repr import argument_repr
from ...core.errors import CheckpointError, InvalidType
from ...io import load, save
from ...namespaces.random import get_rng_state, set_rng_state

__all__ = ["Checkpoint"]

_RANDOM = "random"  # under which the default generator's state is kept


class Checkpoint:
    """All parts of a training, by names: saved in one call, and brought back in another.

    Whatever has a state may be a part: modules, optimizers, schedulers, a `DataLoader` (with its
    position), `GradScaler`, averaged models, a `Generator`. The default generator always is one, so
    that training goes on with the same draws. None stands for a part that there is not.

    `load` brings back all parts, or none: where one does not fit its state, it and those before it
    are as they were.

    Errors: InvalidType for a part without a state; CheckpointError for a file of other parts.

    >>> import os, tempfile
    >>> model = ad.nn.Linear(2, 1)
    >>> optimizer = ad.optim.Adam(model.parameters())
    >>> training = ad.utils.Checkpoint(model=model, optimizer=optimizer)
    >>> path = os.path.join(tempfile.mkdtemp(), "training.ad")
    >>> training.save(path, step=100, loss=0.5)
    >>> training.load(path)
    {'step': 100, 'loss': 0.5}
    """

    _in_repr = ("parts",)
    __repr__ = argument_repr

    def __init__(self, **parts: Any) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        if _RANDOM in self.parts:
            raise InvalidType(
                f"Checkpoint: {_RANDOM!r} is the default generator's name; choose another one"
            )
        for name, part in self.parts.items():
            if not (_has(part, "state_dict", "load_state_dict") or _has(part, "get_state")):
                raise InvalidType(
                    f"Checkpoint: {name!r}, a {type(part).__name__}, has no state: neither "
                    "state_dict() and load_state_dict(), nor get_state() and set_state(); give "
                    "values to save() instead"
                )

    def save(self, path: Any, **values: Any) -> None:
        """Write the states of all parts, and `values`, to one file; the old one is replaced once
        the new one is whole.

        Errors: InvalidType for a value that files cannot hold (see `adjoint.save`).
        """
        states = {name: _state(part) for name, part in self.parts.items()}
        save({"parts": {**states, _RANDOM: get_rng_state()}, "values": values}, path)

    def load(self, path: Any, map_location: Any = None) -> dict[str, Any]:
        """Bring back the states of all parts; the values that were saved with them.

        Errors: CheckpointError for a file of other parts, or one that `save` did not write; those
        of the parts' own load_state_dict.
        """
        found = load(path, map_location)
        kinds = {name: type(part) for name, part in found.items()} if type(found) is dict else None
        if kinds != {"parts": dict, "values": dict}:
            raise CheckpointError(
                "Checkpoint.load: the file holds no checkpoint of this class; adjoint.load reads it"
            )
        states = dict(found["parts"])
        random = states.pop(_RANDOM, None)
        missing, unknown = set(self.parts) - set(states), set(states) - set(self.parts)
        if missing or unknown or random is None:
            raise CheckpointError(
                f"Checkpoint.load: the file has {sorted(states)}, here are {sorted(self.parts)}; "
                "name the same parts as when it was saved"
            )
        before = {name: copy.deepcopy(_state(part)) for name, part in self.parts.items()}
        draws = get_rng_state()
        done: list[str] = []
        try:
            for name, part in self.parts.items():
                done.append(name)
                _bring_back(part, states[name])
            set_rng_state(random)
        except BaseException:
            for name in done:  # the last one may have taken a part of its state
                _bring_back(self.parts[name], before[name])
            set_rng_state(draws)
            raise
        return dict(found["values"])


def _has(part: Any, *names: str) -> bool:
    return all(callable(getattr(part, name, None)) for name in names)


def _state(part: Any) -> Any:
    return part.state_dict() if _has(part, "state_dict") else part.get_state()


def _bring_back(part: Any, state: Any) -> None:
    if _has(part, "state_dict"):
        part.load_state_dict(state)
    else:
        part.set_state(state)
