"""scikit-learn estimators for adjoint modules: fit, predict, score, and everything that takes
estimators (pipelines, grid search, cross validation).

This module imports scikit-learn; importing adjoint does not import this module.

>>> from adjoint.sklearn import Classifier
>>> x, y = np.array([[-2.], [-1.], [1.], [2.]]), np.array(["low", "low", "high", "high"])
>>> Classifier(hidden_sizes=(), learning_rate=0.1, random_state=0).fit(x, y).predict([[-3.], [3.]])
array(['low', 'high'], dtype='<U4')
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import nn, optim
from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument
from ..namespaces.random import fork_rng
from ..nn import functional as F  # noqa: N812 - PyTorch's name
from ..ops.create.creation import tensor
from ..ops.create.ranges import arange
from ..ops.random.generators import default_generator, manual_seed
from ..ops.random.random import randint, randperm
from ..ops.shape.concatenation import cat

__all__ = ["Classifier", "Regressor"]

_ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU, "silu": nn.SiLU,
    "identity": nn.Identity,
}  # fmt: skip
_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adam": optim.Adam, "adamw": optim.AdamW, "sgd": optim.SGD, "rmsprop": optim.RMSprop,
}  # fmt: skip
_LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squared_error": F.mse_loss, "absolute_error": F.l1_loss, "huber": F.huber_loss,
}  # fmt: skip
_ROWS = 4096  # predicted at once: bounds the memory of a module's intermediate values


def _chosen(table: dict[str, Any], value: Any, name: str) -> Any:
    """The entry of that name in the table, or the callable that was passed instead of a name."""
    if callable(value):
        return value
    if value not in table:
        raise InvalidArgument(
            f"{name}: unknown {value!r}; known: {', '.join(table)}, or a callable"
        )
    return table[value]


@dataclass(eq=False, repr=False)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """Common base of both estimators: the module, and the loop that fits it."""

    module: Any = None
    _: KW_ONLY
    hidden_sizes: tuple[int, ...] = (100,)
    activation: Any = "relu"
    optimizer: Any = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    epochs: int = 200
    batch_size: int = 128
    shuffle: bool = True
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 10
    tol: float = 1e-4
    random_state: Any = None
    device: Any = None

    _stream: Any = field(
        init=False
    )  # the state of this estimator's random numbers after what it did last

    # ---- what the two kinds define ---------------------------------------------------------------

    def _validated(self, x: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        """The data as arrays, with targets in the form that `_loss` takes; also sets what is learnt
        from the targets.
        """
        raise NotImplementedError

    def _n_outputs(self) -> int:
        raise NotImplementedError

    def _loss(self, outputs: Any, targets: Any) -> Any:
        raise NotImplementedError

    def _split(self, x: Any, y: Any, random_state: int) -> Any:
        """Rows to fit, rows to validate with, and the targets of both."""
        return train_test_split(x, y, test_size=self.validation_fraction, random_state=random_state)

    # ---- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Any:
        """Fit a new module to rows X and their targets y.

        Stops after `epochs` passes, or when `patience` of them in a row did not better the best
        loss by `tol`. With `early_stopping`, it is the loss on a held-out `validation_fraction` of
        the rows, and the best module is kept.

        Errors: ValueError for data that scikit-learn refuses (NaN, infinities, wrong shapes) and
        for arguments out of range.
        """
        self._check_arguments()
        x, targets = self._validated(X, y, reset=True)
        with self._randomness(afresh=True):
            if self.early_stopping:
                parts = self._split(x, targets, int(randint(2**31, (1,)).item()))
                x, x_held, targets, y_held = (tensor(part, device=self.device) for part in parts)
                held: Any = (x_held, y_held)
            else:
                x, targets = tensor(x, device=self.device), tensor(targets, device=self.device)
                held = None
            self._start(x)
            self._repeat(x, targets, held)
        return self

    def _partial_fit(self, X: Any, y: Any, first: bool) -> Any:
        """One more pass over a part of the data."""
        self._check_arguments()
        x, targets = (tensor(a, device=self.device) for a in self._validated(X, y, reset=first))
        with self._randomness(afresh=first):
            if first:
                self._start(x)
            self._pass(x, targets)
        return self

    def _check_arguments(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.validation_fraction < 1:
            raise InvalidArgument(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction}"
            )

    @contextlib.contextmanager
    def _randomness(self, afresh: bool) -> Iterator[None]:
        """Context manager: draw from this estimator's own stream, and leave the program's generator
        as it was.
        """
        with fork_rng():
            if afresh:
                manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))
            else:
                default_generator.set_state(self._stream)
            yield
            self._stream = default_generator.get_state()

    def _build(self, n_features: int) -> Any:
        """The module to fit: a copy of the given module, the result of the given function, or a
        perceptron with the hidden sizes.
        """
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        if self.module is not None:
            return self.module(n_features, self._n_outputs())
        activation = _chosen(_ACTIVATIONS, self.activation, "activation")
        layers: list[Any] = []
        size = n_features
        for width in self.hidden_sizes:
            layers += [nn.Linear(size, width), activation()]
            size = width
        return nn.Sequential(*layers, nn.Linear(size, self._n_outputs()))

    def _start(self, x: Any) -> None:
        """Make a new module and optimizer."""
        self.module_ = self._build(x.shape[1]).to(x.dtype).to(x.device)
        make = _chosen(_OPTIMIZERS, self.optimizer, "optimizer")
        options = {"weight_decay": self.weight_decay} if self.weight_decay else {}
        self.optimizer_ = make(self.module_.parameters(), lr=self.learning_rate, **options)
        self.loss_curve_: list[float] = []
        self.validation_curve_: list[float] = []
        self.n_epochs_ = 0

    def _repeat(self, x: Any, y: Any, held: Any) -> None:
        """Passes over the data until one of the reasons to stop."""
        best, since, kept = math.inf, 0, None
        for _ in range(self.epochs):
            loss = self._pass(x, y)
            if held is not None:
                with no_grad():
                    loss = self._loss(self._outputs(held[0]), held[1]).item()
                self.validation_curve_.append(loss)
            since = 0 if loss < best - self.tol else since + 1
            if loss < best:
                best = loss
                if held is not None:
                    kept = copy.deepcopy(self.module_.state_dict())
            if since >= self.patience:
                break
        if kept is not None:
            self.module_.load_state_dict(kept)

    def _pass(self, x: Any, y: Any) -> float:
        """One pass over the data; the mean loss."""
        self.module_.train()
        n = x.shape[0]
        order = randperm(n) if self.shuffle else arange(n)
        total = 0.0
        for rows in order.split(self.batch_size):
            self.optimizer_.zero_grad()
            loss = self._loss(self.module_(x[rows]), y[rows])
            loss.backward()
            self.optimizer_.step()
            total += loss.item() * len(rows)
        self.n_epochs_ += 1
        mean = float(total / n)
        self.loss_curve_.append(mean)
        return mean

    # ---- predicting ------------------------------------------------------------------------------

    def _outputs(self, x: Any) -> Any:
        """The module's outputs for rows, without gradients."""
        self.module_.eval()
        with no_grad():
            return cat([self.module_(rows) for rows in x.split(_ROWS)])

    def _predicted(self, X: Any) -> Any:
        """The module's outputs for checked rows."""
        check_is_fitted(self)
        parameters = list(self.module_.parameters())
        dtypes = [np.float64, np.float32]
        x = validate_data(self, X, reset=False, dtype=dtypes)
        dtype = parameters[0].dtype if parameters else None
        return self._outputs(tensor(x, dtype=dtype, device=self.device))


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A scikit-learn classifier: a module whose outputs are one logit per class, fitted by cross
    entropy.

    `module` is a module (it is copied), a function (number of features, number of classes) -> one,
    or None for a perceptron with `hidden_sizes` and `activation`. `optimizer` is "adam", "adamw",
    "sgd", "rmsprop" or a function (parameters, lr=) -> one. After `fit` there are `module_`,
    `classes_`, `loss_curve_`, `validation_curve_` and `n_epochs_`. Computes in the dtype of the
    data, float32 or float64. `random_state` decides initial values, order and dropout.

    Errors: ValueError for targets that are no classes, and those of `fit`.
    Source: https://scikit-learn.org/stable/developers/develop.html

    >>> from adjoint.sklearn import Classifier
    >>> x, y = np.array([[0.], [1.], [2.], [3.]]), [0, 0, 1, 1]
    >>> Classifier(epochs=300, learning_rate=0.01, random_state=0).fit(x, y).score(x, y)
    1.0
    """

    def _validated(self, x: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        x, y = validate_data(self, x, y, reset=reset, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        if reset and not hasattr(self, "_announced"):
            self.classes_ = unique_labels(y)
        elif reset:
            self.classes_ = self._announced
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InvalidArgument(f"partial_fit: {unknown[:5]} are not among the classes announced")
        return x, np.searchsorted(self.classes_, y)

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _loss(self, outputs: Any, targets: Any) -> Any:
        return F.cross_entropy(outputs, targets)

    def _split(self, x: Any, y: Any, random_state: int) -> Any:
        counts = np.bincount(y)
        held = int(np.ceil(len(y) * self.validation_fraction))
        stratified = counts.min() > 1 and min(held, len(y) - held) >= len(counts)
        return train_test_split(
            x, y, test_size=self.validation_fraction, random_state=random_state,
            stratify=y if stratified else None,
        )  # fmt: skip

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """One pass over a part of the data; the first call names all classes.

        Errors: ValueError where the first call does not, and for a class that was not named.

        >>> from adjoint.sklearn import Classifier
        >>> model = Classifier(random_state=0).partial_fit([[0.], [1.]], [0, 1], classes=[0, 1, 2])
        >>> model.predict_proba([[0.]]).shape
        (1, 3)
        """
        first = not hasattr(self, "module_")
        if first and classes is None:
            raise InvalidArgument("partial_fit: the first call must name all classes")
        if classes is None:
            return self._partial_fit(X, y, first)
        announced = unique_labels(classes)
        if not first and not np.array_equal(announced, self.classes_):
            raise InvalidArgument(
                f"partial_fit: classes {announced} differ from those of the first call, "
                f"{self.classes_}"
            )
        self._announced = announced
        try:
            return self._partial_fit(X, y, first)
        finally:
            del self._announced

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, in the order of `classes_`.

        Shapes: (rows, features) gives (rows, classes).

        >>> from adjoint.sklearn import Classifier
        >>> model = Classifier(epochs=1).fit([[0.], [1.]], ["a", "b"])
        >>> model.predict_proba([[0.], [1.]]).sum(axis=1).round(6)
        array([1., 1.])
        """
        return F.softmax(self._predicted(X), -1).cpu().numpy()

    def predict(self, X: Any) -> Any:
        """The most probable class of each row.

        Shapes: (rows, features) gives (rows,).

        >>> from adjoint.sklearn import Classifier
        >>> Classifier(epochs=1).fit([[0.], [1.]], ["a", "a"]).predict([[5.]])
        array(['a'], dtype='<U1')
        """
        places = self._predicted(X).argmax(-1).cpu().numpy()
        return self.classes_[places]


