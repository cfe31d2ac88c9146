"""JAX-native environments and MuJoCo tasks as Gymnasium environments: one, or a batch in every autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from saute.core.masks import along, masked
from saute.core.native import Sauted
from saute.core.protocol import Env, Step
from saute.envs.batch import JaxBatch, Keyed, TaskBatch, merge
from saute.envs.shown import Shown, checked_actions, host_spaces, options_of, physical_option, task_of

__all__ = ["GymEnv", "GymVectorEnv"]

AnyBatch = JaxBatch | TaskBatch
State = Any
"""`Keyed` of a `JaxBatch`, `Clocked` of a `TaskBatch`."""


class GymEnv(Shown):
    """A JAX-native `Env`, or a batch of a task, as one `gymnasium.Env` with `info["cost"]`, in float64."""

    def __init__(self, env: Env | AnyBatch, render_mode: str | None = None):
        self._batch: Any = env if isinstance(env, AnyBatch) else JaxBatch(env)
        Shown.__init__(self, self._batch.env, render_mode)
        self._state: State | None = None
        self._obs = np.zeros(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; `options={"state": x}` begins it in the physical state x."""
        x = physical_option(options, self.env, ())
        gym.Env.reset(self, seed=seed)
        everyone, anew = np.ones(1, bool), np.array([seed is not None or self._state is None])
        self._state, self._obs = self._batch.restart(self._state, self._obs, everyone, [self.np_random], anew)
        if x is not None:
            self._state, self._obs = self._batch.place(self._state, x[None], everyone)
        self._show()
        return self._obs[0].copy(), {key: value[0] for key, value in budgets(self._state).items()}

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

    def close(self) -> None:
        Shown.close(self)
        self._batch.close()


class GymVectorEnv(gym.vector.VectorEnv):
    """The same as `GymEnv` for many environments: a `gymnasium.vector.VectorEnv` that steps them all in one call.

    Seeded with s, its environment i gives exactly the numbers of the single environment seeded with s + i.
    """

    def __init__(
        self,
        env: Env | AnyBatch,
        num_envs: int,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ):
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} must be a whole number ≥ 1")
        self._batch: Any = env if isinstance(env, AnyBatch) else JaxBatch(env)
        self.env: Any = self._batch.env
        self.options = options_of(self.env)
        """How the environments were sautéed, or None if they were not."""
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            **Shown.metadata,
            "autoreset_mode": self.autoreset_mode,
            "saute": self.options is not None,
            "budget": getattr(self.env, "budget", None),
        }
        self.single_observation_space, self.single_action_space = host_spaces(self.env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]
        self._state: State | None = None
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
        if self._state is None and not mask.all():
            raise ValueError("the first reset must begin every environment; call envs.reset() without reset_mask")
        anew = mask & np.array([self._state is None or s is not None for s in seeds])
        self._state, self._obs = self._batch.restart(self._state, self._obs, mask, self._rngs, anew)
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
            self._state, self._obs = self._continued(self._state, step.obs, self._ended)
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

    def _continued(self, state: State, obs: np.ndarray, mask: np.ndarray) -> tuple[State, np.ndarray]:
        """The next episodes where the mask is set."""
        return self._batch.restart(state, obs, mask, self._rngs, np.zeros(self.num_envs, bool))

    def _restarted(self, before: State, step: Step, mask: np.ndarray) -> tuple[State, Step]:
        """Where an episode has ended, ignore the action and begin the next episode."""
        state, obs = self._continued(merge(mask, before, self._state), step.obs, mask)
        return state, Step(
            state=None,
            obs=obs,
            reward=np.where(mask, 0.0, step.reward),
            cost=np.where(along(mask, step.cost), 0.0, step.cost),
            terminated=step.terminated & ~mask,
            truncated=step.truncated & ~mask,
        )

    def _final(self, state: State, step: Step, key: str) -> dict[str, Any]:
        """The last observation and cost of the episodes that ended, in Gymnasium's format."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(self._ended):
            final_obs[env] = step.obs[env].copy()
        ended = self._ended.copy()
        final_info = masked({}, ended.copy(), **{key: step.cost.copy()}, **budgets(state), **outcomes(state))
        return {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended.copy()}


def sauted(state: State) -> Sauted | None:
    """The sautéed part of a batch's state, if it has one."""
    return state.state if isinstance(state, Keyed) and isinstance(state.state, Sauted) else None


def budgets(state: State) -> dict[str, np.ndarray]:
    """The remaining budgets of sautéed states, under the wrappers' name."""
    inner = sauted(state)
    return {} if inner is None else {"remaining": inner.remaining.copy()}


def outcomes(state: State) -> dict[str, np.ndarray]:
    """What sautéed states tell about the last step, under the wrappers' names."""
    inner = sauted(state)
    return {} if inner is None else {"task_reward": inner.task_reward.copy(), "violated": inner.violated.copy()}


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """The environments to reset: all of them, or the true entries of `options["reset_mask"]`."""
    if not options or "reset_mask" not in options:
        return np.ones(num_envs, bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool or not mask.any():
        raise ValueError(f'options["reset_mask"]={mask} must be {num_envs} bools, at least one of them True')
    return mask
