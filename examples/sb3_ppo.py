"""PPO of Stable-Baselines3 keeps its safety budget once the environment is sautéed. Run: python examples/sb3_ppo.py"""

import gymnasium as gym
from report import BUDGET, Report, compare, evaluate
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import saute
from saute.sb3 import SafetyCallback


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def train(steps: int, sauted: bool, seed: int) -> Report:
    envs = make_vec_env(lambda: make(sauted), n_envs=8, seed=seed)
    model = PPO("MlpPolicy", envs, n_steps=40, batch_size=64, learning_rate=3e-3, gamma=0.9, seed=seed, device="cpu")
    # With verbose=1 or a TensorBoard log, the task's own return and costs stand beside the shaped reward of ep_rew_mean.
    model.learn(steps, callback=SafetyCallback() if sauted else None)
    return evaluate(lambda obs: model.predict(obs, deterministic=True)[0], make(sauted))


if __name__ == "__main__":
    compare(train, steps=10_000)
