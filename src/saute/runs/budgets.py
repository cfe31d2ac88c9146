"""What a sautéed policy does at many budgets: whole episodes at each, in a program that is compiled once, and paths to draw."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from saute.core.errors import UserError
from saute.core.progress import Meter, progress
from saute.envs.from_gym import HostEnvs
from saute.runs.config import Budget, Config
from saute.runs.evaluate import BATCH, Outcome, Steps, at_budgets, pooled
from saute.runs.outcomes import OWN, Elsewhere, in_words, ready

if TYPE_CHECKING:
    from saute.envs.safe_pendulum import Pendulum
    from saute.envs.safe_reacher import Reacher

__all__ = ["AtBudget", "Path", "Plane", "at_each_budget", "paths_of", "plane_of", "sees_its_budget"]


class AtBudget(NamedTuple):
    """Fresh episodes of every seed at one budget, and the first few of the first seed step by step."""

    budget: Budget
    outcomes: list[Outcome]
    steps: Steps


class Plane(NamedTuple):
    """Two numbers in which the episodes of a task are drawn, and what they are called."""

    across: str
    along: str
    points: Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray]]
    """Physical states (step, number), and the return so far → the two numbers of every step."""
    unsafe: Callable[[Any], tuple[np.ndarray, np.ndarray]] | None = None
    """The task → the corners of the region whose steps cost, if it can be seen in this plane."""
    square: bool = False
    """Whether both are lengths, of equal scale."""


class Path(NamedTuple):
    """One episode in its plane, and the share of its budget that remained after each step, least of several."""

    step: np.ndarray
    across: np.ndarray
    along: np.ndarray
    remaining: np.ndarray


def sees_its_budget(config: Config) -> bool:
    """Whether one policy serves several budgets, since it observes what remains of them."""
    return config.experiment.sauted and config.experiment.augment


def at_each_budget(
    run: pathlib.Path,
    budgets: Sequence[Budget],
    episodes: int,
    seed: int,
    shown: int,
    elsewhere: Elsewhere = OWN,
) -> Iterator[AtBudget]:
    """What `outcomes_of` gives at one budget after another, which the policies see relative to that of their training."""
    _, env, net, parameters = ready(run, episodes, elsewhere=elsewhere)
    size = env.num_envs if isinstance(env, HostEnvs) else min(episodes, BATCH)
    test = at_budgets(net, env, size, min(shown, size))
    with progress(Meter("budgets", len(budgets), "testing")) as meter:
        for number, budget in enumerate(budgets):
            outcomes, told = list[Outcome](), list[Steps]()
            for i, own in enumerate(parameters):
                starts = range(seed + i * episodes, seed + (i + 1) * episodes, size)
                try:
                    batches = [test(own, start, np.asarray(budget)) for start in starts]
                except ValueError as problem:
                    raise UserError(f"{run} at a budget of {in_words(budget)}: {problem}") from problem
                outcomes.append(pooled([outcome for outcome, _ in batches], episodes))
                told.append(batches[0][1])
            meter.tell(number + 1, (f"budget {in_words(budget)}",))
            yield AtBudget(budget, outcomes, told[0])


def plane_of(task: str, native: bool) -> Plane:
    """Where the cost of a task can be seen; of others, and of those whose states are not at hand, the return over time."""
    return PLANES.get(task, RETURNS) if native else RETURNS


def paths_of(tested: AtBudget, plane: Plane, most: int = 100) -> list[Path]:
    """The shown episodes up to their ends, every so many steps, so that none has more than so many points."""
    steps = tested.steps
    shares = steps.remaining / np.asarray(tested.budget)
    shares = shares.reshape(*shares.shape[:2], -1).min(-1)
    paths = []
    for i, ended in enumerate(steps.ended.T):
        length = int(ended.argmax()) + 1
        kept = np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))
        physical = None if plane is RETURNS else np.asarray(steps.state.physical[:, i])
        points = plane.points(physical, np.cumsum(steps.task_reward[:, i], dtype=np.float64))
        paths.append(Path(kept, points[0][kept], points[1][kept], shares[kept, i]))
    return paths


def _wrapped(angle: np.ndarray) -> np.ndarray:
    """In degrees from −180 to 180, where 0 is upright."""
    return np.degrees(np.arctan2(np.sin(angle), np.cos(angle)))


def _fingertip(x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from saute.envs.safe_reacher import LENGTH, TIP_LENGTH

    first, both = x[:, 0], x[:, 0] + x[:, 1]
    return LENGTH * np.cos(first) + TIP_LENGTH * np.cos(both), LENGTH * np.sin(first) + TIP_LENGTH * np.sin(both)


def _strip(half_height: float) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """Angles that cost, at every speed up to this."""

    def corners(task: Pendulum) -> tuple[np.ndarray, np.ndarray]:
        low, high = task.unsafe_angle - task.unsafe_width, task.unsafe_angle + task.unsafe_width
        return np.array([low, high, high, low]), half_height * np.array([-1.0, -1.0, 1.0, 1.0])

    return corners


def _disc(centre: Sequence[float], radius: float) -> tuple[np.ndarray, np.ndarray]:
    turn = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    return centre[0] + radius * np.cos(turn), centre[1] + radius * np.sin(turn)


def _hazard_of_arm(task: Reacher) -> tuple[np.ndarray, np.ndarray]:
    """Where the ball of the hazard meets the plane of the arm."""
    from saute.envs.safe_reacher import HEIGHT

    apart = HEIGHT - task.hazard_centre[2]
    return _disc(task.hazard_centre, float(np.sqrt(task.hazard_radius**2 - apart**2)))


RETURNS = Plane("step", "return so far", lambda x, so_far: (np.arange(len(so_far)), so_far))
PLANES = {
    "pendulum": Plane(
        "angle from upright, °", "angular velocity, rad/s", lambda x, _: (_wrapped(x[:, 0]), x[:, 1]), _strip(8.0)
    ),
    "double_pendulum": Plane(
        "angle of the lower pole, °", "its angular velocity, rad/s", lambda x, _: (_wrapped(x[:, 1]), x[:, 4])
    ),
    "reacher": Plane("fingertip, x", "fingertip, y", _fingertip, _hazard_of_arm, True),
    "point": Plane("x", "y", lambda x, _: (x[:, 0], x[:, 1]), lambda task: _disc(task.hazard, task.hazard_radius), True),
}
"""By the name of a task."""
