"""Pruning: parameters some of whose elements are held at 0 by a mask.

A pruned parameter `name` is `name_orig`, with the buffer `name_mask`; their product takes its place
before each forward. `remove` makes that the parameter.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.BasePruningMethod.html

>>> layer = ad.nn.utils.prune.l1_unstructured(ad.nn.Linear(4, 2), "weight", amount=0.25)
>>> layer.weight_mask.sum()
tensor(6.)
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...core.argument_repr import argument_repr
from ...core.errors import InvalidArgument, InvalidType
from ...ops.create.like import ones_like, zeros_like
from ...ops.random.random import rand, rand_like
from ...runtime.public import naming
from ..modules.module import Module
from .convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """Base of pruning methods.

        parameter = original * mask, mask = compute_mask(scores, mask before)

    `compute_mask` says what stays. `PRUNING_TYPE` says among what an earlier method has left:
    single elements ("unstructured"), channels along `dim` ("structured"), or all ("global").

    >>> from adjoint.nn.utils import prune
    >>> class Even(prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask.view(-1)[::2] = 0
    ...         return mask
    >>> Even.apply(ad.nn.Linear(2, 1), "weight").prune(ad.ones(4))
    tensor([0., 1., 0., 1.])
    """

    PRUNING_TYPE: str
    _tensor_name: str
    _handle: Any = None

    __repr__ = argument_repr

    def __call__(self, module: Module, inputs: Any) -> None:
        """Put the masked tensor in the parameter's place."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask for scores `t`, where one is in force that is to be kept."""

    def apply_mask(self, module: Module) -> Any:
        """The original times its mask."""
        name = self._tensor_name
        mask, original = getattr(module, f"{name}_mask"), getattr(module, f"{name}_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter, in addition to what was pruned of it before.

        Errors: InvalidArgument for scores of another shape.
        """
        prunings = _prunings(module)
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        before = prunings.get(name)
        original = getattr(module, name if before is None else f"{name}_orig")
        # by default what an earlier method has left of it
        scores = getattr(module, name) if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise InvalidArgument(
                f"importance_scores should have the same shape as parameter {name} of {module}, "
                f"got {tuple(scores.shape)} and {tuple(original.shape)}"
            )
        if before is None:
            mask = ones_like(original.detach())
        else:
            mask = getattr(module, f"{name}_mask").detach().clone()
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method = container
        mask = method.compute_mask(scores.detach(), mask)
        if before is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", original)
        else:
            before._handle.remove()
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        method._handle = module.register_forward_pre_hook(method)
        prunings[name] = method
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """The tensor `t` pruned, by scores (its own values where None)."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise InvalidArgument("importance_scores should have the same shape as tensor t")
        given = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=given)

    def remove(self, module: Module) -> None:
        """Make the masked tensor the parameter."""
        name = self._tensor_name
        prunings = _prunings(module)
        if name not in prunings:
            raise InvalidArgument(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module).detach()
        original = module._parameters[f"{name}_orig"]
        assert original is not None
        original.data = weight
        for attribute in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, attribute)
        module.register_parameter(name, original)
        prunings.pop(name)._handle.remove()


def _prunings(module: Module) -> dict[str, Any]:
    """The methods in force, by the names of parameters."""
    return module.__dict__.setdefault("_prunings", {})  # type: ignore[no-any-return]


