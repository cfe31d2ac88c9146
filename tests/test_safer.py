"""The table of how often training violates: numbers by hand, and from files alone."""

from __future__ import annotations

import pathlib

import pytest
from made_up import row

from saute.core.files import write_sealed
from saute.paper.figures import ARTIFACTS, SAFER, artifact_of
from saute.paper.reproduce import folder_of, scaled
from saute.paper.safer import Learned, learned, safer
from saute.runs.folder import _as_line


def epochs(*violations: float, episodes: float = 20.0) -> list[dict[str, float]]:
    return [{"violation_rate": one / episodes, "episodes": episodes} for one in violations]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        # Of ten epochs the first two are the first fifth; after the fifth one no epoch is above 1 %.
        (epochs(5, 3, 0, 0, 1, 0, 0, 0, 0, 0), Learned(200, 9, 8, 5000)),
        (epochs(0, 0, 0, 0, 0), Learned(100, 0, 0, 0)),
        (epochs(0, 0, 0, 0, 1), Learned(100, 1, 0, None)),
        # No episode ended in the first epoch; one of 200 is not above 1 %.
        ([{"violation_rate": float("nan"), "episodes": 0.0}, *epochs(1, episodes=200.0)], Learned(200, 1, 0, 0)),
    ],
)
def test_a_training_by_hand(seed: list[dict[str, float]], expected: Learned) -> None:
    assert learned(seed, 1000) == expected


def test_the_table_is_of_what_is_tested(tmp_path: pathlib.Path) -> None:
    plain, pi, _ = artifact_of("safer-pendulum").rows
    place = tmp_path / "results" / "laptop" / "safer-pendulum"
    place.mkdir(parents=True)
    write_sealed(place / "numbers.json", {"rows": [row(one.label).as_json() for one in (plain, pi)]})
    for one, seeds in ((plain, [epochs(4, 0, 0, 0, 0), epochs(2, 2, 0, 0, 0)]), (pi, [epochs(0, 0, 0, 0, 0)] * 2)):
        config = scaled(one, "laptop")
        run = folder_of(config, tmp_path / "runs")
        run.mkdir(parents=True)
        write_sealed(run / "config.json", config.as_json())
        lines = [_as_line(i, list(epoch)) for i, epoch in enumerate(zip(*seeds, strict=True))]
        (run / "metrics.jsonl").write_text("".join(lines))
    text = safer("safer-pendulum", "laptop", tmp_path / "runs", tmp_path / "results")
    assert text == (place / "safer.md").read_text().rstrip()
    assert "| Sauté TRPO | 2 | 8 of 200: 4.00 [4.00, 4.00] % | 75 % of them | 48,000 [32,000, 64,000] |" in text
    assert "| Simmer, PI | 2 | 0 of 200, so ≤ 1.5 % at 95 % | – | 0 [0, 0] |" in text and "Q-learning" not in text


def test_what_is_compared_differs_in_what_it_is_about_only() -> None:
    assert not ARTIFACTS.keys() & SAFER.keys()
    for name in SAFER:
        plain, *others = [scaled(row, "laptop").as_json() for row in artifact_of(name).rows]
        for other in others:
            changed = {key for key in plain.keys() | other.keys() if plain.get(key) != other.get(key)}
            assert changed == ({"settings"} if name == "safer-models" else {"budget_schedule", "schedule"})
