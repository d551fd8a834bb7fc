"""skorch: a classifier, a regressor, inside scikit-learn's search."""

from __future__ import annotations

import numpy as np
import torch
from common import fill
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler
from torch import nn

R = np.random.default_rng(0)
X = R.standard_normal((80, 5)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)


class Net(nn.Module):
    def __init__(self, hidden=12, out=2):
        super().__init__()
        self.first, self.second = nn.Linear(5, hidden), nn.Linear(hidden, out)
        fill(self)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def _options(**more):
    return {"max_epochs": 6, "lr": 0.1, "verbose": 0, "iterator_train__shuffle": False, **more}


def case_classifier():
    net = NeuralNetClassifier(
        Net,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        **_options(lr=0.02),
        callbacks=[
            EpochScoring("roc_auc", lower_is_better=False),
            EarlyStopping(patience=20),
            LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=2),
        ],
    )
    net.fit(X, Y)
    return [
        net.history[:, "train_loss"],
        net.history[:, "valid_loss"],
        net.predict_proba(X),
        net.score(X, Y),
        net.history[-1, "roc_auc"],
    ]


def case_regressor():
    net = NeuralNetRegressor(Net, module__out=1, train_split=None, **_options())
    net.fit(X, X[:, :1] * 2)
    return [net.history[:, "train_loss"], net.predict(X)]


def case_search():
    net = NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, train_split=None, **_options())
    pipe = make_pipeline(StandardScaler(), net)
    search = GridSearchCV(pipe, {"neuralnetclassifier__module__hidden": [4, 12]}, cv=3)
    search.fit(X, Y)
    return [search.cv_results_["mean_test_score"], search.best_params_]


def case_saving(tmp="/tmp"):
    import pickle
    import tempfile

    net = NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, train_split=None, **_options())
    net.fit(X, Y)
    with tempfile.TemporaryDirectory() as folder:
        net.save_params(f_params=f"{folder}/p.pt", f_optimizer=f"{folder}/o.pt")
        other = NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, **_options()).initialize()
        other.load_params(f_params=f"{folder}/p.pt")
    again = pickle.loads(pickle.dumps(net))
    return [net.predict_proba(X), other.predict_proba(X), again.predict_proba(X)]
