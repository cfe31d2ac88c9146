"""Three drawers of seeds: what training sees, what is chosen by, and what tests are of."""

from __future__ import annotations

import itertools
import pathlib
import re
import tokenize

import pytest
from learner_toys import hosted

from saute.algos.onpolicy import OnPolicySettings
from saute.algos.trpo import trpo
from saute.core.seeds import BLOCK, EPISODES, TESTS, TRAINING, VALIDATION, block, drawer_of
from saute.envs.from_gym import HostEnvs
from saute.runs.config import Config, Experiment, completed
from saute.runs.evaluate import TEST_SEED
from saute.runs.loop import train

ROOT = pathlib.Path(__file__).parent.parent


def test_no_two_drawers_share_a_seed() -> None:
    drawers = sorted((TRAINING, TESTS, VALIDATION, EPISODES), key=lambda drawer: drawer.start)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(drawers))
    assert [drawer_of(drawer[i]) for drawer in drawers for i in (0, -1)] == [
        name for name in ("training", "tests", "validation", "training episodes") for _ in range(2)
    ]
    assert drawer_of(2**31) == "nothing"


def test_blocks_are_tests_and_apart() -> None:
    blocks = [block(number) for number in range(1, 1 + len(TESTS) // BLOCK)]
    assert blocks[0].start == TEST_SEED and blocks[-1].stop <= TESTS.stop
    assert all(before.stop == after.start for before, after in itertools.pairwise(blocks))
    for number in (0, 1 + len(TESTS) // BLOCK):
        with pytest.raises(ValueError, match=f"block {number} of test seeds does not exist; there are 1 to"):
            block(number)


def test_training_takes_no_seed_of_another_drawer() -> None:
    assert completed(Experiment("pendulum", seed=TRAINING.stop - 5)).experiment.seeds == 5
    with pytest.raises(ValueError, match="--seed 999996 with --seeds 5 goes beyond the last seed of training, 999,999"):
        completed(Experiment("pendulum", seed=TRAINING.stop - 4))
    with pytest.raises(ValueError, match="the last seed of training"):
        train(trpo(), hosted(), seeds=1, seed=TESTS.start)
    former = completed(Experiment("pendulum")).as_json() | {"seed": TESTS.start}
    assert Config.from_json(former).experiment.seed == TESTS.start, "a folder that has such a seed can be read"


def test_training_episodes_on_the_host_have_a_drawer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[int]()
    reset = HostEnvs.reset

    def seen(self: HostEnvs, seed: int, *rest: object) -> object:
        begun.extend(range(seed, seed + self.num_envs))
        return reset(self, seed, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(HostEnvs, "reset", seen)
    small = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=1)
    train(trpo(settings=small), hosted(4), seeds=2, epochs=2)
    assert len(begun) == 16 and {drawer_of(seed) for seed in begun} == {"training episodes"}


def test_no_other_file_has_seeds_of_its_own() -> None:
    """A number of seven digits or more in a line that speaks of seeds is one that this module should have."""
    files = [file for folder in ("src", "scripts") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    odd = [
        f"{file.relative_to(ROOT)}:{token.start[0]}"
        for file in files
        if file.name != "seeds.py"
        for token in tokenize.generate_tokens(file.open(encoding="utf-8").readline)
        if token.type == tokenize.NUMBER and re.search("seed", token.line, re.IGNORECASE)
        if re.fullmatch(r"[\d_]{7,}", token.string) or re.search(r"2 ?\*\* ?3\d", token.line)
    ]
    assert not odd
