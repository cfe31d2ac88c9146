"""How long a training takes on two slow cores, roughly, for `saute reproduce --list`; fast cores need half of that."""

from __future__ import annotations

from saute.algos.mbpo import MbpoSettings
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.pets import PetsSettings
from saute.runs.config import Config

__all__ = ["duration", "expected_seconds"]

START = 10.0
"""Seconds to compile everything."""
SAMPLING = {"pendulum": 0.1, "double_pendulum": 0.4, "reacher": 0.2, "point": 2.0, "car": 213.0, "point_goal1": 1.5}
SAMPLING |= {
    f"{robot}_velocity": seconds
    for robot, seconds in {
        "half_cheetah": 40.0, "hopper": 50.0, "walker2d": 65.0, "swimmer": 40.0, "ant": 110.0, "humanoid": 130.0,
    }.items()
}  # fmt: skip
"""Seconds per million steps, by task."""
POLICY, VALUES = 2.6, 0.45
"""Seconds per million steps for the update of the policy, and for each pass of a value function over the steps."""
VALIDATED = 0.22e-3
"""Seconds per validation episode."""
UPDATE, SPEED = 0.6e-3, 1.2e11
"""Seconds of a SAC update without its matrix products, and the floating-point operations per second of those."""
PLAN = 0.013
"""Seconds per planned step."""


def expected_seconds(config: Config) -> float | None:
    """Seconds to compile, sample, learn and validate, for all seeds together; None if the task has not been measured."""
    asked, settings = config.experiment, config.settings
    if asked.env not in SAMPLING:
        return None
    steps = asked.seeds * config.epochs * settings.steps_per_epoch
    if isinstance(settings, PetsSettings):
        learning = PLAN
    elif isinstance(settings, OnPolicySettings):
        # With a constraint on the mean cost there is a second value function, of the cost.
        fits = 1 if config.constraint.limit is None else 2
        learning = (POLICY + fits * VALUES * settings.value_iterations / settings.minibatches) / 1e6
    else:
        sac = settings.sac if isinstance(settings, MbpoSettings) else settings
        learning = sac.updates_per_step * (UPDATE + 16 * 2 * sac.batch * sac.hidden[0] ** 2 / SPEED)
    validated = asked.seeds * (config.validation or 0) * config.epochs / config.validation_every
    return START + validated * VALIDATED + steps * (SAMPLING[asked.env] / 1e6 + learning)


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours, whichever is easiest to read."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
