"""adjoint.sklearn: scikit-learn's own checks, and what they do not look at."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from adjoint.sklearn import Classifier, Regressor

# The defaults pass too; fewer epochs take a third of the time.
CHECKED = [
    Classifier(epochs=60),
    Regressor(epochs=60, learning_rate=3e-3),
    Classifier(epochs=40, early_stopping=True),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


IRIS = load_iris(return_X_y=True)


def small(**options):
    return Classifier(**({"epochs": 60, "learning_rate": 0.02, "random_state": 0} | options))


def test_classes_of_flowers_in_a_pipeline_and_by_cross_validation():
    model = make_pipeline(StandardScaler(), small())
    assert cross_val_score(model, *IRIS, cv=3).mean() > 0.93
    names = np.array(["setosa", "versicolor", "virginica"])[IRIS[1]]
    fitted = model.fit(IRIS[0], names)
    assert fitted.score(IRIS[0], names) > 0.95
    assert fitted.predict_proba(IRIS[0][:5]).shape == (5, 3)


def test_grid_search_sets_the_arguments():
    grid = {"hidden_sizes": [(), (8,)], "optimizer": ["sgd", "adam"]}
    search = GridSearchCV(small(epochs=10), grid, cv=2).fit(*IRIS)
    assert set(search.best_params_) == {"hidden_sizes", "optimizer"}
    assert search.best_score_ > 0.6


def test_a_line_is_found():
    x, y = make_regression(200, 5, random_state=0)
    y = (y - y.mean()) / y.std()
    model = Regressor(hidden_sizes=(), learning_rate=0.05, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.999


def test_several_targets_and_float32():
    x, y = make_regression(100, 4, n_targets=3, random_state=0)
    model = Regressor(epochs=3, random_state=0).fit(x.astype(np.float32), y)
    assert model.module_[0].weight.dtype is ad.float32
    assert model.predict(x).shape == (100, 3)
    assert model.predict(x).dtype == np.float32


@pytest.mark.parametrize("loss", ["absolute_error", "huber", lambda a, b: ((a - b) ** 4).mean()])
def test_losses(loss):
    x = np.linspace(-1, 1, 40)[:, None]
    model = Regressor(loss=loss, hidden_sizes=(), learning_rate=0.05, random_state=0)
    assert model.fit(x, 2 * x[:, 0]).score(x, 2 * x[:, 0]) > 0.9


def test_module_given_is_copied_and_one_made_by_a_function_is_used():
    module = ad.nn.Sequential(ad.nn.Linear(4, 5), ad.nn.Dropout(0.2), ad.nn.Linear(5, 3))
    before = module[0].weight.tolist()
    given = small(module=module, epochs=2).fit(*IRIS)
    assert module[0].weight.tolist() == before
    assert given.module_[0].weight.shape == (5, 4)
    made = small(module=lambda n, k: ad.nn.Linear(n, k), epochs=2).fit(*IRIS)
    assert isinstance(made.module_, ad.nn.Linear)
    assert isinstance(clone(given).module, ad.nn.Sequential)


def test_random_state_decides_everything_and_the_programs_own_numbers_are_left_alone():
    dropout = ad.nn.Sequential(ad.nn.Linear(4, 5), ad.nn.Dropout(0.5), ad.nn.Linear(5, 3))
    ad.manual_seed(0)
    first = small(module=dropout, epochs=3).fit(*IRIS)
    drawn = ad.rand(3)
    second = small(module=dropout, epochs=3).fit(*IRIS)
    assert first.loss_curve_ == second.loss_curve_
    assert (
        small(module=dropout, epochs=3, random_state=1).fit(*IRIS).loss_curve_ != first.loss_curve_
    )
    ad.manual_seed(0)
    assert drawn.equal(ad.rand(3))


def test_early_stopping_keeps_the_best_module():
    model = small(early_stopping=True, patience=2, epochs=200, learning_rate=0.3).fit(*IRIS)
    assert model.n_epochs_ == len(model.validation_curve_) < 200
    held = model._split(*IRIS, 0)
    assert len(held[1]) == 15
    assert np.bincount(held[3]).tolist() == [5, 5, 5]
    best = int(np.argmin(model.validation_curve_))
    assert best >= model.n_epochs_ - 3


def test_training_stops_where_the_loss_does_not_change():
    x = np.zeros((10, 1))
    assert Regressor(random_state=0, learning_rate=0.1, tol=1e-3).fit(x, x[:, 0]).n_epochs_ < 100


def test_partial_fit_goes_on_where_it_was():
    whole = small(epochs=3, shuffle=True, tol=-1.0).fit(*IRIS)
    parts = small()
    for _ in range(3):
        parts.partial_fit(*IRIS, classes=[0, 1, 2])
    np.testing.assert_allclose(parts.loss_curve_, whole.loss_curve_)
    with pytest.raises(ValueError, match="first call must name"):
        small().partial_fit(*IRIS)
    with pytest.raises(ValueError, match="differ from those"):
        parts.partial_fit(*IRIS, classes=[0, 1])
    with pytest.raises(ValueError, match="not among"):
        parts.partial_fit(IRIS[0], IRIS[1] + 1)
    regressor = Regressor().partial_fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="targets of shape"):
        regressor.partial_fit([[0.0], [1.0]], [[0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"validation_fraction": 1.5}, "between 0 and 1"),
        ({"optimizer": "newton"}, "optimizer: unknown 'newton'; known: adam"),
        ({"activation": "step"}, "activation: unknown 'step'"),
    ],
)
def test_arguments_out_of_range(options, words):
    with pytest.raises(ValueError, match=words):
        small(**options).fit(*IRIS)


def test_weight_decay_and_a_function_for_the_optimizer():
    free, bound = small(epochs=30).fit(*IRIS), small(epochs=30, weight_decay=1.0).fit(*IRIS)
    assert bound.module_[0].weight.norm().item() < free.module_[0].weight.norm().item()
    made = small(optimizer=lambda p, lr: ad.optim.SGD(p, lr=lr, momentum=0.9), epochs=1).fit(*IRIS)
    assert made.optimizer_.param_groups[0]["momentum"] == 0.9


def test_pipeline_of_ours_predicts_tensors_too():
    model = small(epochs=1).fit(ad.tensor(IRIS[0]), ad.tensor(IRIS[1]))
    assert model.predict(ad.tensor(IRIS[0])).shape == (150,)
