"""`saute certify`: what trained policies prove, from run folders to a page and its pictures."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.cli.trials import Trial, asked_budget, common_budget, reported, trials
from saute.core.errors import UserError
from saute.core.files import write_atomically, write_sealed
from saute.core.tables import as_json, columns, markdown, room
from saute.core.text import escaped, wrapped
from saute.evidence.certificate import Certificate
from saute.evidence.plots import Group, Groups, box_plot, cost_distribution, save
from saute.evidence.stats import Interval, difference, probability_of_improvement
from saute.runs.evaluate import TEST_SEED, pooled
from saute.runs.folder import names_of
from saute.runs.outcomes import Budget, Elsewhere, certified, in_words, keep_outcomes, stepped_in
from saute.runs.pretrained import place_of
from saute.runs.provenance import provenance
from saute.runs.shield import digest_of, file_of_shield

__all__ = ["Certify", "certify", "compared", "comparison_rows", "note_of", "unchanged"]


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
    shield: bool = False
    """Certify the policies under their shields, which saute shield makes; into a folder "shielded" of its own."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""
    json: bool = False
    """Print the certificates as JSON instead."""


def certify(options: Certify) -> None:
    names_of(options.runs)  # Whether each is given once is said before anything is tested.
    asked = asked_budget(options.budget)
    budget = common_budget(options.runs, asked)
    if budget is None:
        raise UserError(f"{options.runs[0]} has no budget; pass --budget, in the units of its cost")
    if not 0.0 < options.confidence < 1.0:
        raise UserError(f"--confidence {options.confidence} is outside (0, 1); use a share, for example 0.95")
    tested, contents = list[Trial](), list[dict[str, Any]]()
    origins = {run: provenance(run) for run in options.runs}
    elsewhere = Elsewhere(options.env, options.cost, options.trust)
    for one in trials(options.runs, options.episodes, options.seed, asked, elsewhere, options.shield):
        with reported(one.run):
            certificate = certified(one.outcomes, budget, options.confidence)
        folder = options.out or place_of(one.run)
        folder = folder / one.name if options.out and len(options.runs) > 1 else folder
        folder = folder / "shielded" if options.shield else folder
        if not options.json:
            under = stepped_in(pooled(one.outcomes))
            print(f"{one.name}\n\n{certificate.text(room())}\n" + (f"\n{under}\n" if under else ""))
        with writing(folder):
            contents.append(_write(folder, one, certificate, options.seed, unchanged(one.run, origins[one.run])))
        if not options.json:
            print(f"wrote {folder / 'certificate.md'}\n")
        tested.append(one)
    against = compared(tested, options.confidence)
    if options.json:
        others = [dict(zip(("run", "against", "difference", "probability"), row, strict=True)) for row in against]
        print(as_json({"certificates": contents, "comparison": others}))
    if against:
        _compare(options, tested, budget, comparison_rows(against))


def unchanged(run: pathlib.Path, origin: dict[str, Any]) -> dict[str, Any]:
    """What the episodes are about, if it is still what it was before they were played."""
    if any(provenance(run)[name] != origin[name] for name in ("config", "policy")):
        raise UserError(f"{run} changed while it was tested; wait until its training has ended, and certify it again")
    return origin


def _compare(options: Certify, tested: Sequence[Trial], budget: Budget, rows: list[list[str]]) -> None:
    """Show the comparison with the first run, and write it where a folder is asked for."""
    note = note_of(options.confidence)
    if not options.json:
        print(columns(rows, width=room()), wrapped(note, room()), sep="\n\n")
    if options.out is None:
        return
    table = markdown([[escaped(run), escaped(other), *numbers] for run, other, *numbers in rows])
    with writing(options.out):
        _write_comparison(options.out, tested, budget, f"{table}\n\n{note}")
    if not options.json:
        print(f"\nwrote {options.out / 'comparison.md'}")


def compared(tested: Sequence[Trial], confidence: float) -> list[tuple[str, str, Interval, Interval]]:
    """Every run against the first one: difference of its return, and probability of a better one."""
    first, *others = tested

    def against(one: Trial, compare: Callable[..., Interval]) -> Interval:
        return compare(one.returns, first.returns, confidence=confidence)

    return [(one.name, first.name, against(one, difference), against(one, probability_of_improvement)) for one in others]


def comparison_rows(compared: Sequence[tuple[str, str, Interval, Interval]]) -> list[list[str]]:
    rows = [["run", "against", "difference of return, IQM", "P(better return)"]]
    shape = "{:.3f} [{:.3f}, {:.3f}]"
    return rows + [[run, other, *(shape.format(*interval) for interval in intervals)] for run, other, *intervals in compared]


def note_of(confidence: float) -> str:
    return (
        f"Intervals are {100 * confidence:g} % bootstrap intervals over seeds and their episodes. P(better return) is that of "
        "a random episode of the run against one of the other, ties counting half."
    )


def _write(folder: pathlib.Path, tested: Trial, certificate: Certificate, seed: int, origin: dict[str, Any]) -> dict[str, Any]:
    """The certificate for people and for machines, its pictures, and the episodes that it rests on."""
    folder.mkdir(parents=True, exist_ok=True)
    episodes = keep_outcomes(folder, tested.outcomes)
    _draw(
        {
            f"seed {i}": Group([one.task_return], [one.spent], None if tested.violated is None else [tested.violated[i]])
            for i, one in enumerate(tested.outcomes)
        },
        certificate.budget,
        folder / "certificate",
        tested.name,
    )
    under = stepped_in(pooled(tested.outcomes))
    guard = {} if under is None else {"shield": digest_of(file_of_shield(tested.run))}
    about = {
        "provenance": {**origin, **guard, "episodes": episodes},
        "config": tested.config.as_json(),
        "evaluation_seed": seed,
    }
    content: dict[str, Any] = json.loads(certificate.json(run=tested.name, **about))
    write_sealed(folder / "certificate.json", content)
    write_atomically(folder / "certificate.md", _page(tested, certificate, seed, origin).encode())
    return content


def _draw(groups: Groups, budget: Budget | None, prefix: pathlib.Path, subject: str) -> None:
    save(box_plot(groups, budget, subject), f"{prefix}-box.png")
    save(cost_distribution(groups, budget, subject), f"{prefix}-costs.png")


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
            *([f"Under its shield: {under}."] if (under := stepped_in(pooled(tested.outcomes))) else []),
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
    groups = {one.name: Group(one.returns, one.costs, one.violated) for one in tested}
    _draw(groups, budget, folder / "comparison", tested[0].config.experiment.env)
    certificates = "\n".join(f"- [{escaped(one.name)}]({quote(one.name)}/certificate.md)" for one in tested)
    pictures = "![Returns and costs](comparison-box.png)\n\n![Distribution of the costs](comparison-costs.png)"
    page = ["# Comparison", table, pictures, f"Certificates:\n\n{certificates}\n"]
    write_atomically(folder / "comparison.md", "\n\n".join(page).encode())
