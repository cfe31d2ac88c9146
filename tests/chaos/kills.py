"""Processes that are killed at every write of a run folder, at random moments, and while they write anything else."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np

from chaos.faults import begun, calls_of, content, different, ended, forked, killed, light
from saute.core.files import write_sealed
from saute.runs.checkpoint import load
from saute.runs.evaluate import Outcome
from saute.runs.outcomes import keep_outcomes


def inside_writes(place: pathlib.Path, every: int = 1) -> Iterator[str | None]:
    """A kill before every call that touches a file, and in the middle of every write; then the run goes on to its end."""
    calls = calls_of(lambda: light(place / "whole"))
    whole = content(place / "whole")
    moments = [(at, halfway) for at, halves in enumerate(calls) for halfway in ((False, True) if halves else (False,))]
    for at, halfway in moments[::every]:
        out = place / f"{at}-{halfway}"
        if not killed(lambda out=out: light(out), at, halfway):  # type: ignore[misc]
            yield f"call {at} was not reached"
            continue
        yield _readable(out) or _resumed(out, whole)


def again_and_again(place: pathlib.Path, kills: int, seed: int = 0) -> Iterator[str | None]:
    """Kills at random calls of a training that goes on, and is killed again, until it has ended."""
    moments, done = random.Random(seed), 0
    light(place / "whole")
    whole, run = content(place / "whole"), 0
    while done < kills:
        out, run, since = place / str(run), run + 1, done
        while killed(lambda out=out: light(out), moments.randrange(60), moments.random() < 0.5):  # type: ignore[misc]
            done += 1
        fault = _resumed(out, whole)
        yield from [fault] * (done - since)


def _readable(out: pathlib.Path) -> str | None:
    """Policies that are there after a kill are whole."""
    file = out / "policy.safetensors"
    if file.exists():
        load(file)
    return None


def _resumed(out: pathlib.Path, whole: dict[str, bytes]) -> str | None:
    light(out)
    return different(content(out), whole)


def _episodes(place: pathlib.Path, version: int) -> None:
    numbers = np.full(50, float(version))
    keep_outcomes(place, [Outcome(numbers, numbers, numbers.astype(int), numbers)] * 2)


def _sealed(place: pathlib.Path, version: int) -> None:
    write_sealed(place / "certificate.json", {"violations": version})


def _picture(place: pathlib.Path, version: int) -> None:
    from matplotlib.figure import Figure

    from saute.evidence.plots import save

    save(Figure(figsize=(version, version)), place / "box.png")


OTHERS: dict[str, Callable[[pathlib.Path, int], None]] = {"episodes": _episodes, "certificate": _sealed, "picture": _picture}


def of_other_files(place: pathlib.Path) -> Iterator[str | None]:
    """A kill at every call while a file is replaced: it is the old one or the new one."""
    for name, write in OTHERS.items():
        versions = []
        for version in (1, 2):
            folder = place / f"{name}-{version}"
            folder.mkdir()
            calls = calls_of(lambda folder=folder, version=version, write=write: write(folder, version))  # type: ignore[misc]
            versions.append(content(folder))
        for at, halves in enumerate(calls):
            folder = place / f"{name}-at-{at}"
            folder.mkdir()
            write(folder, 1)
            killed(lambda folder=folder, write=write: write(folder, 2), at, halves)  # type: ignore[misc]
            found = {file: one for file, one in content(folder).items() if ".part" not in file}
            torn = [file for file, one in found.items() if one not in (versions[0][file], versions[1][file])]
            yield f"{torn[0]} is torn" if torn or found.keys() != versions[0].keys() else None


def _training(out: pathlib.Path) -> None:
    """Real learning, with a checkpoint after every epoch, which takes milliseconds."""
    from learner_toys import Slope

    import saute
    from saute.algos.onpolicy import OnPolicySettings

    settings = OnPolicySettings(hidden=(8,), steps_per_epoch=100, value_iterations=5)
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-2.0)
    saute.train(saute.trpo(settings=settings), env, seeds=1, epochs=120, out=out, checkpoint_seconds=0.0)


def of_trainings(place: pathlib.Path, kills: int, seed: int = 0) -> Iterator[str | None]:
    """Real trainings killed at random moments, one after another in the same folder, until they have ended."""
    moments, out, whole = random.Random(seed), place / "killed", place / "whole"
    if forked(lambda: _training(whole)):
        yield "the training failed"
        return
    done = 0
    while done < kills:
        out, since = place / f"from-{done}", done
        while done < kills and _killed_soon(out, moments.uniform(0.0, 0.1)):
            done += 1
        if forked(lambda out=out: _training(out)):  # type: ignore[misc]
            yield "it does not go on"
            return
        yield from [different(content(out), content(whole))] * (done - since)


def _killed_soon(out: pathlib.Path, seconds: float) -> bool:
    """Whether a process was killed, so long after its first epoch was saved."""
    lines, child = out / "metrics.jsonl", begun(lambda: _training(out))
    reached = lines.stat().st_mtime_ns if lines.exists() else 0
    # Numbers of the last process are written once at the start; those of an epoch come after.
    changes = 0
    while changes < 2 and os.waitpid(child, os.WNOHANG) == (0, 0):
        now = lines.stat().st_mtime_ns if lines.exists() else 0
        changes, reached = changes + (now != reached), now
        time.sleep(0.002)
    if changes < 2:
        return False
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return ended(child) == -signal.SIGKILL
