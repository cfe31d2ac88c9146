"""`saute reproduce`: the figures and tables of the paper by name, their list, and a page of all."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from saute.cli.machines import ALONE, Machines, crew, placed
from saute.cli.options import flat, positional, shown_as
from saute.cli.output import writing
from saute.core.errors import UserError
from saute.core.files import write_atomically
from saute.core.names import nearest
from saute.core.tables import as_json, columns, room
from saute.paper.benchmark import compared
from saute.paper.durations import duration, expected_seconds
from saute.paper.figures import ARTIFACTS, BENCHMARK, SAFER
from saute.paper.page import EPISODES, page, read, table, verdicts
from saute.paper.reproduce import THEORY, Scale, complete, make, make_theory, needed, seconds_of, train_missing
from saute.paper.safer import safer
from saute.paper.shipped import SHIPPED, make_shipped
from saute.paper.theory import TITLE
from saute.runs.folder import TrainingError

__all__ = ["Reproduce", "reproduce"]

SOLVING = {"smoke": 20, "laptop": 300, "paper": 300}
"""Seconds to solve theorem 2, which needs no training, by scale."""


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce figures and tables of the paper; finished runs are not trained again."""

    names: Annotated[tuple[str, ...], positional()] = ()
    """Names of figures and tables, or all; page only writes the page of all that is reproduced; shipped tests the policies that
    come with the package; without a name, list them."""
    scale: Scale = "laptop"
    """smoke: one epoch, to see that everything works; laptop: the fast presets, shorter for most baselines; paper: the paper's
    settings and epochs."""
    episodes: Annotated[int, shown_as("N")] = EPISODES
    """Test episodes per seed; PETS, which is slow to test, gets 25 at most."""
    runs: Annotated[pathlib.Path, shown_as("FOLDER")] = pathlib.Path("runs/reproduce")
    """Where run folders are kept; each is named after its settings."""
    out: Annotated[pathlib.Path, shown_as("FOLDER")] = pathlib.Path("results")
    """Where numbers and pictures go."""
    page: Annotated[pathlib.Path, shown_as("FILE")] = pathlib.Path("docs/reproduction.md")
    """Where the page goes."""
    reserved: bool = False
    """Test on a block of seeds that no other result has had; it is opened once, which opened.json in the results records."""
    train: bool = True
    """Whether to train runs that are not finished; without, only rows whose runs are finished are tested."""
    keep_going: bool = False
    """With --ray, whether the other runs go on when one fails; by default they stop too."""
    list: bool = False
    """List every figure and table: name, number of runs, time, state and content."""
    json: bool = False
    """Print that list as JSON."""
    machines: Annotated[Machines, flat()] = ALONE


def reproduce(options: Reproduce) -> None:
    options = dataclasses.replace(options, runs=placed(options.machines, options.runs))
    if options.list or options.json or not options.names:
        found = _entries(options.scale, options.runs, options.out)
        print(as_json(found) if options.json else _listing(found, options))
        return
    if options.names == ("page",):
        _write_page(options)
        return
    if options.episodes < 1:
        raise UserError(f"--episodes {options.episodes} must be at least 1")
    names = _chosen(options)
    with _stopping(options.runs):
        if options.train and options.machines.ray is not None:
            trainings = [name for name in names if name not in (THEORY, SHIPPED)]
            with crew(options.machines) as workers:
                train_missing(trainings, options.scale, options.runs, workers, options.keep_going)
        for name in names:
            print(_made(name, options))
    print(f"wrote {options.out / options.scale}; saute reproduce page --scale {options.scale} writes a page of all of it")


@contextlib.contextmanager
def _stopping(runs: pathlib.Path) -> Iterator[None]:
    """What stops a reproduction is said in one line; what was trained is kept, and not trained again."""
    try:
        yield
    except (TrainingError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(f"cannot write to {runs} ({problem.strerror}); choose another folder with --runs") from problem
    except KeyboardInterrupt:
        print(f"stopped; what is trained so far is kept in {runs}, and the same command goes on from there")
        raise


def _chosen(options: Reproduce) -> list[str]:
    if options.names == ("all",):
        # Theorem 2 takes minutes to solve, so "all" without training leaves it out.
        return [*ARTIFACTS, THEORY] if options.train else [*ARTIFACTS]
    try:
        return [nearest(name, [*ARTIFACTS, *SAFER, *BENCHMARK, THEORY, SHIPPED], "artifact") for name in options.names]
    except ValueError as problem:
        raise UserError(f"{problem}; saute reproduce lists them") from problem


def _made(name: str, options: Reproduce) -> str:
    """Train, test and write a figure or table; the text is its table and the verdicts on its claims."""
    if name == THEORY:
        return make_theory(options.scale, options.out)
    if name == SHIPPED:
        return make_shipped(options.scale, options.out, options.episodes, options.reserved)
    if options.train:
        train_missing([name], options.scale, options.runs)
    if not make(name, options.scale, options.runs, options.out, options.episodes, options.reserved):
        return f"{name}: nothing is trained yet"
    if name in SAFER:
        return safer(name, options.scale, options.runs, options.out)
    if name in BENCHMARK:
        return compared(name, options.scale, options.out)
    known = {other: read(options.out, options.scale, other) for other in ARTIFACTS}
    found = verdicts(name, known, options.scale)
    judged = (f"{one.verdict.word}: {one.sentence} ({one.verdict.reason})" for one in found)
    return "\n".join([table(ARTIFACTS[name], known[name]), *judged])


def _write_page(options: Reproduce) -> None:
    content = page(options.out, options.scale, options.page)
    with writing(options.page, "--page"):
        options.page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.page, content.encode())
    print(f"wrote {options.page}")


def _entries(scale: Scale, runs: pathlib.Path, out: pathlib.Path) -> list[dict[str, Any]]:
    """Name, number of runs, seconds of training (None if nobody knows), state and content of every figure and table."""
    found = []
    for name, artifact in (ARTIFACTS | SAFER | BENCHMARK).items():
        own = needed([name], scale, runs)
        times = [expected_seconds(need.config) if (took := seconds_of(run)) is None else took for run, need in own.items()]
        known = [time for time in times if time is not None]
        state = _state(sum(map(complete, own)), len(own), len(read(out, scale, name)), len(artifact.rows))
        seconds = sum(known) if len(known) == len(times) else None
        found.append({"name": name, "runs": len(own), "seconds": seconds, "state": state, "content": artifact.title})
    solved = "reproduced" if (out / scale / THEORY / "numbers.json").exists() else "not begun"
    return [*found, {"name": THEORY, "runs": 0, "seconds": SOLVING[scale], "state": solved, "content": TITLE}]


def _listing(found: Sequence[dict[str, Any]], options: Reproduce) -> str:
    rows = [("name", "runs", "time", "state", "content")]
    for it in found:
        time = "?" if it["seconds"] is None else duration(it["seconds"])
        rows.append((it["name"], str(it["runs"]), time, it["state"], it["content"]))
    every = needed(ARTIFACTS, options.scale, options.runs)
    total = duration(sum(expected_seconds(need.config) or 0.0 for need in every.values()))
    return f"""{columns(rows, right=[1, 2], width=room())}

Times are for training on two cores: measured where a run is finished (perhaps beside another run), else expected.
One after another, the {len(every)} different runs are expected to take {total}; runs that several share are trained once."""


def _state(trained: int, runs: int, tested: int, rows: int) -> str:
    if tested:
        return "reproduced" if tested == rows else f"{tested} of {rows} rows"
    return f"{trained} of {runs} trained" if trained else "not begun"