class PruningContainer(BasePruningMethod):
    """Several pruning methods, of which the last adds to what the others have pruned.

        mask = mask before, with zeros where the last method prunes what was left

    Args:
        *args: Methods, or one iterable of them.

    Errors: InvalidType for what is no method; InvalidArgument for one of another parameter.
    """

    PRUNING_TYPE = "container"

    def __init__(self, *args: Any) -> None:
        methods = args[0] if len(args) == 1 and not isinstance(args[0], BasePruningMethod) else args
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in methods:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
                self._handle = method._handle
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add one more method.

        Errors: InvalidType for what is no method; InvalidArgument for another parameter's.
        """
        if not isinstance(method, BasePruningMethod):
            raise InvalidType(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise InvalidArgument(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The last one's, among what is left."""
        method: Any = self._pruning_methods[-1]
        part: Any
        if method.PRUNING_TYPE == "unstructured":
            part = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    "Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim`"
                )
            dim = method.dim % t.ndim
            others = [i for i in range(t.ndim) if i != dim]
            kept = default_mask.sum(others) != 0
            part = tuple([slice(None)] * dim + [kept])
        elif method.PRUNING_TYPE == "global":
            part = (slice(None),) * t.ndim
        else:
            raise InvalidArgument(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.clone()
        mask[part] = method.compute_mask(t[part], default_mask=mask[part]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Pruning method that prunes nothing.

        mask = mask before

    It puts a mask of ones on a parameter that has none.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask that is in force."""
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Pruning method that takes the mask that it was given.

        mask = mask before times the mask given

    Args:
        mask: Mask of the parameter's shape, 0 or false where to prune.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Multiply both masks."""
        return default_mask * self.mask.to(default_mask.dtype)


class RandomUnstructured(BasePruningMethod):
    """Pruning method that takes elements at random.

        mask = 0 at as many random places as `amount` says

    Args:
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above 1
    as a share.
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _assert_amount(amount)
        self.amount = amount

    def _scores(self, t: Any) -> Any:
        return -rand_like(t)  # PyTorch takes those away of which it draws the greatest numbers

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zeros at the places of the lowest scores."""
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            places = self._scores(t).reshape(-1).topk(count, largest=False).indices
            mask.view(-1)[places] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Pruning method that takes the elements nearest to 0.

        mask = 0 where |score| is among the least, as many as `amount` says

    Args:
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above 1
    as a share.
    """

    def _scores(self, t: Any) -> Any:
        return t.abs()


class RandomStructured(BasePruningMethod):
    """Pruning method that takes channels at random.

        mask = 0 in as many random channels along `dim` as `amount` says

    Args:
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).
        dim: Dimension of the channels. Default: -1.

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above 1
    as a share.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _assert_amount(amount)
        self.amount = amount
        self.dim = dim

    def _scores(self, t: Any) -> Any:
        return rand(t.shape[self.dim], device=t.device)

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zeros in the channels of the lowest scores.

        Errors: InvalidArgument for a tensor of one dimension, or one that has no such `dim`.
        """
        if t.ndim <= 1:
            raise InvalidArgument(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {tuple(t.shape)} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        channels = t.shape[self.dim]
        count = _count(self.amount, channels)
        if not count:
            return default_mask
        kept = self._scores(t).topk(channels - count).indices
        mask = zeros_like(t)
        mask[(slice(None),) * (self.dim % t.ndim) + (kept,)] = 1
        return mask * default_mask.to(mask.dtype)


class LnStructured(RandomStructured):
    """Pruning method that takes the channels of the least norm.

        mask = 0 where the n-norm of the scores is among the least along `dim`

    Args:
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).
        n: Exponent of the norm.
        dim: Dimension of the channels. Default: -1.

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above 1
    as a share.
    """

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Any) -> Any:
        others = [i for i in range(t.ndim) if i != self.dim % t.ndim]
        return t.norm(p=self.n, dim=others)


def _assert_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise InvalidType(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if float(amount) < 0 or (not whole and float(amount) > 1):
        raise InvalidArgument(
            f"amount={amount} should either be a float in the range [0.0, 1.0] or a non-negative "
            "integer"
        )


def _count(amount: Any, size: int) -> int:
    """How many of `size` an amount is."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if int(amount) > size:
        raise InvalidArgument(
            f"amount={amount} should be smaller than the number of parameters to prune={size}"
        )
    return int(amount)


