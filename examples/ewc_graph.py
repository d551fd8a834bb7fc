"""Elastic weight consolidation in the steps of a graph: learn a second task, keep the first.

A network learns digits, and then digits whose pixels are in another order. Trained on these alone
it forgets the first task. Here each weight is held back to what it was, by how much it mattered
then: by its Fisher information, the mean square of the gradient of an answer's log probability
(Kirkpatrick et al., 2017, "Overcoming catastrophic forgetting in neural networks"). The old weights
and their information are values of the moment in which the first task was learnt, clones of what
goes on changing. In `graph.step()` they stay so, and all numbers are those of eager execution.

Expected: accuracy on the first task at least 0.9
Run: python examples/ewc_graph.py
"""

import contextlib
import os

from interleaved import in_steps
from sklearn.datasets import load_digits

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

SEED = 0
SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
EPOCHS = 1 if SMOKE else 20
SAMPLES = 20 if SMOKE else 500  # of which information is the mean
STRENGTH = 3000.0


def load():
    """Both tasks: for each, inputs and labels to train with, and every fourth to test with."""
    data = load_digits()
    images, labels = ad.from_numpy(data.data / 16).float(), ad.from_numpy(data.target)
    order = ad.randperm(64, generator=ad.Generator().manual_seed(1))
    test = ad.arange(len(images)) % 4 == 0
    return [(x[~test], labels[~test], x[test], labels[test]) for x in (images, images[:, order])]


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def learn(block, model, x, y, epochs, penalty=None):
    """Train on one task; returns the losses."""
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(epochs):
        for chosen in ad.randperm(len(x)).split(64):
            with block():
                loss = F.cross_entropy(model(x[chosen]), y[chosen])
                if penalty is not None:
                    loss = loss + penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)  # a plain value, whatever becomes of the weights
    return losses


def information(block, model, x):
    """The mean squares of gradients, for each parameter, of answers that the model itself draws."""
    parameters = list(model.parameters())
    found = [ad.zeros_like(p) for p in parameters]
    for i in ad.randperm(len(x))[:SAMPLES].split(1):
        with block():
            log_probs = F.log_softmax(model(x[i]), 1)
            answer = ad.multinomial(log_probs.detach().exp(), 1).squeeze(1)
            gradients = ad.autograd.grad(F.nll_loss(log_probs, answer), parameters)
            for total, gradient in zip(found, gradients, strict=True):
                total += gradient.square() / SAMPLES
    return found


def holding_back(model, importance):
    """What it costs a model to leave the weights that it has now."""
    anchor = [p.detach().clone() for p in model.parameters()]

    def penalty(model):
        terms = zip(importance, model.parameters(), anchor, strict=True)
        return STRENGTH / 2 * sum((f * (p - old).square()).sum() for f, p, old in terms)

    return penalty


def train(block, epochs, held=True):
    """A model that learnt the first task and then the second, and its losses in both."""
    ad.manual_seed(SEED)
    first, second = load()
    model = build_model()
    losses = learn(block, model, *first[:2], epochs)
    penalty = None
    if held:
        penalty = holding_back(model, information(block, model, first[0]))
    losses += learn(block, model, *second[:2], epochs, penalty)
    return model, [loss.item() for loss in losses]


@ad.no_grad()
def accuracies(model):
    """The shares of right answers to the tests of both tasks."""
    return [(model(x).argmax(1) == y).float().mean().item() for _, _, x, y in load()]


def main():
    model = in_steps(train, EPOCHS, few=1)
    free, _ = train(contextlib.nullcontext, EPOCHS, held=False)
    print("without the penalty, first and second task: {:.4f} {:.4f}".format(*accuracies(free)))
    first, second = accuracies(model)
    print(f"accuracy on the first task: {first:.4f}")
    print(f"accuracy on the second task: {second:.4f}")


if __name__ == "__main__":
    main()
