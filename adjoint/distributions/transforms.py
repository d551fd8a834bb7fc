"""Changes of variables, with inverses and Jacobian determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..core.errors import ShapeError
from ..core.spec import Size, broadcast_shapes
from ..ops.create.like import full_like, ones_like, zeros_like
from ..ops.create.ranges import arange
from ..ops.nn.activation import logsigmoid
from ..ops.nn.softmax import softmax
from ..ops.shape.concatenation import cat
from ..tensor import Tensor
from . import constraints
from .change_of_variables import Plain, Transform
from .change_of_variables import _InverseTransform as _InverseTransform
from .structured import (
    CatTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    StackTransform,
)
from .utils import softplus, sum_rightmost

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


class ComposeTransform(Transform):
    """Several transforms, the first applied first.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ComposeTransform

    >>> d = ad.distributions
    >>> d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.ExpTransform()])(ad.tensor(0.0))
    tensor(2.7183)
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(1) for part in parts] if cache_size else list(parts)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform is bijective: if all parts are."""
        return all(part.bijective for part in self.parts)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The first part's, for the events that the parts need together."""
        if not self.parts:
            return constraints.real
        domain = self.parts[0].domain
        events = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            events += part.domain.event_dim - part.codomain.event_dim
            events = max(events, part.domain.event_dim)
        return _for_events(domain, events)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The last part's, for the events that the parts make together."""
        if not self.parts:
            return constraints.real
        codomain = self.parts[-1].codomain
        events = self.parts[0].domain.event_dim
        for part in self.parts:
            events += part.codomain.event_dim - part.domain.event_dim
            events = max(events, part.codomain.event_dim)
        return _for_events(codomain, events)

    @property
    def sign(self) -> Any:
        """The product of the parts' signs."""
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Any:
        """The inverses, the last first."""
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def _call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum of the parts'."""
        if not self.parts:
            return zeros_like(x)
        total: Any = 0.0
        events = self.domain.event_dim
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            term = part.log_abs_det_jacobian(x, after)
            total = total + sum_rightmost(term, events - part.domain.event_dim)
            events += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the outputs after all parts."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """Back through all parts."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((ComposeTransform, *self.parts))

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"


