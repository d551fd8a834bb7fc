"""Truncated back-propagation through time on a graph that is recorded once.

A recurrent network (a GRU; Cho et al., 2014) predicts a signal one step ahead. A window of 20 steps
is recorded as nodes. For each further window its values are set, and so is the initial state: to
the final state of the window before, as a value without history, where the gradient ends. Losses
equal those of the eager program, which carries `state.detach()`.

Expected: last loss at most 0.02
Run: python examples/tbptt.py
"""

import math
import os

from interleaved import gain

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

WINDOWS = 4 if os.environ.get("ADJOINT_SMOKE") else 400
LENGTH, ROWS, HIDDEN = 20, 8, 16


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(1, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, window: ad.Tensor, state: ad.Tensor) -> tuple[ad.Tensor, ad.Tensor]:
        """The loss of one window of shape (LENGTH + 1, ROWS), and the state after it."""
        predictions: list[ad.Tensor] = []
        for x in window[:-1].unbind(0):
            state = self.cell(x[:, None], state)
            predictions.append(self.out(state)[:, 0])
        return F.mse_loss(ad.stack(predictions), window[1:]), state


def signal(number):
    """Window `number` of rows that each mix two waves; consecutive windows share one value."""
    t = number * LENGTH + ad.arange(LENGTH + 1)[:, None]
    row = ad.arange(ROWS)
    wave = ad.sin(2 * math.pi * t / (7 + row)) + ad.sin(2 * math.pi * t / (17 + row))
    return wave / 2


class Eager:
    """Records every window anew, and cuts the state off from its history."""

    def __init__(self):
        ad.manual_seed(0)
        self.model = Predictor()
        self.optimizer = ad.optim.Adam(self.model.parameters(), lr=1e-2)
        self.state = ad.zeros(ROWS, HIDDEN)

    def learn(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def step(self, window):
        """Learn from one window; returns its loss."""
        loss, state = self.model(window, self.state)
        self.state = state.detach()
        self.learn(loss)
        return loss.item()


class Reactive(Eager):
    """Records one window; further ones are set."""

    def __init__(self):
        super().__init__()
        self.graph = ad.Graph()
        self.window = self.graph.input((LENGTH + 1, ROWS), "window")
        self.initial = self.graph.input(self.state, "state")
        with self.graph:
            self.loss, self.final = self.model(self.window, self.initial)

    def step(self, window):
        """Learn from one window; returns its loss."""
        self.initial.set(self.state)
        self.window.set(window)
        loss = self.loss.item()
        self.state = self.final.detach().numpy()
        self.learn(self.loss)
        return loss


def main():
    eager, reactive = Eager(), Reactive()
    largest = 0.0
    for number in range(WINDOWS):
        window = signal(number)
        losses = eager.step(window), reactive.step(window)
        largest = max(largest, abs(losses[0] - losses[1]))
        if number % 100 == 0:
            print(f"window {number}: loss {losses[1]:.4f}")
    stats = reactive.graph.stats()
    print(f"{stats['nodes']} nodes and {stats['plans']} backward pass, recorded once")
    print(f"largest difference from eager: {largest:.1e}")
    print(f"last loss: {losses[1]:.4f}")
    print(f"gain over eager: {gain(lambda: reactive.step(window), lambda: eager.step(window)):.2f}")


if __name__ == "__main__":
    main()
