"""The options of commands that train on several cores or machines, and who trains by them."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

from saute.core.errors import UserError
from saute.runs.crew import Crew, crew_of

__all__ = ["ALONE", "Machines", "crew", "placed"]


@dataclasses.dataclass(frozen=True)
class Machines:
    """Where several trainings run at once."""

    ray: tuple[str, ...] | None = None
    """Train with Ray on all cores of this machine, or on those of the cluster at an address, HOST:PORT."""
    cores: int = 1
    """Cores of each process; the last bits of what ppo, trpo and cpo learn depend on it."""
    storage: pathlib.Path | None = None
    """A folder that all machines of the cluster share, to keep runs in; by default they are sent to this machine."""


ALONE = Machines()
"""This process, with all cores."""


def placed(machines: Machines, out: pathlib.Path) -> pathlib.Path:
    """Where to keep what is trained: in the storage if there is one, by a whole path if others shall write there."""
    storage = machines.storage
    if machines.ray is None and storage is not None:
        raise UserError(f"--storage {storage} is for the machines of a cluster; name its address with --ray HOST:PORT")
    if storage is None:
        return out if machines.ray is None else out.absolute()
    found = out if out.absolute().is_relative_to(storage.absolute()) else storage / out
    if not found.absolute().is_relative_to(storage.absolute()):
        raise UserError(f"{out} is not in --storage {storage}, which the machines share; choose a folder in it")
    return found.absolute()


@contextlib.contextmanager
def crew(machines: Machines) -> Iterator[Crew]:
    """Who trains, by the options."""
    asked = machines.ray
    if asked is not None and len(asked) > 1:
        raise UserError(f"--ray {' '.join(asked)}: name one address, HOST:PORT")
    storage = None if machines.storage is None else machines.storage.absolute()
    with crew_of(None if asked is None else "".join(asked), machines.cores, storage) as found:
        yield found
