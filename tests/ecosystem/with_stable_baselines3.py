"""stable-baselines3: PPO, A2C, DQN, SAC and TD3 learn a little; policies from given weights."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb
import torch
from common import fill
from stable_baselines3.common.buffers import ReplayBuffer


def _learned(kind, env, **options):
    """What is the same whatever is drawn: that steps were counted, and numbers stay finite."""
    model = kind(
        "MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [16]}, **options
    )
    model.learn(200)
    finite = all(bool(torch.isfinite(p).all()) for p in model.policy.parameters())
    return [model.num_timesteps >= 200, finite]


def case_learning():
    return [
        _learned(sb.PPO, "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2),
        _learned(sb.A2C, "CartPole-v1"),
        _learned(sb.DQN, "CartPole-v1", learning_starts=50),
        _learned(sb.SAC, "Pendulum-v1", learning_starts=190),
        _learned(sb.TD3, "Pendulum-v1", learning_starts=190),
    ]


def case_policies():
    found = []
    for kind, env in ((sb.PPO, "CartPole-v1"), (sb.DQN, "CartPole-v1"), (sb.SAC, "Pendulum-v1")):
        model = kind("MlpPolicy", env, device="cpu", policy_kwargs={"net_arch": [16]})
        fill(model.policy)
        seen = np.linspace(-1, 1, 3 * model.observation_space.shape[0], dtype=np.float32)
        actions, _ = model.predict(seen.reshape(3, -1), deterministic=True)
        found.append(actions)
        if kind is sb.PPO:
            seen = torch.from_numpy(seen.reshape(3, -1))
            values, log_probs, entropy = model.policy.evaluate_actions(
                seen, torch.tensor([0, 1, 1])
            )
            found += [values, log_probs, entropy]
    return found


def case_ppo_from_given_steps():
    model = sb.PPO(
        "MlpPolicy",
        "CartPole-v1",
        device="cpu",
        n_steps=16,
        batch_size=16,
        n_epochs=3,
        policy_kwargs={"net_arch": [16]},
    )
    fill(model.policy)
    model._setup_learn(16)
    r = np.random.default_rng(0)
    for _ in range(16):
        seen = r.standard_normal((1, 4)).astype(np.float32)
        action = r.integers(0, 2, (1, 1))
        with torch.no_grad():
            values, log_prob, _ = model.policy.evaluate_actions(
                torch.from_numpy(seen), torch.from_numpy(action[:, 0])
            )
        model.rollout_buffer.add(seen, action, r.random(1), np.zeros(1), values, log_prob)
    model.rollout_buffer.compute_returns_and_advantage(torch.zeros(1), np.zeros(1))
    model.train()
    return [
        model.rollout_buffer.returns,
        model.logger.name_to_value["train/loss"],
        [p.abs().mean() for p in model.policy.parameters()],
    ]


def case_buffers():
    env = gym.make("CartPole-v1")
    buffer = ReplayBuffer(5, env.observation_space, env.action_space, device="cpu")
    for i in range(7):
        seen = np.full((1, 4), i, np.float32)
        buffer.add(seen, seen + 1, np.array([[i % 2]]), np.array([i]), np.array([0]), [{}])
    batch = buffer._get_samples(np.array([0, 3]))
    return [batch.observations, batch.actions, batch.rewards]
