"""Sauté RL: safe reinforcement learning that keeps its safety budget on every trajectory, not just on average."""

from __future__ import annotations

import importlib
from typing import Any

from gymnasium.envs.registration import register

from saute import budget
from saute.options import uniform
from saute.tuples import from_six_tuple, to_six_tuple
from saute.vector import SauteVectorWrapper
from saute.wrappers import SauteWrapper

__all__ = [
    "BudgetedPolicy",
    "GymEnv",
    "GymVectorEnv",
    "SauteVectorWrapper",
    "SauteWrapper",
    "Selection",
    "budget",
    "certify",
    "cpo",
    "envs",
    "from_six_tuple",
    "load_policy",
    "mbpo",
    "model_env",
    "pets",
    "ppo",
    "sac",
    "saute",
    "to_six_tuple",
    "train",
    "trpo",
    "uniform",
]
__version__ = "0.1.0"

# Loaded when first used, so that the wrappers need NumPy and Gymnasium only.
_LAZY = {
    "BudgetedPolicy": "saute.policy",
    "GymEnv": "saute.adapters",
    "GymVectorEnv": "saute.adapters",
    "Selection": "saute.selection",
    "certify": "saute.certificate",
    "cpo": "saute.algos.cpo",
    "envs": "saute.envs",
    "load_policy": "saute.policy",
    "mbpo": "saute.algos.mbpo",
    "model_env": "saute.dynamics",
    "pets": "saute.algos.pets",
    "ppo": "saute.algos.ppo",
    "sac": "saute.algos.sac",
    "saute": "saute.transform",
    "train": "saute.training",
    "trpo": "saute.algos.trpo",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'saute' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if name == "envs" else getattr(module, name)


for _id, _name in {
    "SafePendulum": "pendulum",
    "SafeDoublePendulum": "double_pendulum",
    "SafeReacher": "reacher",
    "StaticPointGoal": "point",
    "StaticCarGoal": "car",
}.items():
    register(
        f"saute/{_id}-v0",
        entry_point="saute.envs.register:single",
        vector_entry_point="saute.envs.register:vector",
        kwargs={"name": _name},
    )
register("saute/TwoArms-v0", entry_point="saute.envs.probes:TwoArms")
