"""Distribution: what all of them share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ..autograd.modes import no_grad
from ..core.argument_errors import described, remedy
from ..core.errors import InvalidArgument, ShapeError, Unsupported
from ..core.keywords import explain_keywords
from ..core.mode import are_known, refuse_where
from ..core.spec import Size, broadcast_shapes
from ..ops.random.streams import draw_for, graphs_exist
from ..tensor import Tensor
from . import constraints
from .constraints import Constraint
from .utils import broadcast_all, lazy_property

__all__ = ["Distribution"]


def _drawing_for_parameters(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that draws samples: in a graph anew for each new value of a parameter."""

    @functools.wraps(method)
    def sample(self: Distribution, *args: Any, **kwargs: Any) -> Any:
        if not graphs_exist():
            return method(self, *args, **kwargs)
        return draw_for(list(_parameters(self)), method, self, *args, **kwargs)

    return sample


def _parameters(distribution: Distribution) -> Iterator[Tensor]:
    """The tensors that a distribution, and those that it is made of, hold."""
    for value in vars(distribution).values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Distribution):
            yield from _parameters(value)


@explain_keywords
class Distribution:
    """Base class: batches of independent draws of events.

    `sample_shape + batch_shape + event_shape` is the shape of a sample.
    Errors: InvalidArgument where a parameter or a value violates its constraint.
    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.distribution.Distribution

    >>> normal = ad.distributions.Normal(ad.zeros(3), 1.0)
    >>> normal.batch_shape, normal.sample((2,)).shape
    (adjoint.Size([3]), adjoint.Size([2, 3]))
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args: bool = __debug__  # the class's is the default, an instance's its own

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked where a call does not say.

        >>> ad.distributions.Distribution.set_default_validate_args(True)
        """
        if value not in (True, False):
            raise InvalidArgument(f"set_default_validate_args: expected a bool, got {value!r}")
        Distribution._validate_args = value

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("sample", "rsample"):
            if name in vars(cls):
                setattr(cls, name, _drawing_for_parameters(vars(cls)[name]))

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                self._assert_parameter(name, constraint)
        super().__init__()  # of what a class derives from besides

    def _assert_parameter(self, name: str, constraint: Constraint) -> None:
        if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
            return
        if constraints.is_dependent(constraint):
            return
        value = getattr(self, name)
        shape = tuple(value.shape)
        self._assert_all(
            constraint.check(value), value,
            lambda shown: f"Expected parameter {name} ({type(value).__name__} of shape {shape}) of "
            f"distribution {shown(self)} to satisfy the constraint {shown(constraint)}, but found "
            "invalid values",
        )  # fmt: skip

    def _assert_all(
        self, valid: Any, value: object, message: Callable[[Callable[[object], str]], str]
    ) -> None:
        """Refuse values that are not all valid, by a message that is given how to show what holds
        values. In a function that is being captured each run does so, and shows none.
        """
        if not are_known():
            told = message(lambda x: type(x).__name__)
            refuse_where(~valid.all(), lambda: InvalidArgument(f"{told}, in a compiled function"))
        elif not bool(valid.all()):
            raise InvalidArgument(f"{message(repr)}:\n{value}")

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of a single draw."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """Constraint that values satisfy."""
        raise Unsupported(f"{type(self).__name__}.support is not defined")

    @property
    def mean(self) -> Any:
        """The expected value."""
        raise Unsupported(f"{type(self).__name__} has no mean in closed form; average samples")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise Unsupported(f"{type(self).__name__} has no variance in closed form; use samples")

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise Unsupported(f"{type(self).__name__} has no mode in closed form")

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws without gradient, of shape sample_shape + batch_shape + event_shape."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Any:
        """`n` draws along a new dimension 0."""
        return self.sample((n,))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draws through which gradients reach the parameters."""
        raise Unsupported(f"{type(self).__name__} cannot be reparameterized; use sample()")

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density (or probability) at `value`, which `support` must hold."""
        self._validate_sample(value)
        return self._log_prob(value)

    def _log_prob(self, value: Any) -> Any:
        raise Unsupported(f"{type(self).__name__}.log_prob is not defined")

    def cdf(self, value: Any) -> Any:
        """The probability of values up to `value`, which `support` must hold."""
        self._validate_sample(value)
        return self._cdf(value)

    def _cdf(self, value: Any) -> Any:
        raise Unsupported(f"{type(self).__name__}.cdf is not defined; count samples instead")

    def icdf(self, value: Any) -> Any:
        """The value up to which the probability is `value`."""
        raise Unsupported(f"{type(self).__name__}.icdf is not defined; sort samples instead")

    def entropy(self) -> Any:
        """The entropy, of the batch shape."""
        raise Unsupported(f"{type(self).__name__}.entropy is not defined; average -log_prob")

    def perplexity(self) -> Any:
        """e to the power of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Any:
        """Every value of a discrete distribution, along dimension 0."""
        raise Unsupported(f"{type(self).__name__} cannot enumerate its support; draw samples")

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """The instance that `expand` of a class derived from `cls` fills: the given one, or a new
        one, unless the class has a constructor of its own.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution with the parameters expanded to another batch shape.

        Parameters are the entries of `arg_constraints`, here and in base classes; a constraint's
        `event_dim` says how many of a parameter's last dimensions stay.
        """
        new = self._expanding(batch_shape, _instance)
        for base in reversed(type(self).__mro__):
            for name, constraint in base.__dict__.get("arg_constraints", {}).items():
                if name in self.__dict__:
                    value, events = self.__dict__[name], constraint.event_dim
                    kept = value.shape[value.ndim - events :]
                    new.__dict__[name] = value.expand((*new._batch_shape, *kept))
        return new

    def _expanding(self, batch_shape: Sequence[int], instance: Any) -> Any:
        """A copy (or `instance`) with the new batch shape and this one's parameters."""
        new = type(self).__new__(type(self)) if instance is None else instance
        new.__dict__.update(self.__dict__)
        new._batch_shape = Size(batch_shape)
        return new

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _drawn(self, make: Callable[..., Any], sample_shape: Sequence[int], like: Any) -> Any:
        """Result of `make` in the shape of samples, of the dtype and device of a parameter."""
        return make(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)

    def _validate_sample(self, value: Any) -> None:
        """Raise where `value` cannot be a draw from this distribution."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise InvalidArgument(
                f"{type(self).__name__}: expected a tensor for argument 'value', got "
                f"{described(value)}; {remedy(value)}"
            )
        events = len(self._event_shape)
        kept = tuple(value.shape[max(value.ndim - events, 0) :])
        if kept != tuple(self._event_shape):
            raise ShapeError(
                f"{type(self).__name__}: The right-most size of value must match event_shape: "
                f"{tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        batch = value.shape[: value.ndim - events]
        broadcast_shapes(batch, self._batch_shape, op=type(self).__name__)
        try:
            support = self.support
        except NotImplementedError:
            return
        kind, shape = type(value).__name__, tuple(value.shape)
        self._assert_all(
            support.check(value), value,
            lambda shown: f"Expected value argument ({kind} of shape {shape}) to be within the "
            f"support ({shown(support)}) of the distribution {shown(self)}, but found invalid "
            "values",
        )  # fmt: skip

    def __repr__(self) -> str:
        found = [(n, self.__dict__[n]) for n in self.arg_constraints if n in self.__dict__]
        shown = ", ".join(f"{n}: {v if v.numel() == 1 else v.size()}" for n, v in found)
        return f"{type(self).__name__}({shown})"


class LocationScale(Distribution):
    """The base of distributions over all numbers, moved and stretched, with `loc` as mode."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean
