"""Hours of training of `saute reproduce all --scale laptop` from nothing, against the limit of six on two cores.

    python benchmarks/bench_reproduce.py [ARTIFACT …]

Every different run is compiled and begun with its own settings, and stopped after some epochs of learning; we assume that the
rest has the same pace. `expected` is what `saute reproduce --list` says. Then two trainings at once, as with `--ray`, are
compared with one after the other. It takes about 30 minutes.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import pathlib
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

from saute.algos.mbpo import MbpoSettings
from saute.algos.onpolicy import OnPolicySettings
from saute.paper.durations import duration, expected_seconds
from saute.paper.figures import ARTIFACTS
from saute.paper.reproduce import scaled
from saute.runs.build import algorithm_of, environment_of, selection_of
from saute.runs.config import Config
from saute.runs.folder import folder_of
from saute.runs.loop import train

LIMIT = 6 * 3600.0
SECONDS, EPOCHS = 15.0, 3
"""A run is timed for at least this many seconds and epochs of learning."""
PAIRED = {"double-pendulum": "TRPO-L", "car": "TRPO-L"}
"""The runs of which two are trained at once; these tasks take most of the hours."""


class Enough(Exception):
    """The run has been timed."""


def warm_epochs(config: Config) -> int:
    """How many epochs at the beginning compile or act at random, and so take another time than the rest."""
    settings = config.settings
    if isinstance(settings, OnPolicySettings):
        return 1
    random = settings.sac.random_steps if isinstance(settings, MbpoSettings) else settings.random_steps
    return 1 + math.ceil(random / settings.steps_per_epoch)


def timed(config: Config, out: pathlib.Path, seconds: float = SECONDS) -> tuple[float, float]:
    """Seconds of compilation and the warm epochs together, and seconds of each later epoch."""
    selection, warm, asked = selection_of(config), warm_epochs(config), config.experiment
    # If there are validations, whole cycles are timed: all epochs from one validation to the next.
    least = EPOCHS if selection is None else selection.every
    begin, ends = time.monotonic(), []

    def report(epoch: int, metrics: list[dict[str, float]]) -> None:
        ends.append(time.monotonic() - begin)
        later = len(ends) - warm
        if later >= least and ends[-1] - ends[warm - 1] >= seconds and (selection is None or later % least == 0):
            raise Enough

    with contextlib.suppress(Enough):
        train(
            algorithm_of(config),
            environment_of(config),
            seeds=asked.seeds,
            epochs=config.epochs,
            seed=asked.seed,
            budget=asked.budget,
            discount=asked.discount,
            selection=selection,
            out=out,
            config=config,
            report=report,
        )
    return ends[warm - 1], (ends[-1] - ends[warm - 1]) / (len(ends) - warm)


def gain(config: Config, place: pathlib.Path) -> float:
    """How many times faster two trainings at once are than one after the other."""
    _, alone = timed(config, place / "alone", 3 * SECONDS)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        paces = [pool.submit(timed, config, place / name, 3 * SECONDS) for name in ("one", "other")]
        return sum(alone / pace.result()[1] for pace in paces)


def main(names: list[str]) -> None:
    seen: set[pathlib.Path] = set()
    total = foreseen = 0.0
    print(f"{'artifact':<26} {'run':<24} {'epochs':>6} {'ours':>8} {'expected':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as place:
        for name in names or ARTIFACTS:
            for row in ARTIFACTS[name].rows:
                config = scaled(row, "laptop")
                out = folder_of(config, pathlib.Path(place))
                if out in seen:
                    continue
                seen.add(out)
                first, pace = timed(config, out)
                ours = first + pace * (config.epochs - warm_epochs(config))
                expected = expected_seconds(config) or math.nan
                total, foreseen = total + ours, foreseen + expected
                numbers = f"{config.epochs:>6} {duration(ours):>8} {duration(expected):>8} {ours / expected:>6.2f}"
                print(f"{name:<26} {row.label:<24} {numbers}", flush=True)
        sums = f"ours {duration(total)}, expected {duration(foreseen)}"
        print(f"{len(seen)} runs: {sums}, limit {duration(LIMIT)}, ratio {total / LIMIT:.2f}")
        gains = []
        for name in PAIRED.keys() & (names or ARTIFACTS):
            row = next(row for row in ARTIFACTS[name].rows if row.label == PAIRED[name])
            gains.append(gain(scaled(row, "laptop"), pathlib.Path(place, name)))
            print(f"two at once, {name} {row.label}: {gains[-1]:.2f} × one after the other", flush=True)
    if gains:
        hours = total / min(gains)
        print(f"{len(seen)} runs two at once: ours {duration(hours)}, limit {duration(LIMIT)}, ratio {hours / LIMIT:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
