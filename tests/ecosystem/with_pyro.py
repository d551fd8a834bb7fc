"""pyro: SVI, NUTS, HMC, enumeration, predictive; noise is given, where values are compared."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from common import data
from pyro.infer import (
    HMC,
    MCMC,
    NUTS,
    SVI,
    Predictive,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceMeanField_ELBO,
)
from pyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation, AutoNormal

X = data(30)
Y = 2 * X + 1 + 0.1 * data(30, seed=1)


def regression(x=X, y=Y):
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    shift = pyro.sample("shift", dist.Normal(0.0, 10.0))
    size = pyro.sample("size", dist.HalfNormal(1.0))
    with pyro.plate("points", len(x)):
        return pyro.sample("y", dist.Normal(slope * x + shift, size), obs=y)


def _fresh():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


def case_svi_of_points():
    _fresh()
    svi = SVI(
        regression,
        AutoDelta(regression, init_loc_fn=lambda site: torch.ones(())),
        pyro.optim.Adam({"lr": 0.05}),
        Trace_ELBO(),
    )
    losses = [svi.step() for _ in range(20)]
    return [losses[::5], dict(pyro.get_param_store().items())]


def case_svi_of_normals():
    _fresh()
    guide = AutoNormal(regression)
    svi = SVI(regression, guide, pyro.optim.ClippedAdam({"lr": 0.05}), TraceMeanField_ELBO())
    losses = [svi.step() for _ in range(400)]
    middle = guide.median()
    near = abs(float(middle["slope"]) - 2) < 0.2 and abs(float(middle["shift"]) - 1) < 0.2
    drawn = Predictive(regression, guide=guide, num_samples=7)(X, None)["y"]
    return [losses[-1] < losses[0], near, list(drawn.shape)]


def case_nuts():
    _fresh()
    mcmc = MCMC(NUTS(regression), num_samples=60, warmup_steps=60, disable_progbar=True)
    mcmc.run()
    found = mcmc.get_samples()
    return [
        abs(float(found["slope"].mean()) - 2) < 0.1,
        abs(float(found["shift"].mean()) - 1) < 0.1,
    ]


def case_hmc():
    _fresh()
    kernel = HMC(regression, step_size=0.02, num_steps=5, adapt_step_size=True)
    mcmc = MCMC(kernel, num_samples=50, warmup_steps=80, disable_progbar=True)
    mcmc.run()
    return abs(float(mcmc.get_samples()["slope"].mean()) - 2) < 0.2


def case_enumeration():
    _fresh()
    points = torch.cat([data(10) - 3, data(10, seed=1) + 3])

    @pyro.infer.config_enumerate
    def mixture():
        weight = pyro.param("weight", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
        places = pyro.param("places", torch.tensor([-1.0, 1.5]))
        with pyro.plate("points", len(points)):
            which = pyro.sample("which", dist.Categorical(weight))
            pyro.sample("x", dist.Normal(places[which], 1.0), obs=points)

    svi = SVI(
        mixture, lambda: None, pyro.optim.Adam({"lr": 0.1}), TraceEnum_ELBO(max_plate_nesting=1)
    )
    losses = [svi.step() for _ in range(10)]
    return [losses, pyro.param("places"), pyro.param("weight")]


def case_laplace():
    _fresh()
    guide = AutoLaplaceApproximation(regression, init_loc_fn=lambda site: torch.ones(()))
    svi = SVI(regression, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    return [svi.step() for _ in range(5)]


def case_log_densities():
    trace = pyro.poutine.trace(
        pyro.poutine.condition(
            regression,
            {"slope": torch.tensor(1.5), "shift": torch.tensor(0.5), "size": torch.tensor(0.7)},
        )
    ).get_trace()
    x = data(5, 3)
    return [
        trace.log_prob_sum(),
        dist.MultivariateNormal(torch.zeros(3), torch.eye(3) * 2).log_prob(x),
        dist.Dirichlet(torch.ones(3)).log_prob(x.softmax(-1)),
        dist.ZeroInflatedPoisson(torch.tensor(2.0), gate=torch.tensor(0.2)).log_prob(
            torch.tensor([0.0, 3.0])
        ),
        dist.VonMises(0.0, 2.0).log_prob(x),
        dist.Stable(1.5, 0.0).has_rsample,
        dist.MaskedMixture(x > 0, dist.Normal(0.0, 1.0), dist.Normal(1.0, 2.0)).log_prob(x),
    ]
