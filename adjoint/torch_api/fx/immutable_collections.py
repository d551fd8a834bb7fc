"""Immutable lists and dicts for the arguments of nodes."""

from __future__ import annotations

from typing import Any, NoReturn

from ...core.errors import InvalidType

__all__ = ["immutable_dict", "immutable_list"]


def _refusing(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidType(
            f"'{type(self).__name__}' object does not support mutation ({name}). It is in the args "
            "or kwargs of a fx.Node; assign a changed copy to the node: node.args = new_args"
        )

    return refuse


class immutable_list(list):  # noqa: N801 - PyTorch's name
    """A list that is not changed.

    >>> ad.fx.immutable_collections.immutable_list([1])
    [1]
    """

    for _name in ("__delitem__", "__iadd__", "__imul__", "__setitem__", "append", "clear",
                  "extend", "insert", "pop", "remove", "reverse", "sort"):  # fmt: skip
        locals()[_name] = _refusing(_name)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return (immutable_list, (tuple(self),))


class immutable_dict(dict):  # noqa: N801 - PyTorch's name
    """A dict that is not changed.

    >>> ad.fx.immutable_collections.immutable_dict(a=1)
    {'a': 1}
    """

    for _name in ("__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault",
                  "update"):  # fmt: skip
        locals()[_name] = _refusing(_name)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return (immutable_dict, (tuple(self.items()),))
