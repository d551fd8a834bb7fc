"""A backend of one's own: a device "counting", which computes as NumPy does and counts what it did.

Three things make a backend, and nothing of adjoint is changed for them:

1. an **array**: it says of itself what NumPy's arrays say (shape, dtype, strides, ...), and takes
   part in arithmetic and indexing;
2. a **namespace**, in which ops find functions under NumPy's names, and whose `run(op, arrays)`
   computes an op;
3. a **module** (here: a class), which says where arrays are, and moves them.

Everything else follows: tensors, gradients, modules, optimizers and files work on the new device.

Expected: difference from the CPU at most 1e-6
Run: python examples/own_backend.py
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.backends import numpy as functions
from adjoint.core.device import device, register_devices, register_loader
from adjoint.core.errors import BackendGap


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the device: NumPy's, which nobody else sees."""

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", np.asarray(inner))

    def __setattr__(self, name: str, value: Any) -> None:  # real, imag
        setattr(self.inner, name, bare(value))

    def __getattr__(self, name: str) -> Any:  # shape, dtype, astype, reshape, ...
        found = getattr(self.inner, name)
        if callable(found):
            return lambda *args, **kwargs: wrapped(found(*bare(args), **bare(kwargs)))
        return wrapped(found)

    def __getitem__(self, index: Any) -> Any:
        return Array(self.inner[bare(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.inner[bare(index)] = bare(value)

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        return bool(self.inner)

    def __int__(self) -> int:
        return int(self.inner)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return wrapped(getattr(ufunc, method)(*bare(args), **bare(kwargs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(function(*bare(args), **bare(kwargs)))

    def change(self, name: str, value: Any, alpha: float | None = None) -> None:
        """Write NumPy's function of that name, of this array and `alpha` times a value, over it."""
        value = bare(value) if alpha is None else bare(value) * alpha
        getattr(np, name)(self.inner, value, out=self.inner, casting="same_kind")

    def to_host(self) -> Any:
        """The elements, where the host can read them."""
        return self.inner

    numpy = to_host  # of memory that it sees


def bare(value: Any) -> Any:
    """NumPy's arrays in the place of ours."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(bare, value))
    if isinstance(value, dict):
        return {name: bare(each) for name, each in value.items()}
    return value.inner if isinstance(value, Array) else value


def wrapped(value: Any) -> Any:
    """Our arrays in the place of NumPy's."""
    if type(value) in (tuple, list):
        return type(value)(map(wrapped, value))
    return Array(value) if isinstance(value, (np.ndarray, np.generic)) else value


class Absent:
    """What this backend has not: an op that asks for it says so."""

    def __getattr__(self, name: str) -> Any:
        raise BackendGap(f"{name} on backend 'counting'; move the tensor with .cpu()")


class Namespace(Absent):
    """Where ops find what computes them."""

    linalg = fft = Absent()

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()  # elements, by op

    def __getattr__(self, name: str) -> Any:
        found = getattr(functions, name, None)
        if found is None:
            return super().__getattr__(name)  # which refuses it
        if callable(found) and not isinstance(found, (type, np.ufunc)):
            host = found

            def on_arrays(*args: Any, **kwargs: Any) -> Any:
                return wrapped(host(*bare(args), **bare(kwargs)))

            found = on_arrays

        setattr(self, name, found)  # the same function each time, which ops may rely on
        return found

    def gather(self, x: Array, axis: int, index: Array) -> Array:
        """At each place of the index, the element along the axis that it names."""
        part = x.inner[
            tuple(slice(n) if i != axis else slice(None) for i, n in enumerate(index.shape))
        ]
        return Array(np.take_along_axis(part, index.inner, axis))

    def argsort(self, x: Array, axis: int = -1, descending: bool = False) -> Array:
        """The places of sorted elements; equal ones keep their order."""
        rows = np.flip(x.inner, axis) if descending else x.inner
        places = np.argsort(rows, axis, kind="stable")
        return Array(np.flip(rows.shape[axis] - 1 - places, axis) if descending else places)

    def run(self, op: Any, arrays: list[Any]) -> Any:
        """The value of an op on arrays of this device, and numbers."""
        found = op.compute(self, *arrays)
        if op.name == "transfer":  # to where it says
            return found
        results = found if op.n_outputs != 1 else (found,)
        self.counts[op.name] += sum(each.size for each in results)
        return tuple(map(wrapped, results)) if op.n_outputs != 1 else wrapped(found)


class Counting:
    """The backend, as adjoint asks for it."""

    names = Namespace()

    @staticmethod
    def resolve(where: Any) -> Any:
        """The device that was asked for; there is one."""
        return COUNTING

    @staticmethod
    def space(where: Any) -> Namespace:
        """The namespace that makes arrays there."""
        return Counting.names

    @staticmethod
    def transfer(array: Any, where: Any, non_blocking: bool = False) -> Any:
        """A copy of an array on another device."""
        copy = np.array(bare(array))
        return copy if where.type == "cpu" else Array(copy)

    @staticmethod
    def host_array(array: Any, memories: Any) -> Any:
        """An array in the host's memory."""
        return bare(array)


register_loader(("counting",), lambda: Counting)
COUNTING = device("counting")
register_devices(Array, lambda array: Counting.names, lambda array: COUNTING)


def main() -> dict[str, Any]:
    """Train a small network there and on the CPU; the losses agree."""
    losses: dict[str, list[float]] = {}
    for place in ("cpu", "counting"):
        ad.manual_seed(0)
        model = ad.nn.Sequential(ad.nn.Linear(2, 8), ad.nn.Tanh(), ad.nn.Linear(8, 1)).to(place)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
        x = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).to(place)
        y = ad.tensor([[0.0], [1.0], [1.0], [0.0]]).to(place)
        losses[place] = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses[place].append(loss.item())
    counts = Counting.names.counts
    pairs = zip(losses["cpu"], losses["counting"], strict=True)
    print(f"losses on our device: {losses['counting'][0]:.4f} to {losses['counting'][-1]:.4f}")
    print(f"difference from the CPU: {max(abs(a - b) for a, b in pairs)}")
    print("elements:", ", ".join(f"{name} {n}" for name, n in counts.most_common(4)))
    return {"losses": losses, "counts": dict(counts)}


if __name__ == "__main__":
    main()
