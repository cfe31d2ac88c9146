"""SAC of Stable-Baselines3 keeps its safety budget once the environment is sautéed. Run: python examples/sb3_sac.py"""

import gymnasium as gym
from report import BUDGET, Report, compare, evaluate
from stable_baselines3 import SAC

import saute


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def train(steps: int, sauted: bool, seed: int) -> Report:
    model = SAC(
        "MlpPolicy",
        make(sauted),
        learning_rate=3e-3,
        learning_starts=300,
        batch_size=128,
        gamma=0.9,
        ent_coef=0.02,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return evaluate(lambda obs: model.predict(obs, deterministic=True)[0], make(sauted))


if __name__ == "__main__":
    compare(train, steps=2_000)
