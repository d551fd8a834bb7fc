"""Tasks: what scores individuals, and trains them by gradients where it is asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import adjoint as ad
from adjoint import nn

from .errors import EvolutionError
from .genome import Genome
from .network import Networks, unroll

Scores = dict[str, float]


def squared_error(outputs: ad.Tensor, targets: ad.Tensor) -> ad.Tensor:
    """The squares of the differences, elementwise."""
    return (outputs - targets).square()


def cross_entropy(outputs: ad.Tensor, targets: ad.Tensor) -> ad.Tensor:
    """The negative logarithm of the chance of each row's class; targets are integers."""
    rows = nn.functional.log_softmax(outputs, -1)
    index = targets.expand(rows.shape[:-1]).unsqueeze(-1)
    return -rows.gather(-1, index).squeeze(-1)


def binary_cross_entropy(outputs: ad.Tensor, targets: ad.Tensor) -> ad.Tensor:
    """The cross-entropy of sigmoids of outputs, elementwise; targets are 0 to 1."""
    return nn.functional.softplus(outputs) - outputs * targets


def accuracy(outputs: ad.Tensor, targets: ad.Tensor) -> ad.Tensor:
    """Whether the largest output is the class; of one output, whether it is above 0 where the
    target is above a half.
    """
    if outputs.shape[-1] == 1:
        return ((outputs > 0) == (targets > 0.5)).float()
    return (outputs.argmax(-1) == targets).float()


LOSSES = {f.__name__: f for f in (squared_error, cross_entropy, binary_cross_entropy)}
MEASURES = {**LOSSES, "accuracy": accuracy}
Measure = Callable[[ad.Tensor, ad.Tensor], ad.Tensor]


def measure(name: str | Measure, among: dict[str, Any]) -> Measure:
    """A measure by its name, or as it is."""
    if callable(name):
        return name
    if name not in among:
        raise EvolutionError(f"Supervised: {name!r} is none of {', '.join(among)}")
    return among[name]


def of_each(values: ad.Tensor) -> ad.Tensor:
    """The mean for each genome, the first axis."""
    return values.reshape(values.shape[0], -1).mean(1)


