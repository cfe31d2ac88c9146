"""Hours of training of `saute reproduce all --scale laptop` from nothing, against the six that it may take on two cores.

    python benchmarks/bench_reproduce.py [ARTIFACT …]

Every different run is begun with its own settings, compiling included, and stopped after some epochs of learning; as later
epochs take as long as those, they are multiplied. `expected` is what `saute reproduce --list` says. About 30 minutes.
"""

from __future__ import annotations

import math
import pathlib
import sys
import tempfile
import time

from saute.algos.mbpo import MbpoSettings
from saute.algos.onpolicy import Settings
from saute.artifacts import ARTIFACTS
from saute.expected import duration, expected_seconds
from saute.experiment import Experiment, algorithm_of, environment_of, selection_of
from saute.reproduce import folder_of, scaled
from saute.training import train

LIMIT = 6 * 3600.0
SECONDS, EPOCHS = 15.0, 3
"""A run is timed for at least as long and for as many epochs of learning."""


class Enough(Exception):
    """The run has been timed."""


def warm_epochs(experiment: Experiment) -> int:
    """Epochs at the beginning that compile, or act at random, and so are not like the others."""
    settings = experiment.learner.settings if experiment.learner else None
    if settings is None or isinstance(settings, Settings):
        return 1
    random = settings.sac.random_steps if isinstance(settings, MbpoSettings) else settings.random_steps
    return 1 + math.ceil(random / settings.steps_per_epoch)


def training_seconds(experiment: Experiment, out: pathlib.Path) -> float:
    """Compiling and the warm epochs as they are, the others at the pace of those that are timed."""
    selection, warm = selection_of(experiment), warm_epochs(experiment)
    least = EPOCHS if selection is None else selection.every
    begin, ends = time.monotonic(), []

    def report(epoch: int, metrics: list[dict[str, float]]) -> None:
        ends.append(time.monotonic() - begin)
        timed = len(ends) - warm
        # Where there are validations, as many of them are timed as belong to the epochs.
        if timed >= least and ends[-1] - ends[warm - 1] >= SECONDS and (selection is None or timed % selection.every == 0):
            raise Enough

    epochs = experiment.epochs or 1
    try:
        train(
            algorithm_of(experiment),
            environment_of(experiment),
            seeds=experiment.seeds,
            epochs=epochs,
            seed=experiment.seed,
            budget=experiment.budget,
            selection=selection,
            out=out,
            report=report,
        )
    except Enough:
        pace = (ends[-1] - ends[warm - 1]) / (len(ends) - warm)
        return ends[warm - 1] + (epochs - warm) * pace
    return time.monotonic() - begin


def main(names: list[str]) -> None:
    seen: set[pathlib.Path] = set()
    total = foreseen = 0.0
    print(f"{'artifact':<26} {'run':<24} {'epochs':>6} {'ours':>8} {'expected':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as place:
        for name in names or ARTIFACTS:
            for row in ARTIFACTS[name].rows:
                experiment = scaled(row, "laptop")
                out = folder_of(experiment, pathlib.Path(place))
                if out in seen:
                    continue
                seen.add(out)
                ours, expected = training_seconds(experiment, out), expected_seconds(experiment) or math.nan
                total, foreseen = total + ours, foreseen + expected
                numbers = f"{experiment.epochs:>6} {duration(ours):>8} {duration(expected):>8} {ours / expected:>6.2f}"
                print(f"{name:<26} {row.label:<24} {numbers}", flush=True)
    sums = f"ours {duration(total)}, expected {duration(foreseen)}"
    print(f"{len(seen)} runs: {sums}, limit {duration(LIMIT)}, ratio {total / LIMIT:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
