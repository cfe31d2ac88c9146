"""About how long a training takes on two cores, for the list of what can be reproduced; on faster ones it is half of that."""

from __future__ import annotations

from saute.algos.mbpo import MbpoSettings
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.pets import PetsSettings
from saute.runs.config import Config

__all__ = ["duration", "expected_seconds"]

START = 10.0
"""Seconds until everything is compiled."""
SAMPLING = {"pendulum": 0.1, "double_pendulum": 0.4, "reacher": 0.2, "point": 2.0, "car": 213.0}
"""Seconds per million steps, by task."""
POLICY, VALUES = 2.6, 0.45
"""Seconds per million steps of learning the policy, and of each pass of a value function over them."""
VALIDATED = 0.22e-3
"""Seconds per episode of a validation."""
UPDATE, SPEED = 0.6e-3, 1.2e11
"""Seconds of an update of soft actor-critic besides its matrix products, and their floating-point operations per second."""
PLAN = 0.013
"""Seconds per planned step."""


def expected_seconds(config: Config) -> float | None:
    """Compiling, sampling and learning, all seeds together; None where nothing has been measured."""
    asked, settings = config.experiment, config.settings
    if asked.env not in SAMPLING:
        return None
    steps = asked.seeds * config.epochs * settings.steps_per_epoch
    if isinstance(settings, PetsSettings):
        learning = PLAN
    elif isinstance(settings, OnPolicySettings):
        # Where costs are constrained on average, they have a value function of their own.
        fits = 1 if config.constraint.limit is None else 2
        learning = (POLICY + fits * VALUES * settings.value_iterations / settings.minibatches) / 1e6
    else:
        sac = settings.sac if isinstance(settings, MbpoSettings) else settings
        learning = sac.updates_per_step * (UPDATE + 16 * 2 * sac.batch * sac.hidden[0] ** 2 / SPEED)
    validated = asked.seeds * (config.validation or 0) * config.epochs / config.validation_every
    return START + validated * VALIDATED + steps * (SAMPLING[asked.env] / 1e6 + learning)


def duration(seconds: float) -> str:
    """In the unit in which it is read most easily."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
