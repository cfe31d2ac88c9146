"""What training with Stable-Baselines3 comes to in the task's own numbers, beside its curves of the shaped reward."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from saute.core.extras import needed
from saute.core.single import SauteWrapper

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(needed("saute.sb3", missing) or str(missing), name=missing.name) from missing

__all__ = ["SafetyCallback"]


class Finished(NamedTuple):
    """What `SauteWrapper` says of an episode at its end."""

    task_return: float
    cost: np.ndarray
    violated: bool


class SafetyCallback(BaseCallback):
    """Logs the task's own return, costs and violations of those episodes whose shaped reward is in `rollout/ep_rew_mean`.

    `safety/return` and `safety/cost` are means and `safety/worst_cost` is the maximum over the last `safety/episodes` finished
    episodes (at most `stats_window_size` of the model, 100 by default). `safety/violations` of them overspent their budget, and
    `safety/violation_rate` is their share. Several constraints have one cost each, `safety/cost_0` and so on. Nothing is logged
    before an episode has finished.
    """

    def __init__(self) -> None:
        BaseCallback.__init__(self)
        self._finished: deque[Finished] = deque()
        self._numbers: dict[str, float] = {}

    def _on_training_start(self) -> None:
        bare = [i for i, sauted in enumerate(self.training_env.env_is_wrapped(SauteWrapper)) if not sauted]
        if bare:
            raise ValueError(
                f"SafetyCallback found no saute.SauteWrapper in the environments {bare}, so their costs are unknown; train "
                "on saute.SauteWrapper(env, budget=d), also inside of make_vec_env and SubprocVecEnv"
            )
        window = None if self.model.ep_info_buffer is None else self.model.ep_info_buffer.maxlen
        self._finished = deque(self._finished, maxlen=window)

    def _on_step(self) -> bool:
        if np.count_nonzero(self.locals["dones"]):
            for i in np.flatnonzero(self.locals["dones"]):
                self._finished.append(_finished(self.locals["infos"][i], int(i)))
            self._numbers = _numbers(list(self._finished))
        # SB3 forgets what it has written, and writes its own means anew also if no episode has finished since.
        for name, value in self._numbers.items():
            self.logger.record(name, value)
        return True


def _finished(info: dict[str, object], env: int) -> Finished:
    try:
        return Finished(info["episode_task_return"], np.asarray(info["episode_cost"]), info["episode_violated"])  # type: ignore[arg-type]
    except KeyError as missing:
        raise ValueError(
            f"an episode of environment {env} ended without {missing} in its info, so saute.SauteWrapper has not seen its end; "
            "put wrappers that end episodes, such as TimeLimit, inside of it"
        ) from None


def _numbers(finished: list[Finished]) -> dict[str, float]:
    costs, violations = np.array([one.cost for one in finished]), sum(one.violated for one in finished)
    numbers = {
        "safety/return": float(np.mean([one.task_return for one in finished])),
        "safety/violation_rate": violations / len(finished),
        "safety/violations": violations,
        "safety/episodes": len(finished),
    }
    each = {"": costs} if costs.ndim == 1 else {f"_{i}": costs[:, i] for i in range(costs.shape[1])}
    for constraint, paid in each.items():
        numbers[f"safety/cost{constraint}"] = float(paid.mean())
        numbers[f"safety/worst_cost{constraint}"] = float(paid.max())
    return numbers
