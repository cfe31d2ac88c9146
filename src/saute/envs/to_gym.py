"""JAX-native environments and MuJoCo tasks as Gymnasium environments: one, or a batch in every autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from saute.core.masks import along, masked
from saute.core.native import Sauted, SauteEnv
from saute.core.options import Options
from saute.core.protocol import Env, Step
from saute.envs.batch import JaxBatch, Keyed, MujocoBatch, merge
from saute.envs.task import Task

__all__ = ["GymEnv", "GymVectorEnv"]

Batch = JaxBatch | MujocoBatch


class GymEnv(gym.Env):
    """A JAX-native `Env`, or a `JaxBatch` or `MujocoBatch`, as one `gymnasium.Env` with `info["cost"]`, in float64."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 20}

    def __init__(self, env: Env | Batch, render_mode: str | None = None):
        self._batch = env if isinstance(env, Batch) else JaxBatch(env)
        self.env: Any = self._batch.env
        self.options = options_of(self.env)
        """How the environment was sautéed, or None if it was not."""
        self.render_mode = render_mode
        self.observation_space, self.action_space = host_spaces(self.env)
        self.metadata = {**GymEnv.metadata, "saute": self.options is not None}
        self._state: Keyed | None = None
        self._window: Any = None
        self.overlay: Any = None
        """A function frame → frame, which a wrapper may set to draw something over the picture in the window."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; `options={"state": x}` begins it in the physical state x."""
        x = physical_option(options, self.env, ())
        gym.Env.reset(self, seed=seed)
        everyone = np.ones(1, bool)
        if seed is not None or self._state is None:
            self._state, obs = self._batch.begin([int(self.np_random.integers(2**63))])
            self._obs = obs
        else:
            self._state, obs = self._batch.restart(self._state, self._obs, everyone)
        if x is not None:
            self._state, obs = self._batch.place(self._state, x[None], everyone)
        self._show()
        return obs[0], {key: value[0] for key, value in budgets(self._state).items()}

    def step(self, action: npt.ArrayLike) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gym.error.ResetNeeded("step was called before reset; call env.reset() to begin an episode")
        checked = checked_actions(action, self.action_space.shape)
        self._state, step = self._batch.step(self._state, checked[None])
        self._show()
        cost = step.cost[0]
        info: dict[str, Any] = {"cost": float(cost)} if cost.ndim == 0 else {"costs": cost}
        info |= {key: value[0] for key, value in (budgets(self._state) | outcomes(self._state)).items()}
        return step.obs[0], float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info

    @property
    def state(self) -> np.ndarray:
        """The physical state x, in the form that `reset(options={"state": x})` takes."""
        if self._state is None:
            raise gym.error.ResetNeeded("there is no state before reset; call env.reset() to begin an episode")
        return self._batch.physical(self._state)[0]

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
        self._batch.close()