class Supervised:
    """Examples: inputs with targets. The score is better the larger it is.

    All genomes of a group are computed, and trained, together.

    Args:
        inputs: (rows, inputs); for sequences (steps, rows, inputs); for modules what they take.
        targets: what `loss` compares outputs (rows, outputs) with; for sequences those of each
            step, or with `last=True` of the last step.
        loss: "squared_error", "cross_entropy", "binary_cross_entropy", or a function of outputs and
            targets that is not reduced: outputs have the genomes as an axis in front.
        score: the measure whose mean is the score: "accuracy", or a function; a loss counts with a
            minus, which is the default.
        steps: of the space's optimizer, before the score is taken; 0: evolution alone.
        batch: rows of a step, drawn anew; None: all.
        validation: inputs and targets that the score is taken on; None: those of training.
        clip: the largest absolute value of a gradient's element; None: none is cut.
        sequence, last: inputs are sequences; targets are of the last step.

    Errors: EvolutionError for lengths that differ, and unknown names.

    >>> from adjoint import evolve
    >>> task = evolve.Supervised(ad.tensor([[0., 1.], [1., 1.]]), ad.tensor([[1.], [0.]]))
    >>> run = evolve.Evolution(evolve.NEAT(2, 1), task, size=10, seed=0)
    >>> run.run(5).scores["score"] > -1
    True
    """

    def __init__(
        self, inputs: Any, targets: Any, *, loss: str | Measure = "squared_error", score: str |
        Measure | None = None, steps: int = 0, batch: int | None = None, validation: tuple[Any,
        Any] | None = None, clip: float | None = None, sequence: bool = False, last: bool = False,
    ) -> None:  # fmt: skip
        self.inputs, self.targets = _tensor(inputs), _tensor(targets)
        self.loss = measure(loss, LOSSES)
        self.sign = -1 if score is None or score in LOSSES else 1
        self.score = self.loss if score is None else measure(score, MEASURES)
        self.steps, self.batch, self.clip = steps, batch, clip
        self.sequence, self.last = sequence, last
        self.validation = (self.inputs, self.targets)
        if validation is not None:
            self.validation = (_tensor(validation[0]), _tensor(validation[1]))
        for x, y in ((self.inputs, self.targets), self.validation):
            rows = x.shape[1] if sequence else len(x)
            theirs = y.shape[1] if sequence and not last else len(y)
            if rows != theirs or not rows:
                raise EvolutionError(
                    f"Supervised: {rows} rows of inputs, {theirs} of targets; one or more"
                )
        if batch is not None and (sequence or not 0 < batch <= len(self.inputs)):
            raise EvolutionError(
                f"Supervised: batch={batch} of {len(self.inputs)} rows; sequences take batch=None"
            )

    def evaluate(self, group: Sequence[Any], space: Any) -> list[Scores]:
        """The scores of a group, after its steps of training."""
        if group and isinstance(group[0], Genome):
            networks = Networks(group, space.dtype)
            optimizer = self._train(networks, networks.optimizer(space.optimizer), True)
            if optimizer is not None:
                networks.store(optimizer)
            return [{"score": score} for score in self._scores(networks, True)]
        scores = []
        for each in group:
            module = space.network(each).train()
            optimizer = self._train(module, each.optimizer(space.optimizer), False)
            if optimizer is not None:
                each.store(optimizer)
            scores += self._scores(module.eval(), False)
        return [{"score": score} for score in scores]

    def _train(self, network: Any, optimizer: Any, together: bool) -> Any:
        """The steps of an optimizer; the optimizer, or None where there are none."""
        for _ in range(self.steps):
            x, y = self.inputs, self.targets
            if self.batch is not None:
                rows = ad.randperm(len(x))[: self.batch]
                x, y = x[rows], y[rows]
            optimizer.zero_grad()
            losses = of_each(self.loss(self._outputs(network, x, together), y))
            losses.sum().backward()  # each network's gradient is its own loss's
            if self.clip is not None:
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                nn.utils.clip_grad_value_(parameters, self.clip)
            optimizer.step()
        return optimizer if self.steps else None

    def _outputs(self, network: Any, x: ad.Tensor, together: bool) -> ad.Tensor:
        """Outputs with the genomes as the first axis."""
        if together:
            network.reset()
        outputs = unroll(network, x) if self.sequence else network(x)
        if self.sequence and self.last:
            outputs = outputs[..., -1, :, :]
        return outputs if together else outputs.unsqueeze(0)

    def _scores(self, network: Any, together: bool) -> list[float]:
        """The score of each; the worst there is where it is no number."""
        x, y = self.validation
        with ad.no_grad():
            values = of_each(self.score(self._outputs(network, x, together), y))
        return [self.sign * v if v == v else -float("inf") for v in values.tolist()]


def _tensor(x: Any) -> ad.Tensor:
    """A tensor; real numbers of other dtypes than float32 become that."""
    x = ad.as_tensor(x)
    return x.float() if x.is_floating_point() else x


class Fitness:
    """A function of a network that returns its score, or several as a dict with "score".

    The network is `evolve.Network` (it has `reset()` where it is recurrent) or a module. What the
    function draws from `adjoint`'s generator is seeded.

    Errors: EvolutionError where the function returns something else.

    >>> from adjoint import evolve
    >>> task = evolve.Fitness(lambda network: network(ad.ones(1, 2)).item())
    >>> evolve.Evolution(evolve.NEAT(2, 1), task, size=10, seed=0).run(3).scores["score"] > 2
    True
    """

    def __init__(self, function: Callable[[Any], float | Scores]) -> None:
        self.function = function

    def evaluate(self, group: Sequence[Any], space: Any) -> list[Scores]:
        """The scores of a group, one after the other."""
        with ad.no_grad():
            return [self._checked(self.function(space.network(each))) for each in group]

    def _checked(self, result: Any) -> Scores:
        scores = result if isinstance(result, dict) else {"score": result}
        try:
            numbers = {name: float(value) for name, value in scores.items()}
        except (TypeError, ValueError):
            numbers = {}
        if "score" not in numbers:
            raise EvolutionError(
                f"Fitness: the function returned {result!r}; a number is meant, or a dict "
                'of numbers with "score"'
            )
        return numbers


