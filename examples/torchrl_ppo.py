"""PPO of TorchRL keeps its safety budget once the environment is sautéed. Run: python examples/torchrl_ppo.py"""

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from report import BUDGET, Report, compare, evaluate
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, InitTracker, TransformedEnv
from torchrl.modules import MLP, IndependentNormal, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import saute


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def train(steps: int, sauted: bool, seed: int) -> Report:
    torch.manual_seed(seed)
    # TorchRL resets its environments itself, so that the last observation of an episode keeps its own remaining budget.
    envs = SyncVectorEnv([lambda: make(sauted)] * 8, autoreset_mode=AutoresetMode.DISABLED)
    envs = TransformedEnv(GymWrapper(envs), InitTracker())
    envs.set_seed(seed)
    net = {"num_cells": [64, 64], "activation_class": nn.Tanh}
    mean = nn.Sequential(MLP(out_features=1, **net), AddStateIndependentNormalScale(1))
    actor = ProbabilisticActor(
        TensorDictModule(mean, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(out_features=1, **net))
    actor(envs.reset()), critic(envs.reset())  # creates the lazy layers
    advantage = GAE(gamma=0.9, lmbda=0.95, value_network=critic)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0, normalize_advantage=True)
    optimiser = torch.optim.Adam(loss.parameters(), lr=3e-3)

    for data in Collector(envs, actor, frames_per_batch=320, total_frames=steps):
        for _ in range(10):
            with torch.no_grad():
                advantage(data)
            for batch in data.reshape(-1)[torch.randperm(320)].split(64):
                losses = loss(batch)
                optimiser.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()

    with torch.no_grad():
        return evaluate(lambda obs: mean(torch.as_tensor(obs))[0].numpy(), make(sauted))


if __name__ == "__main__":
    compare(train, steps=9_600)
