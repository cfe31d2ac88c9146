"""Convert between Gymnasium's step of five values, with `info["cost"]`, and a step of six values with a separate cost."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.core import ActType, ObsType
from gymnasium.utils import RecordConstructorArgs

from saute.core.cost import read

__all__ = ["five_of", "from_six_tuple", "to_six_tuple"]


def five_of(result: Any) -> Any:
    """What a step returned as five values: of six, the cost, which is the third, goes to `info`."""
    if len(result) != 6:
        return result
    obs, reward, cost, terminated, truncated, info = result
    return obs, reward, terminated, truncated, {**info, "cost": cost}


class FromSixTuple(gym.Wrapper[ObsType, ActType, ObsType, ActType], RecordConstructorArgs):
    """Accept an environment whose `step` returns (obs, reward, cost, terminated, truncated, info); the cost goes to `info`."""

    def __init__(self, env: gym.Env[ObsType, ActType]):
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action: ActType) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if len(result) != 6:
            raise ValueError(f"step returned {len(result)} values instead of 6; this environment needs no from_six_tuple")
        return five_of(result)


class ToSixTuple(gym.Wrapper[ObsType, ActType, ObsType, ActType], RecordConstructorArgs):
    """Offer an environment to code that expects (obs, reward, cost, terminated, truncated, info) from `step`."""

    def __init__(self, env: gym.Env[ObsType, ActType]):
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action: ActType) -> tuple[Any, Any, Any, bool, bool, dict[str, Any]]:  # type: ignore[override]
        obs, reward, terminated, truncated, info = self.env.step(action)
        key = "costs" if "cost" not in info and "costs" in info else "cost"
        cost = read(key, np.shape(info.get(key, 0.0)), None, action, obs, info)
        return obs, reward, cost, terminated, truncated, info


from_six_tuple, to_six_tuple = FromSixTuple, ToSixTuple