@dataclass(eq=False, repr=False)
class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A scikit-learn regressor: a module whose outputs are the targets, one or several per row.

    `loss` is "squared_error", "absolute_error", "huber" or a function (outputs, targets) -> one
    number; the other arguments are those of `Classifier`.

    Errors: those of `fit`.
    Source: https://scikit-learn.org/stable/developers/develop.html

    >>> from adjoint.sklearn import Regressor
    >>> x = np.linspace(0, 1, 50)[:, None]
    >>> model = Regressor(epochs=500, patience=100, random_state=0).fit(x, 3 * x[:, 0])
    >>> model.predict([[0.5]]).round(1)
    array([1.5])
    """

    loss: Any = field(default="squared_error", kw_only=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _validated(self, x: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        x, y = validate_data(
            self, x, y, reset=reset, dtype=[np.float64, np.float32], multi_output=True,
            y_numeric=True,
        )  # fmt: skip
        if reset:
            self._shape = y.shape[1:]
        elif y.shape[1:] != self._shape:
            raise InvalidArgument(
                f"partial_fit: targets of shape {y.shape[1:]} a row, not {self._shape}"
            )
        return x, y.reshape(len(y), -1).astype(x.dtype)

    def _n_outputs(self) -> int:
        return math.prod(self._shape)

    def _loss(self, outputs: Any, targets: Any) -> Any:
        function = _chosen(_LOSSES, self.loss, "loss")
        return function(outputs.reshape(targets.shape), targets)

    def partial_fit(self, X: Any, y: Any) -> Any:
        """One pass over a part of the data.

        Errors: those of `fit`.

        >>> from adjoint.sklearn import Regressor
        >>> Regressor(random_state=0).partial_fit([[0.], [1.]], [0., 1.]).n_epochs_
        1
        """
        return self._partial_fit(X, y, first=not hasattr(self, "module_"))

    def predict(self, X: Any) -> Any:
        """The targets of each row, in the shape that `fit` was given.

        Shapes: (rows, features) gives (rows,) or (rows, targets).

        >>> from adjoint.sklearn import Regressor
        >>> Regressor(epochs=1).fit([[0.], [1.]], [[1., 2.], [3., 4.]]).predict([[5.]]).shape
        (1, 2)
        """
        outputs = self._predicted(X)
        return outputs.reshape(len(outputs), *self._shape).cpu().numpy()
