"""Made-up runs for reports: no training, no simulation."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from saute.cli.report import heading
from saute.evidence.certificate import certify
from saute.runs import facts as of
from saute.runs.budgets import AtBudget, plane_of
from saute.runs.evaluate import Outcome, Steps

__all__ = ["NASTY", "made_up", "reported", "steps"]

NASTY = "</script><script>document.title='run'</script><img src=x onerror=alert(1)> =1+1 $$x$$ {title}"


def steps(ended: list[list[bool]], remaining: Any, state: Any = None) -> Steps:
    flags = np.array(ended)
    return Steps(state, np.array(remaining, np.float64), np.ones(flags.shape), flags)


def made_up(costs: list[float], violated: list[bool], name: str = "a") -> of.Tested:
    """A run of one seed at a budget of 10, whose returns are 100 more than its costs."""
    experiment = types.SimpleNamespace(
        budget=10.0, lowest_budget=None, discount=1.0, env="own", method="saute", algo="ppo", seeds=1
    )
    config: Any = types.SimpleNamespace(experiment=experiment, settings=types.SimpleNamespace(steps_per_epoch=4000))
    paid, flags = np.array(costs, np.float32), np.array(violated)
    outcome = Outcome(paid + 100, paid, np.full(len(costs), 5), paid, flags)
    return of.Tested(name, config, [outcome], certify([paid], 10.0, violated=[flags], returns=[paid + 100]))


def swept(run: of.Tested, budget: float) -> AtBudget:
    """The same costs at another budget, and two episodes of ten steps that spend evenly, 5 and 11."""
    (one,) = run.outcomes
    left = [[budget - 0.5 * i, budget - 1.1 * i] for i in range(11)]
    told = steps([[i == 10] * 2 for i in range(11)], left)
    return AtBudget(budget, [one._replace(violated=one.cost > budget)], told)


def reported(*runs: of.Tested, **changes: Any) -> dict[str, Any]:
    """The facts of a page about them."""
    origin = dict(config="c0", policy="p0", epochs=3, date="2026-01-01", saute="0", machine="m")
    epochs: Any = [[{"task_return": 1.0 * i, "cost": 2.0 * i, "worst_cost": 3.0 * i, "cost_rate": 2.0}] for i in range(3)]
    shown = []
    for run in runs:
        at = [swept(run, budget) for budget in (2.0, 5.0, 10.0, 12.0)]
        told = {"name": run.name, "statement": run.certificate.statement, "violations": run.certificate.pooled.violations}
        told |= {"certificates": of.certificates(run), "notes": run.certificate.notes, "curvesNote": None, "sliderNote": None}
        told |= {"conditions": of.conditions(run, origin, 4, 7), "film": None, "filmNote": f"There is no film of {run.name}."}
        shown.append({**told, "slider": of.slider(run.name, run.config, at, plane_of("own", False), 2)})
    return {
        **heading([run.name for run in runs], "own"),
        "budget": "10 per episode",
        "sweep": 4,
        "runs": shown,
        "evaluation": of.evaluation(runs),
        "comparison": None,
        "distributions": of.distributions(runs, 10.0),
        "curves": of.curves({run.name: (run.config, epochs) for run in runs}, 10.0),
        **changes,
    }
