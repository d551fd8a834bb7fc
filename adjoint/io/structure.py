"""Python values as JSON: what a checkpoint may hold besides its tensors' bytes.

None, bool, str, int and finite float are themselves and a list is a list; everything else is an
object with one key that says what it is: `{"tuple": [...]}`, `{"dict": [[key, value], ...]}`,
`{"tensor": {...}}`, `{"array": {...}}` (NumPy's, stored as a tensor).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtype import BY_NAME, BY_NUMPY, dtype
from ..core.errors import CheckpointError, DeviceError, InvalidType
from ..core.spec import Size
from ..ops.create.exchange import from_numpy
from ..tensor import Tensor

MAX_DEPTH = 200  # nested containers, well inside Python's recursion limit

_INLINE = "biufcSUMm"  # kinds of NumPy values that are bytes, and no references

_SEQUENCES: dict[type, str] = {tuple: "tuple", Size: "size", set: "set", frozenset: "frozenset"}
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered_dict"}


def encode(
    value: Any, save_tensor: Callable[[Any, str], Any], path: str = "", depth: int = 0
) -> Any:
    """`value` as JSON; `save_tensor(tensor, path)` gives a tensor's entry."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _encode_numpy(value, save_tensor, path)
    if isinstance(value, Tensor):
        return {"tensor": save_tensor(value, path)}
    if kind is dtype:
        return {"dtype": value.name}
    if kind is device:
        return {"device": str(value)}
    if depth >= MAX_DEPTH:
        raise InvalidType(f"save: more than {MAX_DEPTH} containers inside one another at {path!r}")

    def inner(part: Any, name: Any) -> Any:
        return encode(part, save_tensor, f"{path}.{name}" if path else str(name), depth + 1)

    if kind is list:
        return [inner(part, i) for i, part in enumerate(value)]
    if kind in _SEQUENCES:
        parts = sorted(value, key=repr) if kind in (set, frozenset) else value
        return {_SEQUENCES[kind]: [inner(part, i) for i, part in enumerate(parts)]}
    mapping = _MAPPINGS.get(kind) or ("ordered_dict" if isinstance(value, OrderedDict) else None)
    if mapping:
        return {mapping: [[inner(k, "key"), inner(v, k)] for k, v in value.items()]}
    raise InvalidType(
        f"save: cannot store {kind.__module__}.{kind.__qualname__} at {path or 'the top'!r}; only "
        "tensors, None, bool, int, float, complex, str, bytes, dtypes, devices, NumPy's numbers "
        "and arrays, and lists, tuples, sets and dicts of them can be stored." + _remedy(value)
    )


def _encode_numpy(value: Any, save_tensor: Callable[[Any, str], Any], path: str) -> Any:
    """An array as a tensor, which shares its memory, where there is one of its dtype; other arrays,
    and numbers, as dtype, shape and bytes.
    """
    if type(value) is np.ndarray and value.dtype in BY_NUMPY:
        plain = value if value.size and min(value.strides, default=0) >= 0 else value.copy()
        return {"array": save_tensor(from_numpy(plain), path)}
    if value.dtype.kind not in _INLINE or type(value) not in (np.ndarray, value.dtype.type):
        raise InvalidType(
            f"save: cannot store a {type(value).__name__} of {value.dtype} at "
            f"{path or 'the top'!r}; convert it, e.g. with .tolist()"
        )
    data = base64.b64encode(value.tobytes()).decode()
    shape = None if isinstance(value, np.generic) else list(value.shape)
    return {"numpy": [value.dtype.str, shape, data]}


def _decode_numpy(content: Any) -> Any:
    name, shape, data = content
    kind = np.dtype(str(name))
    if kind.kind not in _INLINE or kind.str != name:
        raise CheckpointError(f"load: the structure holds NumPy values of {name!r:.40}")
    flat = np.frombuffer(base64.b64decode(data, validate=True), kind)
    return flat.copy().reshape(tuple(shape)) if shape is not None else flat.reshape(())[()]


def _remedy(value: Any) -> str:
    if hasattr(value, "state_dict"):
        return " Store its state_dict() instead"
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return " Store adjoint.tensor(value), or value.item() for a number"
    return " Convert it first"


def decode(value: Any, load_tensor: Callable[[Any], Any]) -> Any:
    """The inverse of `encode`; CheckpointError for JSON that `encode` cannot have written."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [decode(part, load_tensor) for part in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise CheckpointError(f"load: the structure holds {value!r:.80}")
    ((tag, content),) = value.items()
    try:
        return _decode_tagged(tag, content, load_tensor)
    except CheckpointError:
        raise
    except (TypeError, ValueError, KeyError, binascii.Error) as error:
        raise CheckpointError(f"load: the structure holds a malformed {tag!r}: {error}") from error


def _decode_tagged(tag: str, content: Any, load_tensor: Callable[[Any], Any]) -> Any:
    if tag == "tensor":
        return load_tensor(content)
    if tag == "array":
        return load_tensor(content).cpu().numpy()
    if tag == "numpy":
        return _decode_numpy(content)
    if tag == "float":
        return float(content)
    if tag == "complex":
        real, imaginary = content
        return complex(float(real), float(imaginary))
    if tag == "bytes":
        return base64.b64decode(content, validate=True)
    if tag == "dtype":
        return BY_NAME[content]
    if tag == "device":
        try:
            return device(content)
        except DeviceError as error:  # its name; of one that is not here, whoever uses it says so
            raise CheckpointError(f"load: the structure holds a malformed {tag!r}") from error
    for kind, name in _SEQUENCES.items():
        if tag == name:
            return kind(decode(part, load_tensor) for part in content)
    for kind, name in _MAPPINGS.items():
        if tag == name:
            return kind((decode(k, load_tensor), decode(v, load_tensor)) for k, v in content)
    raise CheckpointError(f"load: the structure holds an unknown kind of value, {tag!r}")
