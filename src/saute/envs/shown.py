"""What one environment of ours is to Gymnasium, whatever steps it: spaces, pictures, and checks of what it is given."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from saute.core.native import SauteEnv
from saute.core.options import Options
from saute.core.protocol import Env
from saute.envs.task import Task

__all__ = ["Shown", "checked_actions", "host_spaces", "options_of", "physical_option", "shaped", "task_of"]


class Shown(gym.Env):
    """A `gymnasium.Env` with the spaces of an `Env`, and pictures of its physical state, the property `state`."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 20}

    def __init__(self, env: Env, render_mode: str | None):
        self.env: Any = env
        self.options = options_of(env)
        """How the environment was sautéed, or None if it was not."""
        self.render_mode = render_mode
        self.observation_space, self.action_space = host_spaces(env)
        self.metadata = {**Shown.metadata, "saute": self.options is not None, "budget": getattr(env, "budget", None)}
        self._window: Any = None
        self.overlay: Any = None
        """A function frame → frame, which a wrapper may set to draw something over the picture in the window."""

    @property
    def state(self) -> np.ndarray:
        raise NotImplementedError

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gym.logger.warn("render was called without render_mode; pass render_mode='rgb_array' or 'human' to gym.make")
            return None
        from saute.envs.render import Window, draw

        frame = draw(task_of(self.env), self.state)
        if self.render_mode == "rgb_array":
            return frame
        if self._window is None:
            self._window = Window(self.metadata["render_fps"])
        self._window.show(self.overlay(frame) if self.overlay else frame)
        return None

    def _show(self) -> None:
        """Update the window; a wrapper with an overlay does it itself, once it knows what to draw over the picture."""
        if self.render_mode == "human" and self.overlay is None:
            self.render()

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None


def task_of(env: Env) -> Task:
    """The task of an environment, sautéed or not."""
    inner = env.env if isinstance(env, SauteEnv) else env
    if not hasattr(inner, "task"):
        raise ValueError(f"{type(inner).__name__} has no picture; only the tasks of this package can be rendered")
    return inner.task


def options_of(env: Env) -> Options | None:
    """How an environment was sautéed, or None if it was not."""
    return env.options if isinstance(env, SauteEnv) else None


def host_spaces(env: Env) -> tuple[spaces.Box, spaces.Space[Any]]:
    """The observation space in float64, and the action space."""
    box = env.observation_space
    return spaces.Box(box.low.astype(np.float64), box.high.astype(np.float64), dtype=np.float64), env.action_space


def checked_actions(actions: npt.ArrayLike, shape: tuple[int, ...] | None) -> np.ndarray:
    """The actions in float64, if they have the right shape and are finite; tasks clip them to ±1 themselves."""
    array = shaped(actions, shape)
    if not np.isfinite(array).all():
        raise ValueError(f"action {array} is not finite; check the policy for NaN before stepping")
    return array


def shaped(actions: npt.ArrayLike, shape: tuple[int, ...] | None) -> np.ndarray:
    """The actions in float64, if they have the right shape."""
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"action {actions!r} is not numeric; pass an array of shape {shape}") from None
    if array.shape != shape:
        raise ValueError(f"action has shape {array.shape}, expected {shape}; see env.action_space")
    return array


def physical_option(options: dict[str, Any] | None, env: Env, batch: tuple[int, ...]) -> np.ndarray | None:
    """The checked physical state in `options["state"]`, one row per environment."""
    if options and "budget" in options:
        raise ValueError('options["budget"] needs SauteWrapper or SauteVectorWrapper around the bare environment')
    if not options or options.get("state") is None:
        return None
    if not hasattr(env, "task"):
        raise ValueError(f'{type(env).__name__} cannot start from a physical state; reset it without options["state"]')
    size = env.task.state_size
    try:
        x = np.asarray(options["state"], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f'options["state"]={options["state"]!r} is not numeric; pass {size} numbers') from None
    x = np.broadcast_to(x, (*batch, size)) if x.shape == (size,) else x
    if x.shape != (*batch, size):
        raise ValueError(f'options["state"] has shape {np.shape(options["state"])}, expected {(*batch, size)}')
    if not np.isfinite(x).all():
        raise ValueError(f'options["state"]={x} is not finite; pass {size} finite numbers')
    return np.array(x)