# ---- functions -----------------------------------------------------------------------------------


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones, which prunes nothing.

        parameter = original * mask, mask = 1

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.

    >>> from adjoint.nn.utils import prune
    >>> prune.identity(ad.nn.Linear(2, 1), "bias").bias_mask
    tensor([1.])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements at random.

        parameter = original * mask, mask 0 at as many random places as `amount` says

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above
    all.

    >>> from adjoint.nn.utils import prune
    >>> prune.random_unstructured(ad.nn.Linear(2, 3), "weight", 2).weight_mask.sum()
    tensor(4.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


@naming
def l1_unstructured(
    module: Module, name: str, amount: Any, importance_scores: Any = None
) -> Module:
    """Prune the elements nearest to 0.

        parameter = original * mask, mask 0 at the places of the least |score|, as many as `amount`

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).
        importance_scores: Scores by which to choose, of the parameter's shape. Default: None, the
            parameter's values.

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above
    all.

    >>> from adjoint.nn.utils import prune
    >>> prune.l1_unstructured(ad.nn.Linear(2, 3), "weight", 2).weight_mask.sum()
    tensor(4.)
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune channels at random.

        parameter = original * mask, mask 0 in as many random channels along `dim` as `amount` says

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).
        dim: Dimension of the channels.

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above
    all.

    >>> from adjoint.nn.utils import prune
    >>> prune.random_structured(ad.nn.Linear(2, 3), "weight", 1, dim=0).weight_mask.sum()
    tensor(4.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


@naming
def ln_structured(
    module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Module:
    """Prune the channels of the least norm.

        parameter = original * mask, mask 0 in the channels along `dim` of least n-norm

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.
        amount: How much to prune: a number (int), or a share of all (float in [0, 1]).
        n: Exponent of the norm.
        dim: Dimension of the channels.
        importance_scores: Scores by which to choose, of the parameter's shape. Default: None, the
            parameter's values.

    Errors: InvalidType for an amount that is no number; InvalidArgument for one below 0 or above
    all.

    >>> from adjoint.nn.utils import prune
    >>> prune.ln_structured(ad.nn.Linear(2, 3), "weight", 1, n=2, dim=0).weight_mask.sum()
    tensor(4.)
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Any] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as one.

        parameters = originals * masks, masks 0 at the places that the method chooses of all

    Args:
        parameters: Pairs of a module and the name of its parameter.
        pruning_method: Class of an unstructured method, such as L1Unstructured.
        importance_scores: Scores by which to choose, by pairs of module and name. Default: None,
            the parameters' values.
        **kwargs: Arguments of the method, such as `amount`.

    Errors: InvalidType for a method of another type than "unstructured".

    >>> from adjoint.nn.utils import prune
    >>> layer = ad.nn.Linear(2, 3)
    >>> pairs = [(layer, "weight"), (layer, "bias")]
    >>> prune.global_unstructured(pairs, prune.L1Unstructured, amount=4)
    >>> layer.weight_mask.sum() + layer.bias_mask.sum()
    tensor(5.)
    """
    pairs = list(parameters)
    scores = importance_scores or {}
    method: Any = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise InvalidType(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    given = [scores.get(pair, getattr(*pair)).detach() for pair in pairs]
    masks = [getattr(m, f"{n}_mask", ones_like(getattr(m, n).detach())) for m, n in pairs]
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    whole = container.compute_mask(parameters_to_vector(given), parameters_to_vector(masks))
    parts = whole.split([each.numel() for each in given])
    for (module, name), part, each in zip(pairs, parts, given, strict=True):
        custom_from_mask(module, name, part.reshape(each.shape))


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune a parameter by a mask.

        parameter = original * mask

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.
        mask: Mask of the parameter's shape, 0 or false where to prune.

    >>> from adjoint.nn.utils import prune
    >>> prune.custom_from_mask(ad.nn.Linear(2, 3), "bias", ad.tensor([0, 1, 0])).bias_mask
    tensor([0., 1., 0.])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Make a pruned parameter a plain one, with zeros where it was pruned.

        parameter = original * mask

    Args:
        module: Module to change; it is returned.
        name: Name of its parameter.

    Errors: InvalidArgument where it was not.

    >>> from adjoint.nn.utils import prune
    >>> layer = prune.identity(ad.nn.Linear(2, 1), "weight")
    >>> sorted(prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    method = _prunings(module).get(name)
    if method is None:
        raise InvalidArgument(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether any parameter in a module, or in a module within it, is pruned.

    A parameter is pruned from the first method that was applied to it until `remove`.

    Args:
        module: Module.

    >>> from adjoint.nn.utils import prune
    >>> prune.is_pruned(ad.nn.Sequential(prune.identity(ad.nn.Linear(2, 1), "weight")))
    True
    """
    return any(each.__dict__.get("_prunings") for each in module.modules())
