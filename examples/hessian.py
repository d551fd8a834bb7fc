"""A Hessian at work: Newton's method, then Laplace's approximation around the optimum.

Logistic regression of breast cancer on 30 measured features. Newton's method reaches the optimum
to the last digits of float64 in ten steps. There the inverse Hessian is the covariance of the
weights (Laplace), which gives each weight's uncertainty.

Expected: gradient norm at most 1e-10
Run: python examples/hessian.py
"""

import os

from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 10


def load():
    x, y = load_breast_cancer(return_X_y=True)
    return torch.from_numpy(scale(x)), torch.from_numpy(y).double()


def build_model():
    model = nn.Linear(30, 1).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def objective(weights):
    """Minus the logarithm of the posterior: a standard normal prior on 30 weights and a bias."""
    x, y = load()
    logits = x @ weights[:30] + weights[30]
    return F.binary_cross_entropy_with_logits(logits, y, reduction="sum") + weights.dot(weights) / 2


def gradient_of(weights):
    weights = weights.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(weights), weights)
    return gradient


def train(model, steps):
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    losses = []
    for _ in range(steps):
        losses.append(objective(weights).item())
        hessian = torch.autograd.functional.hessian(objective, weights)
        weights = weights - torch.linalg.solve(hessian, gradient_of(weights))
    nn.utils.vector_to_parameters(weights, model.parameters())
    return losses


def main():
    model = build_model()
    for step, loss in enumerate(train(model, STEPS)):
        print(f"step {step}: {loss:.10f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    covariance = torch.linalg.inv(torch.autograd.functional.hessian(objective, weights))
    names = load_breast_cancer().feature_names
    deviations = covariance.diagonal().sqrt()
    for i in weights[:30].abs().argsort(descending=True)[:5].tolist():
        print(f"{names[i]:20} {weights[i].item():+.2f} +- {deviations[i].item():.2f}")
    print(f"gradient norm: {gradient_of(weights).norm().item():.1e}")


if __name__ == "__main__":
    main()
