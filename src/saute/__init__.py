"""Sauté RL: safe reinforcement learning that keeps its safety budget on every trajectory, not just on average."""

from __future__ import annotations

from gymnasium.envs.registration import register

from saute import budget
from saute.options import uniform
from saute.tuples import from_six_tuple, to_six_tuple
from saute.vector import SauteVectorWrapper
from saute.wrappers import SauteWrapper

__all__ = ["SauteVectorWrapper", "SauteWrapper", "budget", "from_six_tuple", "to_six_tuple", "uniform"]
__version__ = "0.1.0"

register("saute/TwoArms-v0", entry_point="saute.envs.probes:TwoArms", max_episode_steps=20)