def _for_events(constraint: Any, events: int) -> Any:
    extra = events - constraint.event_dim
    return constraints.independent(constraint, extra) if extra else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """`base_transform` for events with more dimensions.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.IndependentTransform

    >>> t = ad.distributions.IndependentTransform(ad.distributions.ExpTransform(), 1)
    >>> t.log_abs_det_jacobian(ad.ones(3), ad.ones(3).exp())
    tensor(3.)
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(1) if cache_size else base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform is bijective, as for the base transform."""
        return self.base_transform.bijective

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The base transform's, for whole events."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The base transform's, for whole events."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def sign(self) -> Any:
        """Sign of the derivative of the base transform."""
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum over the event's dimensions."""
        term = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(term, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the outputs of the base transform."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the inputs of the base transform."""
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of `in_shape` as events of `out_shape`.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ReshapeTransform

    >>> ad.distributions.ReshapeTransform((4,), (2, 2))(ad.zeros(3, 4)).shape
    adjoint.Size([3, 2, 2])
    """

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(
                f"ReshapeTransform: in_shape, out_shape have different numbers of elements: "
                f"{self.in_shape} and {self.out_shape}"
            )

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """Real events of `in_shape`."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """Real events of `out_shape`."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Zero."""
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the outputs, with the last dimensions replaced."""
        return self._replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the inputs, with the last dimensions replaced."""
        return self._replaced(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _replaced(shape: Sequence[int], old: tuple[int, ...], new: tuple[int, ...]) -> Any:
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != old:
            raise ShapeError(
                f"ReshapeTransform: Shape mismatch: expected events of shape {old}, but got "
                f"{tuple(shape)}"
            )
        return (*shape[:cut], *new)


class _Increasing(Plain):
    """Base of increasing transforms without parameters."""

    bijective = True
    sign = +1  # type: ignore[assignment]


class ExpTransform(_Increasing):
    """y = exp(x).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ExpTransform

    >>> ad.distributions.ExpTransform()(ad.tensor(0.0))
    tensor(1.)
    """

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The input."""
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive numbers.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PowerTransform

    >>> ad.distributions.PowerTransform(ad.tensor(2.0))(ad.tensor(3.0))
    tensor(9.)
    """

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """Sign of the exponent."""
        e = self.exponent
        return e.sign() if isinstance(e, Tensor) else math.copysign(1, e)

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log|exponent y / x|."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Broadcast with the exponent's."""
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    def __hash__(self) -> int:
        return hash(type(self))


def _clipped_sigmoid(x: Any) -> Any:
    """The sigmoid, inside of the open interval (0, 1)."""
    info = finfo(x.dtype)
    return x.sigmoid().clamp(min=info.tiny, max=1 - info.eps)


def _broadcast(shape: Sequence[int], *values: Any) -> Any:
    shapes = [v.shape for v in values if isinstance(v, Tensor)]
    return Size(broadcast_shapes(shape, *shapes, op="transform"))


def _same(a: Any, b: Any) -> bool:
    return bool((a == b).all()) if isinstance(a == b, Tensor) else bool(a == b)


class SigmoidTransform(_Increasing):
    """y = 1 / (1 + exp(-x)).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SigmoidTransform

    >>> ad.distributions.SigmoidTransform()(ad.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        info = finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(y (1 - y))."""
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Increasing):
    """y = log(1 + exp(x)).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftplusTransform

    >>> ad.distributions.SoftplusTransform()(ad.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The log of the sigmoid."""
        return -softplus(-x)


class TanhTransform(_Increasing):
    """y = tanh(x).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.TanhTransform

    >>> ad.distributions.TanhTransform()(ad.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(1 - y^2), exact where it is small."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Plain):
    """y = |x|.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AbsTransform

    >>> ad.distributions.AbsTransform()(ad.tensor(-1.0))
    tensor(1.)
    """

    codomain = constraints.nonnegative

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AffineTransform

    >>> ad.distributions.AffineTransform(1.0, 2.0)(ad.tensor(3.0))
    tensor(7.)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """Number of dimensions of an event, as given."""
        return self._event_dim

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """Real events."""
        return _for_events(constraints.real, self._event_dim)

    codomain = domain  # type: ignore[assignment]

    @property
    def sign(self) -> Any:
        """Sign of the scale."""
        s = self.scale
        return s.sign() if isinstance(s, Tensor) else (s > 0) - (s < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log|scale|, summed over the event."""
        if isinstance(self.scale, Tensor):
            each = self.scale.abs().log().expand(_broadcast(x.shape, self.scale))
        else:
            each = full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(each, self._event_dim)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Broadcast with the parameters'."""
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _same(self.loc, other.loc)
            and _same(self.scale, other.scale)
        )

    def __hash__(self) -> int:
        return hash(type(self))


class SoftmaxTransform(Plain):
    """y = softmax(x): not bijective, one of its inverses is the logarithm.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftmaxTransform

    >>> ad.distributions.SoftmaxTransform()(ad.zeros(2))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        return softmax(x, -1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The input's shape; at least one dimension."""
        return _with_events(shape, 0)

    inverse_shape = forward_shape


def _with_events(shape: Sequence[int], more: int) -> Any:
    if len(shape) < 1:
        raise ShapeError("transform: Too few dimensions on input, needs at least one")
    return (*shape[:-1], shape[-1] + more)


class StickBreakingTransform(Plain):
    """K - 1 real numbers to K shares, each a part of what the ones before have left.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StickBreakingTransform

    >>> ad.distributions.StickBreakingTransform()(ad.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.simplex

    @staticmethod
    def _offset(x: Any, count: int) -> Any:
        # so that zeros give equal shares
        return arange(count, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        z = _clipped_sigmoid(x - self._offset(x, x.shape[-1]))
        left = (1 - z).cumprod(-1)
        one = ones_like(z[..., :1])
        return cat([z, one], -1) * cat([one, left], -1)

    def _inverse(self, y: Any) -> Any:
        shares = y[..., :-1]
        left = (1 - shares.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return shares.log() - left.log() + self._offset(y, shares.shape[-1])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum of log z, log(1 - z) and the logarithms of what was left."""
        moved = x - self._offset(x, x.shape[-1])
        return (-moved + logsigmoid(moved) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the outputs, with one share more."""
        return _with_events(shape, 1)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """Shape of the inputs, with one share less."""
        return _with_events(shape, -1)


for _kind in (Transform, _InverseTransform):
    _kind.__module__ = __name__  # where PyTorch has them: files name them so
