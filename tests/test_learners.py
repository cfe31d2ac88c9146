"""One battery over all learners, in JAX-native and in Gymnasium's environments: stopped anywhere and gone on with, run again,
compiled once."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from learner_toys import LEARNERS, WHERE, Fuse, Stop, assert_same, slopes

from saute.core.protocol import spec_of
from saute.learn.drive import Drive, Training, drive
from saute.runs.build import ledger_of
from saute.runs.checkpoint import load, restore, save
from saute.runs.loop import train

SEEDS, EPOCHS = 2, 3
LOST = (Stop, jax.errors.JaxRuntimeError)
"""What an environment that fails raises: on the host as it is, through compiled code as JAX tells it."""
BATTERY = [f"{name}-{where}" for name in LEARNERS for where in WHERE]


class Trained(NamedTuple):
    """A training, every epoch of it, and how often something was compiled in each."""

    body: Drive
    fuse: Fuse
    first: list[Training]
    epochs: list[list[tuple[Training, dict[str, Any]]]]
    compiled: list[int]


def keys_of(epoch: int) -> list[Any]:
    return [jax.random.fold_in(jax.random.key(seed), epoch) for seed in range(SEEDS)]


def goes_on(body: Drive, seeds: list[Training], first: int, last: int) -> list[list[tuple[Training, dict[str, Any]]]]:
    """Epochs of a training."""
    epochs = []
    for i in range(first, last):
        epochs.append(body.epoch(seeds, keys_of(i + 1)))
        seeds = [seed for seed, _ in epochs[-1]]
    return epochs


@pytest.fixture(scope="module", params=BATTERY)
def trained(request: pytest.FixtureRequest) -> Iterator[Trained]:
    name, where = request.param.split("-")
    algorithm, fuse, events = LEARNERS[name], Fuse(), list[str]()

    def listen(event: str, seconds: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(event)

    env = slopes(name, where, 1, fuse)
    body = drive(algorithm.agent(spec_of(env)), env, ledger_of(env, algorithm, None))
    first = body.first(keys_of(0))
    seeds, epochs, compiled = first, [], []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for i in range(EPOCHS):
            events.clear()
            epochs += goes_on(body, seeds, i, i + 1)
            seeds = [seed for seed, _ in epochs[-1]]
            compiled.append(len(events))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    yield Trained(body, fuse, first, epochs, compiled)


def test_it_learns_and_its_numbers_are_finite(trained: Trained) -> None:
    for (before, _), (after, metrics) in zip(trained.epochs[-2], trained.epochs[-1], strict=True):
        leaves = zip(*(jax.tree.leaves(trained.body.export(seed)) for seed in (before, after)), strict=True)
        assert any((x != y).any() for x, y in leaves), "the policy changes"
        assert metrics["finite"] and metrics["episodes"] >= 1
        missing = {name for name, value in metrics.items() if np.isnan(value)}
        assert not missing, "everything is measured by now"


def test_nothing_is_compiled_again_after_the_first_epoch(trained: Trained) -> None:
    assert trained.compiled[1:] == [0] * (EPOCHS - 1)


@pytest.mark.parametrize("trained", [which for which in BATTERY if which.endswith("native")], indirect=True)
def test_a_compiled_epoch_takes_nothing_from_the_host(trained: Trained) -> None:
    """Everything that an epoch reads is on the device when it begins; an array of NumPy among it would be refused."""
    keys = keys_of(1)
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        epoch = trained.body.epoch(trained.first, keys)
    finally:
        jax.config.update("jax_transfer_guard", "allow")
    assert_same(epoch, trained.epochs[0])


def test_it_runs_again_bit_for_bit(trained: Trained) -> None:
    first = trained.body.first(keys_of(0))
    assert_same(first, trained.first)
    assert_same(goes_on(trained.body, first, 0, EPOCHS), trained.epochs)


@pytest.mark.parametrize("step", [1, 17, 38])
def test_stopped_in_the_middle_of_an_epoch_it_goes_on_bit_for_bit(trained: Trained, step: int, tmp_path: pathlib.Path) -> None:
    """An epoch of both seeds has at least 40 steps; what came into it is whole, is saved, and goes on from the file."""
    before = [seed for seed, _ in trained.epochs[0]]
    trained.fuse.at = trained.fuse.steps + step
    with pytest.raises(LOST):
        trained.body.epoch(before, keys_of(2))
    save(tmp_path / "seeds.safetensors", tuple(before), {})
    restored = restore(tuple(trained.first), load(tmp_path / "seeds.safetensors")[0])
    assert_same(goes_on(trained.body, list(restored), 1, EPOCHS), trained.epochs[1:])


@pytest.mark.slow
@pytest.mark.parametrize("which", BATTERY)
def test_a_run_that_stops_anywhere_continues_bit_for_bit_in_its_folder(which: str, tmp_path: pathlib.Path) -> None:
    name, where = which.split("-")
    fuse = Fuse()

    def run(folder: str) -> Any:
        return train(LEARNERS[name], slopes(name, where, 1, fuse), seeds=SEEDS, epochs=4, out=tmp_path / folder)

    whole = run("whole")
    fuse.at = fuse.steps + (fuse.steps * 5) // 8 + 7
    with pytest.raises(LOST):
        run("cut")
    cut = run("cut")
    assert_same(whole.states, cut.states)
    for file in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()
