"""gpytorch: exact, sparse and approximate Gaussian processes; kernels."""

from __future__ import annotations

import gpytorch as gp
import torch
from common import data, fill, told, train


class Exact(gp.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gp.means.ConstantMean(), kernel

    def forward(self, x):
        return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


X = torch.linspace(0, 1, 20)[:, None]
Y = torch.sin(6 * X[:, 0]) + 0.1 * data(20)


def _exact(kernel):
    likelihood = gp.likelihoods.GaussianLikelihood()
    model = Exact(X, Y, likelihood, kernel)
    mll = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    found = train(
        model, lambda: -mll(model(X), Y), optimizer=torch.optim.Adam(model.parameters(), 0.1)
    )
    model.eval(), likelihood.eval()
    with torch.no_grad(), gp.settings.fast_pred_var():
        out = likelihood(model(X[::3] + 0.02))
    return [found, told(out.mean), told(out.variance), out.confidence_region()]


def case_exact():
    return _exact(gp.kernels.ScaleKernel(gp.kernels.RBFKernel()))


def case_kernels():
    k = gp.kernels
    return [
        _exact(k.ScaleKernel(kernel))
        for kernel in (k.MaternKernel(1.5), k.PeriodicKernel() + k.LinearKernel(), k.RQKernel())
    ]


class Sparse(gp.models.ApproximateGP):
    def __init__(self, points):
        held = gp.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gp.variational.VariationalStrategy(self, points, held))
        self.mean_module = gp.means.ConstantMean()
        self.covar_module = gp.kernels.ScaleKernel(gp.kernels.RBFKernel())

    def forward(self, x):
        return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def case_variational():
    found = []
    for likelihood, y in (
        (gp.likelihoods.GaussianLikelihood(), Y),
        (gp.likelihoods.BernoulliLikelihood(), (Y > 0).float()),
    ):
        model = Sparse(X[::4].clone())
        model.variational_strategy.variational_params_initialized.fill_(1)
        mll = gp.mlls.VariationalELBO(likelihood, model, num_data=20)
        model.train()
        optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], 0.05)
        found.append(train(model, lambda: -mll(model(X), y), optimizer=optimizer))  # noqa: B023
    return found


def case_deep_kernel():
    net = fill(torch.nn.Sequential(torch.nn.Linear(1, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)))

    class Deep(Exact):
        def forward(self, x):
            return super().forward(net(x))

    likelihood = gp.likelihoods.GaussianLikelihood()
    model = Deep(X, Y, likelihood, gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=2)))
    mll = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return train(model.train(), lambda: -mll(model(X), Y))
