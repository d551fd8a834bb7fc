"""Actor-critic on CartPole: a policy learns to balance a pole, a critic to expect its return.

Eight poles are balanced at once. After every 16 steps the advantages are estimated backward in
time (Schulman et al., 2016) and one gradient step is made for actor and critic together
(Mnih et al., 2016). An episode's return is the number of steps the pole stays up, at most 500.

Expected: mean return at least 475
Run: python examples/actor_critic.py
"""

import os

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 1500
POLES = 8
HORIZON = 16
GAMMA, LAMBDA = 0.99, 0.95


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observation):
        log_policy = F.log_softmax(self.actor(observation), dim=-1)
        return log_policy, self.critic(observation).squeeze(-1)


def build_model():
    return ActorCritic()


@torch.no_grad()
def advantages_of(rewards, values, ends, last_value):
    """Generalized advantage estimates, from the last step to the first."""
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(last_value)
    for t in reversed(range(len(rewards))):
        going_on = 1 - ends[t]
        surprise = rewards[t] + GAMMA * going_on * last_value - values[t]
        following = surprise + GAMMA * LAMBDA * going_on * following
        advantages[t] = following
        last_value = values[t]
    return advantages


def train(model, steps):
    poles = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * POLES, autoreset_mode=AutoresetMode.SAME_STEP
    )
    observation, _ = poles.reset(seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    for _ in progress(range(steps)):
        log_probs, entropies, values, rewards, ends = [], [], [], [], []
        for _ in range(HORIZON):
            log_policy, value = model(torch.from_numpy(observation))
            policy = log_policy.detach().exp()
            action = torch.multinomial(policy, 1)
            observation, reward, fallen, timeout, _ = poles.step(action.squeeze(1).numpy())
            log_probs.append(log_policy.gather(1, action).squeeze(1))
            entropies.append(-(log_policy.exp() * log_policy).sum(1))
            values.append(value)
            rewards.append(torch.from_numpy(reward).float())
            ends.append(torch.from_numpy(fallen | timeout).float())

        with torch.no_grad():
            _, last_value = model(torch.from_numpy(observation))
        values = torch.stack(values)
        advantages = advantages_of(torch.stack(rewards), values, torch.stack(ends), last_value)
        returns = advantages + values.detach()
        weight = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

        actor_loss = -(torch.stack(log_probs) * weight).mean()
        critic_loss = F.mse_loss(values / 10, returns / 10)
        loss = actor_loss + critic_loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    poles.close()
    return losses


@torch.no_grad()
def mean_return(model, episodes):
    """The mean return of the most likely actions."""
    pole = gymnasium.make("CartPole-v1")
    total = 0.0
    for episode in range(episodes):
        observation, _ = pole.reset(seed=1000 + episode)
        over = False
        while not over:
            log_policy, _ = model(torch.from_numpy(observation))
            observation, reward, fallen, timeout, _ = pole.step(log_policy.argmax().item())
            total += float(reward)
            over = fallen or timeout
    return total / episodes


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    episodes = 2 if os.environ.get("ADJOINT_SMOKE") else 50
    print(f"mean return: {mean_return(model, episodes):.1f}")


if __name__ == "__main__":
    main()
