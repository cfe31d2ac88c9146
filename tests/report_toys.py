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
from saute.runs.outcomes import in_words

__all__ = ["NASTY", "made_up", "reported", "steps", "two_budgets"]

NASTY = "</script><script>document.title='run'</script><img src=x onerror=alert(1)> =1+1 $$x$$ {title}"


def steps(ended: list[list[bool]], remaining: Any, state: Any = None) -> Steps:
    flags = np.array(ended)
    return Steps(state, np.array(remaining, np.float64), np.ones(flags.shape), flags)


def made_up(costs: list[Any], violated: list[Any], name: str = "a", budget: Any = 10.0) -> of.Tested:
    """A run of one seed, whose returns are 100 more than its first costs."""
    experiment = types.SimpleNamespace(
        budget=budget, lowest_budget=None, discount=1.0, env="own", method="saute", algo="ppo", seeds=1
    )
    config: Any = types.SimpleNamespace(experiment=experiment, settings=types.SimpleNamespace(steps_per_epoch=4000))
    paid, flags = np.array(costs, np.float32), np.array(violated)
    earned, several = 100 + paid.reshape(len(paid), -1)[:, 0], paid.ndim > 1
    outcome = Outcome(
        earned, paid, np.full(len(costs), 5), paid, flags.any(1) if several else flags, flags if several else None
    )
    return of.Tested(name, config, [outcome], certify([paid], budget, violated=[flags], returns=[earned]))


def two_budgets() -> of.Tested:
    """Four episodes, of which the last one overspends its second budget."""
    flags = [[False, False]] * 3 + [[False, True]]
    return made_up([[1.0, 2.0], [3.0, 1.0], [5.0, 4.0], [7.0, 6.0]], flags, budget=(10.0, 5.0))


def swept(run: of.Tested, budget: Any) -> AtBudget:
    """The same costs at another budget, and two episodes of ten steps that spend evenly, 5 and 11."""
    (one,) = run.outcomes
    full, broken = np.array(budget), one.cost > np.array(budget)
    told = steps([[i == 10] * 2 for i in range(11)], [[full - 0.5 * i, full - 1.1 * i] for i in range(11)])
    flags = {"violated": broken} if broken.ndim == 1 else {"violated": broken.any(1), "violated_each": broken}
    return AtBudget(budget, [one._replace(**flags)], told)


def reported(*runs: of.Tested, **changes: Any) -> dict[str, Any]:
    """The facts of a page about them."""
    origin = dict(config="c0", policy="p0", epochs=3, date="2026-01-01", saute="0", machine="m")
    budget = runs[0].config.experiment.budget
    epochs: Any = [[{"task_return": 1.0 * i, "cost": 2.0 * i, "worst_cost": 3.0 * i, "cost_rate": 2.0}] for i in range(3)]
    shown = []
    for run in runs:
        own = run.config.experiment.budget
        at = [swept(run, tuple(k * np.array(own)) if isinstance(own, tuple) else k * own) for k in (0.2, 0.5, 1.0, 1.2)]
        told = {"name": run.name, "statement": run.certificate.statement, "violations": run.certificate.pooled.violations}
        told |= {"certificates": of.certificates(run), "notes": run.certificate.notes, "curvesNote": None, "sliderNote": None}
        told |= {"epochs": origin["epochs"]}
        told |= {"conditions": of.conditions(run, origin, 4, 7), "film": None, "filmNote": f"There is no film of {run.name}."}
        shown.append({**told, "slider": of.slider(run.name, run.config, at, plane_of("own", False), 2)})
    return {
        **heading([run.name for run in runs], "own"),
        "budget": f"{in_words(budget)} per episode",
        "sweep": 4,
        "runs": shown,
        "evaluation": of.evaluation(runs),
        "comparison": None,
        "distributions": of.distributions(runs, budget),
        "curves": of.curves({run.name: (run.config, epochs) for run in runs}, budget),
        **changes,
    }
