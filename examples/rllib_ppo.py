"""PPO of RLlib keeps its safety budget once the environment is sautéed. Run: python examples/rllib_ppo.py

RLlib steps its environments as one vector, so that is what is sautéed, and RLlib makes it by its vector entry point.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from gymnasium.vector import VectorEnv
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from ray.tune.registry import register_env
from report import BUDGET, Report, compare, evaluate

import saute

WINDOW = 100
"""Finished episodes that the numbers of safety are of, as many as those of RLlib's own return."""


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def make_vector(config: dict[str, Any]) -> VectorEnv:
    envs = gym.make_vec("saute/TwoArms-v0", num_envs=config["num_envs"])
    return saute.SauteVectorWrapper(envs, budget=BUDGET) if config["sauted"] else envs


class SafetyMetrics(RLlibCallback):
    """The task's own return, costs and violations of finished episodes, beside RLlib's return, which is of shaped rewards."""

    def on_episode_end(self, *, episode: SingleAgentEpisode, metrics_logger: MetricsLogger, **_: object) -> None:
        last = episode.get_infos(-1)
        if "episode_cost" not in last:  # without Sauté, nothing has summed it up
            return
        for name, key in (("return", "task_return"), ("cost", "cost"), ("violation_rate", "violated")):
            value = float(last[f"episode_{key}"])
            metrics_logger.log_value(("safety", name), value, reduce="mean", window=WINDOW)
        metrics_logger.log_value(("safety", "worst_cost"), float(last["episode_cost"]), reduce="max", window=WINDOW)


def configuration(sauted: bool, seed: int) -> PPOConfig:
    """PPO in this process; with num_env_runners, other processes step environments of their own."""
    return (
        PPOConfig()
        .environment("two-arms", env_config={"sauted": sauted})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=8,
            gym_env_vectorize_mode=gym.VectorizeMode.VECTOR_ENTRY_POINT,
            rollout_fragment_length=40,
        )
        .training(gamma=0.9, lr=3e-3, train_batch_size_per_learner=320, minibatch_size=64, num_epochs=10)
        .training(lambda_=0.95, clip_param=0.2, use_kl_loss=False, entropy_coeff=0.0, vf_clip_param=np.inf, grad_clip=0.5)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False))
        .callbacks(SafetyMetrics)
        .debugging(seed=seed, log_level="ERROR")
    )


def started() -> None:
    """A Ray of this process alone, which knows the environment."""
    if not ray.is_initialized():
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    register_env("two-arms", make_vector)


def train(steps: int, sauted: bool, seed: int) -> Report:
    started()
    algorithm = configuration(sauted, seed).build_algo()
    for _ in range(steps // 320):
        numbers = algorithm.train()["env_runners"]
    if sauted:
        print("RLlib's last result:", {name: round(float(value), 3) for name, value in numbers["safety"].items()})
    policy = algorithm.get_module()

    def act(obs: np.ndarray) -> np.ndarray:
        """The mean of the policy's normal distribution; its other half is log σ."""
        with torch.no_grad():
            outputs = policy.forward_inference({"obs": torch.as_tensor(obs, dtype=torch.float32)[None]})
        return np.clip(outputs["action_dist_inputs"][0, :1].numpy(), -1.0, 1.0)

    report = evaluate(act, make(sauted))
    algorithm.stop()
    return report


if __name__ == "__main__":
    compare(train, steps=9_600)
