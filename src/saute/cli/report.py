"""`saute report`: one HTML file that shows what runs do and what fresh episodes prove, for a thesis or a safety case."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import io
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium as gym
import numpy as np

import saute
from saute.cli.certify import compared, note_of, unchanged
from saute.cli.film import Film, write_mp4
from saute.cli.live import HOST, Live, serving
from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.cli.trials import Trial, asked_budget, common_budget, reported, trials
from saute.cli.watch import Watch, filmed
from saute.core.errors import UserError
from saute.core.files import write_atomically
from saute.core.text import say
from saute.envs import is_native, task_named
from saute.evidence.web import library, page
from saute.runs import facts as of
from saute.runs.budgets import at_each_budget, plane_of, sees_its_budget
from saute.runs.config import Budget
from saute.runs.evaluate import TEST_SEED
from saute.runs.facts import Facts, Tested
from saute.runs.folder import Metrics, finished, names_of, read_config, read_metrics, source_of
from saute.runs.outcomes import Elsewhere, certified, in_words
from saute.runs.provenance import provenance
from saute.runs.report import told

__all__ = ["Report", "report"]

Training = list[list[Metrics]]
"""Epochs → seeds → numbers by name."""
STEPS, MOST = 20, 24
"""The slider goes from 1/20 of the budget to 24/20."""
SHOWN, LEAST = 6, 3
"""Episodes that are drawn at each budget, of one run, and of each of several."""
PIXELS, LONGEST = 240, 1000
"""Height of the film's picture, and its most steps."""
HASTY = 100
"""Episodes of each seed while the training goes on."""
LARGE = 3_000_000
"""Bytes; larger pages are slow to open and to send."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Make one HTML file of runs: verdict, certificate, distributions, training, film, and what happens at other budgets."""

    runs: Annotated[tuple[pathlib.Path, ...], shown_as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME, side by side; the others are compared with the first."""
    out: Annotated[pathlib.Path, shown_as("FILE")] = pathlib.Path("report.html")
    """File to write."""
    episodes: Annotated[int, shown_as("N")] = 1000
    """Episodes per seed."""
    sweep: Annotated[int | None, shown_as("N", "default: 200; 20 where steps are taken on the host")] = None
    """Episodes per seed at each of the 24 budgets of the slider; 0 leaves it out."""
    film: bool = True
    """Film an episode of the first seed of each run."""
    budget: Annotated[tuple[float, ...], shown_as("NUMBER ...", "default: the run's own")] = ()
    """Budget to test at, in the units of the cost; one number per constraint."""
    confidence: Annotated[float, shown_as("SHARE")] = 0.95
    """Confidence of every bound and interval of the certificates."""
    seed: Annotated[int, shown_as("N")] = TEST_SEED
    """Seed of the evaluation."""
    env: Annotated[str, shown_as("ENV", "default: the run's own")] = ""
    """Environment to test in, module:Id-v0, for runs whose environment was given in Python."""
    cost: Annotated[tuple[str, ...], shown_as("KEY ...", "default: the run's own")] = ()
    """Where the info of that environment has its cost."""
    live: bool = False
    """Serve the page on this machine while the runs train, instead of writing it: curves move, new policies are tested."""
    port: Annotated[int, shown_as("N", "default: a free one")] = 0
    """Port of --live."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def report(options: Report) -> None:
    if options.out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {options.out} has to end in .html, since that is what is written")
    library()  # if it is missing, that is said before anything is tested
    if options.live:
        return _served(options)
    content = page(facts_of(options)).encode()
    with writing(options.out):
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out, content)
    print(f"wrote {options.out}: {len(content) / 1e6:.2f} MB, one file that needs no other")
    if len(content) > LARGE:
        say(f"note: that is more than {LARGE / 1e6:g} MB; --no-film, or fewer runs, make it smaller")


