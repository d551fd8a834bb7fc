"""PPO on CartPole in the steps of a graph: eight epochs on what a policy did before they began.

Eight poles are balanced by the policy as it is. Then it is trained on what was seen, while the
probability of each action may move no further from what it was than by a fifth (Schulman et al.,
2017, "Proximal Policy Optimization Algorithms"). What was computed before the weights changed must
stay as it was: the old probabilities, the advantages. In `graph.step()` it does, and all numbers
are those of eager execution.

Expected: mean return at least 475
Run: python examples/ppo_graph.py
"""

import os

import gymnasium
from actor_critic import POLES, ActorCritic, advantages_of, mean_return
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from interleaved import in_steps

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
UPDATES = 3 if SMOKE else 100
HORIZON = 64
EPOCHS, BATCH = 8, 128
CLIP = 0.2


def rollout(model, poles, observation):
    """What eight poles do for a while; all without gradients, a row for each step of each pole."""
    seen = []
    for _ in range(HORIZON):
        state = ad.from_numpy(observation)
        log_policy, value = model(state)
        action = ad.multinomial(log_policy.exp(), 1)
        observation, reward, fallen, timeout, _ = poles.step(action.squeeze(1).numpy())
        log_prob = log_policy.gather(1, action).squeeze(1)
        reward, end = ad.from_numpy(reward).float(), ad.from_numpy(fallen | timeout).float()
        seen.append((state, action, log_prob, value, reward, end))
    states, actions, log_probs, values, rewards, ends = map(ad.stack, zip(*seen, strict=True))
    _, last_value = model(ad.from_numpy(observation))
    advantages = advantages_of(rewards, values, ends, last_value)
    found = states, actions, log_probs, advantages, advantages + values
    return observation, [x.flatten(0, 1) for x in found]


def loss_of(model, states, actions, old_log_probs, advantages, returns):
    """The clipped objective of the policy, the critic's error, a little for entropy."""
    log_policy, values = model(states)
    ratio = (log_policy.gather(1, actions).squeeze(1) - old_log_probs).exp()
    weight = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gained = ad.min(ratio * weight, ratio.clamp(1 - CLIP, 1 + CLIP) * weight).mean()
    entropy = -(log_policy.exp() * log_policy).sum(1).mean()
    return F.mse_loss(values / 10, returns / 10) - gained - 0.01 * entropy


def train(block, updates):
    """A policy, and the losses of all its gradient steps."""
    ad.manual_seed(0)
    model = ActorCritic()
    optimizer = ad.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = ad.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / updates)
    poles = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * POLES, autoreset_mode=AutoresetMode.SAME_STEP
    )
    observation, _ = poles.reset(seed=0)
    losses = []
    for _ in range(updates):
        with block(), ad.no_grad():
            observation, seen = rollout(model, poles, observation)
        for _ in range(EPOCHS):
            for chosen in ad.randperm(HORIZON * POLES).split(BATCH):
                with block():
                    loss = loss_of(model, *(x[chosen] for x in seen))
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                losses.append(loss)  # a plain value, whatever becomes of the weights
        scheduler.step()
    poles.close()
    return model, [loss.item() for loss in losses]


def main():
    model = in_steps(train, UPDATES, few=2 if SMOKE else 8)
    print(f"mean return: {mean_return(model, 2 if SMOKE else 50):.1f}")


if __name__ == "__main__":
    main()
