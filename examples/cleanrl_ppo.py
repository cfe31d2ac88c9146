"""A single-file PPO in the style of CleanRL keeps its safety budget on a sautéed vector. Run: python examples/cleanrl_ppo.py"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from report import BUDGET, Report, compare, evaluate
from torch import nn
from torch.distributions import Normal

import saute

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCH = 8, 40, 10, 64
LEARNING_RATE, GAMMA, GAE_LAMBDA, CLIP, MAX_GRAD_NORM = 3e-3, 0.9, 0.95, 0.2, 0.5


def make_vec(sauted: bool) -> VectorEnv:
    envs = gym.make_vec("saute/TwoArms-v0", NUM_ENVS, vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    if sauted:
        envs = saute.SauteVectorWrapper(envs, budget=BUDGET)
    return envs


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    return saute.SauteWrapper(env, budget=BUDGET) if sauted else env


class Agent(nn.Module):
    def __init__(self, observations: int, actions: int):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.zeros(actions))

    def policy(self, obs: torch.Tensor) -> Normal:
        return Normal(self.mean(obs), self.log_std.exp())

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs).squeeze(-1)


def train(steps: int, sauted: bool, seed: int) -> Report:
    torch.manual_seed(seed)
    envs = make_vec(sauted)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0])
    optimiser = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    next_obs = torch.as_tensor(envs.reset(seed=seed)[0])

    for _ in range(-(-steps // (NUM_ENVS * NUM_STEPS))):
        rollout = []
        for _ in range(NUM_STEPS):
            obs = next_obs
            with torch.no_grad():
                action = agent.policy(obs).sample()
                log_prob, value = agent.policy(obs).log_prob(action).sum(-1), agent.value(obs)
            next_obs, reward, terminated, truncated, info = envs.step(action.clamp(-1, 1).numpy())
            next_obs, reward = torch.as_tensor(next_obs), torch.as_tensor(reward, dtype=torch.float32)
            if truncated.any():
                # A time-out is not a terminal state: add the value of the episode's last observation, with the budget that it
                # had left. next_obs is already the first observation of the next episode, with a full budget.
                final_obs = torch.as_tensor(np.stack(info["final_obs"][truncated]))
                with torch.no_grad():
                    reward[torch.as_tensor(truncated)] += GAMMA * agent.value(final_obs)
            done = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            rollout.append((obs, action, log_prob, value, reward, done))
        obs, action, log_prob, value, reward, done = (torch.stack(column) for column in zip(*rollout, strict=True))

        advantage, running = torch.zeros_like(reward), torch.zeros(NUM_ENVS)
        with torch.no_grad():
            next_value = agent.value(next_obs)
        for t in reversed(range(NUM_STEPS)):
            delta = reward[t] + GAMMA * (1 - done[t]) * next_value - value[t]
            running = delta + GAMMA * GAE_LAMBDA * (1 - done[t]) * running
            advantage[t], next_value = running, value[t]
        returns = advantage + value

        batch = [column.flatten(0, 1) for column in (obs, action, log_prob, advantage, returns)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(NUM_ENVS * NUM_STEPS).split(MINIBATCH):
                b_obs, b_action, b_log_prob, b_advantage, b_returns = (column[rows] for column in batch)
                ratio = (agent.policy(b_obs).log_prob(b_action).sum(-1) - b_log_prob).exp()
                b_advantage = (b_advantage - b_advantage.mean()) / (b_advantage.std() + 1e-8)
                policy_loss = -torch.min(ratio * b_advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * b_advantage).mean()
                value_loss = (agent.value(b_obs) - b_returns).pow(2).mean()
                optimiser.zero_grad()
                (policy_loss + 0.5 * value_loss).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
                optimiser.step()
    envs.close()

    with torch.no_grad():
        return evaluate(lambda obs: agent.mean(torch.as_tensor(obs)).numpy(), make(sauted))


if __name__ == "__main__":
    compare(train, steps=10_000)