def _served(options: Report) -> None:
    names = names_of(options.runs)
    if common_budget(options.runs, asked_budget(options.budget)) is None:
        raise UserError(f"{options.runs[0]} has no budget; pass --budget, in the units of its cost")
    if pretrained := [run for run in names if source_of(run) != run]:
        raise UserError(f"{pretrained[0]} does not train any more; leave --live out")
    live = Live(lambda: _what(options), lambda: told_now(options), lambda: facts_of(_for_now(options)))
    with serving(live, options.port) as server:
        print(f"http://{HOST}:{server.server_port}/ shows {', '.join(names.values())}; Ctrl-C ends it", flush=True)
        while True:
            time.sleep(1.0)


def _what(options: Report) -> str:
    """The policies by their digests, and whether their training has ended."""
    each = [(hashlib.sha256((run / "policy.safetensors").read_bytes()).hexdigest(), finished(run)) for run in options.runs]
    return " ".join(f"{digest}{'.' * ended}" for digest, ended in each)


def _for_now(options: Report) -> Report:
    """What is tested now: all that was asked for once the training has ended, and before only so much as does not hinder it."""
    if all(map(finished, options.runs)):
        return options
    return dataclasses.replace(options, episodes=min(options.episodes, HASTY), sweep=0, film=False)


def told_now(options: Report) -> Facts:
    """What runs say of themselves while they train: how far they are, what their last epoch came to, and their curves."""
    names, epochs, runs = names_of(options.runs), dict[str, Any](), list[Facts]()
    for run, name in names.items():
        config, metrics = read_config(run), _metrics(run)
        epochs[name] = (config, _epochs(metrics))
        done = 0 if isinstance(metrics, str) else len(metrics)
        last = [("no epoch has ended yet",)] if isinstance(metrics, str) else told(metrics[-1], config.experiment.budget)
        state = "Finished" if finished(run) else "Training"
        status = f"{state}, epoch {done} of {config.epochs}: {', '.join(form[0] for form in last)}"
        runs.append({"name": name, "status": status, "curvesNote": None})
    budget = common_budget(options.runs, asked_budget(options.budget))
    env = read_config(options.runs[0]).experiment.env
    return {**heading(list(names.values()), env), "runs": runs, "curves": of.curves(epochs, budget)}


def facts_of(options: Report) -> Facts:
    """Everything that the page shows."""
    names, asked = names_of(options.runs), asked_budget(options.budget)
    budget = common_budget(options.runs, asked)
    if budget is None:
        raise UserError(f"{options.runs[0]} has no budget; pass --budget, in the units of its cost")
    if not 0.0 < options.confidence < 1.0:
        raise UserError(f"--confidence {options.confidence} is outside (0, 1); use a share, for example 0.95")
    elsewhere = Elsewhere(options.env, options.cost, options.trust)
    origins = {run: provenance(run) for run in options.runs}
    played = list(trials(options.runs, options.episodes, options.seed, asked, elsewhere))
    tested = [_certified(one, budget, options.confidence) for one in played]
    metrics = {run: _metrics(run) for run in names}
    runs = []
    for run, one in zip(names, tested, strict=True):
        shown = {**_slider(options, run, one, budget, elsewhere), **_film(options, run, one, budget)}
        origin = unchanged(run, origins[run])  # also for what was shown
        told = {**_verdict(one), "conditions": of.conditions(one, origin, options.episodes, options.seed)}
        runs.append(
            {**told, **shown, "epochs": origin["epochs"], "curvesNote": metrics[run] if isinstance(metrics[run], str) else None}
        )
    return {
        **heading(list(names.values()), tested[0].config.experiment.env),
        "budget": f"{in_words(budget)} per episode",
        "sweep": _at_each(options),
        "runs": runs,
        "evaluation": of.evaluation(tested),
        "comparison": of.comparison(compared(played, options.confidence), note_of(options.confidence)),
        "distributions": of.distributions(tested, budget),
        "curves": of.curves({name: (read_config(run), _epochs(metrics[run])) for run, name in names.items()}, budget),
    }


def heading(names: Sequence[str], env: str) -> Facts:
    """What the page is about."""
    made = f"made on {datetime.date.today():%d %B %Y} with saute {saute.__version__}"
    return {"title": f"Safety report: {', '.join(names)}", "subtitle": f"{env}, {made}"}


def _certified(one: Trial, budget: Budget, confidence: float) -> Tested:
    with reported(one.run):
        return Tested(one.name, one.config, one.outcomes, certified(one.outcomes, budget, confidence))


