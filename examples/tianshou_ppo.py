"""PPO of Tianshou 2 keeps its safety budget once the environment is sautéed. Run: python examples/tianshou_ppo.py"""

import gymnasium as gym
import torch
from report import BUDGET, Report, compare, evaluate
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from torch.distributions import Independent, Normal

import saute


def make(sauted: bool) -> gym.Env:
    env = gym.make("saute/TwoArms-v0")
    if sauted:
        env = saute.SauteWrapper(env, budget=BUDGET)
    return env


def train(steps: int, sauted: bool, seed: int) -> Report:
    torch.manual_seed(seed)
    envs = DummyVectorEnv([lambda: make(sauted) for _ in range(8)])
    envs.seed(seed)
    env = make(sauted)
    body = {"state_shape": env.observation_space.shape, "hidden_sizes": [64, 64], "activation": torch.nn.Tanh}
    actor = ContinuousActorProbabilistic(preprocess_net=Net(**body), action_shape=env.action_space.shape, unbounded=True)
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=lambda mean_and_std: Independent(Normal(*mean_and_std), 1),
        deterministic_eval=True,
        action_space=env.action_space,
        action_scaling=False,
    )
    algorithm = PPO(
        policy=policy,
        critic=ContinuousCritic(preprocess_net=Net(**body)),
        optim=AdamOptimizerFactory(lr=3e-3),
        gamma=0.9,
        ent_coef=0.0,
        max_grad_norm=0.5,
    )
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector(algorithm, envs, VectorReplayBuffer(320, buffer_num=8)),
            max_epochs=1,
            epoch_num_steps=steps,
            collection_step_num_env_steps=320,
            update_step_num_repetitions=10,
            batch_size=64,
            verbose=False,
            show_progress=False,
        )
    )
    return evaluate(lambda obs: policy.compute_action(obs), env)


if __name__ == "__main__":
    compare(train, steps=10_000)
