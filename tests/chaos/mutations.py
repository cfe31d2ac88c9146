"""Stored files of every kind with random damage: each is refused in words, or means what it meant before."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from chaos.faults import CONFIG, light
from saute.core.errors import UserError
from saute.core.files import CheckpointError, read_sealed, write_sealed
from saute.runs.checkpoint import load
from saute.runs.folder import read_config, read_metrics

SECONDS = 20
"""After which a reader counts as hanging."""
REFUSALS = (CheckpointError, UserError)
FORMER = pathlib.Path(__file__).parents[1] / "former" / "policy"


class Kind(NamedTuple):
    """A kind of stored file: its name, how it is made in a folder and read from it, and when it is the same."""

    file: str
    make: Callable[[pathlib.Path], object]
    read: Callable[[pathlib.Path], Any]
    same: Callable[[Any, Any], bool] = lambda found, expected: found == expected


def _arrays(found: Any) -> Any:
    """Arrays and what is said about them as values that can be compared."""
    arrays, meta = found
    return {name: (str(one.dtype), one.shape, one.tobytes()) for name, one in arrays.items()}, meta


def _make_policy(place: pathlib.Path) -> None:
    import jax
    from gymnasium import spaces

    from saute.core.protocol import Spec
    from saute.learn.nets import policy_for
    from saute.runs.trained import policy_description, save_policies

    spec = Spec(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))
    net = policy_for(spec.observation_space, spec.action_space, (3,))
    description = {**policy_description(spec, net, 4), "config": CONFIG.digest}
    write_sealed(place / "config.json", CONFIG.as_json())
    save_policies(place / "policy.safetensors", [net.init(jax.random.key(i)) for i in range(2)], description)


def _policies(place: pathlib.Path) -> Any:
    import jax

    from saute.runs.policy import load_policies

    def plain(policy: Any) -> Any:
        net = policy.net
        return [pickle.dumps(leaf) for leaf in jax.tree.leaves((net.filters, net.hidden, net.last, net.log_std))], policy.about

    return {seed: plain(policy) for seed, policy in load_policies(place).items()}


def _make_numbers(place: pathlib.Path) -> None:
    from saute.paper.measured import Measured, Seed, Spread

    spread = Spread(*map(float, range(10)))
    row = Measured("Sauté", 30.0, spread, spread, (Seed(5, 0, 1.0, 2.0, 3.0),), "run", 4, None)
    (place / "laptop" / "car").mkdir(parents=True)
    write_sealed(place / "laptop/car/numbers.json", {"rows": [row.as_json()]})


def _numbers(place: pathlib.Path) -> Any:
    from saute.paper.page import read

    return read(place, "laptop", "car")


def _make_certificate(place: pathlib.Path) -> None:
    from saute.evidence.certificate import certify

    write_sealed(place / "certificate.json", json.loads(certify([20.0, 21.0, 19.5] * 20, 30.0).json(run="a")))


def _make_episodes(place: pathlib.Path) -> None:
    from saute.runs.evaluate import Outcome
    from saute.runs.outcomes import keep_outcomes

    numbers = np.arange(6.0)
    digests = keep_outcomes(place, [Outcome(numbers, numbers, numbers.astype(int), numbers, numbers > 3)])
    write_sealed(place / "certificate.json", {"episodes": digests})


def _episodes(place: pathlib.Path) -> Any:
    """The episodes that a certificate rests on, which names their digests."""
    file = place / "episodes/seed-0.npz"
    if hashlib.sha256(file.read_bytes()).hexdigest() != read_sealed(place / "certificate.json")["episodes"][file.name]:
        raise CheckpointError(f"{file} is not the one of the certificate")
    with np.load(file) as found:
        return _arrays(({name: found[name] for name in found.files}, {}))


def _make_seconds(place: pathlib.Path) -> None:
    write_sealed(place / "seconds.json", {"seconds": 1234})


def _seconds(place: pathlib.Path) -> Any:
    from saute.paper.reproduce import seconds_of

    return seconds_of(place)


def _begins(found: Any, expected: Any) -> bool:
    """Numbers whose last lines are missing are those of a run that was killed; resuming it restores them."""
    return repr(found) == repr(expected[: len(found)])


def _make_former(place: pathlib.Path) -> None:
    shutil.copytree(FORMER, place, dirs_exist_ok=True)


KINDS = {
    "config.json": Kind("config.json", light, read_config),
    "metrics.jsonl": Kind("metrics.jsonl", light, read_metrics, same=_begins),
    "versions.json": Kind("versions.json", light, lambda place: read_sealed(place / "versions.json")),
    "checkpoint": Kind(
        "checkpoints/000004.safetensors",
        light,
        lambda place: _arrays(load(place / "checkpoints/000004.safetensors", config=CONFIG.digest)),
    ),
    "policy": Kind("policy.safetensors", _make_policy, _policies),
    "policy of a former version": Kind("policy.safetensors", _make_former, _policies),
    "certificate.json": Kind("certificate.json", _make_certificate, lambda place: read_sealed(place / "certificate.json")),
    "numbers.json": Kind("laptop/car/numbers.json", _make_numbers, _numbers),
    "seconds.json": Kind("seconds.json", _make_seconds, _seconds, same=lambda found, expected: found in (None, expected)),
    "episodes": Kind("episodes/seed-0.npz", _make_episodes, _episodes),
}


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """The content with one random change: of a bit, a byte, a digit, a part that is lost, doubled, moved, zeroed or foreign."""
    at, size = chance.randrange(len(whole)), 1 + int(2 ** chance.uniform(0, 8))
    part, before, after = whole[at : at + size], whole[:at], whole[at + size :]
    digits = [place for place in range(at, min(at + 200, len(whole))) if whole[place : place + 1].isdigit()]
    digit = digits[0] if digits else at
    return chance.choice(
        (
            lambda: before + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :],
            lambda: before + chance.randbytes(1) + whole[at + 1 :],
            lambda: whole[:digit] + str(chance.randrange(10)).encode() + whole[digit + 1 :],
            lambda: before + after,
            lambda: before + part + part + after,
            lambda: before + part[::-1] + after,
            lambda: before + bytes(len(part)) + after,
            lambda: before + chance.randbytes(size) + whole[at:],
            lambda: before,
            lambda: whole + chance.randbytes(size),
        )
    )()


def accepted(place: pathlib.Path, name: str, count: int, seed: int = 0) -> Iterator[str | None]:
    """So many changes of one kind of file: None for each that is refused or changes nothing."""
    kind, chance = KINDS[name], random.Random(f"{name} {seed}")
    kind.make(place)
    file = place / kind.file
    whole, expected = file.read_bytes(), kind.read(place)
    signal.signal(signal.SIGALRM, _give_up)
    for _ in range(count):
        odd = mutated(whole, chance)
        file.write_bytes(odd)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        yield _fault(kind, place, expected)
        signal.setitimer(signal.ITIMER_REAL, 0)


class Hang(BaseException):
    """A reader that does not end."""


def _give_up(number: int, frame: object) -> None:
    raise Hang


def _fault(kind: Kind, place: pathlib.Path, expected: Any) -> str | None:
    try:
        with contextlib.suppress(*REFUSALS):
            return None if kind.same(kind.read(place), expected) else f"{kind.file}: a change was accepted"
    except Hang:
        return f"{kind.file}: a hang"
    except Exception as problem:
        return f"{kind.file}: a raw {type(problem).__name__}: {problem}"
    return None