def _verdict(one: Tested) -> Facts:
    proved = one.certificate
    told = {"name": one.name, "statement": proved.statement, "violations": proved.pooled.violations}
    return {**told, "certificates": of.certificates(one), "notes": proved.notes}


def _epochs(metrics: Training | str) -> Training | None:
    return None if isinstance(metrics, str) else metrics


def _metrics(run: pathlib.Path) -> Training | str:
    """The numbers of a training, or why there are none."""
    try:
        return read_metrics(run)
    except UserError as problem:
        return f"{problem}."


def _slider(options: Report, run: pathlib.Path, one: Tested, budget: Budget, elsewhere: Elsewhere) -> Facts:
    if not (episodes := _at_each(options)):
        return {"slider": None, "sliderNote": "Other budgets were not tested (--sweep 0)."}
    if not sees_its_budget(one.config):
        return {"slider": None, "sliderNote": f"{one.name} does not observe a budget, so that there is nothing to set."}
    budgets = [_scaled(budget, k) for k in range(1, MOST + 1)]
    shown = max(LEAST, SHOWN // len(options.runs))
    tested = list(at_each_budget(run, budgets, episodes, options.seed, shown, elsewhere))
    own = read_config(run)
    plane = plane_of(own.experiment.env, is_native(own.experiment.env) and not options.env)
    return {"slider": of.slider(one.name, own, tested, plane, STEPS - 1), "sliderNote": None}


def _at_each(options: Report) -> int:
    """Episodes at each budget: as many as were asked for, or as take seconds, or on the host minutes."""
    native = not options.env and is_native(read_config(options.runs[0]).experiment.env)
    return (200 if native else 20) if options.sweep is None else options.sweep


def _scaled(budget: Budget, k: int) -> Budget:
    """k/20 of a budget."""
    return tuple(one * k / STEPS for one in budget) if isinstance(budget, tuple) else budget * k / STEPS


def _film(options: Report, run: pathlib.Path, one: Tested, budget: Budget) -> Facts:
    """A film as it is put into a page, and stills of it for print; or why there is none."""
    if not options.film or options.env:
        return {"film": None, "filmNote": "No film was asked for." if not options.film else "No film with --env."}
    task, policy = one.config.experiment.env, f"{run}@0"
    own = task_named(task) is not None
    wanted = Watch(
        policy,
        budget=tuple(np.atleast_1d(budget).tolist()),
        mode="test" if own else "train",
        seed=options.seed,
        size=PIXELS,
        steps=LONGEST,
        trust=options.trust,
    )
    try:
        film, fps, (episode,) = filmed(wanted)
        told = f"An episode of the first seed from start {options.seed}: return {episode.task_return:.2f}"
        paid = () if episode.cost is None else np.atleast_1d(episode.cost)
        cost = f", cost {' '.join(f'{one:.2f}' for one in paid)} of {in_words(budget)}" if len(paid) else ""
        return {"film": {"video": _mp4(film, fps), **_stills(film), "note": f"{told}{cost}."}, "filmNote": None}
    except (UserError, ModuleNotFoundError, gym.error.DependencyNotInstalled) as problem:
        return {"film": None, "filmNote": f"There is no film: {problem}."}


def _mp4(film: Film, fps: float) -> str:
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "film.mp4"
        write_mp4(file, film, fps)
        return _as_url("video/mp4", file.read_bytes())


def _stills(film: Film, rows: int = 2, columns: int = 3) -> Facts:
    """The moment in the middle of the episode, and several in one picture."""
    wanted = np.linspace(0, len(film) - 1, rows * columns).round().astype(int).tolist()
    kept = {i: frame for i, frame in enumerate(film) if i in {*wanted, len(film) // 2}}
    lines = [np.concatenate([kept[i] for i in wanted[k : k + columns]], axis=1) for k in range(0, rows * columns, columns)]
    return {"poster": _png(kept[len(film) // 2]), "still": _png(np.concatenate(lines))}


def _png(picture: np.ndarray) -> str:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(picture).quantize(64).save(content, "PNG", optimize=True)
    return _as_url("image/png", content.getvalue())


def _as_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