class GymVectorEnv(gym.vector.VectorEnv):
    """The same as `GymEnv` for many environments: a `gymnasium.vector.VectorEnv` that steps them all in one call.

    Seeded with s, its environment i gives exactly the numbers of the single environment seeded with s + i.
    """

    def __init__(
        self,
        env: Env | Batch,
        num_envs: int,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ):
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} must be a whole number ≥ 1")
        self._batch = env if isinstance(env, Batch) else JaxBatch(env)
        self.env: Any = self._batch.env
        self.options = options_of(self.env)
        """How the environments were sautéed, or None if they were not."""
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**GymEnv.metadata, "autoreset_mode": self.autoreset_mode, "saute": self.options is not None}
        self.single_observation_space, self.single_action_space = host_spaces(self.env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]
        self._state: Keyed | None = None
        self._obs = np.zeros(0)
        self._ended = np.zeros(self.num_envs, bool)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """One generator per environment, as in Gymnasium's own vector environments."""
        return tuple(self._rngs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin episodes in all environments, or in those of `options["reset_mask"]`; in `options["state"]`, if given."""
        x = physical_option(options, self.env, (self.num_envs,))
        mask = reset_mask(options, self.num_envs)
        seeds = seed if isinstance(seed, list | tuple) else [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments; pass one number, or one each")
        self._rngs = [
            rng if s is None or not chosen else seeding.np_random(s)[0]
            for rng, s, chosen in zip(self._rngs, seeds, mask, strict=True)
        ]
        if self._state is None or any(s is not None for s in seeds):
            self._state, self._obs = self._begin(mask, [self._state is None or s is not None for s in seeds])
        else:
            self._state, self._obs = self._batch.restart(self._state, self._obs, mask)
        if x is not None:
            self._state, placed = self._batch.place(self._state, x, mask)
            self._obs = np.where(mask[:, None], placed, self._obs)
        self._ended = np.zeros(self.num_envs, bool) if mask.all() else self._ended & ~mask
        return self._obs.copy(), masked({}, mask, **budgets(self._state))

    def step(self, actions: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise gym.error.ResetNeeded("step was called before reset; call envs.reset() to begin episodes")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise gym.error.ResetNeeded(
                f'envs {ended} have ended; reset them with options={{"reset_mask": terminated | truncated}}'
            )
        checked = checked_actions(actions, self.action_space.shape)
        restarted = self._ended if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        before = self._state
        self._state, step = self._batch.step(self._state, checked)
        if restarted.any():
            self._state, step = self._restarted(before, step, restarted)
        self._ended = step.terminated | step.truncated
        self._obs = step.obs
        key = "cost" if step.cost.ndim == 1 else "costs"
        info = masked({}, ~restarted, **{key: step.cost}, **outcomes(self._state))
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            info |= self._final(self._state, step, key)
            self._state, self._obs = self._batch.restart(self._state, step.obs, self._ended)
        masked(info, np.ones(self.num_envs, bool), **budgets(self._state))
        return self._obs.copy(), step.reward, step.terminated, step.truncated, info

    @property
    def state(self) -> np.ndarray:
        """The physical states, one row per environment."""
        if self._state is None:
            raise gym.error.ResetNeeded("there is no state before reset; call envs.reset() to begin episodes")
        return self._batch.physical(self._state)

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode != "rgb_array":
            return None
        from saute.envs.render import draw

        return tuple(draw(task_of(self.env), x) for x in self.state)

    def close_extras(self, **kwargs: object) -> None:
        self._batch.close()

    def _begin(self, mask: np.ndarray, seeded: list[bool]) -> tuple[Keyed, np.ndarray]:
        """Begin new random streams in the seeded environments, and episodes in all environments of the mask."""
        anew = mask & np.array(seeded)
        seeds = [int(rng.integers(2**63)) if new else 0 for rng, new in zip(self._rngs, anew, strict=True)]
        fresh, first = self._batch.begin(seeds)
        if anew.all():
            return fresh, first
        if self._state is None:
            raise ValueError("the first reset must begin every environment; call envs.reset() without reset_mask")
        state, obs = self._batch.restart(self._state, self._obs, mask & ~anew)
        return merge(anew, (fresh, first), (state, obs))

    def _restarted(self, before: Keyed, step: Step, mask: np.ndarray) -> tuple[Keyed, Step]:
        """Where an episode has ended, ignore the action and begin the next episode."""
        state, obs = self._batch.restart(merge(mask, before, self._state), step.obs, mask)
        return state, Step(
            state=None,
            obs=obs,
            reward=np.where(mask, 0.0, step.reward),
            cost=np.where(along(mask, step.cost), 0.0, step.cost),
            terminated=step.terminated & ~mask,
            truncated=step.truncated & ~mask,
        )

    def _final(self, state: Keyed, step: Step, key: str) -> dict[str, Any]:
        """The last observation and cost of the episodes that ended, in Gymnasium's format."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(self._ended):
            final_obs[env] = step.obs[env].copy()
        ended = self._ended.copy()
        final_info = masked({}, ended.copy(), **{key: step.cost.copy()}, **budgets(state), **outcomes(state))
        return {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended.copy()}


def task_of(env: Env) -> Task:
    """The task of an environment, sautéed or not."""
    inner = env.env if isinstance(env, SauteEnv) else env
    if not hasattr(inner, "task"):
        raise ValueError(f"{type(inner).__name__} has no picture; only the five tasks can be rendered")
    return inner.task


def options_of(env: Env) -> Options | None:
    """How an environment was sautéed, or None if it was not."""
    return env.options if isinstance(env, SauteEnv) else None


def budgets(batch: Keyed) -> dict[str, np.ndarray]:
    """The remaining budgets of sautéed states, under the wrappers' name."""
    return {"remaining": batch.state.remaining.copy()} if isinstance(batch.state, Sauted) else {}


def outcomes(batch: Keyed) -> dict[str, np.ndarray]:
    """What sautéed states tell about the last step, under the wrappers' names."""
    state = batch.state
    return {"task_reward": state.task_reward.copy(), "violated": state.violated.copy()} if isinstance(state, Sauted) else {}


def host_spaces(env: Env) -> tuple[spaces.Box, spaces.Space[Any]]:
    """The observation space in float64, and the action space."""
    box = env.observation_space
    return spaces.Box(box.low.astype(np.float64), box.high.astype(np.float64), dtype=np.float64), env.action_space


def checked_actions(actions: npt.ArrayLike, shape: tuple[int, ...] | None) -> np.ndarray:
    """The actions in float64, if they have the right shape and are finite; tasks clip them to ±1 themselves."""
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"action {actions!r} is not numeric; pass an array of shape {shape}") from None
    if array.shape != shape:
        raise ValueError(f"action has shape {array.shape}, expected {shape}; see env.action_space")
    if not np.isfinite(array).all():
        raise ValueError(f"action {array} is not finite; check the policy for NaN before stepping")
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


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """The environments to reset: all of them, or the true entries of `options["reset_mask"]`."""
    if not options or "reset_mask" not in options:
        return np.ones(num_envs, bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool or not mask.any():
        raise ValueError(f'options["reset_mask"]={mask} must be {num_envs} bools, at least one of them True')
    return mask
