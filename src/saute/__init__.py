"""Sauté RL: safe reinforcement learning that keeps its safety budget on every trajectory, not just on average."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from saute import budget
from saute.core.options import uniform
from saute.core.single import SauteWrapper
from saute.core.six_tuple import from_six_tuple, to_six_tuple
from saute.core.vector import SauteVectorWrapper

if TYPE_CHECKING:
    from saute import envs
    from saute.algos.cpo import cpo
    from saute.algos.mbpo import mbpo
    from saute.algos.pets import pets
    from saute.algos.ppo import ppo
    from saute.algos.sac import sac
    from saute.algos.trpo import trpo
    from saute.core.native import saute
    from saute.envs.flatten import flat
    from saute.envs.from_brax import from_brax
    from saute.envs.from_gym import HostEnvs
    from saute.envs.from_gymnax import from_gymnax
    from saute.envs.to_gym import GymEnv, GymVectorEnv
    from saute.evidence.certificate import certify
    from saute.learn.constraint import lagrangian, pid
    from saute.learn.model import model_env
    from saute.learn.simmer import pi_schedule, q_schedule
    from saute.runs.loop import train
    from saute.runs.policy import load_policy
    from saute.runs.shield import load_shield
    from saute.runs.validation import Selection
    from saute.serve.budgeted import BudgetedPolicy

__all__ = [
    "BudgetedPolicy",
    "GymEnv",
    "GymVectorEnv",
    "HostEnvs",
    "SauteVectorWrapper",
    "SauteWrapper",
    "Selection",
    "budget",
    "certify",
    "cpo",
    "envs",
    "flat",
    "from_brax",
    "from_gymnax",
    "from_six_tuple",
    "lagrangian",
    "load_policy",
    "load_shield",
    "mbpo",
    "model_env",
    "pets",
    "pi_schedule",
    "pid",
    "ppo",
    "q_schedule",
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
    "BudgetedPolicy": "saute.serve.budgeted",
    "GymEnv": "saute.envs.to_gym",
    "GymVectorEnv": "saute.envs.to_gym",
    "HostEnvs": "saute.envs.from_gym",
    "Selection": "saute.runs.validation",
    "certify": "saute.evidence.certificate",
    "cpo": "saute.algos.cpo",
    "envs": "saute.envs",
    "flat": "saute.envs.flatten",
    "from_brax": "saute.envs.from_brax",
    "from_gymnax": "saute.envs.from_gymnax",
    "lagrangian": "saute.learn.constraint",
    "load_policy": "saute.runs.policy",
    "load_shield": "saute.runs.shield",
    "mbpo": "saute.algos.mbpo",
    "model_env": "saute.learn.model",
    "pets": "saute.algos.pets",
    "pi_schedule": "saute.learn.simmer",
    "pid": "saute.learn.constraint",
    "ppo": "saute.algos.ppo",
    "q_schedule": "saute.learn.simmer",
    "sac": "saute.algos.sac",
    "saute": "saute.core.native",
    "train": "saute.runs.loop",
    "trpo": "saute.algos.trpo",
}


if not TYPE_CHECKING:  # a checker would take every unknown name for `Any`

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'saute' has no attribute {name!r}")
        try:
            module = importlib.import_module(_LAZY[name])
        except ModuleNotFoundError as missing:
            from saute.core.extras import needed

            raise ModuleNotFoundError(needed(f"saute.{name}", missing) or str(missing), name=missing.name) from missing
        return module if name == "envs" else getattr(module, name)


def __dir__() -> list[str]:
    """The public names too, of which most are not loaded yet."""
    return sorted({*globals(), *__all__})


for _id, _name in {
    "SafePendulum": "pendulum",
    "SafeDoublePendulum": "double_pendulum",
    "SafeReacher": "reacher",
    "StaticPointGoal": "point",
    "StaticCarGoal": "car",
    "PointGoal1": "point_goal1",
    "HalfCheetahVelocity": "half_cheetah_velocity",
    "HopperVelocity": "hopper_velocity",
    "Walker2dVelocity": "walker2d_velocity",
    "SwimmerVelocity": "swimmer_velocity",
    "AntVelocity": "ant_velocity",
    "HumanoidVelocity": "humanoid_velocity",
}.items():
    register(
        f"saute/{_id}-v0",
        entry_point="saute.envs.register:single",
        vector_entry_point="saute.envs.register:vector",
        kwargs={"name": _name},
    )
register("saute/TwoArms-v0", entry_point="saute.envs.probes:TwoArms")
