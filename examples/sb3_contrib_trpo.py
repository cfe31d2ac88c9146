"""TRPO of SB3-Contrib keeps its safety budget once the environment is sautéed. Run: python examples/sb3_contrib_trpo.py"""

import gymnasium as gym
from report import BUDGET, Report, compare, evaluate
from sb3_contrib import TRPO
from stable_baselines3.common.env_util import make_vec_env

import saute


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def train(steps: int, sauted: bool, seed: int) -> Report:
    envs = make_vec_env(lambda: make(sauted), n_envs=8, seed=seed)
    model = TRPO("MlpPolicy", envs, n_steps=40, batch_size=64, target_kl=0.05, gamma=0.9, seed=seed, device="cpu")
    model.learn(steps)
    return evaluate(lambda obs: model.predict(obs, deterministic=True)[0], make(sauted))


if __name__ == "__main__":
    compare(train, steps=10_000)
