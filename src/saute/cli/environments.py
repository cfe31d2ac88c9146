"""Environments to watch: find them by name, make them with pictures, sauté them with a budget, draw them at any size."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from saute.core.cost import CostSource
from saute.core.errors import UserError
from saute.core.modules import module_named
from saute.core.single import SauteWrapper

__all__ = ["Spec", "camera_of", "make", "pictureless", "short_name", "spec_of"]

Spec = gym.envs.registration.EnvSpec
TASK = "saute.envs.register:single"
"""The entry point of our own tasks; they have a mode, an engine and a budget, and can be drawn at any size."""


def spec_of(name: str) -> Spec:
    """The registered environment of a task's name or a Gymnasium id; in module:Id the module is imported first."""
    tasks = {spec.kwargs["name"]: id for id, spec in gym.registry.items() if spec.entry_point == TASK}
    module, _, id = name.rpartition(":")
    try:
        if module:
            module_named(module)
    except Exception as error:
        raise UserError(f"the module of environment {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gym.spec(tasks.get(id.lower().replace("-", "_"), id))
    except gym.error.Error as error:
        known = {known.lower(): known for known in [*gym.registry, *tasks]}
        similar = difflib.get_close_matches(id.lower(), known, n=1)
        hint = f"; did you mean {known[similar[0]]!r}?" if similar else "."
        raise UserError(f"unknown environment {name!r}{hint} Use {', '.join(tasks)}, or any Gymnasium id") from error


def short_name(spec: Spec) -> str:
    """The name of the environment in file names."""
    return spec.kwargs["name"] if spec.entry_point == TASK else spec.name


def make(
    spec: Spec,
    mode: str,
    engine: str | None,
    budget: Sequence[float],
    unsafe_reward: float | None,
    cost: CostSource = "cost",
) -> gym.Env:
    """The environment with RGB pictures, sautéed if there is a budget; budget and unsafe reward default to the task's own."""
    env = _pictured(spec, mode, engine)
    bare: Any = env.unwrapped
    task = bare.env.task if spec.entry_point == TASK else None
    chosen = [*budget] or getattr(task, "budget", None)
    if chosen is None:
        if unsafe_reward is not None:
            raise UserError(f"--unsafe-reward needs a --budget; {spec.id} has none of its own")
        return env
    unsafe = getattr(task, "unsafe_reward", 0.0) if unsafe_reward is None else unsafe_reward
    try:
        one = chosen[0] if isinstance(chosen, list) and len(chosen) == 1 else chosen
        return SauteWrapper(env, one, unsafe_reward=unsafe, cost=cost)
    except ValueError as error:
        raise UserError(str(error)) from error


def _pictured(spec: Spec, mode: str, engine: str | None) -> gym.Env:
    own = spec.entry_point == TASK
    if not own and (mode != "train" or engine):
        raise UserError(f"--mode and --engine are options of our own tasks; {spec.id} does not have them")
    if not own:
        _draw_without_a_display()
    try:
        with warnings.catch_warnings():
            # Gymnasium warns of an environment without pictures; we report it as an error below.
            warnings.simplefilter("ignore")
            chosen: dict[str, Any] = {"mode": mode, "engine": engine} if own else {}
            env = gym.make(spec, render_mode="rgb_array", disable_env_checker=True, **chosen)
    except Exception as error:
        raise UserError(f"{spec.id} cannot be made: {error}{pictureless()}") from error
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        raise UserError(f"{spec.id} has no pictures: its render_modes {env.metadata.get('render_modes')} lack 'rgb_array'")
    return env


def _draw_without_a_display() -> None:
    """Where there is none, MuJoCo has to be told so before it is imported; our own pictures need no OpenGL."""
    if sys.platform == "linux" and not os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        os.environ.setdefault("MUJOCO_GL", "egl")


def pictureless() -> str:
    """What helps if MuJoCo cannot draw, if it is MuJoCo that should."""
    if not sys.modules.keys() & {"mujoco", "gymnasium.envs.mujoco"}:
        return ""
    used = os.environ.get("MUJOCO_GL", "not set")
    return f"; MUJOCO_GL is {used}; without a display set MUJOCO_GL=egl, or MUJOCO_GL=osmesa if that is what is installed"


def camera_of(env: gym.Env, size: int | None) -> Callable[[], object]:
    """A function that takes a picture without gauge: the environment's own `render`, or one of another size."""
    inner = env.env if isinstance(env, SauteWrapper) else env
    if size is None:
        return inner.render
    if env.spec is not None and env.spec.entry_point == TASK:
        from saute.envs.render import draw

        bare: Any = env.unwrapped
        return lambda: draw(bare.env.task, bare.state, size)
    return lambda: _resized(inner.render(), size)


def _resized(frame: object, size: int) -> object:
    from PIL import Image

    if not isinstance(frame, np.ndarray):
        return frame
    width = round(size * frame.shape[1] / frame.shape[0])
    return np.asarray(Image.fromarray(frame).resize((max(1, width), size), Image.Resampling.LANCZOS))
