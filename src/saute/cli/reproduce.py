"""`saute reproduce`: figures and tables of the paper by name, a list of them, and a page of all."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

from saute.cli.options import positional, shown_as
from saute.cli.output import writing
from saute.core.errors import UserError
from saute.core.names import nearest
from saute.core.tables import columns
from saute.paper.durations import duration, expected_seconds
from saute.paper.figures import ARTIFACTS
from saute.paper.page import EPISODES, page, read, table, verdicts
from saute.paper.reproduce import THEORY, Scale, finished, make, make_theory, needed, seconds_of, train_missing
from saute.paper.theory import TITLE
from saute.runs.checkpoint import write_atomically
from saute.runs.evaluate import TEST_SEED

__all__ = ["Reproduce", "reproduce"]

SOLVING = {"smoke": 20, "laptop": 300, "paper": 300}
"""Seconds that solving what is not trained takes."""


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce figures and tables of the paper; what was trained already is not trained again."""

    names: Annotated[tuple[str, ...], positional()] = ()
    """Figures and tables, or all; page writes the page of all that has been reproduced, and trains nothing; none lists them."""
    scale: Scale = "laptop"
    """smoke: one epoch, to see that all works; laptop: the fast presets, shorter where many are compared; paper: the paper's
    settings and epochs."""
    episodes: Annotated[int, shown_as("N")] = EPISODES
    """Test episodes per seed; planners get 25 at most."""
    runs: Annotated[pathlib.Path, shown_as("FOLDER")] = pathlib.Path("runs/reproduce")
    """Where runs are kept, each in a folder named after its settings."""
    out: Annotated[pathlib.Path, shown_as("FOLDER")] = pathlib.Path("results")
    """Where numbers and pictures go."""
    page: Annotated[pathlib.Path, shown_as("FILE")] = pathlib.Path("docs/reproduction.md")
    """Where the page goes."""
    train: bool = True
    """Whether to train what has not been trained; otherwise only rows whose runs are finished are tested."""
    jobs: Annotated[int, shown_as("N")] = 1
    """How many trainings run at once, each in its own process, before anything is tested; one alone keeps two cores
    busy."""
    list: bool = False
    """List name, number of runs, expected time, state and content of every figure and table."""


def reproduce(options: Reproduce) -> None:
    if options.list or not options.names:
        print(_listing(options.scale, options.runs, options.out))
        return
    if options.names == ("page",):
        _write_page(options)
        return
    for option, number in (("episodes", options.episodes), ("jobs", options.jobs)):
        if number < 1:
            raise UserError(f"--{option} {number} must be at least 1")
    names = _chosen(options)
    if options.train and options.jobs > 1:
        train_missing([name for name in names if name != THEORY], options.scale, options.runs, options.jobs)
    for name in names:
        print(make_theory(options.scale, options.out) if name == THEORY else _made(name, options))
    print(f"wrote {options.out / options.scale}; saute reproduce page --scale {options.scale} writes a page of all of it")


def _chosen(options: Reproduce) -> list[str]:
    every = [*ARTIFACTS, THEORY]
    if options.names == ("all",):
        # Solving takes minutes too, so that all without training leaves it out.
        return every if options.train else [*ARTIFACTS]
    try:
        return [nearest(name, every, "artifact") for name in options.names]
    except ValueError as problem:
        raise UserError(f"{problem}; saute reproduce lists them") from problem


def _made(name: str, options: Reproduce) -> str:
    """The table of a figure or table, and the verdicts on its claims, once it is trained, tested and written."""
    if options.train:
        train_missing([name], options.scale, options.runs)
    if not make(name, options.scale, options.runs, options.out, options.episodes, TEST_SEED):
        return f"{name}: nothing is trained yet"
    known = {other: read(options.out, options.scale, other) for other in ARTIFACTS}
    judged = (f"{verdict.word}: {sentence} ({verdict.reason})" for sentence, verdict in verdicts(name, known))
    return "\n".join([table(ARTIFACTS[name], known[name]), *judged])


def _write_page(options: Reproduce) -> None:
    content = page(options.out, options.scale, options.page)
    with writing(options.page, "--page"):
        options.page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.page, content.encode())
    print(f"wrote {options.page}")


def _listing(scale: Scale, runs: pathlib.Path, out: pathlib.Path) -> str:
    rows = [("name", "runs", "time", "state", "content")]
    for name, artifact in ARTIFACTS.items():
        own = needed([name], scale, runs)
        times = [expected_seconds(need.config) if (took := seconds_of(run)) is None else took for run, need in own.items()]
        time = "?" if None in times else duration(sum(filter(None, times)))
        tested = len(read(out, scale, name))
        rows.append(
            (name, str(len(own)), time, _state(sum(map(finished, own)), len(own), tested, len(artifact.rows)), artifact.title)
        )
    solved = "reproduced" if (out / scale / THEORY / "numbers.json").exists() else "not begun"
    rows.append((THEORY, "0", duration(SOLVING[scale]), solved, TITLE))
    every = needed(ARTIFACTS, scale, runs)
    total = duration(sum(expected_seconds(need.config) or 0.0 for need in every.values()))
    return f"""{columns(rows, right=[1, 2])}

Times are those of training on two cores, measured (also beside another training) or expected of slow ones.
One after another, the {len(every)} different runs are expected to take {total}; those that several share are trained once."""


def _state(trained: int, runs: int, tested: int, rows: int) -> str:
    if tested:
        return "reproduced" if tested == rows else f"{tested} of {rows} rows"
    return f"{trained} of {runs} trained" if trained else "not begun"
