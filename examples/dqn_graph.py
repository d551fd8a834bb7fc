"""Deep Q-learning on CartPole in the steps of a graph, with a target network and a replay memory.

A network learns what each action is worth from remembered steps. What it learns towards is computed
under `no_grad` by a copy of it as it was when the round began, `copy.deepcopy` (Mnih et al., 2015,
"Human-level control through deep reinforcement learning"), for the action that the network itself
finds best (van Hasselt et al., 2016). Weights and memory are written in place all the time, and the
copy must not follow: in `graph.step()` all numbers are those of eager execution.

Expected: mean return at least 475
Run: python examples/dqn_graph.py
"""

import copy
import os

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from interleaved import in_steps

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
ROUNDS, EPISODES = (4, 2) if SMOKE else (200, 50)
POLES, MOVES = 8, 32  # that one round makes
UPDATES, BATCH = (8, 64) if SMOKE else (128, 64)
GAMMA = 0.99


class Memory:
    """The last steps of all poles: state, action, reward, whether the pole fell, next state."""

    def __init__(self, size):
        self.rows = ad.zeros(size, 11)
        self.written = 0

    def add(self, rows):
        places = (self.written + ad.arange(len(rows))) % len(self.rows)
        self.rows[places] = rows
        self.written += len(rows)

    def draw(self, count):
        chosen = ad.randint(0, min(self.written, len(self.rows)), (count,))
        state, action, reward, fallen, following = self.rows[chosen].split((4, 1, 1, 1, 4), dim=1)
        return state, action.long(), reward, fallen, following


def build_model():
    hidden = [nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(128, 2))


def move(network, poles, observation, chance, memory):
    """One step of all poles, at random with this chance; it is remembered."""
    state = ad.from_numpy(observation)
    action = ad.where(ad.rand(POLES) < chance, ad.randint(0, 2, (POLES,)), network(state).argmax(1))
    observation, reward, fallen, timeout, _ = poles.step(action.numpy())
    numbers = [action.float(), ad.from_numpy(reward).float(), ad.from_numpy(fallen).float()]
    rows = ad.cat([state, ad.stack(numbers, 1), ad.from_numpy(observation)], 1)
    memory.add(rows[~ad.from_numpy(timeout)])  # what follows a timeout is another episode
    return observation


def loss_of(network, target, state, action, reward, fallen, following):
    """How far the network's values are from reward and what the target network expects then."""
    values = network(state).gather(1, action)
    with ad.no_grad():
        best = network(following).argmax(1, keepdim=True)
        wanted = reward + GAMMA * (1 - fallen) * target(following).gather(1, best)
    return F.smooth_l1_loss(values, wanted)


def train(block, rounds):
    """A network of values, and the losses of all its gradient steps."""
    ad.manual_seed(0)
    network, memory = build_model(), Memory(50_000)
    optimizer = ad.optim.Adam(network.parameters(), lr=2e-3)
    scheduler = ad.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 - i / rounds)
    poles = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * POLES, autoreset_mode=AutoresetMode.SAME_STEP
    )
    observation, _ = poles.reset(seed=0)
    losses = []
    for i in range(rounds):
        chance = max(0.04, 1 - 5 * i / rounds)
        with block(), ad.no_grad():
            for _ in range(MOVES):
                observation = move(network, poles, observation, chance, memory)
        target = copy.deepcopy(network)
        for _ in range(UPDATES):
            with block():
                loss = loss_of(network, target, *memory.draw(BATCH))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss)  # a plain value, whatever becomes of the weights
        scheduler.step()
    poles.close()
    return network, [loss.item() for loss in losses]


@ad.no_grad()
def mean_return(network, episodes):
    """The mean return of the actions that the network finds best."""
    pole = gymnasium.make("CartPole-v1")
    total = 0.0
    for episode in range(episodes):
        observation, _ = pole.reset(seed=1000 + episode)
        over = False
        while not over:
            action = network(ad.from_numpy(observation)).argmax().item()
            observation, reward, fallen, timeout, _ = pole.step(action)
            total += float(reward)
            over = fallen or timeout
    return total / episodes


def main():
    network = in_steps(train, ROUNDS, few=2 if SMOKE else 8)
    print(f"mean return: {mean_return(network, EPISODES):.1f}")


if __name__ == "__main__":
    main()
