"""The trials of a sweep as pictures: python scripts/plot_sweep.py FOLDER OUT, FOLDER with the sweep's study.log.

Writes OUT/trials.png (each trial, and each setting against what it came to) and OUT/trials.json (the same as numbers).
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import optuna
from matplotlib.ticker import NullFormatter
from optuna.storages.journal import JournalFileBackend

from saute.evidence.plots import PALETTE, legend, save, sheet, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Return: mean of the validation episodes of all seeds. Safe: by these episodes, the violation probability is with 95 % "
    "confidence at most what was asked for. Stopped trials stand at the last mean that they reported, of an epoch of training, "
    "in which episodes that overspent count as the worst one. Trials far below the others stand at the lower edge."
)


class Shown(NamedTuple):
    """A trial as it is drawn."""

    number: int
    kind: str
    """safe, unsafe or stopped."""
    value: float
    params: dict[str, float | int | str]
    epochs: int
    violated: int | None
    seconds: float


CHOICES = 5
"""So many values at most are taken for choices."""
MARKS = {"safe": ("o", PALETTE[2]), "unsafe": ("s", PALETTE[5]), "stopped": ("x", "#777777")}


def trials_of(study: optuna.Study) -> list[Shown]:
    """All trials that were played to their end or stopped; those that were interrupted came again as others."""
    return [_shown(one) for one in study.trials if one.state.name in ("COMPLETE", "PRUNED")]


def _shown(one: optuna.trial.FrozenTrial) -> Shown:
    whole = one.state.name == "COMPLETE"
    kind = "stopped" if not whole else "safe" if max(one.constraints.values()) <= 0 else "unsafe"
    value = one.value if whole and one.value is not None else list(one.intermediate_values.values())[-1]
    seconds = (
        (one.datetime_complete - one.datetime_start).total_seconds() if one.datetime_complete and one.datetime_start else 0
    )
    return Shown(
        one.number, kind, value, one.params, len(one.intermediate_values), one.user_attrs.get("violated"), round(seconds)
    )


def floor(values: Sequence[float]) -> float:
    """What is drawn at least: q₁ − 2 (q₃ − q₁) of the quartiles, so that one poor trial does not squeeze all others."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(low - 2.0 * (high - low))


@styled
def picture(trials: Sequence[Shown], subject: str) -> Figure:
    """Every trial in its turn, with the best safe return so far, and below it every setting against the return."""
    lowest = floor([one.value for one in trials])
    trials = [one._replace(value=max(one.value, lowest)) for one in trials]
    names = list(trials[0].params)
    rows = 1 + (len(names)) // 2
    figure, body, axes = sheet(f"{subject}: a sweep of {len(trials)} trials", [CAPTION], [1.25] * rows, 2, lines=2)
    panels = list(axes.ravel())
    _scatter(panels[0], trials, [one.number for one in trials])
    best, line = float("-inf"), []
    for one in trials:
        best = max(best, one.value) if one.kind == "safe" else best
        line.append(best)
    panels[0].plot(
        [one.number for one in trials], line, color=PALETTE[2], linewidth=0.9, drawstyle="steps-post", label="best safe one"
    )
    panels[0].set_xlabel("trial")
    for axis, name in zip(panels[1:], names, strict=False):
        _setting(axis, name.removeprefix("settings."), trials, [one.params[name] for one in trials])
    for axis in panels[1 + len(names) :]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("return")
    legend(body, panels[0])
    return figure


def _setting(axis: Axes, name: str, trials: Sequence[Shown], values: Sequence[float | int | str]) -> None:
    """A few choices stand side by side; numbers on a scale, in factors if the greatest is many times the least."""
    choices = sorted(set(values))
    if len(choices) <= CHOICES:
        _scatter(axis, trials, [choices.index(value) for value in values])
        axis.set_xticks(range(len(choices)), [f"{value:g}" if isinstance(value, float) else str(value) for value in choices])
        axis.set_xlim(-0.5, len(choices) - 0.5)
    else:
        numbers = [float(value) for value in values]
        _scatter(axis, trials, numbers)
        if max(numbers) > 5 * min(numbers) > 0:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(name)


def _scatter(axis: Axes, trials: Sequence[Shown], places: Sequence[float]) -> None:
    for kind, (mark, colour) in MARKS.items():
        chosen = [i for i, one in enumerate(trials) if one.kind == kind]
        axis.scatter(
            [places[i] for i in chosen],
            [trials[i].value for i in chosen],
            s=11,
            c=colour,
            marker=mark,
            label=kind,
            linewidths=0.8,
        )


if __name__ == "__main__":
    folder, out = map(pathlib.Path, sys.argv[1:3])
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.log")))
    study = optuna.load_study(study_name="sweep", storage=storage)
    asked, trials = json.loads(study.user_attrs["asked"]), trials_of(study)
    save(picture(trials, f"{asked['env']}, {asked['algo']}"), out / "trials.png")
    lines = ",\n".join(json.dumps(one._asdict(), sort_keys=True) for one in trials)
    (out / "trials.json").write_text(f"[\n{lines}\n]\n")
    print(f"wrote {out / 'trials.png'} and {out / 'trials.json'}")
