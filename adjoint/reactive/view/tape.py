"""The snapshot of an eager tape: the history of one tensor."""

from __future__ import annotations

from typing import Any

from ...core.dtype import from_numpy_dtype
from ...core.op import snake_case
from ...core.tensor_base import TensorBase
from ...nn.parameter import Parameter
from ...runtime.lazy import LazyValue
from ...runtime.node import RELEASED, Item, Leaf
from .origins import Names, origin_of, source_line
from .snapshot import Edge, Kind, NodeInfo, Snapshot

_LONGEST = 200  # characters of an attribute's value


def tape_snapshot(tensor: Any, names: Names, title: str = "graph") -> Snapshot:
    """Snapshot of the nodes from which `tensor` was computed."""
    return _Tape(names).walk(tensor, title)


def short(value: object) -> str:
    """`repr` of limited length."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def fields_of(op: Any) -> dict[str, str]:
    """The attributes that identify an op, as text."""
    names = getattr(type(op), "__dataclass_fields__", ())
    return {name: short(getattr(op, name)) for name in names}


class _Tape:
    """A walk over the tape."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.tensors: dict[int, Any] = {}  # id of a node -> a tensor that holds its value
        self.outputs: dict[int, list[Any]] = {}  # id of a node with several outputs -> its Items

    def walk(self, tensor: Any, title: str) -> Snapshot:
        """The snapshot."""
        if tensor._node is None:
            info = self._describe_value(tensor, tensor)
            return Snapshot([info], [], title)
        nodes = self._collect(tensor._node)
        if not isinstance(tensor._node, Leaf) and not isinstance(tensor._node.op, Item):
            self.tensors[id(tensor._node)] = tensor
        for node in nodes:
            self._read_saved(node)
        infos: list[NodeInfo] = []
        edges: list[Edge] = []
        place: dict[int, int] = {}  # id of a node, or of an array outside the tape -> index
        data: dict[int, int] = {}  # id of a recorded value's array -> index
        for node in nodes:
            if isinstance(node, Leaf):
                place[id(node)] = len(infos)
                infos.append(self._describe_leaf(node))
                if id(node) in self.tensors:
                    data[id(self.tensors[id(node)]._data)] = place[id(node)]
                continue
            sources = []
            attributes = {}
            for position, (parent, value) in enumerate(
                zip(node.parents, self._inputs(node), strict=True)
            ):
                if parent is not None:
                    sources.append((position, place[id(_computing(parent))]))
                elif isinstance(value, TensorBase):
                    key = id(value._data)
                    if key not in place:
                        place[key] = len(infos)
                        infos.append(self._describe_value(value, value._data))
                        if key in data:
                            infos[-1].kind, infos[-1].op = "boundary", "detach"
                            edges.append(Edge(data[key], place[key], 0))
                    sources.append((position, place[key]))
                elif value is not None:
                    attributes[f"input {position}"] = short(value)
            place[id(node)] = index = len(infos)
            infos.append(self._describe_node(node, attributes))
            array = self._array(node)
            if array is not None:
                data[id(array)] = index
            edges.extend(Edge(source, index, position) for position, source in sources)
        return Snapshot(infos, edges, title)

    def _collect(self, root: Any) -> list[Any]:
        """Nodes and leaves, each after its inputs; Items count as the node that they belong to."""
        seen: dict[int, Any] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            if not isinstance(node, Leaf) and isinstance(node.op, Item):
                items = self.outputs.setdefault(id(node.parents[0]), [])
                if not any(node is other for other in items):
                    items.append(node)
                node = node.parents[0]
            if id(node) not in seen:
                seen[id(node)] = node
                stack.extend(parent for parent in node.parents if parent is not None)
        return sorted(seen.values(), key=lambda node: node.order)

    def _inputs(self, node: Any) -> list[Any]:
        """The saved value of each input, or None."""
        saved_inputs: list[Any] = [None] * len(node.parents)
        op = node.op
        if node.saved is RELEASED or len(op.tokens) != len(node.saved):
            return saved_inputs
        for token, value in zip(op.tokens, node.saved, strict=True):
            if token == "xs" and type(value) is tuple:
                saved_inputs[: len(value)] = value
            elif token == "x":
                saved_inputs[0] = value
            elif token[0] == "x" and token[1:].isdigit() and int(token[1:]) <= len(saved_inputs):
                saved_inputs[int(token[1:]) - 1] = value
        return saved_inputs

    def _read_saved(self, node: Any) -> None:
        """Collect the values of this node and of its inputs from its saved values."""
        if isinstance(node, Leaf):
            if node.tensor() is not None:
                self.tensors[id(node)] = node.tensor()
            return
        for parent, value in zip(node.parents, self._inputs(node), strict=True):
            if parent is not None and isinstance(value, TensorBase):
                self.tensors.setdefault(id(parent), value)
        if node.saved is not RELEASED and len(node.op.tokens) == len(node.saved):
            for token, value in zip(node.op.tokens, node.saved, strict=True):
                if token == "y" and isinstance(value, TensorBase):
                    self.tensors.setdefault(id(node), value)

    def _array(self, node: Any) -> Any:
        """The value of a node, if something still holds it."""
        if id(node) in self.tensors:
            return self.tensors[id(node)]._data
        origin = origin_of(node)
        return None if origin is None else _computed(origin.array())

    # ---- descriptions ------------------------------------------------------------------------

    def _describe_leaf(self, leaf: Leaf) -> NodeInfo:
        tensor = leaf.tensor()
        kind = kind_of(tensor)
        info = NodeInfo(leaf.order, kind, kind=kind)
        info.shape, info.dtype = leaf.shape, dtype_name(leaf.data_type)
        info.state = "none" if tensor is None else "fresh"
        info.gradient = lambda: None if leaf.grad is None else leaf.grad._data
        if tensor is not None:
            self._add_value(info, tensor)
        return info

    def _describe_value(self, tensor: Any, key: Any) -> NodeInfo:
        """Description of a tensor without history."""
        kind = kind_of(tensor)
        if kind == "input" and tensor._data.size == 1 and not self.names.label(tensor):
            kind = "constant"
        info = NodeInfo(-(id(key) % 2**48), kind, kind=kind)
        info.state = "fresh"
        self._add_value(info, tensor)
        return info

    def _describe_node(self, node: Any, attributes: dict[str, str]) -> NodeInfo:
        op = node.op
        attributes.update(fields_of(op))
        info = NodeInfo(node.order, op_name(op), attributes=attributes)
        items = sorted(self.outputs.get(id(node), ()), key=lambda item: item.op.index)
        for item in items:
            shape = f"{tuple(item.shape)} {dtype_name(item.data_type)}"
            attributes[f"output {item.op.index}"] = shape
        if node.data_type is not None:
            info.shape, info.dtype = tuple(node.shape), dtype_name(node.data_type)
        elif len(items) == 1:
            info.shape, info.dtype = tuple(items[0].shape), dtype_name(items[0].data_type)
        info.state = "released" if node.saved is RELEASED else "fresh"
        origin = origin_of(node)
        if id(node) in self.tensors:
            self._add_value(info, self.tensors[id(node)])
        elif origin is not None:
            array = origin.array
            info.value = lambda: _computed(array())
        retained = node.extra.retained if node.extra is not None else None
        if retained is not None:
            info.gradient = lambda: None if retained.grad is None else retained.grad._data
        if origin is not None:
            info.module, info.time_us, info.runs = self.names.box(origin.module), origin.time_us, 1
            info.source = source_line(origin.file, origin.line)
        return info

    def _add_value(self, info: NodeInfo, tensor: Any) -> None:
        info.label = self.names.label(tensor)
        info.shape, info.dtype = tuple(tensor._data.shape), dtype_name(tensor._data.dtype)
        info.version = tensor._changes.count if tensor._changes is not None else 0
        info.value = lambda: _computed(tensor._data)


def kind_of(tensor: Any) -> Kind:
    """The kind as which a tensor that no op computed is drawn."""
    if not isinstance(tensor, Parameter):
        return "input"
    return "frozen" if tensor._node is None else "parameter"


def _computed(data: Any) -> Any:
    """The array; None for a lazy value that nothing has read yet."""
    return data.array if isinstance(data, LazyValue) else data


def _computing(node: Any) -> Any:
    """The node that computes the value: for an Item, its parent."""
    if not isinstance(node, Leaf) and isinstance(node.op, Item):
        return node.parents[0]
    return node


def op_name(op: Any) -> str:
    """The name of an op; for a custom autograd.Function, the name of the Function."""
    function = getattr(op, "function", None)
    return str(op.name) if function is None else snake_case(function.__name__)


def dtype_name(data_type: Any) -> str:
    """The name of a NumPy dtype as ours; "" for None."""
    return "" if data_type is None else str(from_numpy_dtype(data_type)).rpartition(".")[2]
