"""`saute certify`: what trained policies prove, from run folders to a page and its pictures."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.cli.trials import Trial, asked_budget, common_budget, reported, trials
from saute.core.errors import UserError
from saute.core.files import write_atomically, write_sealed
from saute.core.tables import columns, markdown
from saute.core.text import escaped
from saute.evidence.certificate import Certificate
from saute.evidence.certificate import certify as certify_costs
from saute.evidence.plots import Groups, box_plot, cost_distribution, save
from saute.evidence.stats import difference, probability_of_improvement
from saute.runs.evaluate import TEST_SEED
from saute.runs.folder import names_of
from saute.runs.outcomes import Budget, Elsewhere, in_words, keep_outcomes
from saute.runs.pretrained import place_of
from saute.runs.provenance import provenance

__all__ = ["Certify", "certify"]


@dataclasses.dataclass(frozen=True)
class Certify:
    """Say what fresh episodes of trained policies prove about their budget, and compare several runs with the first."""

    runs: Annotated[tuple[pathlib.Path, ...], shown_as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME."""
    episodes: Annotated[int, shown_as("N")] = 10_000
    """Episodes per seed."""
    out: Annotated[pathlib.Path | None, shown_as("FOLDER", "default: the run folder")] = None
    """Folder for the certificate; for several runs, one folder in it for each, and their comparison."""
    budget: Annotated[tuple[float, ...], shown_as("NUMBER ...", "default: the run's own")] = ()
    """Budget to test at, in the units of the cost; one number per constraint."""
    confidence: Annotated[float, shown_as("SHARE")] = 0.95
    """Confidence of every bound and interval."""
    seed: Annotated[int, shown_as("N")] = TEST_SEED
    """Seed of the evaluation."""
    env: Annotated[str, shown_as("ENV", "default: the run's own")] = ""
    """Environment to test in, module:Id-v0, for runs whose environment was given in Python."""
    cost: Annotated[tuple[str, ...], shown_as("KEY ...", "default: the run's own")] = ()
    """Where the info of that environment has its cost."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def certify(options: Certify) -> None:
    names_of(options.runs)  # Whether each is given once is said before anything is tested.
    asked = asked_budget(options.budget)
    budget = common_budget(options.runs, asked)
    if budget is None:
        raise UserError(f"{options.runs[0]} has no budget; pass --budget, in the units of its cost")
    if not 0.0 < options.confidence < 1.0:
        raise UserError(f"--confidence {options.confidence} is outside (0, 1); use a share, for example 0.95")
    tested, origins = [], {run: provenance(run) for run in options.runs}
    elsewhere = Elsewhere(options.env, options.cost, options.trust)
    for one in trials(options.runs, options.episodes, options.seed, asked, elsewhere):
        with reported(one.run):
            certificate = certify_costs(
                one.costs, budget, violated=one.violated, returns=one.returns, confidence=options.confidence
            )
        folder = options.out or place_of(one.run)
        folder = folder / one.name if options.out and len(options.runs) > 1 else folder
        with writing(folder):
            _write(folder, one, certificate, options.seed, _unchanged(one.run, origins[one.run]))
        print(f"{one.name}\n\n{certificate.text()}\n\nwrote {folder / 'certificate.md'}\n")
        tested.append(one)
    if len(tested) > 1:
        rows, note = _comparison(tested, options.confidence), _note(options.confidence)
        print(columns(rows), note, sep="\n\n")
        if options.out is not None:
            table = markdown([[escaped(run), escaped(other), *numbers] for run, other, *numbers in rows])
            with writing(options.out):
                _write_comparison(options.out, tested, budget, f"{table}\n\n{note}")
            print(f"\nwrote {options.out / 'comparison.md'}")


def _unchanged(run: pathlib.Path, origin: dict[str, Any]) -> dict[str, Any]:
    """What the episodes are about, if it is still what it was before they were played."""
    if any(provenance(run)[name] != origin[name] for name in ("config", "policy")):
        raise UserError(f"{run} changed while it was tested; wait until its training has ended, and certify it again")
    return origin


def _comparison(tested: Sequence[Trial], confidence: float) -> list[list[str]]:
    """Every run against the first one, in rows of a table."""
    rows = [["run", "against", "difference of return, IQM", "P(better return)"]]
    first, *others = tested
    for one in others:
        intervals = (
            compare(one.returns, first.returns, confidence=confidence) for compare in (difference, probability_of_improvement)
        )
        rows.append([one.name, first.name, *("{:.3f} [{:.3f}, {:.3f}]".format(*interval) for interval in intervals)])
    return rows


def _note(confidence: float) -> str:
    return (
        f"Intervals are {100 * confidence:g} % bootstrap intervals over seeds and their episodes. P(better return) is that of "
        "a random episode of the run against one of the other, ties counting half."
    )


def _write(folder: pathlib.Path, tested: Trial, certificate: Certificate, seed: int, origin: dict[str, Any]) -> None:
    """The certificate for people and for machines, its pictures, and the episodes that it rests on."""
    folder.mkdir(parents=True, exist_ok=True)
    episodes = keep_outcomes(folder, tested.outcomes)
    _draw(
        {f"seed {i}": ([one.task_return], [one.spent]) for i, one in enumerate(tested.outcomes)},
        certificate.budget,
        folder / "certificate",
    )
    about = {"provenance": {**origin, "episodes": episodes}, "config": tested.config.as_json(), "evaluation_seed": seed}
    content = certificate.json(run=tested.name, **about)
    write_sealed(folder / "certificate.json", json.loads(content))
    write_atomically(folder / "certificate.md", _page(tested, certificate, seed, origin).encode())


def _draw(groups: Groups, budget: Budget | None, prefix: pathlib.Path) -> None:
    save(box_plot(groups, budget), f"{prefix}-box.png")
    save(cost_distribution(groups, budget), f"{prefix}-costs.png")


def _page(tested: Trial, certificate: Certificate, seed: int, origin: dict[str, Any]) -> str:
    it = tested.config.experiment
    task, method = escaped(it.env), escaped(it.method)
    return "\n\n".join(
        [
            f"# Safety certificate: {escaped(tested.name)}",
            f"**{certificate.statement}.**",
            f"Task {task}, method {method}, optimiser {it.algo}, {it.seeds} seed(s) of {origin['epochs']} epochs; budget "
            f"{in_words(certificate.budget or 0.0)} per episode. Deterministic policies, on starts from seed {seed} that "
            "training never saw.",
            f"Tested on {origin['date']} with saute {origin['saute']} on {origin['machine']}; policies `{origin['policy']}`, "
            f"trained with the configuration `{origin['config']}` (SHA-256).",
            f"```text\n{certificate.table()}\n```",
            "![Returns and costs of every seed](certificate-box.png)",
            "![Distribution of the costs of every seed](certificate-costs.png)",
            "\n".join(f"- {note}" for note in certificate.notes),
            "The numbers are in `certificate.json`, every episode in `episodes/`.\n",
        ]
    )


def _write_comparison(folder: pathlib.Path, tested: Sequence[Trial], budget: Budget, table: str) -> None:
    _draw({one.name: (one.returns, one.costs) for one in tested}, budget, folder / "comparison")
    certificates = "\n".join(f"- [{escaped(one.name)}]({quote(one.name)}/certificate.md)" for one in tested)
    pictures = "![Returns and costs](comparison-box.png)\n\n![Distribution of the costs](comparison-costs.png)"
    page = ["# Comparison", table, pictures, f"Certificates:\n\n{certificates}\n"]
    write_atomically(folder / "comparison.md", "\n\n".join(page).encode())
