"""A learned shield of the pendulum beside the exact least budget b*, at the states that the shielded policies visit.

    python scripts/shield_against_exact.py RUN [RUN…]

b(s, a) + margin may be more than b*(s), which costs return. Where it is less, the shield admits actions after which nobody can
keep the budget. b* knows how many steps are left, b does not.
"""

from __future__ import annotations

import pathlib
import sys

import jax.numpy as jnp
import numpy as np

import saute
from saute.core.errors import UserError
from saute.core.seeds import VALIDATION
from saute.envs.safe_pendulum import Pendulum
from saute.paper.exact_pendulum import Grid, least_budget, needed
from saute.runs.evaluate import at_budgets
from saute.runs.outcomes import ready

EPISODES = 200
"""Of each seed."""
GRID = Grid(241, 201, 9, 0)


def excess(run: str, exact: np.ndarray) -> np.ndarray:
    """b + margin − b* of every visited state, as (seed, step, episode), in the units of the cost."""
    config, env, policy, parameters = ready(pathlib.Path(run), EPISODES, shield=True)
    if config.experiment.env != "pendulum":
        raise UserError(f"{run} is of {config.experiment.env}; the exact least budget is known of the pendulum only")
    budget, shield, found = env.options.high, saute.load_shield(run), []
    play = at_budgets(policy, env, EPISODES, EPISODES)
    for seed, one in enumerate(parameters):
        steps = play(one, VALIDATION.start + seed, budget)[1]
        x = np.asarray(steps.state.physical)
        left = np.concatenate([np.full((1, EPISODES), budget), steps.remaining[:-1]])
        obs = np.stack([np.cos(x[..., 0]), np.sin(x[..., 0]), x[..., 1]], -1).astype(np.float32).reshape(-1, 3)
        proposed = saute.load_policy(run, seed)
        action = proposed(obs) if proposed.reference is None else proposed(obs, left.ravel())
        learned = shield.need(obs, action).reshape(left.shape)
        found.append(learned - np.stack([needed(Pendulum(), exact[t], jnp.asarray(x[t])) for t in range(len(x))]))
    return np.stack(found)


def main(runs: list[str]) -> str | None:
    """Print a line for each run; or else, say what is wrong."""
    if not runs:
        return __doc__
    exact = least_budget(Pendulum(), GRID)
    for run in runs:
        try:
            gap = excess(run, exact)
        except (UserError, ValueError) as problem:
            return f"error: {problem}"
        short = gap < 0.0
        print(
            f"{run}: b + margin − b* is {gap.mean():.2f} on average; b + margin < b* in {short.sum():,} of {gap.size:,} states "
            f"({100 * short.mean():.3g} %), at worst by {max(0.0, -gap.min()):.3g}"
        )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
