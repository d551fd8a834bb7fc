"""Soft actor-critic (Haarnoja et al., 2018) swings up gymnasium's pendulum.

Two critics, of which the lower one counts, targets that follow them slowly, a policy of squashed
normal actions, and a temperature that is learnt so that the policy keeps its randomness. The
measure is the mean return of ten episodes with the policy's most likely actions; one that does
nothing gets -1200 or so.

Expected: mean return at least -200
Run: python examples/sac.py
"""

import copy
import os

import gymnasium
import numpy as np

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.distributions import Normal
from adjoint.utils.progress import progress

STEPS = 150 if os.environ.get("ADJOINT_SMOKE") else 6000
FIRST = 100 if os.environ.get("ADJOINT_SMOKE") else 500  # steps of chance, before it learns
EPISODES = 1 if os.environ.get("ADJOINT_SMOKE") else 10
BATCH, GAMMA, FOLLOW, FORCE = 128, 0.99, 0.01, 2.0


def network(inputs, outputs, width=64):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, outputs),
    )  # fmt: skip


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = network(3, 2)
        self.critics = nn.ModuleList([network(4, 1), network(4, 1)])
        self.temperature = nn.Parameter(torch.zeros(()))  # its logarithm

    def act(self, state):
        """An action between -1 and 1, and the logarithm of its density."""
        mean, spread = self.policy(state).chunk(2, dim=-1)
        chosen = Normal(mean, spread.clamp(-5, 2).exp())
        u = mean + chosen.scale * torch.randn(*mean.shape)
        return u.tanh(), chosen.log_prob(u) - 2 * (np.log(2) - u - F.softplus(-2 * u))

    def best(self, state):
        return self.policy(state)[..., :1].tanh()


def value(critics, state, action):
    """The lower one of two opinions."""
    both = torch.cat([state, action], dim=-1)
    return torch.minimum(*(critic(both) for critic in critics))


def build_model():
    return Agent()


def train(model, steps):
    targets = copy.deepcopy(model.critics)
    critic_optimizer = torch.optim.Adam(model.critics.parameters(), lr=1e-3)
    policy_optimizer = torch.optim.Adam(model.policy.parameters(), lr=1e-3)
    temperature_optimizer = torch.optim.Adam([model.temperature], lr=1e-3)
    memory = torch.zeros(steps, 8)  # state, action, reward, next state
    environment = gymnasium.make("Pendulum-v1")
    state, _ = environment.reset(seed=0)
    losses = []
    for step in progress(range(steps)):
        if step < min(FIRST, steps // 2):
            action = torch.randint(-100, 101, (1,)) / 100
        else:
            with torch.no_grad():
                action, _ = model.act(torch.tensor(state))
        following, reward, _, over, _ = environment.step(FORCE * action.numpy())
        row = np.concatenate([state, action.numpy(), [reward / 8], following])
        memory[step] = torch.tensor(row, dtype=torch.float32)
        state = environment.reset()[0] if over else following
        if step < min(FIRST, steps // 2):
            continue

        batch = memory[torch.randint(0, step + 1, (BATCH,))]
        now, action, reward, then = batch.split([3, 1, 1, 3], dim=1)
        alpha = model.temperature.detach().exp()
        with torch.no_grad():
            next_action, density = model.act(then)
            wanted = reward + GAMMA * (value(targets, then, next_action) - alpha * density)
        critic_optimizer.zero_grad()
        both = torch.cat([now, action], dim=1)
        loss = sum(F.mse_loss(critic(both), wanted) for critic in model.critics)
        loss.backward()
        critic_optimizer.step()

        action, density = model.act(now)
        policy_optimizer.zero_grad()
        (alpha * density - value(model.critics, now, action)).mean().backward()
        policy_optimizer.step()

        temperature_optimizer.zero_grad()
        (-model.temperature * (density.detach() - 1).mean()).backward()  # entropy at least -1
        temperature_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), model.critics.parameters(), strict=True):
                slow.lerp_(fast, FOLLOW)
        losses.append(loss.item())
    return losses


@torch.no_grad()
def play(model, episodes):
    """The mean return."""
    environment, total = gymnasium.make("Pendulum-v1"), 0.0
    for episode in range(episodes):
        state, _ = environment.reset(seed=1000 + episode)
        over = False
        while not over:
            action = FORCE * model.best(torch.tensor(state)).numpy()
            state, reward, _, over, _ = environment.step(action)
            total += reward
    return total / episodes


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    print(f"mean return: {play(model, EPISODES):.1f}")


if __name__ == "__main__":
    main()
