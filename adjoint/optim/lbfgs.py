"""L-BFGS, with a line search for the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..autograd.modes import enable_grad, no_grad
from ..core.errors import InvalidArgument, Unsupported
from ..core.mode import are_known
from ..ops.create.like import zeros_like
from ..ops.elementwise.complex import view_as_real
from ..ops.shape.concatenation import cat
from ..runtime.fused import fused
from ..tensor import Tensor
from .optimizer import Optimizer
from .options import as_float, checked

__all__ = ["LBFGS"]


class _Trial(NamedTuple):
    """One point of a line search: where, the loss, the gradient, its slope along the line."""

    t: Any
    f: Any
    g: Any
    slope: Any


@fused
def _largest(x: Any) -> Any:
    return x.abs().max()


@fused
def _dot(x: Any, y: Any) -> Any:
    return (x * y).sum()


class LBFGS(Optimizer):
    """L-BFGS: Newton's steps with a curvature estimated from the last gradients (Nocedal, 1980).

        p = p - step H g

    Here g is the gradient of all parameters as one vector and H an estimate of the inverse Hessian,
    made of the last `history_size` differences of parameters and of gradients. The step is lr (the
    first one lr min(1, 1 / sum |g|)), or what the line search finds. `step` needs a closure, which
    it calls several times. What the optimizer remembers is the state of its first parameter.

    Args:
        params: Parameters to change, an iterable of tensors; one group only.
        lr: Length of a step along the direction; where the line search starts, if there is one.
            Default: 1.
        max_iter: Largest number of iterations in one call of `step`. Default: 20.
        max_eval: Largest number of calls of the closure in one call of `step`. Default: None, 5/4
            of max_iter.
        tolerance_grad: Stop where no element of the gradient is larger. Default: 1e-7.
        tolerance_change: Stop where neither an element of the parameters nor the loss changes by
            more. Default: 1e-9.
        history_size: Number of past steps that H is made of. Default: 100.
        line_search_fn: "strong_wolfe" for a search along the direction by the strong Wolfe
            conditions, None for steps of length lr. Default: None.

    Errors: InvalidArgument for several groups, a negative lr, or a line search other than
    "strong_wolfe"; Unsupported for `step` within a captured function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.LBFGS.html

    >>> p = ad.nn.Parameter(ad.tensor([3.0, -4.0]))
    >>> optimizer = ad.optim.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((p - ad.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    40.0
    >>> [round(x, 4) for x in p.tolist()]
    [1.0, 2.0]
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, checked(locals()))
        if len(self.param_groups) != 1:
            raise InvalidArgument(
                f"LBFGS doesn't support per-parameter options (parameter groups), got "
                f"{len(self.param_groups)} groups; pass one list of parameters"
            )

    @property
    def _params(self) -> list[Any]:
        return list(self.param_groups[0]["params"])

    # ---- parameters and gradients as one vector ----------------------------------------------

    def _gradient(self) -> Any:
        parts = []
        for p in self._params:
            g = zeros_like(p) if p.grad is None else p.grad
            g = g.to_dense() if g.is_sparse else g
            parts.append((view_as_real(g) if g.is_complex() else g).reshape(-1))
        return cat(parts)

    def _move(self, t: Any, direction: Any) -> None:
        """Add `t` times `direction` to the parameters."""
        reals = [view_as_real(p) if p.is_complex() else p for p in self._params]
        parts = direction.split([real.numel() for real in reals])
        for real, part in zip(reals, parts, strict=True):
            real.add_(part.reshape(real.shape), alpha=as_float(t))

    def _look(self, closure: Any, direction: Any, t: Any) -> _Trial:
        """Loss and gradient at `t` along `direction`; the parameters stay where they are."""
        before = [p.detach().clone() for p in self._params]
        self._move(t, direction)
        loss = float(closure())
        g = self._gradient()
        for p, value in zip(self._params, before, strict=True):
            p.copy_(value)
        return _Trial(t, loss, g, _dot(g, direction))

    def _search(
        self, closure: Callable[[], Any], direction: Tensor, t: Any, start: _Trial, most: int
    ) -> tuple[_Trial, int]:
        """The point along `direction` that the group's line search finds, beginning with `t`, and
        how often it called the closure, at most `most` + 1 times.

        Errors: InvalidArgument for an unknown search.
        """
        search = self.param_groups[0]["line_search_fn"]
        if search != "strong_wolfe":
            raise InvalidArgument(f"only 'strong_wolfe' is supported, got {search!r}")
        look = partial(self._look, closure, direction)
        return strong_wolfe(look, t, start, _largest(direction), most)

    # ---- the step ----------------------------------------------------------------------------

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Change the parameters by up to `max_iter` iterations; returns the loss before them.

        Args:
            closure: Function that clears the gradients, computes the loss, calls backward and
                returns the loss.

        >>> p = ad.nn.Parameter(ad.tensor([3.0]))
        >>> optimizer = ad.optim.LBFGS([p], max_iter=1)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (p * p).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item(), p.item()
        (9.0, 2.0)
        """
        if not are_known():
            raise Unsupported(
                "LBFGS.step in a captured function: values decide how often it calls its closure, "
                "and when it stops; compile the closure, `optimizer.step(ad.compile(closure))`, "
                "and call step outside"
            )
        evaluate = enable_grad()(closure)
        group = self.param_groups[0]
        lr, search = as_float(group["lr"]), group["line_search_fn"]
        max_iter, max_eval = group["max_iter"], group["max_eval"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = evaluate()
        loss = float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        g = self._gradient()
        if _largest(g) <= group["tolerance_grad"]:
            return first_loss

        memory = _Memory(state, group["history_size"])
        for n in range(1, max_iter + 1):
            state["n_iter"] += 1
            d = memory.direction(g, state["n_iter"] == 1)
            loss_before = memory.remember(g, loss)
            t = min(1.0, 1.0 / g.abs().sum()) * lr if state["n_iter"] == 1 else lr
            memory.t = t
            slope = _dot(g, d)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if search is not None:
                start = _Trial(0, loss, g, slope)
                (t, loss, g, _), used = self._search(evaluate, d, t, start, max_eval - evaluations)
                memory.t = t
                self._move(t, d)
            else:
                self._move(t, d)
                if n != max_iter:  # in stochastic use, looking again would only cost
                    loss = float(evaluate())
                    g = self._gradient()
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (
                n == max_iter
                or evaluations >= max_eval
                or _largest(g) <= group["tolerance_grad"]
                or _largest(d) * abs(t) <= group["tolerance_change"]
                or abs(loss - loss_before) < group["tolerance_change"]
            ):
                break
        memory.save(state)
        return first_loss


class _Memory:
    """Values that L-BFGS keeps from step to step, saved under PyTorch's names."""

    def __init__(self, state: dict[str, Any], size: int) -> None:
        self.size = size
        self.d: Any = state.get("d")
        self.t: Any = state.get("t")
        self.gradient_changes: list[Any] = state.get("old_dirs") or []
        self.moves: list[Any] = state.get("old_stps") or []
        self.inverse_products: list[Any] = state.get("ro") or []
        self.scale = state.get("H_diag", 1)
        self.g = state.get("prev_flat_grad")
        self.loss = state.get("prev_loss")
        self.factors: list[Any] = state.get("al") or [None] * size

    def save(self, state: dict[str, Any]) -> None:
        """Write all into `state`."""
        state.update(
            d=self.d,
            t=self.t,
            old_dirs=self.gradient_changes,
            old_stps=self.moves,
            ro=self.inverse_products,
            H_diag=self.scale,
            prev_flat_grad=self.g,
            prev_loss=self.loss,
            al=self.factors,
        )

    def remember(self, g: Any, loss: float) -> float:
        """Keep this gradient and loss for the next iteration; the loss again."""
        self.g, self.loss = g, loss
        return loss

    def direction(self, g: Any, first: bool) -> Any:
        """Where to go from gradient `g`: by the inverse Hessian that the last moves suggest."""
        if first:
            self.gradient_changes, self.moves, self.inverse_products = [], [], []
            self.scale = 1
            self.d = -g
            return self.d
        change, move = g - self.g, self.d * self.t
        product = _dot(change, move)
        if product > 1e-10:
            if len(self.gradient_changes) == self.size:
                for kept in (self.gradient_changes, self.moves, self.inverse_products):
                    kept.pop(0)
            self.gradient_changes.append(change)
            self.moves.append(move)
            self.inverse_products.append(1.0 / product)
            self.scale = product / _dot(change, change)
        d = -g
        count = len(self.moves)
        for i in reversed(range(count)):
            self.factors[i] = _dot(self.moves[i], d) * self.inverse_products[i]
            d.addcmul_(self.gradient_changes[i], self.factors[i], value=-1)
        d.mul_(self.scale)
        for i in range(count):
            other = _dot(self.gradient_changes[i], d) * self.inverse_products[i]
            d.addcmul_(self.moves[i], self.factors[i] - other)
        self.d = d
        return d


def strong_wolfe(
    look: Callable[[Any], _Trial],
    t: Any,
    start: _Trial,
    longest: Any,
    most: int,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
) -> tuple[_Trial, int]:
    """A point that meets the strong Wolfe conditions (Nocedal and Wright, 2006, section 3.5), or
    the best one found in `most` trials, and how often `look` was called.

    `longest` is the largest component of the direction.
    """

    def falls_enough(trial: _Trial) -> bool:
        return bool(not trial.f > (start.f + c1 * trial.t * start.slope))

    def is_flat(trial: _Trial) -> bool:
        return bool(abs(trial.slope) <= -c2 * start.slope)

    # First walk until a bracket contains such a point.
    before, now = start, look(t)
    calls, n = 1, 0
    bracket = [start, now]
    while n < most:
        if not falls_enough(now) or (n > 1 and now.f >= before.f):
            bracket = [before, now]
            break
        if is_flat(now):
            return now, calls
        if now.slope >= 0:
            bracket = [before, now]
            break
        bounds = now.t + 0.01 * (now.t - before.t), now.t * 10
        t = cubic_minimum(before, now, bounds)
        before, now = now, look(t)
        calls += 1
        n += 1
        bracket = [start, now]

    # Then narrow the bracket.
    low = 0 if bracket[0].f <= bracket[1].f else 1
    stuck = False
    while n < most:
        ends = [each.t for each in bracket]
        if abs(ends[1] - ends[0]) * longest < tolerance_change:
            break
        t = cubic_minimum(bracket[0], bracket[1])
        # A trial close to an end twice, or at it, moves a tenth of the bracket away from it.
        left, right = min(ends), max(ends)
        margin = 0.1 * (right - left)
        close = min(right - t, t - left) < margin
        if close and (stuck or t >= right or t <= left):
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            close = False
        stuck = bool(close)
        now = look(t)
        calls += 1
        n += 1
        if not falls_enough(now) or now.f >= bracket[low].f:
            bracket[1 - low] = now
            low = 0 if bracket[0].f <= bracket[1].f else 1
            continue
        done = is_flat(now)
        if not done and now.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = now
        if done:
            break
    return bracket[low], calls


def cubic_minimum(a: _Trial, b: _Trial, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is least, within `bounds`."""
    if a.t > b.t:
        a, b = b, a
    left, right = bounds or (a.t, b.t)
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (left + right) / 2.0
    d2 = square.sqrt()
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, left), right)
