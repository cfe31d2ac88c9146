"""`make chaos`: every attack in a process of its own, two at a time, and a table of how many were tried and survived."""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

CACHE = "JAX_COMPILATION_CACHE_DIR"


class Job(NamedTuple):
    """Attacks of one kind, as a function of a folder to try them in."""

    kind: str
    attacks: Callable[[pathlib.Path], Iterator[str | None]]


class Tally(NamedTuple):
    """How attacks of one kind ended."""

    kind: str
    tried: int
    faults: list[str]


def jobs(short: bool) -> list[Job]:
    """All attacks, the longest first, or a few of each kind."""
    from chaos import disks, kills, mutations, oracle, strangers

    changes = 40 if short else 22_000
    wrapper, files = "wrapper steps against the oracle", "mutated stored files: "
    found = [
        Job("kills of a real training", partial(kills.of_trainings, kills=1 if short else 24)),
        Job("kills inside every write of a run folder", partial(kills.inside_writes, every=12 if short else 1)),
        *(Job(f"{files}{name}", partial(mutations.accepted, name=name, count=changes)) for name in mutations.KINDS),
        Job("folders from strangers", partial(strangers.attacked, short=short)),
        Job("kills again and again", partial(kills.again_and_again, kills=5 if short else 150)),
        Job("kills while other files are written", kills.of_other_files),
        Job("power cuts", disks.power_cuts),
        Job("full disks", partial(disks.full, fills=3 if short else 40)),
        Job("torn and stale files", partial(disks.torn_and_stale, parts=1 if short else 12)),
        Job("folders from strangers", strangers.planted),
        Job(wrapper, partial(oracle.single, steps=5000 if short else 500_000)),
        Job(wrapper, partial(oracle.vector, steps=6000 if short else 500_000)),
        Job(wrapper, partial(oracle.hosted, steps=2000 if short else 250_000)),
        Job(wrapper, partial(oracle.native, steps=25_000 if short else 1_000_000)),
        Job("costs that are refused", oracle.refused),
    ]
    left_out = ("kills of a real training", "kills while other files are written", "power cuts")
    return [one for one in found if not short or (one.kind not in left_out and one.attacks is not strangers.planted)]


def tried(job: Job) -> Tally:
    """Try all attacks of a job; one that cannot be tried is a fault too."""
    count, faults = 0, list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as place,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            for fault in job.attacks(pathlib.Path(place)):
                count += 1
                if fault is not None:
                    faults.append(fault)
        except Exception:
            count += 1
            faults.append(traceback.format_exc())
    return Tally(job.kind, count, faults)


def summed(tallies: list[Tally]) -> list[Tally]:
    """The tallies with those of one kind together."""
    groups = {kind: [one for one in tallies if one.kind == kind] for kind in sorted({one.kind for one in tallies})}
    return [
        Tally(kind, sum(one.tried for one in own), [fault for one in own for fault in one.faults])
        for kind, own in groups.items()
    ]


def table(tallies: list[Tally]) -> str:
    """A line for each kind of attack, in Markdown."""
    lines = ["| attack | tried | survived |", "|---|---:|---:|"]
    lines += [f"| {one.kind} | {one.tried:,} | {one.tried - len(one.faults):,} |" for one in tallies]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few attacks of each kind, in seconds")
    parser.add_argument("--only", default="", help="only kinds with this in their name")
    parser.add_argument("--out", type=pathlib.Path, help="file for the table")
    asked = parser.parse_args(words)
    chosen = [job for job in jobs(asked.short) if asked.only in job.kind]
    with tempfile.TemporaryDirectory(prefix="chaos-cache-") as cache:
        os.environ.setdefault(CACHE, cache)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        tallies = list(_all_tried(chosen))
    shown = table(summed(tallies))
    print(shown)
    for fault in [fault for one in tallies for fault in one.faults][:20]:
        print("fault:", fault)
    if asked.out is not None:
        asked.out.write_text(f"{shown}\n")
    return int(any(one.faults for one in tallies))


def _all_tried(chosen: list[Job]) -> Iterator[Tally]:
    """Every job in a fresh process, forked from this one, which has imported everything and started no thread of JAX's."""
    begin = time.monotonic()
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(tried, chosen, chunksize=1):
            print(f"{time.monotonic() - begin:5.0f} s  {one.kind}: {len(one.faults)} faults in {one.tried:,}", file=sys.stderr)
            yield one


def _imported() -> Any:
    """What the attacks need, imported once."""
    import jax
    import learner_toys

    import chaos.strangers
    import saute.paper.reproduce

    return chaos, jax, learner_toys, saute


if __name__ == "__main__":
    _imported()
    sys.exit(main())