class Episodes:
    """The mean return of a policy in an environment that has gymnasium's methods.

    Each individual sees the same episodes. All episodes of a group run in step, so that one call
    of the networks gives the actions of all.

    Args:
        make: makes an environment: `lambda: gymnasium.make("CartPole-v1")`; for a pool of processes
            a function with a name.
        episodes: of each individual.
        seed: of the first episode; the next ones have the following.
        action: an action from an observation's outputs, an array of them; None: the number of the
            largest, of one output whether it is above 0.
        steps: the most of an episode, beside the environment's own limit.

    >>> class Coin:  # guess what the observation shows
    ...     def reset(self, seed):
    ...         self.side = seed % 2
    ...         return [self.side], {}
    ...     def step(self, action):
    ...         return [0], float(action == self.side), True, False, {}
    >>> from adjoint import evolve
    >>> task = evolve.Episodes(Coin, episodes=2)
    >>> run = evolve.Evolution(evolve.NEAT(1, 1), task, size=20, seed=0)
    >>> run.run(20, goal=1.0).scores["score"]
    1.0
    """

    def __init__(
        self, make: Callable[[], Any], *, episodes: int = 1, seed: int = 0, action: Callable[[Any],
        Any] | None = None, steps: int = 100_000,
    ) -> None:  # fmt: skip
        if episodes < 1:
            raise EvolutionError(f"Episodes: episodes must be 1 or more, got {episodes}")
        self.make, self.episodes, self.seed, self.steps = make, episodes, seed, steps
        self.action = action or _largest
        self._environments: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environments": []}

    def evaluate(self, group: Sequence[Any], space: Any) -> list[Scores]:
        """The mean returns of a group."""
        together = isinstance(group[0], Genome)
        networks: Any = Networks(group, space.dtype) if together else None
        modules = [] if together else [space.network(each).eval() for each in group]
        count = len(group) * self.episodes
        while len(self._environments) < count:
            self._environments.append(self.make())
        environments = self._environments[:count]
        seeds = [self.seed + i % self.episodes for i in range(count)]
        states = [e.reset(seed=s)[0] for e, s in zip(environments, seeds, strict=True)]
        returns, running = [0.0] * count, list(range(count))
        with ad.no_grad():
            for _ in range(self.steps):
                x = ad.tensor([list(map(float, s)) for s in states], dtype=space.dtype)
                x = x.reshape(len(group), self.episodes, -1)
                if together:
                    outputs = networks(x).numpy()
                else:
                    outputs = ad.stack(
                        [m(each) for m, each in zip(modules, x, strict=True)]
                    ).numpy()
                outputs = outputs.reshape(count, -1)
                still = []
                for i in running:
                    action = self.action(outputs[i])
                    states[i], reward, ended, cut, _ = environments[i].step(action)
                    returns[i] += float(reward)
                    if not (ended or cut):
                        still.append(i)
                running = still
                if not running:
                    break
        each = [returns[i : i + self.episodes] for i in range(0, count, self.episodes)]
        return [{"score": sum(part) / self.episodes} for part in each]


def _largest(outputs: Any) -> int:
    """The number of the largest output; of one output, whether it is above 0."""
    return int(outputs[0] > 0) if len(outputs) == 1 else int(outputs.argmax())


def task_of(task: Any) -> Any:
    """A task; a function becomes `Fitness`."""
    if hasattr(task, "evaluate"):
        return task
    if callable(task):
        return Fitness(task)
    raise EvolutionError(f"Evolution: {task!r} is no task; give Supervised, Episodes or a function")
